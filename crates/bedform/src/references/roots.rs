//! The rules for the files that a set of references may name, and their locations.

use std::io;
use std::path::{Component, Path, PathBuf};

use bedform_storage::{StorageError, StorageErrorKind};
use percent_encoding::percent_decode_str;

use super::object::dangling;
use crate::error::{Error, Result};
use crate::options::ExternalFiles;

type Stored<T> = std::result::Result<T, StorageError>;

/// The environment variable that names roots for all sets of references, separated by semicolons.
const ROOTS_VARIABLE: &str = "BEDFORM_ALLOW_EXTERNAL";
/// The protocol of files of this machine.
const FILE: &str = "file://";
/// Protocols of other places: the spelling in a URL, and the name that is used.
const PROTOCOLS: [(&str, &str); 8] = [
    ("s3", "s3"),
    ("s3a", "s3"),
    ("gs", "gs"),
    ("gcs", "gs"),
    ("az", "az"),
    ("azure", "az"),
    ("http", "http"),
    ("https", "https"),
];

/// The base of relative paths; files below it may be read.
#[derive(Debug, Clone)]
pub(super) enum ReferenceBase {
    Directory(PathBuf),
    Url(String),
}

/// The location of a file that may be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PermittedPlace {
    /// A path in a directory, which links must not leave.
    Local { root: PathBuf, path: String },
    /// A path on a server, and the server: scheme and host or bucket.
    Remote { server: String, path: String },
}

/// The directories and URLs below which files may be read.
#[derive(Debug)]
pub(super) struct AllowedRoots {
    base: ReferenceBase,
    directories: Vec<PathBuf>,
    urls: Vec<UrlParts>,
    any: bool,
}

/// A URL of a supported protocol, split into server and path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UrlParts {
    server: String,
    path: String,
}

impl UrlParts {
    /// # Errors
    /// The fault of the URL, in a few words.
    fn of(url: &str) -> std::result::Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it is no URL")?;
        let scheme = scheme.to_ascii_lowercase();
        let known = PROTOCOLS.iter().find(|(name, _)| *name == scheme).map(|(_, name)| *name);
        let scheme = known.ok_or_else(|| format!("files at {scheme}:// are not read"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_web = scheme.starts_with("http");
        if host.is_empty() || host.contains(['@', '\\', '?', '#', '%']) {
            return Err("it names no host or bucket that is read".to_owned());
        }
        // A server may treat these as steps upwards.
        let plain = path.split(['?', '#']).next().unwrap_or_default();
        let lower = plain.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
        let climbs =
            lower.replace("%5c", "\\").split(['/', '\\']).any(|step| matches!(step, "." | ".."));
        if climbs || plain.contains('\\') {
            return Err("its path has `.` or `..`".to_owned());
        }
        let host = if is_web { host.to_ascii_lowercase() } else { host.to_owned() };
        Ok(Self { server: format!("{scheme}://{host}"), path: path.to_owned() })
    }

    /// Returns true if `other` equals this URL, or lies below it.
    fn has(&self, other: &Self) -> bool {
        let root = self.path.trim_end_matches('/');
        let rest = other.path.strip_prefix(root);
        let is_below =
            |rest: &str| root.is_empty() || rest.is_empty() || rest.starts_with(['/', '?']);
        self.server == other.server && rest.is_some_and(is_below)
    }
}

impl AllowedRoots {
    /// # Errors
    /// `InvalidArgument` for a root that is neither a path nor a URL of a supported protocol.
    pub(super) fn new(base: ReferenceBase, external: &ExternalFiles) -> Result<Self> {
        let mut roots = Self { base, directories: Vec::new(), urls: Vec::new(), any: false };
        match &roots.base {
            ReferenceBase::Directory(directory) => {
                roots
                    .directories
                    .push(directory.canonicalize().unwrap_or_else(|_| directory.clone()));
            }
            ReferenceBase::Url(url) => roots.urls.extend(UrlParts::of(url).ok()),
        }
        let given = std::env::var(ROOTS_VARIABLE).unwrap_or_default();
        for root in given.split(';').filter(|root| !root.is_empty()) {
            roots.add(root).map_err(|error| error.at(ROOTS_VARIABLE))?;
        }
        match external {
            ExternalFiles::Refused => {}
            ExternalFiles::Allowed => roots.any = true,
            ExternalFiles::Below(given) => {
                for root in given {
                    roots.add(root)?;
                }
            }
        }
        Ok(roots)
    }

    fn add(&mut self, root: &str) -> Result<()> {
        let bad = |why: &str| Error::invalid(format!("the root {root:?} of references: {why}"));
        if root.is_empty() {
            return Err(bad("the path is empty: give a directory or URL"));
        }
        if let Some(path) = local_of(root) {
            let path = std::path::absolute(path).map_err(|error| bad(&error.to_string()))?;
            self.directories.push(path.canonicalize().unwrap_or_else(|_| lexical(&path)));
        } else {
            self.urls.push(UrlParts::of(root).map_err(|why| bad(&why))?);
        }
        Ok(())
    }

    /// Returns true for a file on a server.
    pub(super) fn is_url(&self, target: &str) -> bool {
        match (&self.base, local_of(target)) {
            (_, None) => true,
            (ReferenceBase::Url(_), Some(path)) => !path.starts_with('/'),
            (ReferenceBase::Directory(_), Some(_)) => false,
        }
    }

