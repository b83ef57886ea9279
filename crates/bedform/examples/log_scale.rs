//! Counts the cost of commits of very many processes: files, creates, opens, syncs, requests, bytes.
//!
//!     cargo run --release -p bedform --example log_scale -- NODES PER-NODE COMMITS
//!
//! Every process is a real session, in a thread; nothing of the log is modelled. The surroundings are
//! simulated: messages are handed over in memory, and storage is memory that counts its operations.
//! Prints a line of JSON for each commit, and one for the objects that a reader opens for one time step,
//! in the region of one process and of all. `python -m benchmarks log-scale` makes a table of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};

use bedform::comm::Communicator;
use bedform::log::session::SessionOptions;
use bedform::{ArrayLayout, NewArray, OpenOptions, Result, Store};
use bedform_format::log::Boxes;
use bedform_format::metadata::FillValue;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{Order, Region, Selection};
use bedform_storage::{MemoryStorage, RecordedOperation, Recording, Storage, StorageOperation};

/// Arrays of a time step, and elements of each that a process has.
const ARRAYS: u64 = 8;
const SHARE: u64 = 16;
const SHARE_LENGTH: usize = 16;
const STACK_BYTES: usize = 256 << 10;

/// The messages between members, by group, sender, receiver and number.
#[derive(Debug, Default)]
struct Post {
    boxes: Vec<Mailbox>,
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// Of a message: its group, sender and number.
type Name = (u64, u32, u64);

/// The messages that arrived for one member.
#[derive(Debug, Default)]
struct Mailbox {
    arrived: Mutex<HashMap<Name, Arc<Vec<u8>>>>,
    changed: Condvar,
}

/// A member of a group: the whole, a node, or the leaders.
#[derive(Debug)]
struct Member {
    post: Arc<Post>,
    per_node: u32,
    /// Names the group; the members number its messages in the same way.
    group: u64,
    ranks: Arc<Vec<u32>>,
    rank: u32,
    sent: AtomicU64,
}

impl Member {
    fn of(&self, group: u64, ranks: Vec<u32>) -> Box<dyn Communicator> {
        let own = self.ranks[self.rank as usize];
        let rank = ranks.iter().position(|rank| *rank == own).unwrap();
        Box::new(Self {
            post: self.post.clone(),
            per_node: self.per_node,
            group,
            ranks: Arc::new(ranks),
            rank: u32::try_from(rank).unwrap(),
            sent: AtomicU64::new(0),
        })
    }

    fn send(&self, to: u32, number: u64, bytes: Arc<Vec<u8>>) {
        self.post.messages.fetch_add(1, Ordering::Relaxed);
        self.post.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mailbox = &self.post.boxes[self.ranks[to as usize] as usize];
        mailbox.arrived.lock().unwrap().insert((self.group, self.rank, number), bytes);
        mailbox.changed.notify_one();
    }

    fn receive(&self, from: u32, number: u64) -> Arc<Vec<u8>> {
        let mailbox = &self.post.boxes[self.ranks[self.rank as usize] as usize];
        let mut arrived = mailbox.arrived.lock().unwrap();
        loop {
            if let Some(bytes) = arrived.remove(&(self.group, from, number)) {
                return bytes;
            }
            arrived = mailbox.changed.wait(arrived).unwrap();
        }
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        let rank = self.rank;
        (0..self.size()).filter(move |other| *other != rank)
    }
}

impl Communicator for Member {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap()
    }

    fn nodes(&self) -> Result<Vec<u32>> {
        Ok((0..self.size()).map(|rank| rank / self.per_node).collect())
    }

    fn select(&self, ranks: &[u32]) -> Result<Box<dyn Communicator>> {
        // Those of a node, or the first of each.
        let is_node = ranks.iter().all(|rank| rank / self.per_node == self.rank / self.per_node);
        let number = if is_node { 1 + u64::from(self.rank / self.per_node) } else { u64::MAX };
        Ok(self.of(number, ranks.to_vec()))
    }

    fn broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<Vec<u8>> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        if self.rank != root {
            return Ok(self.receive(root, number).to_vec());
        }
        let shared = Arc::new(bytes);
        self.others().for_each(|to| self.send(to, number, shared.clone()));
        Ok(shared.to_vec())
    }

    fn gather(&self, bytes: &[u8], root: u32) -> Result<Option<Vec<Vec<u8>>>> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let own = Arc::new(bytes.to_vec());
        if self.rank != root {
            self.send(root, number, own);
            return Ok(None);
        }
        let all = (0..self.size()).map(|from| match from == root {
            true => own.to_vec(),
            false => self.receive(from, number).to_vec(),
        });
        Ok(Some(all.collect()))
    }
}

