//! Checks a store: what the newest root of its log names, then every object of its arrays.
//!
//! In this order, so that data which are settled meanwhile are checked in one place or the other.

use std::collections::{BTreeSet, HashSet};

use bedform_format::ObjectPath;

use super::{NodeKind, Store};
use crate::array::Array;
use crate::array::verify::stopped;
use crate::error::{Error, ErrorKind, Result};
use crate::log::check::{Asked, check_log};

/// Roots that are checked while others settle.
const ATTEMPTS_MAX: usize = 100;

/// Who watches a check. Both functions are called on the thread that checks.
#[derive(Clone, Copy)]
pub struct VerifyWatch<'a> {
    /// Whether to stop.
    pub interrupted: &'a dyn Fn() -> bool,
    /// Told how many steps of how many are done: sections of the log, and arrays.
    pub progress: &'a dyn Fn(u64, u64),
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// A line for everything that is damaged: an object, a chunk, a record or blocks of the log.
    pub problems: Vec<String>,
    /// The arrays of which objects are not there.
    pub absent: Vec<AbsentObjects>,
}

/// Objects of an array that are not there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbsentObjects {
    /// The array.
    pub array: ObjectPath,
    /// How many: of those without data in the log nothing tells whether they were never written or
    /// are lost.
    pub objects: u64,
    /// Objects that the array's shape has room for.
    pub of: u64,
    /// Those of `objects` that the log has data of.
    pub in_log: u64,
}

impl Store {
    /// Reads everything that is stored of `arrays`, or of all, and says what is damaged: every
    /// object, and of the log all that its newest root names. That includes commits which the
    /// objects have taken over, until settling drops them from the root: a read that began before
    /// goes by them. Roots that are no longer the newest, and what writers left without a commit,
    /// are not looked at.
    ///
    /// Memory is bounded by a chunk or a request of 2 MiB, the descriptions that readers keep of a
    /// log (128 MiB), and the numbers of objects. Others may write and settle meanwhile.
    ///
    /// # Errors
    /// `NotFound` for a name that is no array; `Interrupted`; those of storage, and of documents
    /// without which there is no saying what is stored.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bedform::store::VerifyWatch;
    /// use bedform::{OpenOptions, Store};
    /// use bedform_storage::MemoryStorage;
    /// let mut options = OpenOptions::default();
    /// options.writable = true;
    /// let store = Store::create(Arc::new(MemoryStorage::new()), &serde_json::Map::new(), options)?;
    /// let watch = VerifyWatch { interrupted: &|| false, progress: &|_, _| () };
    /// assert!(store.verify(None, &watch)?.problems.is_empty());
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn verify(
        &self,
        arrays: Option<&[ObjectPath]>,
        watch: &VerifyWatch<'_>,
    ) -> Result<Verified> {
        let mut problems = Vec::new();
        let mut opened = Vec::new();
        for path in self.paths_of(arrays)? {
            match self.array(&path) {
                Ok(array) => opened.push(array),
                Err(error) => note(error, &mut problems)?,
            }
        }
        let mut found = self.verify_arrays(&opened, arrays.is_none(), watch)?;
        found.problems.splice(0..0, problems);
        Ok(found)
    }

    fn paths_of(&self, arrays: Option<&[ObjectPath]>) -> Result<Vec<ObjectPath>> {
        let root = ObjectPath::root();
        let nodes = self.nodes()?;
        let is_array = |path: &ObjectPath| {
            nodes.get(path) == Some(&NodeKind::Array)
                || (*path == root && matches!(self.kind(&root), Ok(Some(NodeKind::Array))))
        };
        let Some(arrays) = arrays else {
            let all = [&root].into_iter().chain(nodes.keys());
            return Ok(all.filter(|path| is_array(path)).cloned().collect());
        };
        match arrays.iter().find(|path| !is_array(path)) {
            None => Ok(arrays.to_vec()),
            Some(missing) => Err(Error::new(
                ErrorKind::NotFound,
                format!("{} has no array {missing}", self.storage().name()),
            )),
        }
    }

    /// As [`Store::verify`]; `is_all` for what the log has of arrays that were removed, too.
    pub(crate) fn verify_arrays(
        &self,
        arrays: &[Array],
        is_all: bool,
        watch: &VerifyWatch<'_>,
    ) -> Result<Verified> {
        let count = arrays.len() as u64;
        let mut sections = 0;
        let mut step = |done: u64, all: u64| {
            sections = all;
            if (watch.interrupted)() {
                return Err(stopped());
            }
            if all > 0 {
                (watch.progress)(done, all + count);
            }
            Ok(())
        };
        let mut found = self.verify_log(arrays, is_all, watch.interrupted, &mut step)?;
        for (done, array) in (0..).zip(arrays) {
            (watch.progress)(sections + done, sections + count);
            let mut add = |line| found.problems.push(line);
            if let Err(error) = array.verify_objects(watch.interrupted, &mut add) {
                note(error, &mut found.problems)?;
            }
        }
        (watch.progress)(sections + count, sections + count);
        // What several arrays need is damaged once.
        let mut said = HashSet::new();
        found.problems.retain(|line| said.insert(line.clone()));
        Ok(found)
    }

    /// Checks the log, and counts the objects that are not there.
    fn verify_log(
        &self,
        arrays: &[Array],
        is_all: bool,
        interrupted: &dyn Fn() -> bool,
        step: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Verified> {
        let mut missing = BTreeSet::new();
        for _ in 0..ATTEMPTS_MAX {
            self.shared.look_again()?;
            let view = self.shared.snapshot()?.view;
            let mut asked = Asked { arrays: Vec::new(), is_all };
            let (mut paths, mut problems) = (Vec::new(), Vec::new());
            for array in arrays {
                step(0, 0)?;
                // An error is said when its objects are checked.
                if let Ok(checked) = array.checked(interrupted) {
                    asked.arrays.push(checked);
                    paths.push(array.path().clone());
                }
            }
            if let Some(view) = view {
                let found = check_log(&view, &mut asked, step)?;
                // What a root names that was pinned after it was seen to be missing is lost.
                if !found.missing.is_subset(&missing) {
                    missing = found.missing;
                    continue;
                }
                problems = found.lines;
            }
            let absent = paths.into_iter().zip(&asked.arrays).filter_map(|(array, checked)| {
                let of = checked.grid.iter().fold(1, |all, count| u64::saturating_mul(all, *count));
                let objects = of.saturating_sub(checked.stored.len() as u64);
                let in_log = checked.logged.len() as u64;
                (objects > 0).then_some(AbsentObjects { array, objects, of, in_log })
            });
            return Ok(Verified { absent: absent.collect(), problems });
        }
        Err(Error::new(
            ErrorKind::SnapshotMoved,
            format!(
                "{} was settled {ATTEMPTS_MAX} times meanwhile: try again",
                self.storage().name()
            ),
        ))
    }
}

/// Notes what is damaged; other errors end the check.
fn note(error: Error, problems: &mut Vec<String>) -> Result<()> {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Conflict => {
            problems.push(error.to_string());
            Ok(())
        }
        _ => Err(error),
    }
}
