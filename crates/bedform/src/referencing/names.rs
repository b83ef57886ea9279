//! The paths and URLs of files in a set.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::{ReferenceForm, ReferenceOptions, SetFile};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::foreign::stored::SourceFile;
use crate::opening::{has_query, url_of};

/// Characters that stand for themselves in the path of a URL.
const PLAIN: &[u8] = b"-._~/!$&'()*+,;=:@";
/// The first characters of templates and expressions, which readers of kerchunk's sets fill in.
const TEMPLATES: [&str; 2] = ["{{", "{%"];

/// The names that files get in a set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FileNames {
    /// Absolute paths with links resolved; URLs as they are.
    #[default]
    Absolute,
    /// Paths relative to this directory.
    RelativeTo(PathBuf),
    /// URLs below this one: the paths behind the directory that all files share.
    Below(String),
}

impl FileNames {
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        if value.as_str() == Some("absolute") {
            return Some(Self::Absolute);
        }
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        match (text("relative_to"), text("below")) {
            (Some(directory), None) => Some(Self::RelativeTo(directory.into())),
            (None, Some(url)) => Some(Self::Below(url.trim_end_matches('/').to_owned())),
            _ => None,
        }
    }
}

/// Returns the files of a source, with their names in the set.
///
/// # Errors
/// `InvalidArgument` for a path that is not UTF-8 or that readers refuse, and for a file at a URL with
/// a query or that is to have another name; those of resolving links.
pub(super) fn file_names(file: &ForeignFile, options: &ReferenceOptions) -> Result<Vec<SetFile>> {
    let sources = file.source_files();
    let given = options.source.clone().unwrap_or_else(|| file.name());
    let files = match url_of(Path::new(&given)) {
        Some(url) => {
            let modified_ns = sources.first().map_or(0, |source| source.version.modified_ns);
            vec![SetFile { name: url_name(url, &options.names)?, modified_ns }]
        }
        None => local_files(&sources, Path::new(&given), options)?,
    };
    check_readable(&files, options.form)?;
    Ok(files)
}

/// Returns the files of a source on this machine; `given` is the path of one that was opened alone.
fn local_files(
    sources: &[SourceFile],
    given: &Path,
    options: &ReferenceOptions,
) -> Result<Vec<SetFile>> {
    let mut paths = Vec::with_capacity(sources.len());
    for source in sources {
        paths.push(match &source.path {
            Some(path) => path.clone(),
            None => resolved(given)?,
        });
    }
    let shared = shared_directory(&paths);
    let named = paths.iter().zip(sources).map(|(path, source)| {
        let name = name_of(path, &shared, options)?;
        // A copy of a file at a URL was changed last when it was copied there.
        let is_copy = matches!(options.names, FileNames::Below(_));
        let modified_ns = if is_copy { 0 } else { source.version.modified_ns };
        Ok(SetFile { name, modified_ns })
    });
    named.collect()
}

/// Returns the name of a file at a URL.
fn url_name(url: &str, names: &FileNames) -> Result<String> {
    let address = url.split('#').next().unwrap_or_default();
    let plain = address.split('?').next().unwrap_or_default();
    if *names != FileNames::Absolute {
        let text = format!("{plain}: a file at a URL keeps its URL: names is \"absolute\"");
        return Err(Error::invalid(text));
    }
    if has_query(url) {
        let text = format!(
            "{plain}: its URL has a query, which may be a secret, and a set is for others to read: give a URL without \
             one"
        );
        return Err(Error::invalid(text));
    }
    Ok(plain.to_owned())
}

#[allow(clippy::disallowed_methods, reason = "it resolves the path of a file that is open")]
fn resolved(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .map_err(|error| Error::new(ErrorKind::Io, format!("{}: {error}", path.display())))
}

/// Fails for names that readers of the format refuse or change.
fn check_readable(files: &[SetFile], form: ReferenceForm) -> Result<()> {
    let is_template = |name: &str| TEMPLATES.iter().any(|start| name.contains(start));
    for SetFile { name, .. } in files {
        let what = match form {
            _ if name.contains(char::is_control) => "no control characters in names",
            ReferenceForm::Kerchunk if is_template(name) => "{{ and {% in names as templates",
            _ => continue,
        };
        let text = format!("{name}: readers of references take {what}: rename the file");
        return Err(Error::invalid(text));
    }
    Ok(())
}

fn name_of(path: &Path, shared: &Path, options: &ReferenceOptions) -> Result<String> {
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            Error::invalid(format!("{}: references name files in UTF-8 alone", path.display()))
        })
    };
    match (&options.names, options.form) {
        (FileNames::Absolute, ReferenceForm::Kerchunk) => text(path),
        (FileNames::Absolute, ReferenceForm::Icechunk) => {
            Ok(format!("file://{}", percent_encoded(&text(path)?)))
        }
        (FileNames::RelativeTo(directory), _) => text(&relative(path, directory)),
        (FileNames::Below(url), _) => {
            let inside = text(path.strip_prefix(shared).unwrap_or(path))?;
            // Object stores take names as they are, servers and Icechunk take URLs.
            let is_url = url.starts_with("http") || options.form == ReferenceForm::Icechunk;
            let inside = if is_url { percent_encoded(&inside) } else { inside };
            Ok(format!("{url}/{inside}"))
        }
    }
}

/// Returns the deepest directory that holds all files.
fn shared_directory(paths: &[PathBuf]) -> PathBuf {
    let mut parents = paths.iter().filter_map(|path| path.parent());
    let Some(first) = parents.next() else { return PathBuf::new() };
    parents.fold(first.to_owned(), |shared, parent| {
        let alike = shared.components().zip(parent.components());
        alike.take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
    })
}

/// Returns an absolute path as one relative to an absolute directory.
fn relative(path: &Path, directory: &Path) -> PathBuf {
    let shared = shared_directory(&[path.to_owned(), directory.join("x")]);
    let rest = directory.strip_prefix(&shared).unwrap_or(directory);
    let up = rest.components().map(|_| Component::ParentDir);
    let inside = path.strip_prefix(&shared).unwrap_or(path);
    up.chain(inside.components()).collect()
}

/// Returns a path as it stands in a URL.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_go_up_and_down() {
        let relative = |path: &str, directory: &str| {
            relative(Path::new(path), Path::new(directory)).display().to_string()
        };
        assert_eq!(relative("/a/b/c.nc", "/a/b"), "c.nc");
        assert_eq!(relative("/a/b/c.nc", "/a/d/e"), "../../b/c.nc");
        assert_eq!(relative("/c.nc", "/"), "c.nc");
    }

    #[test]
    fn the_shared_directory_is_the_deepest() {
        let shared = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            shared_directory(&paths).display().to_string()
        };
        assert_eq!(shared(&["/a/b/1.nc", "/a/b/2.nc"]), "/a/b");
        assert_eq!(shared(&["/a/b/1.nc", "/a/bc/2.nc"]), "/a");
    }

    #[test]
    fn names_in_urls_are_encoded() {
        assert_eq!(percent_encoded("/a b/x%20?.nc"), "/a%20b/x%2520%3F.nc");
    }
}
