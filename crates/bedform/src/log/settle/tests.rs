//! Tests of settling with a simple sink. Its units are objects beside the store, and a journal says
//! which commits each of them contains.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bedform_codec::Scratch;
use bedform_format::metadata::FillValue;
use bedform_format::shard::Extent;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{AxisRange, AxisSelection, Order, Selection};
use bedform_storage::{Condition, Durability, MemoryStorage, Storage};
use proptest::prelude::*;

use super::SettleOptions;
use super::ahead::WindowPool;
use super::plan::{SettlePlan, plan};
use super::round::Rounds;
use super::write::SettleCounters;
use crate::comm::{Alone, MemberGroup, threads_on_nodes};
use crate::error::Result;
use crate::log::session::SessionOptions;
use crate::log::snapshot::PinnedArray;
use crate::options::OpenOptions;
use crate::source::{ChunkLocations, LocateChunk, Location, Moment, StoredLayout};
use crate::store::Store;
use crate::write::elements::{ChunkElements, WriteInput};
use crate::write::sink::{BuiltUnit, Sink, StagedUnit, StoredUnit, WriteResources};
use crate::zarr::new_array::{ArrayLayout, NewArray};

const LENGTH: u64 = 37;
const CHUNK: u64 = 4;
const UNIT: u64 = 8;
const FILL: u8 = 9;

/// A sink whose units are objects. The journal has the extents of their chunks and their last
/// commits.
struct Files<'a> {
    storage: &'a MemoryStorage,
    journal: Mutex<HashMap<u64, (u64, Arc<Table>)>>,
    pinned: &'a PinnedArray<'a>,
    layout: &'a StoredLayout,
    /// The number of the root whose commits are settled.
    commit: u64,
    published: Mutex<Vec<&'static str>>,
}

#[derive(Debug)]
struct Table(Vec<Option<Location>>);

impl LocateChunk for Table {
    fn locate(&self, position: u64) -> Option<Location> {
        self.0[usize::try_from(position).unwrap()].clone()
    }
}

fn unit(coordinates: &[u64]) -> ObjectPath {
    ObjectPath::parse(&format!("unit-{}", coordinates[0])).unwrap()
}

impl Files<'_> {
    /// Publishes a unit. Each position has the chunk that `make` returns, else the stored one.
    fn publish(
        &self,
        coordinates: &[u64],
        stored: Option<&StoredUnit>,
        mut make: impl FnMut(u64) -> Result<Option<Vec<u8>>>,
    ) -> Result<u64> {
        let (mut bytes, mut table) = (Vec::new(), Vec::new());
        for position in 0..UNIT / CHUNK {
            let kept = stored.and_then(|stored| stored.locations.locate(position).unwrap());
            let encoded = match (make(position)?, kept) {
                (Some(made), _) => Some(made),
                (None, Some(place)) => Some(read(stored.unwrap(), &place)?),
                (None, None) => None,
            };
            table.push(encoded.map(|encoded| {
                let extent = Extent { offset: bytes.len() as u64, length: encoded.len() as u64 };
                bytes.extend(encoded);
                Location::of(extent)
            }));
        }
        self.storage.put(&unit(coordinates), &bytes, Durability::Process, Condition::None)?;
        let entry = (self.commit, Arc::new(Table(table)));
        self.journal.lock().unwrap().insert(coordinates[0], entry);
        Ok(bytes.len() as u64)
    }

    fn encoded(&self, mut elements: ChunkElements) -> Result<Vec<u8>> {
        let (mut scratch, mut encoded) = (Scratch::default(), Vec::new());
        elements.encode(self.layout, &WriteInput::Bytes(&[]), &mut scratch, &mut encoded)?;
        Ok(encoded)
    }

    /// Returns all elements of the units.
    fn elements(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for number in 0..LENGTH.div_ceil(UNIT) {
            let stored = self.open_unit(&[number]).unwrap();
            for position in 0..UNIT / CHUNK {
                let place =
                    stored.as_ref().and_then(|unit| unit.locations.locate(position).unwrap());
                let mut chunk = ChunkElements::default();
                match place {
                    None => chunk.clear(self.layout),
                    Some(place) => {
                        let encoded = read(stored.as_ref().unwrap(), &place).unwrap();
                        let scratch = &mut Scratch::default();
                        chunk
                            .load(self.layout, &encoded, scratch, &WriteInput::Bytes(&[]))
                            .unwrap();
                    }
                }
                all.extend_from_slice(chunk.bytes_mut());
            }
        }
        all.truncate(usize::try_from(LENGTH).unwrap());
        all
    }
}

