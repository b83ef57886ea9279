//! Options of a session, and the check that all members give the same.

use bedform_storage::{Durability, Storage};
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::{AtEnd, Burst, CommitReach, SettleLimits};
use crate::error::{Error, Result};
use crate::log::settle::SettleOptions;
use crate::size;

/// The options of a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Bytes that may wait in memory to be written; beyond them
    /// [`Session::write`](super::Session::write) waits.
    pub buffer_bytes: usize,
    /// The burst tier that takes the writes first; `None` to write to the log itself.
    pub burst: Option<Burst>,
    /// How far data have to get before a commit returns. The same on all members.
    pub reach: CommitReach,
    /// The treatment of the commits when the session ends. The same on all members.
    pub at_end: AtEnd,
    /// Limits of unsettled data at which settling begins while the session goes on; only the rest
    /// is settled at the end. `None` settles at the end only. The same on all members. With
    /// [`CommitReach::Node`] the settled segments are removed at the end.
    pub background: Option<SettleLimits>,
    /// Bytes of memory for settling at the end, of all members of a node together: see
    /// [`SettleOptions::memory_bytes`].
    pub settle_memory_bytes: u64,
    /// True to check and write data while the caller goes on. False to do so in the calls
    /// themselves, to simulate more members than there can be threads.
    pub in_background: bool,
}

/// The names of all options, and the allowed values of those that are a choice.
const OPTIONS: &str = "buffer_bytes, durability, settle, settle_bytes, settle_commits, settle_memory_bytes, burst, \
     burst_capacity_bytes";
const CHOICES: [(&str, &str); 3] = [
    ("durability", "\"disk\" or \"node\""),
    ("settle", "\"end\", \"later\" or \"background\""),
    ("burst", "a directory, or false for none"),
];
/// The options that all members have to give alike, in the order of [`SessionOptions::in_common`].
const ALIKE: [(&str, &str); 3] = [
    CHOICES[0],
    CHOICES[1],
    ("durability in which the store was opened", "\"disk\" or \"process\""),
];

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            buffer_bytes: 64 << 20,
            burst: None,
            reach: CommitReach::Shared,
            at_end: AtEnd::Settle,
            background: None,
            settle_memory_bytes: SettleOptions::default().memory_bytes,
            in_background: true,
        }
    }
}

impl SessionOptions {
    /// Parses options as language bindings pass them, for a session on the store in `storage`. All
    /// keys are optional, and null stands for the default: `buffer_bytes`; `durability` (`"disk"`,
    /// `"node"`); `settle` (`"end"`, `"later"`, `"background"`); `settle_bytes` and
    /// `settle_commits` (limits of `"background"`: see [`SettleLimits`]); `settle_memory_bytes` (of
    /// the members of a node together); `burst` (a directory; the
    /// configured one by default, see [`crate::config`]; false for none); `burst_capacity_bytes`.
    ///
    /// # Errors
    /// `InvalidArgument` names the key at fault; those of the configuration.
    pub fn from_json(given: &Map<String, Value>, storage: &dyn Storage) -> Result<Self> {
        let mut options = Self::default();
        let mut capacity = None;
        let mut burst = None;
        let (mut bytes_max, mut commits_max, mut is_background) = (None, None, false);
        for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let bad = || {
                let choice = CHOICES.iter().find(|(choice, _)| choice == key);
                let choice = choice.map_or(String::new(), |(_, values)| format!("; give {values}"));
                Error::invalid(format!("not a value of {key}: {value}{choice}"))
            };
            match (key.as_str(), value.as_str()) {
                ("buffer_bytes", _) => {
                    let bytes = usize::try_from(size::from_json(key, value)?);
                    options.buffer_bytes = bytes.map_err(|_| bad())?;
                }
                ("burst_capacity_bytes", _) => capacity = Some(size::from_json(key, value)?),
                ("durability", Some("disk")) => options.reach = CommitReach::Shared,
                ("durability", Some("node")) => options.reach = CommitReach::Node,
                ("settle", Some("end")) => options.at_end = AtEnd::Settle,
                ("settle", Some("later")) => options.at_end = AtEnd::Leave,
                ("settle", Some("background")) => is_background = true,
                ("settle_bytes", _) => bytes_max = Some(size::from_json(key, value)?.max(1)),
                ("settle_memory_bytes", _) => {
                    options.settle_memory_bytes = size::from_json(key, value)?;
                }
                ("settle_commits", _) => {
                    commits_max = Some(value.as_u64().filter(|count| *count > 0).ok_or_else(bad)?);
                }
                ("burst", Some(path)) => burst = Some(Some(PathBuf::from(path))),
                ("burst", None) if *value == Value::Bool(false) => burst = Some(None),
                ("burst" | "durability" | "settle", _) => return Err(bad()),
                _ => {
                    return Err(Error::invalid(format!(
                        "there is no option {key:?} of a session; there are {OPTIONS}"
                    )));
                }
            }
        }
        if is_background {
            let SettleLimits { bytes, commits } = SettleLimits::of_store(storage)?;
            options.background = Some(SettleLimits {
                bytes: bytes_max.unwrap_or(bytes),
                commits: commits_max.unwrap_or(commits),
            });
        }
        options.burst = match burst {
            Some(Some(path)) => Some(
                Burst::in_directory(&path, capacity).map_err(|error| Burst::named(&path, error))?,
            ),
            Some(None) => None,
            None => Burst::of_store(storage)?,
        };
        if let (Some(burst), Some(bytes)) = (&mut options.burst, capacity) {
            burst.capacity_bytes = bytes;
        }
        if let (Some(burst), CommitReach::Node) = (&mut options.burst, options.reach) {
            burst.lengthen_parts();
        }
        Ok(options)
    }

    /// Returns the values that all members have to give alike, of the session and of the `store` as
    /// they opened it, for [`check_alike`].
    pub(super) fn in_common(&self, store: Durability) -> [u8; ALIKE.len()] {
        [
            u8::from(self.reach == CommitReach::Node),
            match self.background {
                Some(_) => 2,
                None => u8::from(self.at_end == AtEnd::Leave),
            },
            u8::from(store == Durability::Process),
        ]
    }
}

/// Fails unless all members gave the same values [in common](SessionOptions::in_common).
///
/// # Errors
/// `InvalidArgument` names the option and two ranks.
pub(super) fn check_alike<'a>(members: impl Iterator<Item = &'a [u8]>) -> Result<()> {
    let mut first = None;
    for (rank, given) in members.enumerate() {
        let first = *first.get_or_insert(given);
        let differs = first.iter().zip(given).position(|(first, given)| first != given);
        if let Some(option) = differs {
            let (name, values) = ALIKE[option];
            return Err(Error::invalid(format!(
                "the processes of a session must give the same {name} ({values}); those with ranks \
                 0 and {rank} do not"
            )));
        }
    }
    Ok(())
}
