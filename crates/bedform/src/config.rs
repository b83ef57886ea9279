//! Configuration outside of programs: `bedform.toml` and environment variables.
//!
//! `bedform.toml` beside a store configures that store. The *site file*, `/etc/bedform.toml`,
//! configures the machine: it alone names the owners of trusted sidecars (`sidecar_sites`), and its
//! other settings apply where the file beside the store lacks them. `BEDFORM_CONFIG` names one file
//! that replaces both. A file beside a store is used only if it belongs to this user or root and
//! others cannot write it, because anybody may put a file into a shared directory. Environment
//! variables override files. An unknown key is an error: it may be misspelt.

use std::fs::Metadata;
use std::io::Read as _;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use bedform_storage::{Throttle, ThrottleSchedule, open_without_waiting};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, ErrorKind, Result};
use crate::size;

const FILE: &str = "bedform.toml";
const SITE_FILE: &str = "/etc/bedform.toml";
const FILE_VARIABLE: &str = "BEDFORM_CONFIG";
const BURST_VARIABLE: &str = "BEDFORM_BURST";
const CAPACITY_VARIABLE: &str = "BEDFORM_BURST_CAPACITY";
const THROTTLE_VARIABLE: &str = "BEDFORM_THROTTLE";
/// The most bytes of a configuration file, which is written by hand.
const BYTES_MAX: u64 = 1 << 20;
/// Limits: roots of sidecars, owners of one root, and bytes of a path or name.
const SITES_MAX: usize = 256;
const OWNERS_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 4096;
/// The permission bits that let other users than the owner write a file.
pub(crate) const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The settings of one `bedform.toml`.
///
/// ```
/// let text = "[burst]\npath = \"/mnt/fast\"\ncapacity = \"10 GiB\"\n";
/// let configuration = bedform::config::Configuration::parse(text)?;
/// assert_eq!(configuration.burst.unwrap().capacity.unwrap().bytes(), 10 << 30);
/// assert!(bedform::config::Configuration::parse("[brust]\n").is_err());
/// # Ok::<(), bedform::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The burst tier.
    pub burst: Option<BurstConfiguration>,
    /// The limits of data that wait to be settled.
    pub settle: Option<SettleConfiguration>,
    /// The sites whose sidecars are trusted.
    pub sidecars: Vec<SidecarSite>,
}

/// One of `[[sidecars]]`: the directory of the shared sidecars of an archive that many users read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarSite {
    /// The directory of the data.
    pub root: PathBuf,
    /// The directory of the sidecars.
    pub sidecars: PathBuf,
    /// The users whose files are trusted there.
    pub owners: Vec<SidecarOwner>,
}

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SidecarOwner {
    /// By name.
    Name(String),
    /// By number.
    Id(u32),
}

/// `[settle]`: limits for sessions that settle in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleConfiguration {
    /// The most bytes of elements that wait to be settled.
    pub bytes: Option<Size>,
    /// The most commits that wait to be settled.
    pub commits: Option<NonZeroU64>,
}

/// `[burst]`: the burst tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BurstConfiguration {
    /// The directory of the tier.
    pub path: PathBuf,
    /// The most bytes that one writer may have there.
    pub capacity: Option<Size>,
}

/// A number of bytes: an integer, or text such as `"10 GiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// The number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    fn of(value: &DeValue<'_>) -> Option<Self> {
        match value {
            DeValue::String(text) => size::from_text(text).ok().map(Self),
            value => integer(value).map(Self),
        }
    }
}

/// A table of the file. It is parsed by hand, so that an error names the setting, its value and the
/// values that it takes.
struct SettingsTable<'t> {
    text: &'t str,
    /// Its name in messages, such as `[burst] `; empty for the whole file.
    name: &'static str,
    table: &'t DeTable<'t>,
}

