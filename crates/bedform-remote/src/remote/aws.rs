//! Credentials from the files of `aws configure`, where the environment has none.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use ::configparser::ini::Ini;
use ::object_store::aws::AmazonS3Builder;

/// Variables that give credentials or their source; with one of them set, the files are ignored.
const IN_ENVIRONMENT: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// The most bytes of a file; larger ones are ignored.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The error for missing credentials.
pub(super) const NONE: &str = "there are no credentials: set AWS_ACCESS_KEY_ID and \
                               AWS_SECRET_ACCESS_KEY, run 'aws configure', or say that requests are \
                               anonymous";

/// Adds the credentials and the region of the profile that the environment names. `None` if there
/// are none, and the machine's metadata server is turned off.
pub(super) fn with_profile(mut builder: AmazonS3Builder) -> Option<AmazonS3Builder> {
    let has = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let name = env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned());
    let config = file("AWS_CONFIG_FILE", "config");
    let section = if name == "default" { name.clone() } else { format!("profile {name}") };
    let config = config.map_or_else(BTreeMap::new, |text| values_of(&text, &section));
    if !["AWS_REGION", "AWS_DEFAULT_REGION"].iter().any(has)
        && let Some(region) = config.get("region")
    {
        builder = builder.with_region(region);
    }
    if IN_ENVIRONMENT.iter().any(has) {
        return Some(builder);
    }
    let own = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let own = own.map_or_else(BTreeMap::new, |text| values_of(&text, &name));
    let value = |key: &str| own.get(key).or_else(|| config.get(key));
    let (Some(id), Some(secret)) = (value("aws_access_key_id"), value("aws_secret_access_key"))
    else {
        let is_refused = env::var("AWS_EC2_METADATA_DISABLED").is_ok_and(|value| value == "true");
        return (!is_refused).then_some(builder);
    };
    builder = builder.with_access_key_id(id).with_secret_access_key(secret);
    Some(match value("aws_session_token") {
        Some(token) => builder.with_token(token),
        None => builder,
    })
}

/// Reads the file that a variable names, or the tools' default file.
fn file(variable: &str, name: &str) -> Option<String> {
    let named = env::var_os(variable).map(PathBuf::from);
    let path = named.or_else(|| Some(env::home_dir()?.join(".aws").join(name)))?;
    let is_small =
        fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() <= FILE_BYTES_MAX);
    is_small.then(|| fs::read_to_string(path).ok())?
}

/// Returns the values of a section of a file; none if the file is damaged.
fn values_of(text: &str, section: &str) -> BTreeMap<String, String> {
    let mut reader = Ini::new_cs();
    reader.set_default_section("");
    // A token may contain any other character.
    reader.set_inline_comment_symbols(Some(&[]));
    let mut rules = reader.defaults();
    rules.delimiters = vec!['='];
    reader.load_defaults(rules);
    let sections = reader.read(text.to_owned()).unwrap_or_default();
    let is_it = |name: &str| name.split_whitespace().eq(section.split_whitespace());
    let found = sections.into_iter().filter(|(name, _)| is_it(name)).flat_map(|(_, values)| values);
    found.filter_map(|(key, value)| Some((key, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_its_own_values_and_no_comments() {
        let text = "[default]\na = 1\n# a = 2\n[ profile  other ]\na=3=4\n b = x \n[last]\na=5\n";
        let other = values_of(text, "profile other");
        assert_eq!(other["a"], "3=4");
        assert_eq!(other["b"], "x");
        assert_eq!(values_of(text, "default"), BTreeMap::from([("a".into(), "1".into())]));
        assert_eq!(values_of(text, "none"), BTreeMap::new());
    }
}
