//! A configuration file: read once, small and regular, and the reason not to trust it.
//!
//! A file beside a store counts only if no other user can have written it: anybody may put a file into
//! a shared directory. The site file is kept as it was read, because every open asks for it.

use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bedform_storage::open_without_waiting;

use super::Configuration;
use super::site::{ResolvedSite, SiteCache};
use crate::error::{Error, ErrorKind, Result};

pub(super) const FILE: &str = "bedform.toml";
pub(super) const SITE_FILE: &str = "/etc/bedform.toml";
pub(super) const FILE_VARIABLE: &str = "BEDFORM_CONFIG";

/// The most bytes of a configuration file, which is written by hand.
const BYTES_MAX: u64 = 1 << 20;

/// The permission bits that let other users than the owner write a file.
pub(crate) const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A configuration file as it was read.
#[derive(Debug)]
pub(crate) struct ConfigurationFile {
    pub(crate) path: PathBuf,
    /// Device, inode number, length and times: they differ for another file or another state of it.
    state: [i128; 5],
    /// The reason not to trust the file, if there is one.
    doubt: Option<&'static str>,
    pub(super) configuration: Configuration,
    /// Facts about each of its sites, in their order.
    known: Vec<SiteCache>,
}

impl ConfigurationFile {
    /// The sites whose sidecars are trusted.
    pub(crate) fn sites(&self) -> impl Iterator<Item = ResolvedSite<'_>> {
        let sites = self.configuration.sidecars.iter().zip(&self.known);
        sites.map(|(site, known)| ResolvedSite { site, known })
    }

    /// Reads the file at `path`; `None` if there is none.
    pub(super) fn read(path: &Path, place: SettingsPlace) -> Result<Option<Self>> {
        let fail = |kind, text: String| Error::new(kind, format!("{}: {text}", path.display()));
        let (text, found) = match read_regular(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| fail(ErrorKind::Io, error.to_string()))?,
        };
        let doubt = doubt_of(path, &found);
        if let (SettingsPlace::BesideStore, Some(doubt)) = (place, doubt) {
            let text = format!(
                "it says where sessions write, but {doubt}; or name a file of your own by {FILE_VARIABLE}"
            );
            return Err(fail(ErrorKind::PermissionDenied, text));
        }
        let text = text.map_err(|problem| fail(problem.kind(), problem.to_string()))?;
        let configuration =
            Configuration::parse(&text).map_err(|error| fail(error.kind(), error.to_string()))?;
        let known = configuration.sidecars.iter().map(|_| SiteCache::default()).collect();
        let (path, state) = (path.to_owned(), state_of(&found));
        Ok(Some(Self { path, state, doubt, configuration, known }))
    }
}

/// The kind of place of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsPlace {
    /// The site file, or the file that the environment names.
    Named,
    /// In the directory of a store, where others may have put it.
    BesideStore,
}

/// The reason not to trust the file at `path`, opened as `found`.
fn doubt_of(path: &Path, found: &Metadata) -> Option<&'static str> {
    let user = rustix::process::geteuid().as_raw();
    let is_foreign = |found: &Metadata| found.uid() != 0 && found.uid() != user;
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Some("others than its owner may write it: chmod go-w");
    }
    // Another user's link may lead to a file of this user.
    let is_foreign_link = || path.symlink_metadata().is_ok_and(|link| is_foreign(&link));
    (is_foreign(found) || is_foreign_link())
        .then_some("it belongs neither to root nor to this user")
}

fn state_of(found: &Metadata) -> [i128; 5] {
    let time = |seconds: i64, nanoseconds: i64| {
        i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
    };
    [
        i128::from(found.dev()),
        i128::from(found.ino()),
        i128::from(found.len()),
        time(found.mtime(), found.mtime_nsec()),
        time(found.ctime(), found.ctime_nsec()),
    ]
}

/// The site file, or the file that `BEDFORM_CONFIG` names in its place.
pub(super) struct SiteFile {
    /// True if `BEDFORM_CONFIG` names it.
    pub(super) is_named: bool,
    /// The file, if it exists.
    pub(super) found: Option<Arc<ConfigurationFile>>,
}

