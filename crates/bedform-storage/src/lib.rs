//! Objects and extents: storing, reading and making bytes durable.
//!
//! | module | holds |
//! |---|---|
//! | [`storage`] | the [`Storage`] trait: the one interface between the engine and any place |
//! | [`object`] | the traits [`Object`], [`ObjectWriter`], [`GrowingObject`] |
//! | [`implement`] | building blocks of implementations of these traits: [`forward!`], [`lacks!`] |
//! | [`answer`] | [`Answer`], [`Bell`]: pending requests to servers, many for each thread |
//! | [`profile`] | [`Profile`]: the calibrated parameters of a storage system, kept per system |
//! | [`price`] | [`StorageDemand`]: the requests and bytes of a read, and their predicted seconds |
//! | [`calibrate`](mod@calibrate) | [`calibrate()`]: measures a profile in seconds |
//! | [`error`] | [`StorageError`]: the failed operation, its object, and the remedy |
//! | [`local`] | [`LocalStorage`]: plain files below a directory, and the protocol that writes them
//! |
//! | [`large_memory`] | [`LargeMemory`], [`ReadBlock`]: memory that a device can fill in long
//! pieces |
//! | `memory_limit` | [`memory_left()`]: distance of a process from its memory limit |
//! | [`file_system`] | [`FileSystem`]: the system calls of local storage, as a trait |
//! | [`os_file_system`] | [`OsFileSystem`]: the calls of the real system |
//! | [`memory`] | [`MemoryStorage`]: objects in memory |
//! | [`recording`] | [`Recording`]: a storage that logs its operations |
//! | [`failing`] | [`Failing`]: a storage whose operations fail on request |
//! | [`cancellation`] | [`cancelled_by()`], [`stopped_by()`], [`is_cancelled()`]: early end of a call |
//! | [`conformance`] | the suite that tests every storage for the contract, and the crash tests |
//! | [`throttle`] | [`Throttled`]: calls with a given bandwidth and latency, for experiments |
//! | [`simulated`] | [`SimulatedFileSystem`]: the calls of a system that loses power, in memory |

pub mod answer;
pub mod calibrate;
pub mod cancellation;
pub mod conformance;
pub mod error;
pub mod failing;
pub mod file_system;
pub mod implement;
pub mod large_memory;
pub mod local;
pub mod memory;
mod memory_limit;
mod new_directories;
pub mod object;
pub mod os_file_system;
pub mod price;
pub mod profile;
pub mod recording;
pub mod simulated;
pub mod storage;
pub mod throttle;

pub use ::bytes::Bytes;
pub use answer::{Answer, AnswerSender, Bell, REQUESTS_MAX};
pub use bedform_format::ObjectPath;
pub use bedform_format::log::Lane;
pub use calibrate::{CalibrateOptions, CalibrateProgress, calibrate};
pub use cancellation::{
    ASK_EVERY, CancelSource, GracePeriod, LockReport, cancelled_by, is_cancelled, may_begin,
    recheck_sources, report_lock_waits, stopped_by, within,
};
pub use error::{StorageError, StorageErrorKind, limit_behind};
pub use failing::{Failing, Fault};
pub use file_system::FileSystem;
pub use large_memory::{LargeMemory, ReadBlock};
pub use local::{
    LocalStorage, Mode, OwnedRoot, PAGE_CACHE_BYTES_PER_SECOND, Placement, Staging, is_own_name,
};
pub use memory::MemoryStorage;
pub use memory_limit::{memory_left, open_files_max, threads_that_fit};
pub use new_directories::NewDirectories;
pub use object::{
    Condition, GrowingObject, Object, ObjectWriter, PendingObject, SYNC_ALIGNMENT, Version,
};
pub use os_file_system::{OsFileSystem, open_without_waiting};
pub use price::{Dominant, ReadSeconds, ReadWork, StorageDemand};
pub use profile::{
    CodecTimes, ColdRequest, Coldness, Factor, FactorKind, GapCheck, Processor, ProcessorSeconds,
    ProcessorWork, Profile, ProfileError, ProfileOrigin, Refined, cores, profile_directory,
};
pub use recording::{RecordedOperation, Recording, StorageOperation};
pub use simulated::{CallFailure, CallKind, SimulatedFileSystem};
pub use storage::{
    Durability, ListedEntry, Lock, Storage, StorageExt, SyncAll, TreePublication, Workspace,
    WorkspaceName, WriteHint,
};
pub use throttle::{Clock, Throttle, ThrottleError, ThrottleSchedule, Throttled};
