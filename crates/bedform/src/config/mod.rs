//! Configuration outside of programs: `bedform.toml` and environment variables.
//!
//! `bedform.toml` beside a store configures that store. The *site file*, `/etc/bedform.toml`,
//! configures the machine: it alone names the owners of trusted sidecars (`sidecar_sites`), and its
//! other settings apply where the file beside the store lacks them. `BEDFORM_CONFIG` names one file
//! that replaces both. A file beside a store is used only if it belongs to this user or root and
//! others cannot write it, because anybody may put a file into a shared directory. Environment
//! variables override files. An unknown key is an error: it may be misspelt.
//!
//! | module | holds |
//! |---|---|
//! | `table` | tables of the file, parsed by hand for the sake of their errors |
//! | `file` | one file: its reading, its trust, the site file |
//! | `site` | sites of trusted sidecars |

mod file;
mod site;
mod table;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bedform_storage::{Throttle, ThrottleSchedule};
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Result};
use crate::size;

pub use site::{SidecarOwner, SidecarSite};
pub use table::Size;

pub(crate) use file::{WRITABLE_BY_OTHERS, sidecar_sites};

use file::{ConfigurationFile, FILE, FILE_VARIABLE, SITE_FILE, SettingsPlace, SiteFile, site_file};
use table::{SIZE, SettingsTable, at_line, integer};

const BURST_VARIABLE: &str = "BEDFORM_BURST";
const CAPACITY_VARIABLE: &str = "BEDFORM_BURST_CAPACITY";
const THROTTLE_VARIABLE: &str = "BEDFORM_THROTTLE";

/// The settings of one `bedform.toml`.
///
/// ```
/// let text = "[burst]\npath = \"/mnt/fast\"\ncapacity = \"10 GiB\"\n";
/// let configuration = bedform::config::Configuration::parse(text)?;
/// assert_eq!(configuration.burst.unwrap().capacity.unwrap().bytes(), 10 << 30);
/// assert!(bedform::config::Configuration::parse("[brust]\n").is_err());
/// # Ok::<(), bedform::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The burst tier.
    pub burst: Option<BurstConfiguration>,
    /// The limits of data that wait to be settled.
    pub settle: Option<SettleConfiguration>,
    /// The sites whose sidecars are trusted.
    pub sidecars: Vec<SidecarSite>,
}

/// `[settle]`: limits for sessions that settle in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleConfiguration {
    /// The most bytes of elements that wait to be settled.
    pub bytes: Option<Size>,
    /// The most commits that wait to be settled.
    pub commits: Option<NonZeroU64>,
}

/// `[burst]`: the burst tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BurstConfiguration {
    /// The directory of the tier.
    pub path: PathBuf,
    /// The most bytes that one writer may have there.
    pub capacity: Option<Size>,
}

impl SettleConfiguration {
    fn read(section: &SettingsTable<'_>) -> Result<Self> {
        section.check_keys(&["bytes", "commits"])?;
        let count = |value: &DeValue<'_>| integer(value).and_then(NonZeroU64::new);
        Ok(Self {
            bytes: section.setting("bytes", SIZE, Size::of)?,
            commits: section.setting("commits", "an integer of at least 1", count)?,
        })
    }
}

impl Configuration {
    /// Parses the configuration in `text`.
    ///
    /// # Errors
    /// `InvalidArgument` names the line and the key at fault.
    pub fn parse(text: &str) -> Result<Self> {
        let table = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            at_line(text, start, error.message().replace('\n', " "))
        })?;
        let whole = SettingsTable { text, name: "", table: table.get_ref() };
        whole.check_keys(&["burst", "settle", "sidecars"])?;
        let burst = whole.section("burst", "[burst] ")?;
        let settle = whole.section("settle", "[settle] ")?;
        Ok(Self {
            burst: burst.map(|own| BurstConfiguration::read(&own)).transpose()?,
            settle: settle.map(|own| SettleConfiguration::read(&own)).transpose()?,
            sidecars: SidecarSite::read_all(&whole)?,
        })
    }

    /// The configuration of the store in the directory `store`, or without a store. It is read from
    /// the file that `BEDFORM_CONFIG` names, else from `bedform.toml` beside the store, with the
    /// site file for missing settings.
    ///
    /// # Errors
    /// As [`Configuration::parse`]; `NotFound` if `BEDFORM_CONFIG` names no file; `InvalidArgument`
    /// for a file beside a store that names sites of sidecars; `PermissionDenied` for a file beside
    /// a store of another user, or one that others may write; those of reading.
    pub fn of_store(store: Option<&Path>) -> Result<Self> {
        let SiteFile { is_named, found } = site_file()?;
        let of_site = found.map_or_else(Self::default, |found| found.configuration.clone());
        let beside = store.and_then(Path::parent).map(|above| above.join(FILE));
        let Some(beside) = beside.filter(|_| !is_named) else { return Ok(of_site) };
        let Some(found) = ConfigurationFile::read(&beside, SettingsPlace::BesideStore)? else {
            return Ok(of_site);
        };
        let own = found.configuration;
        if !own.sidecars.is_empty() {
            // Otherwise the author of the data would decide whom its readers trust.
            let text = format!("[[sidecars]] counts in {SITE_FILE} or {FILE_VARIABLE} alone");
            return Err(Error::invalid(format!("{}: {text}", beside.display())));
        }
        Ok(Self {
            burst: own.burst.or(of_site.burst),
            settle: own.settle.or(of_site.settle),
            sidecars: of_site.sidecars,
        })
    }
}

