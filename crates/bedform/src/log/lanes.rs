//! Opened segments: their bytes by address, in the lanes of all their writers.
//!
//! Names and addresses come from files and may be wrong: an address that lies in no lane gives
//! `Truncated`, as an address behind the end does.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::{Lanes, SegmentName};
use bedform_format::shard::Extent;
use bedform_storage::{Object, ReadBlock, StorageError, StorageErrorKind, forward, lacks};

use super::parts::{StorageResult, segment_of};
use super::place::LogPlace;
use crate::error::Result;

/// Bytes of a page; stripes begin at multiples of it.
const PAGE_BYTES: u64 = 4096;

/// An opened segment.
#[derive(Debug)]
pub(super) struct OpenedSegment {
    /// The bytes of the segment, by address.
    pub(super) object: Arc<dyn Object>,
    pub(super) lanes: Lanes,
}

impl OpenedSegment {
    /// Opens the segment with this name, which may be any text.
    ///
    /// # Errors
    /// As [`bedform_storage::Storage::open`]; if `name` is not a valid name.
    pub(super) fn open(place: &LogPlace, name: &str) -> Result<Self> {
        let lanes = SegmentName::parse(name).map_or(Lanes::ONE, |name| name.lanes);
        let path = LogPlace::segment_path(name)?;
        let file = segment_of(&*place.storage, &path, place.storage.open(&path)?)?;
        let object: Arc<dyn Object> = match lanes {
            Lanes::ONE => Arc::from(file),
            lanes => Arc::new(LaneObject { file, lanes, path }),
        };
        Ok(Self { object, lanes })
    }

    /// True if the `length` bytes at an address were there when the segment was opened.
    pub(super) fn holds(&self, address: u64, length: u64) -> bool {
        let end = self.lanes.end_of(address, length);
        end.is_some_and(|end| end <= self.object.version().size)
    }
}

/// The object of a segment with several lanes, by address.
#[derive(Debug)]
struct LaneObject {
    file: Box<dyn Object>,
    lanes: Lanes,
    path: ObjectPath,
}

impl LaneObject {
    /// Returns the byte ranges of the file that hold the `length` bytes at an address, in order.
    fn runs(&self, address: u64, length: u64) -> impl Iterator<Item = StorageResult<Extent>> + '_ {
        let (mut at, mut left) = (address, length);
        let is_within = length == 0 || self.lanes.end_of(address, length).is_some();
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let run = self.lanes.run(at).filter(|_| is_within);
            let Some(run) = run else {
                left = 0;
                let kind = StorageErrorKind::Truncated;
                return Some(Err(StorageError::new(kind, "read", &self.path)));
            };
            let length = run.length.min(left);
            (at, left) = (at + length, left - length);
            Some(Ok(Extent { offset: run.offset, length }))
        })
    }

    fn pieces<'b>(
        &self,
        address: u64,
        mut buffer: &'b mut [u8],
    ) -> impl Iterator<Item = StorageResult<(u64, &'b mut [u8])>> {
        self.runs(address, buffer.len() as u64).map(move |run| {
            let Extent { offset, length } = run?;
            let whole = std::mem::take(&mut buffer);
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(whole.len());
            let (now, later) = whole.split_at_mut(length);
            buffer = later;
            Ok((offset, now))
        })
    }
}

impl LaneObject {
    /// Reads byte ranges one behind the other into the block; all but the first begin at a page.
    /// Returns the position of the bytes in the block, or `None` if they do not fit.
    fn read_runs(&self, runs: &[Extent], block: &mut ReadBlock) -> StorageResult<Option<usize>> {
        let first = runs.first().map_or(0, |run| index(run.offset % PAGE_BYTES));
        let mut at = first;
        for Extent { offset, length } in runs {
            let length = index(*length);
            block.set_start(at / index(PAGE_BYTES) * index(PAGE_BYTES));
            if self.file.read_past(*offset, length, block)?.is_none() {
                block.set_start(at);
                let part = block.memory().and_then(|memory| memory.get_mut(..length));
                let Some(part) = part else { return Ok(None) };
                self.file.read(*offset, part)?;
            }
            at += length;
        }
        Ok(Some(first))
    }
}

impl Object for LaneObject {
    fn read(&self, address: u64, buffer: &mut [u8]) -> StorageResult<()> {
        for piece in self.pieces(address, buffer) {
            let (offset, bytes) = piece?;
            self.file.read(offset, bytes)?;
        }
        Ok(())
    }

