//! Rounds of settling: as many objects as fit into the memory are built from the log, then written.
//!
//! While one round is encoded and written, the next one is read and laid, so that device and cores
//! are both busy. Both share one memory budget: chunks of the next round take the place of written
//! ones. A round takes half of the budget (on a server, two thirds), or has one larger object. An
//! object that is larger than two rounds is built chunk by chunk. A store of one thread runs one
//! round after the other, in the same order every time.

use crate::log::opened::OpenedStore;
use crate::options::ProgressCallback;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use bedform_storage::{ReadBlock, is_cancelled, stopped_by, threads_that_fit};

use super::ahead::{WindowPool, read_ahead};
use super::lay::{ArrayBuilder, ObjectBuilder, RoundBounds};
use super::plan::{ObjectPlan, SettlePlan};
use super::read::{Window, plan_windows};
use super::stream::WindowCursor;
use super::write::{SettleCounters, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::log::view::RootView;
use crate::threads::budget::{BudgetRound, MemoryBudget};
use crate::threads::ordered::map_in_threads;
use crate::threads::workers::check_cancelled;
use crate::write::sink::Sink;

/// The largest window: the bytes of one request past the page cache.
const WINDOW_BYTES_MAX: u64 = 2 << 20;
/// The largest window on a server: at this size the latency of a request no longer counts.
const WINDOW_BYTES_MAX_OF_SERVER: u64 = 8 << 20;
const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// Threads that concurrent rounds need: to plan, to read, to write. With fewer, one thread does
/// all.
const THREADS: usize = 3;
/// Interval at which a waiting thread looks at the other one; short, since it waits for work.
const LOOK: Duration = Duration::from_millis(10);

/// A settling in progress: its plans, sinks and memory.
pub(super) struct Rounds<'a> {
    pub(super) store: &'a Arc<OpenedStore>,
    pub(super) view: &'a RootView,
    pub(super) plans: &'a [SettlePlan],
    /// The sink of each plan, in the order of the plans.
    pub(super) sinks: &'a [&'a dyn Sink],
    /// The share of the objects to settle, and the number of shares.
    pub(super) part: (u64, u64),
    pub(super) memory_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) progress: ProgressCallback<'a>,
    pub(super) counts: &'a SettleCounters,
    /// Memory of windows, reused from round to round.
    pub(super) spare: WindowPool,
}

/// The parts of [`Rounds`] that open an object; any thread may have a copy.
#[derive(Clone, Copy)]
struct ObjectOpener<'a> {
    view: &'a RootView,
    plans: &'a [SettlePlan],
    sinks: &'a [&'a dyn Sink],
    counts: &'a SettleCounters,
}

/// The place in the plans at which the next round begins.
#[derive(Default)]
struct PlanCursor {
    plan: usize,
    object: usize,
    /// Bytes of all objects before this place.
    bytes: u64,
}

/// The next work of settling.
enum SettleStep<'a> {
    Round(Vec<ArrayBuilder<'a>>),
    /// An object larger than two rounds: built chunk by chunk, each merged with the commits over
    /// it.
    Large(ObjectBuilder),
}

impl<'a> Rounds<'a> {
    /// Settles all objects of the share.
    ///
    /// # Errors
    /// The first error; objects written before it stay. `Interrupted`; `SnapshotMoved` if another
    /// process settled later commits than the view has.
    pub(super) fn run(&self) -> Result<()> {
        self.counts.begin();
        let outcome = self.run_rounds();
        self.tell();
        outcome
    }

