//! Trees and files that are built under a hidden name and published atomically.
//!
//! # Promises
//!
//! - Nothing is visible under the target's name before publication. A reader, also after a crash,
//!   finds the old tree or the new one, whole.
//! - A value that is dropped before publication removes its tree. The tree of a killed process is
//!   removed when another one is staged in the same directory.
//! - A published tree is durable if its objects are.
//!
//! # How
//!
//! A tree grows in a [`Workspace`] beside its target, and [`Storage::publish_tree`] gives it the
//! name. A tree that replaces another one is exchanged with it in one step. Some file systems
//! exchange no names (NFS, older Lustre). There the old tree is first moved to
//! `.<name>.bedform-replaced/old`, then the new one gets the name. A crash between the two steps
//! leaves nothing under the name, and the old tree complete in that directory. The next writer that
//! stages a tree for the same name moves it back (`put_back`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::{
    Durability, Mode, Storage, StorageError, StorageErrorKind, TreePublication, Workspace,
    WorkspaceName,
};

use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_of;
use crate::options::OpenOptions;

/// The name of a tree in its workspace.
const TREE: &str = "store";
/// The name of a file in its workspace.
const FILE: &str = "file";
/// The name of a replaced tree in the directory to which it is moved aside.
const OLD: &str = "old";

/// A tree that is built under a hidden name, and its target's name.
pub(crate) struct StagedTree {
    parent: Arc<dyn Storage>,
    workspace: Box<dyn Workspace>,
    target: ObjectPath,
    /// The name of the tree in the workspace.
    name: String,
}

impl StagedTree {
    /// Stages a tree for the name `target`, after removing the remains of killed processes from the
    /// target's directory.
    ///
    /// # Errors
    /// `Unsupported` in a place that cannot publish trees; those of storage.
    pub(crate) fn begin(parent: &Arc<dyn Storage>, target: &ObjectPath) -> Result<Self> {
        put_back(&**parent, target)?;
        let workspace = unique_workspace(&**parent, &target.parent())?;
        Ok(Self::of(parent, workspace, target))
    }

    fn of(parent: &Arc<dyn Storage>, workspace: Box<dyn Workspace>, target: &ObjectPath) -> Self {
        Self { parent: parent.clone(), workspace, target: target.clone(), name: TREE.to_owned() }
    }

    /// Resumes the hidden directory `name` beside the target, or creates it; it stays until it is
    /// [removed](StagedTree::remove). `None` if another process holds it.
    ///
    /// # Errors
    /// As [`StagedTree::begin`].
    pub(crate) fn resume(
        parent: &Arc<dyn Storage>,
        target: &ObjectPath,
        name: &str,
    ) -> Result<Option<Self>> {
        let taken = parent.workspace(&target.parent(), WorkspaceName::Resumable(name))?;
        let Some(workspace) = taken else { return Ok(None) };
        // Remains of an object that was being written when a process crashed.
        parent.sweep(workspace.path())?;
        Ok(Some(Self::of(parent, workspace, target)))
    }

    /// Lets the tree grow under another name in the hidden directory.
    pub(crate) fn grow_as(&mut self, name: String) {
        self.name = name;
    }

    /// The place that holds the target.
    pub(crate) fn parent(&self) -> &Arc<dyn Storage> {
        &self.parent
    }

    /// The hidden directory, in which other objects may lie beside the tree.
    pub(crate) fn directory(&self) -> &ObjectPath {
        self.workspace.path()
    }

    /// The name that the tree is to get.
    pub(crate) fn target(&self) -> &ObjectPath {
        &self.target
    }

    /// The path at which the tree grows.
    ///
    /// # Errors
    /// `InvalidArgument` for a path that is too long.
    pub(crate) fn tree(&self) -> Result<ObjectPath> {
        Ok(self.directory().join(&self.name)?)
    }

