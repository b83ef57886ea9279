//! Sessions: writes of one process, or of the processes of a job together.
//!
//! A session takes boxes of arrays in the order of the calls. No data are visible before
//! [`Session::commit`], and then all of them at once; `docs/log-explained.md` explains how, and why
//! that holds when a step fails. `write` has the calls that write, `create` those that create
//! arrays, `end` the ends of a session; `stream` has the data of one member, `commit` the
//! collective steps.
//!
//! A collective call begins with its name (`Session::enter`), so that differing calls are detected
//! before they take effect.

mod alike;
mod background;
mod create;
mod end;
mod options;
mod write;

use crate::log::array::ArrayHandle;
use crate::log::opened::OpenedStore;
use crate::zarr::publish::random_key;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bedform_format::log::{CommitId, GrownArray, Lane, SectionPlace, SegmentHeader, SegmentName};
use bedform_format::{DataType, ObjectPath};

use self::background::SettleBacklog;
pub use self::background::SettleLimits;
use self::create::ArrayCreation;
pub(super) use self::create::{prepare_log, prepare_log_early};
pub use self::options::SessionOptions;
use self::options::check_alike;
pub use super::burst::Burst;
use super::burst::BurstPlace;
use super::commit::{AppendedAxes, BegunCommit, DocumentShapes, PreparedCommit};
use super::place::LogPlace;
pub use super::segment::LentData;
use super::segment::{LaneShare, Segment, SegmentOptions};
use super::shapes::enlarge;
pub use super::staged::CommitReach;
use super::stream::{DeclaredBoxes, SectionStream, WritePrecedence, WriteTarget};
use crate::comm::{COORDINATOR, CollectiveCall, Communicator, MemberGroup, decide};
use crate::error::{Error, ErrorKind, Result};

pub use end::{AtEnd, decline};

/// A position in the writes of a session, for [`Session::wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Returns the token as a number, for other languages.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the token with this number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A set of boxes that [`Session::declare`] has registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decomposition(usize);

impl Decomposition {
    /// Returns the decomposition as a number, for other languages.
    pub fn number(self) -> u64 {
        self.0 as u64
    }

