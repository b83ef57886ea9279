//! The calibrated parameters of a storage system, and their files.
//!
//! A [`Profile`] is a small JSON document, one per storage system, replaced atomically. Its
//! directory is `BEDFORM_PROFILES`, else `$XDG_DATA_HOME/bedform/profiles`, else
//! `~/.local/share/bedform/profiles`. Its file name is the identity of the file system, or the
//! scheme, server and bucket of an object store. Every path there therefore finds the same profile.
//! A document is checked before use. A newer version, an unknown field, or an implausible number is
//! an error that names it.

mod cold;
mod processor;
mod refined;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::{StorageError, open_without_waiting};

pub use cold::ColdRequest;
pub use processor::{CodecTimes, Processor, ProcessorSeconds, ProcessorWork, cores};
pub use refined::{Factor, FactorKind, Refined};

const FORMAT: &str = "bedform-profile";
const VERSION: u64 = 3;
/// Documents of this version lack the cold requests.
const VERSION_BEFORE_COLD: u64 = 2;
/// Documents of this version lack the processor.
const VERSION_BEFORE_PROCESSORS: u64 = 1;
/// The most bytes of a profile document, far more than any real one has.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of one text in a profile, and the most entries of one list.
const TEXT_BYTES_MAX: usize = 4096;
const ENTRIES_MAX: usize = 64;
/// Bytes per second: between a modem and all memory channels of a machine.
const RATE_RANGE: (f64, f64) = (1.0, 1e15);
/// Seconds: between one processor cycle and an hour.
const SECONDS_RANGE: (f64, f64) = (1e-10, 3600.0);
const IN_FLIGHT_MAX: u32 = 1 << 20;
const GAP_BYTES_MAX: u64 = 1 << 40;

/// The reason why a profile cannot be used, saved or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The document is not a profile.
    #[error("{origin:?} is not a storage profile: {reason}; delete it and calibrate again")]
    Malformed {
        /// The file or other origin of the document.
        origin: String,
        /// The reason.
        reason: String,
    },
    /// The document was written by a newer program.
    #[error(
        "{origin:?} is a storage profile of version {found}, and this program knows up to \
             version {VERSION}; use a newer program, or delete it and calibrate again"
    )]
    UnknownVersion {
        /// The file or other origin of the document.
        origin: String,
        /// The version that it claims.
        found: u64,
    },
    /// A field has an implausible number.
    #[error(
        "the profile's {field} is {value}, which is not between {least:e} and {most:e}; \
             correct it or calibrate again"
    )]
    Implausible {
        /// The field.
        field: String,
        /// Its value.
        value: f64,
        /// The least accepted value.
        least: f64,
        /// The largest accepted value.
        most: f64,
    },
    /// The environment names no directory for profiles.
    #[error("no directory for profiles: set BEDFORM_PROFILES, XDG_DATA_HOME or HOME")]
    NoDirectory,
}

/// The evidence that the reads of a calibration came from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coldness {
    /// The page cache was emptied before each measurement and checked to be empty.
    Emptied,
    /// The page cache could not be emptied; the reads went past it.
    Bypassed,
    /// The system was asked to empty the page cache, and cannot tell whether it did.
    Unverified,
    /// The reads came from memory: the figures are those of a warm file, not of the device.
    Warm,
    /// Nothing was measured: the figures are an example or an assumption.
    Assumed,
}

/// The measurement behind [`Profile::merge_gap_bytes`]: the mean time to read a pair of extents
/// with that gap between them, as two requests and as one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GapCheck {
    /// The gap that bandwidth and request time predict.
    pub derived_bytes: u64,
    /// Seconds for a pair as two requests.
    pub separate_seconds: f64,
    /// Seconds for a pair as one request over the gap.
    pub merged_seconds: f64,
}

