//! Which bytes of which objects a request of a striped file is.

use crate::workload::Layout;

/// The bytes that a request takes of one object: a run there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The target that holds the object.
    pub target: u32,
    /// Which of the file's objects it is.
    pub object: u32,
    /// Its first byte in the object.
    pub offset: u64,
    /// Its bytes, at least one.
    pub length: u64,
}

impl Layout {
    /// The pieces of the `length` bytes from `offset` on, on `targets` targets; none if `length` is 0.
    /// The first piece is that of the first byte.
    pub(super) fn pieces(
        self,
        targets: u32,
        offset: u64,
        length: u64,
    ) -> impl Iterator<Item = Piece> {
        let Self { first, count, bytes } = self;
        let width = u64::from(count);
        let end = offset + length;
        let begin_stripe = offset / bytes;
        let stripes = if length == 0 { 0 } else { (end - 1) / bytes - begin_stripe + 1 };
        (0..stripes.min(width)).map(move |step| {
            let stripe = begin_stripe + step;
            let object = stripe % width;
            // Bytes of the object before the request begins, and before it ends.
            let before = |byte: u64| {
                let (whole, rest) = (byte / bytes, byte % bytes);
                let round = whole / width;
                match (whole % width).cmp(&object) {
                    std::cmp::Ordering::Less => round * bytes,
                    std::cmp::Ordering::Equal => round * bytes + rest,
                    std::cmp::Ordering::Greater => (round + 1) * bytes,
                }
            };
            let begin = before(offset);
            Piece {
                target: narrow((first + object) % u64::from(targets)),
                object: narrow(object),
                offset: begin,
                length: before(end) - begin,
            }
        })
    }
}

/// Narrows a value that is known to be smaller than a number of targets.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
