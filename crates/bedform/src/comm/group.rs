//! Groups of members that may leave early, detect differing calls, and communicate by node.
//!
//! A member whose program fails between two collective calls makes no more of them, and the others
//! would wait forever. So it leaves ([`Communicator::leave`]): in the next collective call it only
//! announces that it goes. That call and all later ones fail at once, on all members.
//!
//! This relies on one rule. Each collective operation begins with a gather at the coordinator and a
//! broadcast from it, as in [`agree`](super::agree), and no member leaves in between.
//!
//! By the same rule, members that make different calls meet in a gather. Each sends a digest of its
//! call ([`MemberGroup::enter`]) in front of its data. If digests differ, the data are discarded:
//! each member describes its call in words, and the call fails on all with the same text. The group
//! continues, unless a member had handed over data that are lost now: that ends the group for all.
//! If the members belong to different groups, these do not end yet: the others of each group must
//! learn of the loss in a further call.
//!
//! A gather at the coordinator has two steps. The members of a node send to their leader, the first
//! of them; each leader sends one message to the coordinator. A broadcast goes the other way. So
//! the coordinator receives one message per node, and data that a node's members share are sent
//! once ([`MemberGroup::decide_by_node`]). A leader that cannot reach its node's members, or the
//! other leaders, reports that to all that it can reach. So no member waits in vain.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::call::{ANY, CollectiveCall, DIGEST_BYTES, Differences, common_digest, differences};
use super::waiting::{WaitReason, given_up, waiting};
use super::{Alone, COORDINATOR, Communicator, FAILED, FINE, describe, parse_error, split};
use crate::error::{Error, ErrorKind, Result};

/// First byte of a message: the sender stays, it leaves (its rank follows), or some members cannot
/// be reached (the reason may follow). Leaders and the coordinator also send `DIFFERS`: members
/// make calls that differ.
const STAYS: u8 = 0;
const LEAVES: u8 = 1;
const LOST: u8 = 2;
const DIFFERS: u8 = 3;

/// The members of a session, some of which may leave before the others.
#[derive(Debug)]
pub struct MemberGroup {
    members: Box<dyn Communicator>,
    /// The members of this node, if the group communicates by node.
    node: Option<Box<dyn Communicator>>,
    /// On a leader, the leaders of all nodes.
    leaders: Option<Box<dyn Communicator>>,
    /// The group's ranks of the members of this node (of all, without nodes), by their rank there.
    ranks: Vec<u32>,
    /// The call that this member makes; `None` if it failed before it could name one.
    call: Mutex<Option<Arc<CollectiveCall>>>,
    /// True if calls differed after a member had handed over data.
    has_lost_data: AtomicBool,
    /// The reason for the end of the group.
    over: Mutex<Option<EndReason>>,
}

#[derive(Debug, Clone)]
enum EndReason {
    /// This member left, alone or with all others.
    Left,
    /// The member with this rank left.
    LeftBy(u32),
    /// The members made calls that differ, and data that some had handed over are lost.
    Differed,
    /// The members could not be reached; with the reason if a wait for them timed out.
    Unreachable(Option<String>),
}

/// Input of the callback of [`MemberGroup::decide_by_node`].
#[derive(Debug)]
pub enum GatherStep {
    /// On the leader of a node: the data of its members, by their rank there; `None` for one that
    /// failed.
    Node(Vec<Option<Vec<u8>>>),
    /// On the coordinator: the combined data of each node.
    All(Vec<Vec<u8>>),
}

impl MemberGroup {
    /// Returns the group of all `members`, which send directly to the coordinator.
    pub fn new(members: Box<dyn Communicator>) -> Self {
        let leaders: Option<Box<dyn Communicator>> = match members.rank() {
            COORDINATOR => Some(Box::new(Alone)),
            _ => None,
        };
        let ranks = (0..members.size()).collect();
        Self::of(members, None, leaders, ranks)
    }

