//! The account of a container in Azure, which determines its server and is part of each signature.

use ::object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::url::is_true;

/// The error for a missing account.
pub(super) const NO_ACCOUNT: &str =
    "nothing says whose container it is: set AZURE_STORAGE_ACCOUNT_NAME";
/// An account name that no server sees.
const NOBODY: &str = "anonymous";

/// Returns the builder with an account if it has or needs none; `None` if it lacks one.
pub(super) fn with_account(builder: MicrosoftAzureBuilder) -> Option<MicrosoftAzureBuilder> {
    let has = |key| builder.get_config_value(&key).is_some_and(|value| !value.is_empty());
    let is = |key| is_true(builder.get_config_value(&key));
    if has(AzureConfigKey::AccountName) || is(AzureConfigKey::UseEmulator) {
        return Some(builder);
    }
    // The client requires a name even for unsigned requests to an explicit endpoint.
    let is_needless = has(AzureConfigKey::Endpoint) && is(AzureConfigKey::SkipSignature);
    is_needless.then(|| builder.with_account(NOBODY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_wanted_where_it_names_the_server_or_signs() {
        let builder = MicrosoftAzureBuilder::new;
        let account = |builder| {
            let found = with_account(builder)?;
            Some(found.get_config_value(&AzureConfigKey::AccountName))
        };
        let named = || builder().with_account("ours");
        let ours = Some(Some("ours".to_owned()));
        let elsewhere = || builder().with_endpoint("http://localhost:10000/ours".to_owned());
        assert_eq!(account(builder()), None);
        assert_eq!(account(builder().with_account("")), None);
        assert_eq!(account(builder().with_skip_signature(true)), None);
        assert_eq!(account(elsewhere()), None);
        assert_eq!(account(named()), ours);
        assert_eq!(account(named().with_skip_signature(true)), ours);
        assert_eq!(account(builder().with_use_emulator(true)), Some(None));
        let unsigned = elsewhere().with_skip_signature(true);
        assert_eq!(account(unsigned), Some(Some(NOBODY.to_owned())));
    }
}
