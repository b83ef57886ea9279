//! The message passing that a binding provides, and the [`Communicator`] built on it.
//!
//! MPI and similar libraries need message lengths in advance. So a binding passes messages of known
//! lengths ([`Messages`]), and [`Members`] finds the lengths out. Each part is sent in a frame of
//! fixed size, which holds small parts completely, and nearly all are small. Only the rest of a
//! larger part needs another message.

#![allow(clippy::disallowed_methods, reason = "it reads what the kernel says")]

use std::collections::HashMap;
use std::sync::Arc;

use super::waiting::leak_on_error;
use super::{COORDINATOR, Communicator, number_among};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a frame: the length of the part, then as much of the part as fits. A broadcast sends
/// one frame; in a gather one member receives a frame from every member.
const BROADCAST_FRAME: usize = 1024;
const GATHER_FRAME: usize = 256;
/// Maximum number of bytes of a node's name.
const NODE_NAME_MAX: usize = 128;
/// Up to this many members exchange single messages, as those of a node do, rather than make
/// collective calls.
const ONE_BY_ONE_MAX: u32 = 256;
/// Bytes of the length at the start of a frame.
const LENGTH_BYTES: usize = 8;

/// A message to a member.
#[derive(Debug)]
pub struct SentMessage<'a> {
    /// The rank of the receiver.
    pub to: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A buffer for a message from a member.
#[derive(Debug)]
pub struct ReceivedMessage<'a> {
    /// The rank of the sender.
    pub from: u32,
    /// The buffer, as long as the message.
    pub bytes: &'a mut [u8],
}

/// Messages of known lengths between the members of a group.
///
/// All calls but [`Messages::exchange`] are collective: all members make them, in the same order.
/// An implementation must not spin while it waits, since there may be more members than cores.
pub trait Messages: Send + Sync + std::fmt::Debug {
    /// Returns the rank of this member, from 0.
    fn rank(&self) -> u32;

    /// Returns the number of members.
    fn size(&self) -> u32;

    /// Waits until all members have made this call.
    ///
    /// # Errors
    /// `Io` if the members cannot be reached.
    fn barrier(&self) -> Result<()>;

    /// Sends the bytes of `root` to all members; `bytes` has the same length on all.
    ///
    /// # Errors
    /// As [`Messages::barrier`].
    fn broadcast(&self, bytes: &mut [u8], root: u32) -> Result<()>;

    /// Sends the bytes of each member to `root`, into `all` by rank. `bytes` has the same length on
    /// all members, at most 64 KiB; `all` is empty on the others.
    ///
    /// # Errors
    /// As [`Messages::barrier`].
    fn gather(&self, bytes: &[u8], all: &mut [u8], root: u32) -> Result<()>;