/// The calibrated parameters of a storage system.
///
/// ```
/// use bedform_storage::Profile;
///
/// let profile = Profile::lustre_example();
/// assert_eq!(profile.optimized_chunk_bytes().round(), 2_475_000.0);
/// let text = profile.to_json()?;
/// assert_eq!(Profile::from_json("memory", &text)?, profile);
/// # Ok::<(), bedform_storage::ProfileError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name of the storage system, for people.
    pub name: String,
    /// The directory that was measured; empty if none was.
    pub path: String,
    /// The time of the measurement in UTC, as `2026-01-31T12:00:00Z`; empty if nothing was
    /// measured.
    pub measured_at: String,
    /// True for an object store, whose answer to the opening of an object can carry its bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remote: bool,
    /// Whether the reads came from the device or from memory.
    pub coldness: Coldness,
    /// Bytes per second of one reader with one request in flight.
    pub read_bytes_per_second_one: f64,
    /// Bytes per second of many readers of large extents.
    pub read_bytes_per_second_many: f64,
    /// Bytes per second of a writer, including its final sync.
    pub write_bytes_per_second: f64,
    /// Seconds of one small request with no other in flight.
    pub request_seconds_one: f64,
    /// Seconds per small request with `requests_in_flight` in flight: time over count.
    pub request_seconds_many: f64,
    /// Requests in flight beyond which the rate no longer rises.
    pub requests_in_flight: u32,
    /// CPU seconds per request.
    pub request_cpu_seconds: f64,
    /// The largest gap between two extents that is cheaper to read than to skip, in bytes.
    pub merge_gap_bytes: u64,
    /// The measurement that confirmed `merge_gap_bytes`, if there was one.
    pub merge_gap_check: Option<GapCheck>,
    /// Seconds to open an object whose pages are in memory, in addition to processor time, where
    /// every open asks a server.
    #[serde(default)]
    pub open_seconds: f64,
    /// Times of cold requests through the engine, by rising size; empty if not measured.
    #[serde(default)]
    pub cold_requests: Vec<ColdRequest>,
    /// The machine that the storage is read from.
    #[serde(default)]
    pub processor: Processor,
    /// Ratios of measured to predicted read times, by codec.
    #[serde(default)]
    pub refinement: BTreeMap<String, Refined>,
    /// Remarks on the measurement, for the user.
    pub notes: Vec<String>,
}

/// The origin of predicted times: a profile, and when it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileOrigin {
    /// The name of the profile.
    pub name: String,
    /// The time of the measurement, as [`Profile::measured_at`]; empty if nothing was measured.
    pub measured_at: String,
}

impl From<&Profile> for ProfileOrigin {
    fn from(profile: &Profile) -> Self {
        Self { name: profile.name.clone(), measured_at: profile.measured_at.clone() }
    }
}

#[derive(Serialize)]
struct DocumentOut<'a> {
    format: &'static str,
    version: u64,
    profile: &'a Profile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentIn {
    #[serde(rename = "format")]
    _format: serde::de::IgnoredAny,
    #[serde(rename = "version")]
    _version: serde::de::IgnoredAny,
    profile: Profile,
}

impl Profile {
    /// Returns the assumed profile of an uncalibrated path: a plain local solid-state disk.
    pub fn default_local() -> Self {
        Self {
            name: "a local solid-state disk".into(),
            path: String::new(),
            measured_at: String::new(),
            is_remote: false,
            coldness: Coldness::Assumed,
            read_bytes_per_second_one: 1.2e9,
            read_bytes_per_second_many: 1.5e9,
            write_bytes_per_second: 0.9e9,
            request_seconds_one: 125e-6,
            request_seconds_many: 15e-6,
            requests_in_flight: 16,
            request_cpu_seconds: 5e-6,
            merge_gap_bytes: 16 << 10,
            merge_gap_check: None,
            open_seconds: 0.0,
            cold_requests: Vec::new(),
            processor: Processor::default(),
            refinement: BTreeMap::new(),
            notes: vec!["assumed, not measured: calibrate the directory that you use".into()],
        }
    }

    /// Returns the assumed profile of an uncalibrated URL: an object store.
    pub fn default_remote() -> Self {
        Self {
            name: "an object store".into(),
            is_remote: true,
            read_bytes_per_second_one: 80e6,
            read_bytes_per_second_many: 600e6,
            write_bytes_per_second: 300e6,
            request_seconds_one: 30e-3,
            request_seconds_many: 30e-3 / 32.0,
            requests_in_flight: 32,
            request_cpu_seconds: 100e-6,
            // A little less than a request is worth: unneeded bytes take bandwidth from other
            // requests.
            merge_gap_bytes: 1 << 20,
            notes: vec!["assumed, not measured".into()],
            ..Self::default_local()
        }
    }