/// An array whose shards have a time step of what about a node has.
fn array(steps: u64, ranks: u64, per_node: u64) -> NewArray {
    NewArray {
        shape: vec![steps, ranks * SHARE],
        data_type: DataType::Float32,
        layout: ArrayLayout {
            chunk_shape: vec![1, per_node * SHARE],
            shard_shape: vec![1, per_node * SHARE],
            order: Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: FillValue::zero(DataType::Float32),
        dimension_names: None,
        attributes: serde_json::Map::new(),
    }
}

fn name(number: u64) -> ObjectPath {
    ObjectPath::parse(&format!("v{number}")).unwrap()
}

/// Prints the operations of storage as JSON.
fn say(what: &str, events: &[RecordedOperation], more: &str) {
    let count = |operations: &[StorageOperation]| {
        events.iter().filter(|event| operations.contains(&event.operation)).count()
    };
    let bytes = |operations: &[StorageOperation]| -> u64 {
        let those = events.iter().filter(|event| operations.contains(&event.operation));
        those.map(|event| event.bytes).sum()
    };
    let opened: BTreeSet<_> = events
        .iter()
        .filter(|event| event.operation == StorageOperation::Open)
        .map(|event| (&event.place, &event.path))
        .collect();
    let synced = count(&[StorageOperation::SyncGrowing, StorageOperation::Sync])
        + events
            .iter()
            .filter(|event| event.operation == StorageOperation::Publish && event.is_durable)
            .count();
    println!(
        "{{\"what\": \"{what}\", \"creates\": {}, \"opens\": {}, \"files_opened\": {}, \"stats\": {}, \
         \"locks\": {}, \"syncs\": {synced}, \"reads\": {}, \"read_bytes\": {}, \"lists\": {}, \
         \"written_bytes\": {}{more}}}",
        count(&[StorageOperation::Grow, StorageOperation::Create]),
        count(&[StorageOperation::Open]),
        opened.len(),
        count(&[StorageOperation::Stat, StorageOperation::IsCurrent]),
        count(&[StorageOperation::Lock]),
        count(&[StorageOperation::Read, StorageOperation::ReadResident]),
        bytes(&[StorageOperation::Read, StorageOperation::ReadResident]),
        count(&[StorageOperation::List]),
        bytes(&[StorageOperation::AppendGrowing, StorageOperation::Publish]),
    );
}

fn main() {
    let numbers: Vec<u32> =
        std::env::args().skip(1).map(|argument| argument.parse().unwrap()).collect();
    let [nodes, per_node, commits] = numbers[..] else {
        panic!("give the numbers of nodes, of processes on each, and of commits")
    };
    let ranks = nodes * per_node;
    let recording = Recording::new(MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(recording.clone());
    let mut options = OpenOptions::default();
    (options.writable, options.threads) = (true, Some(1));
    let store = Store::create(storage, &serde_json::Map::new(), options).unwrap();
    for number in 0..ARRAYS {
        store
            .create_array(&name(number), &array(commits.into(), ranks.into(), per_node.into()))
            .unwrap();
    }
    recording.clear();
    let post = Arc::new(Post {
        boxes: (0..ranks).map(|_| Mailbox::default()).collect(),
        ..Post::default()
    });
    let all = Arc::new((0..ranks).collect::<Vec<u32>>());
    // Between the lines nobody does anything.
    let together = Barrier::new(ranks as usize);
    let report = |rank: u32, what: &str| {
        together.wait();
        if rank == 0 {
            let messages = post.messages.swap(0, Ordering::Relaxed);
            let bytes = post.bytes.swap(0, Ordering::Relaxed);
            let more = format!(", \"messages\": {messages}, \"message_bytes\": {bytes}");
            say(what, &recording.events(), &more);
            recording.clear();
        }
        together.wait();
    };
    let write = |rank: u32| {
        let (group, ranks, sent) = (0, all.clone(), AtomicU64::new(0));
        let member = Member { post: post.clone(), per_node, group, ranks, rank, sent };
        let mut options = SessionOptions::default();
        options.in_background = false;
        let mut session = store.session(Box::new(member), options).unwrap();
        report(rank, "begin");
        let own = Boxes::one(&[u64::from(rank) * SHARE], &[SHARE]).unwrap();
        let own = session.declare(own).unwrap();
        for step in 0..commits {
            let value = [f32::from(u16::try_from(step).unwrap()); SHARE_LENGTH];
            let bytes: Vec<u8> = value.iter().flat_map(|value| value.to_le_bytes()).collect();
            for number in 0..ARRAYS {
                session.write_declared(&name(number), Some(step.into()), own, &bytes).unwrap();
            }
            report(rank, &format!("write {}", step + 1));
            session.commit().unwrap();
            report(rank, &format!("commit {}", step + 1));
        }
    };
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let write = &write;
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || write(rank)).unwrap();
        }
    });
    let segments = store.storage().sibling(".bedform-log").unwrap();
    let segments = segments.list(&ObjectPath::parse("segments").unwrap()).unwrap().len();
    let user_bytes = u64::from(ranks) * SHARE * 4 * ARRAYS;
    println!(
        "{{\"what\": \"data\", \"segments\": {segments}, \"commit_data_bytes\": {user_bytes}}}"
    );
    look(&recording, ranks, commits);
}

/// Says what readers open of the last time step of one array.
fn look(recording: &Recording<MemoryStorage>, ranks: u32, commits: u32) {
    for (what, start, length) in
        [("region of one", 7 * SHARE, SHARE), ("everything", 0, u64::from(ranks) * SHARE)]
    {
        let mut options = OpenOptions::default();
        options.threads = Some(1);
        let store = Store::open(Arc::new(recording.clone()), options).unwrap();
        let array = store.array(&name(1)).unwrap();
        recording.clear();
        let step = u64::from(commits) - 1;
        let region = Region::new(vec![step, start], vec![1, length]).unwrap();
        let mut bytes = vec![0; usize::try_from(4 * length).unwrap()];
        array.read(&Selection::from(region), &mut bytes).unwrap();
        let expected = f32::from(u16::try_from(step).unwrap()).to_le_bytes();
        assert!(bytes.chunks(4).all(|value| value == expected), "{what}");
        say(what, &recording.events(), "");
    }
}