    /// Returns the decomposition with this number.
    pub fn from_number(number: u64) -> Self {
        Self(usize::try_from(number).unwrap_or(usize::MAX))
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
///     serializer: None,
///     codecs: vec![],
///     transpose: None,
///     checksum: true,
///     keys: bedform_format::metadata::ChunkKeys::DEFAULT,
///     choice: None,
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
/// array.read(&Selection::all(&[8]), &mut bytes)?;
/// assert_eq!(bytes, [7; 8]);
/// # Ok::<(), bedform::Error>(())
/// ```
pub struct Session {
    pub(super) store: Arc<OpenedStore>,
    pub(super) members: Arc<MemberGroup>,
    pub(super) options: SessionOptions,
    pub(super) log: LogPlace,
    /// Identifier of the session, the same on all members.
    pub(super) id: [u8; 16],
    pub(super) stream: Option<SectionStream>,
    /// The segment that this member shares with others of its node, and its lane there; `None` if
    /// it has a segment of its own.
    pub(super) share: Option<LaneShare>,
    /// Written sections that are part of no commit yet.
    pub(super) sections: Vec<SectionPlace>,
    /// Declared boxes, by number, until they are forgotten.
    declared: HashMap<usize, DeclaredBoxes>,
    /// Number of declarations so far: a number is never given twice.
    declarations: usize,
    pub(super) arrays: HashMap<ObjectPath, SessionArray>,
    /// The keys of all arrays that the session has looked up: an array that takes the place of one
    /// of them is refused.
    keys: HashMap<ObjectPath, [u8; 16]>,
    /// The axes along which the commit under way appends.
    pub(super) appended: AppendedAxes,
    pub(super) shapes: DocumentShapes,
    /// The shapes that promised commits give to arrays.
    pub(super) promised_shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// End of each of this member's commits in its segment (epoch, byte), as far as they may not be
    /// drained.
    pub(super) ends: VecDeque<(u32, u64)>,
    /// True if a promised commit may not be visible yet.
    pub(super) has_promises: bool,
    /// On the coordinator: arrays that appear with the next commit.
    pub(super) creations: Vec<ArrayCreation>,
    /// On the coordinator: commits that wait until they are drained, in order.
    pub(super) prepared: VecDeque<PreparedCommit>,
    /// On the coordinator: the last commit that was visible when the last collective call began.
    pub(super) visible: u64,
    /// On the coordinator: commits that wait to be settled in the background.
    pub(super) waiting: Option<SettleBacklog>,
    /// Number of orders given to earlier segments of this session.
    given_before: u64,
    /// The commit that has begun and on which the members have not agreed.
    pub(super) begun: Option<Result<BegunCommit>>,
    /// On the coordinator: arrays whose lock files were kept.
    pub(super) locked: BTreeSet<ObjectPath>,
    /// On the coordinator: number of commits that the last root it published names directly.
    pub(super) tail_length: usize,
    /// Number of collective calls so far.
    epoch: u32,
    health: Health,
    /// The process that began the session. A forked child has a copy of it, but none of the
    /// threads.
    process: u32,
}

/// Whether a session can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Sound,
    /// A commit was refused: its data are lost, and another attempt would commit nothing.
    Refused,
    /// An error left the session in an unknown state.
    Failed,
}

/// An array that this session has written to.
pub(super) struct SessionArray {
    pub(super) target: WriteTarget,
    /// The shape before this session enlarged it.
    before: Vec<u64>,
    /// The epoch in which it was looked up: others may have enlarged it since.
    epoch: u32,
    data_type: DataType,
    /// True if the array appears with the next commit: no other session knows it.
    pub(super) is_new: bool,
}

impl SessionArray {
    /// Returns the entry of a commit's directory for the array, if it becomes larger.
    pub(super) fn grown(&self) -> Option<GrownArray> {
        let WriteTarget { key, shape, .. } = &self.target;
        (*shape != self.before).then(|| GrownArray {
            key: *key,
            base: self.before.clone(),
            shape: shape.clone(),
        })
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("store", &self.store.storage.name())
            .field("rank", &self.members.rank())
            .finish_non_exhaustive()
    }
}

impl OpenedStore {
    /// Starts a session of `members`. Collective.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a store that is no group of Bedform's; `Conflict` if a
    /// dead writer may have promised commits through a burst tier, which come first:
    /// [`Store::recover`]; those of storage and of the other members.
    pub(crate) fn session(
        self: &Arc<Self>,
        members: Box<dyn Communicator>,
        mut options: SessionOptions,
    ) -> Result<Session> {
        // A member whose program fails between two commits leaves the group, so no member waits for
        // it.
        let members = Arc::new(MemberGroup::by_node(members)?);
        let log = self.check_writable().and_then(|()| self.log_place());
        let log = log.and_then(|log| {
            if let Some(burst) = &options.burst {
                BurstPlace::check_kept(burst, &log)?;
            }
            if members.rank() == COORDINATOR {
                self.check_promises_kept()?;
                self.check_takes_writes()?;
                self.forget_kept_log(&log)?;
            }
            Ok(log)
        });
        let (mine, log) = match log {
            Ok(log) => {
                let call = CollectiveCall::of("store", log.store, "session()");
                members.enter(call.at(self.storage.name()));
                let common = options.in_common(self.options.durability);
                (Ok([&[u8::from(options.burst.is_some())], &common[..]].concat()), Some(log))
            }
            Err(error) => (Err(error), None),
        };
        let told = decide(&*members, mine, |parts| {
            check_alike(parts.iter().filter_map(|part| part.get(1..)))?;
            let has_tier = |part: &Vec<u8>| part.first() != Some(&0);
            // With a burst tier each member writes a segment of its own. Remote segments cannot be
            // written by several members either.
            let is_remote = log.as_ref().is_some_and(|log| log.storage.is_remote());
            let may_promise = parts.first().is_some_and(has_tier);
            let flags = [may_promise, parts.iter().any(has_tier) || is_remote].map(u8::from);
            Ok([&random_key()?[..], &flags].concat())
        })?;
        let (Some((id, &[may_promise, is_apart])), Some(log)) = (told.split_first_chunk(), log)
        else {
            return Err(Error::invalid("the members' coordinator erred"));
        };
        // The coordinator promises commits through its tier. Without one there is no place for
        // promises, and all data become durable in the log.
        if may_promise == 0 {
            options.reach = CommitReach::Shared;
        }
        let is_coordinator = members.rank() == COORDINATOR;
        let waiting = options.background.filter(|_| is_coordinator).map(SettleBacklog::new);
        let mut session = Session {
            store: Arc::clone(self),
            members,
            options,
            log,
            id: *id,
            stream: None,
            share: None,
            sections: Vec::new(),
            declared: HashMap::new(),
            declarations: 0,
            arrays: HashMap::new(),
            keys: HashMap::new(),
            appended: AppendedAxes::new(),
            shapes: DocumentShapes::default(),
            promised_shapes: BTreeMap::new(),
            ends: VecDeque::new(),
            has_promises: false,
            creations: Vec::new(),
            prepared: VecDeque::new(),
            visible: 0,
            waiting,
            given_before: 0,
            begun: None,
            locked: BTreeSet::new(),
            tail_length: 0,
            epoch: 0,
            health: Health::Sound,
            process: std::process::id(),
        };
        if is_apart == 0 {
            session.share_segment()?;
        }
        Ok(session)
    }

