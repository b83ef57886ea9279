//! A finished directory gets its name.

use std::path::Path;

use bedform_format::ObjectPath;
use bedform_storage::{Storage, StorageError, StorageErrorKind};

use crate::error::Result;

/// Gives the directory `from` of a place the name `to`, durably, if nothing has that name.
///
/// # Errors
/// `Exists`; those of storage.
pub(super) fn publish_tree(
    storage: &dyn Storage,
    from: &ObjectPath,
    to: &ObjectPath,
) -> Result<()> {
    let root = storage.name();
    let at = |path: &ObjectPath| Path::new(&root).join(path.as_str());
    let fail = |error| StorageError::from_io("publish", to, error);
    if std::fs::symlink_metadata(at(to)).is_ok() {
        return Err(StorageError::new(StorageErrorKind::Exists, "publish", to).into());
    }
    std::fs::rename(at(from), at(to)).map_err(fail)?;
    storage.sync(&to.parent())?;
    storage.sync(&from.parent())?;
    Ok(())
}
