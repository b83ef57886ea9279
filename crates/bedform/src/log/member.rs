//! One member of a session: its segment, and its count of the session's collective calls.
//!
//! The first write creates the segment, or opens the one that the members of a node share. The
//! member knows which of its commits are drained from its burst tier, and whether a failed step has
//! ended the use of the session.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bedform_format::log::{
    Boxes, CommitId, CommitRecord, Directory, GrownArray, Lane, Root, SectionPlace, SegmentHeader,
    SegmentName,
};

use super::commit::BegunCommit;
use super::coordinator::has_content;
use super::opened::OpenedStore;
use super::place::LogPlace;
use super::segment::{LaneShare, PendingDirectory, Segment, SegmentOptions, SyncOutcome, to_error};
use super::session::{CommitReach, SessionOptions, Token};
use super::shapes::enlarge;
use super::stream::{SectionStream, WritePrecedence, WriteTarget};
use super::view::RootView;
use crate::comm::{Communicator, MemberGroup};
use crate::error::{Error, ErrorKind, Result};

/// Whether a session can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Sound,
    /// A commit was refused: its data are lost, and another attempt would commit nothing.
    Refused,
    /// An error left the session in an unknown state.
    Failed,
}

/// One process of a session.
pub(super) struct SessionMember {
    pub(super) store: Arc<OpenedStore>,
    pub(super) group: Arc<MemberGroup>,
    pub(super) options: SessionOptions,
    pub(super) log: LogPlace,
    /// Identifier of the session, the same on all members.
    pub(super) id: [u8; 16],
    /// Number of collective calls so far.
    pub(super) epoch: u32,
    pub(super) stream: Option<SectionStream>,
    /// The segment that this member shares with others of its node, and its lane there; `None` if
    /// it has a segment of its own.
    pub(super) share: Option<LaneShare>,
    /// Written sections that are part of no commit yet.
    pub(super) sections: Vec<SectionPlace>,
    /// End of each of this member's commits in its segment (epoch, byte), as far as they may not be
    /// drained.
    pub(super) ends: VecDeque<(u32, u64)>,
    /// The shapes that promised commits give to arrays.
    pub(super) promised_shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// Number of orders given to earlier segments of this session.
    pub(super) given_before: u64,
    /// True if a promised commit may not be visible yet.
    pub(super) has_promises: bool,
    pub(super) health: Health,
    /// The process that began the session. A forked child has a copy of it, but none of the
    /// threads.
    pub(super) process: u32,
}

impl SessionMember {
    pub(super) fn token(&self) -> Token {
        let given = self.stream.as_ref().map_or(0, SectionStream::position);
        Token::from_number(self.given_before + given)
    }

    pub(super) fn turn(&self) -> WritePrecedence {
        WritePrecedence { epoch: self.epoch, rank: self.group.rank() }
    }

    /// Returns the identifier of the next commit.
    pub(super) fn commit_id(&self) -> CommitId {
        CommitId { session: self.id, epoch: self.epoch + 1 }
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
        let writers = self.group.node().map_or(1, |node| node.size());
        let burst = self.options.burst.clone().map(|burst| burst.shared_by(writers)).transpose()?;
        let header =
            SegmentHeader { store: self.log.store, session: self.id, rank: self.group.rank() };
        let name = SegmentName::from(&header);
        let alone = LaneShare { name, lane: Lane::ONLY, identity: None };
        let share = self.share.unwrap_or(alone);
        let options = SegmentOptions {
            header,
            share,
            buffer_bytes: self.options.buffer_bytes,
            burst,
            reach: self.options.reach,
            store: self.store.clone(),
            in_background: self.options.in_background,
        };
        let segment = Segment::create(&self.log, options);
        Ok(SectionStream::new(segment?))
    }

    /// Begins a write of `boxes` of `target`, and returns the stream, which takes its data.
    pub(super) fn begin_write(
        &mut self,
        target: &WriteTarget,
        boxes: Boxes,
    ) -> Result<&mut SectionStream> {
        let (turn, commit) = (self.turn(), self.commit_id());
        let stream = self.stream()?;
        stream.begin(target, boxes, turn, commit)?;
        Ok(stream)
    }

    /// Completes the error of a write outside of an array: other members may have made it larger,
    /// of which this one learns with the commit.
    pub(super) fn outside(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::OutOfBounds || self.group.size() == 1 {
            return error;
        }
        error.followed_by(
            "if another process makes the array larger in this commit, call resize in this one as well, \
             before it writes there",
        )
    }

    /// Ends a write. If it failed between its description and its last byte, the session cannot be
    /// used any more.
    pub(super) fn end_write(&mut self, outcome: Result<()>) -> Result<Token> {
        let commit = self.commit_id();
        let outcome = outcome.and_then(|()| self.stream()?.cut_if_large(commit));
        self.fail_with(&outcome);
        outcome.map(|()| self.token())
    }

    /// Waits for the data of this member's part of a commit. Returns its directory, and the answer
    /// of the segment if it has written any data.
    pub(super) fn finish(&mut self, part: BegunCommit) -> Result<(Directory, Option<SyncOutcome>)> {
        let BegunCommit { grown, finishing } = part;
        let mut mine = Directory { commit: self.commit_id(), grown, ..Directory::default() };
        let (Some(stream), Some(finishing)) = (&mut self.stream, finishing) else {
            return Ok((mine, None));
        };
        let mut finished = stream.segment().finished(&finishing)?;
        mine.segments.push(stream.segment().name().to_owned());
        self.sections.append(&mut finished.sections);
        mine.sections = std::mem::take(&mut self.sections);
        Ok((mine, Some(finished)))
    }

