//! The account of a container in Azure: the name of its server, and part of what is signed.

use ::object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::url::is_true;

/// Why nobody knows which server is meant, or who signs.
pub(super) const NO_ACCOUNT: &str =
    "nothing says whose container it is: set AZURE_STORAGE_ACCOUNT_NAME";
/// An account that nobody is told.
const NOBODY: &str = "anonymous";

/// The builder, with an account that it has or does not need; nothing if it lacks one.
pub(super) fn with_account(builder: MicrosoftAzureBuilder) -> Option<MicrosoftAzureBuilder> {
    let has = |key| builder.get_config_value(&key).is_some_and(|value| !value.is_empty());
    let is = |key| is_true(builder.get_config_value(&key));
    if has(AzureConfigKey::AccountName) || is(AzureConfigKey::UseEmulator) {
        return Some(builder);
    }
    // The client wants one all the same, where the server is named and nothing is signed.
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
