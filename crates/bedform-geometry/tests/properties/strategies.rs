//! Random shapes, regions and selections, and their points for the simple models.

use bedform_geometry::{
    AxisRange, AxisSelection, BoxList, Points, RANK_MAX, Region, Selection, delinearize,
    element_count,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// All points of a shape, in C order.
pub(crate) fn points_of_shape(shape: &[u64]) -> Vec<Vec<u64>> {
    (0..element_count(shape).unwrap()).map(|index| delinearize(index, shape)).collect()
}

/// All points of a region, in C order.
pub(crate) fn points_of(region: &Region) -> Vec<Vec<u64>> {
    let add = |point: Vec<u64>| point.iter().zip(region.start()).map(|(a, b)| a + b).collect();
    points_of_shape(region.shape()).into_iter().map(add).collect()
}

/// All points of a selection, in the order of the result, by the definition.
pub(crate) fn points_selected(selection: &Selection) -> Vec<Vec<u64>> {
    match selection {
        Selection::Orthogonal(axes) => {
            let mut points = vec![vec![]];
            for axis in axes {
                let extended = |point: &Vec<u64>| -> Vec<Vec<u64>> {
                    let longer = |at| [point.as_slice(), &[at]].concat();
                    positions(axis).into_iter().map(longer).collect()
                };
                points = points.iter().flat_map(extended).collect();
            }
            points
        }
        Selection::Points(points) => (0..usize::try_from(points.count()).unwrap())
            .map(|i| points.coords().iter().map(|axis| axis[i]).collect())
            .collect(),
        Selection::Union(regions) => regions.iter().flat_map(points_of).collect(),
    }
}

fn positions(selection: &AxisSelection) -> Vec<u64> {
    match selection {
        AxisSelection::Coords(coords) => coords.clone(),
        AxisSelection::Range(range) => {
            let at = |i: u64| i128::from(range.start()) + i128::from(i) * i128::from(range.step());
            (0..range.len()).map(|i| u64::try_from(at(i)).unwrap()).collect()
        }
    }
}

/// Shapes of rank 0 to 4, some with lengths of zero.
pub(crate) fn shape() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![1 => Just(0), 20 => 1..=9_u64], 0..=4)
}

/// A shape, and a chunk shape for it.
pub(crate) fn array() -> impl Strategy<Value = (Vec<u64>, Vec<u64>)> {
    shape().prop_flat_map(|shape| {
        let chunk = vec(prop_oneof![9 => 1..=5_u64, 1 => 6..=20_u64], shape.len());
        (Just(shape), chunk)
    })
}

/// A region inside `shape`, possibly empty.
pub(crate) fn region_in(shape: &[u64]) -> impl Strategy<Value = Region> + use<> {
    let axes: Vec<_> = shape.iter().map(|&size| (0..=size, 0..=size)).collect();
    axes.prop_map(|axes| {
        let start: Vec<u64> = axes.iter().map(|&(a, b)| a.min(b)).collect();
        let size: Vec<u64> = axes.iter().map(|&(a, b)| a.abs_diff(b)).collect();
        Region::new(start, size).unwrap()
    })
}

