//! The record of a value index: the blocks of one array, and the objects that they were made of.
//!
//! A record names the Zarr group with the least and greatest values. It binds the group by a
//! fingerprint of each page of blocks, and the source by the version of each of its objects.
//! [`IndexRecord::decode`] refuses names that lead elsewhere, and counts that do not fit each other.
//!
//! # Bytes
//!
//! All numbers are little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | magic `BFINDEX` and a zero |
//! | 4 | version of this format, 1 |
//! | 4 | bytes of the description |
//! | 8 | number of pages |
//! | 8 | number of objects |
//! | 8 | coordinates of an object |
//! | .. | the description: JSON with the fields of [`IndexRecord`], except its pages and objects |
//! | .. | for each page its fingerprint (16) |
//! | .. | for each object its coordinates (8 each), 1 if it exists or else 0 (8), its last commit (8), its size, times and identity (40) |
//! | 4 | CRC-32C of everything before |

use serde::{Deserialize, Serialize};

use crate::Limits;
use crate::checksum::{Crc64, Fingerprint, crc32c};
use crate::chunk_map::SourceVersion;
use crate::chunk_map::wire::MapReader;
use crate::replica::{SourceObject, SourceObjects};

const MAGIC: [u8; 8] = *b"BFINDEX\0";
const VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = 4;
const PAGE_BYTES: usize = 16;
/// Size of an object without its coordinates in bytes.
const OBJECT_BYTES: usize = 56;
/// Largest length of the name of a group in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Largest number of stored values that mean that an element is missing.
const MISSING_VALUES_MAX: usize = 1 << 10;
/// Largest number of edges of bins; the numbers of bins and two more values fit a byte.
pub const EDGES_MAX: usize = 253;
/// The number of the bin of missing elements.
pub const MISSING_BIN: u8 = 255;
/// The value of elements whose bin is unknown: the fill value of their array.
pub const UNKNOWN_BIN: u8 = 254;
/// Largest number of elements of a block with tails.
pub const TAILED_BLOCK_MAX: u64 = 1 << 16;
/// Largest number of blocks of a page.
pub const PAGE_BLOCKS_MAX: u64 = 1 << 20;
/// Largest number of objects of one array that a record lists.
pub const INDEXED_OBJECTS_MAX: usize = 1 << 20;

/// The value index of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexRecord {
    /// Path of the array in its source.
    pub array: String,
    /// Name of the directory with the Zarr group of its arrays.
    pub group: String,
    /// Fingerprint of the array's type, grid, codecs and fill value, as in a replica.
    pub meaning: String,
    /// Stored values that mean that an element is missing, as little-endian bytes in hexadecimal
    /// digits. NaN always does.
    pub missing_values: Vec<String>,
    /// Shape of the array when the index was made.
    pub array_shape: Vec<u64>,
    /// Shape of a block in elements.
    pub block_shape: Vec<u64>,
    /// Shape of a page in blocks: a chunk of the arrays with an element for each block.
    pub page_shape: Vec<u64>,
    /// Edges of the bins of level two, ascending, as little-endian bytes of stored values in
    /// hexadecimal digits; none without level two. A value is in the bin whose number is that of the edges
    /// that are at most it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<String>,
    /// Name of the directory with the Zarr group of the bins; empty without level two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bins: String,
    /// True if level two has the values of the elements in the outermost bins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tails: bool,
    /// True if `optimize` made it, and may remove it. False for an index that a user built.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
    /// Size of the group in storage in bytes.
    pub stored_bytes: u64,
    /// Time of its creation, in seconds since 1970.
    pub made: u64,
    /// Key of the array, as in [`SourceObjects`].
    pub key: String,
    /// Fingerprint of the values of each page, in C order of the pages.
    #[serde(skip)]
    pub pages: Vec<u128>,
    /// The objects whose blocks are known. An unlisted object counts as changed.
    #[serde(skip)]
    pub objects: Vec<SourceObject>,
}

/// Returns the fingerprint of a page: of the number of bytes and the CRC-64 of each array's elements
/// in it, little-endian.
pub fn page_fingerprint(arrays: &[&[u8]]) -> u128 {
    let mut fingerprint = Fingerprint::new();
    for bytes in arrays {
        let mut checksum = Crc64::new();
        checksum.update(bytes);
        fingerprint.update_numbers(&[bytes.len() as u64, checksum.finish()]);
    }
    fingerprint.finish()
}

impl IndexRecord {
    /// Returns the objects with the array's key, as a replica lists them.
    pub fn source_objects(&self) -> SourceObjects {
        SourceObjects { key: self.key.clone(), objects: self.objects.clone() }
    }

    /// Returns the number of blocks along each axis.
    pub fn grid_shape(&self) -> Vec<u64> {
        counts(&self.array_shape, &self.block_shape)
    }

