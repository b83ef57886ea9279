//! Writing: buffers, sections, commits.
//!
//! A session takes boxes of arrays in the order in which they come. Nothing that it took is visible
//! before [`Session::commit`], and then all of it at once; `docs/log.md` says how, and why that holds
//! when something fails.

mod end;

use std::collections::{BTreeMap, HashMap};

use bedform_format::ObjectPath;
use bedform_format::log::{
    CommitRecord, Directory, RecordKind, Root, SectionBuilder, SectionPlace, Touched,
};
use bedform_format::metadata::LogState;
use bedform_geometry::Selection;

use super::boxes::parts_of;
use super::place::LogPlace;
use super::segment::{BLOCK_BYTES, Segment};
use crate::array::Elements;
use crate::comm::{COORDINATOR, Communicator, Group, agree};
use crate::error::{Error, ErrorKind, Result};
use crate::read::scatter::Target;
use crate::store::{Store, random_key, set_log_state};

pub use end::{AtEnd, decline};

/// Roots that are tried while other commits are faster.
const ATTEMPTS_MAX: usize = 1000;

/// How a session writes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Bytes that wait in memory to be written; what is more makes [`Session::write`] wait.
    pub buffer_bytes: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { buffer_bytes: 64 << 20 }
    }
}

/// One writing session of a process, or of one of the processes that write together.
///
/// ```
/// use bedform::comm::Alone;
/// use bedform::log::session::SessionOptions;
/// use bedform::{ArrayLayout, Elements, NewArray, OpenOptions, Store};
/// use bedform_format::{DataType, ObjectPath, metadata::FillValue};
/// use bedform_geometry::{Order, Selection};
/// use bedform_storage::MemoryStorage;
/// use std::sync::Arc;
///
/// let mut options = OpenOptions::default();
/// options.writable = true;
/// let storage = Arc::new(MemoryStorage::new());
/// let store = Store::create(storage, &Default::default(), options)?;
/// let path = ObjectPath::parse("t").unwrap();
/// let layout = ArrayLayout {
///     chunk_shape: vec![2],
///     shard_shape: vec![4],
///     order: Order::RowMajor,
///     codecs: vec![],
///     transpose: None,
///     checksum: true,
/// };
/// let fill_value = FillValue::zero(DataType::UInt8);
/// let array = store.create_array(&path, &NewArray {
///     shape: vec![8], data_type: DataType::UInt8, layout, fill_value,
///     dimension_names: None, attributes: Default::default(),
/// })?;
///
/// let mut session = store.session(Box::new(Alone), SessionOptions::default())?;
/// session.write(&path, &Selection::all(&[8]), Elements::Bytes(&[7; 8]))?;
/// assert_eq!(session.commit()?, 1);
/// let mut bytes = [0; 8];
/// array.read(&Selection::all(&[8]), &mut bytes, &|| false)?;
/// assert_eq!(bytes, [7; 8]);
/// # Ok::<(), bedform::Error>(())
/// ```
pub struct Session {
    store: Store,
    members: Box<dyn Communicator>,
    options: SessionOptions,
    log: LogPlace,
    writer: [u8; 16],
    segment: Option<Segment>,
    block: Vec<u8>,
    builder: SectionBuilder,
    arrays: HashMap<ObjectPath, Known>,
    epoch: u32,
    /// False once something failed that leaves the session without a known state.
    is_sound: bool,
}

/// An array that this session has written to.
struct Known {
    /// In the section.
    number: u32,
    item_size: usize,
    shape: Vec<u64>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("store", &self.store.storage().name())
            .field("rank", &self.members.rank())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Starts a session of `members`, all of which make this call.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a store that is no group of Bedform's; those of storage and of
    /// the other members.
    pub fn session(
        &self,
        members: Box<dyn Communicator>,
        options: SessionOptions,
    ) -> Result<Session> {
        // Whose program fails between two commits leaves, and nobody waits for it.
        let members: Box<dyn Communicator> = Box::new(Group::new(members));
        let outcome = self.shared.check_writable().and_then(|()| self.shared.log_place());
        let log = agree(&*members, outcome)?;
        Ok(Session {
            store: self.clone(),
            members,
            options,
            log,
            writer: random_key()?,
            segment: None,
            block: Vec::new(),
            builder: SectionBuilder::default(),
            arrays: HashMap::new(),
            epoch: 0,
            is_sound: true,
        })
    }
}

