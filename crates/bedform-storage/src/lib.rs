//! Objects and extents: where bytes live, how they are read, and how they become durable.
//!
//! | module | holds |
//! |---|---|
//! | [`storage`] | the [`Storage`] trait: the one seam between the engine and any place |
//! | [`object`] | the traits [`Object`], [`ObjectWriter`], [`GrowingObject`] |
//! | [`implement`] | what implementations of these traits have in common |
//! | [`answer`] | [`Answer`], [`Bell`]: what servers are asked for, and is waited for later |
//! | [`profile`] | [`Profile`]: the calibrated parameters of a storage system, kept per system |
//! | [`price`] | [`Demand`]: what a read asks for, and the seconds that this takes by a profile |
//! | [`calibrate`](mod@calibrate) | [`calibrate()`]: measures a profile in seconds |
//! | [`error`] | [`StorageError`]: which operation failed on which object, and what to do |
//! | [`local`] | [`LocalStorage`]: plain files below a directory, and the protocol that writes them |
//! | [`large_memory`] | [`LargeMemory`], [`ReadBlock`]: memory that a device can fill in long pieces |
//! | `memory_limit` | [`memory_left()`]: how near a process is to the limit on its memory |
//! | [`file_system`] | [`FileSystem`]: the system calls below it, as a seam |
//! | [`os_file_system`] | [`OsFileSystem`]: the calls of the real system |
//! | [`memory`] | [`MemoryStorage`]: objects in memory |
//! | [`recording`] | [`Recording`]: a log of what is done to a storage |
//! | [`failing`] | [`Failing`]: a storage whose operations fail when told to |
//! | [`cancellation`] | [`cancelled_by()`], [`stopped_by()`], [`goes_on()`]: what ends a call before its time |
//! | [`conformance`] | the suite that holds all of them to the contract, and the crash tests |
//! | [`throttle`] | [`Throttled`]: calls that take as long as told, for experiments |
//! | [`simulated`] | [`SimulatedFileSystem`]: the calls of a system that loses its power, in memory |

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
pub mod object;
pub mod os_file_system;
pub mod price;
pub mod profile;
pub mod recording;
mod shared;
pub mod simulated;
pub mod storage;
pub mod throttle;

pub use ::bytes::Bytes;
pub use answer::{Answer, Bell, Promise, REQUESTS_MAX};
pub use bedform_format::ObjectPath;
pub use bedform_format::log::Lane;
pub use calibrate::{CalibrateOptions, CalibrateProgress, calibrate};
pub use cancellation::{
    ASK_EVERY, CancelSource, Grace, TellOfLock, ask_soon, cancelled_by, goes_on, may_begin,
    stopped_by, tell_of_locks, within,
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
pub use object::{
    Condition, GrowingObject, Object, ObjectWriter, PendingObject, SYNC_ALIGNMENT, Version,
};
pub use os_file_system::{OsFileSystem, open_without_waiting};
pub use price::{Demand, Dominant, ReadSeconds, ReadWork};
pub use profile::{
    CodecTimes, ColdRequest, Coldness, Factor, GapCheck, Processor, ProcessorSeconds,
    ProcessorWork, Profile, ProfileError, ReadKind, Refined, cores, profile_directory,
};
pub use recording::{Event, Operation, Recording};
pub use simulated::{CallKind, Failure, SimulatedFileSystem};
pub use storage::{
    Durability, Entry, Hint, Lock, Storage, StorageExt, SyncAll, TreePublication, Workspace,
    WorkspaceName,
};
pub use throttle::{Clock, Pace, Throttle, ThrottleError, Throttled};
