//! H6: names and files that would lead out of the store. The engine opens, makes, changes and
//! deletes nothing outside: every call is watched, and the files outside are compared.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use bedform::{Elements, ErrorKind, Store};
use bedform_format::ObjectPath;
use bedform_storage::{LocalStorage, Mode, Staging};
use serde_json::{Map, json};

use crate::frozen::load;
use crate::model::{bytes, form, new_array, options, read, whole};
use crate::support::{Scratch, count, path};
use crate::watched::Watched;

/// Names that the engine rejects.
const REFUSED: &[&str] = &[
    "..",
    "../x",
    "../../x",
    "a/..",
    "a/../..",
    "a/../../x",
    ".",
    "./a",
    "a/.",
    "/",
    "/etc/passwd",
    "//a",
    "a//b",
    "a/",
    "/a/../../x",
    "\0",
    "a\0b",
    "a\n",
    "a\r",
    "\u{1b}[0m",
    "a\\b",
    "..\\x",
    "C:\\x",
    "\u{7f}",
    "\u{85}",
    "a/\u{9b}",
];
/// Odd but valid names, which stay inside the store.
const TAKEN: &[&str] = &[
    "CON",
    "nul.txt",
    "C:",
    "a:b",
    "a.",
    "a ",
    " a",
    "~",
    "~root",
    "$HOME",
    "-rf",
    "*",
    "?",
    "%2e%2e",
    "%2e%2e%2f",
    "\u{2024}\u{2024}",
    "\u{ff0e}\u{ff0e}",
    "\u{2025}",
    "\u{2215}etc",
    "e\u{301}",
    "\u{e9}",
    "\u{202e}x",
    "\u{200b}",
    "...",
    "..a",
    "a..",
    ".hidden",
    "zarr.json.x",
    "c",
];

struct Trap {
    _scratch: Scratch,
    root: std::path::PathBuf,
    outside: std::path::PathBuf,
}

