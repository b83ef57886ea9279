//! One segment and one section for the members of a node.
//!
//! The members of a node share a file, each with a lane of its own, so their writes need no
//! coordination. The leader, the node's first member, creates the file when the session begins, and
//! holds its lock. To commit, each member hands its data to the operating system and its
//! descriptions to the leader. The leader joins these, appends the result to its own lane, and
//! syncs the file once for all. `docs/log-explained.md` argues that nothing is lost by that.

use bedform_format::log::{Directory, Lanes, Section, SectionBuilder, SegmentName};

use super::commit::{BegunCommit, cut_short};
use super::segment::{LaneShare, to_error};
use super::session::Session;
use super::staged::CommitReach;
use crate::comm::{COORDINATOR, GatherStep, agree};
use crate::error::{Error, Result};

impl Session {
    /// Lets the members of each node share a segment, if a node has several. Collective.
    ///
    /// # Errors
    /// Of storage, the first of any member on all.
    pub(super) fn share_segment(&mut self) -> Result<()> {
        let members = self.members.clone();
        let place = members.node().and_then(|node| {
            // A node with one member takes the same steps as the others.
            let lanes = Lanes::new(node.size())?;
            let name = SegmentName { session: self.id, rank: members.leader(), lanes };
            Some((node, LaneShare { name, lane: lanes.lane(node.rank())?, identity: None }))
        });
        let mut begun = match (members.node(), &place) {
            (Some(node), None) => {
                Err(Error::invalid(format!("{} processes of one node are too many", node.size())))
            }
            _ => Ok(Vec::new()),
        };
        if let Some((_, share)) = &place
            && share.lane.number() == 0
        {
            self.share = Some(*share);
            begun = self.stream().map(|stream| {
                let (device, number) = stream.segment().identity();
                [device.to_le_bytes(), number.to_le_bytes()].concat()
            });
        }
        let begun = agree(&*members, begun)?;
        if let Some((node, share)) = place {
            let told = node.broadcast(begun, COORDINATOR)?;
            let &[device, number] = told.as_chunks().0 else {
                return Err(Error::invalid("the leader of the node erred"));
            };
            let identity = (u64::from_le_bytes(device), u64::from_le_bytes(number));
            let is_first = share.lane.number() == 0;
            self.share = Some(LaneShare { identity: (!is_first).then_some(identity), ..share });
        }
        Ok(())
    }

    /// Hands this member's data to the operating system, and returns its part of the commit,
    /// encoded.
    pub(super) fn hand_over(&mut self) -> Result<Vec<u8>> {
        let BegunCommit { grown, finishing } = self.take_begun()?;
        let mut mine = Directory { commit: self.commit_id(), grown, ..Directory::default() };
        let mut kept = Vec::new();
        if let (Some(stream), Some(finishing)) = (&mut self.stream, finishing) {
            let finished = stream.segment().finished(&finishing)?;
            mine.segments.push(stream.segment().name().to_owned());
            self.sections.extend(finished.sections);
            mine.sections = std::mem::take(&mut self.sections);
            kept = finished.kept;
        }
        let directory = match mine.sections.is_empty() && mine.grown.is_empty() {
            true => Vec::new(),
            false => mine.encode(&self.store.options.limits).map_err(to_error)?,
        };
        let parts = [directory].into_iter().chain(kept);
        Ok(parts
            .flat_map(|part| [&(part.len() as u64).to_le_bytes(), &part[..]].concat())
            .collect())
    }

    /// Commits the parts of all members; `mine` is the part that this member has handed over.
    pub(super) fn commit_by_node(&mut self, mine: Result<Vec<u8>>) -> Result<u64> {
        let members = self.members.clone();
        let told = members.decide_by_node(mine, &mut |gathered| match gathered {
            GatherStep::Node(parts) => self.join_node(&parts),
            GatherStep::All(nodes) => {
                let number = self.commit_all(&nodes)?;
                self.commit_message(number)
            }
        });
        self.after_commit(told)
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
            let is_last = self.members.leader_count() == Some(1) && is_complete;
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
        let mut part = self.drained_epoch().to_le_bytes().to_vec();
        if !node.sections.is_empty() || !node.grown.is_empty() {
            part.extend(node.encode(&limits).map_err(to_error)?);
        }
        Ok(part)
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
