//! The choice of the directory that holds the sidecar of a source, and the owners of its files.

#![allow(clippy::disallowed_methods, reason = "it makes the directories that hold sidecars")]

use std::fmt::Debug;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::checksum::Fingerprint;
use bedform_format::shown::shell_path;
use bedform_storage::{LocalStorage, Mode, OwnedRoot, Storage};

use super::registry::{self, SidecarStanding};
use super::site::{SiteCheck, SiteSidecar, site_of};
use super::{Sidecar, accepting, warnings};
use crate::error::{Error, ErrorKind, Result};
use crate::size;

const PLACE_VARIABLE: &str = "BEDFORM_SIDECAR";
const BYTES_VARIABLE: &str = "BEDFORM_SIDECAR_BYTES";
const BYTES: u64 = 1 << 30;
/// The suffix that makes the name of a sidecar from that of its source.
pub(super) const SUFFIX: &str = ".bedform";
/// A suffix between the name of the first of many files and [`SUFFIX`].
pub(super) const ARCHIVE: &str = ".archive";

/// A place that holds sidecars, and the rule for whose files count there.
pub(super) trait SidecarHolder: Send + Sync + Debug {
    /// Returns the place to read, if it exists.
    fn to_read(&self) -> Option<Arc<dyn Storage>>;

    /// Returns the place to write, made if it is missing; `None` if it cannot be written.
    fn to_write(&self) -> Option<Arc<dyn Storage>>;

    /// Returns the place to read, with only the files of this user.
    fn to_read_own(&self) -> Option<Arc<dyn Storage>> {
        self.to_read()
    }

    /// Appends to a file of this user alone, made if it is missing; returns false on failure.
    fn append(&self, _: &ObjectPath, _: &[u8]) -> bool {
        false
    }

    /// Returns the directory of the place, if it lies on this machine.
    fn local(&self) -> Option<&Path> {
        None
    }

    /// Returns the same directory, as the root beneath which objects are opened.
    fn root(&self) -> Option<OwnedRoot<'_>> {
        None
    }

    /// Returns the directory beside the data that counts because the registry names it, if this is
    /// one.
    fn registered(&self) -> Option<&Path> {
        None
    }

    /// Returns the users whose files count there.
    fn owners(&self) -> &[u32] {
        &[]
    }

    /// Returns the site of the place, if it belongs to one.
    fn site(&self) -> Option<&SiteSidecar> {
        None
    }
}

/// A storage whose objects are all trusted.
#[derive(Debug)]
pub(super) struct TrustedStorage(pub(super) Arc<dyn Storage>);

impl SidecarHolder for TrustedStorage {
    fn to_read(&self) -> Option<Arc<dyn Storage>> {
        Some(self.0.clone())
    }

    fn to_write(&self) -> Option<Arc<dyn Storage>> {
        Some(self.0.clone())
    }
}

/// A holder without a place: it keeps and finds nothing.
#[derive(Debug)]
struct Nowhere;

impl SidecarHolder for Nowhere {
    fn to_read(&self) -> Option<Arc<dyn Storage>> {
        None
    }

    fn to_write(&self) -> Option<Arc<dyn Storage>> {
        None
    }
}

/// A directory of this machine in which the files of certain users count.
#[derive(Debug)]
pub(super) struct LocalDirectory {
    pub(super) path: PathBuf,
    pub(super) owners: Vec<u32>,
    pub(super) access: HolderAccess,
    /// True for the directory of one sidecar, which is no link and belongs to an owner. A directory
    /// of many sidecars may be a link, and of any owner.
    pub(super) is_sidecar: bool,
    /// The site of the directory, if it belongs to one.
    pub(super) site: Option<SiteSidecar>,
}

impl LocalDirectory {
    /// Makes the holder for the directory of one sidecar of a user.
    pub(super) fn of_one(path: PathBuf, user: u32, access: HolderAccess) -> Self {
        Self { path, owners: vec![user], access, is_sidecar: true, site: None }
    }