    /// The tree as a place.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn storage(&self) -> Result<Arc<dyn Storage>> {
        Ok(self.parent.within(&self.tree()?)?)
    }

    /// Gives the finished tree its name. The tree that it replaces stays in the hidden directory.
    ///
    /// # Errors
    /// `Exists` by [`TreePublication::Absent`]; those of storage. Only after `Poisoned` is it
    /// unknown which tree has the name.
    pub(crate) fn publish(&self, how: TreePublication, durability: Durability) -> Result<()> {
        let (staged, storage) = (self.tree()?, &*self.parent);
        match how {
            TreePublication::Absent => {
                Ok(storage.publish_tree(&staged, &self.target, how, durability)?)
            }
            TreePublication::Exchange => replace_tree(storage, &staged, &self.target, durability),
        }
    }

    /// Removes the hidden directory.
    ///
    /// # Errors
    /// Those of storage. The rest is invisible, and is removed by a sweep or when it is resumed.
    pub(crate) fn remove(self) -> Result<()> {
        Ok(self.workspace.remove()?)
    }
}

impl std::fmt::Debug for StagedTree {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("StagedTree").field(self.directory()).field(&self.target).finish()
    }
}

fn unique_workspace(storage: &dyn Storage, directory: &ObjectPath) -> Result<Box<dyn Workspace>> {
    // Files that cannot be removed are hidden, and cost only their space.
    let _ = storage.sweep(directory);
    let workspace = storage.workspace(directory, WorkspaceName::Unique)?;
    workspace.ok_or_else(|| Error::new(ErrorKind::Io, "storage gave no hidden name"))
}

/// Puts the finished tree `staged` in the place of the one at `target`, in one step where the place
/// can. The old tree is at `staged`, or removed, afterwards.
///
/// # Errors
/// As [`Storage::publish_tree`].
pub(crate) fn replace_tree(
    storage: &dyn Storage,
    staged: &ObjectPath,
    target: &ObjectPath,
    durability: Durability,
) -> Result<()> {
    match storage.publish_tree(staged, target, TreePublication::Exchange, durability) {
        Err(error) if error.kind == StorageErrorKind::Unsupported => {
            replace_in_two_steps(storage, staged, target, durability)
        }
        outcome => Ok(outcome?),
    }
}

fn replace_in_two_steps(
    storage: &dyn Storage,
    staged: &ObjectPath,
    target: &ObjectPath,
    durability: Durability,
) -> Result<()> {
    put_back(storage, target)?;
    let (directory, name, absent) = (target.parent(), aside(target), TreePublication::Absent);
    let Some(aside) = storage.workspace(&directory, WorkspaceName::Resumable(&name))? else {
        let text = format!("{target:?} is being replaced by another writer; try again later");
        return Err(Error::new(ErrorKind::Conflict, text));
    };
    let old = aside.path().join(OLD)?;
    storage.publish_tree(target, &old, absent, durability)?;
    if let Err(error) = storage.publish_tree(staged, target, absent, durability) {
        storage.publish_tree(&old, target, absent, durability)?;
        let _ = aside.remove();
        return Err(error.into());
    }
    // If it stays, it is removed when a tree is next staged for the same name.
    let _ = aside.remove();
    Ok(())
}

/// The name of the directory that takes the old tree of a replacement in two steps.
fn aside(target: &ObjectPath) -> String {
    format!(".{}.bedform-replaced", target.name())
}

/// Completes a replacement in two steps that a crash has interrupted: a tree that was moved aside
/// gets its name back unless the new one has it.
///
/// # Errors
/// Those of storage.
pub(crate) fn put_back(storage: &dyn Storage, target: &ObjectPath) -> Result<()> {
    let (directory, name) = (target.parent(), aside(target));
    // A longer name could not have been moved aside.
    let Ok(path) = directory.join(&name) else { return Ok(()) };
    match storage.list(&path) {
        Ok(entries) if entries.is_empty() => return Ok(()),
        Err(error) if error.kind == StorageErrorKind::PermissionDenied => return Ok(()),
        listed => listed.map(drop)?,
    }
    let taken = storage.workspace(&directory, WorkspaceName::Resumable(&name))?;
    let Some(aside) = taken else { return Ok(()) };
    let old = aside.path().join(OLD)?;
    match storage.publish_tree(&old, target, TreePublication::Absent, Durability::Disk) {
        Err(error)
            if ![StorageErrorKind::Exists, StorageErrorKind::NotFound].contains(&error.kind) =>
        {
            Err(error.into())
        }
        _ => Ok(aside.remove()?),
    }
}