    /// The most elements of a block: positions in a block with tails have 16 bits.
    fn block_max(&self) -> u64 {
        if self.tails { TAILED_BLOCK_MAX } else { u64::from(u32::MAX) }
    }

    /// Encodes the record; `None` if its objects have different numbers of coordinates.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let description = serde_json::to_vec(self).ok()?;
        let rank = self.objects.first().map_or(0, |object| object.at.len());
        let each = OBJECT_BYTES + 8 * rank;
        let mut bytes = Vec::with_capacity(
            64 + description.len() + self.pages.len() * PAGE_BYTES + self.objects.len() * each,
        );
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(description.len()).ok()?.to_le_bytes());
        for count in [self.pages.len(), self.objects.len(), rank] {
            bytes.extend_from_slice(&(count as u64).to_le_bytes());
        }
        bytes.extend_from_slice(&description);
        self.pages.iter().for_each(|page| bytes.extend_from_slice(&page.to_le_bytes()));
        for object in &self.objects {
            if object.at.len() != rank {
                return None;
            }
            write_object(object, &mut bytes);
        }
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Some(bytes)
    }

    /// Decodes untrusted bytes; `None` if they are damaged, have an unknown version, or describe an
    /// invalid index. Memory use is not much larger than the input.
    ///
    /// ```
    /// use bedform_format::Limits;
    /// use bedform_format::index::IndexRecord;
    ///
    /// let record = IndexRecord {
    ///     array: "t".into(),
    ///     group: "00000001".into(),
    ///     array_shape: vec![100, 60],
    ///     block_shape: vec![10, 60],
    ///     page_shape: vec![10, 1],
    ///     pages: vec![7],
    ///     ..IndexRecord::default()
    /// };
    /// let bytes = record.encode().unwrap();
    /// assert_eq!(IndexRecord::decode(&bytes, &Limits::default()), Some(record));
    /// assert_eq!(IndexRecord::decode(&bytes[1..], &Limits::default()), None);
    /// ```
    pub fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        let (body, stored) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        let mut reader = MapReader { rest: body };
        let is_ours = reader.take(MAGIC.len()) == Some(&MAGIC) && reader.u32()? == VERSION;
        if !is_ours
            || bytes.len() as u64 > limits.index_bytes_max
            || u32::from_le_bytes(*stored) != crc32c(body)
        {
            return None;
        }
        let described = usize::try_from(reader.u32()?).ok()?;
        let mut count = || usize::try_from(reader.u64()?).ok();
        let (pages, objects, rank) = (count()?, count()?, count()?);
        let described = reader.take(described)?;
        if described.len() as u64 > limits.metadata_bytes_max || rank > limits.rank_max {
            return None;
        }
        let mut found: Self = serde_json::from_slice(described).ok()?;
        let each = OBJECT_BYTES + 8 * rank;
        let needed = pages.checked_mul(PAGE_BYTES)?.checked_add(objects.checked_mul(each)?)?;
        if needed != reader.rest.len() {
            return None;
        }
        found.pages = (0..pages).map(|_| read_page(&mut reader)).collect::<Option<_>>()?;
        found.objects =
            (0..objects).map(|_| read_object(&mut reader, rank)).collect::<Option<_>>()?;
        found.is_valid(rank, limits).then_some(found)
    }

    /// Returns true for a valid record; above all, its name must stay within its directory, and
    /// every block must lie in a page.
    fn is_valid(&self, coordinates: usize, limits: &Limits) -> bool {
        let rank = self.array_shape.len();
        let is_shape =
            |shape: &[u64]| shape.len() == rank && shape.iter().all(|length| *length > 0);
        let is_name = |name: &str| {
            (1..=NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let has_bins = !self.edges.is_empty();
        let are_names = is_name(&self.group)
            && if has_bins { is_name(&self.bins) } else { self.bins.is_empty() && !self.tails };
        if rank > limits.rank_max
            || !are_names
            || !is_shape(&self.block_shape)
            || !is_shape(&self.page_shape)
            || ![0, 2, rank].contains(&coordinates)
        {
            return false;
        }
        let of_page = product(&self.page_shape);
        let pages = product(&counts(&self.grid_shape(), &self.page_shape));
        self.missing_values.len() <= MISSING_VALUES_MAX
            && self.edges.len() <= EDGES_MAX
            && self.objects.len() <= INDEXED_OBJECTS_MAX
            && of_page.is_some_and(|blocks| blocks <= PAGE_BLOCKS_MAX)
            && product(&self.block_shape).is_some_and(|elements| elements <= self.block_max())
            && pages == Some(self.pages.len() as u64)
    }
}

/// Returns the number of parts along each axis of `shape`.
fn counts(shape: &[u64], part: &[u64]) -> Vec<u64> {
    shape.iter().zip(part).map(|(length, by)| length.div_ceil(*by)).collect()
}

fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |all, length| all.checked_mul(*length))
}

