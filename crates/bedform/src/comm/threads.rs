//! Members that are threads of one process, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Communicator, number_among};
use crate::error::{Error, ErrorKind, Result};

/// The exchange between the threads of one group: each gives its parts, and takes those for it when
/// all have given.
#[derive(Debug)]
struct ThreadExchange {
    size: u32,
    state: Mutex<ThreadRound>,
    changed: Condvar,
    /// Number of members on a node: the first ones are on the first node, and so on.
    per_node: u32,
    parts: Mutex<SelectionTables>,
}

/// The tables of selections of the members.
#[derive(Debug, Default)]
struct SelectionTables {
    /// By the ranks of the selected members.
    tables: BTreeMap<Vec<u32>, Arc<ThreadExchange>>,
    gone: Vec<u32>,
}

#[derive(Debug, Default)]
struct ThreadRound {
    /// The given parts, by giver, then by taker.
    given: Vec<Option<Vec<Vec<u8>>>>,
    taken: u32,
    round: u64,
    is_broken: bool,
}

impl ThreadExchange {
    fn new(size: u32, per_node: u32) -> Arc<Self> {
        let given = (0..size).map(|_| None).collect();
        let state = Mutex::new(ThreadRound { given, ..ThreadRound::default() });
        Arc::new(Self { size, state, changed: Condvar::new(), per_node, parts: Mutex::default() })
    }

    fn parts(&self) -> MutexGuard<'_, SelectionTables> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the table of the members with these ranks.
    fn part(&self, ranks: &[u32]) -> Arc<Self> {
        let mut parts = self.parts();
        let size = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let is_broken = ranks.iter().any(|rank| parts.gone.contains(rank));
        let table = parts.tables.entry(ranks.to_vec()).or_insert_with(|| Self::new(size, size));
        if is_broken {
            table.end();
        }
        table.clone()
    }

    /// Ends the exchange for all members.
    fn end(&self) {
        self.lock().is_broken = true;
        self.changed.notify_all();
    }

    /// Removes a member, and ends all exchanges in which it takes part.
    fn leave(&self, rank: u32) {
        self.end();
        let mut parts = self.parts();
        parts.gone.push(rank);
        let tables = parts.tables.iter().filter(|(ranks, _)| ranks.contains(&rank));
        tables.for_each(|(_, table)| table.end());
    }

    fn lock(&self) -> MutexGuard<'_, ThreadRound> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a part to every member, and takes one from every member.
    fn exchange(&self, rank: u32, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let me = rank as usize;
        let mut state = self.lock();
        // Other members may still be in the previous round.
        while !state.is_broken && state.given[me].is_some() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let round = state.round;
        state.given[me] = Some(parts);
        self.changed.notify_all();
        while !state.is_broken && state.given.iter().any(Option::is_none) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_broken {
            return Err(Error::new(ErrorKind::Io, "a member of the session is gone"));
        }
        debug_assert_eq!(round, state.round, "nobody goes on before all have taken");
        let mine = state.given.iter_mut().flatten().map(|parts| std::mem::take(&mut parts[me]));
        let mine = mine.collect();
        state.taken += 1;
        if state.taken == self.size {
            state.taken = 0;
            state.round += 1;
            state.given.iter_mut().for_each(|given| *given = None);
            self.changed.notify_all();
        } else {
            // Waits for all, so that a fast member cannot give twice.
            while !state.is_broken && state.round == round {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(mine)
    }
}

/// A member that is a thread of this process.
#[derive(Debug)]
pub struct ThreadMember {
    rank: u32,
    table: Arc<ThreadExchange>,
}

/// Returns the members of a group of `size` threads. A member that is dropped early ends the group:
/// the calls of the others fail.
///
/// ```
/// use bedform::comm::{Communicator as _, threads};
///
/// let members = threads(3);
/// std::thread::scope(|scope| {
///     for member in members {
///         scope.spawn(move || {
///             let all = member.gather(&[member.rank() as u8], 0).unwrap();
///             assert_eq!(all.is_some(), member.rank() == 0);
///         });
///     }
/// });
/// ```
pub fn threads(size: u32) -> Vec<ThreadMember> {
    threads_on_nodes(size, size)
}

/// As [`threads`], with `per_node` of them on each node, and the rest on the last.
pub fn threads_on_nodes(size: u32, per_node: u32) -> Vec<ThreadMember> {
    let table = ThreadExchange::new(size, per_node.max(1));
    (0..size).map(|rank| ThreadMember { rank, table: table.clone() }).collect()
}

impl Drop for ThreadMember {
    fn drop(&mut self) {
        self.table.leave(self.rank);
    }
}

impl Communicator for ThreadMember {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.table.size
    }

    fn nodes(&self) -> Result<Vec<u32>> {
        let ThreadExchange { size, per_node, .. } = *self.table;
        Ok((0..size).map(|rank| rank / per_node).collect())
    }

    fn select(&self, ranks: &[u32]) -> Result<Box<dyn Communicator>> {
        let rank = number_among(ranks, self.rank, self.size())?;
        Ok(Box::new(Self { rank, table: self.table.part(ranks) }))
    }

    fn broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<Vec<u8>> {
        let parts = match self.rank == root {
            true => vec![bytes; self.size() as usize],
            false => vec![Vec::new(); self.size() as usize],
        };
        let mut found = self.table.exchange(self.rank, parts)?;
        Ok(std::mem::take(&mut found[root as usize]))
    }

    fn gather(&self, bytes: &[u8], root: u32) -> Result<Option<Vec<Vec<u8>>>> {
        let mut parts = vec![Vec::new(); self.size() as usize];
        parts[root as usize] = bytes.to_vec();
        let found = self.table.exchange(self.rank, parts)?;
        Ok((self.rank == root).then_some(found))
    }
}
