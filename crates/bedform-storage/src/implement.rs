//! Building blocks of implementations of the storage traits; callers of a storage need none of
//! them.
//!
//! The traits have no default bodies, so each implementation states its behaviour. A wrapper writes
//! the methods that it changes and names all others in [`forward!`](crate::forward); a method that
//! it omits does not compile. An implementation with the usual behaviour forwards to a function of
//! this module; one without an ability uses [`lacks!`](crate::lacks). Both macros take the
//! signatures from the table in `methods`.

mod methods;

use std::io;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Condition, Durability, ObjectWriter, SYNC_ALIGNMENT, Storage, StorageError, StorageErrorKind,
    SyncAll, Version, WriteHint,
};

/// The result of a call of the storage traits.
pub type Result<T> = std::result::Result<T, StorageError>;

/// Implements [`Storage::put`] by the storage's own writer.
///
/// # Errors
/// As [`Storage::put`].
pub fn put(
    storage: &(impl Storage + ?Sized),
    path: &ObjectPath,
    bytes: &[u8],
    durability: Durability,
    condition: Condition<'_>,
) -> Result<Version> {
    let mut writer = storage.create(path, durability, WriteHint::of(bytes.len() as u64))?;
    writer.append(bytes)?;
    writer.publish(condition)
}

/// Implements [`Storage::modified_ns`] for a place whose versions contain the time.
///
/// # Errors
/// As [`Storage::modified_ns`].
pub fn modified_ns(storage: &(impl Storage + ?Sized), path: &ObjectPath) -> Result<i64> {
    Ok(storage.stat(path)?.modified_ns)
}

/// Implements [`Storage::is_current`] for a place without a call cheaper than [`Storage::stat`].
///
/// # Errors
/// As [`Storage::is_current`].
pub fn is_current(
    storage: &(impl Storage + ?Sized),
    path: &ObjectPath,
    version: &Version,
) -> Result<bool> {
    match storage.stat(path) {
        Ok(found) => Ok(found == *version),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Implements [`ObjectWriter::append_owned`] for a writer that copies the bytes.
///
/// # Errors
/// As [`ObjectWriter::append_owned`].
pub fn append_owned(
    writer: &mut (impl ObjectWriter + ?Sized),
    bytes: Vec<u8>,
) -> Result<Option<Vec<u8>>> {
    writer.append(&bytes)?;
    Ok(Some(bytes))
}

/// Implements [`Storage::sync_all`] for a place without it.
///
/// # Errors
/// Always, with `Unsupported`.
pub fn sync_all<'a>(
    storage: &'a (impl Storage + ?Sized),
    _directories: &[ObjectPath],
) -> Result<SyncAll<'a>> {
    Err(unsupported("sync", storage.name(), "there is no sync of all objects"))
}

/// Returns the error of an operation that a place does not support, with the reason.
pub fn unsupported(
    operation: &'static str,
    path: impl std::fmt::Display,
    reason: &'static str,
) -> StorageError {
    StorageError {
        kind: StorageErrorKind::Unsupported,
        operation,
        path: path.to_string(),
        source: Some(io::Error::new(io::ErrorKind::Unsupported, reason)),
    }
}

/// Returns the error of a change to a read-only place.
pub fn read_only(operation: &'static str, path: &ObjectPath) -> StorageError {
    StorageError::new(StorageErrorKind::ReadOnly, operation, path)
}

/// Returns the offset in the object of a lane's next bytes, and how many of `length` are contiguous
/// there.
///
/// # Errors
/// `NoSpace` if the lane has no room for `length` bytes.
pub fn next_lane_run(
    lane: Lane,
    position: u64,
    length: usize,
    path: &ObjectPath,
) -> Result<(u64, usize)> {
    let end = position.checked_add(length as u64);
    if end.is_none_or(|end| end > lane.bytes_max()) {
        return Err(StorageError::new(StorageErrorKind::NoSpace, "write", path));
    }
    let run = lane.run(position);
    Ok((run.offset, usize::try_from(run.length).unwrap_or(usize::MAX).min(length)))
}

/// Returns the zeros that pad an object of `position` bytes.
pub fn padding(position: u64) -> &'static [u8] {
    static ZEROS: [u8; 4096] = [0; 4096];
    let missing = position.next_multiple_of(SYNC_ALIGNMENT) - position;
    usize::try_from(missing).map_or(&[], |missing| &ZEROS[..missing])
}

/// Returns `suffix` if a name followed by it stays a single path segment.
///
/// # Errors
/// `Io`.
pub fn checked_suffix(suffix: &str) -> Result<&str> {
    match ObjectPath::parse(suffix) {
        Ok(path) if !path.is_root() && path.parent().is_root() => Ok(suffix),
        _ => {
            let reason = io::Error::other("what lies beside a place has its name and more");
            Err(StorageError::from_io("open", suffix, reason))
        }
    }
}

