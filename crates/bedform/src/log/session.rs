//! Sessions: writes of one process, or of the processes of a job together.
//!
//! A session takes boxes of arrays in the order of the calls. No data are visible before
//! [`Session::commit`], and then all of them at once; `docs/log-explained.md` explains how, and why
//! that holds when a step fails.
//!
//! A [`Session`] has a `member`, the `arrays` that it has looked up and, on one member alone, the
//! state of the `coordinator`. `write` has the calls that write, `create` those that create arrays,
//! `end` the ends of a session, `background` its settling meanwhile, `commit` the collective steps
//! of a commit.
//!
//! A collective call begins with its name (`Session::enter`), so that differing calls are detected
//! before they take effect.

mod alike;
mod arrays;
mod background;
mod create;
mod end;
mod options;
mod write;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bedform_format::{DataType, ObjectPath};

use self::arrays::SessionArrays;
pub(super) use self::background::SettleBacklog;
pub use self::background::SettleLimits;
pub(super) use self::create::{ArrayCreation, prepare_log, prepare_log_early};
pub use self::end::{AtEnd, decline};
pub use self::options::SessionOptions;
use self::options::check_alike;
pub use super::burst::Burst;
use super::burst::BurstPlace;
use super::commit::BegunCommit;
use super::coordinator::CoordinatorState;
use super::member::{Health, SessionMember};
use super::opened::OpenedStore;
pub use super::segment::LentData;
pub use super::staged::CommitReach;
use super::stream::DeclaredBoxes;
use crate::comm::{COORDINATOR, CollectiveCall, Communicator, MemberGroup, decide};
use crate::error::{Error, ErrorKind, Result};
use crate::zarr::publish::random_key;

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
    pub(super) member: SessionMember,
    pub(super) arrays: SessionArrays,
    /// Declared boxes, by number, until they are forgotten.
    declared: HashMap<usize, DeclaredBoxes>,
    /// Number of declarations so far: a number is never given twice.
    declarations: usize,
    /// `None` on all members except the coordinator.
    pub(super) coordinator: Option<CoordinatorState>,
    /// The commit that has begun and on which the members have not agreed.
    pub(super) begun: Option<Result<BegunCommit>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("store", &self.member.store.storage.name())
            .field("rank", &self.member.group.rank())
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
        let coordinator = is_coordinator.then(|| CoordinatorState::new(options.background));
        let mut session = Session {
            member: SessionMember {
                store: Arc::clone(self),
                group: members,
                options,
                log,
                id: *id,
                epoch: 0,
                stream: None,
                share: None,
                sections: Vec::new(),
                ends: VecDeque::new(),
                promised_shapes: BTreeMap::new(),
                given_before: 0,
                has_promises: false,
                health: Health::Sound,
                process: std::process::id(),
            },
            arrays: SessionArrays::default(),
            declared: HashMap::new(),
            declarations: 0,
            coordinator,
            begun: None,
        };
        if is_apart == 0 {
            session.member.share_segment()?;
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
        if self.member.check_process().is_err() {
            self.leave_behind();
            return;
        }
        // A second panic during unwinding would abort the process.
        let may_drain = self.member.is_sound() && !std::thread::panicking();
        if self.member.has_promises && may_drain && self.member.group.size() == 1 {
            // Promises that cannot be completed now remain for `bedform recover`.
            let _ = self.drain();
        }
        self.end_stream();
    }
}

impl Session {
    /// Begins a collective call, described by `text`, that all members have to make.
    pub(super) fn enter(&self, text: impl Into<Cow<'static, str>>) {
        self.member.group.enter(CollectiveCall::of("session", self.member.id, text));
    }

    /// As [`Session::enter`], for a call that needs data which members hand over before it. If the
    /// members' calls differ then, the session can only end.
    pub(super) fn enter_handing_over(&self, text: &'static str) {
        let call = CollectiveCall::of("session", self.member.id, text);
        self.member.group.enter(call.handing_over());
    }

    /// Looks up an array for later writes. From now on another array that takes its place is
    /// refused.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if the session has looked up another array there; `Unsupported` for
    /// arrays that sessions cannot write.
    pub fn look_up(&mut self, path: &ObjectPath) -> Result<()> {
        self.check_sound()?;
        self.arrays.at(&self.member, path).map(drop)
    }

    /// Returns the type of the elements that writes to the array at `path` take.
    ///
    /// # Errors
    /// As [`Session::look_up`].
    pub fn data_type(&mut self, path: &ObjectPath) -> Result<DataType> {
        self.check_sound()?;
        self.arrays.at(&self.member, path).map(|array| array.data_type)
    }

    /// Waits until all writes up to `token` are handed to the operating system and lent data are
    /// released. They are durable only after a commit.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that no write of this session has returned; the error of a
    /// write in the background.
    pub fn wait(&mut self, token: Token) -> Result<()> {
        self.member.check_process()?;
        let member = &mut self.member;
        if token > member.token() && member.is_sound() {
            let text = format!("no write of this session has given token {}", token.0);
            return Err(Error::invalid(text));
        }
        let given = token.0.saturating_sub(member.given_before);
        let outcome = member.stream.as_mut().map_or(Ok(()), |stream| stream.wait(given));
        member.fail_with(&outcome);
        outcome
    }

    /// Hands all data written so far and their description to the operating system, so that they
    /// can be recovered if this process dies. Not collective, and not durable.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn flush(&mut self) -> Result<()> {
        self.check_sound()?;
        let commit = self.member.commit_id();
        let Some(stream) = self.member.stream.as_mut() else { return Ok(()) };
        let outcome = stream.cut(commit).and_then(|()| stream.segment().flush());
        self.member.end_write(outcome).map(drop)
    }

    pub(super) fn check_sound(&self) -> Result<()> {
        self.member.check_healthy()?;
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
}

fn holds_text(path: &ObjectPath) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{path} holds text, which sessions do not take; write it directly"),
    )
}