impl<'t> SettingsTable<'t> {
    /// Fails at a key that is not one of `known`.
    fn check_keys(&self, known: &[&str]) -> Result<()> {
        let is_unknown = |key: &&Spanned<_>| !known.contains(&AsRef::<str>::as_ref(key.get_ref()));
        let Some(key) = self.table.keys().find(is_unknown) else { return Ok(()) };
        let text =
            format!("{}{} is not known; there are {}", self.name, key.get_ref(), known.join(", "));
        Err(at_line(self.text, key.span().start, text))
    }

    /// The value of `key` as `read` parses it; `None` if the key is missing. `what` describes valid
    /// values in errors.
    fn setting<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'t DeValue<'t>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some((_, value)) = self.table.iter().find(|(own, _)| own.get_ref() == key) else {
            return Ok(None);
        };
        let bad = || {
            let given = self.text[value.span()].replace('\n', " ");
            let text = format!("{}{key} is {given}; it takes {what}", self.name);
            at_line(self.text, value.span().start, text)
        };
        read(value.get_ref()).map(Some).ok_or_else(bad)
    }

    /// The table called `key`; `name` stands before its settings in messages.
    fn section(&self, key: &str, name: &'static str) -> Result<Option<SettingsTable<'t>>> {
        let what = format!("a table: write [{key}] above its settings");
        let table = self.setting(key, &what, DeValue::as_table)?;
        Ok(table.map(|table| SettingsTable { text: self.text, name, table }))
    }
}

const SIZE: &str = "a number of bytes such as 67108864 or \"64 MiB\"";

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let given = value.as_integer()?;
    u64::from_str_radix(given.as_str(), given.radix()).ok()
}

/// An error in the line that contains byte `start` of `text`.
fn at_line(text: &str, start: usize, problem: impl std::fmt::Display) -> Error {
    let line = 1 + text[..start].matches('\n').count();
    Error::invalid(format!("line {line}: {problem}"))
}

impl SettleConfiguration {
    fn read(section: &SettingsTable<'_>) -> Result<Self> {
        section.check_keys(&["bytes", "commits"])?;
        let count = |value: &DeValue<'_>| integer(value).and_then(NonZeroU64::new);
        Ok(Self {
            bytes: section.setting("bytes", SIZE, Size::of)?,
            commits: section.setting("commits", "an integer of at least 1", count)?,
        })
    }
}

impl Configuration {
    /// Parses the configuration in `text`.
    ///
    /// # Errors
    /// `InvalidArgument` names the line and the key at fault.
    pub fn parse(text: &str) -> Result<Self> {
        let table = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            at_line(text, start, error.message().replace('\n', " "))
        })?;
        let whole = SettingsTable { text, name: "", table: table.get_ref() };
        whole.check_keys(&["burst", "settle", "sidecars"])?;
        let burst = whole.section("burst", "[burst] ")?;
        let settle = whole.section("settle", "[settle] ")?;
        Ok(Self {
            burst: burst.map(|own| BurstConfiguration::read(&own)).transpose()?,
            settle: settle.map(|own| SettleConfiguration::read(&own)).transpose()?,
            sidecars: SidecarSite::read_all(&whole)?,
        })
    }

    /// The configuration of the store in the directory `store`, or without a store. It is read from
    /// the file that `BEDFORM_CONFIG` names, else from `bedform.toml` beside the store, with the
    /// site file for missing settings.
    ///
    /// # Errors
    /// As [`Configuration::parse`]; `NotFound` if `BEDFORM_CONFIG` names no file; `InvalidArgument`
    /// for a file beside a store that names sites of sidecars; `PermissionDenied` for a file beside
    /// a store of another user, or one that others may write; those of reading.
    pub fn of_store(store: Option<&Path>) -> Result<Self> {
        let (site, of_site) = site_file()?;
        let of_site = of_site.map_or_else(Self::default, |found| found.configuration.clone());
        let beside = store.and_then(Path::parent).map(|above| above.join(FILE));
        let Some(beside) = beside.filter(|_| !site.is_named) else { return Ok(of_site) };
        let Some(found) = ConfigurationFile::read(&beside, SettingsPlace::BesideStore)? else {
            return Ok(of_site);
        };
        let own = found.configuration;
        if !own.sidecars.is_empty() {
            // Otherwise the author of the data would decide whom its readers trust.
            let text = format!("[[sidecars]] counts in {SITE_FILE} or {FILE_VARIABLE} alone");
            return Err(Error::invalid(format!("{}: {text}", beside.display())));
        }
        Ok(Self {
            burst: own.burst.or(of_site.burst),
            settle: own.settle.or(of_site.settle),
            sidecars: of_site.sidecars,
        })
    }
}

