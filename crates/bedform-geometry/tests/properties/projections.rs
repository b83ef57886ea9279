//! Tests that every selected element comes from its chunk, once, to its position in the result.

use bedform_geometry::{
    AxisPiece, AxisRange, AxisSelection, ChunkGrid, Points, Region, Selection, delinearize,
    linearize,
};
use proptest::prelude::*;

use crate::strategies::{
    array, axis_selections, places_in_largest_rank, points_in, points_of, points_of_shape,
    points_selected, region_in, spread,
};

/// A result that records the array element at each position; each position may be filled once.
struct Delivered {
    places: Vec<Option<Vec<u64>>>,
}

impl Delivered {
    fn with_len(len: Option<u64>) -> Self {
        Self { places: vec![None; usize::try_from(len.unwrap()).unwrap()] }
    }

    fn put(&mut self, place: u64, element: Vec<u64>) {
        let before = self.places[usize::try_from(place).unwrap()].replace(element);
        assert_eq!(before, None, "place {place} was filled twice");
    }

    fn all(self) -> Vec<Vec<u64>> {
        self.places.into_iter().map(|element| element.expect("a place was not filled")).collect()
    }
}

/// Delivers like the engine: all products of the pieces of each axis.
fn deliver(
    grid: &ChunkGrid,
    axes: &[AxisSelection],
    result_shape: &[u64],
    base: u64,
    to: &mut Delivered,
) {
    let projections: Vec<Vec<AxisPiece>> =
        axes.iter().enumerate().map(|(axis, one)| grid.project_axis(axis, one)).collect();
    let counts: Vec<u64> = projections.iter().map(|pieces| pieces.len() as u64).collect();
    for choice in points_of_shape(&counts) {
        let pieces: Vec<&AxisPiece> = choice
            .iter()
            .zip(&projections)
            .map(|(&at, pieces)| &pieces[usize::try_from(at).unwrap()])
            .collect();
        let chunk: Vec<u64> = pieces.iter().map(|piece| piece.chunk).collect();
        let region = grid.chunk_region_clipped(&chunk);
        let lens: Vec<u64> = pieces.iter().map(|piece| piece.inside.len()).collect();
        for i in points_of_shape(&lens) {
            let each = || pieces.iter().zip(&i);
            let inside = each().map(|(piece, &i)| piece.inside.get(i).unwrap());
            let element: Vec<u64> = inside.zip(region.start()).map(|(a, b)| a + b).collect();
            assert!(region.contains(&element));
            let place: Vec<u64> = each().map(|(piece, &i)| piece.result.get(i).unwrap()).collect();
            to.put(base + linearize(&place, result_shape), element);
        }
    }
}

fn delivered(grid: &ChunkGrid, axes: &[AxisSelection]) -> Vec<Vec<u64>> {
    let selection = Selection::Orthogonal(axes.to_vec());
    let mut result = Delivered::with_len(selection.len());
    deliver(grid, axes, &selection.result_shape(), 0, &mut result);
    result.all()
}

fn delivered_points(grid: &ChunkGrid, points: &Points) -> Vec<Vec<u64>> {
    let mut result = Delivered::with_len(Some(points.count()));
    let pieces = grid.project_points(points).unwrap();
    assert!(pieces.is_sorted_by(|a, b| a.chunk < b.chunk));
    for piece in pieces {
        let region = grid.chunk_region(&delinearize(piece.chunk, grid.grid_shape()));
        assert!(piece.moves.is_sorted_by(|a, b| a.result < b.result));
        for to in piece.moves {
            assert!(to.inside < grid.chunk_len());
            let inside = delinearize(to.inside, grid.chunk_shape());
            result.put(to.result, inside.iter().zip(region.start()).map(|(a, b)| a + b).collect());
        }
    }
    result.all()
}

fn array_and_selections() -> impl Strategy<Value = (ChunkGrid, Vec<AxisSelection>)> {
    array().prop_flat_map(|(shape, chunk)| {
        let grid = ChunkGrid::new(shape.clone(), chunk).unwrap();
        (Just(grid), axis_selections(&shape))
    })
}

