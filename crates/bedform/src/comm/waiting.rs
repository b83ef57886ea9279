//! Long waits of a member for others: warnings and timeouts.
//!
//! Only the functions that carry messages ([`Messages`](super::Messages)) know the members that
//! have not sent, and only they can stop waiting. About once a second they ask [`wait_on`] for
//! instructions. The [`MemberGroup`](super::MemberGroup) has noted the reason of the wait for its
//! thread.
//!
//! After a timeout messages may still be in transit, so their buffers are leaked
//! ([`leak_on_error`]).

use std::cell::RefCell;
use std::sync::Arc;

use super::call::{CollectiveCall, ranks_in_words};
use crate::error::Result;

/// Environment variable: seconds until a wait is reported, 0 for never; [`WARN_SECONDS`] by
/// default.
const WARN_VARIABLE: &str = "BEDFORM_COLLECTIVE_WARN";
const WARN_SECONDS: f64 = 60.0;
/// Environment variable: seconds until a wait times out; 0, the default, for never.
const TIMEOUT_VARIABLE: &str = "BEDFORM_COLLECTIVE_TIMEOUT";
/// Number of members that report a long wait for an answer: all of them would say the same.
const TELLERS: u32 = 3;

/// The reason of a wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// An operation outside the calls of a group.
    #[default]
    Unknown,
    /// A leader waits for messages of its node's members.
    Members,
    /// The coordinator waits for messages of the leaders.
    Leaders,
    /// A member waits for an answer; its sender may wait for others.
    Answer,
}

impl WaitReason {
    /// Returns factors for the seconds until a warning and until a timeout. A member that waits for
    /// an answer leaves both to the members that know the missing ranks.
    fn factors(self) -> (f64, f64) {
        match self {
            Self::Unknown | Self::Members => (1.0, 1.0),
            Self::Leaders => (1.0, 1.25),
            Self::Answer => (2.0, 1.5),
        }
    }
}

/// The current wait of a thread.
#[derive(Debug, Default)]
struct PendingWait {
    step: WaitReason,
    call: Option<Arc<CollectiveCall>>,
    rank: u32,
    is_told: bool,
    /// The reason of the timeout, if the wait timed out.
    given_up: Option<String>,
}

thread_local! {
    static WAIT: RefCell<PendingWait> = RefCell::default();
}

/// Instructions for a function that carries messages, in a long wait.
#[derive(Debug, Default, PartialEq)]
pub struct LongWait {
    /// A warning for the user.
    pub warning: Option<String>,
    /// True if the function has to return an error.
    pub gives_up: bool,
}

/// Runs `act`, and notes the reason of its waits for this thread.
pub(super) fn waiting<T>(
    step: WaitReason,
    call: Option<Arc<CollectiveCall>>,
    rank: u32,
    act: impl FnOnce() -> T,
) -> T {
    WAIT.set(PendingWait { step, call, rank, ..PendingWait::default() });
    let outcome = act();
    WAIT.with_borrow_mut(|wait| (wait.step, wait.call) = (WaitReason::Unknown, None));
    outcome
}

/// Takes the reason why the last wait of this thread timed out, if it did.
pub(super) fn given_up() -> Option<String> {
    WAIT.with_borrow_mut(|wait| wait.given_up.take())
}

/// Returns instructions for a wait that has lasted `seconds`, for the members with the ranks
/// `missing`, or for unknown members if that is empty. Functions that carry messages ask about once
/// a second, on the thread that called them.
pub fn wait_on(seconds: f64, missing: &[u32]) -> LongWait {
    let warn = seconds_of(WARN_VARIABLE).unwrap_or(WARN_SECONDS);
    let timeout = seconds_of(TIMEOUT_VARIABLE).unwrap_or(0.0);
    WAIT.with_borrow_mut(|wait| wait.due_action(seconds, missing, warn, timeout))
}

fn seconds_of(variable: &str) -> Option<f64> {
    let seconds: f64 = std::env::var(variable).ok()?.trim().parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
}