    /// Fails if the storage takes no writes, as on a read-only mount: otherwise the first write or
    /// commit would fail.
    fn check_takes_writes(&self) -> Result<()> {
        if !self.storage.is_remote() {
            // If another process has the lock, writes work.
            drop(self.storage.try_lock(&ObjectPath::root())?);
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            self.leave_behind();
            return;
        }
        // A second panic during unwinding would abort the process.
        let may_drain = self.is_sound() && !std::thread::panicking();
        if self.has_promises && may_drain && self.members.size() == 1 {
            // Promises that cannot be completed now remain for `bedform recover`.
            let _ = self.drain();
        }
        self.end_stream();
    }
}

impl Session {
    /// Begins a collective call, described by `text`, that all members have to make.
    pub(super) fn enter(&self, text: impl Into<Cow<'static, str>>) {
        self.members.enter(CollectiveCall::of("session", self.id, text));
    }

    /// As [`Session::enter`], for a call that needs data which members hand over before it. If the
    /// members' calls differ then, the session can only end.
    pub(super) fn enter_handing_over(&self, text: &'static str) {
        self.members.enter(CollectiveCall::of("session", self.id, text).handing_over());
    }

    /// Returns the state of the array at `path`. Looks it up again if its shape is from before the
    /// last commit and not `enough`, since others may have enlarged the array.
    fn array_large_enough(
        &mut self,
        path: &ObjectPath,
        enough: impl Fn(&[u64]) -> bool,
    ) -> Result<&mut SessionArray> {
        let epoch = self.epoch;
        let is_old = |known: &SessionArray| {
            known.epoch != epoch
                && known.grown().is_none()
                && !known.is_new
                && !enough(&known.target.shape)
        };
        if self.arrays.get(path).is_some_and(is_old) {
            self.arrays.remove(path);
        }
        self.array_at(path)
    }

    /// Looks up an array for later writes. From now on another array that takes its place is
    /// refused.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if the session has looked up another array there; `Unsupported` for
    /// arrays that sessions cannot write.
    pub fn look_up(&mut self, path: &ObjectPath) -> Result<()> {
        self.check_sound()?;
        self.array_at(path).map(drop)
    }

    /// Returns the type of the elements that writes to the array at `path` take.
    ///
    /// # Errors
    /// As [`Session::look_up`].
    pub fn data_type(&mut self, path: &ObjectPath) -> Result<DataType> {
        self.check_sound()?;
        self.array_at(path).map(|array| array.data_type)
    }

