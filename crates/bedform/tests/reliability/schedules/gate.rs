//! A storage whose calls wait at a gate, and a scheduler that releases one call at a time.
//!
//! The scheduler releases a call when every other thread waits at the gate or sleeps until another
//! thread wakes it. So the next call follows from the seed alone. The engine runs unchanged:
//! `/proc` gives the ids of its threads, their order of creation (even after ids wrap around), and
//! whether they sleep. Calls without an observable order pass without waiting: reads of opened
//! objects, and appends to objects that are still invisible.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, Thread, park};
use std::time::{Duration, Instant};

use bedform_format::ObjectPath;
use bedform_format::log::Lane;
use bedform_storage::{
    Condition, Durability, GrowingObject, Lock, Object, ObjectWriter, Storage, StorageError,
    StorageOperation, Version, WriteHint, forward, lacks,
};

use crate::support::Random;

type Result<T> = std::result::Result<T, StorageError>;

/// The work of one thread of a schedule.
pub(super) type Actor = Box<dyn FnOnce() -> std::result::Result<(), String> + Send>;

const LOCK: &str = "lock";
/// The time without progress that counts as a deadlock: longer than any sleep on the busiest
/// machine.
const STUCK: Duration = Duration::from_secs(120);
/// The most calls of a schedule that ends.
const CALLS_MAX: usize = 50_000;
/// The number of calls within which priorities change.
const HORIZON: u64 = 400;

#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    arrived: Condvar,
    /// While it is false, calls pass the gate at once.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Waiting calls, by the id of the thread.
    waiting: BTreeMap<u64, (Thread, Call)>,
    held: BTreeSet<Call>,
    /// Random keys in names, numbered in the order of their first use.
    keys: HashMap<String, usize>,
}

/// A waiting call; one for a lock is released when the lock is free.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    name: &'static str,
    place: String,
    path: ObjectPath,
}

/// Returns the system's id of this thread.
fn thread_id() -> u64 {
    thread_local! {
        static ID: Cell<u64> = const { Cell::new(0) };
    }
    if ID.get() == 0 {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        ID.set(link.file_name().unwrap().to_str().unwrap().parse().unwrap());
    }
    ID.get()
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait(&self, call: Call) {
        if !self.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let id = thread_id();
        self.state().waiting.insert(id, (std::thread::current(), call));
        self.arrived.notify_all();
        while self.state().waiting.contains_key(&id) {
            park();
        }
    }
}

/// The record of a schedule.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The calls in order: the number of the thread, and the call.
    pub(super) trace: Vec<String>,
    pub(super) problems: Vec<String>,
}

/// The order in which threads proceed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// Random, from a seed.
    Seed(u64),
    /// The first actor for this many calls, then the others to their ends.
    Interrupted(usize),
}

