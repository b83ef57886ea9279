//! F2 to F5 for members that share segments: the power fails while four members on two nodes
//! commit.
//!
//! After each crash the array holds one whole commit: the last acknowledged one, or the next.
//! Uncommitted writes can be recovered or discarded, and no files remain. The members are threads,
//! so a cut comes at a different place in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bedform::comm::{Communicator as _, ThreadMember, threads_on_nodes};
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::SessionOptions;
use bedform::{NewArray, Store};
use bedform_format::log::Boxes;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{Order, Selection};
use bedform_storage::SimulatedFileSystem;

use crate::model::options;
use crate::support::{Cases, Random, count, path};
use crate::workloads::storage;

const MEMBERS: u32 = 4;
const COMMITS: u8 = 2;
/// Elements of each member.
const SHARE: usize = 6;

fn array() -> NewArray {
    NewArray {
        shape: vec![MEMBERS.into(), SHARE as u64],
        data_type: DataType::UInt8,
        layout: bedform::ArrayLayout {
            chunk_shape: vec![1, 3],
            shard_shape: vec![2, 6],
            order: Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: bedform_format::metadata::FillValue::zero(DataType::UInt8),
        dimension_names: None,
        attributes: serde_json::Map::new(),
    }
}

/// Commits of all members, each of which fills the array with its number. Returns the last commit
/// acknowledged to any member, and whether all were.
fn commit_all(system: &SimulatedFileSystem) -> (u8, bool) {
    let acknowledged = AtomicU8::new(0);
    let run = |member: ThreadMember| -> bedform::Result<()> {
        let rank = member.rank();
        let opened = Store::open(storage(system), options(true));
        let store = match opened {
            Ok(store) => store,
            Err(error) => return Err(bedform::log::session::decline(Box::new(member), error)),
        };
        let mut session = store.session(Box::new(member), SessionOptions::default())?;
        for commit in 1..=COMMITS {
            let row = Boxes::one(&[rank.into(), 0], &[1, SHARE as u64]).unwrap();
            // One part that the member describes alone, and one that its node describes.
            session.write_boxes(&path("t"), row.clone(), &[0xee; SHARE])?;
            if rank % 2 == 1 {
                session.flush()?;
            }
            session.write_boxes(&path("t"), row, &[commit; SHARE])?;
            session.commit()?;
            acknowledged.fetch_max(commit, Ordering::SeqCst);
        }
        Ok(())
    };
    let is_done = std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = threads_on_nodes(MEMBERS, 2)
            .into_iter()
            .map(|member| scope.spawn(move || run(member).is_ok()))
            .collect();
        all.into_iter().fold(true, |all, thread| thread.join().unwrap() & all)
    });
    (acknowledged.load(Ordering::SeqCst), is_done)
}

fn read(store: &Store) -> Vec<u8> {
    let mut bytes = vec![0; MEMBERS as usize * SHARE];
    let array = store.array(&path("t")).unwrap();
    array.read(&Selection::all(&[MEMBERS.into(), SHARE as u64]), &mut bytes).unwrap();
    bytes
}

fn look(image: &SimulatedFileSystem, acknowledged: u8, leftover: LeftoverPolicy, story: &str) {
    let store = Store::open(storage(image), options(true)).unwrap();
    let found = read(&store);
    assert!(found.iter().all(|value| *value == found[0]), "{story}: {found:?}");
    let is_right = (acknowledged..=acknowledged + 1).contains(&found[0]);
    assert!(is_right, "{story}: found {}, acknowledged {acknowledged}", found[0]);
    let recovered = store.recover(None, leftover).unwrap();
    let after = read(&store);
    if leftover == LeftoverPolicy::Discard || recovered.found.is_empty() {
        assert_eq!(after, found, "{story}");
    }
    // Recovered data belong to their writer's commit, or to none.
    let is_known = |value: &u8| [found[0], found[0] + 1, 0xee].contains(value);
    assert!(after.iter().all(is_known), "{story}: {found:?} became {after:?}");
    store.settle().unwrap();
    assert_eq!(read(&store), after, "{story}");
    let log = store.storage().sibling(".bedform-log").unwrap();
    // A session that began and wrote nothing may leave an empty directory.
    for entry in log.list(&ObjectPath::root()).unwrap() {
        let left = log.list(&path(&entry.name)).unwrap();
        assert!(entry.is_directory && left.is_empty(), "{story}: {entry:?} {left:?}");
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_power_cut_while_nodes_commit_leaves_whole_commits() {
    let base = SimulatedFileSystem::new();
    let store = Store::create(storage(&base), &serde_json::Map::new(), options(true)).unwrap();
    store.create_array(&path("t"), &array()).unwrap();
    drop(store);
    let whole = base.fork();
    assert!(commit_all(&whole).1);
    let calls = whole.calls();
    let cases = Cases::new("nodes::a_power_cut_while_nodes_commit", 15, 80);
    // Each case has threads of its own, so one thread suffices.
    let images = cases.run_on(1, |case| {
        let cut = Random(case.seed).below(calls + 1);
        let system = base.fork();
        system.fail_power_after(cut);
        let (acknowledged, _) = commit_all(&system);
        let mut images = 0;
        let torn = system.torn_crash_images(case.seed, 3);
        for (number, image) in system.crash_images(case.seed, 6).chain(torn).enumerate() {
            let leftover = [LeftoverPolicy::Commit, LeftoverPolicy::Discard][number % 2];
            let story = format!("cut {cut}, image {number} of {case:?}");
            look(&image, acknowledged, leftover, &story);
            images += 1;
        }
        images
    });
    count("node-cuts", images.len() as u64);
    count("node-crash-images", images.iter().sum());
}

#[test]
#[ignore = "a stage of make reliability"]
fn members_on_nodes_leave_plain_zarr_when_they_settle() {
    let system = SimulatedFileSystem::new();
    let store = Store::create(storage(&system), &serde_json::Map::new(), options(true)).unwrap();
    store.create_array(&path("t"), &array()).unwrap();
    let (acknowledged, is_done) = commit_all(&system);
    assert!(is_done && acknowledged == COMMITS);
    assert_eq!(read(&store), [COMMITS; MEMBERS as usize * SHARE]);
    let shared: Arc<dyn bedform_storage::Storage> = storage(&system);
    let log = shared.sibling(".bedform-log").unwrap();
    assert_eq!(log.list(&path("segments")).unwrap().len(), 2, "one for each node");
    store.settle().unwrap();
    let hidden = system.tree().into_keys().find(|name| name.contains(".bedform"));
    assert_eq!(hidden, None);
}