/// The site file as it is now.
///
/// # Errors
/// As [`Configuration::of_store`].
pub(super) fn site_file() -> Result<SiteFile> {
    /// The file as it was read last: every open asks for it.
    static LAST: Mutex<Option<Arc<ConfigurationFile>>> = Mutex::new(None);
    let named = std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
    let is_named = named.is_some();
    let path = named.map_or_else(|| PathBuf::from(SITE_FILE), PathBuf::from);
    // A forked child may inherit the lock as held by a thread that it lacks.
    let mut last = LAST.try_lock().ok();
    let now = std::fs::metadata(&path).ok().map(|found| state_of(&found));
    let known = last
        .as_ref()
        .and_then(|last| last.as_ref())
        .filter(|known| known.path == path && Some(known.state) == now);
    if let Some(known) = known {
        return Ok(SiteFile { is_named, found: Some(known.clone()) });
    }
    let found = ConfigurationFile::read(&path, SettingsPlace::Named)?.map(Arc::new);
    if is_named && found.is_none() {
        let path = path.display();
        let text = format!("{path}: {FILE_VARIABLE} names a file that is not there");
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    if let Some(last) = &mut last {
        **last = found.clone();
    }
    Ok(SiteFile { is_named, found })
}

/// The site file, if it names sites of sidecars.
///
/// # Errors
/// As [`Configuration::of_store`]; `PermissionDenied` for a site file that others may write.
pub(crate) fn sidecar_sites() -> Result<Option<Arc<ConfigurationFile>>> {
    let found = site_file()?.found.filter(|found| !found.configuration.sidecars.is_empty());
    if let Some((file, doubt)) = found.as_ref().and_then(|file| Some((file, file.doubt?))) {
        let path = file.path.display();
        let text = format!("{path}: it says whose sidecars are trusted, but {doubt}");
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(found)
}

/// Reads the text of a regular file of at most [`BYTES_MAX`], or says why it cannot be used;
/// returns the metadata of the opened file, too. The file is opened without waiting: a FIFO would
/// block, and a device has no end.
fn read_regular(path: &Path) -> std::io::Result<(Result<String>, Metadata)> {
    let file = open_without_waiting(path)?;
    let found = file.metadata()?;
    Ok((text_of(file, &found)?, found))
}

fn text_of(file: std::fs::File, found: &Metadata) -> std::io::Result<Result<String>> {
    if !found.is_file() {
        return Ok(Err(Error::invalid("it is no regular file")));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let text =
            format!("{} bytes are more than a configuration may have, {BYTES_MAX}", found.len());
        return Ok(Err(Error::new(ErrorKind::LimitExceeded, text)));
    }
    Ok(String::from_utf8(bytes).map_err(|_| Error::invalid("it is no text in UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_a_small_regular_file() {
        let directory = std::env::temp_dir().join(format!("bedform-config-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let make = |name: &str| directory.join(name);
        let fifo = make("fifo");
        let no_device = 0;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            no_device,
        )
        .unwrap();
        for (name, target) in [("zero", "/dev/zero"), ("link", "fifo")] {
            std::os::unix::fs::symlink(target, make(name)).unwrap();
        }
        std::fs::create_dir(make("directory")).unwrap();
        let bytes = usize::try_from(BYTES_MAX).unwrap();
        std::fs::write(make("large"), " ".repeat(bytes + 1)).unwrap();
        std::fs::File::create(make("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(make("binary"), b"\xff").unwrap();
        std::fs::write(make("full"), " ".repeat(bytes)).unwrap();
        for name in ["fifo", "zero", "link", "directory", "binary"] {
            let refused = read_regular(&make(name)).unwrap().0.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{name}");
        }
        for name in ["large", "sparse"] {
            let refused = read_regular(&make(name)).unwrap().0.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::LimitExceeded, "{name}");
        }
        assert!(read_regular(&make("full")).unwrap().0.is_ok());
        assert_eq!(read_regular(&make("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_beside_a_store_counts_only_if_nobody_else_can_have_written_it() {
        let name = format!("bedform-config-beside-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let (store, file) = (directory.join("run.zarr"), directory.join(FILE));
        std::fs::write(&file, "[burst]\npath = \"/mnt/fast\"\n").unwrap();
        let burst = || Configuration::of_store(Some(&store)).map(|found| found.burst.is_some());
        let set_mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&file, mode).unwrap();
        };
        let refused = |why: &str| {
            let error = burst().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            let text = error.to_string();
            assert!(text.contains(why) && text.contains(FILE) && !text.contains('\n'), "{text}");
        };
        for (mode, counts) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            set_mode(mode);
            if counts { assert!(burst().unwrap(), "{mode:o}") } else { refused("chmod go-w") }
        }
        set_mode(0o644);
        // Only root may give files to other users.
        if std::os::unix::fs::chown(&file, Some(4321), None).is_ok() {
            refused("neither to root nor to this user");
            // The file is refused before it is parsed.
            std::fs::write(&file, "burst = [").unwrap();
            refused("neither to root nor to this user");
            std::fs::remove_file(&file).unwrap();
            let own = directory.join("own.toml");
            std::fs::write(&own, "[burst]\npath = \"/mnt/fast\"\n").unwrap();
            std::os::unix::fs::symlink(&own, &file).unwrap();
            assert!(burst().unwrap());
            std::os::unix::fs::lchown(&file, Some(4321), None).unwrap();
            refused("neither to root nor to this user");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
