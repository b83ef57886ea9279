//! Commits become shards.
//!
//! Object by object: what is stored, with the commits since its stamp laid over it, written anew with a
//! stamp that names the last of them. Any part of it can be repeated, and cut off anywhere: an object
//! with a later stamp needs nothing any more. Readers see the same before and after.

use std::collections::BTreeSet;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Root;
use bedform_format::metadata::LogState;
use bedform_geometry::{delinearize, element_count};

use super::place::LogPlace;
use super::view::View;
use crate::array::source::ZarrSource;
use crate::array::{Array, publish_grown};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{NodeKind, Snapshot, Store, set_log_state};
use crate::write::elements::Input;
use crate::write::object::ObjectWrite;
use crate::write::region::write_objects;

/// Roots that are tried while commits are faster.
const ATTEMPTS_MAX: usize = 1000;

/// What settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SettleStatistics {
    /// Commits that became part of shards.
    pub commits: u64,
    /// Objects written.
    pub objects: u64,
    /// Bytes of those objects.
    pub bytes: u64,
}

impl Store {
    /// Turns all commits so far into shards. Readers and writers go on meanwhile; what is committed
    /// meanwhile stays in the log. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `Corrupt` for damaged records; those of storage. What was settled before the error
    /// stays settled.
    pub fn settle(&self, interrupted: &dyn Fn() -> bool) -> Result<SettleStatistics> {
        self.shared.check_writable()?;
        // Who settles at the same time may be ahead of us.
        self.shared.in_one_snapshot(|| self.settle_snapshot(interrupted))
    }

    fn settle_snapshot(&self, interrupted: &dyn Fn() -> bool) -> Result<SettleStatistics> {
        let Snapshot { view: Some(view), .. } = self.shared.snapshot()? else {
            return Ok(SettleStatistics::default());
        };
        let commits = view.root.commits.len() as u64;
        let mut done = SettleStatistics { commits, ..SettleStatistics::default() };
        for (path, kind) in self.nodes()? {
            if kind == NodeKind::Array {
                self.settle_array(&path, &view, &mut done, interrupted)?;
            }
        }
        publish_grown(self, &view.root.shapes)?;
        self.drop_commits(&view.root)?;
        self.collect_log()?;
        Ok(done)
    }

    fn settle_array(
        &self,
        path: &ObjectPath,
        view: &Arc<View>,
        done: &mut SettleStatistics,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let array: Array = self.array(path)?;
        let state = array.state()?;
        let Some(identity) = state.identity() else { return Ok(()) };
        let snapshot = Snapshot { number: view.root.number, view: Some(view.clone()) };
        let source = ZarrSource { shared: &self.shared, path, state: &state, snapshot };
        let touched = objects_touched(&source, &identity.array)?;
        let mut pending = Vec::new();
        for coordinates in touched {
            if source.is_pending(&coordinates)? {
                pending.push(coordinates);
            }
        }
        let write = |number: u64, threads| ObjectWrite {
            source: &source,
            plan: None,
            input: Input::Bytes(&[]),
            coordinates: pending[usize::try_from(number).unwrap_or(usize::MAX)].clone(),
            valid: None,
            threads,
        };
        let written = write_objects(&source, pending.len() as u64, write, interrupted)?;
        done.objects += written.objects;
        done.bytes += written.bytes;
        for coordinates in &pending {
            if source.is_pending(coordinates)? {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "{} does not contain what was settled into it: another program has written \
                         it; settle again",
                        source.object_name_of(coordinates)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Publishes a root without the commits of `settled`.
    fn drop_commits(&self, settled: &Root) -> Result<()> {
        let log = self.shared.log_place()?;
        for _ in 0..ATTEMPTS_MAX {
            let Some(newest) = log.newest(None)? else { return Ok(()) };
            let mut root = Root::clone(&newest);
            root.commits.retain(|commit| commit.number > settled.number);
            root.settled = root.settled.max(settled.number);
            // The metadata say so now; a shape that has grown since stays.
            root.shapes.retain(|key, shape| settled.shapes.get(key) != Some(shape));
            let writers = log.sessions()?;
            root.sessions.retain(|session, _| writers.contains(session));
            root.number += 1;
            let outcome = match root.commits.is_empty() {
                true => self.close_log(&log, &newest, &root),
                false => log.publish(&root),
            };
            match outcome {
                Err(error) if error.kind() == ErrorKind::Exists => {}
                outcome => return outcome,
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("writers of {} were faster {ATTEMPTS_MAX} times; settle again", log.name()),
        ))
    }

    /// Removes what no commit needs any more. Readers that still go by an older root notice and take the
    /// newest.
    fn collect_log(&self) -> Result<()> {
        let shared = &*self.shared;
        let _lock = shared.lock(&ObjectPath::root())?;
        let place = shared.log_place()?;
        let Some(newest) = place.newest(None)? else { return Ok(()) };
        let view = View::new(newest.clone(), place.clone(), &shared.options.limits, Arc::default());
        place.collect(&newest, &view.segments()?).map(drop)
    }

    /// Publishes a root without commits and clears `pending`. Who adds the next commit takes the same
    /// lock and sets it again first, so that no commit is ever acknowledged while it is clear.
    fn close_log(&self, log: &LogPlace, newest: &Root, root: &Root) -> Result<()> {
        let _lock = self.shared.lock(&ObjectPath::root())?;
        if !newest.commits.is_empty() {
            log.publish(root)?;
        }
        set_log_state(&self.shared, LogState { pending: false, settled: root.number })
    }
}

/// The coordinates of all objects that commits of the source's view touch, or may.
fn objects_touched(source: &ZarrSource<'_>, key: &[u8; 16]) -> Result<BTreeSet<Vec<u64>>> {
    let mut touched = BTreeSet::new();
    let Some(view) = &source.snapshot.view else { return Ok(touched) };
    let shape = &source.state.metadata.chunk_shape;
    for commit in &view.root.commits {
        let directory = view.directory(commit)?;
        let parts = directory.sections.iter().flat_map(|section| &section.arrays);
        for part in parts.filter(|part| part.key == *key && part.start.len() == shape.len()) {
            let first: Vec<u64> = part.start.iter().zip(shape).map(|(at, n)| at / n).collect();
            let counts: Vec<u64> = (0..shape.len())
                .map(|axis| part.end[axis].div_ceil(shape[axis]).saturating_sub(first[axis]))
                .collect();
            let count = element_count(&counts).unwrap_or(u64::MAX);
            touched.extend((0..count).map(|number| {
                let inside = delinearize(number, &counts);
                inside.iter().zip(&first).map(|(at, first)| at + first).collect::<Vec<u64>>()
            }));
        }
    }
    Ok(touched)
}