/// The location of the site file.
struct SiteFile {
    path: PathBuf,
    /// True if `BEDFORM_CONFIG` names it.
    is_named: bool,
}

/// A configuration file as it was read.
#[derive(Debug)]
pub(crate) struct ConfigurationFile {
    pub(crate) path: PathBuf,
    /// Device, inode number, length and times: they differ for another file or another state of it.
    state: [i128; 5],
    /// The reason not to trust the file, if there is one.
    doubt: Option<&'static str>,
    configuration: Configuration,
    /// Facts about each of its sites, in their order.
    known: Vec<SiteCache>,
}

/// Cached facts of this machine about a site, which every open needs.
#[derive(Debug, Default)]
struct SiteCache {
    root: CachedFact<Path>,
    owners: CachedFact<[u32]>,
}

/// A value that is computed at most once.
#[derive(Debug)]
struct CachedFact<T: ?Sized>(Mutex<Option<Arc<T>>>);

impl<T: ?Sized> Default for CachedFact<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: ?Sized> CachedFact<T> {
    // A forked child may inherit the lock as held by a thread that it lacks, so nothing waits for
    // it.

    fn get(&self) -> Option<Arc<T>> {
        self.0.try_lock().ok()?.clone()
    }

    fn keep(&self, found: Arc<T>) -> Arc<T> {
        if let Ok(mut known) = self.0.try_lock() {
            *known = Some(found.clone());
        }
        found
    }
}

/// A site of a configuration file, with the facts of this machine.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedSite<'f> {
    pub(crate) site: &'f SidecarSite,
    known: &'f SiteCache,
}

impl ResolvedSite<'_> {
    /// The root with links resolved; `None` if it does not exist.
    pub(crate) fn real_root(&self) -> Option<Arc<Path>> {
        let find = || Some(self.known.root.keep(self.site.root.canonicalize().ok()?.into()));
        self.known.root.get().or_else(find)
    }

    /// The user numbers of those owners that this machine knows.
    pub(crate) fn owner_ids(&self) -> Arc<[u32]> {
        self.known.owners.get().unwrap_or_else(|| {
            let ids: Arc<[u32]> = self.site.owners.iter().filter_map(SidecarOwner::id).collect();
            // An unknown owner may become known later.
            let are_all = ids.len() == self.site.owners.len();
            if are_all { self.known.owners.keep(ids) } else { ids }
        })
    }
}

