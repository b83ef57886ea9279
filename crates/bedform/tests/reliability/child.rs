//! Opens hostile data in a process of its own, with limits on memory and time.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bedform::{ErrorKind, NodeKind, OpenOptions, Store};
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_storage::{LocalStorage, Mode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::roles::process;

/// The limit on the processor time of opening and reading hostile data. A quiet core takes a tenth
/// of that.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(5);
/// The time after which a child counts as hanging, on the busiest machine.
const HANG: Duration = Duration::from_secs(600);

/// The outcome of opening and reading a store.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// The kind of the error; "Ok" without one.
    pub(crate) kind: String,
    pub(crate) message: String,
    /// Processor time of opening and reading, scaled to an undisturbed core.
    pub(crate) time: Duration,
    /// Peak memory in bytes, above that before opening.
    pub(crate) peak_bytes: u64,
}

/// Opens the store in `root` and reads from all of its arrays, with a limit of 1 GiB of address
/// space.
pub(crate) fn open(root: &Path) -> Result<Outcome, String> {
    let mut child = process("open", root, &[]).spawn().unwrap();
    let started = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if started.elapsed() > HANG => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Err("it hangs".to_owned());
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    if !status.success() {
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        return Err(format!("the process died ({status}): {said}"));
    }
    let line = said.lines().find_map(|line| line.strip_prefix("OUTCOME ")).ok_or("no outcome")?;
    let mut parts = line.splitn(4, ' ');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    Ok(Outcome {
        kind: next(),
        time: Duration::from_micros(next().parse().unwrap()),
        peak_bytes: next().parse().unwrap(),
        message: next(),
    })
}

pub(crate) fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn processor_time() -> Duration {
    time_of(rustix::time::ClockId::ProcessCPUTime)
}

/// Returns the processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    time_of(rustix::time::ClockId::ThreadCPUTime)
}

fn time_of(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the slowdown against an undisturbed core, at least 1: two threads may share a core, and
/// machines a processor. It times a chain of multiplications that takes 25 ms on a core of 3 GHz.
fn slowness() -> f64 {
    let started = processor_time();
    let hash = (0..1_u64 << 24).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ (byte & 0xff)).wrapping_mul(0x0100_0000_01b3)
    });
    std::hint::black_box(hash);
    ((processor_time() - started).as_secs_f64() / 0.025).max(1.0)
}

/// Opens and reads the store in `root`; the work of the child.
pub(crate) fn open_and_read(root: &Path) {
    let limit = Rlimit { current: Some(1 << 30), maximum: getrlimit(Resource::As).maximum };
    setrlimit(Resource::As, limit).unwrap();
    let before = peak_bytes();
    let started = processor_time();
    let outcome = read_some(root);
    let time = (processor_time() - started).div_f64(slowness()).as_micros();
    let peak = peak_bytes() - before;
    let (kind, message) = match outcome {
        Ok(()) => ("Ok", String::new()),
        Err(error) => (error.kind().name(), error.to_string().replace('\n', " ")),
    };
    println!("\nOUTCOME {kind} {time} {peak} {message}");
}

/// Reads the first elements and the description of every array.
fn read_some(root: &Path) -> bedform::Result<()> {
    let storage = Arc::new(LocalStorage::open(root, Mode::ReadOnly)?);
    let store = Store::open(storage, OpenOptions::default())?;
    let mut nodes = store.nodes()?;
    let root = bedform_format::ObjectPath::root();
    if let Some(kind) = store.kind(&root)? {
        nodes.insert(root, kind);
    }
    for (path, kind) in nodes {
        if kind == NodeKind::Group {
            store.group_attributes(&path)?;
            continue;
        }
        let array = store.array(&path)?;
        array.describe()?;
        let shape = array.shape()?;
        let ranges = shape
            .iter()
            .map(|length| AxisRange::contiguous(0, (*length).min(2)).map(AxisSelection::Range));
        let selection = Selection::Orthogonal(ranges.collect::<std::result::Result<_, _>>()?);
        match array.read_text(&selection) {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                let mut buffer = vec![0; array.result_bytes(&selection)?.min(1 << 20) as usize];
                array.read(&selection, &mut buffer)?;
            }
            outcome => drop(outcome?),
        }
    }
    Ok(())
}
