//! Lanes: a layout that lets several writers append to one segment without communication.
//!
//! The file is divided into stripes of [`STRIPE_BYTES`], dealt to the lanes in turn. With `S` bytes
//! per stripe, byte `p` of lane `i` of `n` lies at byte `(p / S * n + i) * S + p % S` of the file.
//! So each writer appends to its lane as to a file of its own. An *address* names a byte of a
//! segment: the number of the lane times [`LANE_BYTES`], plus the position in the lane. In a
//! segment of one lane, the address is the offset in the file. Bytes of a lane that were never
//! written read as zeros.

use super::SegmentHeader;
use crate::metadata::{hex, parse_hex};
use crate::shard::Extent;

/// Length of a stripe in bytes: as much as a writer passes to the system at once.
pub const STRIPE_BYTES: u64 = 2 << 20;
/// The largest length of a lane in bytes, if a segment has several.
pub const LANE_BYTES: u64 = 1 << 44;
/// The largest number of lanes of a segment; all their addresses fit 63 bits.
const LANES_MAX: u32 = 1 << 16;

/// The number of lanes of a segment.
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
    /// A segment with one lane.
    pub const ONE: Self = Self { count: 1 };

    /// Makes a segment of `count` lanes; `None` for 0 and for more than the maximum.
    pub fn new(count: u32) -> Option<Self> {
        (1..=LANES_MAX).contains(&count).then_some(Self { count })
    }

    /// Returns the number of lanes.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Returns lane `number`, from 0; `None` if there is none.
    pub fn lane(self, number: u32) -> Option<Lane> {
        (number < self.count).then_some(Lane { lanes: self, number })
    }

    /// Returns all lanes.
    pub fn all(self) -> impl Iterator<Item = Lane> {
        (0..self.count).map(move |number| Lane { lanes: self, number })
    }

    /// Returns the offset in the file of the byte at `address`, and the number of bytes from there
    /// that are contiguous in both lane and file. `None` for an invalid address.
    pub fn run(self, address: u64) -> Option<Extent> {
        if self == Self::ONE {
            return Some(Extent { offset: address, length: u64::MAX - address });
        }
        let lane = self.lane(u32::try_from(address / LANE_BYTES).ok()?)?;
        Some(lane.run(address % LANE_BYTES))
    }

    /// Returns the address of the first byte of the lane that contains `address`.
    pub fn start_of(self, address: u64) -> u64 {
        if self == Self::ONE { 0 } else { address / LANE_BYTES * LANE_BYTES }
    }

    /// Returns the file size that includes the `length` bytes from `address`; `None` if they do not
    /// lie in one lane.
    pub fn end_of(self, address: u64, length: u64) -> Option<u64> {
        let last = address.checked_add(length)?.saturating_sub(1).max(address);
        if self != Self::ONE && address / LANE_BYTES != last / LANE_BYTES {
            return None;
        }
        self.run(last)?.offset.checked_add(u64::from(length > 0))
    }
}

impl Lane {
    /// The only lane of a segment with one writer.
    pub const ONLY: Self = Self { lanes: Lanes::ONE, number: 0 };

    /// Returns the lanes of the segment.
    pub fn lanes(self) -> Lanes {
        self.lanes
    }

    /// Returns the number of this lane, from 0.
    pub fn number(self) -> u32 {
        self.number
    }

    /// Returns true if the segment has one lane.
    pub fn is_alone(self) -> bool {
        self.lanes == Lanes::ONE
    }

    /// Returns the largest length of the lane in bytes.
    pub fn bytes_max(self) -> u64 {
        if self.is_alone() { i64::MAX.cast_unsigned() } else { LANE_BYTES }
    }

    /// Returns the address of byte `position` of the lane; `None` if it is past the end.
    pub fn address(self, position: u64) -> Option<u64> {
        (position < self.bytes_max())
            .then(|| u64::from(self.number).saturating_mul(LANE_BYTES).saturating_add(position))
    }

    /// Returns the offset in the file of byte `position` of the lane, and the number of bytes from
    /// there that are contiguous in both.
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

/// The name of a segment's object: session, first writer, and number of lanes.
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
    /// Identity of the session that writes the segment.
    pub session: [u8; 16],
    /// Rank of the writer of the first lane.
    pub rank: u32,
    /// The number of writers that share the segment.
    pub lanes: Lanes,
}

impl SegmentName {
    /// Parses a name; `None` for names of other objects.
    pub fn parse(name: &str) -> Option<Self> {
        let (session, rest) = name.split_once('-')?;
        let session = parse_hex(session)?;
        let (rank, lanes) = match rest.split_once('x') {
            None => (number(rest)?, Lanes::ONE),
            // Names omit a lane count of 1.
            Some((rank, count)) => {
                (number(rank)?, Lanes::new(number(count)?).filter(|lanes| *lanes != Lanes::ONE)?)
            }
        };
        Some(Self { session, rank, lanes })
    }
}

/// Parses a number in its canonical decimal form.
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
    /// Returns the name of a segment with one writer.
    fn from(header: &SegmentHeader) -> Self {
        Self { session: header.session, rank: header.rank, lanes: Lanes::ONE }
    }
}