    /// Returns the state of the array at `path`, which the first write looks up.
    fn array_at(&mut self, path: &ObjectPath) -> Result<&mut SessionArray> {
        if !self.arrays.contains_key(path) {
            self.store.refresh_if_stale()?;
            let array = ArrayHandle::open(self.store.clone(), path.clone())?;
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
            if identity.store != self.log.store {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{} came here from another store, so a session cannot write to it; copy it \
                         into a new array, or write to it directly",
                        array.name()
                    ),
                ));
            }
            if state.is_text() {
                return Err(holds_text(path));
            }
            if *self.keys.entry(path.clone()).or_insert(identity.array) != identity.array {
                return Err(self.conflict(&format!("{path} was replaced by another array")));
            }
            let mut shape = state.metadata.shape.clone();
            if let Some(promised) = self.promised_shapes.get(&identity.array) {
                enlarge(&mut shape, promised);
            }
            let target = WriteTarget::new(identity.array, state.layout.item_size, shape);
            let (before, epoch) = (target.shape.clone(), self.epoch);
            let data_type = state.metadata.data_type;
            let array = SessionArray { target, before, epoch, data_type, is_new: false };
            self.arrays.insert(path.clone(), array);
        }
        self.arrays.get_mut(path).ok_or_else(|| Error::invalid("no such array"))
    }

    /// Waits until all writes up to `token` are handed to the operating system and lent data are
    /// released. They are durable only after a commit.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that no write of this session has returned; the error of a
    /// write in the background.
    pub fn wait(&mut self, token: Token) -> Result<()> {
        self.check_process()?;
        if token > self.token() && self.is_sound() {
            let text = format!("no write of this session has given token {}", token.0);
            return Err(Error::invalid(text));
        }
        let given = token.0.saturating_sub(self.given_before);
        let outcome = self.stream.as_mut().map_or(Ok(()), |stream| stream.wait(given));
        self.fail_with(&outcome);
        outcome
    }

    /// Hands all data written so far and their description to the operating system, so that they
    /// can be recovered if this process dies. Not collective, and not durable.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn flush(&mut self) -> Result<()> {
        self.check_sound()?;
        let commit = self.commit_id();
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        let outcome = stream.cut(commit).and_then(|()| stream.segment().flush());
        self.end_write(outcome).map(drop)
    }

    fn token(&self) -> Token {
        Token(self.given_before + self.stream.as_ref().map_or(0, SectionStream::position))
    }

    fn turn(&self) -> WritePrecedence {
        WritePrecedence { epoch: self.epoch, rank: self.members.rank() }
    }

    /// Returns the identifier of the next commit.
    pub(super) fn commit_id(&self) -> CommitId {
        CommitId { session: self.id, epoch: self.epoch + 1 }
    }

    pub(super) fn count_epoch(&mut self) {
        self.epoch += 1;
    }

    /// Returns the number of commits and other collective calls so far.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Ends the use of the session if `outcome` is an error: the state of its data is unknown then.
    fn fail_with<T>(&mut self, outcome: &Result<T>) {
        if outcome.is_err() {
            self.health = Health::Failed;
        }
    }

    /// Ends the use of the session after a failed commit.
    pub(super) fn end_with(&mut self, error: &Error) {
        // A later commit would hide that an earlier one was promised or left behind.
        let is_alone = self.members.size() == 1;
        // An interrupted wait for a lock has published nothing.
        let is_refused = error.kind() == ErrorKind::Conflict
            || self.members.has_lost_data()
            || (is_alone && error.kind() == ErrorKind::Interrupted);
        let is_refused = is_refused && self.options.reach != CommitReach::Node;
        if self.health == Health::Sound {
            self.health = if is_refused { Health::Refused } else { Health::Failed };
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.health == Health::Sound
    }

    /// Returns the stream, which the first write creates.
    pub(super) fn stream(&mut self) -> Result<&mut SectionStream> {
        if self.stream.is_none() {
            let stream = self.begin_stream();
            self.fail_with(&stream);
            self.stream = Some(stream?);
        }
        self.stream.as_mut().ok_or_else(|| Error::invalid("no segment"))
    }

    fn begin_stream(&self) -> Result<SectionStream> {
        let writers = self.members.node().map_or(1, |node| node.size());
        let burst = self.options.burst.clone().map(|burst| burst.shared_by(writers)).transpose()?;
        let header =
            SegmentHeader { store: self.log.store, session: self.id, rank: self.members.rank() };
        let name = SegmentName::from(&header);
        let alone = LaneShare { name, lane: Lane::ONLY, identity: None };
        let share = self.share.unwrap_or(alone);
        let options = SegmentOptions {
            header,
            share,
            durability: self.store.options.durability,
            buffer_bytes: self.options.buffer_bytes,
            limits: self.store.options.limits.clone(),
            burst,
            reach: self.options.reach,
            store: self.store.clone(),
            in_background: self.options.in_background,
        };
        let segment = Segment::create(&self.log, options);
        Ok(SectionStream::new(segment?))
    }

    pub(super) fn check_sound(&self) -> Result<()> {
        self.check_healthy()?;
        self.check_not_begun()
    }

    /// Fails while a commit is under way. The refused call changes neither the commit nor the
    /// session.
    pub(super) fn check_not_begun(&self) -> Result<()> {
        match self.begun {
            None => Ok(()),
            Some(_) => Err(Error::invalid(
                "a commit of this session has begun: call commit_wait before anything else",
            )),
        }
    }

    /// As [`Session::check_sound`], but allowed while a commit is under way.
    pub(super) fn check_healthy(&self) -> Result<()> {
        self.check_process()?;
        let text = match self.health {
            Health::Sound if !self.members.has_lost_data() => return Ok(()),
            Health::Sound | Health::Refused => {
                "a commit of this session was refused, and what was written for it is gone; what was \
                 committed before stands: start a new session and write it again"
            }
            Health::Failed if self.has_promises => {
                "an earlier call of this session failed; what was committed before stands, and what of \
                 it is not visible yet 'bedform recover' brings: start a new session after that"
            }
            Health::Failed => {
                "an earlier call of this session failed; what was committed before stands: start a new \
                 session"
            }
        };
        Err(Error::new(ErrorKind::Poisoned, text))
    }
}

fn holds_text(path: &ObjectPath) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{path} holds text, which sessions do not take; write it directly"),
    )
}
