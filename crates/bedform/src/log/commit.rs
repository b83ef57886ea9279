//! Commits of a session: the sequence of steps that all its members run.
//!
//! Each member makes its data durable and sends a directory of them to the coordinator, by way of
//! its node's leader if it shares a segment (`node`). The [`Coordinator`] takes its steps, and its
//! answer goes to all. At [`CommitReach::Node`] a commit is first promised in the burst tier; its
//! root follows once all members have drained it. `docs/log-explained.md` gives the order and the
//! reasons.

use bedform_format::log::GrownArray;

use super::coordinator::Coordinator;
use super::segment::PendingSync;
use super::session::{CommitReach, Session};
use super::shapes::enlarge;
use super::stream::SectionStream;
use crate::comm::{agree, decide};
use crate::error::{Error, Result};

/// One member's part of a commit that has begun.
pub(super) struct BegunCommit {
    /// The arrays that this member enlarges.
    pub(super) grown: Vec<GrownArray>,
    /// The pending answer of this member's segment; `None` if it has written no data.
    pub(super) finishing: Option<PendingSync>,
}

impl Session {
    /// Begins a commit of all writes since the last one and returns at once. The data become
    /// durable in the background while the program goes on, which must not change elements that it
    /// has lent. Not collective: [`Session::commit_wait`] runs the collective part, in the thread
    /// that calls it. Until then the session accepts no other call.
    ///
    /// # Errors
    /// `InvalidArgument` if a commit has begun and was not waited for. [`Session::commit_wait`]
    /// reports errors of the commit itself, on all members.
    pub fn commit_begin(&mut self) -> Result<()> {
        self.check_sound()?;
        self.begun = Some(self.begin_commit(true));
        Ok(())
    }

    /// Ends the commit that [`Session::commit_begin`] has begun. Collective; members may call
    /// [`Session::commit`] instead. Where no commit has begun, it begins one.
    ///
    /// # Errors
    /// As [`Session::commit`].
    pub fn commit_wait(&mut self) -> Result<u64> {
        self.commit()
    }

    /// Starts to make this member's part of the commit durable. With `ahead`, the collective part
    /// is still to come, so a shared segment is synced now and not only flushed.
    fn begin_commit(&mut self, ahead: bool) -> Result<BegunCommit> {
        let commit = self.member.commit_id();
        if let Some(coordinator) = &mut self.coordinator {
            self.arrays.note_appended(&mut coordinator.appended);
        }
        let grown = self.arrays.take_grown();
        let reach = self.member.options.reach;
        if reach == CommitReach::Node {
            for GrownArray { key, shape, .. } in &grown {
                let known = self.member.promised_shapes.entry(*key);
                enlarge(known.or_insert_with(|| shape.clone()), shape);
            }
        }
        let is_shared = self.member.share.is_some();
        let begin = |stream: &mut SectionStream| match is_shared {
            true => stream.begin_hand_over(commit, ahead),
            false => stream.begin_finish(commit, reach),
        };
        let finishing = self.member.stream.as_mut().map(begin).transpose()?;
        Ok(BegunCommit { grown, finishing })
    }

    /// Returns the begun commit, or begins one now.
    pub(super) fn take_begun(&mut self) -> Result<BegunCommit> {
        self.begun.take().unwrap_or_else(|| self.begin_commit(false))
    }

    /// Makes everything that the members wrote since the last commit visible: all of it or nothing.
    /// Durable on return. Collective. Returns the number of the commit.
    ///
    /// At [`CommitReach::Node`] it returns once all data are durable in the nodes' burst tiers,
    /// with the number of the last visible commit. The promised commit becomes visible, in order,
    /// with the first later commit that finds it drained, or with [`Session::drain`].
    ///
    /// # Errors
    /// The first error of any member, on all. Then nothing that was written is visible, but arrays
    /// that the session created may be: the message names those. `Conflict` if another writer has
    /// appended to an array that this session appends to, has made one smaller, or has deleted it.
    pub fn commit(&mut self) -> Result<u64> {
        self.member.check_process()?;
        self.enter_handing_over("commit()");
        self.commit_entered()
    }

