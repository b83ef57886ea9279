//! Lanes: how several writers share a segment without talking to each other.
//!
//! The file is cut into stripes of [`STRIPE_BYTES`], which go to the lanes in turn: byte `p` of lane `i`
//! of `n` lies at byte `(p / S * n + i) * S + p % S` of the file. So a lane is a run of bytes that its
//! writer appends to, as a whole segment is where there is but one lane. What lies in a segment is
//! named by an *address*, the number of the lane above [`LANE_BYTES`]; of a single lane that is the
//! place in the file. What was never written of a lane reads as zeros.

use super::SegmentHeader;
use crate::metadata::{hex, parse_hex};
use crate::shard::Extent;

/// Bytes of a stripe: as much as a writer hands to the system at once.
pub const STRIPE_BYTES: u64 = 2 << 20;
/// Bytes that a lane has at most, if it is not alone.
pub const LANE_BYTES: u64 = 1 << 44;
/// Lanes that a segment has at most: with the bytes of each, places that 63 bits count.
const LANES_MAX: u32 = 1 << 16;

/// How many writers share a segment.
///
/// ```
/// use bedform_format::log::{Lanes, STRIPE_BYTES};
/// let lanes = Lanes::new(3).unwrap();
/// let address = lanes.lane(2).unwrap().address(STRIPE_BYTES + 5).unwrap();
/// // The second stripe of the last of three lanes is the sixth of the file.
/// let run = lanes.run(address).unwrap();
/// assert_eq!((run.offset, run.length), (5 * STRIPE_BYTES + 5, STRIPE_BYTES - 5));
/// assert_eq!(Lanes::ONE.run(77).unwrap().offset, 77);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lanes {
    count: u32,
}

/// One of the lanes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane {
    lanes: Lanes,
    number: u32,
}

impl Lanes {
    /// A segment of one writer.
    pub const ONE: Self = Self { count: 1 };

    /// So many; `None` for none, and for more than there can be.
    pub fn new(count: u32) -> Option<Self> {
        (1..=LANES_MAX).contains(&count).then_some(Self { count })
    }

    /// How many.
    pub fn count(self) -> u32 {
        self.count
    }

    /// The lane with this number, from 0; `None` if there is none.
    pub fn lane(self, number: u32) -> Option<Lane> {
        (number < self.count).then_some(Lane { lanes: self, number })
    }

    /// All lanes.
    pub fn all(self) -> impl Iterator<Item = Lane> {
        (0..self.count).map(move |number| Lane { lanes: self, number })
    }

    /// Where the byte at an address lies in the file, and how many bytes from there on follow each
    /// other in both; `None` for what is no address.
    pub fn run(self, address: u64) -> Option<Extent> {
        if self == Self::ONE {
            return Some(Extent { offset: address, length: u64::MAX - address });
        }
        let lane = self.lane(u32::try_from(address / LANE_BYTES).ok()?)?;
        Some(lane.run(address % LANE_BYTES))
    }

    /// The address of the first byte of the lane that an address is in.
    pub fn start_of(self, address: u64) -> u64 {
        if self == Self::ONE { 0 } else { address / LANE_BYTES * LANE_BYTES }
    }

    /// The bytes that a file must have for the `length` bytes from an address on to be in it; `None`
    /// if they do not lie in one lane.
    pub fn end_of(self, address: u64, length: u64) -> Option<u64> {
        let last = address.checked_add(length)?.saturating_sub(1).max(address);
        if self != Self::ONE && address / LANE_BYTES != last / LANE_BYTES {
            return None;
        }
        self.run(last)?.offset.checked_add(u64::from(length > 0))
    }
}

impl Lane {
    /// The only lane of a segment of one writer.
    pub const ONLY: Self = Self { lanes: Lanes::ONE, number: 0 };

    /// All lanes of the segment.
    pub fn lanes(self) -> Lanes {
        self.lanes
    }

    /// Which of them it is, from 0.
    pub fn number(self) -> u32 {
        self.number
    }

    /// True if nobody shares the segment.
    pub fn is_alone(self) -> bool {
        self.lanes == Lanes::ONE
    }

    /// Bytes that the lane has at most.
    pub fn bytes_max(self) -> u64 {
        if self.is_alone() { i64::MAX.cast_unsigned() } else { LANE_BYTES }
    }

    /// The address of the lane's byte `position`; `None` if the lane has no such byte.
    pub fn address(self, position: u64) -> Option<u64> {
        (position < self.bytes_max())
            .then(|| u64::from(self.number).saturating_mul(LANE_BYTES).saturating_add(position))
    }

    /// Where the lane's byte `position` lies in the file, and how many bytes from there on follow each
    /// other in both.
    pub fn run(self, position: u64) -> Extent {
        if self.is_alone() {
            return Extent { offset: position, length: u64::MAX - position };
        }
        let (stripe, within) = (position / STRIPE_BYTES, position % STRIPE_BYTES);
        let stripe = stripe.saturating_mul(u64::from(self.lanes.count));
        let stripe = stripe.saturating_add(u64::from(self.number));
        let offset = stripe.saturating_mul(STRIPE_BYTES).saturating_add(within);
        Extent { offset, length: STRIPE_BYTES - within }
    }
}

/// The name of a segment's object: whose it is, and how to find what lies in it.
///
/// ```
/// use bedform_format::log::{Lanes, SegmentName};
/// let name = SegmentName { session: [0xab; 16], rank: 3, lanes: Lanes::new(16).unwrap() };
/// assert_eq!(name.to_string(), "abababababababababababababababab-3x16");
/// assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
/// assert_eq!(SegmentName::parse("abababababababababababababababab-3").unwrap().lanes, Lanes::ONE);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentName {
    /// Identity of the session that writes it.
    pub session: [u8; 16],
    /// Rank of the writer of the first lane.
    pub rank: u32,
    /// How many writers share it.
    pub lanes: Lanes,
}

impl SegmentName {
    /// What a name says; `None` for names of anything else.
    pub fn parse(name: &str) -> Option<Self> {
        let (session, rest) = name.split_once('-')?;
        let session = parse_hex(session)?;
        let (rank, lanes) = match rest.split_once('x') {
            None => (number(rest)?, Lanes::ONE),
            // One lane is not mentioned.
            Some((rank, count)) => {
                (number(rank)?, Lanes::new(number(count)?).filter(|lanes| *lanes != Lanes::ONE)?)
            }
        };
        Some(Self { session, rank, lanes })
    }
}

/// The number that `text` is the only way to write.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", hex(&self.session), self.rank)?;
        match self.lanes {
            Lanes::ONE => Ok(()),
            Lanes { count } => write!(formatter, "x{count}"),
        }
    }
}

impl From<&SegmentHeader> for SegmentName {
    /// The name of a segment of one writer.
    fn from(header: &SegmentHeader) -> Self {
        Self { session: header.session, rank: header.rank, lanes: Lanes::ONE }
    }
}
