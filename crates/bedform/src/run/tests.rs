//! Tests of a read's seams on naive implementations: a source whose chunks lie in two parts each,
//! and a plan of two sources with different codecs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bedform_codec::{ChunkCodec, Scratch};
use bedform_format::metadata::FillValue;
use bedform_format::shard::Extent;
use bedform_format::{BytesCodec, CodecChain, DataType, Endian, ObjectPath, Serializer};
use bedform_geometry::{AxisRange, AxisSelection, ChunkGrid, Selection};
use bedform_storage::{Condition, Durability, MemoryStorage, Storage};
use proptest::prelude::*;

use super::deliver::{Admission, ChunkVisitor, DecodedChunk, Deliver};
use super::execute::execute;
use super::explain::priced;
use super::plan::{PlanPiece, ReadPlan};
use crate::error::Result;
use crate::plan::copy::CopyTarget;
use crate::plan::geometry::Geometry;
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::source::{
    ChunkLocations, LocateChunk, Location, OpenCell, PendingCell, Settled, Source, StoredLayout,
};

/// A one-dimensional array in one object. Each chunk is cut in two; all second halves come before
/// all first ones.
#[derive(Debug)]
struct Halves {
    storage: MemoryStorage,
    layout: StoredLayout,
    chunks: Arc<Table>,
}

#[derive(Debug)]
struct Table(Vec<Option<Location>>);

impl LocateChunk for Table {
    fn locate(&self, position: u64) -> Option<Location> {
        self.0[usize::try_from(position).unwrap()].clone()
    }
}

fn path() -> ObjectPath {
    ObjectPath::parse("object").unwrap()
}

impl Halves {
    /// Makes the array of `elements`, whose chunks of `length` bytes are encoded with `bytes`.
    /// Every third chunk is not written.
    fn new(elements: &[u8], length: usize, bytes: Vec<BytesCodec>) -> Self {
        let chain =
            CodecChain { transpose: None, serializer: Serializer::Bytes(Endian::Little), bytes };
        let codec = ChunkCodec::new(&chain, DataType::UInt8, &[length as u64]);
        let (mut scratch, mut first, mut second) = (Scratch::default(), Vec::new(), Vec::new());
        let mut halves = Vec::new();
        for (number, chunk) in elements.chunks(length).enumerate() {
            if number % 3 == 2 {
                halves.push(None);
                continue;
            }
            let mut whole = chunk.to_vec();
            whole.resize(length, 7);
            let mut encoded = Vec::new();
            codec.encode(&whole, &mut scratch, &mut encoded).unwrap();
            let (left, right) = encoded.split_at(encoded.len() / 2);
            halves.push(Some((first.len(), left.len(), second.len(), right.len())));
            first.extend_from_slice(left);
            second.extend_from_slice(right);
        }
        let extent =
            |offset: usize, length: usize| Extent { offset: offset as u64, length: length as u64 };
        let locations = halves.into_iter().map(|half| {
            let (left, left_length, right, right_length) = half?;
            let rest = Box::new([extent(right, right_length)]);
            let first = extent(second.len() + left, left_length);
            Some(Location { rest, ..Location::of(first) })
        });
        let chunks = Arc::new(Table(locations.collect()));
        let storage = MemoryStorage::new();
        second.extend_from_slice(&first);
        storage.put(&path(), &second, Durability::Process, Condition::None).unwrap();
        let grid = ChunkGrid::new(vec![elements.len() as u64], vec![length as u64]).unwrap();
        let per_object = grid.grid_shape().iter().map(|count| (*count).max(1)).collect();
        let fill = FillValue::Bytes(vec![9]);
        let layout = StoredLayout { grid, per_object, codec, item_size: 1, fill };
        Self { storage, layout, chunks }
    }

    /// Returns the elements that a reader must find.
    fn expected(elements: &[u8], length: usize) -> Vec<u8> {
        let is_written = |at: usize| (at / length) % 3 != 2;
        (0..elements.len()).map(|at| if is_written(at) { elements[at] } else { 9 }).collect()
    }
}

impl Source for Halves {
    fn open(
        &self,
        _: &[u64],
        _: Need,
        _: Option<PendingCell>,
        _: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        Ok(Some(OpenCell {
            object: Arc::from(self.storage.open(&path())?),
            locations: ChunkLocations::Table(self.chunks.clone()),
            contained: 0,
            index_requests: 0,
            index_bytes: 0,
        }))
    }

    fn object_name(&self, _: &[u64]) -> String {
        "object".to_owned()
    }

    fn place_name(&self) -> String {
        "place".to_owned()
    }
}