/// Implements the named methods of a storage trait by the same methods of a field.
///
/// The traits are [`Storage`](crate::Storage), [`Object`](crate::Object),
/// [`ObjectWriter`](crate::ObjectWriter), [`GrowingObject`](crate::GrowingObject) and
/// [`FileSystem`](crate::FileSystem). A method that an `impl` neither writes nor names is missing,
/// which is an error of compilation, also after a method was added to the trait.
///
/// - `forward!(self.inner as Storage: stat, list)` calls `self.inner.stat(path)`, and so on.
///   `**self` in place of `self.inner` is for smart pointers.
/// - `forward!(self.inner as Storage through call: stat)` calls
///   `self.call(operation, path, durability, || self.inner.stat(path))`: the
///   [`StorageOperation`](crate::StorageOperation), the object or directory, the level at which the
///   operation is durable, if it has one, and the operation itself. For a file system it is
///   `self.call(bytes, || ...)` with the number of bytes that the call transfers.
/// - `forward!(implement as Storage: put)` calls `implement::put(self, ...)` of
///   [this module](crate::implement).
///
/// ```
/// use bedform_storage::{GrowingObject, StorageError, forward};
///
/// /// An object that counts its syncs.
/// struct Counting {
///     inner: Box<dyn GrowingObject>,
///     syncs: u64,
/// }
///
/// impl GrowingObject for Counting {
///     fn sync(&mut self) -> Result<(), StorageError> {
///         self.syncs += 1;
///         self.inner.sync()
///     }
///
///     forward!(self.inner as GrowingObject: position, append, flush);
/// }
/// ```
///
/// An omitted method is an error:
///
/// ```compile_fail,E0046
/// use bedform_storage::{GrowingObject, forward};
///
/// struct Lossy(Box<dyn GrowingObject>);
///
/// impl GrowingObject for Lossy {
///     forward!(self.0 as GrowingObject: position, append, flush);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    (implement as $trait:ident: $($method:ident),+ $(,)?) => {
        $($crate::storage_method!([implement] $trait $method);)+
    };
    (**self as $trait:ident: $($method:ident),+ $(,)?) => {
        $($crate::storage_method!([**] $trait $method);)+
    };
    (self.$field:tt as $trait:ident: $($method:ident),+ $(,)?) => {
        $($crate::storage_method!([. $field] $trait $method);)+
    };
    (self.$field:tt as $trait:ident through $hook:ident: $($method:ident),+ $(,)?) => {
        $($crate::storage_method!([. $field through $hook] $trait $method);)+
    };
}

/// Implements the named methods of [`Object`](crate::Object) or [`Storage`](crate::Storage) for a
/// type that lacks the ability.
///
/// In a read-only [`Storage`](crate::Storage), `create`, `put`, `grow`, `grow_lane`, `delete` and
/// `delete_tree` fail with `ReadOnly`. `open_end` is `open`; `sync` and `sweep` do nothing;
/// `try_lock` is `lock`, and `try_lock_of_dead` is `try_lock`.
///
/// ```
/// use bedform_storage::{Object, StorageError, Version, lacks};
///
/// #[derive(Debug)]
/// struct Empty(Version);
///
/// impl Object for Empty {
///     fn version(&self) -> &Version {
///         &self.0
///     }
///
///     fn read(&self, _: u64, _: &mut [u8]) -> Result<(), StorageError> {
///         Ok(())
///     }
///
///     fn is_current(&self) -> Result<bool, StorageError> {
///         Ok(true)
///     }
///
///     lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
/// }
/// ```
#[macro_export]
macro_rules! lacks {
    ($($method:ident),+ $(,)?) => { $($crate::lacks!(@ $method);)+ };

    (@ read_past) => { $crate::storage_method!([gives Ok(None)] Object read_past); };
    (@ read_ahead) => { $crate::storage_method!([gives false] Object read_ahead); };
    (@ request) => { $crate::storage_method!([gives None] Object request); };
    (@ read_resident) => { $crate::storage_method!([gives Ok(0)] Object read_resident); };
    (@ buffered_range) => { $crate::storage_method!([gives 0..0] Object buffered_range); };
    (@ buffered_bytes) => { $crate::storage_method!([gives None] Object buffered_bytes); };
    (@ kept) => { $crate::storage_method!([gives None] Object kept); };

    (@ request_end) => { $crate::storage_method!([gives None] Storage request_end); };
    (@ can_sync_all) => { $crate::storage_method!([gives false] Storage can_sync_all); };
    (@ sync) => { $crate::storage_method!([gives Ok(())] Storage sync); };
    (@ sync_all) => { $crate::storage_method!([implement] Storage sync_all); };
    (@ sweep) => { $crate::storage_method!([gives Ok(0)] Storage sweep); };
    (@ open_end) => { $crate::storage_method!([calls open] Storage open_end); };
    (@ try_lock) => { $crate::storage_method!([calls lock Some] Storage try_lock); };
    (@ try_lock_of_dead) => { $crate::storage_method!([calls try_lock] Storage try_lock_of_dead); };

    (@ create) => { $crate::storage_method!([refuses read_only] Storage create); };
    (@ put) => { $crate::storage_method!([refuses read_only] Storage put); };
    (@ grow) => { $crate::storage_method!([refuses read_only] Storage grow); };
    (@ grow_lane) => { $crate::storage_method!([refuses read_only] Storage grow_lane); };
    (@ delete) => { $crate::storage_method!([refuses read_only] Storage delete); };
    (@ delete_tree) => { $crate::storage_method!([refuses read_only] Storage delete_tree); };
    (@ workspace) => {
        $crate::storage_method!([refuses unsupported
            "nothing can be renamed, so nothing is staged"] Storage workspace);
    };
    (@ publish_tree) => {
        $crate::storage_method!([refuses unsupported
            "nothing can be renamed, so no tree is published at once"] Storage publish_tree);
    };
    (@ publish_object) => {
        $crate::storage_method!([refuses unsupported
            "nothing can be renamed, so nothing that is staged is published"]
            Storage publish_object);
    };
}