/// Runs `actors` concurrently in this order.
pub(super) fn run(gate: &Arc<Gate>, order: Order, actors: Vec<Actor>) -> Outcome {
    let mut watch = Watch::new();
    let problems = Arc::new(Mutex::new(Vec::new()));
    gate.is_closed.store(true, Ordering::SeqCst);
    let mut first = 0;
    let threads: Vec<_> = actors
        .into_iter()
        .enumerate()
        .map(|(number, actor)| {
            let (started, problems) = (gate.clone(), problems.clone());
            let work = move || {
                started.wait(call("start", String::new(), &ObjectPath::root()));
                let outcome = catch_unwind(AssertUnwindSafe(actor));
                let outcome = outcome.unwrap_or_else(|_| Err("panicked".to_owned()));
                if let Err(problem) = outcome {
                    problems.lock().unwrap().push(format!("actor {number}: {problem}"));
                }
            };
            let thread = Builder::new().name(format!("actor {number}")).spawn(work).unwrap();
            // So that the ids of the threads are in the order of the actors.
            while gate.state().waiting.len() <= number {
                std::thread::yield_now();
            }
            if number == 0 {
                first = gate.state().waiting.keys().copied().next().unwrap();
            }
            thread
        })
        .collect();
    let (mut chooser, mut trace) = (Chooser::new(order), Vec::new());
    while watch.wait_for_quiet(gate, &problems, &trace) {
        let mut state = gate.state();
        let waiting = state.by_age(first);
        chooser.meet(&waiting);
        let is_free = |id: &u64| !state.held.contains(&state.waiting[id].1);
        let free: Vec<u64> = waiting.into_iter().filter(is_free).collect();
        let next = chooser.choose(&free);
        let (thread, call) = state.waiting.remove(&next).unwrap();
        trace.push(state.line(chooser.numbers[&next], &call));
        drop(state);
        thread.unpark();
        if trace.len() > CALLS_MAX {
            give_up("does not end", &problems, &trace);
        }
    }
    gate.is_closed.store(false, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let problems = std::mem::take(&mut *problems.lock().unwrap());
    Outcome { trace, problems }
}

/// Ends the process, because its threads cannot be ended.
fn give_up(what: &str, problems: &Mutex<Vec<String>>, trace: &[String]) -> ! {
    let last = trace[trace.len().saturating_sub(80)..].join("\n");
    eprintln!("{last}\n{:?}\nthe schedule {what}", problems.lock().unwrap());
    std::process::exit(1);
}

fn call(name: &'static str, place: String, path: &ObjectPath) -> Call {
    Call { name, place, path: path.clone() }
}

/// Returns the random key in a name: of a session or store at the start, of a table after a number.
fn key_of(name: &str) -> Option<&str> {
    let is_key = |key: &&str| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let behind = || name.split_once('-').map(|(_, key)| key);
    name.get(..32).filter(is_key).or_else(|| behind().filter(is_key))
}

impl State {
    /// Returns the waiting threads in the order of their creation. `first` is the id of the oldest
    /// thread: ids grow, and wrap around to the smallest free one.
    fn by_age(&self, first: u64) -> Vec<u64> {
        let mut ids: Vec<u64> = self.waiting.keys().copied().collect();
        ids.sort_unstable_by_key(|id| id.wrapping_sub(first));
        ids
    }

    /// Formats a call for the trace, with numbers in place of random keys.
    fn line(&mut self, thread: usize, call: &Call) -> String {
        let mut path = call.path.to_string();
        for key in call.path.to_string().split('/').filter_map(key_of) {
            let next = self.keys.len();
            let number = self.keys.entry(key.to_owned()).or_insert(next);
            path = path.replace(key, &format!("#{number}"));
        }
        format!("{thread} {} {}/{path}", call.name, call.place)
    }
}

/// Chooses the next thread: a random one, or the one with the highest priority, which changes at a
/// few calls.
///
/// The second way finds faults that need a few calls in a certain order, with any number of calls
/// between them. See Burckhardt et al., "A randomized scheduler with probabilistic guarantees of
/// finding bugs", 2010.
struct Chooser {
    order: Order,
    random: Random,
    has_priorities: bool,
    changes: BTreeSet<u64>,
    calls: u64,
    calls_of_first: usize,
    numbers: HashMap<u64, usize>,
    priorities: HashMap<u64, i64>,
    lowest: i64,
}

impl Chooser {
    fn new(order: Order) -> Self {
        let Order::Seed(seed) = order else { return Self::with(order, Random(0)) };
        let mut random = Random(seed);
        let has_priorities = random.below(4) != 0;
        let among = HORIZON >> random.below(4);
        let changes = (0..1 + random.below(3)).map(|_| random.below(among)).collect();
        Self { has_priorities, changes, ..Self::with(order, random) }
    }

    fn with(order: Order, random: Random) -> Self {
        Self {
            order,
            random,
            has_priorities: true,
            changes: BTreeSet::new(),
            calls: 0,
            calls_of_first: 0,
            numbers: HashMap::new(),
            priorities: HashMap::new(),
            lowest: 0,
        }
    }

    /// Assigns numbers and priorities to new threads.
    fn meet(&mut self, ids: &[u64]) {
        for id in ids {
            if self.numbers.contains_key(id) {
                continue;
            }
            let number = self.numbers.len();
            let priority = match (self.order, number) {
                (Order::Seed(_), _) => 1 + (self.random.next() >> 2).cast_signed(),
                (_, 0) => 2,
                (_, 1) => 0,
                // Threads started by the two actors run while these wait for them.
                _ => 1,
            };
            self.numbers.insert(*id, number);
            self.priorities.insert(*id, priority);
        }
    }

    /// Chooses one of the free threads, which are listed in the order of creation.
    fn choose(&mut self, free: &[u64]) -> u64 {
        self.calls += 1;
        if !self.has_priorities {
            return free[self.random.below(free.len() as u64) as usize];
        }
        let highest = |priorities: &HashMap<u64, i64>| {
            free.iter().copied().max_by_key(|id| priorities[id]).unwrap()
        };
        let next = highest(&self.priorities);
        let is_interrupted = match self.order {
            Order::Seed(_) => self.changes.contains(&self.calls),
            Order::Interrupted(calls) => {
                let is_first = self.numbers[&next] == 0;
                self.calls_of_first += usize::from(is_first);
                is_first && self.calls_of_first == calls + 1
            }
        };
        if is_interrupted {
            self.lowest -= 1;
            self.priorities.insert(next, self.lowest);
        }
        highest(&self.priorities)
    }
}

/// Observes the threads of this process.
struct Watch {
    /// Threads that do not belong to the schedule.
    baseline: BTreeSet<u64>,
    /// The sleeping threads at the last quiet moment, with the number of times that each had run.
    quiet: (Vec<u64>, Vec<String>),
    files: HashMap<u64, (File, File)>,
}

fn thread_ids() -> BTreeSet<u64> {
    let entries = std::fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

impl Watch {
    fn new() -> Self {
        Self { baseline: thread_ids(), quiet: Default::default(), files: HashMap::new() }
    }

    /// Waits until every thread waits at the gate or sleeps. False when all have ended.
    fn wait_for_quiet(
        &mut self,
        gate: &Gate,
        problems: &Mutex<Vec<String>>,
        trace: &[String],
    ) -> bool {
        let mut began = None;
        loop {
            if let Some(sleeping) = self.sleeping(gate) {
                let state = gate.state();
                if state.waiting.values().any(|(_, call)| !state.held.contains(call)) {
                    return true;
                }
                if state.waiting.is_empty() && sleeping == 0 {
                    return false;
                }
                if began.get_or_insert_with(Instant::now).elapsed() > STUCK {
                    drop(state);
                    give_up("is a deadlock", problems, trace);
                }
            }
            let pause = Duration::from_micros(30);
            let _ = gate.arrived.wait_timeout(gate.state(), pause).unwrap();
        }
    }

    /// Returns the number of threads that sleep elsewhere; `None` if a thread may be running.
    ///
    /// A thread may be woken after it was examined, by another that then falls asleep before its
    /// own examination. The second look, or the number of times that the thread has run, reveals
    /// that.
    fn sleeping(&mut self, gate: &Gate) -> Option<usize> {
        let ids = self.others(gate);
        if ids.is_empty() {
            return Some(0);
        }
        if !self.all_sleep(&ids) {
            return None;
        }
        let runs = self.runs_of(&ids)?;
        let now = (ids, runs);
        if now != self.quiet {
            let (ids, runs) = &now;
            let is_quiet = self.all_sleep(ids) && self.all_sleep(ids);
            if !is_quiet || self.runs_of(ids)? != *runs || self.others(gate) != *ids {
                return None;
            }
            self.quiet = now;
        }
        // Otherwise only the released thread has run since, and it waits again.
        Some(self.quiet.0.len())
    }

    /// Returns the threads that do not wait at the gate. The waiting ones are listed first: then a
    /// thread that another one starts meanwhile is found, or its parent is.
    fn others(&self, gate: &Gate) -> Vec<u64> {
        let waiting: Vec<u64> = gate.state().waiting.keys().copied().collect();
        let is_other = |id: &u64| !self.baseline.contains(id) && waiting.binary_search(id).is_err();
        thread_ids().into_iter().filter(is_other).collect()
    }

    fn files(&mut self, id: u64) -> Option<&(File, File)> {
        if let Entry::Vacant(missing) = self.files.entry(id) {
            let open = |name| File::open(format!("/proc/self/task/{id}/{name}")).ok();
            missing.insert((open("stat")?, open("schedstat")?));
        }
        self.files.get(&id)
    }

    /// Returns the number of times that each thread has run.
    fn runs_of(&mut self, ids: &[u64]) -> Option<Vec<String>> {
        let mut runs = Vec::with_capacity(ids.len());
        for id in ids {
            let text = read_file(&self.files(*id)?.1)?;
            runs.push(text.split_whitespace().next_back()?.to_owned());
        }
        Some(runs)
    }

    /// True if all threads sleep. A woken thread does not, even before it gets a core.
    fn all_sleep(&mut self, ids: &[u64]) -> bool {
        ids.iter().all(|id| {
            let said = self.files(*id).and_then(|(file, _)| read_file(file));
            // The state follows the thread's name, in parentheses.
            said.and_then(|said| said.rsplit_once(") ").map(|(_, rest)| rest.starts_with('S')))
                .unwrap_or(false)
        })
    }
}

fn read_file(file: &File) -> Option<String> {
    let mut bytes = [0; 512];
    let count = file.read_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes[..count].to_vec()).ok()
}

/// A storage behind the gate.
#[derive(Debug, Clone)]
pub(super) struct Gated {
    pub(super) inner: Arc<dyn Storage>,
    pub(super) gate: Arc<Gate>,
}

impl Gated {
    fn wait(&self, name: &'static str, path: &ObjectPath) {
        self.gate.wait(call(name, self.inner.name(), path));
    }

    fn call<T>(
        &self,
        operation: StorageOperation,
        path: &ObjectPath,
        _: Option<Durability>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let name = match operation {
            StorageOperation::Stage => "stage in",
            StorageOperation::PublishTree => "publish tree",
            StorageOperation::PublishObject => "publish object",
            StorageOperation::DeleteTree => "delete all of",
            other => other.verb(),
        };
        self.wait(name, path);
        work()
    }
}

/// An object or a writer behind the gate.
#[derive(Debug)]
struct Of<T> {
    inner: T,
    path: ObjectPath,
    storage: Gated,
}

impl<T> Of<T> {
    fn wait(&self, name: &'static str) {
        self.storage.wait(name, &self.path);
    }
}

/// Has no asynchronous requests: every request is a call that waits at the gate until it ends.
impl Object for Of<Box<dyn Object>> {
    fn is_current(&self) -> Result<bool> {
        self.wait("look at");
        self.inner.is_current()
    }

    lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
    forward!(self.inner as Object: version, read);
}

impl ObjectWriter for Of<Box<dyn ObjectWriter + '_>> {
    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        self.wait("publish");
        self.inner.publish(condition)
    }

    forward!(self.inner as ObjectWriter: position, append, append_owned, keep_replaced, hand_over);
}