/// The chunks that a visitor has seen: their piece, and their elements if they were written.
type Seen = BTreeMap<(usize, u64), Option<Vec<u8>>>;

/// A visitor that keeps the chunks that it sees.
struct Naive<'g> {
    /// The geometry of the first piece.
    first: &'g Geometry,
    seen: Mutex<Seen>,
}

impl ChunkVisitor for Naive<'_> {
    fn take(&self, chunk: DecodedChunk<'_>) -> Result<()> {
        let is_second = !std::ptr::eq(chunk.cell.piece.geometry, self.first);
        let key = (usize::from(is_second), chunk.task.position);
        let known = self.seen.lock().unwrap().insert(key, chunk.elements.map(<[u8]>::to_vec));
        assert!(known.is_none(), "chunk {key:?} comes twice");
        Ok(())
    }
}

fn codecs() -> impl Strategy<Value = Vec<BytesCodec>> {
    prop_oneof![
        Just(vec![]),
        Just(vec![BytesCodec::Crc32c]),
        Just(vec![BytesCodec::Zstd { level: 1, checksum: false }, BytesCodec::Crc32c]),
    ]
}

fn every_second(length: usize) -> Selection {
    let range = AxisRange::new(0, 2, (length as u64).div_ceil(2)).unwrap();
    Selection::Orthogonal(vec![AxisSelection::Range(range)])
}

proptest! {
    #[test]
    fn two_sources_of_chunks_in_two_parts_are_read_as_one_array(
        first in proptest::collection::vec(any::<u8>(), 1..60),
        second in proptest::collection::vec(any::<u8>(), 1..60),
        lengths in (1_usize..9, 1_usize..9),
        chains in (codecs(), codecs()),
        threads in 1_usize..3,
    ) {
        let sources =
            [Halves::new(&first, lengths.0, chains.0), Halves::new(&second, lengths.1, chains.1)];
        let expected: Vec<u8> = [(&first, lengths.0), (&second, lengths.1)]
            .iter()
            .flat_map(|(elements, length)| {
                Halves::expected(elements, *length).into_iter().step_by(2)
            })
            .collect();
        let ahead = (first.len() as u64).div_ceil(2);
        let geometries = [
            sources[0].layout.geometry(&every_second(first.len())).unwrap(),
            sources[1].layout.geometry(&every_second(second.len())).unwrap().behind(ahead).unwrap(),
        ];
        let mut pieces = [0, 1].map(|at: usize| PlanPiece {
            source: &sources[at],
            moment: &Settled,
            layout: &sources[at].layout,
            meaning: 0,
            geometry: &geometries[at],
            cache: None,
            begins: None,
            cells_before: 0,
        });
        PlanPiece::number(&mut pieces);
        let mut tuning = Tuning::default();
        tuning.threads = threads;
        let plan = ReadPlan::new(&pieces, &tuning);
        prop_assert_eq!(plan.result_bytes(), expected.len() as u64);
        let mut found = vec![0; expected.len()];
        let done = execute(plan, Deliver::Buffer(CopyTarget::new(&mut found))).unwrap();
        prop_assert_eq!(found, expected);
        // A visitor sees each chunk once, with the elements of a naive reader.
        let taker = Naive { first: &geometries[0], seen: Mutex::default() };
        execute(plan, Deliver::Visitor(&taker)).unwrap();
        let seen = taker.seen.into_inner().unwrap();
        prop_assert_eq!(seen.len() as u64, plan.chunk_count());
        let written = seen.values().flatten().count() as u64;
        let halves = [(&first, lengths.0), (&second, lengths.1)];
        for ((piece, at), elements) in seen {
            let (all, length) = halves[piece];
            let start = usize::try_from(at).unwrap() * length;
            let end = (start + length).min(all.len());
            let expected = &Halves::expected(all, length)[start..end];
            prop_assert_eq!(elements.map(|own| own[..end - start].to_vec()), match at % 3 {
                2 => None,
                _ => Some(expected.to_vec()),
            });
        }
        // Without a cache nothing is fetched for it.
        let admission = Admission::new(1 << 20);
        let kept = execute(plan, Deliver::Cache(&admission)).unwrap();
        prop_assert_eq!((kept.requests, kept.chunks, admission.present()), (0, 0, 0));
        prop_assert_eq!(admission.left_out(), written);
        // The cost is that of the resolved plan, and both parts of a chunk are requests.
        let (cost, price) = priced(plan).unwrap();
        prop_assert_eq!((cost.requests, cost.bytes), (done.requests, done.bytes));
        prop_assert!(price.exact && !plan.estimate().exact);
    }
}
