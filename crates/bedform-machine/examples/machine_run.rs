//! Runs workloads of simulated machines on real, throttled directories, and prints the seconds that
//! they took.
//!
//!     machine_run DIRECTORY < plans > times
//!
//! A line of `plans` is JSON: a `machine` and a `workload` in the form of `bedform simulate`. Each
//! target is a throttled directory, each node's link a throttle around it, the metadata server
//! another directory; sending is a sleep. Clients are threads. The run reproduces the bandwidth and
//! latency of targets, the links, sending and metadata. Costs that a throttle cannot reproduce
//! (seeks, locks) must be zero. A line of `times` is the seconds from the moment when all clients
//! may start to the end of the last one.
//!
//! The times come from sleeping threads and real system calls, not from the equations. So they test
//! that queues, striping and requests in flight combine as in the simulation.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a driver of an experiment"
)]

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use bedform_machine::{ClientOperation, ClientWorkload, Machine, Workload};
use bedform_storage::file_system::LinkPolicy;
use bedform_storage::{FileSystem, OsFileSystem, Throttle, ThrottleSchedule, Throttled};
use serde::Deserialize;

type Directory = Throttled<Throttled<OsFileSystem>>;
type Handle = <Directory as FileSystem>::Handle;

#[derive(Deserialize)]
struct Plan {
    machine: Machine,
    workload: Workload,
}

/// One object of a file, with its target's directory as one node accesses it.
struct Place {
    directory: Directory,
    read: Handle,
    write: Handle,
}

struct Run<'a> {
    plan: &'a Plan,
    /// Indexed by node, file and object.
    places: Vec<Vec<Vec<Place>>>,
    metadata: Throttled<OsFileSystem>,
    root: PathBuf,
    barrier: Barrier,
}