    /// Returns the group of all `members`, which communicate by node if a node has several.
    /// Collective.
    ///
    /// # Errors
    /// `Io` if the members cannot be reached.
    pub fn by_node(members: Box<dyn Communicator>) -> Result<Self> {
        if members.size() == 1 {
            return Ok(Self::new(members));
        }
        let nodes = members.nodes()?;
        if nodes.len() != members.size() as usize {
            return Err(Error::new(ErrorKind::Io, "the members do not know their nodes"));
        }
        let mut seen = HashSet::new();
        let leaders = (0_u32..).zip(&nodes).filter(|(_, node)| seen.insert(**node));
        let leaders: Vec<u32> = leaders.map(|(rank, _)| rank).collect();
        if leaders.len() == nodes.len() {
            return Ok(Self::new(members));
        }
        let own = nodes[members.rank() as usize];
        let here = (0_u32..).zip(&nodes).filter(|(_, node)| **node == own);
        let ranks: Vec<u32> = here.map(|(rank, _)| rank).collect();
        let node = members.select(&ranks)?;
        let leaders = match node.rank() {
            COORDINATOR => Some(members.select(&leaders)?),
            _ => None,
        };
        Ok(Self::of(members, Some(node), leaders, ranks))
    }

    fn of(
        members: Box<dyn Communicator>,
        node: Option<Box<dyn Communicator>>,
        leaders: Option<Box<dyn Communicator>>,
        ranks: Vec<u32>,
    ) -> Self {
        let (call, over) = (Mutex::default(), Mutex::default());
        Self { members, node, leaders, ranks, call, has_lost_data: AtomicBool::new(false), over }
    }

    /// Names the call that this member makes from now on. All gathers of the call must be part of
    /// the same call on all members; otherwise it fails on all with `InvalidArgument`.
    pub fn enter(&self, call: CollectiveCall) {
        *self.call() = Some(Arc::new(call));
    }

    /// True if members made calls that differ after some had handed over data: those data are lost.
    pub fn has_lost_data(&self) -> bool {
        self.has_lost_data.load(Ordering::Relaxed)
    }

    fn call(&self) -> MutexGuard<'_, Option<Arc<CollectiveCall>>> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the members of this node, if the group communicates by node.
    pub fn node(&self) -> Option<&dyn Communicator> {
        self.node.as_deref()
    }

    /// Returns the rank of the leader of this node, or of the coordinator without nodes.
    pub fn leader(&self) -> u32 {
        self.ranks.first().copied().unwrap_or(COORDINATOR)
    }

    /// Returns the number of leaders; `None` on a member that is not one.
    pub fn leader_count(&self) -> Option<u32> {
        self.leaders.as_ref().map(|leaders| leaders.size())
    }

    /// Returns the members that send to the same leader.
    fn node_members(&self) -> &dyn Communicator {
        self.node.as_deref().unwrap_or(&*self.members)
    }

