//! Communication between the processes of a session.
//!
//! All parallel code uses a [`Communicator`], never MPI directly: the library links no MPI, so one
//! build serves every implementation.
//!
//! | module | holds |
//! |---|---|
//! | `threads` | members that are threads, for tests |
//! | `messages` | the message passing that a binding provides: messages of known lengths |
//! | `table` | messages through a table of C functions, which the user's own MPI fills |
//! | `group` | members that may leave early, detect differing calls, and communicate by node |
//! | `waiting` | warnings and timeouts of long waits for other members |
//! | `call` | descriptions of collective calls, by which differing ones are detected |
//!
//! Every function here is collective: all members call it, in the same order. A member that fails
//! reports its error at the next [`agree`], so no member waits for it.

mod call;
mod group;
mod messages;
mod table;
mod threads;
mod waiting;

use std::fmt::Debug;

use crate::error::{Error, ErrorKind, Result};

pub use call::{CollectiveCall, ranks_in_words};
pub use group::{GatherStep, MemberGroup};
pub use messages::{Members, Messages, ReceivedMessage, SentMessage};
pub use table::{CMembers, CMessage};
pub use threads::{ThreadMember, threads, threads_on_nodes};
pub use waiting::{LongWait, wait_on};

/// The rank of the coordinator.
pub const COORDINATOR: u32 = 0;

/// The processes of a session, as seen by one of them.
pub trait Communicator: Send + Sync + Debug {
    /// Returns the rank of this member, from 0.
    fn rank(&self) -> u32;

    /// Returns the number of members.
    fn size(&self) -> u32;

    /// Returns the node of each member, by rank: arbitrary numbers, equal on the same node.
    ///
    /// # Errors
    /// `Io` if the members cannot be reached.
    fn nodes(&self) -> Result<Vec<u32>>;

    /// Returns a communicator of the members with these ranks, renumbered in this order. Only those
    /// members make the call.
    ///
    /// # Errors
    /// `InvalidArgument` if this member is not among them, or a rank does not exist.
    fn select(&self, ranks: &[u32]) -> Result<Box<dyn Communicator>>;

    /// Waits until all members have made this call.
    ///
    /// # Errors
    /// As [`Communicator::nodes`].
    fn barrier(&self) -> Result<()> {
        self.gather(&[], COORDINATOR)?;
        self.broadcast(Vec::new(), COORDINATOR).map(drop)
    }

    /// Sends the bytes of `root` to all members, and returns them.
    ///
    /// # Errors
    /// As [`Communicator::nodes`].
    fn broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<Vec<u8>>;

    /// Sends the bytes of each member to `root`, and returns them there, by rank; `None` on the
    /// others.
    ///
    /// # Errors
    /// As [`Communicator::nodes`].
    fn gather(&self, bytes: &[u8], root: u32) -> Result<Option<Vec<Vec<u8>>>>;

    /// Announces that this member makes no more calls. A [`MemberGroup`] ends by that for all its
    /// members: they learn of it in their next call, or leave as well. Other communicators do
    /// nothing.
    fn leave(&self) {}
}

/// Agrees on the outcome of a step that all members took. Returns `mine` if all succeeded;
/// otherwise every member gets an error: its own, or the first by rank, which names its member.
///
/// # Errors
/// This member's own error; else the first error of any member.
pub fn agree<T>(members: &dyn Communicator, mine: Result<T>) -> Result<T> {
    if members.size() == 1 {
        return mine;
    }
    let said = match &mine {
        Ok(_) => Vec::new(),
        Err(error) => describe(error),
    };
    let worst = members
        .gather(&said, COORDINATOR)
        .map(|all| all.map_or_else(Vec::new, |all| first_error(&all)))
        .and_then(|worst| members.broadcast(worst, COORDINATOR));
    let worst = match (worst, &mine) {
        (Ok(worst), _) => worst,
        // This member's own error says more than the loss of the others.
        (Err(_), Err(_)) => return mine,
        (Err(error), Ok(_)) => return Err(error),
    };
    match (mine, worst.is_empty()) {
        (outcome, true) => outcome,
        (Err(error), false) => Err(error),
        (Ok(_), false) => Err(parse_error(&worst)),
    }
}