    /// Returns one target of the Lustre file system in the Smart-IO paper (250 MB/s, 8 ms for a
    /// seek, 1.9 ms for a request), and eight of them for a reader with many requests in flight.
    pub fn lustre_example() -> Self {
        Self {
            name: "Lustre, the example of Smart-IO".into(),
            read_bytes_per_second_one: 250e6,
            read_bytes_per_second_many: 2e9,
            write_bytes_per_second: 250e6,
            request_seconds_one: 8e-3,
            request_seconds_many: 9.9e-3 / 8.0,
            requests_in_flight: 8,
            request_cpu_seconds: 1.9e-3,
            merge_gap_bytes: 2_475_000,
            notes: vec!["an example from the literature, not measured".into()],
            ..Self::default_local()
        }
    }

    /// Returns the optimized chunk size of Smart-IO in bytes, `BW * (CC + T_s)`. It is the
    /// bandwidth of one stream times the seconds of one request before its first byte.
    pub fn optimized_chunk_bytes(&self) -> f64 {
        self.read_bytes_per_second_one * (self.request_cpu_seconds + self.request_seconds_one)
    }

    /// Checks that every field is plausible for a storage system.
    ///
    /// # Errors
    /// `Implausible` with the first field that is out of range (not a number included), `Malformed`
    /// for texts and lists that are too long.
    pub fn check(&self) -> Result<(), ProfileError> {
        let rates = [
            ("read_bytes_per_second_one", self.read_bytes_per_second_one),
            ("read_bytes_per_second_many", self.read_bytes_per_second_many),
            ("write_bytes_per_second", self.write_bytes_per_second),
        ];
        let seconds = [
            ("request_seconds_one", self.request_seconds_one),
            ("request_seconds_many", self.request_seconds_many),
            ("request_cpu_seconds", self.request_cpu_seconds),
        ];
        for (field, value) in rates {
            within(field, value, RATE_RANGE)?;
        }
        for (field, value) in seconds {
            within(field, value, SECONDS_RANGE)?;
        }
        let in_flight = f64::from(self.requests_in_flight);
        within("requests_in_flight", in_flight, (1.0, f64::from(IN_FLIGHT_MAX)))?;
        within("merge_gap_bytes", self.merge_gap_bytes as f64, (0.0, GAP_BYTES_MAX as f64))?;
        if let Some(check) = &self.merge_gap_check {
            within("derived_bytes", check.derived_bytes as f64, (0.0, GAP_BYTES_MAX as f64))?;
            within("separate_seconds", check.separate_seconds, SECONDS_RANGE)?;
            within("merged_seconds", check.merged_seconds, SECONDS_RANGE)?;
        }
        self.check_cold()?;
        self.check_refinement()?;
        self.processor.check()?;
        let texts = [&self.name, &self.path, &self.measured_at];
        let long = texts.into_iter().chain(&self.notes).any(|text| text.len() > TEXT_BYTES_MAX);
        if long || self.notes.len() > ENTRIES_MAX {
            return Err(ProfileError::Malformed {
                origin: "the profile".into(),
                reason: format!(
                    "a text is over {TEXT_BYTES_MAX} bytes or a list over {ENTRIES_MAX} entries"
                ),
            });
        }
        Ok(())
    }