fn write_object(object: &SourceObject, bytes: &mut Vec<u8>) {
    let SourceObject { at, version, commit } = object;
    let is_there = u64::from(version.is_some());
    let SourceVersion { size, modified_ns, changed_ns, identity } =
        version.clone().unwrap_or_default();
    at.iter().for_each(|at| bytes.extend_from_slice(&at.to_le_bytes()));
    let numbers = [
        is_there,
        *commit,
        size,
        modified_ns.cast_unsigned(),
        changed_ns.cast_unsigned(),
        identity.0,
        identity.1,
    ];
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}

fn read_page(reader: &mut MapReader<'_>) -> Option<u128> {
    Some(u128::from_le_bytes(reader.take(PAGE_BYTES)?.try_into().ok()?))
}

fn read_object(reader: &mut MapReader<'_>, rank: usize) -> Option<SourceObject> {
    let at = (0..rank).map(|_| reader.u64()).collect::<Option<Vec<u64>>>()?;
    let (is_there, commit) = (reader.u64()?, reader.u64()?);
    let version = SourceVersion {
        size: reader.u64()?,
        modified_ns: reader.u64()?.cast_signed(),
        changed_ns: reader.u64()?.cast_signed(),
        identity: (reader.u64()?, reader.u64()?),
    };
    let version = match is_there {
        0 => None,
        1 => Some(version),
        _ => return None,
    };
    Some(SourceObject { at, version, commit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> IndexRecord {
        let version = SourceVersion { size: 9, modified_ns: -1, changed_ns: 2, identity: (3, 4) };
        let objects = vec![
            SourceObject { at: vec![0, 0], version: Some(version), commit: 5 },
            SourceObject { at: vec![1, 0], version: None, commit: 0 },
        ];
        IndexRecord {
            array: "g/t".into(),
            group: "00000001".into(),
            meaning: "m".into(),
            missing_values: vec!["0080".into()],
            array_shape: vec![10, 6],
            block_shape: vec![5, 3],
            page_shape: vec![1, 2],
            edges: vec!["0000".into(), "0500".into()],
            bins: "00000002".into(),
            tails: true,
            planned: true,
            stored_bytes: 100,
            made: 7,
            key: "k".into(),
            pages: vec![1, u128::MAX],
            objects,
        }
    }

    #[test]
    fn a_record_with_a_changed_bit_or_another_length_is_none() {
        let bytes = record().encode().unwrap();
        assert_eq!(IndexRecord::decode(&bytes, &Limits::default()), Some(record()));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(IndexRecord::decode(&changed, &Limits::default()).is_none(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(IndexRecord::decode(&bytes[..length], &Limits::default()).is_none());
        }
    }

    #[test]
    fn a_record_that_leads_elsewhere_or_whose_counts_do_not_fit_is_none() {
        let decoded = |record: IndexRecord| {
            IndexRecord::decode(&record.encode().unwrap(), &Limits::default())
        };
        for group in ["", "..", "a/b", ".hidden"] {
            let group = group.to_owned();
            assert!(decoded(IndexRecord { group: group.clone(), ..record() }).is_none());
            assert!(decoded(IndexRecord { bins: group, ..record() }).is_none());
        }
        assert!(decoded(IndexRecord { edges: Vec::new(), ..record() }).is_none());
        let edges = vec!["00".to_owned(); EDGES_MAX + 1];
        assert!(decoded(IndexRecord { edges, ..record() }).is_none());
        assert!(decoded(IndexRecord { pages: vec![1], ..record() }).is_none());
        let wide = IndexRecord {
            array_shape: vec![TAILED_BLOCK_MAX + 1, 2],
            block_shape: vec![TAILED_BLOCK_MAX + 1, 1],
            pages: vec![1],
            ..record()
        };
        assert!(decoded(IndexRecord { tails: false, ..wide.clone() }).is_some());
        assert!(decoded(wide).is_none());
        assert!(decoded(IndexRecord { block_shape: vec![0, 3], ..record() }).is_none());
        assert!(decoded(IndexRecord { page_shape: vec![1], ..record() }).is_none());
        let large = vec![1 << 20, 2];
        assert!(decoded(IndexRecord { page_shape: large, pages: vec![1], ..record() }).is_none());
        let object = SourceObject { at: vec![0], version: None, commit: 0 };
        assert!(decoded(IndexRecord { objects: vec![object], ..record() }).is_none());
        let mixed = SourceObject { at: vec![0], version: None, commit: 0 };
        let objects = [record().objects, vec![mixed]].concat();
        assert!(IndexRecord { objects, ..record() }.encode().is_none());
    }

    #[test]
    fn a_count_that_the_bytes_do_not_hold_is_refused_before_memory_is_taken() {
        let mut bytes = record().encode().unwrap();
        bytes[24..32].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        let end = bytes.len() - CHECKSUM_BYTES;
        let checksum = crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        assert!(IndexRecord::decode(&bytes, &Limits::default()).is_none());
    }
}