/// Lets the coordinator decide for all: it calls `decide` with the bytes of every member, by rank,
/// and sends the result to all. Makes one gather and one broadcast even if a member fails.
///
/// # Errors
/// The first error of any member, on all; else that of `decide`.
pub fn decide(
    members: &dyn Communicator,
    mine: Result<Vec<u8>>,
    decide: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    if members.size() == 1 {
        return decide(vec![mine?]);
    }
    let said = match &mine {
        Ok(bytes) => [&[FINE], &bytes[..]].concat(),
        Err(error) => [&[FAILED], &describe(error)[..]].concat(),
    };
    let decided = match members.gather(&said, COORDINATOR)? {
        None => Ok(Vec::new()),
        Some(all) => decide_of_all(all, decide),
    };
    let told = match &decided {
        Ok(bytes) => [&[FINE], &bytes[..]].concat(),
        Err(error) => [&[FAILED], &describe(error)[..]].concat(),
    };
    let told = members.broadcast(told, COORDINATOR)?;
    // A member's own error is the most precise one.
    match (mine, decided, told.split_first()) {
        (Err(error), ..) | (Ok(_), Err(error), _) => Err(error),
        (.., Some((&FINE, bytes))) => Ok(bytes.to_vec()),
        (.., Some((_, error))) => Err(parse_error(error)),
        (.., None) => Err(Error::new(ErrorKind::Io, "the members' coordinator said nothing")),
    }
}

const FINE: u8 = 0;
const FAILED: u8 = 1;

fn decide_of_all(
    mut all: Vec<Vec<u8>>,
    decide: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    for (rank, said) in all.iter_mut().enumerate() {
        match said.first() {
            Some(&FINE) => drop(said.drain(..1)),
            Some(_) => {
                let (kind, text) = split(&said[1..]);
                return Err(parse_error(format!("{kind}\0rank {rank}: {text}").as_bytes()));
            }
            None => return Err(Error::new(ErrorKind::Io, format!("rank {rank} said nothing"))),
        }
    }
    decide(all)
}

fn describe(error: &Error) -> Vec<u8> {
    format!("{}\0{error}", error.kind().name()).into_bytes()
}

fn first_error(all: &[Vec<u8>]) -> Vec<u8> {
    let failed = all.iter().enumerate().find(|(_, said)| !said.is_empty());
    failed.map_or_else(Vec::new, |(rank, said)| {
        let (kind, text) = split(said);
        format!("{kind}\0rank {rank}: {text}").into_bytes()
    })
}

fn split(said: &[u8]) -> (String, String) {
    let said = String::from_utf8_lossy(said);
    let (kind, text) = said.split_once('\0').unwrap_or(("Io", &said));
    (kind.to_owned(), text.to_owned())
}

fn parse_error(said: &[u8]) -> Error {
    let (kind, text) = split(said);
    let kind = ErrorKind::ALL.into_iter().find(|known| known.name() == kind);
    Error::new(kind.unwrap_or(ErrorKind::Io), text)
}

/// The communicator of a single process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Communicator for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn nodes(&self) -> Result<Vec<u32>> {
        Ok(vec![0])
    }

    fn select(&self, ranks: &[u32]) -> Result<Box<dyn Communicator>> {
        number_among(ranks, 0, 1)?;
        Ok(Box::new(Self))
    }

    fn broadcast(&self, bytes: Vec<u8>, _root: u32) -> Result<Vec<u8>> {
        Ok(bytes)
    }

    fn gather(&self, bytes: &[u8], _root: u32) -> Result<Option<Vec<Vec<u8>>>> {
        Ok(Some(vec![bytes.to_vec()]))
    }
}