    /// Returns the profile as its JSON document.
    ///
    /// # Errors
    /// As [`Profile::check`]: a profile that could not be loaded is not written.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        self.check()?;
        let document = DocumentOut { format: FORMAT, version: VERSION, profile: self };
        let text = serde_json::to_string_pretty(&document)
            .map_err(|error| malformed("the profile", error.to_string()))?;
        Ok(text + "\n")
    }

    /// Parses a profile from its JSON document; errors name `origin`.
    ///
    /// # Errors
    /// `Malformed`, `UnknownVersion`, `Implausible`.
    pub fn from_json(origin: &str, text: &str) -> Result<Self, ProfileError> {
        // The version is checked first: a newer document may differ in everything.
        let mut value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| malformed(origin, error.to_string()))?;
        if value.get("format").and_then(|format| format.as_str()) != Some(FORMAT) {
            return Err(malformed(origin, format!("its \"format\" is not {FORMAT:?}")));
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(VERSION | VERSION_BEFORE_COLD) => {}
            Some(VERSION_BEFORE_PROCESSORS) => {
                let profile = value.get_mut("profile").and_then(|profile| profile.as_object_mut());
                profile.map(|profile| profile.remove("decode_bytes_per_second"));
            }
            Some(found) if found > VERSION => {
                return Err(ProfileError::UnknownVersion { origin: origin.into(), found });
            }
            _ => return Err(malformed(origin, "its \"version\" is not a known number".into())),
        }
        let document: DocumentIn =
            serde_json::from_value(value).map_err(|error| malformed(origin, error.to_string()))?;
        document.profile.check()?;
        Ok(document.profile)
    }

    /// Writes the profile to `path`, atomically: a crash leaves the old document or the new one.
    /// Missing directories are created.
    ///
    /// # Errors
    /// As [`Profile::check`], or the system's.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let text = self.to_json()?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(directory).map_err(|error| failed("create", directory, error))?;
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = directory.join(format!(".profile-{}-{number}.tmp", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            File::open(directory)?.sync_all()
        })();
        written.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            failed("write", path, error)
        })
    }

    /// Loads the profile at `path`.
    ///
    /// # Errors
    /// As [`Profile::from_json`], or the system's.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let mut text = String::new();
        open_regular(path)
            .and_then(|file| file.take(DOCUMENT_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData => {
                    malformed(&path.to_string_lossy(), "it is not UTF-8".into())
                }
                _ => failed("read", path, error),
            })?;
        if text.len() as u64 > DOCUMENT_BYTES_MAX {
            let reason = format!("it is over {DOCUMENT_BYTES_MAX} bytes");
            return Err(malformed(&path.to_string_lossy(), reason));
        }
        Self::from_json(&path.to_string_lossy(), &text)
    }

    /// Loads the profile of the storage system that holds `directory`, or will hold it. `None` if
    /// it was never calibrated.
    ///
    /// # Errors
    /// As [`Profile::load`]; `NoDirectory`.
    pub fn for_path(directory: &Path) -> Result<Option<Self>, ProfileError> {
        Self::for_path_in(&profile_directory()?, directory)
    }

    /// Returns the file for the profile of the storage system that holds `directory`, or will hold
    /// it.
    ///
    /// # Errors
    /// `NoDirectory`; of the system.
    pub fn place_for_path(directory: &Path) -> Result<PathBuf, ProfileError> {
        Ok(profile_directory()?.join(system_key(directory)? + ".json"))
    }

    /// As [`Profile::place_for_path`], for the storage system named `system`.
    ///
    /// # Errors
    /// `NoDirectory`.
    pub fn place_for_system(system: &str) -> Result<PathBuf, ProfileError> {
        place_of(system)
    }

    /// As [`Profile::for_path`], with an explicit directory of profiles.
    ///
    /// # Errors
    /// As [`Profile::load`].
    pub fn for_path_in(profiles: &Path, directory: &Path) -> Result<Option<Self>, ProfileError> {
        Self::kept(&profiles.join(system_key(directory)? + ".json"))
    }

    /// Loads the profile of the storage system named `system`, such as an object store. `None` if
    /// it was never calibrated.
    ///
    /// # Errors
    /// As [`Profile::load`]; `NoDirectory`.
    pub fn for_system(system: &str) -> Result<Option<Self>, ProfileError> {
        Self::kept(&place_of(system)?)
    }

    fn kept(place: &Path) -> Result<Option<Self>, ProfileError> {
        match Self::load(place) {
            Ok(profile) => Ok(Some(profile)),
            Err(ProfileError::Storage(error)) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Saves the profile as that of the storage system that holds `directory`, and returns its
    /// file.
    ///
    /// # Errors
    /// As [`Profile::save`]; `NoDirectory`.
    pub fn save_for_path(&self, directory: &Path) -> Result<PathBuf, ProfileError> {
        self.save_for_path_in(&profile_directory()?, directory)
    }

    /// Saves the profile as that of the storage system named `system`, and returns its file.
    ///
    /// # Errors
    /// As [`Profile::save`]; `NoDirectory`.
    pub fn save_for_system(&self, system: &str) -> Result<PathBuf, ProfileError> {
        let place = place_of(system)?;
        self.save(&place)?;
        Ok(place)
    }

    /// As [`Profile::save_for_path`], with an explicit directory of profiles.
    ///
    /// # Errors
    /// As [`Profile::save`].
    pub fn save_for_path_in(
        &self,
        profiles: &Path,
        directory: &Path,
    ) -> Result<PathBuf, ProfileError> {
        let place = profiles.join(system_key(directory)? + ".json");
        self.save(&place)?;
        Ok(place)
    }
}

/// Opens a regular file for reading.
fn open_regular(path: &Path) -> std::io::Result<File> {
    let file = open_without_waiting(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(std::io::Error::other("it is no regular file"))
}

/// Returns the file for the profile of the storage system named `system`.
fn place_of(system: &str) -> Result<PathBuf, ProfileError> {
    // A name must not act as a path.
    Ok(profile_directory()?.join(format!("{}.json", system.replace('/', "%2F"))))
}

/// Returns the directory of profiles, which need not exist.
///
/// # Errors
/// `NoDirectory` if the environment names none.
pub fn profile_directory() -> Result<PathBuf, ProfileError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(place) = variable("BEDFORM_PROFILES") {
        return Ok(place.into());
    }
    // The XDG rules: a relative path in this variable is ignored.
    let data = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|place| place.is_absolute());
    let home = || variable("HOME").map(|home| Path::new(&home).join(".local/share"));
    let data = data.or_else(home).ok_or(ProfileError::NoDirectory)?;
    Ok(data.join("bedform").join("profiles"))
}

