//! What the members of a session do together to commit: `docs/log.md` gives the order and the reasons.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::{CommitRecord, Directory, GrownArray, Root, Touched};
use bedform_format::metadata::LogState;
use bedform_storage::{Durability, Lock, Version};

use super::place::LogPlace;
use super::segment::to_error;
use super::session::{Known, Session};
use crate::comm::decide;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Shared, set_log_state};

/// Roots that are tried while other commits are faster.
const ATTEMPTS_MAX: usize = 1000;

/// Paths and shapes of arrays by their keys, as of one version of the store's document: what is
/// looked at again only when that has changed.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    version: Option<Version>,
    by_key: Arc<ByKey>,
}

impl Shapes {
    /// Those that the store's document has now. The caller holds what keeps it from changing.
    fn now(&mut self, shared: &Shared) -> Result<Arc<ByKey>> {
        let root = shared.documents.read_root(shared)?;
        let version = root.map(|root| root.version.clone());
        if version.is_none() || self.version != version {
            self.by_key = Arc::new(shared.shapes_by_key()?);
            self.version = version;
        }
        Ok(self.by_key.clone())
    }
}

impl Session {
    /// Makes everything that the members wrote since the last commit visible, all at once, in all of
    /// them or in none; durable on return. Collective. Gives the number of the commit.
    ///
    /// # Errors
    /// The first error of any member, on all; nothing is visible then. `Conflict` if another writer
    /// has appended to an array that this session appends to, has made one smaller, or deleted it.
    pub fn commit(&mut self) -> Result<u64> {
        let mine = self.check_sound().and_then(|()| self.finish());
        let members = self.members.clone();
        let told =
            decide(&*members, mine, |parts| Ok(self.commit_all(&parts)?.to_le_bytes().to_vec()));
        self.count_epoch();
        self.appended.clear();
        let number = told?.try_into().map_err(|_| Error::invalid("the coordinator erred"))?;
        Ok(u64::from_le_bytes(number))
    }

    /// Makes this member's part of the commit durable, and says what it is; nothing if there is nothing
    /// to say.
    fn finish(&mut self) -> Result<Vec<u8>> {
        let commit = self.commit_id();
        // The next commit looks the arrays up again.
        let arrays = std::mem::take(&mut self.arrays);
        let grown: Vec<GrownArray> = arrays.into_values().filter_map(Known::into_grown).collect();
        let sync = self.store.options().durability == Durability::Disk;
        let (segments, sections) = match &mut self.stream {
            Some(stream) => {
                let sections = stream.finish(commit, sync)?;
                (vec![stream.segment().name().to_owned()], sections)
            }
            None => (Vec::new(), Vec::new()),
        };
        if sections.is_empty() && grown.is_empty() {
            return Ok(Vec::new());
        }
        let mine = Directory { commit, segments, sections, grown };
        mine.encode(&self.store.options().limits).map_err(to_error)
    }

    /// Commits what the members say they have.
    fn commit_all(&mut self, parts: &[Vec<u8>]) -> Result<u64> {
        let mut directory = self.merge(parts)?;
        if directory.sections.is_empty() && directory.grown.is_empty() {
            return Ok(self.log.newest(None)?.map_or(0, |root| root.number));
        }
        // From here on nobody else makes these arrays larger.
        let _locks = self.lock_grown(&directory)?;
        self.settle_growth(&mut directory)?;
        let body = directory.encode(&self.store.options().limits).map_err(to_error)?;
        let segment = self.stream()?.segment();
        let place = segment.directory(body)?;
        let record = CommitRecord {
            number: 0,
            segment: segment.name().to_owned(),
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            bytes: place.bytes,
            codec: place.codec,
        };
        self.publish(&directory, &record)
    }