    fn over(&self) -> MutexGuard<'_, Option<EndReason>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: EndReason) {
        self.over().get_or_insert(why);
    }

    /// Fails if the group has ended.
    fn check(&self) -> Result<()> {
        let what = match &*self.over() {
            None => return Ok(()),
            Some(EndReason::Left) => "the session was ended".to_owned(),
            Some(EndReason::LeftBy(rank)) => format!("rank {rank} has ended the session"),
            Some(EndReason::Differed) => {
                "the processes of the session made different calls where they had to make the same"
                    .to_owned()
            }
            Some(EndReason::Unreachable(None)) => {
                "the processes of the session lost each other".to_owned()
            }
            Some(EndReason::Unreachable(Some(why))) => {
                format!("{why}; it is not known what became of the call")
            }
        };
        let text = format!("{what}; what was committed before stands: start a new session");
        Err(Error::new(ErrorKind::Poisoned, text))
    }

    /// Ends the group if `outcome` is an error: the members could not be reached.
    fn reached<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.or_else(|error| self.unreachable(given_up(), error))
    }

    /// Ends the group after an error of the transport. The reason of a timeout replaces that error.
    fn unreachable<T>(&self, why: Option<String>, error: Error) -> Result<T> {
        let is_known = why.is_some();
        self.end(EndReason::Unreachable(why));
        if is_known {
            self.check()?;
        }
        Err(error)
    }

    /// Returns the message that some members cannot be reached, with the reason of a timeout.
    fn lost() -> Vec<u8> {
        [&[LOST], given_up().unwrap_or_default().as_bytes()].concat()
    }

    /// Runs `act`, a step of this member's call that waits for other members. Meanwhile warnings and
    /// timeouts name `step`.
    fn with_wait_reason<T>(&self, step: WaitReason, act: impl FnOnce() -> T) -> T {
        let call = self.call().clone();
        waiting(step, call, self.rank(), act)
    }

    /// Gathers the members' messages at the coordinator. On each leader `join` combines those of
    /// its node.
    fn collect(
        &self,
        said: &[u8],
        join: impl FnOnce(Vec<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let near = self.with_wait_reason(WaitReason::Members, || {
            self.node_members().gather(said, COORDINATOR)
        });
        let Some(leaders) = &self.leaders else { return self.reached(near).map(|_| None) };
        let up = match near {
            Ok(Some(all)) => match over_among(&all) {
                Some(over) => over,
                None => join(all.into_iter().map(unframed).collect()),
            },
            Ok(None) | Err(_) => Self::lost(),
        };
        let all = self.with_wait_reason(WaitReason::Leaders, || leaders.gather(&up, COORDINATOR));
        all.or_else(|error| {
            let why = given_up();
            let lost = [&[LOST], why.as_deref().unwrap_or_default().as_bytes()].concat();
            if why.is_some() {
                // The other leaders can be reached, except the missing ones.
                let _ = leaders.broadcast(lost.clone(), COORDINATOR);
            }
            // The members of the node wait for the answer.
            let _ = self.node_members().broadcast(lost, COORDINATOR);
            self.unreachable(why, error)
        })
    }

    /// Broadcasts the coordinator's message. Fails on all if the message ends the group or says
    /// that calls differ.
    fn tell(&self, told: Vec<u8>) -> Result<Vec<u8>> {
        let told = match &self.leaders {
            None => Vec::new(),
            Some(leaders) => {
                let told = self
                    .with_wait_reason(WaitReason::Answer, || leaders.broadcast(told, COORDINATOR));
                told.unwrap_or_else(|_| Self::lost())
            }
        };
        let told = self.with_wait_reason(WaitReason::Answer, || {
            self.node_members().broadcast(told, COORDINATOR)
        });
        let told = self.reached(told)?;
        if told.first() == Some(&STAYS) {
            return Ok(unframed(told));
        }
        if told.first() == Some(&DIFFERS) {
            return Err(self.explain()?);
        }
        self.end(match told.split_first() {
            Some((&LEAVES, rank)) if rank.len() == 4 => {
                EndReason::LeftBy(rank.try_into().map_or(u32::MAX, u32::from_le_bytes))
            }
            Some((&LOST, why)) if !why.is_empty() => {
                EndReason::Unreachable(Some(String::from_utf8_lossy(why).into_owned()))
            }
            _ => EndReason::Unreachable(None),
        });
        self.check()?;
        Ok(Vec::new())
    }

    /// Returns the error of calls that differ, built from each member's description of its call.
    /// Collective.
    fn explain(&self) -> Result<Error> {
        let mine = self.call().as_ref().map_or_else(Vec::new, |call| call.described());
        let all = self.collect(&framed(&mine), |said| framed(&join_parts(&self.ranks, &said)))?;
        let told = match &all {
            None => Vec::new(),
            Some(all) => over_among(all).unwrap_or_else(|| {
                let all: Vec<_> = all.iter().cloned().map(unframed).collect();
                let said = split_parts(&all, self.size()).unwrap_or_default();
                let Differences { loses_data, is_of_one_group, text } = differences(&said);
                let flags = [loses_data, is_of_one_group].map(u8::from);
                framed(&[&flags, text.as_bytes()].concat())
            }),
        };
        let told = self.tell(told)?;
        let (flags, text) = told.split_first_chunk().unwrap_or((&[0, 0], &[]));
        let [loses_data, is_of_one_group] = flags.map(|flag| flag != 0);
        if loses_data {
            self.has_lost_data.store(true, Ordering::Relaxed);
        }
        if loses_data && is_of_one_group {
            self.end(EndReason::Differed);
        }
        Ok(Error::invalid(String::from_utf8_lossy(text)))
    }

    /// As [`MemberGroup::collect`], for members that stay and make the same call. Ends the group if
    /// one does not stay.
    fn gather_joined(
        &self,
        bytes: &[u8],
        join: impl FnOnce(Vec<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        self.check()?;
        let digest = self.call().as_ref().map_or(ANY, |call| call.digest());
        let said = said_in(digest, bytes);
        let joined = |near| match without_digests(near) {
            Some((digest, near)) => said_in(digest, &join(near)),
            None => vec![DIFFERS],
        };
        let Some(all) = self.collect(&said, joined)? else { return Ok(None) };
        // The other members wait for the broadcast that follows.
        if let Some(over) = over_among(&all) {
            self.tell(over)?;
        }
        let is_alike = all.iter().all(|said| said.first() == Some(&STAYS));
        let all = is_alike.then(|| without_digests(all.into_iter().map(unframed).collect()));
        match all.flatten() {
            Some((_, all)) => Ok(Some(all)),
            None => self.tell(vec![DIFFERS]).map(|_| None),
        }
    }

    /// As [`decide`](super::decide), in two steps. On each leader `act` combines the data of the
    /// node's members; on the coordinator it decides from the combined data of all nodes. A leader
    /// calls `act` even if one of its members failed; the result is not sent then.
    ///
    /// # Errors
    /// The first error of any member, on all; else that of `act`.
    pub fn decide_by_node(
        &self,
        mine: Result<Vec<u8>>,
        act: &mut dyn FnMut(GatherStep) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        if self.size() == 1 {
            let made = act(GatherStep::Node(vec![Some(mine?)]))?;
            return act(GatherStep::All(vec![made]));
        }
        let said = outcome_bytes(&mine);
        let mut made = Ok(Vec::new());
        let all = self.gather_joined(&said, |near| {
            let failed = self.first_failed(&near);
            let near = near.into_iter().map(|said| {
                said.split_first()
                    .filter(|(first, _)| **first == FINE)
                    .map(|(_, part)| part.to_vec())
            });
            made = act(GatherStep::Node(near.collect()));
            match (failed, &made) {
                (Some(failed), _) => failed,
                (None, Ok(bytes)) => [&[FINE], &bytes[..]].concat(),
                (None, Err(error)) => outcome_bytes(&Err(self.by(error))),
            }
        })?;
        let decided = match all {
            None => Ok(Vec::new()),
            Some(all) => match all.iter().find(|said| said.first() != Some(&FINE)) {
                Some(failed) => Err(parse_error(failed.get(1..).unwrap_or_default())),
                None => act(GatherStep::All(all.into_iter().map(unframed).collect())),
            },
        };
        let told = self.broadcast(outcome_bytes(&decided), COORDINATOR)?;
        // A member's own error is the most precise one.
        match (mine, made, decided, told.split_first()) {
            (Err(error), ..) | (_, Err(error), ..) | (_, _, Err(error), _) => Err(error),
            (.., Some((&FINE, bytes))) => Ok(bytes.to_vec()),
            (.., Some((_, error))) => Err(parse_error(error)),
            (.., None) => Err(Error::new(ErrorKind::Io, "the members' coordinator said nothing")),
        }
    }

    /// Returns the error message of the node's first failed member, with its rank.
    fn first_failed(&self, near: &[Vec<u8>]) -> Option<Vec<u8>> {
        let at = near.iter().position(|said| said.first() != Some(&FINE))?;
        let (kind, text) = split(near[at].get(1..).unwrap_or_default());
        let rank = self.ranks.get(at).copied().unwrap_or(u32::MAX);
        let mut said = vec![FAILED];
        said.extend_from_slice(format!("{kind}\0rank {rank}: {text}").as_bytes());
        Some(said)
    }

    /// Returns an error of this member in the form that the others get: with its rank.
    fn by(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("rank {}: {error}", self.rank()))
    }
}

