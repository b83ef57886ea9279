//! Whether a source is as it was.

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
/// Where the log of a store lies, and its roots in it.
const LOG_SUFFIX: &str = ".bedform-log";
const ROOTS: &str = "roots";

/// A number of names and versions: of all objects of a store on a local disk, and of the roots of its log. In an object
/// store, where asking for every object takes too long, of its documents alone. With `may_be_linked` second names of
/// files, which change the times of attributes, change nothing.
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
    // Where nothing can lie beside a store there is no log.
    if let Ok(log) = storage.beside(LOG_SUFFIX) {
        match digest.add_tree(&*log, &root.join(ROOTS)?) {
            // Web servers do not tell what they have.
            Err(error) if storage.is_remote() && error.kind() == ErrorKind::PermissionDenied => {}
            outcome => outcome?,
        }
    }
    Ok(format!("{:032x}", digest.fingerprint.finish()))
}

/// A number that stands for the versions of files.
pub(super) fn state_of_files<'a>(versions: impl Iterator<Item = &'a SourceVersion>) -> String {
    let mut digest = Digest::default();
    versions.for_each(|version| digest.add_version(version));
    format!("{:032x}", digest.fingerprint.finish())
}

/// A number of names, sizes and times of all objects of a store on a local disk but its documents (`zarr.json`);
/// second names of files change nothing.
///
/// # Errors
/// Those of storage.
pub(super) fn state_without_documents(storage: &dyn Storage) -> Result<u128> {
    let mut digest = Digest { skips_documents: true, may_be_linked: true, ..Digest::default() };
    digest.add_tree(storage, &ObjectPath::root())?;
    Ok(digest.fingerprint.finish())
}

/// A number that stands for `bytes`.
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

    /// Adds what tells a version from others: see [`SourceVersion`].
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
            // Gone since it was listed, or nothing that holds data.
            Err(error) if error.is_not_found() => {}
            Err(error) if error.kind == bedform_storage::StorageErrorKind::NotAnObject => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Adds what lies below `top`. Listings are sorted, so the order is the same each time.
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
