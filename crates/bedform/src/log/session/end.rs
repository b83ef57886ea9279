//! The end of a session: with its last commit, or without.

use std::time::Duration;

use bedform_storage::within;

use super::{CommitReach, Session};
use crate::comm::{Communicator, MemberGroup, agree, decide};
use crate::error::{Error, Result};
use crate::log::member::{Health, SessionMember};
use crate::log::settle::SettleOptions;

/// Time that a failed session may take to release its resources.
const LET_GO: Duration = Duration::from_secs(1);

/// The treatment of a session's commits at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// They become shards.
    Settle,
    /// They stay in the log until a later settle.
    Leave,
}

/// Tells the other members that this one cannot take part in
/// [`Store::session`](crate::Store::session) or
/// [`Store::settle_together`](crate::Store::settle_together). It is called in place of these, and
/// returns `error`, of which the others learn.
pub fn decline(members: Box<dyn Communicator>, error: Error) -> Error {
    let members = match MemberGroup::by_node(members) {
        Ok(members) => members,
        Err(_) => return error,
    };
    match decide(&members, Err(error), |_| Ok(Vec::new())) {
        Err(error) => error,
        Ok(_) => Error::invalid("the call did not begin"),
    }
}

impl Session {
    /// Commits the rest, settles if [told to](super::SessionOptions::at_end), and ends the session.
    /// Collective.
    ///
    /// # Errors
    /// As [`Session::commit`] and [`Store::settle`](crate::Store::settle), on all members; errors
    /// of settling say that the commits stand. The session has ended even then.
    pub fn close(mut self) -> Result<()> {
        let outcome = self.member.check_process().and_then(|()| self.end_together());
        self.leave();
        outcome
    }

    fn end_together(&mut self) -> Result<()> {
        self.enter_handing_over("end()");
        self.commit_entered()?;
        self.end_settling();
        if self.member.options.reach == CommitReach::Node {
            // All promised commits become visible.
            self.drain_entered()?;
        }
        match self.member.options.at_end {
            AtEnd::Settle => self
                .settle_together()
                .map_err(|error| error.followed_by(self.remaining_commits_text())),
            AtEnd::Leave => Ok(()),
        }
    }

    /// Ends the session without another commit: data without a commit are lost. A single member may
    /// do so when its program fails: the next collective call of the others then fails, so no
    /// member waits. Dropping a session of several members is not enough.
    pub fn leave(self) {
        if self.member.check_process().is_ok() {
            self.member.group.leave();
        }
    }

    /// Releases nothing, in a forked process: the threads to join do not exist here, and files,
    /// locks and messages are the parent's.
    pub(super) fn leave_behind(&mut self) {
        let SessionMember { store, group, options, log, stream, .. } = &mut self.member;
        let parents = (stream.take(), self.coordinator.take(), options.burst.take());
        std::mem::forget((parents, store.clone(), group.clone(), log.clone()));
    }

    /// Releases the segment.
    pub(super) fn end_stream(&mut self) {
        match self.member.health {
            Health::Sound => self.let_go(),
            // For a limited time, since an unresponsive server may be the cause. Locks that are not
            // released expire.
            Health::Refused | Health::Failed => within(LET_GO, || self.let_go()),
        }
    }

    fn let_go(&mut self) {
        if let Some(state) = &mut self.coordinator {
            state.remove_lock_files(&self.member.store);
        }
        self.member.end_segment();
    }

    /// Describes the state of commits that are not fully settled, and the remedy.
    fn remaining_commits_text(&self) -> String {
        format!(
            "all that was committed is durable and can be read, and what was not settled, or not removed, \
             stays in {}: 'bedform settle', by who may, goes on",
            self.member.log.name()
        )
    }

    /// Settles; each member does a share.
    fn settle_together(&mut self) -> Result<()> {
        // The log is removed when no member holds a segment.
        self.end_stream();
        let SessionMember { store, group, options, .. } = &self.member;
        agree(&**group, Ok(()))?;
        let memory_bytes = options.settle_memory_bytes;
        let options = SettleOptions { memory_bytes, ..SettleOptions::default() };
        store.settle_together(group, &options, &|_, _| ()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bedform_format::ObjectPath;
    use bedform_geometry::Selection;
    use bedform_storage::{MemoryStorage, Storage};
    use serde_json::{Map, json};

    use crate::comm::{Communicator, threads};
    use crate::log::session::{Session, SessionOptions, Token};
    use crate::{Elements, ErrorKind, NewArray, OpenOptions, Store};

    fn begun(store: &Store, members: impl Communicator + 'static) -> Session {
        let options = SessionOptions::default();
        let mut session = store.session(Box::new(members), options).unwrap();
        let path = ObjectPath::parse("t").unwrap();
        session.write(&path, &Selection::all(&[4]), Elements::Bytes(&[1, 2, 3, 4])).unwrap();
        session
    }

    #[test]
    fn a_forked_process_can_do_nothing_with_a_session_nor_end_it() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let store = Store::create(storage.clone(), &Map::new(), options).unwrap();
        let path = ObjectPath::parse("t").unwrap();
        let new = json!({"shape": [4], "dtype": "uint8", "chunks": [2], "shards": [4]});
        let new = NewArray::from_json(&new, &Default::default()).unwrap();
        store.create_array(&path, &new).unwrap();
        // The other member makes no call, and waiting for it would never end.
        let mut members = threads(2);
        let other = members.pop().unwrap();
        let second = store.clone();
        let other = std::thread::spawn(move || begun(&second, other));
        let mut session = begun(&store, members.pop().unwrap());
        let _other = other.join().unwrap();

        session.member.process += 1;
        let again = Elements::Bytes(&[5; 4]);
        let refused = [
            session.write(&path, &Selection::all(&[4]), again).map(drop),
            session.resize(&path, &[8]),
            session.append(&path, 0, &[4], again).map(drop),
            session.create_arrays(&[]),
            session.wait(Token(0)),
            session.flush(),
            session.commit().map(drop),
            session.drain().map(drop),
        ];
        for outcome in refused {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            assert!(error.to_string().contains("forked"), "{error}");
        }
        let name = session.member.stream().unwrap().segment().name().to_owned();
        let log = session.member.log.clone();
        session.leave();
        assert!(!log.is_closed(&name).unwrap(), "its writer goes on");
        let lock = ObjectPath::parse(&format!("segments/{name}")).unwrap();
        assert!(log.storage.try_lock(&lock).unwrap().is_none(), "and has its lock");
    }
}