/// The throttle of stores, their logs and foreign files in this process, for experiments:
/// `BEDFORM_THROTTLE`, such as `"512 MB/s, 5 ms"`, as it was at the first call. Burst tiers are not
/// throttled.
///
/// # Errors
/// `InvalidArgument` if its text is no throttle.
pub fn pace() -> Result<Option<Arc<ThrottleSchedule>>> {
    // One for the process: a store and its log share the bandwidth.
    static PACE: OnceLock<std::result::Result<Option<Arc<ThrottleSchedule>>, String>> =
        OnceLock::new();
    let found = PACE.get_or_init(|| {
        let Some(text) = std::env::var_os(THROTTLE_VARIABLE).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let throttle = Throttle::parse(&text.to_string_lossy());
        throttle.map(|one| Some(ThrottleSchedule::new(one))).map_err(|error| error.to_string())
    });
    found.clone().map_err(|error| Error::invalid(format!("{THROTTLE_VARIABLE}: {error}")))
}

impl BurstConfiguration {
    fn read(section: &SettingsTable<'_>) -> Result<Self> {
        section.check_keys(&["path", "capacity"])?;
        let path = section.setting("path", "a directory such as \"/mnt/nvme\"", DeValue::as_str)?;
        let capacity = section.setting("capacity", SIZE, Size::of)?;
        let path =
            path.ok_or_else(|| Error::invalid("[burst] lacks path: the directory of the tier"))?;
        Ok(Self { path: path.into(), capacity })
    }

    /// Returns the burst tier of the store in the directory `store`: `BEDFORM_BURST` and
    /// `BEDFORM_BURST_CAPACITY`, else `[burst]` of the configuration. `None` without either.
    ///
    /// # Errors
    /// As [`Configuration::of_store`].
    pub fn of_store(store: Option<&Path>) -> Result<Option<Self>> {
        let file = Configuration::of_store(store)?.burst;
        let named = std::env::var_os(BURST_VARIABLE).filter(|path| !path.is_empty());
        let path = named.map(PathBuf::from).or_else(|| file.as_ref().map(|own| own.path.clone()));
        let Some(path) = path else { return Ok(None) };
        let capacity = match std::env::var(CAPACITY_VARIABLE) {
            Ok(text) => Some(
                size::from_text(&text)
                    .map(Size)
                    .map_err(|error| Error::invalid(format!("{CAPACITY_VARIABLE}: {error}")))?,
            ),
            Err(_) => file.and_then(|own| own.capacity),
        };
        Ok(Some(Self { path, capacity }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_is_wrong_with_a_configuration_is_said_with_its_line() {
        for (text, line, said) in [
            ("[burst]\npath = 3\n", "line 2", "path"),
            ("[burst]\npath = \"a\"\nsize = 4\n", "line 3", "size"),
            ("[burst]\npath = \"a\"\ncapacity = \"much\"\n", "line 3", "much"),
            ("[other]\n", "line 1", "other"),
            ("burst = [", "line 1", ""),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(said), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_setting_that_is_not_what_it_takes_is_shown_as_it_was_written() {
        let size = "it takes a number of bytes such as 67108864 or \"64 MiB\"";
        let count = "it takes an integer of at least 1";
        let huge = "99999999999999999999999";
        for (section, key, values, takes) in [
            ("settle", "bytes", ["-4", "1.5", "true", "\"much\"", "\"-4\"", huge, "[1]"], size),
            ("settle", "commits", ["-4", "0", "1.5", "\"10\"", huge, "1e3", "nan"], count),
            (
                "burst",
                "capacity",
                ["-1", "inf", "\"\"", "\"1 GiG\"", huge, "{ a = 1 }", "1979-05-27"],
                size,
            ),
        ] {
            for value in values {
                let text = format!("[{section}]\n{key} = {value}\n");
                let error = Configuration::parse(&text).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                let said = format!("line 2: [{section}] {key} is {value}; {takes}");
                assert_eq!(error.to_string(), said);
            }
        }
        for (text, said) in [
            (
                "settle = 3",
                "line 1: settle is 3; it takes a table: write [settle] above its settings",
            ),
            ("[burst]", "[burst] lacks path: the directory of the tier"),
            (
                "[burst]\npath = 3",
                "line 2: [burst] path is 3; it takes a directory such as \"/mnt/nvme\"",
            ),
            (
                "[settle]\nbites = 3",
                "line 2: [settle] bites is not known; there are bytes, commits",
            ),
        ] {
            assert_eq!(Configuration::parse(text).unwrap_err().to_string(), said);
        }
        let largest =
            "[settle]\nbytes = 0xffff_ffff_ffff_ffff\ncommits = 18_446_744_073_709_551_615\n";
        let settle = Configuration::parse(largest).unwrap().settle.unwrap();
        assert_eq!(settle.bytes, Some(Size(u64::MAX)));
        assert_eq!(settle.commits, NonZeroU64::new(u64::MAX));
    }
}