proptest! {
    #[test]
    fn an_orthogonal_selection_is_delivered_once_to_the_right_places(
        (grid, axes) in array_and_selections()
    ) {
        let expected = points_selected(&Selection::Orthogonal(axes.clone()));
        prop_assert_eq!(delivered(&grid, &axes), expected);
    }

    #[test]
    fn pieces_are_sorted_bounded_and_contiguous_where_they_can_be(
        (grid, axes) in array_and_selections()
    ) {
        for (axis, selection) in axes.iter().enumerate() {
            let pieces = grid.project_axis(axis, selection);
            prop_assert!(pieces.is_sorted_by(|a, b| a.chunk < b.chunk));
            prop_assert!(pieces.len() as u64 <= grid.axis_piece_bound(axis, selection));
            for piece in pieces {
                prop_assert_eq!(piece.inside.len(), piece.result.len());
                prop_assert!(!piece.inside.is_empty() && piece.chunk < grid.grid_shape()[axis]);
                prop_assert!(piece.inside.iter().all(|at| at < grid.chunk_shape()[axis]));
                let places: Vec<u64> = piece.result.iter().collect();
                prop_assert!(places.is_sorted_by(|a, b| a < b));
                let contiguous = places.windows(2).all(|pair| pair[0] + 1 == pair[1]);
                let range = matches!(piece.result, bedform_geometry::Positions::Range(_));
                prop_assert_eq!(piece.result.is_contiguous(), contiguous);
                prop_assert!(range || !contiguous);
                let ranged = matches!(selection, AxisSelection::Range(_));
                prop_assert!(contiguous || !ranged, "a range fills the result in sequence");
            }
        }
    }

    #[test]
    fn points_are_delivered_once_to_the_right_places(
        (grid, points) in array().prop_flat_map(|(shape, chunk)| {
            (Just(ChunkGrid::new(shape.clone(), chunk).unwrap()), points_in(&shape))
        })
    ) {
        let expected = points_selected(&Selection::Points(points.clone()));
        prop_assert_eq!(delivered_points(&grid, &points), expected);
    }

    #[test]
    fn a_union_is_delivered_region_by_region(
        (grid, regions) in array().prop_flat_map(|(shape, chunk)| {
            let regions = prop::collection::vec(region_in(&shape), 0..4);
            (Just(ChunkGrid::new(shape, chunk).unwrap()), regions)
        })
    ) {
        let union = Selection::Union(regions.clone());
        let mut result = Delivered::with_len(union.len());
        let mut base = 0;
        for region in &regions {
            let Selection::Orthogonal(axes) = Selection::from(region) else { unreachable!() };
            deliver(&grid, &axes, region.shape(), base, &mut result);
            base += region.len().unwrap();
        }
        prop_assert_eq!(result.all(), points_selected(&union));
    }

    #[test]
    fn chunks_tile_the_array(
        (grid, region) in array().prop_flat_map(|(shape, chunk)| {
            (Just(ChunkGrid::new(shape.clone(), chunk).unwrap()), region_in(&shape))
        })
    ) {
        let array = Region::whole(grid.array_shape()).unwrap();
        let mut elements = Vec::new();
        let mut touched = Vec::new();
        for chunk in points_of_shape(grid.grid_shape()) {
            let clipped = grid.chunk_region_clipped(&chunk);
            let full = grid.chunk_region(&chunk);
            prop_assert_eq!(full.shape(), grid.chunk_shape());
            prop_assert_eq!(full.intersection(&array), Some(clipped.clone()));
            for point in points_of(&clipped) {
                prop_assert_eq!(&grid.chunk_of(&point), &chunk);
                elements.push(point);
            }
            if clipped.intersection(&region).is_some() {
                touched.push(chunk);
            }
        }
        elements.sort();
        prop_assert_eq!(elements, points_of(&array));
        let found = grid.chunks_of_region(&region);
        prop_assert_eq!(found.as_ref().map_or(vec![], points_of), touched);
    }

    #[test]
    fn the_largest_rank_is_projected_like_a_small_one(
        ((shape, chunk), seeds, places) in array().prop_flat_map(|(shape, chunk)| {
            let places = places_in_largest_rank(shape.len());
            (Just((shape.clone(), chunk)), (axis_selections(&shape), points_in(&shape)), places)
        })
    ) {
        let (axes, points) = seeds;
        let long = spread(&shape, &places, 1);
        let grid = ChunkGrid::new(long.clone(), spread(&chunk, &places, 1)).unwrap();
        let single = AxisSelection::Range(AxisRange::whole(1));
        let axes = Selection::Orthogonal(spread(&axes, &places, single));
        prop_assert_eq!(axes.validate(&long), Ok(()));
        let Selection::Orthogonal(list) = &axes else { unreachable!() };
        prop_assert_eq!(delivered(&grid, list), points_selected(&axes));

        let zeros = vec![0; usize::try_from(points.count()).unwrap()];
        let points = Points::new(spread(points.coords(), &places, zeros)).unwrap();
        let expected = points_selected(&Selection::Points(points.clone()));
        prop_assert_eq!(delivered_points(&grid, &points), expected);
    }
}