    fn open(&self, mode: Mode) -> Option<LocalStorage> {
        LocalStorage::open_of_owners(self.root(), mode, &self.owners).ok()
    }

    /// Opens the directory for writing; `None` if it is only read, or missing.
    fn open_to_write(&self) -> Option<LocalStorage> {
        if self.access == HolderAccess::Read {
            return None;
        }
        if self.access == HolderAccess::Make {
            // A helper file may hold parts of its source, which others perhaps must not read.
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path).ok()?;
        }
        self.open(Mode::ReadWrite)
    }

    fn root(&self) -> OwnedRoot<'_> {
        match self.is_sidecar {
            true => OwnedRoot::Itself(&self.path),
            false => OwnedRoot::At(&self.path),
        }
    }
}

/// The permitted use of a directory that holds sidecars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderAccess {
    /// It belongs to another user, and is only read.
    Read,
    /// It is written if it exists.
    Write,
    /// It is made if it is missing.
    Make,
}

impl SidecarHolder for LocalDirectory {
    fn to_read(&self) -> Option<Arc<dyn Storage>> {
        Some(Arc::new(self.open(Mode::ReadOnly)?.through_page_cache()))
    }

    fn to_write(&self) -> Option<Arc<dyn Storage>> {
        Some(Arc::new(self.open_to_write()?))
    }

    fn to_read_own(&self) -> Option<Arc<dyn Storage>> {
        let user = rustix::process::geteuid().as_raw();
        // The directory of a site may belong to another of its owners.
        let root = OwnedRoot::At(&self.path);
        let storage = LocalStorage::open_of_owners(root, Mode::ReadOnly, &[user]).ok()?;
        Some(Arc::new(storage.through_page_cache()))
    }

    fn append(&self, path: &ObjectPath, bytes: &[u8]) -> bool {
        self.open_to_write().is_some_and(|storage| storage.append(path, bytes).is_ok())
    }

    fn local(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn root(&self) -> Option<OwnedRoot<'_>> {
        Some(self.root())
    }

    fn registered(&self) -> Option<&Path> {
        (self.is_sidecar && self.site.is_none()).then_some(&*self.path)
    }

    fn owners(&self) -> &[u32] {
        &self.owners
    }

    fn site(&self) -> Option<&SiteSidecar> {
        self.site.as_ref()
    }
}

/// The name by which a sidecar is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarName {
    /// The path whose name, with a suffix, is that of the sidecar beside it.
    path: PathBuf,
    /// The resolved path of the source.
    source: PathBuf,
}

impl SidecarName {
    /// Returns the name for the file or directory at `path`.
    pub fn of_path(path: &Path) -> Self {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self { source: path.clone(), path }
    }

    /// Returns the name for many files that are read as one, with the first at `first`. All lists
    /// of files that begin with it have this name, so that longer lists find the sidecar too.
    pub fn of_archive(first: &Path) -> Self {
        let source = first.canonicalize().unwrap_or_else(|_| first.to_owned());
        let mut path = source.clone().into_os_string();
        path.push(ARCHIVE);
        Self { path: path.into(), source }
    }

    /// Returns the command that accepts the sidecar. Lists of any length share that of an archive.
    fn trust_command(&self) -> String {
        if self.path == self.source {
            format!("'bedform trust {}'", shell_path(&self.source.to_string_lossy()))
        } else {
            "'bedform trust' with the same list or pattern of files".to_owned()
        }
    }

    /// Returns the resolved path of the source.
    pub(super) fn source(&self) -> &Path {
        &self.source
    }
}

/// The places where the sidecar of a source may be, for one user.
pub(super) struct SidecarCandidates {
    name: SidecarName,
    /// The directory of sidecars that the caller or the environment named.
    base: Option<PathBuf>,
    user: u32,
    budget_bytes: u64,
    site: Result<Option<SiteSidecar>>,
}