fn read(stored: &StoredUnit, place: &Location) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(place.extent.length).unwrap()];
    stored.object.read(place.extent.offset, &mut bytes)?;
    Ok(bytes)
}

/// A unit that is encoded and stored when it is published.
struct StagedFile<'a> {
    files: &'a Files<'a>,
    number: u64,
    built: &'a BuiltUnit,
}

impl StagedUnit for StagedFile<'_> {
    fn hand_over(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(self: Box<Self>) -> Result<u64> {
        self.files.published.lock().unwrap().push("built");
        self.files.publish(&[self.number], self.built.stored.as_ref(), |position| {
            let chunk = self.built.chunks.lock().unwrap().remove(&position);
            chunk.map(|chunk| self.files.encoded(chunk.elements)).transpose()
        })
    }
}

impl Sink for Files<'_> {
    fn unit_name(&self, coordinates: &[u64]) -> String {
        unit(coordinates).to_string()
    }

    fn open_unit(&self, coordinates: &[u64]) -> Result<Option<StoredUnit>> {
        let found = self.journal.lock().unwrap().get(&coordinates[0]).cloned();
        let Some((contained, table)) = found else { return Ok(None) };
        let object = Arc::from(self.storage.open(&unit(coordinates))?);
        let locations = ChunkLocations::Table(table);
        Ok(Some(StoredUnit { object, locations, contained, is_ours: true }))
    }

    fn stage_built<'s>(
        &'s self,
        coordinates: &[u64],
        _: Option<&'s [u64]>,
        built: &'s BuiltUnit,
        _: WriteResources,
    ) -> Result<Box<dyn StagedUnit + 's>> {
        Ok(Box::new(StagedFile { files: self, number: coordinates[0], built }))
    }

    fn is_covered(&self, coordinates: &[u64]) -> Result<bool> {
        let contained = self.open_unit(coordinates)?.map_or(0, |stored| stored.contained);
        let name = || self.unit_name(coordinates);
        Ok(self.pinned.moment.cover(coordinates, contained, &name)?.is_some())
    }

    fn publish_covered(&self, coordinates: &[u64], _: WriteResources) -> Result<u64> {
        self.published.lock().unwrap().push("covered");
        let stored = self.open_unit(coordinates)?;
        let contained = stored.as_ref().map_or(0, |stored| stored.contained);
        let name = || self.unit_name(coordinates);
        let Some(cover) = self.pinned.moment.cover(coordinates, contained, &name)? else {
            return Ok(0);
        };
        self.publish(coordinates, stored.as_ref(), |position| {
            let chunk = coordinates[0] * (UNIT / CHUNK) + position;
            if chunk >= LENGTH.div_ceil(CHUNK) {
                return Ok(None);
            }
            let mut elements = ChunkElements::default();
            match stored.as_ref().and_then(|unit| unit.locations.locate(position).unwrap()) {
                None => elements.clear(self.layout),
                Some(place) => {
                    let encoded = read(stored.as_ref().unwrap(), &place)?;
                    let scratch = &mut Scratch::default();
                    elements.load(self.layout, &encoded, scratch, &WriteInput::Bytes(&[]))?;
                }
            }
            elements.lay(&[chunk], &*cover)?;
            self.encoded(elements).map(Some)
        })
    }
}