fn outcome_bytes(outcome: &Result<Vec<u8>>) -> Vec<u8> {
    match outcome {
        Ok(bytes) => [&[FINE], &bytes[..]].concat(),
        Err(error) => [&[FAILED], &describe(error)[..]].concat(),
    }
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&[STAYS], bytes].concat()
}

/// Returns the message of a member that stays: its digest, then its data.
fn said_in(digest: [u8; DIGEST_BYTES], bytes: &[u8]) -> Vec<u8> {
    [&[STAYS], &digest[..], bytes].concat()
}

/// Removes the digests from `parts`. Returns the common digest and the data; `None` if the digests
/// differ.
fn without_digests(mut parts: Vec<Vec<u8>>) -> Option<([u8; DIGEST_BYTES], Vec<Vec<u8>>)> {
    let all: Option<Vec<_>> = parts.iter().map(|part| part.first_chunk()).collect();
    let digest = common_digest(all?.into_iter())?;
    parts.iter_mut().for_each(|part| drop(part.drain(..DIGEST_BYTES)));
    Some((digest, parts))
}

/// Returns the first message that says that a member leaves or cannot be reached.
fn over_among(all: &[Vec<u8>]) -> Option<Vec<u8>> {
    let is_over = |said: &&Vec<u8>| !matches!(said.first(), Some(&(STAYS | DIFFERS)));
    let over = all.iter().find(is_over)?;
    Some(if over.is_empty() { vec![LOST] } else { over.clone() })
}