impl SidecarCandidates {
    /// Returns the candidates for the source with this name; `base` replaces the environment
    /// variable.
    ///
    /// # Errors
    /// `InvalidArgument` for a budget that is not a size.
    pub(super) fn of(name: &SidecarName, base: Option<&Path>) -> Result<Self> {
        let budget_bytes = budget_of_environment()?;
        let base = base.map(Path::to_owned).or_else(|| variable(PLACE_VARIABLE));
        let user = rustix::process::geteuid().as_raw();
        let site = site_of(&name.path, &name.source);
        Ok(Self { name: name.clone(), base, user, budget_bytes, site })
    }

    pub(super) fn user(&self) -> u32 {
        self.user
    }

    /// Finds the sidecar of this user, with that of the site. Warns if the site's sidecar exists
    /// and cannot be trusted.
    pub(super) fn find(&self) -> Option<Sidecar> {
        let own = self.own();
        let is_of_site = own.as_ref().is_some_and(Sidecar::is_of_site);
        let site = if is_of_site { None } else { self.of_site() };
        match (own, site) {
            (own, None) => own,
            (Some(own), site) => Some(Sidecar { site, ..own }),
            (None, site) => Some(Sidecar { site, ..self.sidecar_in(Arc::new(Nowhere)) }),
        }
    }

    /// Finds the sidecar of this user.
    fn own(&self) -> Option<Sidecar> {
        if let Some(base) = &self.base {
            return self.keyed(base.clone());
        }
        if let Ok(Some(site)) = &self.site
            && site.is_own(self.user)
        {
            return Some(
                self.sidecar_in(Arc::new(LocalDirectory::of_site(site, HolderAccess::Write))),
            );
        }
        match self.beside_if_registered() {
            Ok(Some(beside)) => return Some(beside),
            Ok(None) => {}
            Err(why) => warnings::tell(why),
        }
        // The XDG rules: a relative path there is to be ignored.
        let cache = variable("XDG_CACHE_HOME").filter(|place| place.is_absolute());
        let cache = cache.or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
        let sidecar = self.keyed(cache.join("bedform/sidecars"))?;
        Some(Sidecar { is_in_cache: true, ..sidecar })
    }

    /// Finds the sidecar beside the source, if this user has made or accepted it.
    ///
    /// # Errors
    /// The reason why a directory of this user does not count.
    fn beside_if_registered(&self) -> std::result::Result<Option<Sidecar>, String> {
        let path = self.beside();
        let mut standing = registry::standing(&path);
        if standing == SidecarStanding::Empty {
            // An empty directory holds nothing wrong: this user made it to have the sidecar there.
            registry::register(&path).map_err(|error| {
                format!("{} is not used: {error}; {}", path.display(), registry::remedy())
            })?;
            standing = registry::standing(&path);
        }
        match standing {
            SidecarStanding::Missing => Ok(None),
            SidecarStanding::Registered => {
                let holder = LocalDirectory::of_one(path, self.user, HolderAccess::Write);
                Ok(Some(self.sidecar_in(Arc::new(holder))))
            }
            SidecarStanding::WritableByOthers => Err(accepting::writable_by_others(&path)),
            SidecarStanding::Empty | SidecarStanding::Unknown => Err(format!(
                "{} is not used: this user has not made it here; {} compares it with the data and accepts it",
                path.display(),
                self.name.trust_command()
            )),
        }
    }

    /// Finds the sidecar of the site, to be read.
    fn of_site(&self) -> Option<Arc<Sidecar>> {
        let site = match &self.site {
            Ok(site) => site.as_ref()?,
            Err(error) => {
                warnings::tell(format!("{error}; sidecars of the site are not read"));
                return None;
            }
        };
        match site.look() {
            SiteCheck::Trusted(_) => {
                let holder = LocalDirectory::of_site(site, HolderAccess::Read);
                Some(Arc::new(self.sidecar_in(Arc::new(holder))))
            }
            SiteCheck::Missing => None,
            SiteCheck::Refused(why) => {
                warnings::tell(why);
                None
            }
        }
    }