/// True if any entry in a place has the name `name`, including a dangling link.
///
/// # Errors
/// Those of storage.
pub(crate) fn has_name(storage: &dyn Storage, name: &ObjectPath) -> Result<bool> {
    match storage.stat(name) {
        Ok(_) => return Ok(true),
        Err(error) if error.kind == StorageErrorKind::NotAnObject => return Ok(true),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    match storage.list(&name.parent()) {
        Ok(entries) => Ok(entries.iter().any(|entry| entry.name == name.name())),
        // If there is one, publication fails.
        Err(error) if error.kind == StorageErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Splits a target on this machine into its directory, with links resolved, and its name there.
///
/// # Errors
/// `InvalidArgument` for a name that no object can have, and if a part of the path above is a file;
/// `NotFound` if the directory is missing.
pub(crate) fn split_target(path: &Path) -> Result<(PathBuf, ObjectPath)> {
    let shown = || quoted(&path.to_string_lossy());
    let unusable = || Error::invalid(format!("target {} is no name", shown()));
    let not_utf8 =
        || Error::invalid(format!("target {}: its name is not UTF-8: choose another", shown()));
    let absolute = std::path::absolute(path).map_err(|_| unusable())?;
    let (parent, last) = absolute.parent().zip(absolute.file_name()).ok_or_else(unusable)?;
    let last = ObjectPath::parse(last.to_str().ok_or_else(not_utf8)?)?;
    let above = parent.canonicalize().map_err(|_| no_directory(parent))?;
    if above.is_dir() { Ok((above, last)) } else { Err(no_directory(parent)) }
}

/// Makes the error of a target in `parent`, which is no directory.
pub(crate) fn no_directory(parent: &Path) -> Error {
    let file = parent.ancestors().find(|part| part.exists()).filter(|part| !part.is_dir());
    if let Some(file) = file {
        let file = quoted(&file.to_string_lossy());
        return Error::invalid(format!("{file} is a file, not a directory: choose another target"));
    }
    let parent = quoted(&parent.to_string_lossy());
    let text = format!("directory {parent} does not exist: create it first");
    Error::new(ErrorKind::NotFound, text)
}

/// Quotes a user's value for a message.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains('\'') { format!("\"{text}\"") } else { format!("'{text}'") }
}

/// A file that a library writes under a hidden name, and that appears under its own name when it is
/// complete.
///
/// ```
/// use bedform::publication::StagedFile;
///
/// # let directory = std::env::temp_dir().join(format!("bedform-file-{}", std::process::id()));
/// # std::fs::create_dir(&directory).unwrap();
/// let target = directory.join("out.nc");
/// let staged = StagedFile::create(&target)?;
/// std::fs::write(staged.path(), b"CDF").unwrap();
/// assert!(!target.exists());
/// staged.publish()?;
/// assert_eq!(std::fs::read(&target).unwrap(), b"CDF");
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), bedform::Error>(())
/// ```
pub struct StagedFile {
    parent: Arc<dyn Storage>,
    workspace: Box<dyn Workspace>,
    target: ObjectPath,
    path: PathBuf,
    shown: String,
}

impl StagedFile {
    /// Stages a file for a name that is free. The file itself is created by its writer.
    ///
    /// # Errors
    /// `Exists`; `NotFound` if the directory is missing; `InvalidArgument` if a part of the path
    /// above is a file; those of storage.
    pub fn create(target: &Path) -> Result<Self> {
        let shown = target.to_string_lossy().into_owned();
        let (above, target) = split_target(target)?;
        let parent = storage_of(&above, Mode::ReadWrite, &OpenOptions::default())?;
        if has_name(&*parent, &target)? {
            return Err(exists(&shown));
        }
        let workspace = unique_workspace(&*parent, &ObjectPath::root())?;
        let path = above.join(workspace.path().as_str()).join(FILE);
        Ok(Self { parent, workspace, target, path, shown })
    }

    /// The hidden path at which to write the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the finished file durable and gives it its name.
    ///
    /// # Errors
    /// `Exists` if the name was taken meanwhile; those of storage.
    pub fn publish(self) -> Result<()> {
        let staged = self.workspace.path().join(FILE)?;
        let published = self.parent.publish_object(&staged, &self.target, Durability::Disk);
        published.map_err(|error| self.named(error))?;
        // It is hidden; if it cannot be removed now, a later sweep removes it.
        let _ = self.workspace.remove();
        Ok(())
    }

    fn named(&self, error: StorageError) -> Error {
        match error.kind {
            StorageErrorKind::Exists => {
                let text = format!("{} exists by now: choose another name", quoted(&self.shown));
                Error::new(ErrorKind::Exists, text)
            }
            _ => error.into(),
        }
    }
}

impl std::fmt::Debug for StagedFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("StagedFile").field(&self.path).finish()
    }
}