/// Returns a message without its first byte.
fn unframed(mut message: Vec<u8>) -> Vec<u8> {
    if !message.is_empty() {
        message.remove(0);
    }
    message
}

/// Joins the messages of the members with these ranks: for each its rank (`u32`), length (`u64`)
/// and bytes.
fn join_parts(ranks: &[u32], parts: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(parts.iter().map(|part| part.len() + 12).sum());
    for (rank, part) in ranks.iter().zip(parts) {
        joined.extend_from_slice(&rank.to_le_bytes());
        joined.extend_from_slice(&(part.len() as u64).to_le_bytes());
        joined.extend_from_slice(part);
    }
    joined
}

/// Splits messages of [`join_parts`], and returns the parts by rank.
fn split_parts(all: &[Vec<u8>], size: u32) -> Option<Vec<Vec<u8>>> {
    let mut parts = vec![Vec::new(); size as usize];
    for joined in all {
        let mut rest = joined.as_slice();
        while !rest.is_empty() {
            let (rank, behind) = rest.split_first_chunk()?;
            let (length, behind) = behind.split_first_chunk()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (part, behind) = behind.split_at_checked(length)?;
            *parts.get_mut(u32::from_le_bytes(*rank) as usize)? = part.to_vec();
            rest = behind;
        }
    }
    Some(parts)
}

impl Communicator for MemberGroup {
    fn rank(&self) -> u32 {
        self.members.rank()
    }

    fn size(&self) -> u32 {
        self.members.size()
    }

    fn nodes(&self) -> Result<Vec<u32>> {
        self.check()?;
        self.reached(self.members.nodes())
    }

    fn select(&self, ranks: &[u32]) -> Result<Box<dyn Communicator>> {
        self.check()?;
        self.members.select(ranks)
    }

    fn broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<Vec<u8>> {
        self.check()?;
        match root {
            _ if self.size() == 1 => Ok(bytes),
            COORDINATOR => self.tell(framed(&bytes)),
            root => self.reached(self.members.broadcast(bytes, root)),
        }
    }

    fn gather(&self, bytes: &[u8], root: u32) -> Result<Option<Vec<Vec<u8>>>> {
        self.check()?;
        if self.size() == 1 {
            return Ok(Some(vec![bytes.to_vec()]));
        }
        if root != COORDINATOR {
            return self.reached(self.members.gather(bytes, root));
        }
        let all = self.gather_joined(bytes, |parts| join_parts(&self.ranks, &parts))?;
        let Some(all) = all else { return Ok(None) };
        split_parts(&all, self.size())
            .map(Some)
            .ok_or_else(|| Error::new(ErrorKind::Io, "a member of the session said what cannot be"))
    }