    /// Makes the directory of this user's sidecar, if it is missing, and returns the sidecar. The
    /// directory lies in `base`, else at the site for users who keep its sidecars, else beside the
    /// source where possible, else in the user's cache if `uses_cache`. `None` if there is no
    /// place.
    ///
    /// # Errors
    /// Those of the site file and of making the directory.
    pub(super) fn make(self, uses_cache: bool) -> Result<Option<Sidecar>> {
        if self.base.is_none() {
            match &self.site {
                Ok(Some(site)) if site.is_kept_by(self.user) => site.make()?,
                Ok(_) => self.make_beside(uses_cache)?,
                Err(_) => return self.site.map(|_| None),
            }
        }
        let own = self.own().filter(|own| uses_cache || !own.is_in_cache);
        let Some((own, directory)) = own.and_then(|own| Some((own.clone(), own.own_directory()?)))
        else {
            return Ok(None);
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|error| {
            Error::new(ErrorKind::Io, format!("{}: {error}", directory.display()))
        })?;
        Ok(Some(own))
    }

    /// Makes the directory beside the source, where possible.
    ///
    /// # Errors
    /// `PermissionDenied` for an existing directory that does not count, and, unless the cache is
    /// used, if none can be registered.
    fn make_beside(&self, uses_cache: bool) -> Result<()> {
        if self.name.source.symlink_metadata().is_err() {
            return Ok(());
        }
        match registry::is_writable() {
            // An existing directory, or a failure, is no error: the cache is used then.
            true => drop(DirBuilder::new().mode(0o700).create(self.beside())),
            false if uses_cache => warnings::tell(registry::remedy()),
            false => return Err(Error::new(ErrorKind::PermissionDenied, registry::remedy())),
        }
        let found = self.beside_if_registered();
        found.map(drop).map_err(|why| Error::new(ErrorKind::PermissionDenied, why))
    }

    pub(super) fn beside(&self) -> PathBuf {
        let mut beside = self.name.path.clone().into_os_string();
        beside.push(SUFFIX);
        beside.into()
    }

    /// Makes the sidecar that has a place of its own.
    pub(super) fn sidecar_in(&self, holder: Arc<dyn SidecarHolder>) -> Sidecar {
        let name = Some(Arc::new(self.name.clone()));
        let directory = ObjectPath::root();
        Sidecar { holder, directory, budget_bytes: None, name, is_in_cache: false, site: None }
    }

    /// Makes the sidecar in a directory shared by many sources.
    fn keyed(&self, base: PathBuf) -> Option<Sidecar> {
        let directory = ObjectPath::parse(&key_of(&self.name.path)).ok()?;
        let owners = vec![self.user];
        let access = HolderAccess::Make;
        let holder = LocalDirectory { path: base, owners, access, is_sidecar: false, site: None };
        let budget_bytes = Some(self.budget_bytes);
        Some(Sidecar { directory, budget_bytes, ..self.sidecar_in(Arc::new(holder)) })
    }
}

impl LocalDirectory {
    /// Makes the holder for the directory that a site has for a source.
    fn of_site(site: &SiteSidecar, access: HolderAccess) -> Self {
        let (path, owners) = (site.directory(), site.owners.clone());
        Self { path, owners, access, is_sidecar: true, site: Some(site.clone()) }
    }
}

pub(super) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn budget_of_environment() -> Result<u64> {
    match variable(BYTES_VARIABLE) {
        None => Ok(BYTES),
        Some(text) => size::from_text(&text.to_string_lossy())
            .map_err(|error| Error::invalid(format!("{BYTES_VARIABLE}: {error}"))),
    }
}

/// Returns the name of a source's sidecar in a shared directory, and of a sidecar's path in the
/// registry.
pub(super) fn key_of(source: &Path) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.update(source.as_os_str().as_bytes());
    format!("{:032x}", fingerprint.finish())
}

/// Returns true for a name that [`key_of`] returns.
pub(super) fn is_key(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