/// Returns the new rank of member `rank` of `size`: its position in `ranks`.
fn number_among(ranks: &[u32], rank: u32, size: u32) -> Result<u32> {
    let number = ranks.iter().position(|one| *one == rank);
    let number = number.and_then(|number| u32::try_from(number).ok());
    match number.filter(|_| ranks.iter().all(|rank| *rank < size)) {
        Some(number) => Ok(number),
        None => Err(Error::invalid(format!("rank {rank} of {size} is not one of {ranks:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `act` on each member of a group of threads, and returns the results by rank.
    fn on_all<T: Send>(size: u32, act: impl Fn(ThreadMember) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let act = &act;
            let all: Vec<_> =
                threads(size).into_iter().map(|member| scope.spawn(move || act(member))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn what_members_give_arrives_round_after_round() {
        for size in [1, 2, 5] {
            on_all(size, |member| {
                for round in 0..50_u8 {
                    let rank = u8::try_from(member.rank()).unwrap();
                    let root = u32::from(round) % size;
                    let gathered = member.gather(&[rank, round], root).unwrap();
                    let given = (0..size).map(|rank| vec![u8::try_from(rank).unwrap(), round]);
                    assert_eq!(gathered, (member.rank() == root).then(|| given.collect()));
                    let told = member.broadcast(vec![rank, round], root).unwrap();
                    assert_eq!(told, [u8::try_from(root).unwrap(), round]);
                    member.barrier().unwrap();
                }
            });
        }
    }

    #[test]
    fn an_error_of_one_member_is_that_of_all() {
        let outcomes = on_all(4, |member| {
            let mine = match member.rank() {
                2 => Err(Error::new(ErrorKind::NoSpace, "the disk is full")),
                rank => Ok(rank),
            };
            agree(&member, mine).map_err(|error| (error.kind(), error.to_string()))
        });
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            let (kind, text) = outcome.unwrap_err();
            assert_eq!(kind, ErrorKind::NoSpace);
            assert_eq!(text.starts_with("rank 2: "), rank != 2, "{text}");
        }
        assert!(on_all(3, |member| agree(&member, Ok(())).is_ok()).into_iter().all(|ok| ok));
    }

    #[test]
    fn the_coordinator_decides_for_all_and_errors_are_those_of_all() {
        for size in [1, 4] {
            let sum = |parts: Vec<Vec<u8>>| Ok(vec![parts.iter().flatten().sum()]);
            let told = on_all(size, |member| {
                decide(&member, Ok(vec![u8::try_from(member.rank()).unwrap() + 1]), sum).unwrap()
            });
            let expected = u8::try_from(size * (size + 1) / 2).unwrap();
            assert!(told.iter().all(|told| *told == [expected]), "{told:?}");
        }
        let full = || Error::new(ErrorKind::NoSpace, "the disk is full");
        let outcomes = on_all(3, |member| {
            let mine = if member.rank() == 1 { Err(full()) } else { Ok(vec![]) };
            let error = decide(&member, mine, |_| Ok(vec![])).unwrap_err();
            // All members are still in step.
            decide(&member, Ok(vec![]), |_| Ok(vec![])).unwrap();
            let late = decide(&member, Ok(vec![]), |_| Err(full())).unwrap_err();
            assert_eq!(late.to_string(), full().to_string());
            (error.kind(), error.to_string().starts_with("rank 1: "))
        });
        let kind = ErrorKind::NoSpace;
        assert_eq!(outcomes, [(kind, true), (kind, false), (kind, true)]);
    }

    #[test]
    fn a_member_that_is_gone_does_not_leave_the_others_waiting() {
        let outcomes = on_all(3, |member| match member.rank() {
            1 => None,
            _ => Some(member.barrier().map_err(|error| error.kind())),
        });
        let gone = Some(Err(ErrorKind::Io));
        assert_eq!(outcomes, [gone, None, gone]);
    }

    #[test]
    fn selected_members_talk_among_themselves() {
        on_all(5, |member| {
            if [4, 1, 3].contains(&member.rank()) {
                let some = member.select(&[4, 1, 3]).unwrap();
                let rank = u8::try_from(some.rank()).unwrap();
                assert_eq!(some.size(), 3);
                let all = some.gather(&[rank, u8::try_from(member.rank()).unwrap()], 0).unwrap();
                assert_eq!(all, (rank == 0).then(|| vec![vec![0, 4], vec![1, 1], vec![2, 3]]));
                assert_eq!(some.broadcast(vec![rank], 2).unwrap(), [2]);
            } else {
                assert!(member.select(&[4, 1, 3]).is_err());
            }
            member.barrier().unwrap();
        });
    }

    #[test]
    fn threads_are_on_the_nodes_that_they_are_said_to_be_on() {
        let nodes = |members: Vec<ThreadMember>| members[1].nodes().unwrap();
        assert_eq!(nodes(threads(3)), [0, 0, 0]);
        assert_eq!(nodes(threads_on_nodes(5, 2)), [0, 0, 1, 1, 2]);
    }
}