    /// Returns a part of a commit encoded; empty if there is nothing to commit.
    pub(super) fn encoded(&self, part: &Directory) -> Result<Vec<u8>> {
        match has_content(part) {
            true => part.encode(&self.store.options.limits).map_err(to_error),
            false => Ok(Vec::new()),
        }
    }

    /// Returns the last epoch that this member has drained completely.
    pub(super) fn drained_epoch(&mut self) -> u32 {
        let drained = match &mut self.stream {
            Some(stream) => stream.segment().drained_bytes(),
            None => u64::MAX,
        };
        while self.ends.front().is_some_and(|(_, end)| *end <= drained) {
            self.ends.pop_front();
        }
        self.ends.front().map_or(self.epoch + 1, |(epoch, _)| epoch - 1)
    }

    /// Merges the encoded directories of all members, or of those of a node, into one.
    pub(super) fn merge(&self, parts: &[&[u8]]) -> Result<Directory> {
        let limits = &self.store.options.limits;
        let mut all = Directory { commit: self.commit_id(), ..Directory::default() };
        let mut grown = BTreeMap::<[u8; 16], GrownArray>::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let one = Directory::decode(part, limits).map_err(to_error)?;
            // The members of a node name the same segment.
            let is_same = !one.segments.is_empty() && all.segments.ends_with(&one.segments);
            let before = all.segments.len() - if is_same { one.segments.len() } else { 0 };
            let first = u32::try_from(before).unwrap_or(u32::MAX);
            all.segments.truncate(before);
            all.segments.extend(one.segments);
            all.sections.extend(one.sections.into_iter().map(|mut section| {
                section.segment = section.segment.saturating_add(first);
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

    /// Appends a directory without a promise.
    pub(super) fn write_directory(&mut self, directory: &Directory) -> Result<CommitRecord> {
        let begun = self.begin_directory(directory, None)?;
        self.directory_record(&begun)
    }

    /// Starts to append a directory and, if it is that of a `promised` commit, the promise.
    pub(super) fn begin_directory(
        &mut self,
        directory: &Directory,
        promised: Option<CommitId>,
    ) -> Result<PendingDirectory> {
        let body = directory.encode(&self.store.options.limits).map_err(to_error)?;
        let reach = self.options.reach;
        self.stream()?.segment().directory(body, reach, promised)
    }

    /// Waits until a directory is durable, and returns its record for a root.
    pub(super) fn directory_record(&mut self, placing: &PendingDirectory) -> Result<CommitRecord> {
        let segment = self.stream()?.segment();
        let place = segment.placed(placing)?;
        Ok(CommitRecord {
            number: 0,
            segment: segment.name().to_owned(),
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            bytes: place.bytes,
            codec: place.codec,
        })
    }

    /// Returns the number of the newest root.
    pub(super) fn newest_number(&self) -> Result<u64> {
        let (newest, _) = self.store.newest_root(&self.log)?;
        Ok(newest.map_or(0, |root| root.number))
    }

    /// Returns a view of `root` that shares the objects loaded for this store.
    pub(super) fn view_of(&self, root: Arc<Root>) -> RootView {
        RootView::new(root, self.log.clone(), &self.store.options.limits, self.store.loaded.clone())
    }

    /// Ends the use of the session if `outcome` is an error: the state of its data is unknown then.
    pub(super) fn fail_with<T>(&mut self, outcome: &Result<T>) {
        if outcome.is_err() {
            self.health = Health::Failed;
        }
    }

    /// Ends the use of the session after a failed commit.
    pub(super) fn end_with(&mut self, error: &Error) {
        // A later commit would hide that an earlier one was promised or left behind.
        let is_alone = self.group.size() == 1;
        // An interrupted wait for a lock has published nothing.
        let is_refused = error.kind() == ErrorKind::Conflict
            || self.group.has_lost_data()
            || (is_alone && error.kind() == ErrorKind::Interrupted);
        let is_refused = is_refused && self.options.reach != CommitReach::Node;
        if self.is_sound() {
            self.health = if is_refused { Health::Refused } else { Health::Failed };
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.health == Health::Sound
    }

    /// Fails in a process that was forked from the session's. Its calls would mix with the
    /// parent's, since both share the segment and the messages of the members.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Poisoned,
            "the session is that of the process from which this one was forked: start a new session",
        ))
    }

    /// As [`SessionMember::check_process`]; also fails if a failed step has ended the use of the
    /// session.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_healthy(&self) -> Result<()> {
        self.check_process()?;
        let text = match self.health {
            Health::Sound if !self.group.has_lost_data() => return Ok(()),
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

    pub(super) fn conflict(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Conflict,
            format!(
                "since a commit of {} was begun, {what}: none of its data are visible; write them \
                 again in a new session",
                self.store.storage.name()
            ),
        )
    }

    /// Releases the segment. Marks it as closed, so that its data without a commit may be removed,
    /// unless a step failed or a commit was promised.
    pub(super) fn end_segment(&mut self) {
        let is_first = self.share.is_none_or(|share| share.lane.number() == 0);
        if let Some(mut stream) = self.stream.take()
            && is_first
            && self.health != Health::Failed
            && !self.has_promises
            // Nothing is created where the store was before it was moved.
            && self.store.log_place().is_ok_and(|now| now.name() == self.log.name())
        {
            let name = stream.segment().name();
            // Without the mark the segment is searched before it is removed, which only costs time.
            let _ = self.log.mark_closed(name);
            if self.options.reach == CommitReach::Node && self.options.burst.is_some() {
                // If the note stays, as after a power cut, `recover` must run before other sessions
                // begin.
                let is_forgotten = self.log.forget_tier(name).is_ok();
                if let Some(drain) = stream.segment().drain().filter(|_| is_forgotten) {
                    drain.give_up();
                }
            }
        }
    }
}
