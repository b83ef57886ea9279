//! Groups and arrays of a store that are opened by their own paths.
//!
//! Unsettled commits lie beside the store, and only the store's document says that there are any.
//! If a part were opened as a store of its own, it would silently show old data. A write to it
//! would use other numbers of commits, and names that the store does not know. So a part can be
//! read while all is settled, and is never written.

use std::path::Path;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::{LocalStorage, Mode};

use super::hierarchy::{FindRoot, Hierarchy};
use crate::error::{Error, Result};
use crate::options::OpenOptions;

/// The most directories above that are searched.
const DEPTH_MAX: usize = 32;

/// The store that contains a group or array opened by its own path.
#[derive(Debug)]
pub(crate) struct EnclosingStore {
    hierarchy: Box<Hierarchy>,
    path: ObjectPath,
}

impl EnclosingStore {
    /// Finds the store above the directory `path` that names it as one of its nodes. Documents
    /// above that cannot be read do not prevent reading the data.
    pub(crate) fn of(path: &Path, options: &OpenOptions, find_root: FindRoot) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        for above in path.ancestors().skip(1).take(DEPTH_MAX) {
            if !above.join("zarr.json").is_file() {
                return None;
            }
            let inside = path.strip_prefix(above).ok().and_then(Path::to_str);
            let inside = inside.and_then(|inside| ObjectPath::parse(inside).ok());
            if let Some(outer) =
                inside.and_then(|inside| Self::at(above, inside, options, find_root))
            {
                return Some(outer);
            }
        }
        None
    }

    /// The store in the directory `above`, if it names `path` as one of its nodes.
    fn at(
        above: &Path,
        path: ObjectPath,
        options: &OpenOptions,
        find_root: FindRoot,
    ) -> Option<Self> {
        let storage = Arc::new(LocalStorage::open(above, Mode::ReadOnly).ok()?);
        let (limits, freshness) = (options.limits.clone(), options.freshness);
        let hierarchy = {
            let options = OpenOptions { limits, freshness, ..Default::default() };
            Hierarchy::new(storage, options, find_root)
        };
        let root = hierarchy.documents.read_root(&hierarchy).ok()??;
        root.group.store?;
        let is_named = match &root.group.consolidated {
            Some(documents) => documents.contains_key(path.as_str()),
            None => hierarchy.documents.kind(&hierarchy, &path).is_ok_and(|kind| kind.is_some()),
        };
        is_named.then(|| Self { hierarchy: Box::new(hierarchy), path })
    }

    /// Fails if the store has commits that are not settled.
    ///
    /// # Errors
    /// `InvalidArgument` names the store; those of reading its document.
    pub(crate) fn check_settled(&self) -> Result<()> {
        match self.hierarchy.documents.root(&self.hierarchy)? {
            Some(root) if root.group.log.pending => {
                Err(self.refuse("it has commits that are not settled", "or settle it first"))
            }
            _ => Ok(()),
        }
    }

    /// The error of an attempt to write to the part.
    pub(crate) fn refuse_writing(&self) -> Error {
        self.refuse("only the whole store can be written to", "or read only")
    }

    fn refuse(&self, why: &str, remedy: &str) -> Error {
        let (store, path) = (self.hierarchy.storage.name(), &self.path);
        Error::invalid(format!(
            "{store}/{path} is a part of the store {store}, and {why}: open {store} and take \
             {path:?} of it, {remedy}"
        ))
    }
}
