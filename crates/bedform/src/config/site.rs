//! The sites whose sidecars are trusted, and the facts of this machine about them: real paths of their
//! roots, numbers of their owners.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use toml::de::DeValue;

use super::table::{SettingsTable, at_line, integer};
use crate::error::Result;

/// Limits: roots of sidecars, owners of one root, and bytes of a path or name.
const SITES_MAX: usize = 256;
const OWNERS_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 4096;

/// One of `[[sidecars]]`: the directory of the shared sidecars of an archive that many users read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarSite {
    /// The directory of the data.
    pub root: PathBuf,
    /// The directory of the sidecars.
    pub sidecars: PathBuf,
    /// The users whose files are trusted there.
    pub owners: Vec<SidecarOwner>,
}

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SidecarOwner {
    /// By name.
    Name(String),
    /// By number.
    Id(u32),
}

impl SidecarSite {
    pub(super) fn read_all(whole: &SettingsTable<'_>) -> Result<Vec<Self>> {
        let what = "tables: write [[sidecars]] above the settings of each";
        let Some(items) = whole.setting("sidecars", what, DeValue::as_array)? else {
            return Ok(Vec::new());
        };
        let mut all: Vec<Self> = Vec::new();
        for item in items {
            let start = item.span().start;
            let bad = |text: String| Err(at_line(whole.text, start, text));
            let Some(table) = item.get_ref().as_table() else {
                return bad(format!("sidecars takes {what}"));
            };
            let section = SettingsTable { text: whole.text, name: "[[sidecars]] ", table };
            let own = Self::read(&section, start)?;
            if all.iter().any(|other| other.root == own.root) {
                return bad(format!("[[sidecars]] has the root {} twice", own.root.display()));
            }
            if all.len() == SITES_MAX {
                return bad(format!("more than {SITES_MAX} [[sidecars]]"));
            }
            all.push(own);
        }
        Ok(all)
    }

    fn read(section: &SettingsTable<'_>, start: usize) -> Result<Self> {
        section.check_keys(&["root", "sidecars", "owners"])?;
        let directory = "an absolute path without . and .., such as \"/archive/era5\"";
        let owners =
            "a list of users by name, or by number without quotes, such as [\"root\", 1001]";
        let lacks = |key: &str, what: &str| {
            at_line(section.text, start, format!("[[sidecars]] lacks {key}: it takes {what}"))
        };
        let path = |key: &str| {
            let found = section.setting(key, directory, absolute_path)?;
            found.ok_or_else(|| lacks(key, directory))
        };
        let list = section.setting("owners", owners, |value| {
            let list = value.as_array().filter(|list| (1..=OWNERS_MAX).contains(&list.len()))?;
            list.iter().map(|one| SidecarOwner::of(one.get_ref())).collect::<Option<Vec<_>>>()
        })?;
        Ok(Self {
            root: path("root")?,
            sidecars: path("sidecars")?,
            owners: list.ok_or_else(|| lacks("owners", owners))?,
        })
    }
}

/// Parses an absolute path without `.` and `..`.
fn absolute_path(value: &DeValue<'_>) -> Option<PathBuf> {
    let text =
        value.as_str().filter(|text| text.len() <= TEXT_BYTES_MAX && !text.contains('\0'))?;
    let path = Path::new(text);
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let is_said = text.split('/').all(|part| part != "." && part != "..");
    // `components` drops doubled and trailing slashes, which change nothing.
    (path.is_absolute() && is_said && path.components().all(is_plain))
        .then(|| path.components().collect())
}

impl SidecarOwner {
    fn of(value: &DeValue<'_>) -> Option<Self> {
        let Some(name) = value.as_str() else {
            // The largest number stands for no user.
            let id = u32::try_from(integer(value)?).ok().filter(|id| *id != u32::MAX)?;
            return Some(Self::Id(id));
        };
        // A quoted number would name a user that no machine knows, and count for nobody in silence.
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = !is_number && name.len() <= TEXT_BYTES_MAX && !name.contains('\0');
        is_name.then(|| Self::Name(name.to_owned()))
    }

    /// The number of the user; `None` for a name that this machine does not know.
    #[allow(unsafe_code)]
    pub(crate) fn id(&self) -> Option<u32> {
        /// Bytes of buffer for the system's record of a user.
        const BYTES: usize = 16 << 10;
        let name = match self {
            Self::Id(id) => return Some(*id),
            Self::Name(name) => std::ffi::CString::new(name.as_str()).ok()?,
        };
        let mut buffer = vec![0; BYTES];
        let mut found = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut result = std::ptr::null_mut();
        // SAFETY: the name ends with a zero byte, the buffer has `buffer.len()` bytes, and all
        // addresses live until the call returns. The record is read only if the call reports that
        // it has filled it.
        unsafe {
            let failed = libc::getpwnam_r(
                name.as_ptr(),
                found.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut result,
            );
            (failed == 0 && !result.is_null()).then(|| found.assume_init().pw_uid)
        }
    }
}

/// Cached facts of this machine about a site, which every open needs.
#[derive(Debug, Default)]
pub(super) struct SiteCache {
    root: CachedFact<Path>,
    owners: CachedFact<[u32]>,
}

/// A value that is computed at most once.
#[derive(Debug)]
struct CachedFact<T: ?Sized>(Mutex<Option<Arc<T>>>);

impl<T: ?Sized> Default for CachedFact<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: ?Sized> CachedFact<T> {
    // A forked child may inherit the lock as held by a thread that it lacks, so nothing waits for
    // it.

    fn get(&self) -> Option<Arc<T>> {
        self.0.try_lock().ok()?.clone()
    }

