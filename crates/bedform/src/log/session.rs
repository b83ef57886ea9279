//! Writing: what a process or the processes of a job write together.
//!
//! A session takes boxes of arrays in the order in which they come. Nothing that it took is visible
//! before [`Session::commit`], and then all of it at once; `docs/log-explained.md` says how, and why that holds
//! when something fails. `write` has the calls that write, `create` those that make arrays, `end` how a
//! session ends; `stream` what one member writes, `commit` what all do together.
//!
//! A collective call begins with its name (`Session::enter`), so that members that call something else
//! are noticed before anything comes of it.

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

use bedform_format::ObjectPath;
use bedform_format::log::{CommitId, GrownArray, Lane, SectionPlace, SegmentHeader, SegmentName};

pub use self::background::InBackground;
use self::background::Waiting;
use self::create::Creation;
pub(super) use self::create::{prepare_log, prepare_log_early};
pub use self::options::SessionOptions;
use self::options::check_alike;
pub use super::burst::Burst;
use super::burst::BurstPlace;
use super::commit::{Appended, Begun, Prepared, Shapes};
use super::place::LogPlace;
pub use super::segment::Held;
use super::segment::{Segment, SegmentOptions, Share};
use super::shapes::enlarge;
pub use super::staged::Reach;
use super::stream::{Declared, Stream, Target, Turn};
use crate::comm::{COORDINATOR, Call, Communicator, Group, decide};
use crate::error::{Error, ErrorKind, Result};

pub use end::{AtEnd, decline};

/// Says what [`Session::wait`] is to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token as a number, for other languages.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The token of a number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Boxes that a session knows: [`Session::declare`] gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decomposition(usize);

impl Decomposition {
    /// The decomposition as a number, for other languages.
    pub fn number(self) -> u64 {
        self.0 as u64
    }

    /// The decomposition of a number.
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
    pub(super) members: Arc<Group>,
    pub(super) options: SessionOptions,
    pub(super) log: LogPlace,
    /// Identity of the session, the same on all members.
    pub(super) id: [u8; 16],
    pub(super) stream: Option<Stream>,
    /// The segment that this member shares with others of its node, and which part of it is its own;
    /// nothing if it has one for itself.
    pub(super) share: Option<Share>,
    /// Sections that are written, and part of no commit yet.
    pub(super) sections: Vec<SectionPlace>,
    declared: Vec<Declared>,
    pub(super) arrays: HashMap<ObjectPath, Known>,
    /// The keys of all arrays that it has looked up: what others put in their places is not what the user means.
    keys: HashMap<ObjectPath, [u8; 16]>,
    /// What the commit that is under way appends to.
    pub(super) appended: Appended,
    pub(super) shapes: Shapes,
    /// The shapes that promised commits give to arrays.
    pub(super) promised_shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// Where this member's commits end in its segment: those that may not have been drained.
    pub(super) ends: VecDeque<(u32, u64)>,
    /// True if a commit may have been promised that is not visible.
    pub(super) has_promises: bool,
    /// On the coordinator: arrays that appear with the next commit.
    pub(super) creations: Vec<Creation>,
    /// On the coordinator: commits that wait for being drained, in order.
    pub(super) prepared: VecDeque<Prepared>,
    /// On the coordinator: the last commit that was visible when the last collective call began.
    pub(super) visible: u64,
    /// On the coordinator: what waits to be settled in the background.
    pub(super) waiting: Option<Waiting>,
    /// What the segments before this one were given.
    given_before: u64,
    /// The commit that has begun, and that members have not agreed on.
    pub(super) begun: Option<Result<Begun>>,
    /// On the coordinator: arrays whose locks left their places.
    pub(super) locked: BTreeSet<ObjectPath>,
    /// On the coordinator: commits that the root it published last names each.
    pub(super) tail_length: usize,
    /// Collective calls so far.
    epoch: u32,
    health: Health,
    /// The process that began it. One that was forked from that has a copy, but none of the threads.
    process: u32,
}

/// Whether a session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Sound,
    /// A commit was refused: what it had is nobody's, and trying again would commit nothing.
    Refused,
    /// Something failed that leaves the session without a known state.
    Failed,
}

