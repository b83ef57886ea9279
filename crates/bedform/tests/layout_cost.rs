//! Compares the cost model's counts with an enumeration of all chunks.

#![expect(clippy::unwrap_used, reason = "a test may stop")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use std::collections::{BTreeMap, BTreeSet};

use bedform::layout::{CostModel, Layout, Read};
use bedform_geometry::{AxisRange, AxisSelection, ChunkGrid, Order, Points, Region, Selection};
use bedform_storage::Profile;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// The counts of a read, from an enumeration of its chunks.
struct Count {
    chunks: usize,
    shards: usize,
    /// Requests and bytes if each shard's index is read first.
    requests: usize,
    bytes: f64,
    /// Bytes if each shard is read whole.
    whole_bytes: f64,
}

fn count(model: &CostModel, layout: &Layout, elements: impl Iterator<Item = Vec<u64>>) -> Count {
    let grid = ChunkGrid::new(model.shape.clone(), layout.chunk_shape.clone()).unwrap();
    let inner: Vec<u64> =
        layout.shard_shape.iter().zip(&layout.chunk_shape).map(|(a, b)| a / b).collect();
    let sequence = layout.order.sequence(&inner).unwrap();
    let touched: BTreeSet<Vec<u64>> = elements.map(|element| grid.chunk_of(&element)).collect();
    let mut shards: BTreeMap<Vec<u64>, Vec<Vec<u64>>> = BTreeMap::new();
    for chunk in &touched {
        let shard = chunk.iter().zip(&inner).map(|(at, size)| at / size).collect();
        shards.entry(shard).or_default().push(chunk.clone());
    }
    let chunk_bytes = (layout.chunk_shape.iter().product::<u64>() * model.item_size) as f64
        / model.compression_ratio;
    let (mut requests, mut bytes, mut whole_bytes) = (0, 0.0, 0.0);
    for (shard, chunks) in &shards {
        // All existing chunks of the shard, in the order of storage.
        let mut stored = Vec::new();
        for &cell in &sequence {
            let at = bedform_geometry::delinearize(cell, &inner);
            let chunk: Vec<u64> =
                (0..at.len()).map(|axis| shard[axis] * inner[axis] + at[axis]).collect();
            if chunk.iter().zip(grid.grid_shape()).all(|(at, size)| at < size) {
                stored.push(chunk);
            }
        }
        let places: Vec<usize> =
            (0..stored.len()).filter(|&place| chunks.contains(&stored[place])).collect();
        requests += 2;
        let end_bytes = 16.0 * sequence.len() as f64 + 4.0;
        bytes += end_bytes + chunk_bytes * places.len() as f64;
        whole_bytes += end_bytes + chunk_bytes * stored.len() as f64;
        for pair in places.windows(2) {
            let gap = (pair[1] - pair[0] - 1) as f64 * chunk_bytes;
            if gap <= model.profile.merge_gap_bytes as f64 {
                bytes += gap;
            } else {
                requests += 1;
            }
        }
    }
    Count { chunks: touched.len(), shards: shards.len(), requests, bytes, whole_bytes }
}

fn elements_of(axes: &[Vec<u64>]) -> Vec<Vec<u64>> {
    axes.iter().fold(vec![vec![]], |elements, axis| {
        let with = |element: &Vec<u64>, at: u64| [element.as_slice(), &[at]].concat();
        elements.iter().flat_map(|element| axis.iter().map(move |&at| with(element, at))).collect()
    })
}

#[derive(Debug, Clone)]
struct Case {
    model: CostModel,
    layout: Layout,
    starts: Vec<u64>,
    widths: Vec<u64>,
    steps: Vec<u64>,
}

fn any_case() -> impl Strategy<Value = Case> {
    let axis = (1_u64..30, 1_u64..6, 1_u64..5, 0.0_f64..1.0, 0.0_f64..1.0, 1_u64..9);
    let gap = prop_oneof![Just(0_u64), 1_u64..4000];
    // Servers that deliver kilobytes during a wait, and servers that deliver nothing.
    let server = prop::option::of(1e2..1e7_f64);
    let ratio = prop_oneof![Just(1.0), 0.5..4.0_f64];
    (prop::collection::vec(axis, 0..4), gap, 0..4_usize, ratio, server).prop_map(
        |(axes, gap, order, ratio, server)| {
            let shape: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
            let place = match server {
                Some(rate) => {
                    Profile { read_bytes_per_second_one: rate, ..Profile::default_remote() }
                }
                None => Profile::default_local(),
            };
            let profile = Profile { merge_gap_bytes: gap, ..place };
            let mut model = CostModel::new(&shape, 8, profile, 2);
            model.compression_ratio = ratio;
            let layout = Layout {
                chunk_shape: axes.iter().map(|axis| axis.1).collect(),
                shard_shape: axes.iter().map(|axis| axis.1 * axis.2).collect(),
                order: Order::ALL[order],
            };
            let starts: Vec<u64> =
                axes.iter().map(|axis| (axis.3 * (axis.0 - 1) as f64) as u64).collect();
            let widths = axes
                .iter()
                .zip(&starts)
                .map(|(axis, start)| 1 + (axis.4 * (axis.0 - start - 1) as f64).round() as u64)
                .collect();
            let steps = axes.iter().map(|axis| axis.5).collect();
            Case { model, layout, starts, widths, steps }
        },
    )
}

