//! Stores with a log that users have moved, copied, copied in part, restored from earlier copies,
//! opened by other paths, or changed with other programs. Reading gives right data or an error that
//! names the problem. Using a part of a store never loses the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bedform::comm::Alone;
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::{Burst, CommitReach, SessionOptions};
use bedform::log::settle::CollectOptions;
use bedform::{Elements, ErrorKind, Freshness, Store};
use serde_json::{Map, Value};

use crate::model::{
    Operation, StoreModel, bytes, form, observe_store, options, read, values, whole,
};
use crate::place::{
    Place, attempts, copy, edit, found, log_of, open, put, put_back, remove, rewrite_root, run,
    session, settle, start, tree,
};
use crate::support::{count, path};

#[test]
#[ignore = "a stage of make reliability"]
fn a_store_that_is_moved_with_its_log_is_the_same_store() {
    let place = Place::with_commits("moved");
    let elsewhere = place.scratch.0.join("deeper/another.name");
    fs::create_dir(elsewhere.parent().unwrap()).unwrap();
    fs::rename(place.store(), &elsewhere).unwrap();
    fs::rename(place.log(), log_of(&elsewhere)).unwrap();
    place.check(&elsewhere);
    let more = [session("t", &[0, 0], &[2, 2], 4), settle(Duration::ZERO)];
    let model = run(&elsewhere, &place.model, &more);
    assert_eq!(found(&elsewhere, &model), Ok(model));
    assert!(!log_of(&elsewhere).exists() && !place.log().exists());
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_store_that_is_moved_without_its_log_is_refused_until_it_is_back() {
    let place = Place::with_commits("parted");
    let elsewhere = place.scratch.0.join("elsewhere");
    fs::rename(place.log(), &elsewhere).unwrap();
    let log = place.log().display().to_string();
    place.check_refused(ErrorKind::Corrupt, &[&log, "put it back beside the store"]);
    // The attempts have left no log, except for an unowned segment.
    let _ = fs::remove_dir_all(place.log());
    fs::rename(&elsewhere, place.log()).unwrap();
    place.check(&place.store());
    let place = place.then(&[settle(Duration::ZERO)]);
    place.check(&place.store());
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_log_that_was_left_where_another_store_is_made_is_neither_read_nor_lost() {
    let place = Place::with_commits("left");
    fs::rename(place.store(), place.scratch.0.join("moved")).unwrap();
    let refused = Store::create_path(&place.store(), &Map::new(), options(true)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
    assert!(refused.to_string().contains("holds commits of a store"), "{refused}");
    // The other store is made elsewhere and moved there.
    let aside = place.scratch.0.join("aside");
    drop(Store::create_path(&aside, &Map::new(), options(true)).unwrap());
    fs::rename(&aside, place.store()).unwrap();
    let other = Store::open_path(&place.store(), options(true)).unwrap();
    let like = StoreModel::from([("t".to_owned(), form(&[10, 7], &[2, 2], &[4, 4], ""))]);
    let create = Operation::Drafts { arrays: vec![("t", like["t"].clone())], seed: 5 };
    create.run(&other, &StoreModel::new()).unwrap();
    assert_eq!(found(&place.store(), &like), Ok(create.apply(&StoreModel::new())));
    let before = tree(&place.log());
    for (name, outcome) in attempts(&place.store()) {
        // Direct reads and writes need no log.
        if matches!(name, "read" | "write" | "append") {
            outcome.unwrap();
            continue;
        }
        let error = outcome.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        assert!(error.to_string().contains("is of another store"), "{name}: {error}");
    }
    let now = tree(&place.log());
    assert!(before.iter().all(|(file, bytes)| now.get(file) == Some(bytes)));
    remove(&place.store());
    fs::rename(place.scratch.0.join("moved"), place.store()).unwrap();
    place.check(&place.store());
}

/// Documents of other objects, with their names.
fn documents_of_others(place: &Place) -> Vec<(&'static str, Vec<u8>)> {
    let document = |store: &Path, name: &str| fs::read(store.join(name).join("zarr.json")).unwrap();
    let other = Place::new("other");
    let settled = document(&other.store(), "");
    let other = other.then(&[session("t", &[1, 1], &[3, 3], 10)]);
    let mut foreign: Value = serde_json::from_slice(&document(&place.store(), "t")).unwrap();
    foreign.as_object_mut().unwrap().remove("bedform");
    vec![
        ("an array", document(&place.store(), "t")),
        ("an array of a group", document(&place.store(), "g/u")),
        ("an array of another store", document(&other.store(), "t")),
        ("an array of another program", serde_json::to_vec(&foreign).unwrap()),
        ("another store", settled),
        ("another store with commits", document(&other.store(), "")),
    ]
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_document_of_something_else_in_the_place_of_the_roots_hides_no_commits() {
    let place = Place::with_commits("hidden");
    let own = place.store().join("zarr.json");
    let before = fs::read(&own).unwrap();
    for (of, document) in documents_of_others(&place) {
        let open = Store::open_path(&place.store(), options(false)).unwrap();
        fs::write(&own, document).unwrap();
        let late = observe_store(&open, &place.model);
        assert!(late.is_err() || late.as_ref() == Ok(&place.model), "{of}: {late:?}");
        place.check_refused(ErrorKind::Corrupt, &["put"]);
        fs::write(&own, &before).unwrap();
        place.check(&place.store());
    }
    // A settled store has no commits to hide.
    let place = place.then(&[settle(Duration::ZERO)]);
    fs::write(&own, fs::read(place.store().join("t/zarr.json")).unwrap()).unwrap();
    assert!(Store::open_path(&place.store(), options(false)).is_ok());
}

#[test]
#[ignore = "a stage of make reliability"]
fn copies_that_are_written_and_settled_apart_are_two_stores() {
    let place = Place::with_commits("copied");
    let other = place.scratch.0.join("copy");
    put_back(&place.store(), &other);
    place.check(&other);
    let steps = |seed: u64| {
        [
            session("t", &[seed % 4, 1], &[3, 5], seed),
            Operation::Append { parts: vec![("t".to_owned(), 0, 1 + seed % 3)], seed },
            session("g/u", &[1], &[4], seed + 1),
        ]
    };
    let (mut one, mut two) = (place.model.clone(), place.model.clone());
    for round in 0..3 {
        one = run(&place.store(), &one, &steps(100 + round));
        if round == 1 {
            one = run(&place.store(), &one, &[settle(Duration::ZERO)]);
        }
        two = run(&other, &two, &steps(207 + round));
        assert_eq!(found(&place.store(), &one).as_ref(), Ok(&one));
        assert_eq!(found(&other, &two).as_ref(), Ok(&two));
    }
    run(&other, &two, &[settle(Duration::ZERO)]);
    assert_eq!(found(&other, &two).as_ref(), Ok(&two));
    assert_eq!(found(&place.store(), &one).as_ref(), Ok(&one));
    assert!(!log_of(&other).exists());
}

/// A store with some settled shards while others commit: with roots, lists and several segments.
fn half_settled() -> (Place, Vec<StoreModel>) {
    let mut place = Place::with_commits("half");
    let mut models = vec![place.model.clone()];
    for operation in [
        settle(Duration::ZERO),
        session("t", &[0, 0], &[6, 6], 6),
        Operation::SettleUnder {
            name: "t".to_owned(),
            start: vec![4, 2],
            shape: vec![3, 3],
            seed: 7,
        },
        session("g/u", &[1], &[4], 8),
        session("t", &[8, 1], &[2, 4], 9),
    ] {
        place = place.then(&[operation]);
        models.push(place.model.clone());
    }
    assert!(place.log().join("settled").exists());
    (place, models)
}

#[test]
#[ignore = "a stage of make reliability"]
fn of_a_half_copied_store_nothing_is_read_that_is_not_so_and_the_rest_can_still_be_added() {
    let (place, models) = half_settled();
    let (store, kept) = (place.store(), place.scratch.0.join("kept"));
    put_back(&store, &kept);
    let mut all: Vec<PathBuf> =
        tree(&store).into_keys().chain(tree(&place.log()).into_keys()).collect();
    all.extend(["roots", "segments", "settled"].map(|name| place.log().join(name)));
    all.extend(["t", "t/c", "g", "g/u"].map(|name| store.join(name)));
    let mut refused = 0;
    for missing in &all {
        remove(missing);
        let name = missing.strip_prefix(&place.scratch.0).unwrap().display().to_string();
        let as_copied = found(&store, &place.model);
        match &as_copied {
            // In plain Zarr a lost shard looks like one that was never written.
            Ok(now) if !models.contains(now) => {
                assert!(name.contains("/c"), "{name} is not missed")
            }
            Ok(now) if *now != place.model => assert!(name.contains("roots/"), "{name}"),
            Ok(_) => {}
            Err(_) => refused += 1,
        }
        let attempted = attempts(&store);
        // Settling does not read objects that the remaining commits do not touch.
        if as_copied.is_err() && !name.contains("/c") {
            let settled = attempted.iter().find(|(what, _)| *what == "settle").unwrap();
            assert!(settled.1.is_err(), "without {name} it is settled");
        }
        for error in attempted.into_iter().filter_map(|(_, outcome)| outcome.err()) {
            let said = error.to_string();
            assert!(said.contains("run.zarr"), "without {name}: {said}");
            let is_of_data = matches!(
                error.kind(),
                ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Conflict
            );
            assert!(is_of_data, "without {name}: {:?}: {said}", error.kind());
        }
        put_back(&kept, &store);
    }
    assert!(refused >= 12, "only {refused} of {} are missed", all.len());
    place.check(&store);
}

#[test]
#[ignore = "a stage of make reliability"]
fn an_object_of_a_store_or_its_log_in_the_place_of_another_is_reported() {
    let (place, _) = half_settled();
    let (store, kept) = (place.store(), place.scratch.0.join("kept"));
    put_back(&store, &kept);
    let is_data = |path: &PathBuf| path.extension().is_none_or(|ending| ending != "txt");
    let mut files = tree(&place.log());
    files.extend(
        tree(&store).into_iter().filter(|(path, _)| path.display().to_string().contains("/c/")),
    );
    files.retain(|path, bytes| is_data(path) && !bytes.is_empty());
    let (mut swaps, mut reported) = (0_u64, 0);
    for (to, own) in &files {
        for (from, bytes) in files.iter().filter(|(_, bytes)| *bytes != own) {
            fs::write(to, bytes).unwrap();
            swaps += 1;
            match found(&store, &place.model) {
                Ok(now) => assert_eq!(now, place.model, "{} as {}", from.display(), to.display()),
                Err(_) => reported += 1,
            }
        }
        fs::write(to, own).unwrap();
    }
    // Roots before the newest, and objects that only they name, are no longer needed.
    assert!(reported * 3 > swaps * 2, "{reported} of {swaps}");
    count("swaps-of-log", swaps);
    place.check(&store);
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_store_and_a_log_of_two_times_are_one_of_both_or_an_error() {
    let place = Place::new("times");
    let store = place.store();
    let mut model = place.model.clone();
    let mut models = vec![model.clone()];
    let times = |at: usize| place.scratch.0.join(format!("time-{at}"));
    put_back(&store, &times(0));
    let operations = [
        session("t", &[1, 1], &[6, 4], 20),
        session("g/u", &[0], &[6], 21),
        Operation::Write { name: "t".into(), start: vec![0, 0], shape: vec![3, 3], seed: 22 },
        Operation::SettleUnder { name: "g/u".into(), start: vec![2], shape: vec![2], seed: 23 },
        session("t", &[5, 5], &[3, 2], 24),
        settle(Duration::ZERO),
        session("t", &[0, 3], &[9, 2], 25),
        Operation::Append { parts: vec![("t".into(), 0, 3)], seed: 26 },
        session("g/u", &[3], &[3], 27),
        settle(Duration::from_secs(3600)),
        session("t", &[4, 4], &[6, 3], 28),
    ];
    for (operation, at) in operations.iter().zip(1..) {
        model = run(&store, &model, std::slice::from_ref(operation));
        models.push(model.clone());
        put_back(&store, &times(at));
    }
    let mut refused = 0;
    for of_store in 0..models.len() {
        for of_log in (0..models.len()).filter(|at| *at != of_store) {
            let _ = fs::remove_dir_all(&store);
            let _ = fs::remove_dir_all(place.log());
            copy(&times(of_store), &store);
            copy(&log_of(&times(of_log)), &place.log());
            // Direct writes are in the store, commits in the log, so the result may be of a time in
            // between.
            let between = of_store.min(of_log)..=of_store.max(of_log);
            let possible = &models[between];
            let check = |when: &str| match found(&store, &model) {
                Ok(now) => {
                    let story = format!("store {of_store}, log {of_log}, {when}");
                    assert!(possible.contains(&now), "{story}: it was never so");
                    false
                }
                Err(_) => true,
            };
            if check("as it was put together") {
                refused += 1;
                continue;
            }
            let _ = open(&store).and_then(|store| store.settle());
            check("settled");
        }
    }
    assert!(refused > 30, "only {refused} were refused");
}

#[test]
#[ignore = "a stage of make reliability"]
fn every_path_to_a_store_finds_its_log() {
    let place = Place::with_commits("paths");
    let store = place.store();
    let links = place.scratch.0.join("links");
    fs::create_dir(&links).unwrap();
    std::os::unix::fs::symlink(&store, links.join("store")).unwrap();
    std::os::unix::fs::symlink(&place.scratch.0, links.join("above")).unwrap();
    let slashed = PathBuf::from(format!("{}/", store.display()));
    let winding = store.join("g/../../run.zarr/.");
    let mut from_here = PathBuf::new();
    for _ in std::env::current_dir().unwrap().ancestors().skip(1) {
        from_here.push("..");
    }
    let relative = from_here.join(store.strip_prefix("/").unwrap());
    let paths = [slashed, winding, relative, links.join("store"), links.join("above/run.zarr")];
    for other in &paths {
        place.check(other);
    }
    let mut model = place.model.clone();
    for (other, seed) in paths.iter().zip(30..) {
        model = run(other, &model, &[session("t", &[seed % 5, 1], &[2, 5], seed)]);
    }
    assert_eq!(found(&store, &model).as_ref(), Ok(&model));
    run(&links.join("store"), &model, &[settle(Duration::ZERO)]);
    assert_eq!(found(&store, &model), Ok(model));
    assert!(!place.log().exists() && fs::read_dir(&links).unwrap().count() == 2);
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_part_of_a_store_shows_no_old_data_and_is_not_written_to() {
    let place = Place::with_commits("part");
    let store = place.store();
    let name = store.display().to_string();
    for part in ["g", "g/u", "t"] {
        let outcome = Store::open_path(&store.join(part), options(false));
        let error = outcome.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let said = error.to_string();
        assert!(said.contains("not settled") && said.contains(&format!("open {name} ")), "{said}");
    }
    let place = place.then(&[settle(Duration::ZERO)]);
    let group = Store::open_path(&store.join("g"), options(false)).unwrap();
    let part = group.array(&path("u")).unwrap();
    assert_eq!(read(&part, &whole(&[6])).unwrap(), place.model["g/u"].values);
    let alone = Store::open_path(&store.join("g/u"), options(false)).unwrap();
    let alone = alone.array(&path("")).unwrap();
    assert_eq!(read(&alone, &whole(&[6])).unwrap(), place.model["g/u"].values);
    for part in ["g", "t"] {
        let error = open(&store.join(part)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("only the whole store can be written to"), "{error}");
    }
    // Handles that were opened earlier notice it, too.
    let place = place.then(&[session("g/u", &[1], &[2], 40)]);
    for array in [&part, &alone] {
        for outcome in [read(array, &whole(&[6])).map(drop), array.shape().map(drop)] {
            assert!(outcome.unwrap_err().to_string().contains("not settled"));
        }
    }
    let place = place.then(&[settle(Duration::ZERO)]);
    assert_eq!(read(&part, &whole(&[6])).unwrap(), place.model["g/u"].values);
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_store_that_is_moved_under_a_session_does_not_take_its_next_commit_elsewhere() {
    for with_log in [false, true] {
        let place = Place::with_commits("under");
        let (store, moved) = (place.store(), place.scratch.0.join("moved"));
        let opened = open(&store).unwrap();
        let mut session = start(&opened);
        put(&mut session, &[0, 0], 50).unwrap();
        session.commit().unwrap();
        fs::rename(&store, &moved).unwrap();
        if with_log {
            fs::rename(place.log(), log_of(&moved)).unwrap();
        }
        let outcome = put(&mut session, &[1, 1], 51).and_then(|()| session.commit().map(drop));
        let error = outcome.unwrap_err();
        drop((session, opened));
        let said = error.to_string();
        if with_log {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{said}");
            assert!(said.contains("was moved") && said.contains("start a new session"), "{said}");
            assert!(!place.log().exists(), "there is another log");
        } else {
            // The session must not use the log that it opened, because the store is no longer
            // beside it.
            assert!(said.contains("moved"), "{said}");
            fs::rename(place.log(), log_of(&moved)).unwrap();
        }
        let mut model = place.model.clone();
        let array = model.get_mut("t").unwrap();
        array.write(&[0, 0], &[2, 2], &values(50, 4));
        assert_eq!(found(&moved, &model).as_ref(), Ok(&model));
        let model = run(&moved, &model, &[settle(Duration::ZERO)]);
        assert_eq!(found(&moved, &model).as_ref(), Ok(&model));
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_log_that_is_deleted_under_a_session_is_not_begun_anew() {
    let place = Place::with_commits("deleted");
    let kept = place.scratch.0.join("kept");
    put_back(&place.store(), &kept);
    let opened = open(&place.store()).unwrap();
    let mut session = start(&opened);
    put(&mut session, &[0, 0], 60).unwrap();
    remove(&place.log());
    let error = session.commit().unwrap_err();
    assert!(error.to_string().contains(&place.log().display().to_string()), "{error}");
    place.check_refused(ErrorKind::Corrupt, &["put it back"]);
    drop((session, opened));
    put_back(&kept, &place.store());
    place.check(&place.store());
}

#[test]
#[ignore = "a stage of make reliability"]
fn what_is_no_directory_in_the_place_of_the_log_is_refused_by_name() {
    let place = Place::new("occupied");
    let log = place.log();
    let elsewhere = place.scratch.0.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let make: [&dyn Fn(); 3] = [
        &|| fs::write(&log, "a file").unwrap(),
        &|| std::os::unix::fs::symlink(&elsewhere, &log).unwrap(),
        &|| std::os::unix::fs::symlink(place.scratch.0.join("nowhere"), &log).unwrap(),
    ];
    for make in make {
        make();
        let outcome =
            session("t", &[0, 0], &[2, 2], 70).run(&open(&place.store()).unwrap(), &place.model);
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains(&log.display().to_string()), "{error}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_file(&log).unwrap();
        place.check(&place.store());
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_store_whose_document_another_program_has_rewritten_keeps_its_commits() {
    for keep_consolidated in [false, true] {
        let place = Place::with_commits("rewritten");
        let store = place.store();
        let reader = Store::open_path(&store, options(false)).unwrap();
        rewrite_root(&store, keep_consolidated);
        place.check(&store);
        assert_eq!(observe_store(&reader, &place.model).as_ref(), Ok(&place.model));
        let place = place.then(&[session("t", &[0, 2], &[5, 5], 80)]);
        place.check(&store);
        rewrite_root(&store, keep_consolidated);
        let place = place.then(&[settle(Duration::ZERO)]);
        place.check(&store);
        assert!(!place.log().exists());
        let attributes = open(&store).unwrap().group_attributes(&path("")).unwrap();
        assert_eq!(attributes["by"], "another");
        // Now only the stamps tell which commit numbers are used.
        rewrite_root(&store, keep_consolidated);
        place.check(&store);
        let place = place.then(&[
            session("t", &[0, 0], &[9, 6], 81),
            Operation::Write { name: "t".into(), start: vec![1, 1], shape: vec![2, 2], seed: 82 },
            session("t", &[2, 2], &[3, 3], 83),
        ]);
        place.check(&store);
        let place = place.then(&[settle(Duration::ZERO)]);
        place.check(&store);
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn an_array_that_another_program_has_put_in_place_of_one_with_commits_is_said() {
    let place = Place::with_commits("replaced");
    let (store, kept) = (place.store(), place.scratch.0.join("kept"));
    put_back(&store, &kept);
    let removed: &dyn Fn() = &|| fs::remove_dir_all(store.join("t")).unwrap();
    let replaced: &dyn Fn() = &|| {
        edit(&store.join("t/zarr.json"), |document| {
            document.remove("bedform");
        })
    };
    let renamed: &dyn Fn() = &|| fs::rename(store.join("t"), store.join("s")).unwrap();
    for (change, is_there) in [(removed, false), (replaced, true), (renamed, false)] {
        change();
        for (name, outcome) in attempts(&store) {
            if matches!(name, "gc" | "recover") {
                continue;
            }
            let error = outcome.expect_err(name);
            if is_there || name == "settle" {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{name}: {error}");
                assert!(error.to_string().contains("another program has"), "{name}: {error}");
                assert!(error.to_string().contains("/t"), "{name}: {error}");
            } else {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{name}: {error}");
            }
        }
        let opened = open(&store).unwrap();
        assert!(opened.array(&path("s")).is_err());
        let other = opened.array(&path("g/u")).unwrap();
        assert_eq!(read(&other, &whole(&[6])).unwrap(), place.model["g/u"].values);
        // The user deletes that array; the others are settled.
        opened.delete(&path("t")).unwrap();
        let mut rest = place.model.clone();
        rest.remove("t");
        let rest = run(&store, &rest, &[settle(Duration::ZERO)]);
        assert_eq!(found(&store, &rest).as_ref(), Ok(&rest));
        let _ = fs::remove_dir_all(store.join("s"));
        put_back(&kept, &store);
        place.check(&store);
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn an_array_that_came_from_another_store_is_read_and_takes_direct_writes() {
    let place = Place::with_commits("came").then(&[settle(Duration::ZERO)]);
    let other = Place::new("went");
    copy(&place.store().join("t"), &other.store().join("s"));
    let opened = open(&other.store()).unwrap();
    let array = opened.array(&path("s")).unwrap();
    assert_eq!(read(&array, &whole(&[10, 7])).unwrap(), place.model["t"].values);
    let outcome = session("s", &[0, 0], &[2, 2], 95).run(&opened, &other.model);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("came here from another store"), "{error}");
    // Commits of the store do not touch it, whatever its stamps contain.
    for operation in [session("t", &[0, 0], &[2, 2], 96), settle(Duration::ZERO)] {
        operation.run(&opened, &other.model).unwrap();
        let mut expected = place.model["t"].clone();
        expected.write(&[1, 1], &[2, 2], &values(97, 4));
        let new = bytes(&values(97, 4));
        let part = crate::model::region(&[1, 1], &[2, 2]);
        array.write(&part, Elements::Bytes(&new)).unwrap();
        assert_eq!(read(&array, &whole(&[10, 7])).unwrap(), expected.values);
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn readers_that_stay_read_what_they_know_while_others_settle_and_collect() {
    for grace in [Duration::ZERO, Duration::from_secs(3600)] {
        let place = Place::with_commits("readers");
        let store = place.store();
        let mut pinned = options(false);
        pinned.freshness = Freshness::Open;
        pinned.cache_bytes = 0;
        let reader = Store::open_path(&store, pinned).unwrap();
        let fresh = Store::open_path(&store, options(false)).unwrap();
        let before = place.model.clone();
        assert_eq!(observe_store(&reader, &before).as_ref(), Ok(&before));
        let place = place.then(&[session("t", &[3, 3], &[4, 4], 98)]);
        let place = place.then(&[settle(grace)]);
        assert_eq!(observe_store(&fresh, &place.model).as_ref(), Ok(&place.model));
        // The reader stays at its moment, or reports that the data have moved on.
        let check_stays = || match observe_store(&reader, &before) {
            Ok(now) => assert_eq!(now, before),
            Err(said) => assert!(said.contains("open"), "{said}"),
        };
        check_stays();
        let collect = CollectOptions::default();
        open(&store).unwrap().collect_log(&collect).unwrap();
        let place = place.then(&[session("t", &[0, 0], &[3, 3], 99), settle(Duration::ZERO)]);
        assert!(!place.log().exists());
        assert_eq!(observe_store(&fresh, &place.model).as_ref(), Ok(&place.model));
        check_stays();
    }
}

/// A store with a promise only in its burst tier: its writer was killed.
fn with_promise(name: &str) -> (Place, Burst) {
    let place = Place::with_commits(name);
    let mut burst = Burst::in_directory(&place.scratch.0.join("fast"), None).unwrap();
    burst.in_background = false;
    let mut options = SessionOptions::default();
    (options.burst, options.reach) = (Some(burst.clone()), CommitReach::Node);
    let store = open(&place.store()).unwrap();
    let mut session = store.session(Box::new(Alone), options).unwrap();
    put(&mut session, &[0, 0], 9).unwrap();
    session.commit().unwrap();
    let tier = place.scratch.0.join("kept");
    copy(&place.scratch.0.join("fast"), &tier);
    // The end of the session fulfils the promise, so the files are restored afterwards.
    let as_it_was = place.scratch.0.join("as it was");
    put_back(&place.store(), &as_it_was.join("run.zarr"));
    drop(session);
    put_back(&as_it_was.join("run.zarr"), &place.store());
    remove(&as_it_was);
    (place, Burst::in_directory(&tier, None).unwrap())
}

fn recovered(store: &Path, tier: &Burst) -> bedform::Result<u64> {
    let done = open(store)?.recover(Some(tier), LeftoverPolicy::Keep)?;
    Ok(done.completed)
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_copy_does_not_take_what_the_burst_tier_promised_to_the_original() {
    let (place, tier) = with_promise("copied-promise");
    let other = place.scratch.0.join("copy.zarr");
    copy(&place.store(), &other);
    copy(&place.log(), &log_of(&other));
    let error = recovered(&other, &tier).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("run.zarr"), "{error}");
    place.check(&other);
    assert_eq!(recovered(&place.store(), &tier).unwrap(), 1);
    assert_ne!(found(&place.store(), &place.model).unwrap(), place.model);
    assert_eq!(recovered(&other, &tier).unwrap(), 0);
    place.check(&other);
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_store_that_was_moved_takes_what_the_burst_tier_promised_to_it() {
    let (place, tier) = with_promise("moved-promise");
    let other = place.scratch.0.join("elsewhere.zarr");
    fs::rename(place.store(), &other).unwrap();
    fs::rename(place.log(), log_of(&other)).unwrap();
    assert_eq!(recovered(&other, &tier).unwrap(), 1);
    assert_ne!(found(&other, &place.model).unwrap(), place.model);
}