    /// One directory of those of all members.
    fn merge(&self, parts: &[Vec<u8>]) -> Result<Directory> {
        let limits = &self.store.options().limits;
        let mut all = Directory { commit: self.commit_id(), ..Directory::default() };
        let mut grown = BTreeMap::<[u8; 16], GrownArray>::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let one = Directory::decode(part, limits).map_err(to_error)?;
            let first = u32::try_from(all.segments.len()).unwrap_or(u32::MAX);
            all.segments.extend(one.segments);
            all.sections.extend(one.sections.into_iter().map(|mut section| {
                section.segment += first;
                section
            }));
            for array in one.grown {
                let known = grown.entry(array.key).or_insert_with(|| array.clone());
                enlarge(&mut known.shape, &array.shape);
            }
        }
        all.grown = grown.into_values().collect();
        Ok(all)
    }

    /// The locks of the arrays that the commit makes larger: direct appends hold them, too.
    fn lock_grown(&mut self, directory: &Directory) -> Result<Vec<Box<dyn Lock>>> {
        if directory.grown.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.store.clone();
        let by_key = self.shapes.now(&store.shared)?;
        let arrays = directory.grown.iter().filter_map(|array| by_key.get(&array.key));
        let mut paths: Vec<&ObjectPath> = arrays.map(|(path, _)| path).collect();
        // Always in the order of paths, so that two writers cannot wait for each other.
        paths.sort_unstable();
        paths.into_iter().map(|path| store.shared.lock(path)).collect()
    }

    /// Says from which shape each array grows. The caller holds their locks.
    ///
    /// # Errors
    /// `Conflict` if an array is gone, or somebody else has appended where this session does.
    fn settle_growth(&mut self, directory: &mut Directory) -> Result<()> {
        if directory.grown.is_empty() {
            return Ok(());
        }
        let newest = self.log.newest(None)?;
        let store = self.store.clone();
        let by_key = self.shapes.now(&store.shared)?;
        for array in &mut directory.grown {
            let now = shape_in(&by_key, newest.as_deref(), &array.key);
            let Some(now) = now.filter(|now| now.len() == array.shape.len()) else {
                return Err(self.conflict("an array was deleted"));
            };
            if let Some((axis, base)) = self.appended.get(&array.key)
                && now.get(*axis) != Some(base)
            {
                return Err(self.conflict("another writer has appended to an array"));
            }
            enlarge(&mut array.shape, &now);
            array.base = now;
        }
        directory.grown.retain(|array| array.base != array.shape);
        Ok(())
    }

    /// Publishes the root that has the commit.
    fn publish(&mut self, directory: &Directory, record: &CommitRecord) -> Result<u64> {
        let mut newest = self.log.newest(None)?;
        for _ in 0..ATTEMPTS_MAX {
            let settled = self.store.shared.snapshot()?.number;
            let root = self.successor(newest.as_deref(), settled, directory, record);
            // While there are commits nobody makes an array smaller or deletes it: see `open_log`.
            let outcome = match newest.as_ref().is_none_or(|root| root.commits.is_empty()) {
                true => self.open_log(&root, directory),
                false => self.check_arrays(&root, directory).and_then(|()| self.log.publish(&root)),
            };
            match outcome {
                Ok(()) => return Ok(root.number),
                Err(error) if error.kind() == ErrorKind::Exists => {
                    newest = self.log.newest(newest.as_ref())?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("other writers of {} were faster {ATTEMPTS_MAX} times; retry", self.log.name()),
        ))
    }

    /// Publishes the first root with a commit, or the first after all were settled. The lock is that
    /// of whoever settles: see `Store::close_log`.
    fn open_log(&mut self, root: &Root, directory: &Directory) -> Result<()> {
        let store = self.store.clone();
        let _lock = store.shared.lock(&ObjectPath::root())?;
        self.check_arrays(root, directory)?;
        self.log.prepare()?;
        let settled = root.settled;
        set_log_state(&store.shared, LogState { pending: true, settled })?;
        self.log.publish(root)
    }

    /// Fails if an array that the commit touches is gone, or is too small for it.
    fn check_arrays(&mut self, root: &Root, directory: &Directory) -> Result<()> {
        let store = self.store.clone();
        let by_key = self.shapes.now(&store.shared)?;
        let touched = directory.sections.iter().flat_map(|section| &section.arrays);
        for Touched { key, end, .. } in touched {
            let fits = shape_in(&by_key, Some(root), key).is_some_and(|shape| {
                shape.len() == end.len() && end.iter().zip(&shape).all(|(e, n)| e <= n)
            });
            if !fits {
                return Err(self.conflict("an array was deleted or made smaller"));
            }
        }
        Ok(())
    }

    fn conflict(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Conflict,
            format!(
                "{what} of {} since this session looked at it; nothing of this commit is visible: \
                 start a new session",
                self.store.storage().name()
            ),
        )
    }

    /// The root after `newest`, with one more commit, whose directory lies at `record`; the first one
    /// goes on from the last number that was `settled`.
    fn successor(
        &self,
        newest: Option<&Root>,
        settled: u64,
        directory: &Directory,
        record: &CommitRecord,
    ) -> Root {
        let mut root = newest.cloned().unwrap_or_else(|| first_root(&self.log, settled));
        root.number += 1;
        root.commits.push(CommitRecord { number: root.number, ..record.clone() });
        root.sessions.insert(directory.commit.session, directory.commit.epoch);
        for GrownArray { key, shape, .. } in &directory.grown {
            enlarge(root.shapes.entry(*key).or_insert_with(|| shape.clone()), shape);
        }
        root
    }
}

type ByKey = HashMap<[u8; 16], (ObjectPath, Vec<u64>)>;

/// The shape of an array after the commits of `root`.
fn shape_in(by_key: &ByKey, root: Option<&Root>, key: &[u8; 16]) -> Option<Vec<u64>> {
    let mut shape = by_key.get(key)?.1.clone();
    if let Some(grown) = root.and_then(|root| root.shapes.get(key)) {
        enlarge(&mut shape, grown);
    }
    Some(shape)
}

/// The root of a log without commits.
fn first_root(log: &LogPlace, settled: u64) -> Root {
    Root {
        store: log.store,
        number: settled,
        settled,
        commits: Vec::new(),
        shapes: BTreeMap::new(),
        sessions: BTreeMap::new(),
    }
}

/// Makes `shape` as large as `other` along every axis.
pub(crate) fn enlarge(shape: &mut [u64], other: &[u64]) {
    shape.iter_mut().zip(other).for_each(|(length, other)| *length = (*length).max(*other));
}