/// Returns the identity of the file system that holds `path`, or its nearest existing ancestor.
fn system_key(path: &Path) -> Result<String, ProfileError> {
    let absolute = std::path::absolute(path).map_err(|error| failed("open", path, error))?;
    for place in absolute.ancestors() {
        let status = match rustix::fs::stat(place) {
            Ok(status) => status,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => continue,
            Err(error) => return Err(failed("open", path, error.into())),
        };
        // The id of the file system survives a reboot; a device number need not. Some file systems
        // have no id.
        let id = rustix::fs::statvfs(place).map(|system| system.f_fsid).unwrap_or(0);
        return Ok(match id {
            0 => format!("device-{:x}", status.st_dev),
            id => format!("filesystem-{id:016x}"),
        });
    }
    Err(failed("open", path, std::io::ErrorKind::NotFound.into()))
}

fn within(field: &str, value: f64, (least, most): (f64, f64)) -> Result<(), ProfileError> {
    // A NaN is in no range.
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ProfileError::Implausible { field: field.into(), value, least, most })
}

fn malformed(origin: &str, reason: String) -> ProfileError {
    ProfileError::Malformed { origin: origin.into(), reason }
}

fn failed(operation: &'static str, path: &Path, error: std::io::Error) -> ProfileError {
    ProfileError::Storage(StorageError::from_io(operation, path.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let place =
            std::env::temp_dir().join(format!("bedform-profile-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        place
    }

    #[test]
    fn a_profile_survives_its_document() {
        let mut profile = Profile::default_local();
        profile.processor.codecs.remove("zlib");
        let at = |bytes| ColdRequest {
            bytes,
            seconds_one: 1e-4,
            seconds_many: 1e-5,
            ..Default::default()
        };
        profile.cold_requests = vec![at(4e3), at(64e3)];
        profile.merge_gap_check =
            Some(GapCheck { derived_bytes: 1, separate_seconds: 1e-4, merged_seconds: 9e-5 });
        assert_eq!(Profile::from_json("here", &profile.to_json().unwrap()).unwrap(), profile);
    }

    #[test]
    fn a_document_from_before_processors_were_measured_has_one_that_is_assumed() {
        let new = Profile::default_local().to_json().unwrap();
        let mut old: serde_json::Value = serde_json::from_str(&new).unwrap();
        old["version"] = 1.into();
        old["profile"].as_object_mut().unwrap().remove("processor");
        old["profile"]["decode_bytes_per_second"] = serde_json::json!({});
        let read = Profile::from_json("here", &old.to_string()).unwrap();
        assert_eq!(read, Profile::default_local());
    }

    #[test]
    fn a_newer_version_is_refused_by_its_number_whatever_else_it_holds() {
        let text = r#"{"format": "bedform-profile", "version": 4, "shape": []}"#;
        let error = Profile::from_json("here", text).unwrap_err();
        assert!(matches!(error, ProfileError::UnknownVersion { found: 4, .. }), "{error}");
    }

    #[test]
    fn documents_that_are_no_profiles_are_refused() {
        let good = Profile::default_local().to_json().unwrap();
        let cases = [
            String::new(),
            "[]".into(),
            "{}".into(),
            good.replace("bedform-profile", "other"),
            good.replace("\"version\": 3", "\"version\": 0"),
            good.replace("\"version\": 3", "\"version\": 1.0"),
            good.replace("\"version\": 3", "\"version\": -1"),
            good.replace("\"notes\"", "\"remarks\""),
            good.replace("\"requests_in_flight\": 16", "\"requests_in_flight\": -16"),
            good.replace("\"requests_in_flight\": 16", "\"requests_in_flight\": 1e300"),
            good.replace("\"assumed\"", "\"guessed\""),
            "[".repeat(100_000),
        ];
        for text in cases {
            let error = Profile::from_json("here", &text).unwrap_err();
            assert!(matches!(error, ProfileError::Malformed { .. }), "{text:.60}: {error}");
        }
    }

    #[test]
    fn numbers_that_no_device_has_are_refused() {
        type Set = fn(&mut Profile, f64);
        let fields: [Set; 6] = [
            |profile, value| profile.read_bytes_per_second_one = value,
            |profile, value| profile.read_bytes_per_second_many = value,
            |profile, value| profile.write_bytes_per_second = value,
            |profile, value| profile.request_seconds_one = value,
            |profile, value| profile.request_seconds_many = value,
            |profile, value| profile.request_cpu_seconds = value,
        ];
        for set in fields {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1.0, 1e300] {
                let mut profile = Profile::default_local();
                set(&mut profile, value);
                let error = profile.check().unwrap_err();
                assert!(matches!(error, ProfileError::Implausible { .. }), "{value}: {error}");
                assert!(profile.to_json().is_err());
            }
        }
        let text = Profile::default_local().to_json().unwrap().replace("1200000000.0", "1e300");
        let error = Profile::from_json("here", &text).unwrap_err();
        assert!(error.to_string().contains("read_bytes_per_second_one"), "{error}");
        for field in ["requests_in_flight", "merge_gap_bytes"] {
            let mut profile = Profile::default_local();
            match field {
                "requests_in_flight" => profile.requests_in_flight = 0,
                _ => profile.merge_gap_bytes = u64::MAX,
            }
            assert!(profile.check().unwrap_err().to_string().contains(field));
        }
    }

    #[test]
    fn a_saved_profile_is_found_for_every_path_of_its_file_system() {
        let place = scratch("found");
        let (profiles, data) = (place.join("profiles/deeper"), place.join("data"));
        fs::create_dir(&data).unwrap();
        assert_eq!(Profile::for_path_in(&profiles, &data).unwrap(), None);
        let profile = Profile::lustre_example();
        let saved = profile.save_for_path_in(&profiles, &data).unwrap();
        assert_eq!(Profile::load(&saved).unwrap(), profile);
        let future = data.join("not/yet/there");
        assert_eq!(Profile::for_path_in(&profiles, &future).unwrap(), Some(profile));
        let left: Vec<_> = fs::read_dir(&profiles).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary file stays");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_broken_profile_is_an_error_and_not_an_absent_one() {
        let place = scratch("broken");
        let saved = Profile::default_local().save_for_path_in(&place, &place).unwrap();
        fs::write(&saved, [0xff, 0xfe]).unwrap();
        let error = Profile::for_path_in(&place, &place).unwrap_err();
        assert!(matches!(error, ProfileError::Malformed { .. }), "{error}");
        fs::write(&saved, vec![b' '; 2 << 20]).unwrap();
        let error = Profile::for_path_in(&place, &place).unwrap_err();
        assert!(error.to_string().contains("over"), "{error}");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_fifo_in_the_place_of_a_profile_is_an_error_and_no_wait() {
        let place = scratch("fifo");
        let fifo = place.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let error = Profile::load(&fifo).unwrap_err();
        assert!(error.to_string().contains("regular file"), "{error}");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_profile_that_cannot_be_saved_leaves_nothing() {
        let place = scratch("unsaved");
        fs::create_dir(place.join("taken")).unwrap();
        fs::write(place.join("taken/file"), "").unwrap();
        assert!(Profile::default_local().save(&place.join("taken")).is_err());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
        fs::remove_dir_all(place).unwrap();
    }
}
