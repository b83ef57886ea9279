//! Tests of the cache's promises, one each.

mod fork;
mod model;
mod threads;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bedform_storage::Version;

use super::key::is_too_young;
use super::*;

/// A version that identifies an object.
fn version(number: u64) -> Version {
    Version { size: 1, modified_ns: 1, changed_ns: 1, identity: (1, number) }
}

/// A separate cache with a budget of `entries` entries of `BODY` bytes.
fn cache_of(entries: u64) -> Arc<Cache> {
    let cache = Arc::new(Cache::default());
    cache.set_budget(entries * ENTRY);
    cache
}

/// Bytes of a value in these tests.
const BODY: u64 = 1000;
/// Bytes of an entry in these tests.
const ENTRY: u64 = BODY + ENTRY_BYTES;

/// A handle, and the scope of one array in its place.
struct Member {
    handle: CacheHandle,
    scope: Arc<Scope>,
}

impl Member {
    fn new(cache: &Arc<Cache>, cap: u64, place: Option<&str>) -> Self {
        let handle = CacheHandle::in_cache(Some(cache.clone()), cap, place.map(PlaceId::new));
        let scope = handle.scope("array", 7);
        Self { handle, scope }
    }

    fn key(&self, kind: EntryKind, number: u64) -> CacheKey {
        self.handle.key(kind, &self.scope, ObjectKey::at(&[]), &version(1), number)
    }

    fn put_kind(&self, kind: EntryKind, number: u64) {
        self.handle.put(self.key(kind, number), BODY, || Arc::new(number));
    }

    fn get_kind(&self, kind: EntryKind, number: u64) -> bool {
        let found = self.handle.get::<Arc<u64>>(&self.key(kind, number));
        assert!(found.as_ref().is_none_or(|value| **value == number));
        found.is_some()
    }

    fn put(&self, number: u64) {
        self.put_kind(EntryKind::Chunk, number);
    }

    fn get(&self, number: u64) -> bool {
        self.get_kind(EntryKind::Chunk, number)
    }

    /// Reads one chunk as the engine does.
    fn read(&self, number: u64) -> bool {
        let is_hit = self.get(number);
        if !is_hit {
            self.put(number);
        }
        is_hit
    }

    /// How many of these entries are kept, without counting lookups.
    fn kept(&self, kind: EntryKind, numbers: impl Iterator<Item = u64>) -> usize {
        let is_kept = |number: &u64| {
            let key = self.key(kind, *number);
            self.handle.cache().table.shard(&key).contains(&key)
        };
        numbers.filter(is_kept).count()
    }
}

#[test]
fn a_handle_finds_what_another_one_of_the_place_has_kept() {
    let cache = cache_of(10);
    let [first, second] = [(); 2].map(|()| Member::new(&cache, u64::MAX, Some("disk")));
    let elsewhere = Member::new(&cache, u64::MAX, Some("other disk"));
    first.put(1);
    assert!(second.get(1) && !elsewhere.get(1));
    drop(first);
    assert!(second.get(1) && Member::new(&cache, 1, Some("disk")).get(1));
}

#[test]
fn keys_differ_in_kind_path_decoding_object_version_and_position() {
    let cache = cache_of(20);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    let handle = &member.handle;
    let places = [member.scope.clone(), handle.scope("array", 8), handle.scope("another", 7)];
    let whole = || ObjectKey::at(&[]);
    let [array, decoding, path] = &places;
    let coordinates = |at: u64| ObjectKey::at(&[at, 0]);
    let keys = [
        handle.key(EntryKind::Chunk, array, whole(), &version(1), 1),
        handle.key(EntryKind::Block, array, whole(), &version(1), 1),
        handle.key(EntryKind::Chunk, decoding, whole(), &version(1), 1),
        handle.key(EntryKind::Chunk, path, whole(), &version(1), 1),
        handle.key(EntryKind::Chunk, array, coordinates(1), &version(1), 1),
        handle.key(EntryKind::Chunk, array, coordinates(2), &version(1), 1),
        handle.key(EntryKind::Chunk, array, ObjectKey::at(&[1]), &version(1), 1),
        handle.key(EntryKind::Chunk, array, ObjectKey::at(&[1, 0, 0, 0, 0]), &version(1), 1),
        handle.key(EntryKind::Chunk, array, ObjectKey::at(&[1, 0, 0, 0, 1]), &version(1), 1),
        handle.key(EntryKind::Chunk, array, ObjectKey::Name("1".into()), &version(1), 1),
        handle.key(EntryKind::Chunk, array, whole(), &version(2), 1),
        handle.key(EntryKind::Chunk, array, whole(), &version(1), 2),
        handle.key_of_immutable(EntryKind::Chunk, array, whole(), 1),
        handle.own_key(EntryKind::Chunk, array, whole(), 0),
        handle.own_key(EntryKind::Chunk, array, whole(), 1),
    ];
    for (number, key) in keys.iter().enumerate() {
        assert!(handle.get::<Arc<u64>>(key).is_none(), "{key:?}");
        handle.put(key.clone(), 0, || Arc::new(number as u64));
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(handle.get::<Arc<u64>>(key).as_deref(), Some(&(number as u64)));
    }
    let again =
        handle.key(EntryKind::Chunk, &handle.scope("array", 7), coordinates(2), &version(1), 1);
    assert_eq!(handle.get::<Arc<u64>>(&again).as_deref(), Some(&5));
}