    /// Commits, after this member has entered the collective call.
    pub(super) fn commit_entered(&mut self) -> Result<u64> {
        if self.member.share.is_some() {
            let mine = self.member.check_healthy().and_then(|()| self.hand_over());
            return self.commit_by_node(mine);
        }
        let is_promise = self.member.options.reach == CommitReach::Node;
        let stream = self.member.stream.as_mut().filter(|_| is_promise);
        let drain = stream.and_then(|stream| stream.segment().drain().cloned());
        if let Some(drain) = &drain {
            drain.hold();
        }
        let mine = self.member.check_healthy().and_then(|()| self.finish());
        self.member.has_promises |= is_promise;
        let told = self.commit_together(mine, |coordinator, parts| coordinator.commit(parts));
        if let Some(drain) = &drain {
            drain.release();
        }
        told
    }

    /// Waits until all commits are drained from the burst tiers and visible. Collective. Returns
    /// the number of the last commit.
    ///
    /// # Errors
    /// As [`Session::commit`]. Promised commits that could not be completed remain for
    /// `bedform recover`.
    pub fn drain(&mut self) -> Result<u64> {
        self.member.check_process()?;
        self.enter_handing_over("drain()");
        self.drain_entered()
    }

    /// Drains, after this member has entered the collective call.
    pub(super) fn drain_entered(&mut self) -> Result<u64> {
        agree(&*self.member.group, self.check_not_begun())?;
        let mine = self.member.check_healthy().and_then(|()| self.finish_draining());
        // Data written since the last commit lie in segments that this session keeps, so no new
        // session is named.
        let number = self.commit_together(mine, |coordinator, parts| {
            Ok(coordinator.commit_all(parts)?.to_le_bytes().to_vec())
        })?;
        self.member.has_promises = false;
        self.member.promised_shapes.clear();
        Ok(number)
    }

    /// Runs `step` on the coordinator with the parts of all members.
    fn commit_together(
        &mut self,
        mine: Result<Vec<u8>>,
        step: impl FnOnce(&mut Coordinator<'_>, &[Vec<u8>]) -> Result<Vec<u8>>,
    ) -> Result<u64> {
        let group = self.member.group.clone();
        let told = decide(&*group, mine, |parts| step(&mut self.as_coordinator()?, &parts));
        self.after_commit(told)
    }

    /// Returns the coordinator.
    ///
    /// # Errors
    /// `InvalidArgument` on the other members.
    pub(super) fn as_coordinator(&mut self) -> Result<Coordinator<'_>> {
        let is_other = || Error::invalid("this member is not the coordinator of its session");
        let state = self.coordinator.as_mut().ok_or_else(is_other)?;
        Ok(Coordinator { state, member: &mut self.member })
    }

    /// Updates the session after a commit, from the coordinator's answer. Returns the commit's
    /// number.
    pub(super) fn after_commit(&mut self, told: Result<Vec<u8>>) -> Result<u64> {
        self.member.epoch += 1;
        if let Err(error) = &told {
            self.arrays.forget_shapes();
            self.member.end_with(error);
        }
        let told = told?;
        self.arrays.end_commit();
        let erred = || Error::invalid("the coordinator erred");
        let (number, next) = told.split_first_chunk().ok_or_else(erred)?;
        // The commit stands even if the newest root cannot be read now.
        let _ = self.member.store.refresh_if_stale();
        if !next.is_empty() {
            let next = next.try_into().map_err(|_| erred())?;
            // The commit stands even if this fails: the next call reports the error.
            if let Err(error) = self.continue_as(next) {
                self.member.end_with(&error);
            }
        }
        Ok(u64::from_le_bytes(*number))
    }

    /// Makes this member's part of the commit durable. Returns the last epoch that it has drained
    /// (a `u32`) and, if it has any data, its encoded directory.
    fn finish(&mut self) -> Result<Vec<u8>> {
        let begun = self.take_begun()?;
        self.look_up_visible()?;
        let (mine, finished) = self.member.finish(begun)?;
        if let Some(finished) = finished {
            self.member.ends.push_back((mine.commit.epoch, finished.position));
        }
        let drained = self.member.drained_epoch();
        Ok([&drained.to_le_bytes()[..], &self.member.encoded(&mine)?].concat())
    }

