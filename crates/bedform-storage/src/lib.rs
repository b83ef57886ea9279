//! Objects and extents: where bytes live, how they are read, and how they become durable.
//!
//! | module | holds |
//! |---|---|
//! | [`storage`] | the [`Storage`] trait: the one seam between the engine and any place |
//! | [`profile`] | [`Profile`]: the calibrated parameters of a storage system, kept per system |
//! | [`calibrate`](mod@calibrate) | [`calibrate()`]: measures a profile in seconds |
//! | [`error`] | [`StorageError`]: which operation failed on which object, and what to do |
//! | [`local`] | [`LocalStorage`]: plain files below a directory, and the protocol that writes them |
//! | [`file_system`] | [`FileSystem`]: the system calls below it, as a seam |
//! | [`os_file_system`] | [`OsFileSystem`]: the calls of the real system |

pub mod calibrate;
pub mod error;
pub mod file_system;
pub mod local;
pub mod os_file_system;
pub mod profile;
pub mod storage;

pub use calibrate::{CalibrateOptions, CalibrateProgress, calibrate};
pub use error::{StorageError, StorageErrorKind};
pub use file_system::FileSystem;
pub use local::{LocalStorage, Mode, Staging};
pub use os_file_system::OsFileSystem;
pub use profile::{Coldness, GapCheck, Profile, ProfileError, profile_directory};
pub use storage::{Condition, Durability, Entry, Lock, Object, ObjectWriter, Storage, Version};