/// A directory that a library fills under a hidden name, and that appears under its own name when it
/// is complete.
///
/// ```
/// use bedform::publication::HiddenDirectory;
///
/// # let directory = std::env::temp_dir().join(format!("bedform-directory-{}", std::process::id()));
/// # std::fs::create_dir(&directory).unwrap();
/// let target = directory.join("refs.parquet");
/// let staged = HiddenDirectory::create(&target, false)?;
/// std::fs::create_dir(staged.path()).unwrap();
/// std::fs::write(staged.path().join(".zmetadata"), b"{}").unwrap();
/// assert!(!target.exists());
/// staged.publish()?;
/// assert_eq!(std::fs::read(target.join(".zmetadata")).unwrap(), b"{}");
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), bedform::Error>(())
/// ```
#[derive(Debug)]
pub struct HiddenDirectory {
    staged: StagedTree,
    path: PathBuf,
    /// How the name is given: it is free, or a directory that is replaced has it.
    how: TreePublication,
    shown: String,
}

impl HiddenDirectory {
    /// Stages a directory. Its name must be free, or, with `replaces`, that of a directory. The
    /// directory itself is created by its writer.
    ///
    /// # Errors
    /// As [`StagedFile::create`].
    pub fn create(target: &Path, replaces: bool) -> Result<Self> {
        let shown = target.to_string_lossy().into_owned();
        let (above, target) = split_target(target)?;
        let parent = storage_of(&above, Mode::ReadWrite, &OpenOptions::default())?;
        let how = match has_name(&*parent, &target)? {
            false => TreePublication::Absent,
            true if replaces => TreePublication::Exchange,
            true => return Err(exists(&shown)),
        };
        let staged = StagedTree::begin(&parent, &target)?;
        let path = above.join(staged.tree()?.as_str());
        Ok(Self { staged, path, how, shown })
    }

    /// The hidden path at which to make the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the finished directory durable, with all files in it, and gives it its name.
    ///
    /// # Errors
    /// `Exists` if the name was taken meanwhile; those of storage.
    pub fn publish(self) -> Result<()> {
        sync_below(&self.path)
            .map_err(|error| Error::new(ErrorKind::Io, format!("{}: {error}", self.shown)))?;
        self.staged.publish(self.how, Durability::Disk).map_err(|error| {
            let is_taken = error.kind() == ErrorKind::Exists;
            if is_taken { exists(&self.shown) } else { error }
        })?;
        // It is hidden; if it cannot be removed now, a later sweep removes it.
        let _ = self.staged.remove();
        Ok(())
    }
}

/// Makes all files and directories below `path` durable.
#[allow(clippy::disallowed_methods, reason = "a library wrote them below a hidden name of ours")]
fn sync_below(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => sync_below(&entry.path())?,
            kind if kind.is_file() => std::fs::File::open(entry.path())?.sync_all()?,
            _ => {}
        }
    }
    std::fs::File::open(path)?.sync_all()
}

/// Makes the error for a target that exists.
pub(crate) fn exists(shown: &str) -> Error {
    let text = format!("{} exists: choose another name or remove it", quoted(shown));
    Error::new(ErrorKind::Exists, text)
}
