//! Building blocks of implementations of the storage traits; callers of a storage need none of
//! them.
//!
//! The traits have no default bodies, so each implementation states its behaviour. An
//! implementation with the usual behaviour calls a function of this module; one without an ability
//! uses [`lacks!`](crate::lacks).

use std::io;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Condition, Durability, ObjectWriter, SYNC_ALIGNMENT, Storage, StorageError, StorageErrorKind,
    Version, WriteHint,
};

type Result<T> = std::result::Result<T, StorageError>;

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

/// Implements the named methods of [`Object`](crate::Object),
/// [`GrowingObject`](crate::GrowingObject) or [`Storage`](crate::Storage) for a type that lacks the
/// ability.
///
/// For a read-only [`Storage`](crate::Storage), `create`, `put`, `grow`, `grow_lane`, `delete` and
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
///     lacks!(read_past, read_ahead, ask, read_resident, at_hand, known, kept);
/// }
/// ```
#[macro_export]
macro_rules! lacks {
    ($($method:ident),+ $(,)?) => { $($crate::lacks!(@ $method);)+ };
    (@ read_past) => {
        fn read_past<'b>(
            &self,
            _: u64,
            _: usize,
            _: &'b mut $crate::ReadBlock,
        ) -> ::std::result::Result<::std::option::Option<&'b [u8]>, $crate::StorageError> {
            ::std::result::Result::Ok(::std::option::Option::None)
        }
    };
    (@ read_ahead) => {
        fn read_ahead(&self, _: u64, _: u64) -> bool {
            false
        }
    };
    (@ ask) => {
        fn ask(
            &self,
            _: u64,
            _: u64,
            _: &::std::sync::Arc<$crate::Bell>,
        ) -> ::std::option::Option<$crate::Answer<$crate::Bytes>> {
            ::std::option::Option::None
        }
    };
    (@ read_resident) => {
        fn read_resident(
            &self,
            _: u64,
            _: &mut [u8],
        ) -> ::std::result::Result<usize, $crate::StorageError> {
            ::std::result::Result::Ok(0)
        }
    };
    (@ at_hand) => {
        fn at_hand(&self) -> ::std::ops::Range<u64> {
            0..0
        }
    };
    (@ known) => {
        fn known(&self, _: u64, _: usize) -> ::std::option::Option<&[u8]> {
            ::std::option::Option::None
        }
    };
    (@ kept) => {
        fn kept(&self) -> ::std::option::Option<::std::sync::Arc<dyn $crate::Object>> {
            ::std::option::Option::None
        }
    };
    (@ ask_end) => {
        fn ask_end(
            &self,
            _: &$crate::ObjectPath,
            _: u64,
            _: &::std::sync::Arc<$crate::Bell>,
        ) -> ::std::option::Option<$crate::PendingObject> {
            ::std::option::Option::None
        }
    };
    (@ workspace) => {
        fn workspace(
            &self,
            directory: &$crate::ObjectPath,
            _: $crate::WorkspaceName<'_>,
        ) -> ::std::result::Result<
            ::std::option::Option<::std::boxed::Box<dyn $crate::Workspace>>,
            $crate::StorageError,
        > {
            let reason = "nothing can be renamed, so nothing is staged";
            ::std::result::Result::Err($crate::implement::unsupported("create", directory, reason))
        }
    };
    (@ publish_tree) => {
        fn publish_tree(
            &self,
            _: &$crate::ObjectPath,
            target: &$crate::ObjectPath,
            _: $crate::TreePublication,
            _: $crate::Durability,
        ) -> ::std::result::Result<(), $crate::StorageError> {
            let reason = "nothing can be renamed, so no tree is published at once";
            ::std::result::Result::Err($crate::implement::unsupported("publish", target, reason))
        }
    };
    (@ publish_object) => {
        fn publish_object(
            &self,
            _: &$crate::ObjectPath,
            target: &$crate::ObjectPath,
            _: $crate::Durability,
        ) -> ::std::result::Result<(), $crate::StorageError> {
            let reason = "nothing can be renamed, so nothing that is staged is published";
            ::std::result::Result::Err($crate::implement::unsupported("publish", target, reason))
        }
    };
    (@ can_sync_all) => {
        fn can_sync_all(&self) -> bool {
            false
        }
    };
    (@ sync_all) => {
        fn sync_all(
            &self,
            _: &[$crate::ObjectPath],
        ) -> ::std::result::Result<$crate::SyncAll<'_>, $crate::StorageError> {
            let reason = "there is no sync of all objects";
            ::std::result::Result::Err($crate::implement::unsupported("sync", self.name(), reason))
        }
    };
    (@ open_end) => {
        fn open_end(
            &self,
            path: &$crate::ObjectPath,
            _: u64,
        ) -> ::std::result::Result<::std::boxed::Box<dyn $crate::Object>, $crate::StorageError> {
            self.open(path)
        }
    };
    (@ sync) => {
        fn sync(
            &self,
            _: &$crate::ObjectPath,
        ) -> ::std::result::Result<(), $crate::StorageError> {
            ::std::result::Result::Ok(())
        }
    };
    (@ sweep) => {
        fn sweep(
            &self,
            _: &$crate::ObjectPath,
        ) -> ::std::result::Result<u64, $crate::StorageError> {
            ::std::result::Result::Ok(0)
        }
    };
    (@ try_lock) => {
        fn try_lock(
            &self,
            path: &$crate::ObjectPath,
        ) -> ::std::result::Result<
            ::std::option::Option<::std::boxed::Box<dyn $crate::Lock>>,
            $crate::StorageError,
        > {
            self.lock(path).map(::std::option::Option::Some)
        }
    };
    (@ try_lock_of_dead) => {
        fn try_lock_of_dead(
            &self,
            path: &$crate::ObjectPath,
        ) -> ::std::result::Result<
            ::std::option::Option<::std::boxed::Box<dyn $crate::Lock>>,
            $crate::StorageError,
        > {
            self.try_lock(path)
        }
    };
    (@ create) => {
        fn create(
            &self,
            path: &$crate::ObjectPath,
            _: $crate::Durability,
            _: $crate::WriteHint,
        ) -> ::std::result::Result<
            ::std::boxed::Box<dyn $crate::ObjectWriter + '_>,
            $crate::StorageError,
        > {
            ::std::result::Result::Err($crate::implement::read_only("create", path))
        }
    };
    (@ put) => {
        fn put(
            &self,
            path: &$crate::ObjectPath,
            _: &[u8],
            _: $crate::Durability,
            _: $crate::Condition<'_>,
        ) -> ::std::result::Result<$crate::Version, $crate::StorageError> {
            ::std::result::Result::Err($crate::implement::read_only("write", path))
        }
    };
    (@ grow) => {
        fn grow(
            &self,
            path: &$crate::ObjectPath,
            _: $crate::Durability,
            _: ::std::option::Option<u64>,
        ) -> ::std::result::Result<
            ::std::boxed::Box<dyn $crate::GrowingObject>,
            $crate::StorageError,
        > {
            ::std::result::Result::Err($crate::implement::read_only("create", path))
        }
    };
    (@ grow_lane) => {
        fn grow_lane(
            &self,
            path: &$crate::ObjectPath,
            _: $crate::Lane,
            _: $crate::Durability,
        ) -> ::std::result::Result<
            ::std::boxed::Box<dyn $crate::GrowingObject>,
            $crate::StorageError,
        > {
            ::std::result::Result::Err($crate::implement::read_only("create", path))
        }
    };
    (@ delete) => {
        fn delete(
            &self,
            path: &$crate::ObjectPath,
            _: $crate::Durability,
            _: $crate::Condition<'_>,
        ) -> ::std::result::Result<(), $crate::StorageError> {
            ::std::result::Result::Err($crate::implement::read_only("delete", path))
        }
    };
    (@ delete_tree) => {
        fn delete_tree(
            &self,
            path: &$crate::ObjectPath,
            _: $crate::Durability,
        ) -> ::std::result::Result<(), $crate::StorageError> {
            ::std::result::Result::Err($crate::implement::read_only("delete", path))
        }
    };
}
