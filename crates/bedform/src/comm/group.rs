//! Members that may leave early.
//!
//! A member whose program fails between two collective calls makes no more of them, and the others
//! would wait for ever. So it leaves ([`Communicator::leave`]): it takes part in the next collective call,
//! whatever that is for the others, only to say that it goes. That ends the group for all of them: that
//! call and all later ones fail at once, and nobody waits.
//!
//! It rests on one rule: what all members do together begins with a gather at the coordinator and a
//! broadcast from it, as [`agree`](super::agree) does, and nobody leaves before it is over.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{COORDINATOR, Communicator};
use crate::error::{Error, ErrorKind, Result};

/// In front of a message: the group goes on, or this member leaves; from the coordinator, which one did.
const STAYS: u8 = 0;
const LEAVES: u8 = 1;

/// Members of whom some may leave before the others.
#[derive(Debug)]
pub struct Group {
    members: Box<dyn Communicator>,
    /// Why it is over.
    over: Mutex<Option<Over>>,
}

#[derive(Debug, Clone, Copy)]
enum Over {
    /// This member left, by itself or with all others.
    Left,
    /// That member left.
    LeftBy(u32),
    /// The members could not be reached.
    Unreachable,
}

impl Group {
    /// The group of all `members`.
    pub fn new(members: Box<dyn Communicator>) -> Self {
        Self { members, over: Mutex::new(None) }
    }

    fn over(&self) -> MutexGuard<'_, Option<Over>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: Over) {
        self.over().get_or_insert(why);
    }

    /// Fails if the group is over.
    fn check(&self) -> Result<()> {
        let what = match *self.over() {
            None => return Ok(()),
            Some(Over::Left) => "the session was ended".to_owned(),
            Some(Over::LeftBy(rank)) => format!("rank {rank} has ended the session"),
            Some(Over::Unreachable) => "the processes of the session lost each other".to_owned(),
        };
        let text = format!("{what}; what was committed before stands: start a new session");
        Err(Error::new(ErrorKind::Poisoned, text))
    }

    /// Ends the group if the members could not be reached.
    fn reached<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.end(Over::Unreachable);
        }
        outcome
    }

    fn left_by(&self, told: &[u8]) -> Result<()> {
        let rank = told.get(1..5).and_then(|rank| rank.try_into().ok()).map(u32::from_le_bytes);
        self.end(Over::LeftBy(rank.unwrap_or(COORDINATOR)));
        self.check()
    }
}

/// What the coordinator tells if a member of `all` leaves.
fn leaver(all: &[Vec<u8>]) -> Option<Vec<u8>> {
    let rank = all.iter().position(|said| said.first() == Some(&LEAVES))?;
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    Some([&[LEAVES][..], &rank.to_le_bytes()].concat())
}

impl Communicator for Group {
    fn rank(&self) -> u32 {
        self.members.rank()
    }

    fn size(&self) -> u32 {
        self.members.size()
    }

    fn split_by_node(&self) -> Result<Box<dyn Communicator>> {
        self.check()?;
        self.reached(self.members.split_by_node())
    }

    fn broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<Vec<u8>> {
        self.check()?;
        if self.size() == 1 {
            return Ok(bytes);
        }
        let mut framed = Vec::with_capacity(bytes.len() + 1);
        framed.push(STAYS);
        framed.extend_from_slice(&bytes);
        let mut told = self.reached(self.members.broadcast(framed, root))?;
        if told.first() != Some(&STAYS) {
            self.left_by(&told)?;
        }
        told.remove(0);
        Ok(told)
    }

    fn gather(&self, bytes: &[u8], root: u32) -> Result<Option<Vec<Vec<u8>>>> {
        self.check()?;
        if self.size() == 1 {
            return Ok(Some(vec![bytes.to_vec()]));
        }
        let mut framed = Vec::with_capacity(bytes.len() + 1);
        framed.push(STAYS);
        framed.extend_from_slice(bytes);
        let Some(mut all) = self.reached(self.members.gather(&framed, root))? else {
            return Ok(None);
        };
        if let Some(told) = leaver(&all) {
            // The others wait for the broadcast that follows.
            self.reached(self.members.broadcast(told.clone(), root))?;
            self.left_by(&told)?;
        }
        for part in &mut all {
            if !part.is_empty() {
                part.remove(0);
            }
        }
        Ok(Some(all))
    }

    fn all_to_all(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        self.reached(self.members.all_to_all(parts))
    }

    /// Ends the group. The others learn of it in their next collective call, or leave as well; does
    /// nothing if it is over.
    fn leave(&self) {
        if self.members.size() > 1 && self.check().is_ok() {
            // Whoever can still be reached knows then; nothing can be done for the others.
            if let Ok(all) = self.members.gather(&[LEAVES], COORDINATOR) {
                let told = all.map_or_else(Vec::new, |all| leaver(&all).unwrap_or_default());
                let _ = self.members.broadcast(told, COORDINATOR);
            }
        }
        self.end(Over::Left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{agree, threads};

    /// What each of `size` members returns from `act`.
    fn on_all<T: Send>(size: u32, act: impl Fn(Group) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let act = &act;
            let group = |member| Group::new(Box::new(member));
            let all: Vec<_> = threads(size)
                .into_iter()
                .map(|member| scope.spawn(move || act(group(member))))
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn who_leaves_ends_the_group_for_all_and_nobody_waits() {
        for leaver in 0..3 {
            let outcomes = on_all(3, |group| {
                agree(&group, Ok(())).unwrap();
                if group.rank() == leaver {
                    group.leave();
                }
                let first = agree(&group, Ok(())).unwrap_err();
                let later = agree(&group, Ok(())).unwrap_err();
                group.leave();
                assert_eq!(first.to_string(), later.to_string());
                (first.kind(), first.to_string())
            });
            for (rank, (kind, text)) in (0_u32..).zip(outcomes) {
                assert_eq!(kind, ErrorKind::Poisoned);
                let names = text.starts_with(&format!("rank {leaver} has ended"));
                assert_eq!(names, rank != leaver, "{text}");
            }
        }
    }

    #[test]
    fn all_may_leave_together() {
        on_all(4, |group| {
            assert!(agree(&group, Ok(7)).is_ok());
            group.leave();
            group.leave();
            assert!(agree(&group, Ok(7)).is_err());
        });
    }

    #[test]
    fn an_error_of_one_and_the_leaving_of_another_do_not_cross() {
        on_all(3, |group| {
            match group.rank() {
                1 => group.leave(),
                2 => drop(agree(&group, Err::<(), _>(Error::invalid("mine"))).unwrap_err()),
                _ => drop(agree(&group, Ok(())).unwrap_err()),
            }
            group.leave();
        });
    }

    #[test]
    fn what_the_members_say_arrives_as_it_was() {
        on_all(3, |group| {
            let rank = u8::try_from(group.rank()).unwrap();
            let all = group.gather(&[rank, 9], 2).unwrap();
            assert_eq!(all, (rank == 2).then(|| vec![vec![0, 9], vec![1, 9], vec![2, 9]]));
            assert_eq!(group.broadcast(vec![rank], 1).unwrap(), [1]);
            assert!(group.broadcast(vec![], 1).unwrap().is_empty());
        });
    }
}