    fn run_rounds(&self) -> Result<()> {
        let rooms = MemoryBudget::new(self.rooms_bytes());
        if self.store.options.threads == Some(1) || threads_that_fit(THREADS) < THREADS {
            let (mut position, check) = (PlanCursor::default(), || self.check());
            while let Some(next) = self.next(&mut position)? {
                let wait = BudgetRound::new(&rooms, &check);
                let built = self.build(next, &mut |round| self.fill_here(round, &wait))?;
                self.writer().write(built)?;
            }
            return Ok(());
        }
        let cut = Arc::new(AtomicBool::new(false));
        let (send, receive) = sync_channel(0);
        std::thread::scope(|scope| {
            let (cut, writes) = (&cut, self.writer());
            let writer = std::thread::Builder::new()
                .name("bedform-settle".to_owned())
                .spawn_scoped(scope, move || stopped_by(cut, || write_all(&writes, &receive)))
                .map_err(|error| Error::no_thread(&error))?;
            let outcome = self.build_all(&rooms, &send, &|| writer.is_finished());
            // The writer begins no other object, and stops waiting for servers.
            cut.store(outcome.is_err(), Ordering::Relaxed);
            drop(send);
            while !writer.is_finished() {
                if is_cancelled() {
                    cut.store(true, Ordering::Relaxed);
                }
                self.tell();
                std::thread::sleep(LOOK);
            }
            let written = writer.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Io, "internal error: the thread that writes has ended"))
            });
            // An error of the writer is the reason why building has stopped, unless building failed
            // first.
            match (outcome, written) {
                (Err(error), _) if error.kind() != ErrorKind::Interrupted => Err(error),
                (_, Err(error)) => Err(error),
                (outcome, Ok(())) => outcome,
            }
        })
    }

    fn build_all(
        &self,
        rooms: &Arc<MemoryBudget>,
        send: &SyncSender<Vec<ArrayBuilder<'a>>>,
        writer_is_gone: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut position = PlanCursor::default();
        // Hands a round over when the last one is written; false if the writer has failed. The join
        // returns its error.
        let hand_over = |mut round: Vec<ArrayBuilder<'a>>| -> Result<bool> {
            loop {
                round = match send.try_send(round) {
                    Ok(()) => return Ok(true),
                    Err(TrySendError::Disconnected(_)) => return Ok(false),
                    Err(TrySendError::Full(_)) if writer_is_gone() => return Ok(false),
                    Err(TrySendError::Full(round)) => round,
                };
                self.check()?;
                std::thread::sleep(LOOK / 10);
            }
        };
        let check = || match writer_is_gone() {
            // The join returns the writer's error.
            true => Err(Error::new(ErrorKind::Interrupted, "nobody writes any more")),
            false => self.check(),
        };
        while let Some(next) = self.next(&mut position)? {
            let wait = BudgetRound::new(rooms, &check);
            let built = self.build(next, &mut |round| self.fill_ahead(round, &wait))?;
            if !hand_over(built)? {
                break;
            }
        }
        Ok(())
    }

    fn opening(&self) -> ObjectOpener<'a> {
        let Self { view, plans, sinks, counts, .. } = *self;
        ObjectOpener { view, plans, sinks, counts }
    }

    fn writer(&self) -> Writer<'a> {
        Writer { store: self.store, root: self.view.root.number, counts: self.counts }
    }

    fn tell(&self) {
        (self.progress)(self.counts.done.load(Ordering::Relaxed), self.total_bytes);
    }

    /// Reports progress, and fails if settling is to stop.
    fn check(&self) -> Result<()> {
        self.tell();
        check_cancelled("settling was stopped; what is settled stays, call it again to go on")
    }

    /// Returns the bytes for the chunks of one round; two rounds are in memory at a time. A quarter
    /// of the memory is for data that are read and encoded. From a server the log comes slowly, and
    /// data for several rounds come several times. So rounds are larger there, and the next one
    /// waits sooner for written chunks.
    fn round_bytes(&self) -> u64 {
        match self.store.storage.is_remote() {
            true => self.memory_bytes / 2,
            false => self.memory_bytes / 8 * 3,
        }
    }

    /// Returns the bytes for the chunks of all rounds in memory.
    fn rooms_bytes(&self) -> u64 {
        self.memory_bytes / 4 * 3
    }

    fn window_bytes(&self) -> u64 {
        let most = match self.store.storage.is_remote() {
            true => WINDOW_BYTES_MAX_OF_SERVER,
            false => WINDOW_BYTES_MAX,
        };
        (self.memory_bytes / 64).clamp(WINDOW_BYTES_MIN, most)
    }

    /// Returns the next objects that lack commits; `None` if there are no more.
    fn next(&self, position: &mut PlanCursor) -> Result<Option<SettleStep<'a>>> {
        if self.store.storage.is_remote() {
            self.next_of_server(position)
        } else {
            self.next_here(position)
        }
    }

    /// Returns the next round on a server, where each open waits for an answer. All objects of a
    /// round are opened concurrently; a round has fewer objects if some turn out to be settled.
    fn next_of_server(&self, position: &mut PlanCursor) -> Result<Option<SettleStep<'a>>> {
        loop {
            let planned = self.planned(position)?;
            if planned.is_empty() {
                return Ok(None);
            }
            let (threads, opening) = (self.store.threads_asking(), self.opening());
            let opened =
                map_in_threads(threads, &planned, |(at, object)| opening.open(*at, *object))?;
            let is_large = planned.iter().any(|(_, object)| self.is_large(*object));
            let mut objects = Vec::new();
            for ((_, object), found) in planned.into_iter().zip(opened) {
                match found {
                    Some(found) if is_large => return Ok(Some(SettleStep::Large(found))),
                    Some(found) => objects.push(found),
                    None => SettleCounters::add(&self.counts.done, object.bytes),
                }
            }
            if !objects.is_empty() {
                return Ok(Some(self.round_of(objects)));
            }
        }
    }

    /// Returns the next objects of our share that fit into one round, or one larger object, each
    /// with the index of its plan.
    fn planned(&self, position: &mut PlanCursor) -> Result<Vec<(usize, ObjectPlan)>> {
        let objects_max = (self.store.options.limits.objects_open_max / 4).max(1);
        let (mut planned, mut bytes) = (Vec::new(), 0_u64);
        while let Some((at, object)) = self.peek(position) {
            let fits = bytes.saturating_add(object.bytes) <= self.round_bytes();
            if !planned.is_empty() && (!fits || planned.len() == objects_max) {
                break;
            }
            self.check()?;
            if !self.pass(position, object) {
                SettleCounters::add(&self.counts.done, object.bytes);
                continue;
            }
            bytes += object.bytes;
            planned.push((at, object));
        }
        Ok(planned)
    }

    /// Returns the next object of the plans, with the index of its plan.
    fn peek(&self, position: &mut PlanCursor) -> Option<(usize, ObjectPlan)> {
        while let Some(plan) = self.plans.get(position.plan) {
            if let Some(object) = plan.objects.get(position.object) {
                return Some((position.plan, *object));
            }
            position.plan += 1;
            position.object = 0;
        }
        None
    }

    /// Moves past `object`, the next one; returns true if it is in our share.
    fn pass(&self, position: &mut PlanCursor, object: ObjectPlan) -> bool {
        let is_ours = self.is_ours(position.bytes);
        position.object += 1;
        position.bytes = position.bytes.saturating_add(object.bytes);
        is_ours
    }

    /// True for an object that is built chunk by chunk.
    fn is_large(&self, object: ObjectPlan) -> bool {
        object.bytes / 2 > self.round_bytes()
    }

    /// Returns the round of these objects, in the order of their plans.
    fn round_of(&self, objects: Vec<ObjectBuilder>) -> SettleStep<'a> {
        let mut parts: Vec<(usize, Vec<ObjectBuilder>)> = Vec::new();
        for object in objects {
            match parts.last_mut() {
                Some((last, objects)) if *last == object.plan => objects.push(object),
                _ => parts.push((object.plan, vec![object])),
            }
        }
        let building = |(at, objects): (usize, Vec<ObjectBuilder>)| {
            ArrayBuilder::new(&self.plans[at], self.sinks[at], objects)
        };
        SettleStep::Round(parts.into_iter().map(building).collect())
    }

    /// Returns the next round on a file system, where opening is cheap: only objects that lack
    /// commits count.
    fn next_here(&self, position: &mut PlanCursor) -> Result<Option<SettleStep<'a>>> {
        let objects_max = (self.store.options.limits.objects_open_max / 4).max(1);
        let (mut objects, mut bytes) = (Vec::new(), 0_u64);
        while let Some((at, object)) = self.peek(position) {
            let fits = bytes.saturating_add(object.bytes) <= self.round_bytes();
            if !objects.is_empty() && (!fits || objects.len() == objects_max) {
                break;
            }
            self.check()?;
            let is_ours = self.pass(position, object);
            let found = if is_ours { self.opening().open(at, object)? } else { None };
            let Some(found) = found else {
                SettleCounters::add(&self.counts.done, object.bytes);
                continue;
            };
            if self.is_large(object) {
                return Ok(Some(SettleStep::Large(found)));
            }
            bytes += object.bytes;
            objects.push(found);
        }
        Ok((!objects.is_empty()).then(|| self.round_of(objects)))
    }

    /// True if an object is in our share; `before` is the number of bytes before it in the plan.
    fn is_ours(&self, before: u64) -> bool {
        let (number, of) = self.part;
        let share = u128::from(before) * u128::from(of) / u128::from(self.total_bytes.max(1));
        // Objects that only lose elements have no bytes, and may come after all others.
        share.min(u128::from(of) - 1) == u128::from(number)
    }

    /// Builds the chunks of a round. An object that is larger than a round is written at once.
    fn build(
        &self,
        next: SettleStep<'a>,
        fill: &mut dyn FnMut(&mut [ArrayBuilder<'a>]) -> Result<()>,
    ) -> Result<Vec<ArrayBuilder<'a>>> {
        SettleCounters::add(&self.counts.rounds, 1);
        match next {
            SettleStep::Round(mut round) => {
                fill(&mut round)?;
                round.iter_mut().for_each(ArrayBuilder::put_back);
                Ok(round)
            }
            SettleStep::Large(object) => {
                let valid = self.plans[object.plan].valid(object.contained);
                self.writer().write_large(self.sinks[object.plan], &object, valid)?;
                Ok(Vec::new())
            }
        }
    }

    /// Reads the windows of a round, and lays each before the next is read.
    fn fill_here(&self, round: &mut [ArrayBuilder<'a>], wait: &BudgetRound<'_>) -> Result<()> {
        let reaches = reaches(round);
        let (mut layer, mut block) = (WindowCursor::default(), ReadBlock::default());
        let mut spare = Vec::new();
        plan_windows(self.view, &reaches, self.window_bytes(), &mut |window| {
            let window = window.read(std::mem::take(&mut spare), &mut block)?;
            self.lay(&mut layer, &window, round, wait)?;
            spare = window.bytes;
            Ok(())
        })
    }

    /// Lays the windows of a round while threads read ahead.
    fn fill_ahead(&self, round: &mut [ArrayBuilder<'a>], wait: &BudgetRound<'_>) -> Result<()> {
        let reaches = reaches(round);
        let mut layer = WindowCursor::default();
        read_ahead(self.view, &reaches, self.window_bytes(), &self.spare, &mut |window| {
            self.lay(&mut layer, window, round, wait)
        })
    }

    fn lay(
        &self,
        layer: &mut WindowCursor,
        window: &Window,
        round: &mut [ArrayBuilder<'a>],
        wait: &BudgetRound<'_>,
    ) -> Result<()> {
        self.check()?;
        SettleCounters::add(&self.counts.read_bytes, window.length());
        layer.lay(window, round, wait)
    }
}

impl ObjectOpener<'_> {
    /// Opens the stored object; `None` if it contains all commits.
    fn open(self, at: usize, object: ObjectPlan) -> Result<Option<ObjectBuilder>> {
        let ObjectPlan { number, bytes } = object;
        let coordinates = self.plans[at].coordinates(number);
        let sink = self.sinks[at];
        let stored = sink.open_unit(&coordinates)?;
        let contained = stored.as_ref().map_or(0, |stored| stored.contained);
        if contained > self.view.root.number {
            let name = sink.unit_name(&coordinates);
            let text = format!("{name} contains commit {contained}, which others have settled");
            return Err(Error::new(ErrorKind::SnapshotMoved, text));
        }
        let key = &self.plans[at].key;
        let name = || sink.unit_name(&coordinates);
        self.view.check_contained(key, &coordinates, contained, &name)?;
        if contained >= self.view.root.last_commit().unwrap_or(0) {
            self.counts.found(at, number, contained);
            return Ok(None);
        }
        if stored.as_ref().is_some_and(|stored| !stored.is_ours) {
            SettleCounters::add(&self.counts.rewritten, 1);
        }
        Ok(Some(ObjectBuilder {
            plan: at,
            number,
            coordinates,
            stored,
            contained,
            bytes,
            chunks: HashMap::new(),
        }))
    }
}

fn reaches(round: &[ArrayBuilder<'_>]) -> Vec<RoundBounds> {
    round.iter().map(|building| building.reach.clone()).collect()
}

fn write_all(writer: &Writer<'_>, rounds: &Receiver<Vec<ArrayBuilder<'_>>>) -> Result<()> {
    while let Ok(round) = rounds.recv() {
        writer.write(round)?;
    }
    Ok(())
}