impl Trap {
    /// A store with the array `t` (and `g/u`), beside a directory that must stay unchanged.
    fn new() -> Self {
        let scratch = Scratch::new("paths");
        let (root, outside) = (scratch.0.join("store"), scratch.0.join("outside"));
        for directory in [outside.join("array/c/0"), outside.join("empty")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(outside.join("secret"), b"secret").unwrap();
        std::fs::write(outside.join("array/c/0/0"), b"secret chunk").unwrap();
        let storage = Arc::new(LocalStorage::open(&root, Mode::Create).unwrap());
        let store = Store::create(storage, &Map::new(), writable()).unwrap();
        for name in ["t", "g/u"] {
            let array = store.create_array(&path(name), &new_array(&like())).unwrap();
            let elements = bytes(&[5; 64]);
            array.write(&whole(&[8, 8]), Elements::Bytes(&elements)).unwrap();
        }
        std::fs::copy(root.join("t/zarr.json"), outside.join("array/zarr.json")).unwrap();
        Self { _scratch: scratch, root, outside }
    }

    /// Runs `work` on the store, watched, and compares the files outside.
    fn watch(&self, story: &str, work: impl FnOnce(&Store)) {
        let before = load(&self.outside);
        let system = Watched::new(&self.root);
        let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
        let storage = Arc::new(storage);
        if let Ok(store) = Store::open(storage.clone(), writable()) {
            work(&store);
        }
        assert_eq!(storage.system().outside(), Vec::<String>::new(), "{story}");
        assert!(storage.system().calls() > 0, "{story}: nothing was watched");
        assert!(load(&self.outside) == before, "{story}: files outside have changed");
        assert!(self.outside.join("empty").exists(), "{story}");
    }
}

/// Power cuts do not matter here, and without syncs the tests are many times faster.
fn writable() -> bedform::OpenOptions {
    let mut options = options(true);
    options.durability = bedform_storage::Durability::Process;
    options
}

fn like() -> crate::model::ArrayModel {
    form(&[8, 8], &[2, 2], &[4, 4], "")
}

/// All operations on an array.
const DEEDS: &[(&str, fn(&Store))] = &[
    ("read", |store| {
        if let Ok(array) = store.array(&path("t"))
            && let Ok(values) = read(&array, &whole(&[8, 8]))
        {
            assert!(values.iter().all(|value| *value == 5 || *value == crate::model::FILL));
        }
    }),
    ("verify", |store| {
        let _ = store.array(&path("t")).and_then(|array| array.verify());
    }),
    ("write", |store| {
        let _ = store
            .array(&path("t"))
            .and_then(|array| array.write(&whole(&[8, 8]), Elements::Bytes(&bytes(&[6; 64]))));
    }),
    ("merge", |store| {
        let _ = store.array(&path("t")).and_then(|array| {
            let one = crate::model::region(&[0, 0], &[1, 1]);
            array.write(&one, Elements::Bytes(&bytes(&[7])))
        });
    }),
    ("append", |store| {
        let _ = store
            .array(&path("t"))
            .and_then(|array| array.append(0, &[1, 8], Elements::Bytes(&bytes(&[8; 8]))));
    }),
    ("resize", |store| {
        let _ = store.array(&path("t")).and_then(|array| array.resize(&[3, 3]));
        let _ = store.array(&path("t")).and_then(|array| array.resize(&[9, 9]));
    }),
    ("attributes", |store| {
        let attributes = Map::from_iter([("a".to_owned(), json!(1))]);
        let _ = store.set_attributes(&path("t"), attributes.clone());
        let _ = store.set_attributes(&ObjectPath::root(), attributes);
    }),
    ("delete", |store| {
        let _ = store.delete(&path("t"));
    }),
    ("create", |store| {
        let _ = store.create_array(&path("t"), &new_array(&like()));
        let _ = store.create_array(&path("t/x"), &new_array(&like()));
    }),
    ("delete the group", |store| {
        let _ = store.delete(&path("g"));
    }),
];

/// Replaces the file or directory at a path.
type Plant = fn(&Path, &Path);

fn clear(place: &Path) {
    if place.is_dir() && !place.is_symlink() {
        std::fs::remove_dir_all(place).unwrap();
    } else {
        let _ = std::fs::remove_file(place);
    }
}

const PLACES: &[&str] = &["t", "t/zarr.json", "t/c", "t/c/0", "t/c/0/0", "g"];
const PLANTS: &[(&str, Plant)] = &[
    ("a link to a directory outside", |place, outside| {
        clear(place);
        symlink(outside.join("array"), place).unwrap();
    }),
    ("a link to a file outside", |place, outside| {
        clear(place);
        symlink(outside.join("secret"), place).unwrap();
    }),
    ("a relative link out of the store", |place, _| {
        clear(place);
        symlink("../".repeat(5) + "outside/array", place).unwrap();
        let _ = place;
    }),
    ("a link to nothing outside", |place, outside| {
        clear(place);
        symlink(outside.join("new"), place).unwrap();
    }),
    ("a link to itself", |place, _| {
        clear(place);
        symlink(place.file_name().unwrap(), place).unwrap();
    }),
    ("a FIFO", |place, _| {
        clear(place);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, place, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }),
    ("a hard link to a file outside", |place, outside| {
        clear(place);
        std::fs::hard_link(outside.join("secret"), place).unwrap();
    }),
];

#[test]
#[ignore = "a stage of make reliability"]
fn names_that_lead_out_of_the_store_are_refused() {
    let mut cases = 0;
    for name in REFUSED {
        assert!(ObjectPath::parse(name).is_err(), "{name:?}");
        assert!(ObjectPath::root().join(name).is_err(), "{name:?}");
        assert!(path("g").join(name).is_err() || name.is_empty(), "{name:?}");
        cases += 1;
        // The same name in the metadata of another user's store.
        let trap = Trap::new();
        let document = json!({
            "zarr_format": 3, "node_type": "group", "attributes": {},
            "consolidated_metadata": {"kind": "inline", "must_understand": false,
                "metadata": {*name: {"zarr_format": 3, "node_type": "group"}}},
        });
        std::fs::write(trap.root.join("zarr.json"), document.to_string()).unwrap();
        trap.watch(&format!("consolidated {name:?}"), |store| {
            let error = store.nodes().unwrap_err();
            let kind = error.kind();
            assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::InvalidArgument), "{error}");
            let _ = store.create_array(&path("new"), &new_array(&like()));
        });
        cases += 1;
    }
    for name in TAKEN {
        let trap = Trap::new();
        trap.watch(name, |store| {
            let name = path(name);
            let array = store.create_array(&name, &new_array(&like())).unwrap();
            array.write(&whole(&[8, 8]), Elements::Bytes(&bytes(&[6; 64]))).unwrap();
            assert_eq!(read(&array, &whole(&[8, 8])).unwrap(), [6; 64]);
            store.delete(&name).unwrap();
        });
        cases += 1;
    }
    count("path-cases", cases);
}

#[test]
#[ignore = "a stage of make reliability"]
fn links_devices_and_fifos_lead_nowhere() {
    let mut cases = 0;
    for place in PLACES {
        for (what, plant) in PLANTS {
            for (deed, work) in DEEDS {
                let trap = Trap::new();
                plant(&trap.root.join(place), &trap.outside);
                trap.watch(&format!("{deed} with {what} at {place}"), work);
                cases += 1;
            }
        }
    }
    // The root's document, and a device.
    let trap = Trap::new();
    std::fs::remove_file(trap.root.join("zarr.json")).unwrap();
    symlink(trap.outside.join("array/zarr.json"), trap.root.join("zarr.json")).unwrap();
    let opened = LocalStorage::open(&trap.root, Mode::ReadOnly).unwrap();
    assert!(Store::open(Arc::new(opened), options(false)).is_err());
    let trap = Trap::new();
    clear(&trap.root.join("t/c/0/0"));
    symlink("/dev/zero", trap.root.join("t/c/0/0")).unwrap();
    trap.watch("a device", |store| {
        let array = store.array(&path("t")).unwrap();
        assert!(read(&array, &whole(&[8, 8])).is_err());
    });
    count("path-cases", cases + 2);
}