    /// Ends the group. The others learn of it in their next collective call, or leave as well. Does
    /// nothing if the group has ended.
    fn leave(&self) {
        let takes_part = self.members.size() > 1 && self.check().is_ok();
        self.end(EndReason::Left);
        if takes_part {
            // Best effort: members that cannot be reached learn nothing.
            let said = [&[LEAVES][..], &self.rank().to_le_bytes()].concat();
            if let Ok(all) = self.collect(&said, |_| Vec::new()) {
                let over = all.and_then(|all| over_among(&all));
                let _ = self.tell(over.unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{agree, decide, threads_on_nodes};

    /// Runs `act` on `size` members, on nodes of one member up to all of them. Returns the results
    /// of the last run, on one node.
    fn on_all<T: Send>(size: u32, act: impl Fn(MemberGroup) -> T + Sync) -> Vec<T> {
        let mut outcomes = Vec::new();
        for per_node in 1..=size {
            outcomes = on_nodes(size, per_node, &act);
        }
        outcomes
    }

    fn on_nodes<T: Send>(
        size: u32,
        per_node: u32,
        act: impl Fn(MemberGroup) -> T + Sync,
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let act = &act;
            let group = |member| MemberGroup::by_node(Box::new(member)).unwrap();
            let all: Vec<_> = threads_on_nodes(size, per_node)
                .into_iter()
                .map(|member| scope.spawn(move || act(group(member))))
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn what_a_node_has_is_made_one_by_its_leader() {
        for (size, per_node) in [(7, 3), (4, 4), (6, 2), (1, 1), (3, 1)] {
            let told = on_nodes(size, per_node, |group| {
                let rank = u8::try_from(group.rank()).unwrap();
                let act = &mut |gathered| match gathered {
                    GatherStep::Node(parts) => Ok(parts.into_iter().flatten().flatten().collect()),
                    GatherStep::All(nodes) => Ok(nodes.join(&0xff)),
                };
                group.decide_by_node(Ok(vec![rank]), act).unwrap()
            });
            let ranks: Vec<u8> = (0..u8::try_from(size).unwrap()).collect();
            // With one member on each node leaders have nothing to combine.
            let per_node = if per_node == 1 { size } else { per_node };
            let nodes: Vec<_> = ranks.chunks(per_node as usize).map(<[u8]>::to_vec).collect();
            assert!(told.iter().all(|told| *told == nodes.join(&0xff)), "{told:?}");
        }
    }

    #[test]
    fn an_error_in_any_step_is_that_of_all_and_the_leader_still_hears_of_the_rest() {
        for (failing, step) in [(1, 0), (4, 0), (0, 1), (3, 1), (0, 2)] {
            let outcomes = on_nodes(6, 3, |group| {
                let is_failing = group.rank() == failing;
                let error = || Error::new(ErrorKind::NoSpace, "the disk is full");
                let mine = if is_failing && step == 0 { Err(error()) } else { Ok(vec![7]) };
                let mut heard = None;
                let outcome = group.decide_by_node(mine, &mut |gathered| match gathered {
                    GatherStep::Node(parts) => {
                        heard = Some(parts.iter().flatten().count());
                        if is_failing && step == 1 { Err(error()) } else { Ok(vec![]) }
                    }
                    GatherStep::All(_) => Err(error()),
                });
                // All members are still in step.
                assert!(agree(&group, Ok(())).is_ok());
                (outcome.unwrap_err(), heard)
            });
            for (rank, (error, heard)) in (0_u32..).zip(outcomes) {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                let named = error.to_string().starts_with(&format!("rank {failing}: "));
                assert_eq!(named, rank != failing && step != 2, "{error}");
                let all = if step == 0 && rank / 3 == failing / 3 { 2 } else { 3 };
                assert_eq!(heard, (rank % 3 == 0).then_some(all));
            }
        }
    }

    #[test]
    fn whoever_is_gone_leaves_nobody_waiting() {
        for gone in 0..6 {
            let outcomes = on_nodes(6, 2, |group| {
                agree(&group, Ok(())).unwrap();
                if group.rank() == gone {
                    return true;
                }
                agree(&group, Ok(())).is_err() && agree(&group, Ok(())).is_err()
            });
            assert!(outcomes.iter().all(|failed| *failed), "{gone}: {outcomes:?}");
        }
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

    fn call(text: &'static str) -> CollectiveCall {
        CollectiveCall::of("session", [7; 16], text)
    }

    #[test]
    fn calls_that_differ_fail_on_all_with_one_text_and_the_group_goes_on() {
        let kinds: [fn(&MemberGroup) -> Error; 3] = [
            |group| agree(group, Ok(())).unwrap_err(),
            |group| decide(group, Ok(vec![1]), |_| panic!("nothing is looked at")).unwrap_err(),
            |group| {
                // A leader may combine the data of its node if its members make the same call.
                let outcome = group.decide_by_node(Ok(vec![1]), &mut |gathered| match gathered {
                    GatherStep::Node(_) => Ok(Vec::new()),
                    GatherStep::All(_) => panic!("nothing is looked at"),
                });
                outcome.unwrap_err()
            },
        ];
        for (odd, per_node) in (0..5).flat_map(|odd| (1..=5).map(move |per| (odd, per))) {
            let outcomes = on_nodes(5, per_node, |group| {
                let is_odd = group.rank() == odd;
                group.enter(call(if is_odd { "drain()" } else { "commit()" }));
                // They also differ in the collective operation.
                let number = if is_odd { 0 } else { group.rank() as usize % 3 };
                let error = kinds[number](&group);
                group.enter(call("commit()"));
                assert!(agree(&group, Ok(())).is_ok() && !group.has_lost_data());
                (error.kind(), error.to_string())
            });
            assert_eq!(outcomes[0].0, ErrorKind::InvalidArgument);
            let text = &outcomes[0].1;
            assert!(text.contains(&format!("rank {odd} calls drain()")), "{text}");
            assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
        }
    }

    #[test]
    fn calls_that_differ_where_data_were_handed_over_end_the_group_for_all() {
        for per_node in 1..=4 {
            let outcomes = on_nodes(4, per_node, |group| {
                let is_odd = group.rank() == 3;
                let commit = || call("commit()").handing_over();
                group.enter(if is_odd { commit() } else { call("append()") });
                let outcome = decide(&group, Ok(Vec::new()), |_| Ok(Vec::new()));
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
                assert!(group.has_lost_data());
                group.enter(commit());
                let later = agree(&group, Ok(())).unwrap_err();
                group.leave();
                (later.kind(), later.to_string())
            });
            assert_eq!(outcomes[0].0, ErrorKind::Poisoned);
            assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
        }
    }

    #[test]
    fn members_that_meet_from_different_groups_lose_data_and_still_hear_of_each_other() {
        on_all(3, |group| {
            let own =
                CollectiveCall::of("session", [7 + u8::from(group.rank() == 1); 16], "commit()");
            group.enter(own.handing_over());
            let error = agree(&group, Ok(())).unwrap_err();
            assert!(error.to_string().contains("rank 1 calls commit() of session 08080808"));
            assert!(group.has_lost_data());
            group.enter(call("commit()").handing_over());
            assert!(agree(&group, Ok(())).is_ok());
        });
    }

    #[test]
    fn a_member_that_fails_before_it_can_name_its_call_says_why_to_all() {
        for failing in 0..3 {
            let texts = on_all(3, |group| {
                let mine = if group.rank() == failing {
                    Err(Error::new(ErrorKind::ReadOnly, "mine"))
                } else {
                    group.enter(call("session()"));
                    Ok(Vec::new())
                };
                decide(&group, mine, |_| Ok(Vec::new())).unwrap_err().to_string()
            });
            assert!(texts.iter().all(|text| text.ends_with("mine")), "{texts:?}");
        }
    }

    #[test]
    fn whoever_leaves_while_others_make_calls_that_differ_is_named() {
        for leaver in 0..4 {
            let texts = on_all(4, |group| {
                group.enter(call(if group.rank() % 2 == 0 { "commit()" } else { "drain()" }));
                if group.rank() == leaver {
                    group.leave();
                }
                agree(&group, Ok(())).unwrap_err().to_string()
            });
            for (rank, text) in (0_u32..).zip(texts) {
                let named = text.starts_with(&format!("rank {leaver} has ended"));
                assert_eq!(named, rank != leaver, "{text}");
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
