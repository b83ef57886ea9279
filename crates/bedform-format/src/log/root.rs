//! A root: the commits that are not settled, in order. The highest root of a log is the truth.
//!
//! A small JSON document that only Bedform writes, once:
//!
//! ```json
//! {
//!  "bedform": {
//!   "version": 1,
//!   "store": "00112233445566778899aabbccddeeff",
//!   "seal": "0000000466:1f2e3d4c"
//!  },
//!  "number": 42,
//!  "settled": 40,
//!  "commits": [
//!   {"number": 41, "segment": "...-0", "offset": 4096, "stored_bytes": 90, "bytes": 200, "codec": 1}
//!  ],
//!  "shapes": {"0f1e2d3c4b5a69788796a5b4c3d2e1f0": [40, 96, 192]},
//!  "sessions": {"ffeeddccbbaa99887766554433221100": 2},
//!  "settled_shards": {"number": 40, "bytes": 90, "checksum": 12345}
//! }
//! ```
//!
//! Where no shards are listed there is no `settled_shards`.
//! The seal is that of the store's own documents: length and CRC-32C. It must be there, and the
//! document must be byte for byte what would be written for what it says.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Result, SealedCodec, check_limit, check_segment_name, invalid};
use crate::fields::{self, Fields};
use crate::metadata::{self, check_seal_in_form, hex, identity_field, parse_hex, seal};
use crate::{Limits, json};

const WHAT: &str = "a root";
const COMMIT: &str = "a commit of a root";
/// The highest number that the name of a root holds.
const NUMBER_MAX: u64 = 9_999_999_999;
const NUMBER_DIGITS: usize = 10;

/// The state of a log: which commits count.
///
/// ```
/// use bedform_format::{Limits, log::{CommitRecord, Root, SealedCodec}};
/// let commit = CommitRecord {
///     number: 41,
///     segment: "abc-0".into(),
///     offset: 4096,
///     stored_bytes: 90,
///     bytes: 200,
///     codec: SealedCodec::Zstd,
/// };
/// let root = Root {
///     store: [1; 16],
///     number: 42,
///     settled: 40,
///     commits: vec![commit],
///     shapes: [([3; 16], vec![40, 96, 192])].into(),
///     sessions: [([4; 16], 2)].into(),
///     settled_shards: None,
/// };
/// let limits = Limits::default();
/// assert_eq!(Root::decode(&root.encode(&limits)?, &limits)?, root);
/// assert_eq!(Root::name(root.number), "0000000042.json");
/// assert_eq!(Root::parse_name("0000000042.json"), Some(42));
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Identity of the store.
    pub store: [u8; 16],
    /// The number of this root.
    pub number: u64,
    /// Commits up to this one are in the shards.
    pub settled: u64,
    /// The commits after it, in order.
    pub commits: Vec<CommitRecord>,
    /// The shapes of the arrays that commits have made larger, by their keys, after the last commit.
    pub shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// The last epoch of each session that was committed: what tells the records of a commit from
    /// those that a writer left behind when it died.
    pub sessions: BTreeMap<[u8; 16], u32>,
    /// The list of the shards that were settled since the log has had commits.
    pub settled_shards: Option<SettledRecord>,
}

/// Where the list of settled shards is, and that it is this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettledRecord {
    /// The number of the root that it came with.
    pub number: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// CRC-32C of these bytes.
    pub checksum: u32,
}

impl SettledRecord {
    fn to_json(self) -> Value {
        json!({"number": self.number, "bytes": self.bytes, "checksum": self.checksum})
    }

    fn parse(value: &Value) -> Result<Self> {
        let fields = Fields::new("settled_shards", value)?;
        let checksum = number(&fields, "checksum")?;
        let checksum = u32::try_from(checksum)
            .map_err(|_| invalid(WHAT, format!("a checksum of {checksum}")))?;
        let (number, bytes) = (number(&fields, "number")?, number(&fields, "bytes")?);
        Ok(Self { number, bytes, checksum })
    }
}

/// A commit: where its directory lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitRecord {
    /// The number of the root that it came with.
    pub number: u64,
    /// The name of the segment.
    pub segment: String,
    /// Of the directory's record in the segment.
    pub offset: u64,
    /// Bytes in the segment.
    pub stored_bytes: u64,
    /// Bytes when decompressed.
    pub bytes: u64,
    /// How they are compressed.
    pub codec: SealedCodec,
}

impl CommitRecord {
    fn check(&self, limits: &Limits) -> Result<()> {
        check_segment_name(&self.segment)?;
        // Other readers of JSON have no larger integers.
        let end = self.offset.checked_add(self.stored_bytes);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            let problem = format!("bytes {} + {} of a segment", self.offset, self.stored_bytes);
            return Err(invalid(COMMIT, problem));
        }
        let largest = self.bytes.max(self.stored_bytes);
        check_limit("bytes in a directory", largest, limits.index_bytes_max)
    }

    fn to_json(&self) -> Value {
        json!({
            "number": self.number,
            "segment": self.segment,
            "offset": self.offset,
            "stored_bytes": self.stored_bytes,
            "bytes": self.bytes,
            "codec": self.codec.code(),
        })
    }

    fn parse(path: &str, value: &Value) -> Result<Self> {
        let fields = Fields::new(path, value)?;
        Ok(Self {
            number: number(&fields, "number")?,
            segment: fields.text("segment")?.to_owned(),
            offset: number(&fields, "offset")?,
            stored_bytes: number(&fields, "stored_bytes")?,
            bytes: number(&fields, "bytes")?,
            codec: SealedCodec::from_code(number(&fields, "codec")?)?,
        })
    }
}

