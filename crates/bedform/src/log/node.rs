//! One segment and one section for the members of a node.
//!
//! The members of a node share a file, each with a lane of its own, so their writes need no
//! coordination. The leader, the node's first member, creates the file when the session begins, and
//! holds its lock. To commit, each member hands its data to the operating system and its
//! descriptions to the leader. The leader joins these, appends the result to its own lane, and
//! syncs the file once for all. `docs/log-explained.md` argues that nothing is lost by that.

use bedform_format::log::{Lanes, Section, SectionBuilder, SegmentName};

use super::coordinator::cut_short;
use super::member::SessionMember;
use super::segment::{LaneShare, to_error};
use super::session::{CommitReach, Session};
use crate::comm::{COORDINATOR, GatherStep, agree};
use crate::error::{Error, Result};

impl SessionMember {
    /// Lets the members of each node share a segment, if a node has several. Collective.
    ///
    /// # Errors
    /// Of storage, the first of any member on all.
    pub(super) fn share_segment(&mut self) -> Result<()> {
        let group = self.group.clone();
        let Some(node) = group.node() else { return agree(&*group, Ok(())) };
        let place = Lanes::new(node.size()).and_then(|lanes| {
            // A node with one member takes the same steps as the others.
            let name = SegmentName { session: self.id, rank: group.leader(), lanes };
            Some(LaneShare { name, lane: lanes.lane(node.rank())?, identity: None })
        });
        let too_many = || format!("{} processes of one node are too many", node.size());
        let begun = match place {
            None => Err(Error::invalid(too_many())),
            Some(share) if share.lane.number() == 0 => {
                self.share = Some(share);
                self.stream().map(|stream| {
                    let (device, number) = stream.segment().identity();
                    [device.to_le_bytes(), number.to_le_bytes()].concat()
                })
            }
            Some(_) => Ok(Vec::new()),
        };
        let begun = agree(&*group, begun)?;
        let told = node.broadcast(begun, COORDINATOR)?;
        let &[device, number] = told.as_chunks().0 else {
            return Err(Error::invalid("the leader of the node erred"));
        };
        let identity = (u64::from_le_bytes(device), u64::from_le_bytes(number));
        self.share = place.map(|share| {
            let is_first = share.lane.number() == 0;
            LaneShare { identity: (!is_first).then_some(identity), ..share }
        });
        Ok(())
    }

    /// Makes the data that the node's members handed over durable, described by as few sections as
    /// possible.
    fn join_node(&mut self, parts: &[Option<Vec<u8>>]) -> Result<Vec<u8>> {
        let limits = self.store.options.limits.clone();
        let mut directories = Vec::new();
        let mut joined = JoinedSections::default();
        for part in parts.iter().flatten() {
            let mut pieces = pieces(part)?.into_iter();
            directories.push(pieces.next().unwrap_or_default());
            for body in pieces {
                joined.add(Section::decode(body, &limits).map_err(to_error)?)?;
            }
        }
        let commit = self.commit_id();
        let mut node = self.merge(&directories)?;
        let sections = joined.finish();
        if !sections.is_empty() || !node.sections.is_empty() {
            // With one node alone, the sync of the directory that follows makes all of it durable.
            let is_complete = parts.iter().all(Option::is_some);
            let is_last = self.group.leader_count() == Some(1) && is_complete;
            let segment = self.stream()?.segment();
            for builder in sections {
                segment.whole(builder.finish(commit))?;
            }
            let finished = match is_last {
                true => segment.hand_over()?,
                false => segment.finish(CommitReach::Shared)?,
            };
            if node.segments.is_empty() {
                node.segments.push(segment.name().to_owned());
            }
            let number = u32::try_from(node.segments.len() - 1).unwrap_or(u32::MAX);
            node.sections.extend(finished.sections.into_iter().map(|mut section| {
                section.segment = number;
                section
            }));
        }
        let drained = self.drained_epoch();
        Ok([&drained.to_le_bytes()[..], &self.encoded(&node)?].concat())
    }
}

impl Session {
    /// Hands this member's data to the operating system, and returns its part of the commit,
    /// encoded.
    pub(super) fn hand_over(&mut self) -> Result<Vec<u8>> {
        let begun = self.take_begun()?;
        let (mine, finished) = self.member.finish(begun)?;
        let kept = finished.map(|finished| finished.kept).unwrap_or_default();
        let parts = [self.member.encoded(&mine)?].into_iter().chain(kept);
        Ok(parts
            .flat_map(|part| [&(part.len() as u64).to_le_bytes(), &part[..]].concat())
            .collect())
    }

    /// Commits the parts of all members; `mine` is the part that this member has handed over.
    pub(super) fn commit_by_node(&mut self, mine: Result<Vec<u8>>) -> Result<u64> {
        let group = self.member.group.clone();
        let told = group.decide_by_node(mine, &mut |gathered| match gathered {
            GatherStep::Node(parts) => self.member.join_node(&parts),
            GatherStep::All(nodes) => self.as_coordinator()?.commit(&nodes),
        });
        self.after_commit(told)
    }
}

/// The joined sections of several members.
#[derive(Default)]
struct JoinedSections {
    full: Vec<SectionBuilder>,
    last: SectionBuilder,
}

impl JoinedSections {
    fn add(&mut self, section: Section) -> Result<()> {
        if let Some(section) = self.last.absorb(section).map_err(to_error)? {
            self.full.push(std::mem::take(&mut self.last));
            self.last.absorb(section).map_err(to_error)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<SectionBuilder> {
        if !self.last.is_empty() {
            self.full.push(self.last);
        }
        self.full
    }
}

/// Splits a member's part into its pieces; the length of each (a `u64`) precedes it.
fn pieces(mut part: &[u8]) -> Result<Vec<&[u8]>> {
    let mut pieces = Vec::new();
    while !part.is_empty() {
        let (length, rest) = part.split_first_chunk().ok_or_else(cut_short)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (piece, rest) = rest.split_at_checked(length).ok_or_else(cut_short)?;
        pieces.push(piece);
        part = rest;
    }
    Ok(pieces)
}
