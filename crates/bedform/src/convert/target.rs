//! The target of a conversion: a name in a directory, or a whole place in an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_remote::RemoteStorage;
use bedform_storage::{Mode, Profile, Storage};

use super::source::ConvertSource;
use super::tasks::TargetPlace;
use super::words::quoted;
use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_of;
use crate::options::OpenOptions;
use crate::publication::{has_name, split_target};
use crate::store::Store;

#[derive(Debug, Clone)]
pub(super) enum TargetBacking {
    /// A directory, and the name that the store gets in it when it is complete.
    Named { parent: Arc<dyn Storage>, name: ObjectPath },
    /// The place of the store itself: nothing can be renamed there.
    Whole(Arc<dyn Storage>),
}

/// The target of a conversion.
#[derive(Debug, Clone)]
pub struct ConvertTarget {
    name: String,
    /// The future directory of the store, with links resolved; `None` for other places.
    path: Option<PathBuf>,
    pub(super) place: TargetBacking,
    pub(super) options: OpenOptions,
    profile: Profile,
}

impl ConvertTarget {
    /// The target at `path`, a directory that does not exist yet, or at the URL of an object store.
    /// The store is written with `options`. Nothing is created before the conversion runs.
    ///
    /// # Errors
    /// `NotFound` if the directory above is missing; `InvalidArgument` if that is a file, for a
    /// name that no object can have, and for a URL that cannot be written to; those of opening the
    /// directory.
    pub fn open(path: &Path, mut options: OpenOptions) -> Result<Self> {
        (options.writable, options.cache_bytes) = (true, 0);
        let name = path.to_string_lossy().into_owned();
        if name.contains("://") {
            return Self::at_url(name, options);
        }
        let (above, last) = split_target(path)?;
        let storage = storage_of(&above, Mode::ReadWrite, &options)?;
        Ok(Self::below(storage, last, (&above, name), options))
    }

    /// As [`ConvertTarget::named`], where `parent` is the directory `above` of this machine.
    ///
    /// # Errors
    /// As [`ConvertTarget::named`].
    pub(crate) fn in_directory(
        parent: Arc<dyn Storage>,
        above: &Path,
        name: &str,
        mut options: OpenOptions,
    ) -> Result<Self> {
        (options.writable, options.cache_bytes) = (true, 0);
        let last = single_name(name)?;
        let shown = above.join(name).to_string_lossy().into_owned();
        Ok(Self::below(parent, last, (above, shown), options))
    }

    fn below(
        parent: Arc<dyn Storage>,
        last: ObjectPath,
        (above, name): (&Path, String),
        options: OpenOptions,
    ) -> Self {
        let profile = Profile::for_path(above).ok().flatten();
        Self {
            path: Some(above.join(last.as_str())),
            place: TargetBacking::Named { parent, name: last },
            profile: profile.unwrap_or_else(Profile::default_local),
            name,
            options,
        }
    }

    fn at_url(name: String, options: OpenOptions) -> Result<Self> {
        let storage = RemoteStorage::open(&name, Mode::Create, &options.remote);
        let storage = storage.map_err(|error| Error::invalid(error.to_string()))?;
        // An unreadable profile must not prevent writing the data.
        let profile = Profile::for_system(storage.system()).ok().flatten();
        Ok(Self {
            path: None,
            place: TargetBacking::Whole(Arc::new(storage)),
            profile: profile.unwrap_or_else(Profile::default_remote),
            name,
            options,
        })
    }

    /// The store that will be the directory `name` of `parent`.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no object can have.
    pub fn named(parent: Arc<dyn Storage>, name: &str, mut options: OpenOptions) -> Result<Self> {
        options.writable = true;
        let profile = Profile::default_local();
        let place = TargetBacking::Named { parent, name: single_name(name)? };
        Ok(Self { name: name.to_owned(), path: None, place, options, profile })
    }

    /// The store that will fill `storage`, as in an object store.
    pub fn whole(storage: Arc<dyn Storage>, mut options: OpenOptions) -> Self {
        options.writable = true;
        let profile = Profile::default_remote();
        Self {
            name: storage.name(),
            path: None,
            place: TargetBacking::Whole(storage),
            options,
            profile,
        }
    }

    /// The path or URL as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the target, and its name there; `None` for other places.
    pub(super) fn named_place(&self) -> Option<(&Arc<dyn Storage>, &ObjectPath)> {
        match &self.place {
            TargetBacking::Named { parent, name } => Some((parent, name)),
            TargetBacking::Whole(_) => None,
        }
    }

    /// The stored profile for the target's storage, else the default of a local disk or an object
    /// store.
    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The place of the target for workers in other processes, without the name of the store in its
    /// directory.
    ///
    /// # Errors
    /// `Unsupported` for a target that has neither path nor URL.
    pub(super) fn for_workers(&self, state: &str, profile: &Profile) -> Result<TargetPlace> {
        let place = match (&self.place, &self.path) {
            (TargetBacking::Named { .. }, Some(path)) => path.parent().and_then(Path::to_str),
            (TargetBacking::Whole(_), None) if self.name.contains("://") => {
                Some(self.name.as_str())
            }
            _ => None,
        };
        let place = place.ok_or_else(|| {
            let text = format!("target {} is no place that workers can open", quoted(&self.name));
            Error::new(ErrorKind::Unsupported, text)
        })?;
        Ok(TargetPlace {
            place: place.to_owned(),
            tree: None,
            source_state: state.to_owned(),
            profile: profile.to_json().map_err(|error| Error::invalid(error.to_string()))?,
            part: None,
        })
    }

    /// Threads that decode and encode.
    pub(super) fn threads(&self) -> u64 {
        let threads = self.options.threads.map(|threads| threads.max(1) as u64);
        let cores = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        threads.unwrap_or_else(cores)
    }

    /// Fails if the target would lie in the source, even under another name of it.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn check_apart(&self, source: &ConvertSource) -> Result<()> {
        let outer = source.name();
        let lies_within = match &self.path {
            Some(target) => {
                Path::new(outer).canonicalize().is_ok_and(|path| target.starts_with(path))
            }
            None => self.name.starts_with(&format!("{}/", outer.trim_end_matches('/'))),
        };
        if !lies_within {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "target {} lies in the source {}, which is never changed: choose a place outside it",
            quoted(&self.name),
            quoted(outer)
        )))
    }

    /// Fails if the target's name is taken; at a URL, if there is more than an empty store.
    ///
    /// # Errors
    /// `Exists`; those of storage.
    pub(super) fn check_free(&self) -> Result<()> {
        let is_taken = match &self.place {
            TargetBacking::Named { parent, name } => has_name(&**parent, name)?,
            TargetBacking::Whole(storage) => {
                let mut options = self.options.clone();
                options.writable = false;
                match Store::open(storage.clone(), options) {
                    Err(error) if error.kind() == ErrorKind::NotFound => false,
                    Err(error) => return Err(error),
                    Ok(store) => {
                        let root = ObjectPath::root();
                        !store.nodes()?.is_empty() || !store.group_attributes(&root)?.is_empty()
                    }
                }
            }
        };
        if !is_taken {
            return Ok(());
        }
        let text =
            format!("target {} exists: choose another name or remove it", quoted(&self.name));
        Err(Error::new(ErrorKind::Exists, text))
    }
}

fn single_name(name: &str) -> Result<ObjectPath> {
    let path = ObjectPath::parse(name)?;
    if path.is_root() || !path.parent().is_root() {
        return Err(Error::invalid(format!("target {} is no single name", quoted(name))));
    }
    Ok(path)
}
