//! Several processes on one directory: this test starts itself again with a role.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bedform_format::ObjectPath;
use bedform_storage::{
    Condition, Durability, LocalStorage, Mode, Storage, StorageErrorKind, WriteHint,
};

use crate::local::{Scratch, get, put};

const ROLE: &str = "BEDFORM_TEST_ROLE";
const ROOT: &str = "BEDFORM_TEST_ROOT";
const ROUNDS: u64 = 50;

fn start(role: &str, root: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "processes::a_process_plays_its_role"])
        .env(ROLE, role)
        .env(ROOT, root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Plays the role of a started process; does nothing in a usual run of the tests.
#[test]
fn a_process_plays_its_role() {
    let (Ok(role), Ok(root)) = (std::env::var(ROLE), std::env::var(ROOT)) else { return };
    let storage = LocalStorage::open(Path::new(&root), Mode::ReadWrite).unwrap();
    match role.as_str() {
        "count" => (0..ROUNDS).for_each(|_| increment(&storage)),
        "hang" => {
            let path = ObjectPath::parse("dead").unwrap();
            let mut writer = storage.create(&path, Durability::Disk, WriteHint::default()).unwrap();
            writer.append(b"never published").unwrap();
            let _guard = storage.lock(&ObjectPath::root()).unwrap();
            println!("\nready");
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        other => panic!("no role {other}"),
    }
}

fn increment(storage: &LocalStorage) {
    let path = ObjectPath::parse("counter").unwrap();
    loop {
        let object = storage.open(&path).unwrap();
        let count = u64::from_le_bytes(get(&*object).try_into().unwrap());
        let mut writer = storage.create(&path, Durability::Process, WriteHint::of(8)).unwrap();
        writer.append(&(count + 1).to_le_bytes()).unwrap();
        match writer.publish(Condition::Unchanged(&*object)) {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind, StorageErrorKind::Conflict),
        }
    }
}

#[test]
fn no_update_is_lost_among_processes() {
    let scratch = Scratch::new();
    let storage = LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap();
    put(&storage, "counter", &0u64.to_le_bytes());
    let children: Vec<_> = (0..4).map(|_| start("count", &scratch.0)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let object = storage.open(&ObjectPath::parse("counter").unwrap()).unwrap();
    assert_eq!(get(&*object), (4 * ROUNDS).to_le_bytes());
}

#[test]
fn what_a_killed_process_held_is_free_and_what_it_left_is_swept() {
    let scratch = Scratch::new();
    let storage = LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap();
    let mut child = start("hang", &scratch.0);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    assert_eq!(storage.sweep(&ObjectPath::root()).unwrap(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(storage.lock(&ObjectPath::root()).unwrap());
    assert_eq!(storage.sweep(&ObjectPath::root()).unwrap(), 1);
    assert_eq!(storage.list(&ObjectPath::root()).unwrap(), []);
}
