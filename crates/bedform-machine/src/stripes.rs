//! The pieces of requests to striped files: byte ranges of objects.

use crate::workload::FileLayout;

/// The contiguous bytes that a request takes from one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPiece {
    /// The target that holds the object.
    pub target: u32,
    /// Index of the object in the file.
    pub object: u32,
    /// Offset of its first byte in the object.
    pub offset: u64,
    /// Its length in bytes, at least 1.
    pub length: u64,
}

impl FileLayout {
    /// Returns the pieces of the `length` bytes from `offset` on, with `targets` targets; none if
    /// `length` is 0. The first piece contains the first byte.
    pub(super) fn pieces(
        self,
        targets: u32,
        offset: u64,
        length: u64,
    ) -> impl Iterator<Item = RequestPiece> {
        let Self { first, count, bytes } = self;
        let width = u64::from(count);
        let end = offset + length;
        let begin_stripe = offset / bytes;
        let stripes = if length == 0 { 0 } else { (end - 1) / bytes - begin_stripe + 1 };
        (0..stripes.min(width)).map(move |step| {
            let stripe = begin_stripe + step;
            let object = stripe % width;
            // The bytes of the object before the start, and before the end, of the request.
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
            RequestPiece {
                target: narrow((first + object) % u64::from(targets)),
                object: narrow(object),
                offset: begin,
                length: before(end) - begin,
            }
        })
    }
}

/// Narrows a value that is smaller than the number of targets.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
