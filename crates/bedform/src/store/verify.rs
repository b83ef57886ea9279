//! Checks a store: see [`verify_arrays`].

use bedform_format::ObjectPath;

use super::{Store, StoreBacking};
use crate::array::verified::{note, verify_arrays};
use crate::error::{Error, ErrorKind, Result};
use crate::log::array::ArrayHandle;
use crate::options::ProgressCallback;
use crate::zarr::nodes::NodeKind;

pub use crate::array::verified::{AbsentObjects, Verified};

/// The prefix of a line about an array that this version cannot read, and so cannot check.
pub const NOT_CHECKED: &str = "cannot be checked: ";

impl Store {
    /// Reads everything that is stored of `arrays`, or of all, and reports all damage. It reads
    /// every object, and all parts of the log that its newest root names. That includes commits
    /// which the objects contain already, until settling drops them from the root, because reads
    /// that began earlier use them. Older roots, and uncommitted data of writers, are not checked.
    ///
    /// A line that begins with [`NOT_CHECKED`] is about an array that this version cannot read.
    ///
    /// For a foreign file, reads every variable that the engine can read; its format may have no
    /// checksums.
    ///
    /// Memory is bounded by a chunk or a request of 2 MiB, the descriptions that readers keep of a
    /// log (128 MiB), and the numbers of objects. Others may write and settle meanwhile.
    ///
    /// # Errors
    /// `NotFound` for a name that is no array; `Interrupted`; those of storage, and of documents
    /// that are needed to find the stored objects.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bedform::{OpenOptions, Store};
    /// use bedform_storage::MemoryStorage;
    /// let mut options = OpenOptions::default();
    /// options.writable = true;
    /// let store = Store::create(Arc::new(MemoryStorage::new()), &serde_json::Map::new(), options)?;
    ///     /// assert!(store.verify(None, &|_, _| ())?.problems.is_empty());
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn verify(
        &self,
        arrays: Option<&[ObjectPath]>,
        progress: ProgressCallback<'_>,
    ) -> Result<Verified> {
        if let StoreBacking::Zarr(store) = &self.backing {
            // Arrays that others have deleted since are not damaged.
            store.refresh_if_stale()?;
        }
        let paths = self.paths_of(arrays)?;
        let store = match &self.backing {
            StoreBacking::Zarr(store) => store,
            StoreBacking::File(file) => return file.verify(&paths, progress),
        };
        let mut problems = Vec::new();
        let mut opened = Vec::new();
        for path in paths {
            match ArrayHandle::open(store.clone(), path) {
                Ok(array) => opened.push(array),
                // Arrays that this version cannot read are skipped with a line; the others are
                // checked.
                Err(error) if arrays.is_none() && error.is_of_document() => {
                    let is_damaged = error.kind() == ErrorKind::Corrupt;
                    let prefix = if is_damaged { "" } else { NOT_CHECKED };
                    problems.push(format!("{prefix}{error}"));
                }
                Err(error) => note(error, &mut problems)?,
            }
        }
        let mut found = {
            let opened: Vec<&ArrayHandle> = opened.iter().collect();
            verify_arrays(store, &opened, arrays.is_none(), progress)?
        };
        found.problems.splice(0..0, problems);
        Ok(found)
    }

    fn paths_of(&self, arrays: Option<&[ObjectPath]>) -> Result<Vec<ObjectPath>> {
        let root = ObjectPath::root();
        let nodes = self.nodes()?;
        let is_array = |path: &ObjectPath| {
            nodes.get(path) == Some(&NodeKind::Array)
                || (*path == root && matches!(self.kind(&root), Ok(Some(NodeKind::Array))))
        };
        let Some(arrays) = arrays else {
            let all = [&root].into_iter().chain(nodes.keys());
            return Ok(all.filter(|path| is_array(path)).cloned().collect());
        };
        match arrays.iter().find(|path| !is_array(path)) {
            None => Ok(arrays.to_vec()),
            Some(missing) => Err(Error::new(
                ErrorKind::NotFound,
                format!("{} has no array {missing}", self.storage().name()),
            )),
        }
    }
}
