//! Objects and extents: where bytes live, how they are read, and how they become durable.
//!
//! | module | holds |
//! |---|---|
//! | [`storage`] | the [`Storage`] trait: the one seam between the engine and any place |
//! | [`error`] | [`StorageError`]: which operation failed on which object, and what to do |

pub mod error;
pub mod storage;

pub use error::{StorageError, StorageErrorKind};
pub use storage::{
    Condition, Durability, Entry, Lock, Object, ObjectWriter, Storage, Version,
};
