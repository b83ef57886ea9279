//! The order of the boxes of one cluster: a spiral (dissertation of Tang, section 4.2.2, algorithm
//! 1, line 13).
//!
//! The spiral begins at the middle of the cluster and goes outwards, shell by shell, once around in
//! each. The dissertation does not define it. Here, the offset of a box is that of its centre from
//! the centre of the cluster, on each axis in units of the average length of the cluster's boxes.
//! The shell is the largest offset of all axes, rounded. Along one axis a spiral has no sense, and
//! the boxes follow each other by their starts. With more than two axes, a shell is divided into
//! layers along all axes but the last two, and each layer is a spiral.

use std::cmp::Ordering;

use crate::box_tiles::ListedBounds;

/// The place of a box in a spiral.
#[derive(Debug, Clone, Copy)]
struct SpiralPlace {
    /// The largest offset on all axes.
    shell: u128,
    /// The largest offset on the last two axes.
    ring: u128,
    /// The position in the ring, from 0 to 4.
    turn: f64,
    number: u32,
}

/// The middle of a cluster and the average length of its boxes.
struct SpiralFrame<'a> {
    boxes: ListedBounds<'a>,
    /// Twice the centre.
    middle: Vec<i128>,
    length: Vec<i128>,
}

/// Orders the boxes of a cluster.
pub(super) fn sort_spiral(boxes: ListedBounds<'_>, members: &mut [u32]) {
    let bounds = |number| {
        let cells = boxes.get(number);
        (cells.start, cells.stop, number)
    };
    if boxes.rank() == 1 || members.len() < 3 {
        members.sort_unstable_by(|a, b| bounds(*a).cmp(&bounds(*b)));
        return;
    }
    let frame = SpiralFrame::new(boxes, members);
    let mut places: Vec<_> = members.iter().map(|&number| frame.place(number)).collect();
    places.sort_unstable_by(|a, b| {
        let ring = a.ring.cmp(&b.ring).then(a.turn.total_cmp(&b.turn));
        let end = || bounds(a.number).cmp(&bounds(b.number));
        let layer = || frame.compare_layers(a.number, b.number);
        a.shell.cmp(&b.shell).then_with(layer).then(ring).then_with(end)
    });
    for (member, place) in members.iter_mut().zip(places) {
        *member = place.number;
    }
}

impl<'a> SpiralFrame<'a> {
    /// Makes the frame of a cluster that is not empty.
    fn new(boxes: ListedBounds<'a>, members: &[u32]) -> Self {
        let rank = boxes.rank();
        let (mut least, mut most) = (vec![i64::MAX; rank], vec![i64::MIN; rank]);
        let mut length = vec![0_i128; rank];
        for &number in members {
            let cells = boxes.get(number);
            for axis in 0..rank {
                least[axis] = least[axis].min(cells.start[axis]);
                most[axis] = most[axis].max(cells.stop[axis]);
                length[axis] += i128::from(cells.stop[axis]) - i128::from(cells.start[axis]);
            }
        }
        for length in &mut length {
            *length = (*length / members.len() as i128).max(1);
        }
        let middle = least.iter().zip(most).map(|(&a, b)| i128::from(a) + i128::from(b)).collect();
        Self { boxes, middle, length }
    }

    /// Returns twice the distance in cells of a box from the middle.
    fn offset(&self, number: u32, axis: usize) -> i128 {
        let cells = self.boxes.get(number);
        i128::from(cells.start[axis]) + i128::from(cells.stop[axis]) - self.middle[axis]
    }

    /// Returns the distance of a box from the middle in average lengths, rounded.
    fn layer(&self, number: u32, axis: usize) -> i128 {
        let (offset, length) = (self.offset(number, axis), self.length[axis]);
        offset.signum() * ((offset.abs() + length) / (2 * length))
    }

    fn place(&self, number: u32) -> SpiralPlace {
        let rank = self.length.len();
        let away = |axis: usize| self.layer(number, axis).unsigned_abs();
        let share = |axis: usize| self.offset(number, axis) as f64 / self.length[axis] as f64;
        SpiralPlace {
            shell: (0..rank).map(away).max().unwrap_or(0),
            ring: away(rank - 2).max(away(rank - 1)),
            turn: turn(share(rank - 2), share(rank - 1)),
            number,
        }
    }

    /// Compares the layers of two boxes along all axes but the last two.
    fn compare_layers(&self, a: u32, b: u32) -> Ordering {
        let layers = 0..self.length.len() - 2;
        layers
            .map(|axis| self.layer(a, axis).cmp(&self.layer(b, axis)))
            .fold(Ordering::Equal, Ordering::then)
    }
}

/// Returns the position of a direction in a turn of 4: 0 along the second axis, 1 along the first.
/// It grows with the angle and needs no function whose result differs between machines.
fn turn(first: f64, second: f64) -> f64 {
    let sum = first.abs() + second.abs();
    if sum == 0.0 {
        return 0.0;
    }
    match (first >= 0.0, second >= 0.0) {
        (true, true) => first / sum,
        (true, false) => 1.0 - second / sum,
        (false, false) => 2.0 - first / sum,
        (false, true) => 3.0 + second / sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::BoxList;

    /// Returns the places of the unit boxes of a grid in the order of their spiral.
    fn spiral(shape: &[i64]) -> Vec<Vec<i64>> {
        let mut boxes = BoxList::new(shape.len()).unwrap();
        for place in 0..shape.iter().product() {
            let mut rest: i64 = place;
            let mut start = vec![0; shape.len()];
            for (start, length) in start.iter_mut().zip(shape).rev() {
                (*start, rest) = (rest % length, rest / length);
            }
            let stop: Vec<i64> = start.iter().map(|start| start + 1).collect();
            boxes.push(&start, &stop).unwrap();
        }
        let listed = ListedBounds::of(&boxes).unwrap();
        let mut members: Vec<u32> = listed.numbers().collect();
        sort_spiral(listed, &mut members);
        members.iter().map(|&number| listed.get(number).start.to_vec()).collect()
    }

    #[test]
    fn a_spiral_goes_outwards_once_around_in_each_ring() {
        assert_eq!(spiral(&[2, 2]), [[1, 1], [1, 0], [0, 0], [0, 1]]);
        let places = spiral(&[5, 5]);
        assert_eq!(places[0], [2, 2]);
        let ring = |place: &[i64]| (place[0] - 2).abs().max((place[1] - 2).abs());
        assert!(places.is_sorted_by_key(|place| ring(place)));
        for pair in places.windows(2) {
            let steps = [0, 1].map(|axis| (pair[0][axis] - pair[1][axis]).abs());
            assert!(steps[0].max(steps[1]) == 1, "{pair:?} do not touch");
        }
    }

    #[test]
    fn boxes_in_a_row_follow_each_other_along_it() {
        assert_eq!(spiral(&[4]), [[0], [1], [2], [3]]);
    }

    #[test]
    fn a_shell_of_three_axes_is_visited_layer_by_layer() {
        let places = spiral(&[3, 3, 3]);
        assert_eq!(places[0], [1, 1, 1]);
        let layers: Vec<i64> = places[1..].iter().map(|place| place[0]).collect();
        assert_eq!(layers, [vec![0; 9], vec![1; 8], vec![2; 9]].concat());
    }
}
