//! Numbers spread over a range, for samples.

/// The fractional part of the golden ratio, as a share of 2^64.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a place below `of` for each of `count` samples: all places in order if there are no
/// more, else multiples of the golden ratio, which spread evenly along all axes of a grid. Those of
/// a divisor of the grid would all lie in one column.
pub(crate) fn spread(count: u64, of: u64) -> impl Iterator<Item = u64> {
    (0..count.min(of)).map(move |number| {
        let spread = (u128::from(of) * u128::from(number.wrapping_mul(GOLDEN_RATIO))) >> 64;
        if count >= of { number } else { u64::try_from(spread).unwrap_or(0) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_below_their_number_and_are_all_places_where_these_are_few() {
        assert_eq!(spread(9, 4).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let many: Vec<u64> = spread(64, 1 << 40).collect();
        assert_eq!(many.len(), 64);
        assert!(many.iter().all(|at| *at < 1 << 40));
        let upper = many.iter().filter(|at| **at >= 1 << 39).count();
        assert!((28..=36).contains(&upper), "{upper}");
    }
}
