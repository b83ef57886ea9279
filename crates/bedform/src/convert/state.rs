//! Fingerprints of a source's state, by which a resumed conversion finds it unchanged or not.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::checksum::Fingerprint;
use bedform_format::chunk_map::SourceVersion;
use bedform_storage::Storage;

use crate::error::{ErrorKind, Result};
use crate::sidecar::source_version;
use crate::zarr::documents::ZARR_JSON;

/// Documents that a store of either format may have at its root.
const DOCUMENTS: [&str; 5] = ["zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata"];
/// The suffix of the place of a store's log, and the directory of its roots there.
const LOG_SUFFIX: &str = ".bedform-log";
const ROOTS: &str = "roots";

/// Computes a fingerprint of names and versions: of all objects of a store on a local disk, and of
/// the roots of its log. In an object store only documents count, because asking for every object
/// takes too long. With `may_be_linked`, hard links of files, which change the times of their
/// attributes, change nothing.
///
/// # Errors
/// Those of storage.
pub(super) fn state_of(storage: &Arc<dyn Storage>, may_be_linked: bool) -> Result<String> {
    let mut digest = Digest { may_be_linked, ..Digest::default() };
    let root = ObjectPath::root();
    if storage.is_remote() {
        for name in DOCUMENTS {
            digest.add_object(&**storage, &root.join(name)?)?;
        }
    } else {
        digest.add_tree(&**storage, &root)?;
    }
    // Without a place beside the store there is no log.
    if let Ok(log) = storage.sibling(LOG_SUFFIX) {
        match digest.add_tree(&*log, &root.join(ROOTS)?) {
            // Web servers deny listing.
            Err(error) if storage.is_remote() && error.kind() == ErrorKind::PermissionDenied => {}
            outcome => outcome?,
        }
    }
    Ok(format!("{:032x}", digest.fingerprint.finish()))
}

/// Computes a fingerprint of the versions of files.
pub(super) fn state_of_files<'a>(versions: impl Iterator<Item = &'a SourceVersion>) -> String {
    let mut digest = Digest::default();
    versions.for_each(|version| digest.add_version(version));
    format!("{:032x}", digest.fingerprint.finish())
}

/// Computes a fingerprint of names, sizes and times of all objects of a local store except
/// documents (`zarr.json`). Hard links of files change nothing.
///
/// # Errors
/// Those of storage.
pub(super) fn state_without_documents(storage: &dyn Storage) -> Result<u128> {
    let mut digest = Digest { skips_documents: true, may_be_linked: true, ..Digest::default() };
    digest.add_tree(storage, &ObjectPath::root())?;
    Ok(digest.fingerprint.finish())
}

/// Computes a fingerprint of `bytes`.
pub(super) fn fingerprint(bytes: &[u8]) -> u128 {
    let mut digest = Digest::default();
    digest.add(bytes);
    digest.fingerprint.finish()
}

#[derive(Default)]
struct Digest {
    fingerprint: Fingerprint,
    skips_documents: bool,
    may_be_linked: bool,
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        self.fingerprint.update(bytes);
    }

    /// Adds the fields that distinguish a version from others: see [`SourceVersion`].
    fn add_version(&mut self, version: &SourceVersion) {
        let SourceVersion { size, modified_ns, changed_ns, identity: (first, second) } = version;
        self.add(&size.to_le_bytes());
        self.add(&modified_ns.to_le_bytes());
        self.add(&second.to_le_bytes());
        if *changed_ns == 0 {
            self.add(&first.to_le_bytes());
        } else if !self.may_be_linked {
            self.add(&changed_ns.to_le_bytes());
        }
    }

    fn add_object(&mut self, storage: &dyn Storage, path: &ObjectPath) -> Result<()> {
        match storage.stat(path) {
            Ok(version) => {
                self.add(path.as_str().as_bytes());
                self.add(&[0]);
                self.add_version(&source_version(&version));
            }
            // Deleted since it was listed, or an entry without data.
            Err(error) if error.is_not_found() => {}
            Err(error) if error.kind == bedform_storage::StorageErrorKind::NotAnObject => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Adds all objects below `top`. Listings are sorted, so the order is the same each time.
    fn add_tree(&mut self, storage: &dyn Storage, top: &ObjectPath) -> Result<()> {
        let mut directories = vec![top.clone()];
        while let Some(directory) = directories.pop() {
            for entry in storage.list(&directory)? {
                let path = directory.join(&entry.name)?;
                if entry.is_directory {
                    directories.push(path);
                } else if !(self.skips_documents && entry.name == ZARR_JSON) {
                    self.add_object(storage, &path)?;
                }
            }
        }
        Ok(())
    }
}