/// `count` regions, of one rank from 0 to 3, in a small box.
pub(crate) fn regions(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Region>> {
    vec(2..=6_u64, 0..=3).prop_flat_map(move |shape| vec(region_in(&shape), count.clone()))
}

/// A selection along an axis of `size`, in bounds.
pub(crate) fn axis_selection(size: u64) -> BoxedStrategy<AxisSelection> {
    if size == 0 {
        let range = AxisSelection::Range(AxisRange::whole(0));
        return prop_oneof![Just(range), Just(AxisSelection::Coords(vec![]))].boxed();
    }
    let range = (0..size, prop_oneof![-12..=-1_i64, 1..=12_i64], 0..=10_u64).prop_map(
        move |(start, step, len)| {
            let room = if step > 0 { size - 1 - start } else { start };
            AxisRange::new(start, step, len.min(room / step.unsigned_abs() + 1)).unwrap()
        },
    );
    prop_oneof![
        1 => Just(AxisSelection::Range(AxisRange::whole(size))),
        4 => range.prop_map(AxisSelection::Range),
        2 => vec(0..size, 0..8).prop_map(AxisSelection::Coords),
        1 => vec(0..size, 0..8).prop_map(|mut coords| {
            coords.sort_unstable();
            AxisSelection::Coords(coords)
        }),
    ]
    .boxed()
}

/// One selection for each axis of `shape`, in bounds.
pub(crate) fn axis_selections(shape: &[u64]) -> impl Strategy<Value = Vec<AxisSelection>> + use<> {
    shape.iter().map(|&size| axis_selection(size)).collect::<Vec<_>>()
}

/// Points in bounds of `shape`, with duplicates.
pub(crate) fn points_in(shape: &[u64]) -> BoxedStrategy<Points> {
    if shape.is_empty() {
        return (0..10_u64).prop_map(Points::of_rank_zero).boxed();
    }
    let count = if shape.contains(&0) { 0..=0_usize } else { 0..=30 };
    let shape = shape.to_vec();
    count
        .prop_flat_map(move |count| {
            let axes: Vec<_> = shape.iter().map(|&size| vec(0..size.max(1), count)).collect();
            axes.prop_map(|coords| Points::new(coords).unwrap())
        })
        .boxed()
}

/// Any selection, in bounds of `shape`.
pub(crate) fn selection_in(shape: &[u64]) -> impl Strategy<Value = Selection> + use<> {
    prop_oneof![
        axis_selections(shape).prop_map(Selection::Orthogonal),
        points_in(shape).prop_map(Selection::Points),
        vec(region_in(shape), 0..4).prop_map(Selection::Union),
    ]
}

/// `short` ascending places among the largest number of axes.
pub(crate) fn places_in_largest_rank(short: usize) -> impl Strategy<Value = Vec<usize>> {
    proptest::sample::subsequence((0..RANK_MAX).collect::<Vec<_>>(), short)
}

/// Places the values of `short` on `places` among the largest number of axes, and `fill` on the
/// others.
pub(crate) fn spread<T: Clone>(short: &[T], places: &[usize], fill: T) -> Vec<T> {
    let mut long = vec![fill; RANK_MAX];
    for (value, &place) in short.iter().zip(places) {
        long[place] = value.clone();
    }
    long
}

/// Up to 40 boxes of rank 1 to 3 near the origin, some long, some overlapping.
pub(crate) fn boxes() -> impl Strategy<Value = BoxList> {
    let axis = || (-20..20_i64, prop_oneof![8 => 1..=6_i64, 1 => 20..=60_i64]);
    (1..=3_usize).prop_flat_map(move |rank| {
        vec(vec(axis(), rank), 0..40).prop_map(move |boxes| box_list(rank, boxes))
    })
}

/// Up to 40 boxes of rank 1 to 9 anywhere in index space, many of them at its ends.
pub(crate) fn extreme_boxes() -> impl Strategy<Value = BoxList> {
    let start = prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX - 1),
        (i64::MAX - 9)..i64::MAX,
        -2..2_i64,
        any::<i64>(),
    ];
    let axis = (start, prop_oneof![4 => 1..=3_i64, 1 => Just(1_i64 << 62), 1 => 1..=i64::MAX]);
    (1..=9_usize).prop_flat_map(move |rank| {
        vec(vec(axis.clone(), rank), 0..40).prop_map(move |boxes| box_list(rank, boxes))
    })
}

/// Makes a list of boxes, each with a start and a length on each axis; leaves out boxes with too
/// many cells.
fn box_list(rank: usize, boxes: Vec<Vec<(i64, i64)>>) -> BoxList {
    let mut list = BoxList::new(rank).unwrap();
    for axes in boxes {
        let start: Vec<i64> = axes.iter().map(|axis| axis.0.min(i64::MAX - 1)).collect();
        let stop: Vec<i64> = axes.iter().map(|axis| axis.0.saturating_add(axis.1)).collect();
        let _ = list.push(&start, &stop);
    }
    list
}

/// All cells of a box.
pub(crate) fn cells_of_box(start: &[i64], stop: &[i64]) -> Vec<Vec<i64>> {
    let shape: Vec<u64> = start.iter().zip(stop).map(|(a, b)| b.abs_diff(*a)).collect();
    let add = |point: Vec<u64>| {
        point.iter().zip(start).map(|(a, b)| b.checked_add_unsigned(*a).unwrap()).collect()
    };
    points_of_shape(&shape).into_iter().map(add).collect()
}