    fn keep(&self, found: Arc<T>) -> Arc<T> {
        if let Ok(mut known) = self.0.try_lock() {
            *known = Some(found.clone());
        }
        found
    }
}

/// A site of a configuration file, with the facts of this machine.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedSite<'f> {
    pub(crate) site: &'f SidecarSite,
    pub(super) known: &'f SiteCache,
}

impl ResolvedSite<'_> {
    /// The root with links resolved; `None` if it does not exist.
    pub(crate) fn real_root(&self) -> Option<Arc<Path>> {
        let find = || Some(self.known.root.keep(self.site.root.canonicalize().ok()?.into()));
        self.known.root.get().or_else(find)
    }

    /// The user numbers of those owners that this machine knows.
    pub(crate) fn owner_ids(&self) -> Arc<[u32]> {
        self.known.owners.get().unwrap_or_else(|| {
            let ids: Arc<[u32]> = self.site.owners.iter().filter_map(SidecarOwner::id).collect();
            // An unknown owner may become known later.
            let are_all = ids.len() == self.site.owners.len();
            if are_all { self.known.owners.keep(ids) } else { ids }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    #[test]
    fn sites_of_sidecars_are_read_and_what_is_wrong_with_them_is_said() {
        let text = "[[sidecars]]\nroot = \"/archive/era5/\"\nsidecars = \"/fast//bedform\"\n\
                    owners = [\"root\", 1001]\n[[sidecars]]\nroot = \"/other\"\n\
                    sidecars = \"/fast/other\"\nowners = [0]\n";
        let sites = Configuration::parse(text).unwrap().sidecars;
        assert_eq!(sites.len(), 2);
        assert_eq!(sites[0].root, Path::new("/archive/era5"));
        assert_eq!(sites[0].sidecars, Path::new("/fast/bedform"));
        assert_eq!(
            sites[0].owners,
            [SidecarOwner::Name("root".to_owned()), SidecarOwner::Id(1001)]
        );
        assert_eq!(sites[0].owners[0].id(), Some(0));
        assert_eq!(SidecarOwner::Name("no user has this name".to_owned()).id(), None);
        let path = "an absolute path without . and .., such as \"/archive/era5\"";
        let list = "a list of users by name, or by number without quotes, such as [\"root\", 1001]";
        let with = |root: &str, owners: &str| {
            format!("[[sidecars]]\nroot = {root}\nsidecars = \"/s\"\nowners = {owners}\n")
        };
        let long = format!("\"/{}\"", "a".repeat(TEXT_BYTES_MAX));
        for root in ["\"archive\"", "\"\"", "\"/a/../b\"", "\"/a/./b\"", "\"/a\\u0000\"", "3"] {
            let error = Configuration::parse(&with(root, "[0]")).unwrap_err().to_string();
            let said = format!("line 2: [[sidecars]] root is {root}; it takes {path}");
            assert_eq!(error, said);
        }
        // Long values are shortened.
        let error = Configuration::parse(&with(&long, "[0]")).unwrap_err().to_string();
        assert!(error.starts_with("line 2: [[sidecars]] root is") && error.ends_with(path));
        let many = format!("[{}]", ["1"; OWNERS_MAX + 1].join(", "));
        for owners in
            ["[]", "\"root\"", "[-1]", "[4294967295]", "[1.5]", "[\"\"]", "[\"0\"]", "[[0]]", &many]
        {
            let error = Configuration::parse(&with("\"/a\"", owners)).unwrap_err().to_string();
            let said = format!("line 4: [[sidecars]] owners is {owners}; it takes {list}");
            assert_eq!(error, said);
        }
        let twice = with("\"/a\"", "[0]") + &with("\"/a/\"", "[1]");
        let text = |number: usize| with(&format!("\"/{number}\""), "[0]");
        let too_many: String = (0..=SITES_MAX).map(text).collect();
        for (text, said) in [
            ("[sidecars]\n", "tables: write [[sidecars]] above the settings of each"),
            ("sidecars = [3]\n", "tables: write [[sidecars]] above the settings of each"),
            ("[[sidecars]]\n", "line 1: [[sidecars]] lacks root"),
            ("[[sidecars]]\nroot = \"/a\"\n", "line 1: [[sidecars]] lacks sidecars"),
            (
                "[[sidecars]]\nroot = \"/a\"\nsidecars = \"/b\"\n",
                "line 1: [[sidecars]] lacks owners",
            ),
            ("[[sidecars]]\nowner = 1\n", "line 2: [[sidecars]] owner is not known"),
            (&twice, "line 5: [[sidecars]] has the root /a twice"),
            (&too_many, "more than 256 [[sidecars]]"),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_a_machine_does_not_know_of_a_site_yet_is_asked_again() {
        let directory = std::env::temp_dir().join(format!("bedform-site-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("real")).unwrap();
        let root = directory.join("root");
        let owners =
            vec![SidecarOwner::Name("no user has this name".to_owned()), SidecarOwner::Id(7)];
        let site = SidecarSite { root: root.clone(), sidecars: PathBuf::new(), owners };
        let known = SiteCache::default();
        let here = ResolvedSite { site: &site, known: &known };
        assert_eq!(here.real_root(), None);
        std::os::unix::fs::symlink("real", &root).unwrap();
        let real = directory.join("real").canonicalize().unwrap();
        assert_eq!(here.real_root().as_deref(), Some(&*real));
        assert_eq!(*here.owner_ids(), [7]);
        let site = SidecarSite { owners: vec![SidecarOwner::Id(7), SidecarOwner::Id(8)], ..site };
        let here = ResolvedSite { site: &site, known: &known };
        assert_eq!(*here.owner_ids(), [7, 8]);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(here.real_root().as_deref(), Some(&*real));
    }
}