impl PendingWait {
    fn due_action(&mut self, seconds: f64, missing: &[u32], warn: f64, timeout: f64) -> LongWait {
        let (warn_factor, timeout_factor) = self.step.factors();
        let mut due = LongWait::default();
        if timeout > 0.0 && seconds >= timeout * timeout_factor {
            self.given_up = Some(self.in_words(seconds, missing));
            due.gives_up = true;
        }
        let tells = self.step != WaitReason::Answer || self.rank < TELLERS;
        if warn > 0.0 && seconds >= warn * warn_factor && tells && !self.is_told {
            self.is_told = true;
            due.warning = Some(self.in_words(seconds, missing));
        }
        due
    }

    fn in_words(&self, seconds: f64, missing: &[u32]) -> String {
        let whom = match missing {
            [] => "other processes".to_owned(),
            missing => ranks_in_words(missing),
        };
        let and_why = match (missing, self.step) {
            ([], _) => "which have not made this call",
            ([_], WaitReason::Answer) => "which has not answered: it may wait for others",
            (_, WaitReason::Answer) => "which have not answered: they may wait for others",
            ([_], WaitReason::Leaders) => {
                "which, or another process of its node, has not made this call"
            }
            (_, WaitReason::Leaders) => {
                "which, or other processes of their nodes, have not made this call"
            }
            ([_], _) => "which has not made this call",
            (_, _) => "which have not made this call",
        };
        let Self { call, rank, .. } = self;
        match call {
            Some(call) => {
                let text = call.text();
                format!("rank {rank} has waited {seconds:.0} s in {text} for {whom}, {and_why}")
            }
            None => {
                format!("a collective call has waited {seconds:.0} s for {whom}, {and_why}")
            }
        }
    }
}

/// Returns the buffers of messages that were passed. After an error some messages may still be in
/// transit: then the buffers are leaked.
pub(super) fn leak_on_error<T>(outcome: Result<()>, buffers: T) -> Result<T> {
    match outcome {
        Ok(()) => Ok(buffers),
        Err(error) => {
            std::mem::forget(buffers);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(step: WaitReason, rank: u32) -> PendingWait {
        let call = Some(Arc::new(CollectiveCall::of("session", [1; 16], "commit()")));
        PendingWait { step, call, rank, ..PendingWait::default() }
    }

    #[test]
    fn a_long_wait_is_told_of_once_and_names_who_is_missing_in_which_call() {
        let mut members = wait(WaitReason::Members, 0);
        assert_eq!(members.due_action(59.0, &[3], 60.0, 0.0), LongWait::default());
        let told = members.due_action(60.0, &[1, 3], 60.0, 0.0);
        let text =
            "rank 0 has waited 60 s in commit() for ranks 1 and 3, which have not made this call";
        assert_eq!(told, LongWait { warning: Some(text.to_owned()), gives_up: false });
        assert_eq!(members.due_action(1e6, &[3], 60.0, 0.0), LongWait::default());
        assert_eq!(
            wait(WaitReason::Members, 0).due_action(1e6, &[3], 0.0, 0.0),
            LongWait::default()
        );
    }

    #[test]
    fn of_those_that_wait_for_an_answer_few_tell_and_late() {
        assert!(wait(WaitReason::Answer, 1).due_action(119.0, &[0], 60.0, 0.0).warning.is_none());
        assert!(wait(WaitReason::Answer, 1).due_action(120.0, &[0], 60.0, 0.0).warning.is_some());
        assert!(wait(WaitReason::Answer, 100).due_action(120.0, &[0], 60.0, 0.0).warning.is_none());
    }

    #[test]
    fn who_knows_whom_it_waits_for_gives_up_first() {
        let gives_up = |step, seconds| wait(step, 0).due_action(seconds, &[3], 0.0, 10.0).gives_up;
        assert!(!gives_up(WaitReason::Members, 9.0) && gives_up(WaitReason::Members, 10.0));
        assert!(!gives_up(WaitReason::Leaders, 10.0) && !gives_up(WaitReason::Answer, 13.0));
        assert!(gives_up(WaitReason::Leaders, 13.0) && gives_up(WaitReason::Answer, 15.0));
    }
}
