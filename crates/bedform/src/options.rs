//! Options of opening a store or a file: plain values, and their form in JSON, which the doors pass
//! on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bedform_format::Limits;
use bedform_remote::RemoteOptions;
use bedform_storage::{Durability, Placement, Profile};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::sidecar::Sidecar;
use crate::size;

/// A callback on the caller's thread with the work done and the total: bytes, unless the call says
/// otherwise.
pub type ProgressCallback<'a> = &'a dyn Fn(u64, u64);

/// When a store checks for changes by other writers. A handle that does not check keeps the shape
/// that it saw: it reads the fill value for rows that others have removed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Freshness {
    /// Before every read.
    #[default]
    Read,
    /// When a store or array is opened.
    Open,
    /// Never after the first look.
    Never,
}

/// The limit of readahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefetch {
    /// Half of the handle's cache, ahead of reads of the process's main thread.
    #[default]
    Auto,
    /// No readahead.
    Off,
    /// So many bytes, ahead of reads of any thread.
    Bytes(u64),
}

impl Prefetch {
    /// Parses `auto`, `off` (or `false`, `0`), or a size.
    ///
    /// ```
    /// use bedform::Prefetch;
    ///
    /// assert_eq!(Prefetch::parse("64 MiB")?, Prefetch::Bytes(64 << 20));
    /// assert_eq!(Prefetch::parse("off")?, Prefetch::Off);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        match text.trim() {
            "auto" | "true" => Ok(Self::Auto),
            "off" | "false" => Ok(Self::Off),
            other => match size::from_text(other) {
                Ok(0) => Ok(Self::Off),
                Ok(bytes) => Ok(Self::Bytes(bytes)),
                Err(_) => Err(Error::invalid(format!(
                    "not a value of prefetch: {text:?}; it is \"auto\", \"off\" or a size"
                ))),
            },
        }
    }

    fn from_json(value: &Value) -> Result<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            other => Self::parse(&other.to_string()),
        }
    }
}

/// The files that a set of references may name outside its own directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ExternalFiles {
    /// None.
    #[default]
    Refused,
    /// Files below these directories and URLs.
    Below(Vec<String>),
    /// Any.
    Allowed,
}

impl ExternalFiles {
    /// Parses `true`, `false`, or a list of paths and URLs.
    fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(true) => Some(Self::Allowed),
            Value::Bool(false) => Some(Self::Refused),
            Value::Array(roots) => {
                let roots = roots.iter().map(|root| root.as_str().map(str::to_owned));
                roots.collect::<Option<Vec<_>>>().map(Self::Below)
            }
            _ => None,
        }
    }
}

/// Options of opening a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Whether the store may be changed.
    pub writable: bool,
    /// Limits on the sizes that data may claim.
    pub limits: Limits,
    /// Bytes of decoded chunks, shard indexes and parts of logs that this handle's reads may keep
    /// in the cache of the process, which all handles share; 0 bypasses the cache.
    pub cache_bytes: u64,
    /// The limit of readahead, where reads follow a pattern.
    pub prefetch: Prefetch,
    /// Whether replicas are read where that is faster.
    pub replicas: bool,
    /// Whether reads are recorded where the source is watched.
    pub records: bool,
    /// When to check for changes by other writers.
    pub freshness: Freshness,
    /// The failures that an acknowledged write survives.
    pub durability: Durability,
    /// Threads that encode and decode; `None` takes one per core, 1 does all on the caller's.
    pub threads: Option<usize>,
    /// The largest gap between extents that is read over, in bytes; `None` takes the default.
    pub gap_bytes: Option<u64>,
    /// The storage's parameters, for prices, merging and threads; `None` assumes those of a local
    /// disk or of an object store.
    pub profile: Option<Profile>,
    /// The file of the stored profile, which reads refine.
    pub refines: Option<PathBuf>,
    /// The sidecar with patterns of the reads, and with traces if they are recorded.
    pub sidecar: Option<Sidecar>,
    /// Whether large reads may bypass the page cache where that is faster
    /// ([`LocalStorage::through_page_cache`](bedform_storage::LocalStorage::through_page_cache)).
    /// Used by functions that open local storage.
    pub direct_reads: bool,
    /// The storage target of each new object, instead of those of `BEDFORM_LUSTRE_TARGETS`. Used by
    /// functions that open a directory.
    pub placement: Option<Arc<dyn Placement>>,
    /// The most commits that a root of a log names separately before a table replaces them. Few
    /// mean a table every few commits; many make each commit write, and each reader read, more.
    pub commits_named: usize,
    /// Options of the connection to an object store.
    pub remote: RemoteOptions,
    /// The files outside its directory that a set of references may name.
    pub external: ExternalFiles,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            writable: false,
            limits: Limits::default(),
            cache_bytes: 256 << 20,
            prefetch: Prefetch::Auto,
            replicas: true,
            records: true,
            freshness: Freshness::Read,
            durability: Durability::Disk,
            threads: None,
            gap_bytes: None,
            profile: None,
            refines: None,
            sidecar: None,
            direct_reads: true,
            placement: None,
            commits_named: 16,
            remote: RemoteOptions::default(),
            external: ExternalFiles::default(),
        }
    }
}