fn array() -> NewArray {
    NewArray {
        shape: vec![LENGTH],
        data_type: DataType::UInt8,
        layout: ArrayLayout {
            chunk_shape: vec![CHUNK],
            shard_shape: vec![UNIT],
            order: Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: FillValue::Bytes(vec![FILL]),
        dimension_names: None,
        attributes: serde_json::Map::new(),
    }
}

/// Commits `values` to the range that begins at `start`.
fn commit(store: &Store, start: u64, values: &[u8]) {
    let range = AxisRange::new(start, 1, values.len() as u64).unwrap();
    let selection = Selection::Orthogonal(vec![AxisSelection::Range(range)]);
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    let path = ObjectPath::parse("v").unwrap();
    session.write(&path, &selection, crate::Elements::Bytes(values)).unwrap();
    session.commit().unwrap();
}

/// Settles all plans into `files`, with `memory_bytes` bytes of memory.
fn settle_into(store: &Store, files: &Files<'_>, plans: &[SettlePlan], memory_bytes: u64) {
    let view = store.zarr().unwrap().snapshot().unwrap().view.unwrap();
    let counts = SettleCounters::default();
    let objects = || plans.iter().flat_map(|plan| &plan.objects);
    let rounds = Rounds {
        store: store.zarr().unwrap(),
        view: &view,
        plans,
        sinks: &[files as &dyn Sink],
        part: (0, 1),
        memory_bytes,
        total_bytes: objects().map(|object| object.bytes).sum(),
        progress: &|_, _| (),
        counts: &counts,
        spare: WindowPool::default(),
    };
    rounds.run().unwrap();
    drop(rounds);
    let settled = counts.take_settled();
    assert!(settled.iter().all(|(_, _, commit)| *commit == files.commit));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn commits_settle_into_any_sink(
        writes in proptest::collection::vec((0..LENGTH, 1_u64..20, 0_u8..9), 1..6),
        later in (0..LENGTH, 1_u64..20, 10_u8..20),
        memory_bytes in prop_oneof![Just(8_u64), Just(64), Just(1 << 20)],
        threads in 1_usize..3,
    ) {
        let (place, storage) = (Arc::new(MemoryStorage::new()), MemoryStorage::new());
        let options =
            OpenOptions { writable: true, threads: Some(threads), ..OpenOptions::default() };
        let store = Store::create(place, &serde_json::Map::new(), options).unwrap();
        store.create_array(&ObjectPath::parse("v").unwrap(), &array()).unwrap();
        let mut expected = vec![FILL; usize::try_from(LENGTH).unwrap()];
        let mut journal = HashMap::new();
        for batch in [&writes[..], &[later]] {
            for (start, length, value) in batch {
                let end = (start + length).min(LENGTH);
                let values = vec![*value; usize::try_from(end - start).unwrap()];
                commit(&store, *start, &values);
                let range = usize::try_from(*start).unwrap()..usize::try_from(end).unwrap();
                expected[range].copy_from_slice(&values);
            }
            store.zarr().unwrap().refresh().unwrap();
            let view = store.zarr().unwrap().snapshot().unwrap().view.unwrap();
            let plans = plan(store.zarr().unwrap(), &view, None).unwrap();
            let pinned = plans[0].pinned(store.zarr().unwrap(), &view);
            let files = Files {
                storage: &storage,
                journal: Mutex::new(std::mem::take(&mut journal)),
                pinned: &pinned,
                layout: &plans[0].state.layout,
                commit: view.root.number,
                published: Mutex::default(),
            };
            settle_into(&store, &files, &plans, memory_bytes);
            prop_assert_eq!(files.elements(), &expected[..]);
            // A whole unit needs more memory than a round has at 8 bytes.
            let is_whole = |(start, length, _): &(u64, u64, u8)| {
                let end = (start + length).min(LENGTH);
                start.next_multiple_of(UNIT) + UNIT <= end
            };
            let has_covered = files.published.lock().unwrap().contains(&"covered");
            prop_assert!(has_covered || memory_bytes > 8 || !batch.iter().any(is_whole));
            prop_assert!(!has_covered || memory_bytes == 8);
            journal = files.journal.into_inner().unwrap();
        }
    }
}

/// Regression: each member took all of the limit, 64 GiB on a node of 128.
#[test]
fn members_of_a_node_divide_its_memory() {
    let options = SettleOptions { memory_bytes: 600, ..SettleOptions::default() };
    let shares: Vec<_> = std::thread::scope(|scope| {
        let options = &options;
        let of = move |member| {
            let share = options.share(&MemberGroup::by_node(Box::new(member)).unwrap());
            (share.memory_bytes, share.part)
        };
        let all: Vec<_> = threads_on_nodes(5, 2)
            .into_iter()
            .map(|member| scope.spawn(move || of(member)))
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let expected =
        [300, 300, 300, 300, 600].into_iter().zip(0..).map(|(bytes, rank)| (bytes, (rank, 5)));
    assert_eq!(shares, expected.collect::<Vec<_>>());
}