impl ConfigurationFile {
    /// The sites whose sidecars are trusted.
    pub(crate) fn sites(&self) -> impl Iterator<Item = ResolvedSite<'_>> {
        let sites = self.configuration.sidecars.iter().zip(&self.known);
        sites.map(|(site, known)| ResolvedSite { site, known })
    }

    /// Reads the file at `path`; `None` if there is none.
    fn read(path: &Path, place: SettingsPlace) -> Result<Option<Self>> {
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
enum SettingsPlace {
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

/// The location of the site file, and the file itself if it exists.
///
/// # Errors
/// As [`Configuration::of_store`].
fn site_file() -> Result<(SiteFile, Option<Arc<ConfigurationFile>>)> {
    /// The file as it was read last: every open asks for it.
    static LAST: Mutex<Option<Arc<ConfigurationFile>>> = Mutex::new(None);
    let named = std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
    let is_named = named.is_some();
    let path = named.map_or_else(|| PathBuf::from(SITE_FILE), PathBuf::from);
    let site = SiteFile { path, is_named };
    // A forked child may inherit the lock as held by a thread that it lacks.
    let mut last = LAST.try_lock().ok();
    let now = std::fs::metadata(&site.path).ok().map(|found| state_of(&found));
    let known = last
        .as_ref()
        .and_then(|last| last.as_ref())
        .filter(|known| known.path == site.path && Some(known.state) == now);
    if let Some(known) = known {
        let known = known.clone();
        return Ok((site, Some(known)));
    }
    let found = ConfigurationFile::read(&site.path, SettingsPlace::Named)?.map(Arc::new);
    if is_named && found.is_none() {
        let text = format!("{FILE_VARIABLE} names a file that is not there");
        let text = format!("{}: {text}", site.path.display());
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    if let Some(last) = &mut last {
        **last = found.clone();
    }
    Ok((site, found))
}

/// The site file, if it names sites of sidecars.
///
/// # Errors
/// As [`Configuration::of_store`]; `PermissionDenied` for a site file that others may write.
pub(crate) fn sidecar_sites() -> Result<Option<Arc<ConfigurationFile>>> {
    let (_, found) = site_file()?;
    let found = found.filter(|found| !found.configuration.sidecars.is_empty());
    if let Some((file, doubt)) = found.as_ref().and_then(|file| Some((file, file.doubt?))) {
        let path = file.path.display();
        let text = format!("{path}: it says whose sidecars are trusted, but {doubt}");
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(found)
}

impl SidecarSite {
    fn read_all(whole: &SettingsTable<'_>) -> Result<Vec<Self>> {
        let what = "tables: write [[sidecars]] above the settings of each";
        let Some(items) = whole.setting("sidecars", what, DeValue::as_array)? else {
            return Ok(Vec::new());
        };
        let mut all: Vec<Self> = Vec::new();
        for item in items {
            let start = item.span().start;
            let Some(table) = item.get_ref().as_table() else {
                return Err(at_line(whole.text, start, format!("sidecars takes {what}")));
            };
            let section = SettingsTable { text: whole.text, name: "[[sidecars]] ", table };
            let own = Self::read(&section, start)?;
            if all.iter().any(|other| other.root == own.root) {
                let text = format!("[[sidecars]] has the root {} twice", own.root.display());
                return Err(at_line(whole.text, start, text));
            }
            if all.len() == SITES_MAX {
                let text = format!("more than {SITES_MAX} [[sidecars]]");
                return Err(at_line(whole.text, start, text));
            }
            all.push(own);
        }
        Ok(all)
    }

    fn read(section: &SettingsTable<'_>, start: usize) -> Result<Self> {
        section.check_keys(&["root", "sidecars", "owners"])?;
        let directory = "an absolute path without . and .., such as \"/archive/era5\"";
        let owners = "a list of names or numbers of users, such as [\"root\", 1001]";
        let lacks = |key: &str, what: &str| {
            at_line(section.text, start, format!("[[sidecars]] lacks {key}: it takes {what}"))
        };
        let path = |key: &str| {
            let found = section.setting(key, directory, absolute_path)?;
            found.ok_or_else(|| lacks(key, directory))
        };
        let list = section.setting("owners", owners, |value| {
            let list = value.as_array().filter(|list| (1..=OWNERS_MAX).contains(&list.len()))?;
            list.iter().map(|one| SidecarOwner::of(one.get_ref())).collect::<Option<Vec<_>>>()
        })?;
        Ok(Self {
            root: path("root")?,
            sidecars: path("sidecars")?,
            owners: list.ok_or_else(|| lacks("owners", owners))?,
        })
    }
}

/// Parses an absolute path without `.` and `..`.
fn absolute_path(value: &DeValue<'_>) -> Option<PathBuf> {
    let text =
        value.as_str().filter(|text| text.len() <= TEXT_BYTES_MAX && !text.contains('\0'))?;
    let path = Path::new(text);
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let is_said = text.split('/').all(|part| part != "." && part != "..");
    // `components` drops doubled and trailing slashes, which change nothing.
    (path.is_absolute() && is_said && path.components().all(is_plain))
        .then(|| path.components().collect())
}

impl SidecarOwner {
    fn of(value: &DeValue<'_>) -> Option<Self> {
        let Some(name) = value.as_str() else {
            // The largest number stands for no user.
            let id = u32::try_from(integer(value)?).ok().filter(|id| *id != u32::MAX)?;
            return Some(Self::Id(id));
        };
        let is_name = !name.is_empty() && name.len() <= TEXT_BYTES_MAX && !name.contains('\0');
        is_name.then(|| Self::Name(name.to_owned()))
    }

    /// The number of the user; `None` for a name that this machine does not know.
    #[allow(unsafe_code)]
    pub(crate) fn id(&self) -> Option<u32> {
        /// Bytes of buffer for the system's record of a user.
        const BYTES: usize = 16 << 10;
        let name = match self {
            Self::Id(id) => return Some(*id),
            Self::Name(name) => std::ffi::CString::new(name.as_str()).ok()?,
        };
        let mut buffer = vec![0; BYTES];
        let mut found = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut result = std::ptr::null_mut();
        // SAFETY: the name ends with a zero byte, the buffer has `buffer.len()` bytes, and all
        // addresses live until the call returns. The record is read only if the call reports that
        // it has filled it.
        unsafe {
            let failed = libc::getpwnam_r(
                name.as_ptr(),
                found.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut result,
            );
            (failed == 0 && !result.is_null()).then(|| found.assume_init().pw_uid)
        }
    }
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

/// The throttle of stores, their logs and foreign files in this process, for experiments:
/// `BEDFORM_THROTTLE`, such as `"512 MB/s, 5 ms"`, as it was at the first call. Burst tiers are not
/// throttled.
///
/// # Errors
/// `InvalidArgument` if its text is no throttle.
pub fn pace() -> Result<Option<Arc<ThrottleSchedule>>> {
    // One for the process: a store and its log share the bandwidth.
    static PACE: OnceLock<std::result::Result<Option<Arc<ThrottleSchedule>>, String>> =
        OnceLock::new();
    let found = PACE.get_or_init(|| {
        let Some(text) = std::env::var_os(THROTTLE_VARIABLE).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let throttle = Throttle::parse(&text.to_string_lossy());
        throttle.map(|one| Some(ThrottleSchedule::new(one))).map_err(|error| error.to_string())
    });
    found.clone().map_err(|error| Error::invalid(format!("{THROTTLE_VARIABLE}: {error}")))
}

impl BurstConfiguration {
    fn read(section: &SettingsTable<'_>) -> Result<Self> {
        section.check_keys(&["path", "capacity"])?;
        let path = section.setting("path", "a directory such as \"/mnt/nvme\"", DeValue::as_str)?;
        let capacity = section.setting("capacity", SIZE, Size::of)?;
        let path =
            path.ok_or_else(|| Error::invalid("[burst] lacks path: the directory of the tier"))?;
        Ok(Self { path: path.into(), capacity })
    }

    /// Returns the burst tier of the store in the directory `store`: `BEDFORM_BURST` and
    /// `BEDFORM_BURST_CAPACITY`, else `[burst]` of the configuration. `None` without either.
    ///
    /// # Errors
    /// As [`Configuration::of_store`].
    pub fn of_store(store: Option<&Path>) -> Result<Option<Self>> {
        let file = Configuration::of_store(store)?.burst;
        let named = std::env::var_os(BURST_VARIABLE).filter(|path| !path.is_empty());
        let path = named.map(PathBuf::from).or_else(|| file.as_ref().map(|own| own.path.clone()));
        let Some(path) = path else { return Ok(None) };
        let capacity = match std::env::var(CAPACITY_VARIABLE) {
            Ok(text) => Some(
                size::from_text(&text)
                    .map(Size)
                    .map_err(|error| Error::invalid(format!("{CAPACITY_VARIABLE}: {error}")))?,
            ),
            Err(_) => file.and_then(|own| own.capacity),
        };
        Ok(Some(Self { path, capacity }))
    }
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

    #[test]
    fn sites_of_sidecars_are_read_and_what_is_wrong_with_them_is_said() {
        let text = "[[sidecars]]\nroot = \"/archive/era5/\"\nsidecars = \"/fast//bedform\"\n\
                    owners = [\"root\", 1001]\n[[sidecars]]\nroot = \"/other\"\n\
                    sidecars = \"/fast/other\"\nowners = [0]\n";
        let sites = Configuration::parse(text).unwrap().sidecars;
        assert_eq!(sites.len(), 2);
        assert_eq!(sites[0].root, Path::new("/archive/era5"));
        assert_eq!(sites[0].sidecars, Path::new("/fast/bedform"));
        assert_eq!(
            sites[0].owners,
            [SidecarOwner::Name("root".to_owned()), SidecarOwner::Id(1001)]
        );
        assert_eq!(sites[0].owners[0].id(), Some(0));
        assert_eq!(SidecarOwner::Name("no user has this name".to_owned()).id(), None);
        let path = "an absolute path without . and .., such as \"/archive/era5\"";
        let list = "a list of names or numbers of users, such as [\"root\", 1001]";
        let with = |root: &str, owners: &str| {
            format!("[[sidecars]]\nroot = {root}\nsidecars = \"/s\"\nowners = {owners}\n")
        };
        let long = format!("\"/{}\"", "a".repeat(TEXT_BYTES_MAX));
        for root in ["\"archive\"", "\"\"", "\"/a/../b\"", "\"/a/./b\"", "\"/a\\u0000\"", "3"] {
            let error = Configuration::parse(&with(root, "[0]")).unwrap_err().to_string();
            let said = format!("line 2: [[sidecars]] root is {root}; it takes {path}");
            assert_eq!(error, said);
        }
        // Long values are shortened.
        let error = Configuration::parse(&with(&long, "[0]")).unwrap_err().to_string();
        assert!(error.starts_with("line 2: [[sidecars]] root is") && error.ends_with(path));
        let many = format!("[{}]", ["1"; OWNERS_MAX + 1].join(", "));
        for owners in ["[]", "\"root\"", "[-1]", "[4294967295]", "[1.5]", "[\"\"]", "[[0]]", &many]
        {
            let error = Configuration::parse(&with("\"/a\"", owners)).unwrap_err().to_string();
            let said = format!("line 4: [[sidecars]] owners is {owners}; it takes {list}");
            assert_eq!(error, said);
        }
        let twice = with("\"/a\"", "[0]") + &with("\"/a/\"", "[1]");
        let text = |number: usize| with(&format!("\"/{number}\""), "[0]");
        let too_many: String = (0..=SITES_MAX).map(text).collect();
        for (text, said) in [
            ("[sidecars]\n", "tables: write [[sidecars]] above the settings of each"),
            ("sidecars = [3]\n", "tables: write [[sidecars]] above the settings of each"),
            ("[[sidecars]]\n", "line 1: [[sidecars]] lacks root"),
            ("[[sidecars]]\nroot = \"/a\"\n", "line 1: [[sidecars]] lacks sidecars"),
            (
                "[[sidecars]]\nroot = \"/a\"\nsidecars = \"/b\"\n",
                "line 1: [[sidecars]] lacks owners",
            ),
            ("[[sidecars]]\nowner = 1\n", "line 2: [[sidecars]] owner is not known"),
            (&twice, "line 5: [[sidecars]] has the root /a twice"),
            (&too_many, "more than 256 [[sidecars]]"),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_a_machine_does_not_know_of_a_site_yet_is_asked_again() {
        let directory = std::env::temp_dir().join(format!("bedform-site-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("real")).unwrap();
        let root = directory.join("root");
        let owners =
            vec![SidecarOwner::Name("no user has this name".to_owned()), SidecarOwner::Id(7)];
        let site = SidecarSite { root: root.clone(), sidecars: PathBuf::new(), owners };
        let known = SiteCache::default();
        let here = ResolvedSite { site: &site, known: &known };
        assert_eq!(here.real_root(), None);
        std::os::unix::fs::symlink("real", &root).unwrap();
        let real = directory.join("real").canonicalize().unwrap();
        assert_eq!(here.real_root().as_deref(), Some(&*real));
        assert_eq!(*here.owner_ids(), [7]);
        let site = SidecarSite { owners: vec![SidecarOwner::Id(7), SidecarOwner::Id(8)], ..site };
        let here = ResolvedSite { site: &site, known: &known };
        assert_eq!(*here.owner_ids(), [7, 8]);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(here.real_root().as_deref(), Some(&*real));
    }

    #[test]
    fn what_is_wrong_with_a_configuration_is_said_with_its_line() {
        for (text, line, said) in [
            ("[burst]\npath = 3\n", "line 2", "path"),
            ("[burst]\npath = \"a\"\nsize = 4\n", "line 3", "size"),
            ("[burst]\npath = \"a\"\ncapacity = \"much\"\n", "line 3", "much"),
            ("[other]\n", "line 1", "other"),
            ("burst = [", "line 1", ""),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(said), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
    #[test]
    fn a_setting_that_is_not_what_it_takes_is_shown_as_it_was_written() {
        let size = "it takes a number of bytes such as 67108864 or \"64 MiB\"";
        let count = "it takes an integer of at least 1";
        let huge = "99999999999999999999999";
        for (section, key, values, takes) in [
            ("settle", "bytes", ["-4", "1.5", "true", "\"much\"", "\"-4\"", huge, "[1]"], size),
            ("settle", "commits", ["-4", "0", "1.5", "\"10\"", huge, "1e3", "nan"], count),
            (
                "burst",
                "capacity",
                ["-1", "inf", "\"\"", "\"1 GiG\"", huge, "{ a = 1 }", "1979-05-27"],
                size,
            ),
        ] {
            for value in values {
                let text = format!("[{section}]\n{key} = {value}\n");
                let error = Configuration::parse(&text).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                let said = format!("line 2: [{section}] {key} is {value}; {takes}");
                assert_eq!(error.to_string(), said);
            }
        }
        for (text, said) in [
            (
                "settle = 3",
                "line 1: settle is 3; it takes a table: write [settle] above its settings",
            ),
            ("[burst]", "[burst] lacks path: the directory of the tier"),
            (
                "[burst]\npath = 3",
                "line 2: [burst] path is 3; it takes a directory such as \"/mnt/nvme\"",
            ),
            (
                "[settle]\nbites = 3",
                "line 2: [settle] bites is not known; there are bytes, commits",
            ),
        ] {
            assert_eq!(Configuration::parse(text).unwrap_err().to_string(), said);
        }
        let largest =
            "[settle]\nbytes = 0xffff_ffff_ffff_ffff\ncommits = 18_446_744_073_709_551_615\n";
        let settle = Configuration::parse(largest).unwrap().settle.unwrap();
        assert_eq!(settle.bytes, Some(Size(u64::MAX)));
        assert_eq!(settle.commits, NonZeroU64::new(u64::MAX));
    }
}