#[test]
fn an_object_that_cannot_be_told_from_others_is_found_by_its_own_handle_alone() {
    let cache = cache_of(10);
    let [first, second] = [(); 2].map(|()| Member::new(&cache, u64::MAX, Some("disk")));
    let nowhere = Member::new(&cache, u64::MAX, None);
    let in_seconds = Version { size: 9, modified_ns: 1_000_000_000, ..Version::default() };
    for version in [Version::default(), in_seconds] {
        let key = |member: &Member| {
            member.handle.key(EntryKind::Chunk, &member.scope, ObjectKey::at(&[]), &version, 1)
        };
        first.handle.put(key(&first), BODY, || Arc::new(3_u64));
        assert!(first.handle.get::<Arc<u64>>(&key(&first)).is_some());
        assert!(second.handle.get::<Arc<u64>>(&key(&second)).is_none());
    }
    nowhere.put(1);
    assert!(nowhere.get(1) && !Member::new(&cache, u64::MAX, None).get(1));
    first.put(1);
    assert_eq!(cache.statistics().bytes, 4 * ENTRY);
    drop((first, nowhere));
    assert_eq!(cache.statistics().bytes, ENTRY, "what no handle can find is gone");
    assert!(second.get(1));
}

#[test]
fn an_object_is_kept_only_if_it_was_not_changed_just_now() {
    let cache = cache_of(10);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let now = i64::try_from(now).unwrap();
    // The later object is too young, however long the machine pauses meanwhile; the test of
    // `was_too_young` covers the moments in between.
    let hour = 3600 * 1_000_000_000;
    for (changed_ns, is_kept) in [(now - hour, true), (now + hour, false)] {
        let version = Version { changed_ns, ..version(1) };
        let place = ObjectKey::at(&[]);
        let key = member.handle.key(EntryKind::Chunk, &member.scope, place, &version, 0);
        member.handle.put(key.clone(), BODY, || Arc::new(1_u64));
        assert_eq!(member.handle.get::<Arc<u64>>(&key).is_some(), is_kept);
    }
}

#[test]
fn a_handle_forgets_its_own_and_keeps_what_it_shares() {
    let cache = cache_of(10);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    let own = member.handle.own_key(EntryKind::Index, &member.scope, ObjectKey::at(&[]), 0);
    member.handle.put(own.clone(), BODY, || Arc::new(1_u64));
    member.put(2);
    assert!(member.handle.get::<Arc<u64>>(&own).is_some());
    member.handle.forget_own();
    assert!(member.handle.get::<Arc<u64>>(&own).is_none() && member.get(2));
}

#[test]
fn a_cap_of_zero_neither_reads_nor_writes() {
    let cache = cache_of(10);
    let (bypass, other) =
        (Member::new(&cache, 0, Some("disk")), Member::new(&cache, 1 << 20, Some("disk")));
    bypass.put(1);
    other.put(2);
    assert!(!other.get(1) && !bypass.get(2));
    assert_eq!((bypass.handle.limit(), other.handle.limit()), (0, 10 * ENTRY));
}

#[test]
fn beyond_its_cap_a_handle_evicts_its_own_oldest() {
    let cache = cache_of(10);
    let (small, large) =
        (Member::new(&cache, 3 * ENTRY, Some("disk")), Member::new(&cache, u64::MAX, Some("disk")));
    large.put(100);
    for number in 0..5 {
        small.put(number);
    }
    assert_eq!(small.kept(EntryKind::Chunk, 0..2), 0);
    assert_eq!(small.kept(EntryKind::Chunk, 2..5), 3);
    assert!(large.get(100));
    let too_large = small.key(EntryKind::Chunk, 9);
    small.handle.put(too_large, 3 * ENTRY, || -> Arc<u64> { unreachable!("there is no room") });
    assert_eq!(small.kept(EntryKind::Chunk, 2..5), 3);
}

#[test]
fn the_budget_is_the_largest_cap_unless_one_is_set() {
    let cache = Arc::new(Cache::default());
    let (small, large) =
        (Member::new(&cache, 2 * ENTRY, None), Member::new(&cache, 5 * ENTRY, None));
    for number in 0..9 {
        small.put(number);
        large.put(number);
    }
    assert_eq!((cache.statistics().budget, cache.statistics().bytes), (5 * ENTRY, 5 * ENTRY));
    cache.set_budget(3 * ENTRY);
    assert_eq!((cache.statistics().budget, cache.statistics().bytes), (3 * ENTRY, 3 * ENTRY));
    cache.set_budget(0);
    assert_eq!(cache.statistics().bytes, 0);
    large.put(1);
    assert!(!large.get(1));
}

