//! What is configured beside the programs: `bedform.toml` and variables of the environment.
//!
//! The file lies beside the store, or where `BEDFORM_CONFIG` says. Variables count more than it does.
//! A key that is not known is an error: it may be misspelt.

use std::io::Read as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bedform_storage::{Pace, Throttle, open_without_waiting};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, ErrorKind, Result};
use crate::size;

const FILE: &str = "bedform.toml";
const FILE_VARIABLE: &str = "BEDFORM_CONFIG";
const BURST_VARIABLE: &str = "BEDFORM_BURST";
const CAPACITY_VARIABLE: &str = "BEDFORM_BURST_CAPACITY";
const THROTTLE_VARIABLE: &str = "BEDFORM_THROTTLE";
/// A configuration is written by hand.
const BYTES_MAX: u64 = 1 << 20;

/// `bedform.toml`.
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
    /// What may wait to be settled.
    pub settle: Option<SettleConfiguration>,
}

/// `[settle]`: of sessions that settle in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleConfiguration {
    /// Bytes of elements that may wait.
    pub bytes: Option<Size>,
    /// Commits that may wait.
    pub commits: Option<NonZeroU64>,
}

/// `[burst]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BurstConfiguration {
    /// Its directory.
    pub path: PathBuf,
    /// Bytes that one writer may have there.
    pub capacity: Option<Size>,
}

/// A number of bytes: an integer, or text such as `"10 GiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// The number.
    pub fn bytes(self) -> u64 {
        self.0
    }

    fn of(value: &DeValue<'_>) -> Option<Self> {
        match value {
            DeValue::String(text) => size::from_text(text).ok().map(Self),
            value => integer(value).map(Self),
        }
    }
}

/// A table of the file. It is read by hand: an error then says which setting is at fault, what it
/// has, and what it takes.
struct Section<'t> {
    text: &'t str,
    /// As it is written; nothing for the whole file.
    name: &'static str,
    table: &'t DeTable<'t>,
}

impl<'t> Section<'t> {
    /// Fails at a key that is not one of `known`.
    fn check_keys(&self, known: &[&str]) -> Result<()> {
        let is_unknown = |key: &&Spanned<_>| !known.contains(&AsRef::<str>::as_ref(key.get_ref()));
        let Some(key) = self.table.keys().find(is_unknown) else { return Ok(()) };
        let text =
            format!("{}{} is not known; there are {}", self.name, key.get_ref(), known.join(", "));
        Err(at_line(self.text, key.span().start, text))
    }

    /// The value of `key`, which must be `what`: nothing if it is not there.
    fn setting<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'t DeValue<'t>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some((_, value)) = self.table.iter().find(|(own, _)| own.get_ref() == key) else {
            return Ok(None);
        };
        let bad = || {
            let given = self.text[value.span()].replace('\n', " ");
            let text = format!("{}{key} is {given}; it takes {what}", self.name);
            at_line(self.text, value.span().start, text)
        };
        read(value.get_ref()).map(Some).ok_or_else(bad)
    }

    /// The table called `key`, whose settings messages call by `name`.
    fn section(&self, key: &str, name: &'static str) -> Result<Option<Section<'t>>> {
        let what = format!("a table: write [{key}] above its settings");
        let table = self.setting(key, &what, DeValue::as_table)?;
        Ok(table.map(|table| Section { text: self.text, name, table }))
    }
}

const SIZE: &str = "a number of bytes such as 67108864 or \"64 MiB\"";

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let given = value.as_integer()?;
    u64::from_str_radix(given.as_str(), given.radix()).ok()
}

/// An error of the line that has byte `start` of `text`.
fn at_line(text: &str, start: usize, problem: impl std::fmt::Display) -> Error {
    let line = 1 + text[..start].matches('\n').count();
    Error::invalid(format!("line {line}: {problem}"))
}

impl SettleConfiguration {
    fn read(section: &Section<'_>) -> Result<Self> {
        section.check_keys(&["bytes", "commits"])?;
        let count = |value: &DeValue<'_>| integer(value).and_then(NonZeroU64::new);
        Ok(Self {
            bytes: section.setting("bytes", SIZE, Size::of)?,
            commits: section.setting("commits", "an integer of at least 1", count)?,
        })
    }
}