impl GrowingObject for Of<Box<dyn GrowingObject>> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.wait("append to");
        self.inner.append(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.wait("flush");
        self.inner.flush()
    }

    fn sync(&mut self) -> Result<()> {
        self.wait("sync");
        self.inner.sync()
    }

    forward!(self.inner as GrowingObject: position);
}

struct HeldLock {
    inner: Option<Box<dyn Lock>>,
    call: Call,
    gate: Arc<Gate>,
}

impl Lock for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.inner = None;
        self.gate.state().held.remove(&self.call);
    }
}

impl Gated {
    fn hold(&self, inner: Box<dyn Lock>, path: &ObjectPath) -> Box<dyn Lock> {
        let call = call(LOCK, self.inner.name(), path);
        self.gate.state().held.insert(call.clone());
        Box::new(HeldLock { inner: Some(inner), call, gate: self.gate.clone() })
    }

    fn of<T>(&self, inner: T, path: &ObjectPath) -> Box<Of<T>> {
        Box::new(Of { inner, path: path.clone(), storage: self.clone() })
    }
}

impl Storage for Gated {
    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        self.wait("open", path);
        Ok(self.of(self.inner.open(path)?, path))
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        Ok(self.of(self.inner.create(path, durability, hint)?, path))
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        self.wait("grow", path);
        Ok(self.of(self.inner.grow(path, durability, size_hint)?, path))
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        self.wait("grow", path);
        Ok(self.of(self.inner.grow_lane(path, lane, durability)?, path))
    }

    fn sibling(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Self { inner: self.inner.sibling(suffix)?, gate: self.gate.clone() }))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Self { inner: self.inner.within(path)?, gate: self.gate.clone() }))
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<bedform_storage::ListedEntry>> {
        self.wait("list", path);
        let mut entries = self.inner.list(path)?;
        // Sorted by the order of first use, not by random keys.
        let state = self.gate.state();
        entries.sort_by_key(|entry| key_of(&entry.name).and_then(|key| state.keys.get(key)));
        Ok(entries)
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        if !self.gate.is_closed.load(Ordering::SeqCst) {
            return Ok(self.hold(self.inner.lock(path)?, path));
        }
        loop {
            self.gate.wait(call(LOCK, self.inner.name(), path));
            if let Some(inner) = self.inner.try_lock(path)? {
                return Ok(self.hold(inner, path));
            }
        }
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.wait("try to lock", path);
        Ok(self.inner.try_lock(path)?.map(|inner| self.hold(inner, path)))
    }

    lacks!(open_end, request_end, can_sync_all, sync_all, try_lock_of_dead);
    forward!(self.inner as Storage: name, identity, is_remote, now, sync, sweep);
    forward!(self.inner as Storage through call: stat, workspace, publish_tree, publish_object);
    forward!(self.inner as Storage through call: delete, delete_tree);
    forward!(implement as Storage: modified_ns, is_current, put);
}

#[test]
#[ignore = "a stage of make reliability"]
fn threads_keep_their_order_where_ids_begin_anew() {
    let order = |ids: [u64; 4]| {
        let begin = || (std::thread::current(), call("start", String::new(), &ObjectPath::root()));
        let waiting = ids.iter().map(|id| (*id, begin())).collect();
        State { waiting, ..State::default() }.by_age(ids[0])
    };
    for ids in [[310, 311, 320, 4000], [32_765, 32_767, 300, 4000], [32_767, 300, 301, 32_000]] {
        assert_eq!(order(ids), ids);
    }
}