#[test]
fn data_evict_no_index_below_an_eighth_of_the_budget() {
    let cache = cache_of(80);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    for number in 0..5 {
        member.put_kind(EntryKind::Index, number);
        member.put_kind(EntryKind::Directory, number);
    }
    for number in 0..1000 {
        member.read(number);
    }
    assert_eq!(member.kept(EntryKind::Index, 0..5) + member.kept(EntryKind::Directory, 0..5), 10);
    assert_eq!(cache.statistics().bytes, 80 * ENTRY);
}

#[test]
fn indexes_take_more_than_their_floor_while_there_is_room() {
    let cache = cache_of(80);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    for number in 0..80 {
        member.put_kind(EntryKind::Index, number);
    }
    assert_eq!(member.kept(EntryKind::Index, 0..80), 80);
    // They give way to data that need the room.
    for number in 0..70 {
        member.put(number);
    }
    assert_eq!(
        (member.kept(EntryKind::Chunk, 0..70), member.kept(EntryKind::Index, 0..80)),
        (70, 10)
    );
}

#[test]
fn a_scan_evicts_nothing_that_was_read_twice() {
    let cache = cache_of(100);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    for _ in 0..2 {
        for number in 0..60 {
            member.read(number);
        }
    }
    for number in 1000..3000 {
        member.read(number);
    }
    assert_eq!(member.kept(EntryKind::Chunk, 0..60), 60);
}

#[test]
fn a_scan_within_a_cap_evicts_nothing_that_was_read_twice() {
    let cache = cache_of(1000);
    let member = Member::new(&cache, 100 * ENTRY, Some("disk"));
    for _ in 0..2 {
        for number in 0..60 {
            member.read(number);
        }
    }
    for number in 1000..3000 {
        member.read(number);
    }
    assert_eq!(member.kept(EntryKind::Chunk, 0..60), 60);
}

#[test]
fn a_new_working_set_replaces_an_old_one_that_nobody_reads_any_more() {
    let cache = cache_of(100);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    for _ in 0..5 {
        for number in 0..90 {
            member.read(number);
        }
    }
    let mut hits = 0;
    for _ in 0..8 {
        hits = (1000..1080).filter(|number| member.read(*number)).count();
    }
    assert!(hits > 70, "{hits} of 80 are hits in the last round");
}

#[test]
fn a_value_is_not_made_if_there_is_one() {
    let cache = cache_of(10);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    member.put(1);
    member
        .handle
        .put(member.key(EntryKind::Chunk, 1), BODY, || -> Arc<u64> { unreachable!("kept") });
    let bytes: Option<Arc<[u8]>> = member.handle.get(&member.key(EntryKind::Chunk, 1));
    assert!(bytes.is_none(), "another type is no hit");
}

#[test]
fn room_is_given_back_if_a_value_cannot_be_made() {
    let cache = cache_of(2);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    let make = || {
        member.handle.put(member.key(EntryKind::Chunk, 1), BODY, || -> Arc<u64> { panic!("no") })
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(make)).is_err());
    assert_eq!(cache.statistics().bytes, 0);
    member.put(1);
    member.put(2);
    assert!(member.get(1) && member.get(2));
}

#[test]
fn statistics_count_by_kind() {
    let cache = cache_of(10);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    member.put(1);
    member.put_kind(EntryKind::Index, 1);
    member.put_kind(EntryKind::Index, 2);
    assert!(member.get(1) && !member.get(2) && member.get_kind(EntryKind::Index, 2));
    let statistics = cache.statistics();
    let of = |kind: EntryKind| statistics.kinds[kind as usize].clone();
    let expected = |kind: EntryKind, entries, hits, misses| KindStatistics {
        kind: kind.name(),
        entries,
        bytes: entries * ENTRY,
        hits,
        misses,
    };
    assert_eq!(of(EntryKind::Chunk), expected(EntryKind::Chunk, 1, 1, 1));
    assert_eq!(of(EntryKind::Index), expected(EntryKind::Index, 2, 1, 0));
    assert_eq!((statistics.bytes, statistics.bytes_peak), (3 * ENTRY, 3 * ENTRY));
}

#[test]
fn an_object_that_was_young_when_it_was_looked_at_may_be_another_since_however_long_ago_that_is() {
    let changed_ns = 1_000_000_000_001;
    let version = Version { changed_ns, ..version(1) };
    let after = |ms| {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_000_000_001) + Duration::from_millis(ms)
    };
    assert!(was_too_young(&version, after(5)));
    assert!(!was_too_young(&version, after(25)));
    assert!(!is_too_young(&version));
}

#[test]
fn an_object_of_a_file_system_that_counts_seconds_is_young_for_three() {
    let second = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let changed = |changed_ns| Version { changed_ns, ..version(1) };
    let (coarse, fine) = (changed(1_000_000_000_000), changed(1_000_500_000_000));
    for (at, is_coarse_young) in [(1000, true), (1001, true), (1002, true), (1004, false)] {
        assert_eq!(was_too_young(&coarse, second(at)), is_coarse_young, "{at}");
        assert_eq!(was_too_young(&fine, second(at)), at == 1000, "{at}");
    }
    assert!(clock_step(coarse.changed_ns) > Duration::from_secs(2));
    assert!(clock_step(fine.changed_ns) < Duration::from_millis(100));
}