impl Configuration {
    /// The configuration that `text` holds.
    ///
    /// # Errors
    /// `InvalidArgument` says the line and the key at fault.
    pub fn parse(text: &str) -> Result<Self> {
        let table = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            at_line(text, start, error.message().replace('\n', " "))
        })?;
        let whole = Section { text, name: "", table: table.get_ref() };
        whole.check_keys(&["burst", "settle"])?;
        let burst = whole.section("burst", "[burst] ")?;
        let settle = whole.section("settle", "[settle] ")?;
        Ok(Self {
            burst: burst.map(|own| BurstConfiguration::read(&own)).transpose()?,
            settle: settle.map(|own| SettleConfiguration::read(&own)).transpose()?,
        })
    }

    /// That of the store in the directory `store`, without which only `BEDFORM_CONFIG` counts; the
    /// default where there is no file.
    ///
    /// # Errors
    /// As [`Configuration::parse`]; `NotFound` if `BEDFORM_CONFIG` names no file; those of reading it.
    pub fn of_store(store: Option<&Path>) -> Result<Self> {
        let named = std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
        let beside = || Some(store?.parent()?.join(FILE));
        let Some(path) = named.as_ref().map(PathBuf::from).or_else(beside) else {
            return Ok(Self::default());
        };
        let fail = |kind, text: String| Error::new(kind, format!("{}: {text}", path.display()));
        let text = match read_regular(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => match named {
                None => return Ok(Self::default()),
                Some(_) => {
                    let text = format!("{FILE_VARIABLE} names a file that is not there");
                    return Err(fail(ErrorKind::NotFound, text));
                }
            },
            read => read.map_err(|error| fail(ErrorKind::Io, error.to_string()))?,
        };
        let text = text.map_err(|problem| fail(problem.kind(), problem.to_string()))?;
        Self::parse(&text).map_err(|error| fail(error.kind(), error.to_string()))
    }
}

/// The text of a regular file of at most [`BYTES_MAX`]; else what is wrong with it. It is opened without waiting:
/// a FIFO would block, and a device has no end.
fn read_regular(path: &Path) -> std::io::Result<Result<String>> {
    let file = open_without_waiting(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(Err(Error::invalid("it is no regular file")));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let text =
            format!("{} bytes are more than a configuration may have, {BYTES_MAX}", found.len());
        return Ok(Err(Error::new(ErrorKind::LimitExceeded, text)));
    }
    Ok(String::from_utf8(bytes).map_err(|_| Error::invalid("it is no text in UTF-8")))
}

/// How slow this process finds stores, their logs and foreign files, for experiments:
/// `BEDFORM_THROTTLE`, such as `"512 MB/s, 5 ms"`, as it was at the first call. Burst tiers are not.
///
/// # Errors
/// `InvalidArgument` if that says no throttle.
pub fn pace() -> Result<Option<Arc<Pace>>> {
    // One for all: what is written to a store and to its log goes the same way.
    static PACE: OnceLock<std::result::Result<Option<Arc<Pace>>, String>> = OnceLock::new();
    let found = PACE.get_or_init(|| {
        let Some(text) = std::env::var_os(THROTTLE_VARIABLE).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let throttle = Throttle::parse(&text.to_string_lossy());
        throttle.map(|one| Some(Pace::new(one))).map_err(|error| error.to_string())
    });
    found.clone().map_err(|error| Error::invalid(format!("{THROTTLE_VARIABLE}: {error}")))
}

impl BurstConfiguration {
    fn read(section: &Section<'_>) -> Result<Self> {
        section.check_keys(&["path", "capacity"])?;
        let path = section.setting("path", "a directory such as \"/mnt/nvme\"", DeValue::as_str)?;
        let capacity = section.setting("capacity", SIZE, Size::of)?;
        let path =
            path.ok_or_else(|| Error::invalid("[burst] lacks path: the directory of the tier"))?;
        Ok(Self { path: path.into(), capacity })
    }

    /// The burst tier for the store in the directory `store`: `BEDFORM_BURST` and
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

    #[test]
    fn a_configuration_is_a_small_regular_file() {
        let directory = std::env::temp_dir().join(format!("bedform-config-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let make = |name: &str| directory.join(name);
        let fifo = make("fifo");
        let no_device = 0;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            no_device,
        )
        .unwrap();
        for (name, target) in [("zero", "/dev/zero"), ("link", "fifo")] {
            std::os::unix::fs::symlink(target, make(name)).unwrap();
        }
        std::fs::create_dir(make("directory")).unwrap();
        let bytes = usize::try_from(BYTES_MAX).unwrap();
        std::fs::write(make("large"), " ".repeat(bytes + 1)).unwrap();
        std::fs::File::create(make("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(make("binary"), b"\xff").unwrap();
        std::fs::write(make("full"), " ".repeat(bytes)).unwrap();
        for name in ["fifo", "zero", "link", "directory", "binary"] {
            let refused = read_regular(&make(name)).unwrap().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{name}");
        }
        for name in ["large", "sparse"] {
            let refused = read_regular(&make(name)).unwrap().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::LimitExceeded, "{name}");
        }
        assert!(read_regular(&make("full")).unwrap().is_ok());
        assert_eq!(read_regular(&make("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        std::fs::remove_dir_all(&directory).unwrap();
    }

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