/// An array that this session has written to.
pub(super) struct Known {
    pub(super) target: Target,
    /// The shape before this session made it larger.
    before: Vec<u64>,
    /// The epoch in which it was looked up: others may have made it larger since.
    epoch: u32,
    /// It appears with the next commit: nobody else knows of it.
    pub(super) is_new: bool,
}

impl Known {
    /// What a commit says of the array, if it is to become larger.
    pub(super) fn grown(&self) -> Option<GrownArray> {
        let Target { key, shape, .. } = &self.target;
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
    /// Starts a session of `members`, all of which make this call.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a store that is no group of Bedform's; `Conflict` if a writer has
    /// died that may have promised commits through a burst tier, which come first: [`Store::recover`];
    /// those of storage and of the other members.
    pub(crate) fn session(
        self: &Arc<Self>,
        members: Box<dyn Communicator>,
        mut options: SessionOptions,
    ) -> Result<Session> {
        // Whose program fails between two commits leaves, and nobody waits for it.
        let members = Arc::new(Group::by_node(members)?);
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
                let call = Call::of("store", log.store, "session()");
                members.enter(call.at(self.storage.name()));
                let common = options.in_common(self.options.durability);
                (Ok([&[u8::from(options.burst.is_some())], &common[..]].concat()), Some(log))
            }
            Err(error) => (Err(error), None),
        };
        let told = decide(&*members, mine, |parts| {
            check_alike(parts.iter().filter_map(|part| part.get(1..)))?;
            let has_tier = |part: &Vec<u8>| part.first() != Some(&0);
            // A burst tier takes the segment of each member by itself; and parts of segments that are
            // objects of their own are not written together.
            let is_remote = log.as_ref().is_some_and(|log| log.storage.is_remote());
            let may_promise = parts.first().is_some_and(has_tier);
            let flags = [may_promise, parts.iter().any(has_tier) || is_remote].map(u8::from);
            Ok([&random_key()?[..], &flags].concat())
        })?;
        let (Some((id, &[may_promise, is_apart])), Some(log)) = (told.split_first_chunk(), log)
        else {
            return Err(Error::invalid("the members' coordinator erred"));
        };
        // The coordinator promises, through its tier. Without one there is no place that says what was
        // promised: what is durable is in the log.
        if may_promise == 0 {
            options.reach = Reach::Shared;
        }
        let is_coordinator = members.rank() == COORDINATOR;
        let waiting = options.background.filter(|_| is_coordinator).map(Waiting::new);
        let mut session = Session {
            store: Arc::clone(self),
            members,
            options,
            log,
            id: *id,
            stream: None,
            share: None,
            sections: Vec::new(),
            declared: Vec::new(),
            arrays: HashMap::new(),
            keys: HashMap::new(),
            appended: Appended::new(),
            shapes: Shapes::default(),
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

    /// Fails where the system takes no writes, as on a read-only mount: a session would fail in its first write
    /// or commit only.
    fn check_takes_writes(&self) -> Result<()> {
        if !self.storage.is_remote() {
            // Somebody who has the lock can write, too.
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
        // A second panic while the first unwinds would end the process.
        let may_drain = self.is_sound() && !std::thread::panicking();
        if self.has_promises && may_drain && self.members.size() == 1 {
            // Promises that cannot be kept now are there for `bedform recover`.
            let _ = self.drain();
        }
        self.end_stream();
    }
}

impl Session {
    /// Begins a collective call: all members have to make it, with what `text` says of it.
    pub(super) fn enter(&self, text: impl Into<Cow<'static, str>>) {
        self.members.enter(Call::of("session", self.id, text));
    }

    /// As [`Session::enter`], a call that needs what members hand over before it: where that call differs the
    /// session can only end.
    pub(super) fn enter_handing_over(&self, text: &'static str) {
        self.members.enter(Call::of("session", self.id, text).handing_over());
    }

    /// What is known of the array at `path`; looked up again if what is known from before the last
    /// commit is not `enough`, since others may have made it larger.
    fn known_to_have(
        &mut self,
        path: &ObjectPath,
        enough: impl Fn(&[u64]) -> bool,
    ) -> Result<&mut Known> {
        let epoch = self.epoch;
        let is_old = |known: &Known| {
            known.epoch != epoch
                && known.grown().is_none()
                && !known.is_new
                && !enough(&known.target.shape)
        };
        if self.arrays.get(path).is_some_and(is_old) {
            self.arrays.remove(path);
        }
        self.known(path)
    }

    /// Looks an array up that is to be written to: another one that takes its place from now on is refused, and
    /// not written to.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if the session has looked up another array there; `Unsupported` for arrays that
    /// sessions do not write to.
    pub fn look_up(&mut self, path: &ObjectPath) -> Result<()> {
        self.check_sound()?;
        self.known(path).map(drop)
    }

    /// What is known of the array at `path`, looked up at its first write.
    fn known(&mut self, path: &ObjectPath) -> Result<&mut Known> {
        if !self.arrays.contains_key(path) {
            self.store.look_unless_always()?;
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
            let target = Target::new(identity.array, state.layout.item_size, shape);
            let (before, epoch) = (target.shape.clone(), self.epoch);
            self.arrays.insert(path.clone(), Known { target, before, epoch, is_new: false });
        }
        self.arrays.get_mut(path).ok_or_else(|| Error::invalid("no such array"))
    }

    /// Waits until what was written up to `token` is handed to the system, and what was held is let go.
    /// It is durable only after a commit.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that no write of this session has given; what writing in the
    /// background failed with.
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

    /// Hands everything that was written so far to the system, described, so that it can be recovered
    /// if this process dies. Not collective, and not durable.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn flush(&mut self) -> Result<()> {
        self.check_sound()?;
        let commit = self.commit_id();
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        let outcome = stream.cut(commit).and_then(|()| stream.segment().flush());
        self.end(outcome).map(drop)
    }

    fn token(&self) -> Token {
        Token(self.given_before + self.stream.as_ref().map_or(0, Stream::position))
    }

    fn turn(&self) -> Turn {
        Turn { epoch: self.epoch, rank: self.members.rank() }
    }

    /// The next commit.
    pub(super) fn commit_id(&self) -> CommitId {
        CommitId { session: self.id, epoch: self.epoch + 1 }
    }

    pub(super) fn count_epoch(&mut self) {
        self.epoch += 1;
    }

    /// The commits and other collective calls so far.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Ends the use of the session after an error: it can no longer say what became of what it took.
    fn fail_with<T>(&mut self, outcome: &Result<T>) {
        if outcome.is_err() {
            self.health = Health::Failed;
        }
    }

    /// Ends the use of the session after a commit that failed.
    pub(super) fn end_with(&mut self, error: &Error) {
        // A later commit would hide that an earlier one was promised, or left behind.
        let is_alone = self.members.size() == 1;
        // Who waits for a lock and is stopped has published nothing.
        let is_refused = error.kind() == ErrorKind::Conflict
            || self.members.has_lost_data()
            || (is_alone && error.kind() == ErrorKind::Interrupted);
        let is_refused = is_refused && self.options.reach != Reach::Node;
        if self.health == Health::Sound {
            self.health = if is_refused { Health::Refused } else { Health::Failed };
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.health == Health::Sound
    }

    /// The stream, which the first byte creates.
    pub(super) fn stream(&mut self) -> Result<&mut Stream> {
        if self.stream.is_none() {
            let stream = self.begin_stream();
            self.fail_with(&stream);
            self.stream = Some(stream?);
        }
        self.stream.as_mut().ok_or_else(|| Error::invalid("no segment"))
    }

    fn begin_stream(&self) -> Result<Stream> {
        let writers = self.members.node().map_or(1, |node| node.size());
        let burst = self.options.burst.clone().map(|burst| burst.shared_by(writers)).transpose()?;
        let header =
            SegmentHeader { store: self.log.store, session: self.id, rank: self.members.rank() };
        let name = SegmentName::from(&header);
        let alone = Share { name, lane: Lane::ONLY, identity: None };
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
        Ok(Stream::new(segment?))
    }

    pub(super) fn check_sound(&self) -> Result<()> {
        self.check_healthy()?;
        self.check_not_begun()
    }

    /// Fails while a commit is under way: a call that is refused leaves it, and the session, as they are.
    pub(super) fn check_not_begun(&self) -> Result<()> {
        match self.begun {
            None => Ok(()),
            Some(_) => Err(Error::invalid(
                "a commit of this session has begun: call commit_wait before anything else",
            )),
        }
    }

    /// As [`Session::check_sound`], also while a commit is under way.
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