    fn read_past<'b>(
        &self,
        address: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> StorageResult<Option<&'b [u8]>> {
        if length > ReadBlock::BYTES {
            return Ok(None);
        }
        let runs: Vec<Extent> = self.runs(address, length as u64).collect::<StorageResult<_>>()?;
        match runs.as_slice() {
            [] => Ok(None),
            [run] => self.file.read_past(run.offset, length, block),
            runs => {
                let outcome = self.read_runs(runs, block);
                block.set_start(0);
                let Some(start) = outcome? else { return Ok(None) };
                Ok(block.memory().and_then(|memory| memory.get(start..start + length)))
            }
        }
    }

    fn read_ahead(&self, address: u64, length: u64) -> bool {
        let mut is_known = false;
        for run in self.runs(address, length).flatten() {
            is_known |= self.file.read_ahead(run.offset, run.length);
        }
        is_known
    }

    fn read_resident(&self, address: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        let mut count = 0;
        for piece in self.pieces(address, buffer) {
            let (offset, bytes) = piece?;
            let found = self.file.read_resident(offset, bytes)?;
            count += found;
            if found < bytes.len() {
                break;
            }
        }
        Ok(count)
    }

    lacks!(request, buffered_range, buffered_bytes, kept);

    forward!(self.file as Object: version, is_current);
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Positions within a block fit.
    value as usize
}

#[cfg(test)]
mod tests {
    use bedform_format::log::{LANE_BYTES, STRIPE_BYTES};
    use bedform_storage::{Durability, MemoryStorage, Storage as _};
    use proptest::prelude::*;

    use super::*;

    /// A segment of two lanes: a stripe and a half in the first, a stripe in the second.
    fn segment() -> (LaneObject, Vec<Vec<u8>>) {
        let storage = MemoryStorage::new();
        let path = ObjectPath::parse("a").unwrap();
        let lanes = Lanes::new(2).unwrap();
        let mut model = Vec::new();
        for (lane, length) in lanes.all().zip([STRIPE_BYTES * 3 / 2, STRIPE_BYTES]) {
            let mut growing = storage.grow_lane(&path, lane, Durability::Disk).unwrap();
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ 0x40).collect();
            growing.append(&bytes).unwrap();
            growing.sync().unwrap();
            model.push(bytes);
        }
        (LaneObject { file: storage.open(&path).unwrap(), lanes, path }, model)
    }

    #[test]
    fn a_read_gives_what_the_lane_has_across_stripes_or_says_that_there_is_nothing() {
        let (object, model) = segment();
        let mut bytes = vec![0; 5000];
        object.read(STRIPE_BYTES - 2000, &mut bytes).unwrap();
        let start = usize::try_from(STRIPE_BYTES).unwrap() - 2000;
        assert!(bytes == model[0][start..start + 5000]);
        bytes.fill(0);
        assert_eq!(object.read_resident(STRIPE_BYTES - 2000, &mut bytes).unwrap(), 5000);
        assert!(bytes == model[0][start..start + 5000]);
        object.read(LANE_BYTES + 7, &mut bytes).unwrap();
        assert!(bytes == model[1][7..5007]);
        for address in [
            2 * STRIPE_BYTES,
            LANE_BYTES - 2500,
            LANE_BYTES + STRIPE_BYTES,
            2 * LANE_BYTES,
            u64::MAX - 100,
        ] {
            let error = object.read(address, &mut bytes).unwrap_err();
            assert_eq!(error.kind, StorageErrorKind::Truncated, "{address}");
            assert!(!object.read_ahead(address, 5000));
        }
    }

    #[test]
    fn bytes_of_several_stripes_lie_one_behind_the_other_in_a_block() {
        let (object, model) = segment();
        let stripe = usize::try_from(STRIPE_BYTES).unwrap();
        let mut block = ReadBlock::default();
        for (start, length) in [(stripe - 300_000, 700_000), (stripe - 5, 9), (stripe - 4096, 5000)]
        {
            let found = object.read_past(start as u64, length, &mut block).unwrap();
            assert!(found.unwrap() == &model[0][start..start + length], "{start}");
        }
        let address = STRIPE_BYTES / 2;
        for length in [ReadBlock::BYTES - 5, ReadBlock::BYTES + 1] {
            assert!(
                object.read_past(address + 7, length, &mut block).is_ok_and(|none| none.is_none())
            );
        }
        assert!(object.read_past(2 * STRIPE_BYTES - 9, 10, &mut block).is_err());
        assert_eq!(block.memory().unwrap().len(), ReadBlock::BYTES, "all of it is there again");
    }

    proptest! {
        #[test]
        fn no_address_is_too_much(
            lane in 0_u64..4, near in 0_u64..4 * STRIPE_BYTES, any: u64, length in 0_usize..9000,
        ) {
            let (object, _) = segment();
            let mut block = ReadBlock::default();
            for address in [any, lane * LANE_BYTES + near, lane * LANE_BYTES.wrapping_sub(near)] {
                let mut bytes = vec![0; length];
                let _ = object.read(address, &mut bytes);
                let _ = object.read_resident(address, &mut bytes);
                let _ = object.read_past(address, length, &mut block);
                let _ = object.read_ahead(address, any);
            }
        }
    }
}
