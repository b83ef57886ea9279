//! Comparison of the cache with a slow model that is obviously correct.

use proptest::prelude::*;

use super::*;

/// The place of a handle: that of handles 0 and 1, or none.
const PLACES: [Option<&str>; 3] = [Some("disk"), Some("disk"), None];
const KINDS: [EntryKind; 3] = [EntryKind::Index, EntryKind::Chunk, EntryKind::Chunk];

/// The model: one list of entries, searched linearly.
struct Model {
    budget: u64,
    caps: [u64; 3],
    /// In the order in which they were added to their segments.
    entries: Vec<Entry>,
    /// Evicted keys, and whether they are still remembered.
    ghosts: Vec<(Name, bool)>,
}

/// The only handle that may see the entry, or `None` if all may; its kind; its number.
type Name = (Option<usize>, EntryKind, u64);

#[derive(Clone)]
struct Entry {
    name: Name,
    handle: usize,
    bytes: u64,
    value: u64,
    is_main: bool,
    hits: u8,
}

impl Model {
    fn get(&mut self, name: Name) -> Option<u64> {
        let entry = self.entries.iter_mut().find(|entry| entry.name == name)?;
        entry.hits = 3.min(entry.hits + 1);
        Some(entry.value)
    }

    fn bytes(&self, matches: impl Fn(&Entry) -> bool) -> u64 {
        self.entries.iter().filter(|entry| matches(entry)).map(|entry| entry.bytes).sum()
    }

    fn put(&mut self, handle: usize, name: Name, bytes: u64, value: u64) {
        let cap = self.caps[handle];
        let is_kept = self.entries.iter().any(|entry| entry.name == name);
        if is_kept || bytes > cap.min(self.budget) {
            return;
        }
        self.make_room(cap, name.1, bytes, |entry| entry.handle == handle);
        self.make_room(self.budget, name.1, bytes, |_| true);
        let ghost = self.ghosts.iter_mut().find(|ghost| **ghost == (name, true));
        let is_main = ghost.map(|ghost| ghost.1 = false).is_some();
        self.entries.push(Entry { name, handle, bytes, value, is_main, hits: 0 });
    }

    fn make_room(
        &mut self,
        limit: u64,
        kind: EntryKind,
        bytes: u64,
        is_in: impl Fn(&Entry) -> bool,
    ) {
        while self.bytes(&is_in) + bytes > limit {
            let is_index = |entry: &Entry| entry.name.1 == EntryKind::Index;
            let more = if kind == EntryKind::Index { bytes } else { 0 };
            let of_index = self.bytes(|entry| is_in(entry) && is_index(entry)) + more > limit / 8;
            let has = |index| self.entries.iter().any(|one| is_in(one) && is_index(one) == index);
            let index = if has(of_index) { of_index } else { !of_index };
            let in_class = |entry: &Entry| is_in(entry) && is_index(entry) == index;
            let small = self.bytes(|entry| in_class(entry) && !entry.is_main);
            let from_main = small <= self.bytes(in_class) / 10;
            let of_segment = |entry: &Entry| in_class(entry) && entry.is_main == from_main;
            let at = self.entries.iter().position(of_segment).unwrap();
            let mut entry = self.entries.remove(at);
            if entry.hits > 0 {
                entry.hits = if entry.is_main { entry.hits - 1 } else { 0 };
                entry.is_main = true;
                self.entries.push(entry);
            } else if !entry.is_main {
                self.ghosts
                    .iter_mut()
                    .filter(|ghost| ghost.0 == entry.name)
                    .for_each(|ghost| ghost.1 = false);
                self.ghosts.push((entry.name, true));
                while self.ghosts.len() > self.entries.len().max(64) {
                    self.ghosts.remove(0);
                }
            }
        }
    }

    fn evict_own(&mut self, handle: usize) {
        self.entries.retain(|entry| entry.name.0 != Some(handle));
    }
}

#[derive(Debug, Clone)]
enum Action {
    Read { handle: usize, kind: EntryKind, number: u64, is_own: bool, bytes: u64 },
    SetBudget(u64),
    EvictOwn(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let number = prop_oneof![3 => 0..12_u64, 2 => 0..200_u64];
    let read = (0..3_usize, 0..3_usize, number, prop::bool::weighted(0.2), 0..2000_u64).prop_map(
        |(handle, kind, number, is_own, bytes)| Action::Read {
            handle,
            kind: KINDS[kind],
            number,
            is_own,
            bytes,
        },
    );
    let action = prop_oneof![
        60 => read,
        1 => (0..40_000_u64).prop_map(Action::SetBudget),
        1 => (0..3_usize).prop_map(Action::EvictOwn),
    ];
    prop::collection::vec(action, 1..400)
}

proptest! {
    #[test]
    fn the_cache_keeps_what_the_model_keeps(
        actions in actions(),
        caps in prop::array::uniform3(0..40_000_u64),
    ) {
        let cache = cache_of(0);
        cache.set_budget(30_000);
        let members = [0, 1, 2].map(|at| Member::new(&cache, caps[at], PLACES[at]));
        let (entries, ghosts) = (Vec::new(), Vec::new());
        let mut model = Model { budget: 30_000, caps, entries, ghosts };
        for (value, action) in (0..).zip(actions) {
            match action {
                Action::Read { handle, kind, number, is_own, bytes } if caps[handle] > 0 => {
                    let own = is_own || PLACES[handle].is_none();
                    let name = (own.then_some(handle), kind, number);
                    let Member { handle: one, scope } = &members[handle];
                    let version = if is_own { Version::default() } else { version(1) };
                    let key = one.key(kind, scope, ObjectKey::Name(format!("{number}").into()), &version, 0);
                    let found = one.get::<Arc<u64>>(&key).map(|found| *found);
                    // In the handle without a place, reads with and without a version have
                    // different keys.
                    let name = (name.0, name.1, name.2 * 2 + u64::from(is_own));
                    prop_assert_eq!(found, model.get(name));
                    one.put(key, bytes, || Arc::new(value));
                    model.put(handle, name, bytes + ENTRY_BYTES, value);
                }
                Action::Read { .. } => {}
                Action::SetBudget(bytes) => {
                    cache.set_budget(bytes);
                    model.budget = bytes;
                    model.make_room(bytes, EntryKind::Chunk, 0, |_| true);
                }
                Action::EvictOwn(handle) => {
                    members[handle].handle.forget_own();
                    model.evict_own(handle);
                }
            }
            cache.policy().check(u64::MAX);
            let statistics = cache.statistics();
            prop_assert_eq!(statistics.bytes, model.bytes(|_| true));
            prop_assert!(statistics.bytes <= model.budget);
            for kind in KINDS {
                let entries = model.entries.iter().filter(|entry| entry.name.1 == kind).count();
                prop_assert_eq!(statistics.kinds[kind as usize].entries, entries as u64);
            }
        }
        drop(members);
        prop_assert_eq!(cache.statistics().bytes, model.bytes(|entry| entry.name.0.is_none()));
    }
}