    /// Waits until this member's part of all commits is drained. Returns the last drained epoch (a
    /// `u32`).
    fn finish_draining(&mut self) -> Result<Vec<u8>> {
        let is_alone = self.member.share.is_none();
        let alone = self.member.stream.as_mut().filter(|_| is_alone);
        let begin = |stream: &mut SectionStream| stream.segment().begin_finish(CommitReach::Shared);
        let finishing = alone.map(begin).transpose()?;
        self.look_up_visible()?;
        if let Some(stream) = &mut self.member.stream {
            // Sections that were flushed since the last commit belong to the next one.
            let finished = match finishing {
                Some(finishing) => stream.segment().finished(&finishing)?,
                None => stream.segment().hand_over()?,
            };
            self.member.sections.extend(finished.sections);
        }
        self.member.ends.clear();
        Ok(self.member.drained_epoch().to_le_bytes().to_vec())
    }

    /// On the coordinator, at [`CommitReach::Node`], looks up the last visible commit while its
    /// data become durable. After a promise nothing may fail or take long.
    fn look_up_visible(&mut self) -> Result<()> {
        if let Some(state) = &mut self.coordinator
            && self.member.options.reach == CommitReach::Node
        {
            state.visible = self.member.newest_number()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bedform_format::ObjectPath;
    use bedform_geometry::Selection;
    use bedform_storage::{
        Failing, Fault, MemoryStorage, Storage, StorageErrorKind, StorageOperation,
    };
    use serde_json::{Map, json};

    use crate::comm::Alone;
    use crate::log::session::SessionOptions;
    use crate::{Elements, NewArray, OpenOptions, Result, Store};

    fn commit_twice_and_settle(store: &Store, in_background: bool) -> Result<()> {
        let path = ObjectPath::parse("t")?;
        let options = SessionOptions { in_background, ..SessionOptions::default() };
        let mut session = store.session(Box::new(Alone), options)?;
        for value in [1, 2] {
            session.write(&path, &Selection::all(&[4]), Elements::Bytes(&[value; 4]))?;
            session.flush()?;
            session.commit()?;
        }
        session.close()
    }

    /// Returns the error text if the `k`-th `operation` fails; `None` if there are fewer.
    fn said(operation: StorageOperation, k: u64, in_background: bool) -> Option<String> {
        let storage = Arc::new(Failing::new(MemoryStorage::new()));
        let shared: Arc<dyn Storage> = storage.clone();
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let store = Store::create(shared, &Map::new(), options).unwrap();
        let new = json!({"shape": [4], "dtype": "uint8", "chunks": [2], "shards": [4]});
        let new = NewArray::from_json(&new, &Default::default()).unwrap();
        store.create_array(&ObjectPath::parse("t").unwrap(), &new).unwrap();
        storage.fail_at(operation, k, Fault::Error(StorageErrorKind::NoSpace));
        commit_twice_and_settle(&store, in_background).err().map(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_written_to_a_log_is_told_with_the_name_of_the_log() {
        let of_log = ["README.txt", "kept", "roots", "segments", "settled", "tables", "tiers"];
        let (mut found, mut wrong) = (0, Vec::new());
        for operation in [
            StorageOperation::Publish,
            StorageOperation::Grow,
            StorageOperation::AppendGrowing,
            StorageOperation::SyncGrowing,
            StorageOperation::List,
            StorageOperation::Stat,
        ] {
            for in_background in [false, true] {
                for text in (0..40).filter_map(|k| said(operation, k, in_background)) {
                    let is_of_log = of_log.iter().any(|name| text.contains(&format!("\"{name}")));
                    let names = text.matches(".bedform-log: cannot ").count();
                    if names != usize::from(is_of_log) {
                        wrong.push(format!("{operation:?}: {text}"));
                    }
                    found += usize::from(is_of_log);
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
        assert!(found >= 10, "{found}");
    }
}