    /// Exchanges messages between some members. Only members that send or receive one make the
    /// call; messages between two members arrive in the order of the calls.
    ///
    /// # Errors
    /// As [`Messages::barrier`].
    fn exchange(
        &self,
        sent: &[SentMessage<'_>],
        received: &mut [ReceivedMessage<'_>],
    ) -> Result<()>;
}

/// A communicator with messages of any length, over messages of known lengths.
#[derive(Debug)]
pub struct Members {
    messages: Arc<dyn Messages>,
}

/// Some of the members, which exchange messages without the others.
#[derive(Debug)]
struct SelectedMembers {
    messages: Arc<dyn Messages>,
    /// The rank among all members, by rank in the selection.
    ranks: Vec<u32>,
    rank: u32,
}

impl Members {
    /// Returns the communicator of the members that `messages` reaches.
    pub fn new(messages: Box<dyn Messages>) -> Self {
        Self { messages: Arc::from(messages) }
    }

    /// Returns zeroed frames of `length` bytes, one for each member.
    fn frames(&self, length: usize) -> Vec<u8> {
        vec![0; self.size() as usize * length]
    }
}

/// Writes the length and the first bytes of `part` into a frame.
fn fill_frame(frame: &mut [u8], part: &[u8]) {
    let (length, room) = frame.split_at_mut(LENGTH_BYTES);
    length.copy_from_slice(&(part.len() as u64).to_le_bytes());
    let inside = part.len().min(room.len());
    room[..inside].copy_from_slice(&part[..inside]);
}

/// Returns the part that `frame` begins: its first bytes, then zeros for the bytes that did not
/// fit.
fn open_frame(frame: &[u8]) -> Result<Vec<u8>> {
    let (length, room) = frame.split_at(LENGTH_BYTES);
    let length = length.try_into().map_or(u64::MAX, u64::from_le_bytes);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut part = Vec::new();
    part.try_reserve_exact(length).map_err(|_| {
        let text = format!("no memory for a message of {length} bytes of another member");
        Error::new(ErrorKind::LimitExceeded, text)
    })?;
    part.extend_from_slice(&room[..length.min(room.len())]);
    part.resize(length, 0);
    Ok(part)
}

/// Returns the bytes of a part that do not fit into its frame of `frame` bytes.
fn rest_of(part: &[u8], frame: usize) -> &[u8] {
    part.get(frame - LENGTH_BYTES..).unwrap_or_default()
}

/// Returns buffers for the bytes that did not fit into the frames of `parts`, by rank.
fn received_rests(parts: &mut [Vec<u8>], frame: usize) -> Vec<ReceivedMessage<'_>> {
    let rests = (0_u32..).zip(parts).filter_map(|(from, part)| {
        let bytes = part.get_mut(frame - LENGTH_BYTES..).filter(|rest| !rest.is_empty())?;
        Some(ReceivedMessage { from, bytes })
    });
    rests.collect()
}

/// Returns an identifier of this node: its host name, and the boot id of its system.
fn this_node() -> Vec<u8> {
    let system = rustix::system::uname();
    let mut name = system.nodename().to_bytes().to_vec();
    name.truncate(NODE_NAME_MAX);
    name.push(0);
    // Without a boot id the host name must do.
    name.extend(std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    name
}

/// Numbers `names`, equal ones alike, and returns the numbers as bytes of `u32`.
fn numbered(names: &[Vec<u8>]) -> Vec<u8> {
    let mut known = HashMap::new();
    let numbers = names.iter().map(|name| {
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        *known.entry(name).or_insert(next)
    });
    numbers.flat_map(u32::to_le_bytes).collect()
}

impl Communicator for Members {
    fn rank(&self) -> u32 {
        self.messages.rank()
    }

    fn size(&self) -> u32 {
        self.messages.size()
    }

    /// Compares the identifiers of the members' nodes. MPI's own call blocks and spins, which takes
    /// most of a second if there are many more members than cores.
    fn nodes(&self) -> Result<Vec<u32>> {
        let all = self.gather(&this_node(), COORDINATOR)?;
        let nodes = all.map_or_else(Vec::new, |all| numbered(&all));
        let nodes = self.broadcast(nodes, COORDINATOR)?;
        Ok(nodes.as_chunks::<4>().0.iter().copied().map(u32::from_le_bytes).collect())
    }

    fn select(&self, ranks: &[u32]) -> Result<Box<dyn Communicator>> {
        let rank = number_among(ranks, self.rank(), self.size())?;
        let messages = self.messages.clone();
        // Few members exchange single messages, so that a waiting member knows which one has not
        // sent.
        if self.size() > ONE_BY_ONE_MAX && ranks.iter().copied().eq(0..self.size()) {
            return Ok(Box::new(Self { messages }));
        }
        Ok(Box::new(SelectedMembers { messages, ranks: ranks.to_vec(), rank }))
    }

    fn barrier(&self) -> Result<()> {
        self.messages.barrier()
    }

    fn broadcast(&self, mut bytes: Vec<u8>, root: u32) -> Result<Vec<u8>> {
        let mut frame = vec![0; BROADCAST_FRAME];
        let is_root = self.rank() == root;
        if is_root {
            fill_frame(&mut frame, &bytes);
        }
        let frame = leak_on_error(self.messages.broadcast(&mut frame, root), frame)?;
        if !is_root {
            bytes = open_frame(&frame)?;
        }
        match bytes.get_mut(BROADCAST_FRAME - LENGTH_BYTES..) {
            Some(rest) if !rest.is_empty() => {
                leak_on_error(self.messages.broadcast(rest, root), bytes)
            }
            _ => Ok(bytes),
        }
    }

    fn gather(&self, bytes: &[u8], root: u32) -> Result<Option<Vec<Vec<u8>>>> {
        let mut frame = vec![0; GATHER_FRAME];
        fill_frame(&mut frame, bytes);
        if self.rank() != root {
            leak_on_error(self.messages.gather(&frame, &mut [], root), frame)?;
            let rest = rest_of(bytes, GATHER_FRAME).to_vec();
            if !rest.is_empty() {
                let sent = SentMessage { to: root, bytes: &rest };
                leak_on_error(self.messages.exchange(&[sent], &mut []), rest)?;
            }
            return Ok(None);
        }
        let mut frames = self.frames(GATHER_FRAME);
        let outcome = self.messages.gather(&frame, &mut frames, root);
        let (_, frames) = leak_on_error(outcome, (frame, frames))?;
        let mut parts: Vec<Vec<u8>> =
            frames.chunks_exact(GATHER_FRAME).map(open_frame).collect::<Result<_>>()?;
        let mine = root as usize;
        parts[mine].clear();
        let mut rests = received_rests(&mut parts, GATHER_FRAME);
        if !rests.is_empty() {
            let outcome = self.messages.exchange(&[], &mut rests);
            parts = leak_on_error(outcome, parts)?;
        }
        parts[mine] = bytes.to_vec();
        Ok(Some(parts))
    }
}

impl SelectedMembers {
    /// Sends `given[n]` to each other member `n` for which there is a part. Returns the parts of
    /// the members that `from` expects. Frames go first, then the bytes that do not fit into them.
    fn swap(&self, given: &[Option<&[u8]>], from: &[bool]) -> Result<Vec<Vec<u8>>> {
        let count = self.ranks.len();
        let is_other = |number: &usize| *number != self.rank as usize;
        let mut frames = vec![[0; GATHER_FRAME]; count];
        let mut arrived = vec![[0; GATHER_FRAME]; count];
        for (frame, part) in frames.iter_mut().zip(given) {
            fill_frame(frame, part.unwrap_or_default());
        }
        let sent: Vec<SentMessage<'_>> = (0..count)
            .filter(|number| is_other(number) && given[*number].is_some())
            .map(|number| SentMessage { to: self.ranks[number], bytes: &frames[number] })
            .collect();
        let is_expected = |number: &usize| is_other(number) && from[*number];
        let mut received: Vec<ReceivedMessage<'_>> = arrived
            .iter_mut()
            .enumerate()
            .filter(|(number, _)| is_expected(number))
            .map(|(number, frame)| ReceivedMessage { from: self.ranks[number], bytes: frame })
            .collect();
        let outcome = self.exchange(&sent, &mut received);
        let (_, arrived) = leak_on_error(outcome, (frames, arrived))?;
        let mut parts = vec![Vec::new(); count];
        for number in (0..count).filter(is_expected) {
            parts[number] = open_frame(&arrived[number])?;
        }
        let rests: Vec<(u32, Vec<u8>)> = (0..count)
            .filter(is_other)
            .filter_map(|number| Some((self.ranks[number], rest_of(given[number]?, GATHER_FRAME))))
            .filter(|(_, rest)| !rest.is_empty())
            .map(|(to, rest)| (to, rest.to_vec()))
            .collect();
        let sent: Vec<SentMessage<'_>> =
            rests.iter().map(|(to, bytes)| SentMessage { to: *to, bytes }).collect();
        let mut expected = received_rests(&mut parts, GATHER_FRAME);
        for message in &mut expected {
            message.from = self.ranks[message.from as usize];
        }
        let outcome = self.exchange(&sent, &mut expected);
        Ok(leak_on_error(outcome, (rests, parts))?.1)
    }

    fn exchange(&self, sent: &[SentMessage<'_>], to: &mut [ReceivedMessage<'_>]) -> Result<()> {
        if sent.is_empty() && to.is_empty() {
            return Ok(());
        }
        self.messages.exchange(sent, to)
    }
}

impl Communicator for SelectedMembers {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    fn nodes(&self) -> Result<Vec<u32>> {
        Err(Error::invalid("selected members do not know their nodes"))
    }

    fn select(&self, ranks: &[u32]) -> Result<Box<dyn Communicator>> {
        let rank = number_among(ranks, self.rank, self.size())?;
        let ranks = ranks.iter().map(|rank| self.ranks[*rank as usize]).collect();
        Ok(Box::new(Self { messages: self.messages.clone(), ranks, rank }))
    }

    fn broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<Vec<u8>> {
        let (count, root) = (self.ranks.len(), root as usize);
        if self.rank as usize == root {
            self.swap(&vec![Some(bytes.as_slice()); count], &vec![false; count])?;
            return Ok(bytes);
        }
        let from: Vec<bool> = (0..count).map(|number| number == root).collect();
        Ok(self.swap(&vec![None; count], &from)?.swap_remove(root))
    }

    fn gather(&self, bytes: &[u8], root: u32) -> Result<Option<Vec<Vec<u8>>>> {
        let (count, root) = (self.ranks.len(), root as usize);
        if self.rank as usize == root {
            let mut parts = self.swap(&vec![None; count], &vec![true; count])?;
            parts[root] = bytes.to_vec();
            return Ok(Some(parts));
        }
        let given: Vec<_> = (0..count).map(|number| (number == root).then_some(bytes)).collect();
        self.swap(&given, &vec![false; count]).map(|_| None)
    }
}