fn check(
    case: &Case,
    cost: &bedform::layout::ReadCost,
    elements: Vec<Vec<u64>>,
) -> Result<(), TestCaseError> {
    let count = count(&case.model, &case.layout, elements.into_iter());
    prop_assert_eq!(cost.chunks, count.chunks as f64);
    prop_assert_eq!(cost.objects, count.shards as f64);
    let whole = cost.whole_objects > 0.0;
    let (requests, bytes) = match whole {
        true => (count.shards, count.whole_bytes),
        false => (count.requests, count.bytes),
    };
    prop_assert!(!whole || case.model.profile.is_remote && cost.whole_objects == cost.objects);
    prop_assert_eq!(cost.requests, requests as f64);
    prop_assert!((cost.bytes - bytes).abs() <= 1e-6 * bytes, "{} not {}", cost.bytes, bytes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_counts_of_a_region_are_those_of_an_enumeration(case in any_case()) {
        let region = Region::new(case.starts.clone(), case.widths.clone()).unwrap();
        let axes: Vec<Vec<u64>> = (0..case.starts.len())
            .map(|axis| (region.start()[axis]..region.end(axis)).collect())
            .collect();
        let cost = case.model.price_region(&case.layout, &region);
        check(&case, &cost, elements_of(&axes))?;
        prop_assert!(cost.seconds > 0.0);
    }

    #[test]
    fn the_counts_of_a_strided_selection_are_those_of_an_enumeration(case in any_case()) {
        let axes: Vec<Vec<u64>> = (0..case.starts.len())
            .map(|axis| {
                let (start, step) = (case.starts[axis], case.steps[axis]);
                let end = start + case.widths[axis];
                (start..end).step_by(usize::try_from(step).unwrap()).collect()
            })
            .collect();
        let range = |(axis, positions): (usize, &Vec<u64>)| {
            let step = i64::try_from(case.steps[axis]).unwrap();
            let range = AxisRange::new(case.starts[axis], step, positions.len() as u64);
            AxisSelection::Range(range.unwrap())
        };
        let selection = Selection::Orthogonal(axes.iter().enumerate().map(range).collect());
        let cost = case.model.price(&case.layout, &Read::Selection(selection));
        check(&case, &cost, elements_of(&axes))?;
        // The same selection as coordinates, backwards.
        let coords = axes.iter().map(|at| AxisSelection::Coords(at.iter().rev().copied().collect()));
        let selection = Selection::Orthogonal(coords.collect());
        prop_assert_eq!(case.model.price(&case.layout, &Read::Selection(selection)), cost);
    }

    #[test]
    fn everything_is_the_region_of_the_whole_array(case in any_case()) {
        let whole = Region::whole(case.model.shape.clone()).unwrap();
        let exact = case.model.price_region(&case.layout, &whole);
        prop_assert_eq!(case.model.price(&case.layout, &Read::Everything), exact);
        let all = Read::Selection(Selection::all(&case.model.shape));
        prop_assert_eq!(case.model.price(&case.layout, &all), exact);
    }

    #[test]
    fn parts_of_chunks_are_read_only_where_that_is_cheaper(case in any_case()) {
        let region = Region::new(case.starts.clone(), case.widths.clone()).unwrap();
        let mut free = case.model.clone();
        free.checksummed = false;
        let (part, whole) =
            (free.price_region(&case.layout, &region), case.model.price_region(&case.layout, &region));
        prop_assert!(part.seconds <= whole.seconds);
        let wanted = (region.len().unwrap() * 8) as f64;
        prop_assert!(part.bytes >= wanted / case.model.compression_ratio * 0.999);
        prop_assert_eq!((part.chunks, part.objects), (whole.chunks, whole.objects));
    }
}

/// Returns the seconds to read `count` uncompressed chunks of 32 MiB, one per shard.
fn of_large_chunks(count: u64) -> f64 {
    let many = Profile { read_bytes_per_second_many: 2e9, ..Profile::default_remote() };
    let model = CostModel::new(&[count, 32 << 20], 1, many, 2);
    let chunk_shape = vec![1, 32 << 20];
    let layout = Layout { shard_shape: chunk_shape.clone(), chunk_shape, order: Order::RowMajor };
    model.price(&layout, &Read::Everything).seconds
}

#[test]
fn a_large_chunk_of_a_server_comes_in_one_stream_and_so_many_at_once_as_there_is_room_for() {
    let far = Profile::default_remote();
    let alone = f64::from(32 << 20) / far.read_bytes_per_second_one;
    assert!(of_large_chunks(1) > alone);
    assert!(of_large_chunks(4) < 1.5 * alone, "{}", of_large_chunks(4));
    assert!(of_large_chunks(12) > 1.9 * alone, "{}", of_large_chunks(12));
}

#[test]
fn points_and_unions_count_each_shard_of_points_once() {
    let model = CostModel::new(&[100, 100], 8, Profile::default_local(), 2);
    let layout =
        Layout { chunk_shape: vec![10, 10], shard_shape: vec![50, 50], order: Order::Hilbert };
    let points = Points::new(vec![vec![1, 2, 99], vec![1, 25, 99]]).unwrap();
    let cost = model.price(&layout, &Read::Selection(Selection::Points(points)));
    assert_eq!((cost.chunks, cost.objects, cost.requests), (3.0, 2.0, 5.0));
    let region = Region::new([0, 0], [10, 10]).unwrap();
    let union = Selection::Union(vec![region.clone(), region.clone()]);
    let cost = model.price(&layout, &Read::Selection(union));
    assert_eq!(cost.chunks, 2.0);
    let once = model.price_region(&layout, &region).seconds;
    assert!(cost.seconds > once && cost.seconds < 2.0 * once);
}

#[test]
fn a_server_gives_small_shards_with_one_request_and_of_large_ones_the_index_first() {
    let model = CostModel::new(&[365, 720, 1440], 4, Profile::default_remote(), 2);
    let price = |shard: [u64; 3]| {
        let layout = Layout {
            chunk_shape: vec![8, 120, 144],
            shard_shape: shard.to_vec(),
            order: Order::RowMajor,
        };
        model.price(&layout, &Read::Axes { spanned: vec![1, 2] })
    };
    let (alone, together) = (price([8, 120, 144]), price([8, 720, 1440]));
    assert_eq!((alone.chunks, alone.objects), (60.0, 60.0));
    assert_eq!((alone.whole_objects, alone.requests), (60.0, 60.0));
    assert_eq!((together.objects, together.whole_objects, together.requests), (1.0, 0.0, 2.0));
    // One wait, the requests and the bytes; the other way has two waits.
    let profile = &model.profile;
    let least = profile.request_seconds_one + 60.0 * profile.request_seconds_many;
    let bytes = alone.bytes / profile.read_bytes_per_second_many;
    assert!((least + bytes..1.1 * (least + bytes)).contains(&alone.seconds), "{alone:?}");
    assert!(together.seconds > 2.0 * profile.request_seconds_one);
}

#[test]
fn a_disk_gives_indexes_first_however_small_the_shards_are() {
    let model = CostModel::new(&[100, 100], 8, Profile::default_local(), 2);
    let layout =
        Layout { chunk_shape: vec![10, 10], shard_shape: vec![10, 10], order: Order::RowMajor };
    let cost = model.price(&layout, &Read::Axes { spanned: vec![1] });
    assert_eq!((cost.objects, cost.whole_objects, cost.requests), (10.0, 0.0, 20.0));
}

#[test]
fn points_count_each_shard_that_comes_whole_once() {
    let model = CostModel::new(&[100, 100], 8, Profile::default_remote(), 2);
    let layout =
        Layout { chunk_shape: vec![10, 10], shard_shape: vec![50, 50], order: Order::RowMajor };
    let points = Points::new(vec![vec![1, 2, 99], vec![1, 25, 99]]).unwrap();
    let cost = model.price(&layout, &Read::Selection(Selection::Points(points)));
    assert_eq!((cost.chunks, cost.whole_objects, cost.requests), (3.0, 2.0, 2.0));
    assert_eq!(cost.bytes, 2.0 * (25.0 * 800.0 + 25.0 * 16.0 + 4.0));
}

#[test]
fn nothing_costs_nothing() {
    let model = CostModel::new(&[0, 10], 8, Profile::default_local(), 2);
    let layout =
        Layout { chunk_shape: vec![1, 5], shard_shape: vec![2, 10], order: Order::RowMajor };
    assert_eq!(model.price(&layout, &Read::Everything).seconds, 0.0);
    assert_eq!(model.price(&layout, &Read::Axes { spanned: vec![1] }).requests, 0.0);
    assert_eq!(model.price(&layout, &Read::Box { shape: vec![3, 3] }).bytes, 0.0);
}
