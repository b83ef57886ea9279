//! What is configured beside the programs: `bedform.toml` and variables of the environment.
//!
//! The file lies beside the store, or where `BEDFORM_CONFIG` says. Variables count more than it does.
//! A key that is not known is an error: it may be misspelt.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bedform_storage::{Pace, Throttle};
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The burst tier.
    pub burst: Option<BurstConfiguration>,
    /// What may wait to be settled.
    pub settle: Option<SettleConfiguration>,
}

/// `[settle]`: of sessions that settle in the background.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleConfiguration {
    /// Bytes of elements that may wait.
    pub bytes: Option<Size>,
    /// Commits that may wait.
    pub commits: Option<std::num::NonZeroU64>,
}

/// `[burst]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstConfiguration {
    /// Its directory.
    pub path: PathBuf,
    /// Bytes that one writer may have there.
    pub capacity: Option<Size>,
}

/// A number of bytes: an integer, or text such as `"10 GiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SizeText")]
pub struct Size(u64);

impl Size {
    /// The number.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SizeText {
    Number(u64),
    Text(String),
}

impl TryFrom<SizeText> for Size {
    type Error = Error;

    fn try_from(given: SizeText) -> Result<Self> {
        match given {
            SizeText::Number(bytes) => Ok(Self(bytes)),
            SizeText::Text(text) => size::from_text(&text).map(Self),
        }
    }
}

impl Configuration {
    /// The configuration that `text` holds.
    ///
    /// # Errors
    /// `InvalidArgument` says the line and the key at fault.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            Error::invalid(format!("line {line}: {}", error.message().replace('\n', " ")))
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
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
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
            Mode::RUSR | Mode::WUSR,
            no_device,
        )
        .unwrap();
        for (name, target) in [("zero", "/dev/zero"), ("link", "fifo")] {
            std::os::unix::fs::symlink(target, make(name)).unwrap();
        }
        std::fs::create_dir(make("directory")).unwrap();
        let bytes = usize::try_from(BYTES_MAX).unwrap();
        std::fs::write(make("large"), " ".repeat(bytes + 1)).unwrap();
        File::create(make("sparse")).unwrap().set_len(1 << 40).unwrap();
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
}