impl OpenOptions {
    /// Parses options, each optional; null stands for the default: `writable`, `cache_bytes`,
    /// `prefetch` (`"auto"`, `false` or a size), `replicas`, `records`, `freshness` (`"read"`,
    /// `"open"`, `"never"`), `durability` (`"disk"`, `"process"`), `threads`, `gap_bytes`,
    /// `profile` (a document of `calibrate`), `direct_reads`, `allow_external` (`true`, or a list
    /// of directories and URLs). For object stores there are `anonymous`, `endpoint`, `region`,
    /// `single_writer`, `deadline_seconds`, `stall_seconds` and `bytes_per_second_min`.
    ///
    /// # Errors
    /// `InvalidArgument` names the key at fault.
    ///
    /// ```
    /// let given = serde_json::json!({"cache_bytes": 0, "durability": "process"});
    /// let options = bedform::OpenOptions::from_json(given.as_object().unwrap())?;
    /// assert_eq!(options.cache_bytes, 0);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn from_json(given: &Map<String, Value>) -> Result<Self> {
        let mut options = Self::default();
        for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let bad = || Error::invalid(format!("not a value of {key}: {value}"));
            match (key.as_str(), value.as_str()) {
                ("writable", _) => options.writable = value.as_bool().ok_or_else(bad)?,
                ("direct_reads", _) => options.direct_reads = value.as_bool().ok_or_else(bad)?,
                ("anonymous", _) => {
                    options.remote.anonymous = value.as_bool().ok_or_else(bad)?;
                }
                ("single_writer", _) => {
                    options.remote.single_writer = value.as_bool().ok_or_else(bad)?;
                }
                ("deadline_seconds", _) => options.remote.deadline = seconds(key, value)?,
                ("stall_seconds", _) => options.remote.stall = seconds(key, value)?,
                ("bytes_per_second_min", _) => {
                    options.remote.bytes_per_second_min = size::from_json(key, value)?;
                }
                ("endpoint", Some(text)) => options.remote.endpoint = Some(text.to_owned()),
                ("region", Some(text)) => options.remote.region = Some(text.to_owned()),
                ("allow_external", _) => {
                    options.external = ExternalFiles::from_json(value).ok_or_else(bad)?;
                }
                ("records", _) => options.records = value.as_bool().ok_or_else(bad)?,
                ("replicas", _) => options.replicas = value.as_bool().ok_or_else(bad)?,
                ("prefetch", _) => options.prefetch = Prefetch::from_json(value)?,
                ("cache_bytes", _) => options.cache_bytes = size::from_json(key, value)?,
                ("gap_bytes", _) => options.gap_bytes = Some(size::from_json(key, value)?),
                ("threads", _) => {
                    let threads = value.as_u64().and_then(|n| usize::try_from(n).ok());
                    options.threads = Some(threads.ok_or_else(bad)?);
                }
                ("profile", _) => {
                    let profile = Profile::from_json("the profile", &value.to_string());
                    let profile = profile.map_err(|error| Error::invalid(error.to_string()))?;
                    options.profile = Some(profile);
                }
                ("freshness", Some("read")) => options.freshness = Freshness::Read,
                ("freshness", Some("open")) => options.freshness = Freshness::Open,
                ("freshness", Some("never")) => options.freshness = Freshness::Never,
                ("durability", Some("disk")) => options.durability = Durability::Disk,
                ("durability", Some("process")) => options.durability = Durability::Process,
                ("freshness" | "durability" | "endpoint" | "region", _) => return Err(bad()),
                _ => return Err(Error::invalid(format!("there is no option {key:?}"))),
            }
        }
        Ok(options)
    }
}

/// The longest time of an option, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// Parses the time of the option `key`: a number of seconds from 0.001 to a day.
fn seconds(key: &str, value: &Value) -> Result<Duration> {
    let seconds = value.as_f64().filter(|seconds| (0.001..=SECONDS_MAX).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        let range = format!("from 0.001 to {SECONDS_MAX}");
        Error::invalid(format!("{key} must be a number of seconds {range}, not {value}"))
    })?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_of_servers_are_seconds_and_others_are_named() {
        let of = |key: &str, value: Value| {
            OpenOptions::from_json(&Map::from_iter([(key.into(), value)]))
        };
        let options = of("deadline_seconds", json!(90)).unwrap();
        assert_eq!(options.remote.deadline, Duration::from_secs(90));
        assert_eq!(
            of("stall_seconds", json!(0.25)).unwrap().remote.stall,
            Duration::from_millis(250)
        );
        let options = of("bytes_per_second_min", json!("64 KiB")).unwrap();
        assert_eq!(options.remote.bytes_per_second_min, 64 << 10);
        for key in ["deadline_seconds", "stall_seconds"] {
            for value in [json!(0), json!(-1), json!(1e9), json!("1"), json!(true), json!([])] {
                let error = of(key, value.clone()).unwrap_err().to_string();
                assert!(error.contains(key) && error.contains(&value.to_string()), "{error}");
            }
        }
    }
}
