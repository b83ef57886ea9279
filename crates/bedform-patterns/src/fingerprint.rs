//! Linear fingerprints: 64 bits that stand for a place or a step, so that thousands of them are compared in
//! microseconds.
//!
//! The fingerprint of a place is a sum of its bounds, each times a fixed odd number, modulo 2^64. So it is linear:
//! that of `place.after(step)` is the sum of theirs, and of three places at equal steps the middle one's doubled is
//! that of the outer ones together. One lookup of a number tells whether a place at a given step was read. Different
//! places may have equal fingerprints, so each predicted place is computed, and an equal fingerprint at worst counts
//! one access as predicted that was not.

/// The fingerprint of a place or a step.
pub(crate) type Fingerprint = u64;

/// Bounds that have a factor of their own: those of 32 axes. Further ones share them.
const FACTORS: [u64; 64] = factors();

const fn factors() -> [u64; 64] {
    let (mut factors, mut at, mut state) = ([0; 64], 0, 0_u64);
    while at < factors.len() {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        factors[at] = (mixed ^ (mixed >> 31)) | 1;
        at += 1;
    }
    factors
}

/// Of moves of bounds.
#[inline]
pub(crate) fn of_step(moves: &[i64]) -> Fingerprint {
    let factors = FACTORS.iter().cycle();
    let terms =
        moves.iter().zip(factors).map(|(by, factor)| by.cast_unsigned().wrapping_mul(*factor));
    terms.fold(0, u64::wrapping_add)
}

/// Of bounds: places of another rank differ.
#[inline]
pub(crate) fn of_place(bounds: &[i64]) -> Fingerprint {
    of_step(bounds).wrapping_add((bounds.len() as u64).wrapping_mul(0xD1B5_4A32_D192_ED03))
}

/// The slot of a table of 2^bits, up to 2^16, by the highest bits: these differ most.
#[inline]
pub(crate) fn slot(fingerprint: Fingerprint, bits: u32) -> usize {
    usize::from((fingerprint >> 48) as u16 >> (u16::BITS - bits))
}

/// Solves for the number of steps between two fingerprints in one multiplication.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Divider {
    /// Zeros at the end of the step's fingerprint.
    zeros: u32,
    /// The inverse of the odd rest modulo 2^64.
    inverse: u64,
}

impl Divider {
    /// Nothing for steps that are none, or whose fingerprints leave too little to tell numbers apart.
    pub(crate) fn new(step: Fingerprint) -> Option<Self> {
        let zeros = step.trailing_zeros();
        if zeros > 32 {
            return None;
        }
        let odd = step >> zeros;
        // Newton's iteration doubles the right bits: 3, 6, 12, 24, 48, 96.
        let mut inverse = odd;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        Some(Self { zeros, inverse })
    }

    /// How many steps make up such a difference; nothing if no number does.
    #[inline]
    pub(crate) fn steps(self, difference: Fingerprint) -> Option<i64> {
        if difference & ((1 << self.zeros) - 1) != 0 {
            return None;
        }
        // Known modulo 2^(64 - zeros): the number nearest to none is taken.
        let steps = (difference >> self.zeros).wrapping_mul(self.inverse) << self.zeros;
        Some(steps.cast_signed() >> self.zeros)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Place;

    proptest! {
        #[test]
        fn the_fingerprint_after_a_step_is_the_sum(
            bounds in prop::collection::vec((-1000_i64..1000, -1000_i64..1000), 0..5),
            times in -40_i64..40,
        ) {
            let place = Place::new(bounds.iter().map(|(at, _)| (*at, at + 1)));
            let moved = |times| Place::new(bounds.iter().map(|(at, by)| (at + times * by, at + times * by + 1)));
            let step = place.step_to(&moved(1)).unwrap();
            let far = moved(times).fingerprint();
            let by = step.fingerprint().wrapping_mul(times.cast_unsigned());
            prop_assert_eq!(place.fingerprint().wrapping_add(by), far);
            if let Some(divider) = Divider::new(step.fingerprint()) {
                prop_assert_eq!(divider.steps(far.wrapping_sub(place.fingerprint())), Some(times));
            } else {
                prop_assert!(step.is_none());
            }
        }
    }

    #[test]
    fn places_of_another_rank_have_another_fingerprint() {
        let flat = Place::new([(0, 0)]);
        assert_ne!(flat.fingerprint(), Place::new([(0, 0), (0, 0)]).fingerprint());
    }
}