fn main() {
    let root = PathBuf::from(std::env::args().nth(1).unwrap());
    for line in std::io::stdin().lock().lines() {
        let plan: Plan = serde_json::from_str(&line.unwrap()).unwrap();
        // The simulation also checks the plan.
        plan.machine.simulate(&plan.workload).unwrap();
        println!("{}", run(&plan, &root));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
fn throttle(bytes_per_second: f64, seconds: f64) -> Throttle {
    Throttle::new(bytes_per_second as u64, Duration::from_secs_f64(seconds))
}

fn run(plan: &Plan, root: &Path) -> f64 {
    let targets = &plan.machine.targets;
    assert_eq!(targets.read_bytes_per_second, targets.write_bytes_per_second);
    assert_eq!(targets.seek_seconds + targets.request_seconds + targets.handover_seconds, 0.0);
    let directory = |number: &str| {
        let path = root.join(number);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let paces: Vec<_> = (0..targets.count)
        .map(|_| {
            ThrottleSchedule::new(throttle(targets.read_bytes_per_second, targets.latency_seconds))
        })
        .collect();
    let metadata_pace = ThrottleSchedule::new(throttle(1e12, plan.machine.metadata.create_seconds));
    let per_node = plan.machine.clients.per_node as usize;
    let nodes = plan.workload.clients.len().div_ceil(per_node);
    make_files(plan, root);
    let places = (0..nodes)
        .map(|_| {
            let link =
                ThrottleSchedule::new(throttle(plan.machine.clients.link_bytes_per_second, 0.0));
            let open = |file: usize, object: u32| {
                let target = target_of(plan, file, object);
                let inner = OsFileSystem::open(&directory(&target.to_string())).unwrap();
                // Opened before the measurement starts, without throttles.
                let name = name_of(file, object);
                let above = inner.open_directory("", LinkPolicy::Refuse).unwrap();
                let (read, _) = inner.open_file(&name).unwrap();
                let write = inner.open_to_write(&above, &name).unwrap();
                let inner = Throttled::new(inner, Arc::clone(&paces[target as usize]));
                Place { directory: Throttled::new(inner, Arc::clone(&link)), read, write }
            };
            let files = plan.workload.files.iter().enumerate();
            files
                .map(|(file, striping)| {
                    (0..striping.count.unwrap()).map(|object| open(file, object)).collect()
                })
                .collect()
        })
        .collect();
    let metadata = OsFileSystem::open(&directory("metadata")).unwrap();
    let metadata = Throttled::new(metadata, metadata_pace);
    let barrier = Barrier::new(plan.workload.clients.len());
    let run = Run { plan, places, metadata, root: root.to_owned(), barrier };
    let seconds = run.clients();
    std::fs::remove_dir_all(&run.root).unwrap();
    seconds
}

fn target_of(plan: &Plan, file: usize, object: u32) -> u32 {
    let first = u32::try_from(plan.workload.files[file].first.unwrap()).unwrap();
    (first + object) % plan.machine.targets.count
}

fn name_of(file: usize, object: u32) -> String {
    format!("{file}-{object}")
}

/// Creates all objects at their largest size, in the page cache.
fn make_files(plan: &Plan, root: &Path) {
    for (file, striping) in plan.workload.files.iter().enumerate() {
        let end = plan.workload.clients.iter().flat_map(|client| &client.operations);
        let end = end.map(|operation| match *operation {
            ClientOperation::Read(of, offset, length)
            | ClientOperation::Write(of, offset, length)
                if of as usize == file =>
            {
                offset + length
            }
            _ => 0,
        });
        let (count, bytes) = (striping.count.unwrap(), striping.bytes.unwrap());
        let rounds = end.max().unwrap_or(0).div_ceil(bytes * u64::from(count));
        for object in 0..count {
            let path = root.join(target_of(plan, file, object).to_string());
            std::fs::create_dir_all(&path).unwrap();
            let content = vec![1_u8; usize::try_from(rounds * bytes).unwrap()];
            std::fs::write(path.join(name_of(file, object)), content).unwrap();
        }
    }
}

impl Run<'_> {
    fn clients(&self) -> f64 {
        let began = Mutex::new(Instant::now());
        let start = Barrier::new(self.plan.workload.clients.len() + 1);
        let ends = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (number, client) in self.plan.workload.clients.iter().enumerate() {
                let (start, ends) = (&start, &ends);
                scope.spawn(move || {
                    start.wait();
                    self.client(number, client);
                    ends.lock().unwrap().push(Instant::now());
                });
            }
            start.wait();
            *began.lock().unwrap() = Instant::now();
        });
        let last = ends.lock().unwrap().iter().max().copied().unwrap();
        last.duration_since(*began.lock().unwrap()).as_secs_f64()
    }

    fn client(&self, number: usize, client: &ClientWorkload) {
        let node = number / self.plan.machine.clients.per_node as usize;
        let in_flight =
            client.requests_in_flight.unwrap_or(self.plan.machine.clients.requests_in_flight);
        let mut rest = client.operations.as_slice();
        while let Some(operation) = rest.first() {
            let moves = |one: &ClientOperation| {
                matches!(one, ClientOperation::Read(..) | ClientOperation::Write(..))
            };
            let run = rest.iter().take_while(|one| moves(one)).count();
            if run > 0 {
                self.requests(node, &rest[..run], in_flight);
                rest = &rest[run..];
                continue;
            }
            match operation {
                ClientOperation::Create(_) | ClientOperation::Open(_) => {
                    self.send();
                    let above = self.metadata.open_directory("", LinkPolicy::Refuse).unwrap();
                    let made = self.metadata.create_file(&above, &format!("made-{number}"));
                    self.metadata.close(made.unwrap()).unwrap();
                }
                ClientOperation::Compute(seconds) => {
                    std::thread::sleep(Duration::from_secs_f64(*seconds));
                }
                ClientOperation::Barrier => {
                    self.barrier.wait();
                }
                other => panic!("{other:?} is not run here"),
            }
            rest = &rest[1..];
        }
    }

    fn send(&self) {
        std::thread::sleep(Duration::from_secs_f64(self.plan.machine.clients.request_seconds));
    }

    /// Starts as many threads as requests in flight; each takes the next request when free, and one
    /// thread at a time sends.
    fn requests(&self, node: usize, operations: &[ClientOperation], in_flight: u32) {
        let next = Mutex::new(operations.iter());
        std::thread::scope(|scope| {
            for _ in 0..in_flight {
                scope.spawn(|| {
                    loop {
                        let mut waiting = next.lock().unwrap();
                        let Some(operation) = waiting.next() else { return };
                        self.send();
                        drop(waiting);
                        self.request(node, *operation);
                    }
                });
            }
        });
    }

    fn request(&self, node: usize, operation: ClientOperation) {
        let (ClientOperation::Read(file, offset, length)
        | ClientOperation::Write(file, offset, length)) = operation
        else {
            return;
        };
        let is_write = matches!(operation, ClientOperation::Write(..));
        let striping = self.plan.workload.files[file as usize];
        let (count, bytes) = (u64::from(striping.count.unwrap()), striping.bytes.unwrap());
        // Computes the byte ranges of each object stripe by stripe, independently of the
        // simulation.
        let mut ranges: Vec<Option<(u64, u64)>> = vec![None; usize::try_from(count).unwrap()];
        let mut at = offset;
        while at < offset + length {
            let end = ((at / bytes + 1) * bytes).min(offset + length);
            let place = at / (bytes * count) * bytes + at % bytes;
            let range = &mut ranges[usize::try_from(at / bytes % count).unwrap()];
            *range = Some(range.map_or((place, end - at), |(from, had)| (from, had + end - at)));
            at = end;
        }
        let places = &self.places[node][file as usize];
        let pieces: Vec<_> = ranges
            .into_iter()
            .zip(places)
            .filter_map(|(range, place)| Some((range?, place)))
            .collect();
        // This thread moves the first range.
        let Some(((range, place), others)) = pieces.split_first() else { return };
        std::thread::scope(|scope| {
            for (range, place) in others {
                scope.spawn(|| place.transfer(*range, is_write));
            }
            place.transfer(*range, is_write);
        });
    }
}

impl Place {
    fn transfer(&self, (offset, length): (u64, u64), is_write: bool) {
        let mut buffer = vec![2_u8; usize::try_from(length).unwrap()];
        let moved = match is_write {
            true => self.directory.write_at(&self.write, offset, &buffer).unwrap(),
            false => self.directory.read_at(&self.read, offset, &mut buffer).unwrap(),
        };
        assert_eq!(moved, buffer.len());
    }
}
