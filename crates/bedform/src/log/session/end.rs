//! How a session ends: with its last commit, or without.

use super::{Health, Reach, Session};
use crate::comm::{Communicator, Group, agree, decide};
use crate::error::{Error, Result};
use crate::log::settle::{SettleOptions, SettleWatch};

/// What becomes of the commits when a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// They become shards.
    Settle,
    /// They stay in the log until somebody settles.
    Leave,
}

/// What a member does that cannot begin a session, in place of
/// [`Store::session`](crate::Store::session): the others learn of its error. Gives it back.
pub fn decline(members: Box<dyn Communicator>, error: Error) -> Error {
    let members = match Group::by_node(members) {
        Ok(members) => members,
        Err(_) => return error,
    };
    match decide(&members, Err(error), |_| Ok(Vec::new())) {
        Err(error) => error,
        Ok(_) => Error::invalid("the session did not begin"),
    }
}

impl Session {
    /// Commits what is left, settles if [told to](super::SessionOptions::at_end), and ends the session.
    /// Collective.
    ///
    /// # Errors
    /// As [`Session::commit`] and [`Store::settle`](crate::Store::settle), on all members. The session
    /// has ended all the same, and what was committed stands.
    pub fn close(mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let at_end = self.options.at_end;
        let committed =
            self.commit().and_then(|_| self.keep_promises()).and_then(|()| match at_end {
                AtEnd::Settle => self.settle_together(interrupted),
                AtEnd::Leave => Ok(()),
            });
        self.leave();
        committed
    }

    /// Ends the session without another commit: what was not committed is gone. A member may do that by
    /// itself, when its program fails: the next collective call of the others then fails, and nobody
    /// waits. Dropping a session of several members is not enough.
    pub fn leave(self) {
        self.members.leave();
    }

    /// Waits until everything that was promised is visible.
    fn keep_promises(&mut self) -> Result<()> {
        match self.options.reach {
            Reach::Node => self.drain().map(drop),
            Reach::Shared => Ok(()),
        }
    }

    /// Lets go of the segment: what no commit has of it is nobody's, unless something failed or was
    /// promised.
    pub(super) fn end_stream(&mut self) {
        let is_first = self.share.is_none_or(|share| share.lane.number() == 0);
        if let Some(mut stream) = self.stream.take()
            && is_first
            && self.health != Health::Failed
            && !self.has_promises
            // Where the store was before it was moved nothing is to be made.
            && self.store.shared.log_place().is_ok_and(|now| now.name() == self.log.name())
        {
            // Without it the segment is looked through before it is removed, which costs time only.
            let _ = self.log.mark_closed(stream.segment().name());
        }
    }

    /// Settles, a share by each member.
    fn settle_together(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        // Nobody holds a segment any more when the log is removed.
        self.end_stream();
        agree(&*self.members, Ok(()))?;
        let watch = SettleWatch { interrupted, progress: &|_, _| () };
        let options = SettleOptions::default();
        self.store.settle_together(&*self.members, &options, &watch).map(drop)
    }
}