impl Session {
    /// Takes `elements` for `selection` of the array at `path`. They are copied; nothing is visible
    /// before the commit. Where writes overlap, the later one counts; between members, that of the
    /// later epoch (collective calls count epochs), then of the higher rank.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` by the selection or the number of elements; `Unsupported` for
    /// arrays of text; what writing in the background failed with.
    pub fn write(
        &mut self,
        path: &ObjectPath,
        selection: &Selection,
        elements: Elements<'_>,
    ) -> Result<()> {
        self.check_sound()?;
        let known = self.known(path)?;
        let (number, item, shape) = (known.number, known.item_size, known.shape.clone());
        let name = || path.to_string();
        selection.validate(&shape).map_err(|error| Error::from(error).at(name()))?;
        let Elements::Bytes(bytes) = elements else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{path} holds text, which sessions do not take; write it directly"),
            ));
        };
        let needed = selection.len().and_then(|count| count.checked_mul(item as u64));
        if needed != Some(bytes.len() as u64) {
            return Err(Error::invalid(format!(
                "{} bytes were given for {path}, the selection needs {}",
                bytes.len(),
                needed
                    .map_or_else(|| "more than there can be".to_owned(), |bytes| bytes.to_string())
            )));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let parts = parts_of(selection, shape.len(), item)?;
        let rank = self.members.rank();
        self.builder.write(number, parts.boxes, self.epoch, rank).map_err(to_error)?;
        match parts.copies {
            None => self.take(bytes),
            Some(copies) => {
                let mut gathered = Vec::new();
                for (length, copy) in copies {
                    gathered.resize(length, 0);
                    let target = Target::new(&mut gathered);
                    // SAFETY: this thread alone has the buffer.
                    unsafe { copy.run(bytes, target, item, 1)? };
                    self.take(&gathered)?;
                }
                Ok(())
            }
        }
    }

    /// What is known of the array at `path`, looked up at its first write in this commit.
    fn known(&mut self, path: &ObjectPath) -> Result<&Known> {
        if !self.arrays.contains_key(path) {
            let array = self.store.array(path)?;
            let state = array.state()?;
            let Some(identity) = state.identity().filter(|_| state.shard().is_some()) else {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{} has no shards of Bedform's, so a session cannot write to it; convert \
                         the store with 'bedform convert', or write to the array directly",
                        array.name()
                    ),
                ));
            };
            if state.is_text() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("{path} holds text, which sessions do not take; write it directly"),
                ));
            }
            let (key, shape) = (identity.array, state.metadata.shape.clone());
            let item = u32::try_from(state.item_size).unwrap_or(u32::MAX);
            let number = self.builder.array(key, item, &shape).map_err(to_error)?;
            let known = Known { number, item_size: state.item_size, shape };
            self.arrays.insert(path.clone(), known);
        }
        self.arrays.get(path).ok_or_else(|| Error::invalid("no such array"))
    }

    /// Adds bytes to the section's data, and sends full blocks on their way.
    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.block.capacity() == 0 {
                self.block = self.segment()?.buffer();
            }
            let room = BLOCK_BYTES - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.send_block()?;
            }
        }
        Ok(())
    }

    fn send_block(&mut self) -> Result<()> {
        let block = std::mem::take(&mut self.block);
        if block.is_empty() {
            return Ok(());
        }
        let outcome = self.segment()?.append(block);
        self.is_sound &= outcome.is_ok();
        outcome
    }

    /// The segment, which the first byte creates.
    fn segment(&mut self) -> Result<&Segment> {
        if self.segment.is_none() {
            let durability = self.store.options().durability;
            let bytes = self.options.buffer_bytes;
            self.segment = Some(Segment::create(&self.log, self.writer, 0, durability, bytes)?);
        }
        self.segment.as_ref().ok_or_else(|| Error::invalid("no segment"))
    }

    fn check_sound(&self) -> Result<()> {
        if self.is_sound {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Poisoned,
            "an earlier write of this session failed; what was committed before stands: start a new \
             session",
        ))
    }

    /// Makes everything that the members wrote since the last commit visible, all at once, in all of
    /// them or in none; durable on return. Collective. Gives the number of the commit.
    ///
    /// # Errors
    /// The first error of any member, on all; nothing is visible then. `Conflict` if another writer
    /// has changed an array's shape, or deleted it.
    pub fn commit(&mut self) -> Result<u64> {
        self.epoch += 1;
        let outcome = self.check_sound().and_then(|()| self.write_section());
        let mine = agree(&*self.members, outcome)?;
        let directory = match self.members.gather(&mine, COORDINATOR)? {
            Some(parts) => self.write_directory(&parts),
            None => Ok(None),
        };
        let synced = directory.and_then(|directory| {
            self.segment.as_ref().map_or(Ok(()), Segment::sync)?;
            Ok(directory)
        });
        let directory = agree(&*self.members, synced)?;
        let published = match self.members.rank() {
            COORDINATOR => self.publish(directory),
            _ => Ok(0),
        };
        let number = agree(&*self.members, published)?;
        let told = self.members.broadcast(number.to_le_bytes().to_vec(), COORDINATOR)?;
        Ok(told.try_into().map_or(number, u64::from_le_bytes))
    }

    /// Writes the section of this commit; gives what the directory is to say of it, nothing if there
    /// is nothing to say.
    fn write_section(&mut self) -> Result<Vec<u8>> {
        self.send_block()?;
        if self.arrays.is_empty() {
            return Ok(Vec::new());
        }
        // The next commit looks the arrays up again.
        self.arrays.clear();
        let mut builder = std::mem::take(&mut self.builder);
        let rank_first = self.members.rank();
        let limits = self.store.options().limits.clone();
        let segment = self.segment()?;
        segment.written()?.into_iter().for_each(|block| builder.block(block));
        let section = builder.finish();
        let body = section.encode(&limits).map_err(to_error)?;
        let place = segment.record(RecordKind::Section, body)?;
        let (offset, stored_bytes, bytes) = (place.offset, place.stored_bytes, place.bytes);
        let arrays = section.touched().map_err(to_error)?;
        let section = SectionPlace { segment: 0, offset, stored_bytes, bytes, rank_first, arrays };
        let alone =
            Directory { segments: vec![segment.name().to_owned()], sections: vec![section] };
        alone.encode(&limits).map_err(to_error)
    }

    /// Writes the directory of this commit, of what the members said of their sections.
    fn write_directory(&mut self, parts: &[Vec<u8>]) -> Result<Option<Written>> {
        let limits = self.store.options().limits.clone();
        let mut all = Directory::default();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let one = Directory::decode(part, &limits).map_err(to_error)?;
            let first = u32::try_from(all.segments.len()).unwrap_or(u32::MAX);
            all.segments.extend(one.segments);
            all.sections.extend(one.sections.into_iter().map(|mut section| {
                section.segment += first;
                section
            }));
        }
        if all.sections.is_empty() {
            return Ok(None);
        }
        let body = all.encode(&limits).map_err(to_error)?;
        let segment = self.segment()?;
        let place = segment.record(RecordKind::Directory, body)?;
        let record = CommitRecord {
            number: 0,
            segment: segment.name().to_owned(),
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            bytes: place.bytes,
            codec: place.codec,
        };
        let arrays = all.sections.into_iter().flat_map(|section| section.arrays).collect();
        Ok(Some(Written { record, arrays }))
    }

    /// Publishes the root that has the commit.
    fn publish(&self, directory: Option<Written>) -> Result<u64> {
        let mut newest = self.log.newest(None)?;
        let Some(directory) = directory else {
            return Ok(newest.map_or(0, |root| root.number));
        };
        for _ in 0..ATTEMPTS_MAX {
            let settled = self.store.shared.snapshot()?.number;
            let root = successor(newest.as_deref(), settled, &self.log, &directory.record);
            // While there are commits nobody makes an array smaller or deletes it: see `open_log`.
            let outcome = match newest.as_ref().is_none_or(|root| root.commits.is_empty()) {
                true => self.open_log(&root, &directory.arrays),
                false => {
                    self.check_arrays(&directory.arrays).and_then(|()| self.log.publish(&root))
                }
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
}

impl Session {
    /// Publishes the first root with a commit, or the first after all were settled. The lock is that
    /// of whoever settles: see `Store::close_log`.
    fn open_log(&self, root: &Root, arrays: &[Touched]) -> Result<()> {
        let shared = &self.store.shared;
        let _lock = shared.lock(&ObjectPath::root())?;
        self.check_arrays(arrays)?;
        self.log.prepare()?;
        let settled = root.settled;
        set_log_state(shared, LogState { pending: true, settled })?;
        self.log.publish(root)
    }
}

impl Session {
    /// Fails if an array that the commit touches is gone, or has become too small for it.
    fn check_arrays(&self, touched: &[Touched]) -> Result<()> {
        let shapes = self.store.shared.shapes_by_key()?;
        for part in touched {
            let shape = shapes.get(&part.key);
            let fits = shape.is_some_and(|shape| {
                shape.len() == part.end.len() && part.end.iter().zip(shape).all(|(e, n)| e <= n)
            });
            if !fits {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "an array of {} was deleted or made smaller since it was written to; \
                         nothing of this commit is visible: start a new session",
                        self.store.storage().name()
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// The root after `newest`, with one more commit, whose directory lies at `directory`; the first one
/// goes on from the last number that was `settled`.
fn successor(
    newest: Option<&Root>,
    settled: u64,
    log: &LogPlace,
    directory: &CommitRecord,
) -> Root {
    let mut root = newest.cloned().unwrap_or_else(|| Root {
        store: log.store,
        number: settled,
        settled,
        commits: Vec::new(),
        shapes: BTreeMap::new(),
    });
    root.number += 1;
    root.commits.push(CommitRecord { number: root.number, ..directory.clone() });
    root
}

/// The directory of a commit that is on its way.
struct Written {
    record: CommitRecord,
    /// What the commit touches.
    arrays: Vec<Touched>,
}

fn to_error(error: bedform_format::log::LogError) -> Error {
    Error::invalid(error.to_string())
}
