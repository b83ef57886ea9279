//! How a session writes.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::{Burst, Reach};
use crate::error::{Error, Result};
use crate::store::Store;

/// How a session writes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Bytes that wait in memory to be written; what is more makes
    /// [`Session::write`](super::Session::write) wait.
    pub buffer_bytes: usize,
    /// The burst tier that takes the writes first; nothing to write to the log itself.
    pub burst: Option<Burst>,
    /// How far data have to get before a commit returns.
    pub reach: Reach,
    /// Data are checked and written while the caller goes on; else in the calls themselves, which is for
    /// who simulates more members than there can be threads.
    pub in_background: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { buffer_bytes: 64 << 20, burst: None, reach: Reach::Shared, in_background: true }
    }
}

impl SessionOptions {
    /// Options as the doors hand them over, for a session on `store`: `buffer_bytes`, `durability`
    /// (`"disk"`, `"node"`), `burst` (a directory; without it what is configured, see
    /// [`crate::config`]; false for none), `burst_capacity_bytes`, each optional; null stands for the
    /// default.
    ///
    /// # Errors
    /// `InvalidArgument` names the key at fault; those of the configuration.
    pub fn from_json(given: &Map<String, Value>, store: &Store) -> Result<Self> {
        let mut options = Self::default();
        let mut capacity = None;
        let mut burst = None;
        for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let bad = || Error::invalid(format!("not a value of {key}: {value}"));
            match (key.as_str(), value.as_str()) {
                ("buffer_bytes", _) => {
                    let bytes = value.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
                    options.buffer_bytes = bytes.ok_or_else(bad)?;
                }
                ("burst_capacity_bytes", _) => capacity = Some(value.as_u64().ok_or_else(bad)?),
                ("durability", Some("disk")) => options.reach = Reach::Shared,
                ("durability", Some("node")) => options.reach = Reach::Node,
                ("burst", Some(path)) => burst = Some(Some(PathBuf::from(path))),
                ("burst", None) if *value == Value::Bool(false) => burst = Some(None),
                ("burst" | "durability", _) => return Err(bad()),
                _ => {
                    return Err(Error::invalid(format!("there is no option {key:?} of a session")));
                }
            }
        }
        options.burst = match burst {
            Some(path) => path.map(|path| Burst::in_directory(&path, capacity)).transpose()?,
            None => Burst::of_store(store)?,
        };
        if let (Some(burst), Some(bytes)) = (&mut options.burst, capacity) {
            burst.capacity_bytes = bytes;
        }
        if let (Some(burst), Reach::Node) = (&mut options.burst, options.reach) {
            burst.lengthen_parts();
        }
        Ok(options)
    }
}
