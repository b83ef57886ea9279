//! A read-only storage in memory, whose objects a test replaces.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::{
    ListedEntry, Lock, Object, Storage, StorageError, StorageErrorKind, Version, forward,
    implement, lacks,
};

type Result<T> = std::result::Result<T, StorageError>;
pub(crate) type Files = BTreeMap<String, Arc<Vec<u8>>>;

/// Loads the files below a directory.
pub(crate) fn load(directory: &Path) -> Files {
    let mut files = Files::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                files.insert(name, Arc::new(std::fs::read(path).unwrap()));
            }
        }
    }
    files
}

/// Files that never change.
#[derive(Debug, Clone)]
pub(crate) struct Frozen(pub(crate) Files);

#[derive(Debug)]
struct Opened {
    bytes: Arc<Vec<u8>>,
    version: Version,
}

impl Object for Opened {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let truncated = || StorageError::new(StorageErrorKind::Truncated, "read", "an object");
        let start = usize::try_from(offset).map_err(|_| truncated())?;
        let end = start.checked_add(buffer.len()).ok_or_else(truncated)?;
        buffer.copy_from_slice(self.bytes.get(start..end).ok_or_else(truncated)?);
        Ok(())
    }

    fn is_current(&self) -> Result<bool> {
        Ok(true)
    }

    lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
}

fn refuse<T>(operation: &'static str, path: &ObjectPath) -> Result<T> {
    Err(implement::read_only(operation, path))
}

impl Frozen {
    fn find(&self, operation: &'static str, path: &ObjectPath) -> Result<&Arc<Vec<u8>>> {
        let missing = || StorageError::new(StorageErrorKind::NotFound, operation, path);
        self.0.get(path.as_str()).ok_or_else(missing)
    }
}

impl Storage for Frozen {
    fn name(&self) -> String {
        "golden".to_owned()
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let bytes = self.find("open", path)?.clone();
        let version = self.stat(path)?;
        Ok(Box::new(Opened { bytes, version }))
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn now(&self) -> Result<i64> {
        Ok(0)
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        let size = self.find("stat", path)?.len() as u64;
        // Each object has an identity of its own.
        let number = self.0.keys().position(|name| name == path.as_str()).unwrap_or(0) as u64;
        Ok(Version { size, identity: (1, number), ..Version::default() })
    }

    fn sibling(&self, _: &str) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Self(Files::new())))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        refuse("open", path)
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<ListedEntry>> {
        let mut entries: Vec<ListedEntry> = Vec::new();
        for name in self.0.keys() {
            let name = ObjectPath::parse(name).unwrap();
            if !name.is_within(path) || name == *path {
                continue;
            }
            let skip = if path.is_root() { 0 } else { path.as_str().len() + 1 };
            let rest = &name.as_str()[skip..];
            let (first, is_directory) =
                rest.split_once('/').map_or((rest, false), |(first, _)| (first, true));
            entries.push(ListedEntry { name: first.to_owned(), is_directory });
        }
        entries.sort_unstable();
        entries.dedup();
        Ok(entries)
    }

    fn sync(&self, path: &ObjectPath) -> Result<()> {
        refuse("sync", path)
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        refuse("lock", path)
    }

    fn sweep(&self, path: &ObjectPath) -> Result<u64> {
        refuse("sweep", path)
    }

    lacks!(open_end, request_end, try_lock, try_lock_of_dead);
    lacks!(workspace, publish_tree, publish_object, can_sync_all, sync_all);
    lacks!(create, put, grow, grow_lane, delete, delete_tree);
    forward!(implement as Storage: modified_ns, is_current);
}