    /// Returns the location of the file `target`.
    ///
    /// # Errors
    /// `PermissionDenied` for a file that must not be read; `Dangling` for a missing one.
    pub(super) fn locate(&self, target: &str) -> Stored<PermittedPlace> {
        match (local_of(target), &self.base) {
            (None, _) => self.locate_url(target, target),
            (Some(path), ReferenceBase::Url(base)) if !path.starts_with('/') => {
                self.locate_url(target, &format!("{base}/{path}"))
            }
            (Some(path), ReferenceBase::Url(_)) => self.locate_path(target, Path::new("/"), path),
            (Some(path), ReferenceBase::Directory(base)) => {
                match self.locate_path(target, base, path) {
                    // A URL of a file may contain escapes.
                    Err(error) if path.contains('%') && target.starts_with(FILE) => {
                        let decoded = percent_decode_str(path).decode_utf8().map_err(|_| error)?;
                        self.locate_path(target, base, &decoded)
                    }
                    located => located,
                }
            }
        }
    }

    fn locate_url(&self, target: &str, url: &str) -> Stored<PermittedPlace> {
        let parts = UrlParts::of(url).map_err(|why| refused(target, why))?;
        if !self.any && !self.urls.iter().any(|root| root.has(&parts)) {
            let parent = parts.path.split('?').next().unwrap_or_default();
            let parent = parent.rsplit_once('/').map_or("", |(parent, _)| parent);
            let root = format!("{}/{parent}", parts.server);
            return Err(refused(target, outside(root.trim_end_matches('/'))));
        }
        Ok(PermittedPlace::Remote { server: parts.server, path: parts.path })
    }

    fn locate_path(&self, target: &str, base: &Path, path: &str) -> Stored<PermittedPlace> {
        let path = base.join(path);
        let plain = lexical(&path);
        let is_allowed =
            |path: &Path| self.any || self.directories.iter().any(|root| path.starts_with(root));
        let refuse = || {
            let parent = plain.parent().unwrap_or(&plain).display().to_string();
            refused(target, outside(&parent))
        };
        let real = match path.canonicalize() {
            Ok(real) if is_allowed(&real) => real,
            Ok(_) => return Err(refuse()),
            // The error is the same whether or not a file outside of the roots exists.
            Err(_) if !is_allowed(&plain) => return Err(refuse()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(dangling("open", target, "it does not exist".to_owned()));
            }
            Err(error) => return Err(StorageError::from_io("open", target, error)),
        };
        let root = self.directories.iter().find(|root| real.starts_with(root) && **root != real);
        let root = match root {
            Some(root) => root.clone(),
            // Either the file itself is allowed, or all files are.
            None => real.parent().unwrap_or(Path::new("/")).to_owned(),
        };
        let inner = real.strip_prefix(&root).ok().and_then(Path::to_str).map(str::to_owned);
        let none = || dangling("open", target, "its name is not one that is read".to_owned());
        Ok(PermittedPlace::Local {
            root,
            path: inner.filter(|inner| !inner.is_empty()).ok_or_else(none)?,
        })
    }
}

fn outside(root: &str) -> String {
    format!(
        "it lies outside the directory of the references; allow_external=[{root:?}], or {ROOTS_VARIABLE}, \
         allows it"
    )
}

fn refused(target: &str, why: String) -> StorageError {
    StorageError {
        kind: StorageErrorKind::PermissionDenied,
        operation: "open",
        path: target.to_owned(),
        source: Some(io::Error::other(why)),
    }
}

/// Returns the path of a file of this machine; `None` for any other URL.
fn local_of(target: &str) -> Option<&str> {
    match target.get(..FILE.len()) {
        Some(start) if start.eq_ignore_ascii_case(FILE) => {
            let rest = &target[FILE.len()..];
            Some(
                rest.strip_prefix("localhost").filter(|rest| rest.starts_with('/')).unwrap_or(rest),
            )
        }
        _ if target.contains("://") => None,
        _ => Some(target),
    }
}

/// Returns the path without `.` and `..`, as if there were no links.
fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for step in path.components() {
        match step {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            step => plain.push(step),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(base: &str, external: ExternalFiles) -> AllowedRoots {
        AllowedRoots::new(ReferenceBase::Url(base.to_owned()), &external).unwrap()
    }

    fn is_refused(roots: &AllowedRoots, target: &str) -> bool {
        let located = roots.locate(target);
        matches!(located, Err(error) if error.kind == StorageErrorKind::PermissionDenied)
    }

    #[test]
    fn urls_lie_below_a_root_only_at_a_slash_and_without_steps_upwards() {
        let roots = remote("s3://bucket/a", ExternalFiles::Refused);
        let at = |server: &str, path: &str| PermittedPlace::Remote {
            server: server.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(roots.locate("s3://bucket/a/x.nc").unwrap(), at("s3://bucket", "a/x.nc"));
        assert_eq!(roots.locate("b/x.nc").unwrap(), at("s3://bucket", "a/b/x.nc"));
        for target in [
            "s3://bucket/ab/x.nc",
            "s3://bucket/a/../x.nc",
            "s3://other/a/x.nc",
            "https://bucket/a/x.nc",
            "../x.nc",
            "a/%2E%2e/x.nc",
            "ftp://bucket/a/x.nc",
            "/etc/passwd",
            "s3://bucket@host/a/x.nc",
        ] {
            assert!(is_refused(&roots, target), "{target}");
        }
    }

    #[test]
    fn roots_are_given_as_urls_or_all_is_allowed() {
        let below = ExternalFiles::Below(vec!["https://Host/data/".to_owned()]);
        let roots = remote("s3://bucket", below);
        assert!(roots.locate("https://host/data/x.nc?token=1").is_ok());
        assert!(is_refused(&roots, "https://host/database/x.nc"));
        assert!(remote("s3://bucket", ExternalFiles::Allowed).locate("gs://b/x").is_ok());
        let unknown = ExternalFiles::Below(vec!["ftp://host/x".to_owned()]);
        assert!(AllowedRoots::new(ReferenceBase::Url("s3://bucket".to_owned()), &unknown).is_err());
    }
}