impl Root {
    /// The name of the root of this number, which is at most 9,999,999,999.
    pub fn name(number: u64) -> String {
        format!("{number:0NUMBER_DIGITS$}.json")
    }

    /// The number of the root of this name; `None` for names of anything else.
    pub fn parse_name(name: &str) -> Option<u64> {
        let digits = name.strip_suffix(".json")?;
        let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
        if is_number { digits.parse().ok() } else { None }
    }

    /// Checks what [`Root::decode`] promises of what it gives: commits follow each other, none is
    /// settled or newer than the root, and names are safe.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) says what does not hold.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        check_limit("as the number of a root", self.number, NUMBER_MAX)?;
        let numbers = self.commits.iter().map(|commit| commit.number);
        let is_ascending = [self.settled].into_iter().chain(numbers).is_sorted_by(|a, b| a < b);
        let last = self.commits.last().map_or(self.settled, |commit| commit.number);
        if !is_ascending || last > self.number {
            let problem = "its commits do not ascend from what is settled to its number";
            return Err(invalid(WHAT, problem));
        }
        for (key, shape) in &self.shapes {
            check_limit("axes", shape.len() as u64, limits.rank_max as u64)?;
            if let Some(length) = shape.iter().find(|length| i64::try_from(**length).is_err()) {
                return Err(invalid(
                    WHAT,
                    format!("the shape of {} has the length {length}", hex(key)),
                ));
            }
        }
        if let Some(SettledRecord { number, bytes, .. }) = self.settled_shards {
            check_limit("bytes of settled shards", bytes, limits.index_bytes_max)?;
            if number > self.number {
                return Err(invalid(WHAT, "a list of settled shards that is newer"));
            }
        }
        self.commits.iter().try_for_each(|commit| commit.check(limits))
    }

    /// This root as bytes, sealed.
    ///
    /// # Errors
    /// As [`Root::check`], and [`LogError::Limit`](super::LogError::Limit) if it becomes too large.
    pub fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.check(limits)?;
        let mut document = json!({
            "bedform": {"version": 1, "store": hex(&self.store)},
            "number": self.number,
            "settled": self.settled,
            "commits": self.commits.iter().map(CommitRecord::to_json).collect::<Vec<_>>(),
            "shapes": by_hex(&self.shapes),
            "sessions": by_hex(&self.sessions),
        });
        if let Some(shards) = self.settled_shards {
            document["settled_shards"] = shards.to_json();
        }
        let bytes = seal(document);
        check_limit("bytes in a root", bytes.len() as u64, limits.metadata_bytes_max)?;
        Ok(bytes)
    }

    /// The root that `bytes` hold.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if a bit of them has changed, they are of a newer version, over
    /// the limits, or do not hold what [`Root::check`] checks.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let document = json::parse(bytes, limits).map_err(metadata::MetadataError::from)?;
        if !check_seal_in_form(bytes, &document)? {
            return Err(invalid(WHAT, "it has no seal that fits: it was changed or cut short"));
        }
        let root = Self::parse(&document, limits)?;
        if root.encode(limits)? != bytes {
            return Err(invalid(WHAT, "it is not written as roots are: it was changed"));
        }
        Ok(root)
    }

    fn parse(document: &Value, limits: &Limits) -> Result<Self> {
        let fields = Fields::new("", document)?;
        let store = identity_field(&fields, "store")?;
        let store = store.ok_or_else(|| fields::invalid("bedform.store", "missing"))?;
        let mut commits = Vec::new();
        for (index, value) in fields.list("commits")?.iter().enumerate() {
            commits.push(CommitRecord::parse(&format!("commits[{index}]"), value)?);
        }
        let shapes = by_key(&fields, "shapes", |fields, key| {
            Ok(fields.lengths(key, limits.rank_max, 0)?)
        })?;
        let sessions = by_key(&fields, "sessions", |fields, key| {
            let epoch = number(fields, key)?;
            u32::try_from(epoch).map_err(|_| invalid(WHAT, format!("epoch {epoch}")))
        })?;
        let (number, settled) = (number(&fields, "number")?, number(&fields, "settled")?);
        let settled_shards = fields.get("settled_shards").map(SettledRecord::parse).transpose()?;
        Ok(Self { store, number, settled, commits, shapes, sessions, settled_shards })
    }
}

/// An integer that is not negative.
fn number(fields: &Fields<'_, '_>, key: &str) -> Result<u64> {
    let value = fields.integer(key, 0..=i64::MAX, None)?;
    Ok(value.cast_unsigned())
}

fn by_hex<T>(values: &BTreeMap<[u8; 16], T>) -> BTreeMap<String, &T> {
    values.iter().map(|(key, value)| (hex(key), value)).collect()
}

/// An object whose names are identities.
fn by_key<T>(
    fields: &Fields<'_, '_>,
    name: &str,
    value: impl Fn(&Fields<'_, '_>, &str) -> Result<T>,
) -> Result<BTreeMap<[u8; 16], T>> {
    let document = fields.need(name)?;
    let inner = Fields::new(name, document)?;
    let mut values = BTreeMap::new();
    for key in document.as_object().map(Map::keys).into_iter().flatten() {
        let identity = parse_hex(key).ok_or_else(|| invalid(WHAT, format!("{name}: {key:?}")))?;
        values.insert(identity, value(&inner, key)?);
    }
    Ok(values)
}
