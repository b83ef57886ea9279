//! Roots: documents that list, in order, the commits that are not settled. The root with the
//! highest number is the state of the log.
//!
//! A root names its last commits one by one, and earlier ones through a few [tables](super::Table).
//! So the cost of a commit does not grow with the number of commits.
//!
//! A root is a small JSON document that only Bedform writes, and that never changes:
//!
//! ```json
//! {
//!  "bedform": {
//!   "version": 2,
//!   "store": "00112233445566778899aabbccddeeff",
//!   "seal": "0000000466:1f2e3d4c"
//!  },
//!  "number": 42,
//!  "settled": 7,
//!  "since": 8,
//!  "tables": [
//!   {"name": "0000000040-00112233445566778899aabbccddeeff", "first": 9, "last": 40, "rows": 32,
//!    "bytes": 700, "index_bytes": 200, "checksum": 12345}
//!  ],
//!  "commits": [
//!   {"number": 41, "segment": "...-0", "offset": 4096, "stored_bytes": 90, "bytes": 200, "codec": 1}
//!  ],
//!  "shapes": {"0f1e2d3c4b5a69788796a5b4c3d2e1f0": [40, 96, 192]},
//!  "sessions": {"ffeeddccbbaa99887766554433221100": 2},
//!  "settled_shards": [{"number": 8, "bytes": 90, "checksum": 12345}]
//! }
//! ```
//!
//! Version 1 can be read but is no longer written. It has all commits in `commits`, neither `since`
//! nor `tables`, and at most one list as `settled_shards`. The seal, a length and a CRC-32C as in
//! the store's own documents, is required. A reader re-encodes the content and refuses a document
//! whose bytes differ.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Result, SealedCodec, check_limit, check_segment_name, invalid};
use crate::fields::{self, Fields};
use crate::metadata::{self, check_seal_in_form, hex, identity_field_up_to, parse_hex, seal};
use crate::{Limits, json};

const WHAT: &str = "a root";
const COMMIT: &str = "a commit of a root";
const TABLE: &str = "a table of a root";
/// The version that is written; version 1 is read, too.
const VERSION: i64 = 2;
/// The largest number of tables, and of lists of settled shards, in a root.
const TABLES_MAX: u64 = 4096;
/// The highest number that fits the digits of a root's name.
const NUMBER_MAX: u64 = 9_999_999_999;
const NUMBER_DIGITS: usize = 10;

/// The state of a log: the commits that count and are not settled.
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
///     since: 41,
///     tables: vec![],
///     commits: vec![commit],
///     shapes: [([3; 16], vec![40, 96, 192])].into(),
///     sessions: [([4; 16], 2)].into(),
///     settled_shards: vec![],
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
    /// All commits up to this number are in the shards.
    pub settled: u64,
    /// Since the root of this number, commits were only added. Every object that one of those roots
    /// needs, this root needs, too.
    pub since: u64,
    /// Tables of commits after `settled`, in order. The first may include settled commits.
    pub tables: Vec<TableRecord>,
    /// The commits after those of the tables, in order.
    pub commits: Vec<CommitRecord>,
    /// The shapes, after the last commit, of the arrays that `commits` made larger, by key.
    pub shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// The last committed epoch of each session. It separates the records of a commit from those
    /// that a writer left behind when it died.
    pub sessions: BTreeMap<[u8; 16], u32>,
    /// Lists of the shards that were settled since the log has had commits, newest last. If several
    /// name a shard, all apply.
    pub settled_shards: Vec<SettledRecord>,
}

/// The name, extent and checksum of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRecord {
    /// Name of the object: the number of its last commit, and a random key.
    pub name: String,
    /// Its first commit that was not settled when the root was made.
    pub first: u64,
    /// Its last commit.
    pub last: u64,
    /// Rows and growths, including those of settled commits.
    pub rows: u64,
    /// Length of the object in bytes.
    pub bytes: u64,
    /// Length of the index at its end, in bytes.
    pub index_bytes: u64,
    /// CRC-32C of the index.
    pub checksum: u32,
}

impl TableRecord {
    fn check(&self, limits: &Limits) -> Result<()> {
        let key = self.name.split_once('-').and_then(|(_, key)| parse_hex(key));
        if key.is_none_or(|key| self.name != Self::name(self.last, &key)) {
            return Err(invalid(TABLE, format!("the name {:?}", self.name)));
        }
        check_limit("bytes in a table", self.bytes, limits.index_bytes_max)?;
        if self.index_bytes > self.bytes || self.rows > i64::MAX.cast_unsigned() {
            return Err(invalid(TABLE, "an index that is larger than all of it"));
        }
        Ok(())
    }

    /// Parses the last commit from a table's name; `None` for names of other objects.
    pub fn parse_name(name: &str) -> Option<u64> {
        let (number, _) = name.split_once('-')?;
        if number.len() == NUMBER_DIGITS { number.parse().ok() } else { None }
    }

    /// Returns the name of a table whose last commit is `last`; `key` makes it unique.
    pub fn name(last: u64, key: &[u8; 16]) -> String {
        format!("{last:0NUMBER_DIGITS$}-{}", hex(key))
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "first": self.first,
            "last": self.last,
            "rows": self.rows,
            "bytes": self.bytes,
            "index_bytes": self.index_bytes,
            "checksum": self.checksum,
        })
    }

    fn parse(path: &str, value: &Value) -> Result<Self> {
        let fields = Fields::new(path, value)?;
        Ok(Self {
            name: fields.text("name")?.to_owned(),
            first: number(&fields, "first")?,
            last: number(&fields, "last")?,
            rows: number(&fields, "rows")?,
            bytes: number(&fields, "bytes")?,
            index_bytes: number(&fields, "index_bytes")?,
            checksum: checksum(&fields)?,
        })
    }
}

/// The location and checksum of a list of settled shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettledRecord {
    /// Number of the root that it was written with.
    pub number: u64,
    /// Length of the object in bytes.
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
        let (number, bytes) = (number(&fields, "number")?, number(&fields, "bytes")?);
        Ok(Self { number, bytes, checksum: checksum(&fields)? })
    }
}

/// A commit, as the location of its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitRecord {
    /// Number of the root that made the commit visible.
    pub number: u64,
    /// Name of the segment with the directory.
    pub segment: String,
    /// Offset of the directory's record in the segment, in bytes.
    pub offset: u64,
    /// Length in the segment, in bytes.
    pub stored_bytes: u64,
    /// Length when decompressed, in bytes.
    pub bytes: u64,
    /// Compression of the directory.
    pub codec: SealedCodec,
}

impl CommitRecord {
    fn check(&self, limits: &Limits) -> Result<()> {
        check_segment_name(&self.segment)?;
        // JSON readers in other languages hold integers of at most 63 bits.
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
    /// Returns the name of root `number`, which is at most 9,999,999,999.
    pub fn name(number: u64) -> String {
        format!("{number:0NUMBER_DIGITS$}.json")
    }

    /// Parses the number of a root from its name; `None` for names of other objects.
    pub fn parse_name(name: &str) -> Option<u64> {
        let digits = name.strip_suffix(".json")?;
        let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
        if is_number { digits.parse().ok() } else { None }
    }

    /// Checks that the numbers of commits ascend, that none is settled or newer than the root, and
    /// that names are safe. [`Root::decode`] returns only roots that pass.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) names the broken rule.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        check_limit("as the number of a root", self.number, NUMBER_MAX)?;
        check_limit("tables in a root", self.tables.len() as u64, TABLES_MAX)?;
        let tables = self.tables.iter().map(|table| (table.first, table.last));
        let numbers = self.commits.iter().map(|commit| (commit.number, commit.number));
        let mut last = self.settled;
        for (first, end) in tables.chain(numbers) {
            if first <= last || end < first {
                let problem = "its commits do not ascend from what is settled to its number";
                return Err(invalid(WHAT, problem));
            }
            last = end;
        }
        if last > self.number || self.since > self.number {
            return Err(invalid(WHAT, "what is in it is newer"));
        }
        self.tables.iter().try_for_each(|table| table.check(limits))?;
        for (key, shape) in &self.shapes {
            check_limit("axes", shape.len() as u64, limits.rank_max as u64)?;
            if let Some(length) = shape.iter().find(|length| i64::try_from(**length).is_err()) {
                return Err(invalid(
                    WHAT,
                    format!("the shape of {} has the length {length}", hex(key)),
                ));
            }
        }
        check_limit("lists in a root", self.settled_shards.len() as u64, TABLES_MAX)?;
        for SettledRecord { number, bytes, .. } in &self.settled_shards {
            check_limit("bytes of settled shards", *bytes, limits.index_bytes_max)?;
            if *number > self.number {
                return Err(invalid(WHAT, "a list of settled shards that is newer"));
            }
        }
        if !self.settled_shards.is_sorted_by(|one, next| one.number < next.number) {
            return Err(invalid(WHAT, "its lists of settled shards do not ascend"));
        }
        self.commits.iter().try_for_each(|commit| commit.check(limits))
    }

    /// Encodes the root, sealed.
    ///
    /// # Errors
    /// As [`Root::check`], and [`LogError::Limit`](super::LogError::Limit) if the document is too
    /// large.
    pub fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.encode_as(VERSION, limits)
    }

    /// Encodes the root as version 1, for tests: without tables, and with at most one list of
    /// shards.
    ///
    /// # Errors
    /// As [`Root::encode`].
    #[doc(hidden)]
    pub fn encode_first_version(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.encode_as(1, limits)
    }

    fn encode_as(&self, version: i64, limits: &Limits) -> Result<Vec<u8>> {
        self.check(limits)?;
        let lists = self.settled_shards.iter().copied().map(SettledRecord::to_json);
        let mut document = json!({
            "bedform": {"version": version, "store": hex(&self.store)},
            "number": self.number,
            "settled": self.settled,
        });
        if version > 1 {
            document["since"] = self.since.into();
            document["tables"] = self.tables.iter().map(TableRecord::to_json).collect();
        }
        document["commits"] = self.commits.iter().map(CommitRecord::to_json).collect();
        document["shapes"] = json!(by_hex(&self.shapes));
        document["sessions"] = json!(by_hex(&self.sessions));
        match version {
            1 => lists.for_each(|list| document["settled_shards"] = list),
            _ => document["settled_shards"] = lists.collect(),
        }
        let bytes = seal(document);
        check_limit("bytes in a root", bytes.len() as u64, limits.metadata_bytes_max)?;
        Ok(bytes)
    }

    /// Decodes a root.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if a bit of the document has changed, or if it is of a newer
    /// version, over the limits, or fails [`Root::check`].
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let document = json::parse(bytes, limits).map_err(metadata::MetadataError::from)?;
        if !check_seal_in_form(bytes, &document)? {
            return Err(invalid(WHAT, "it has no seal that fits: it was changed or cut short"));
        }
        let (version, root) = Self::parse(&document, limits)?;
        if root.encode_as(version, limits)? != bytes {
            return Err(invalid(WHAT, "it is not written as roots are: it was changed"));
        }
        Ok(root)
    }

    fn parse(document: &Value, limits: &Limits) -> Result<(i64, Self)> {
        let fields = Fields::new("", document)?;
        let store = identity_field_up_to(VERSION, &fields, "store")?;
        let store = store.ok_or_else(|| fields::invalid("bedform.store", "missing"))?;
        let version = document["bedform"]["version"].as_i64().unwrap_or(1);
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
        let (mut since, mut tables, mut settled_shards) = (number, Vec::new(), Vec::new());
        if version == 1 {
            let list = fields.get("settled_shards").map(SettledRecord::parse);
            settled_shards.extend(list.transpose()?);
        } else {
            since = self::number(&fields, "since")?;
            for (index, value) in fields.list("tables")?.iter().enumerate() {
                tables.push(TableRecord::parse(&format!("tables[{index}]"), value)?);
            }
            let lists = fields.list("settled_shards")?.iter().map(SettledRecord::parse);
            settled_shards = lists.collect::<Result<_>>()?;
        }
        let root = Self {
            store,
            number,
            settled,
            since,
            tables,
            commits,
            shapes,
            sessions,
            settled_shards,
        };
        Ok((version, root))
    }

    /// Returns true if there are commits that are not settled.
    pub fn has_commits(&self) -> bool {
        !self.tables.is_empty() || !self.commits.is_empty()
    }

    /// Returns the number of the first commit that is not settled.
    pub fn first_commit(&self) -> Option<u64> {
        let tables = self.tables.iter().map(|table| table.first);
        tables.chain(self.commits.iter().map(|commit| commit.number)).next()
    }

    /// Returns the number of the last commit that is not settled.
    pub fn last_commit(&self) -> Option<u64> {
        let tables = self.tables.iter().map(|table| table.last);
        tables.chain(self.commits.iter().map(|commit| commit.number)).next_back()
    }
}

fn checksum(fields: &Fields<'_, '_>) -> Result<u32> {
    let checksum = number(fields, "checksum")?;
    u32::try_from(checksum).map_err(|_| invalid(WHAT, format!("a checksum of {checksum}")))
}

/// Reads a non-negative integer.
fn number(fields: &Fields<'_, '_>, key: &str) -> Result<u64> {
    let value = fields.integer(key, 0..=i64::MAX, None)?;
    Ok(value.cast_unsigned())
}

fn by_hex<T>(values: &BTreeMap<[u8; 16], T>) -> BTreeMap<String, &T> {
    values.iter().map(|(key, value)| (hex(key), value)).collect()
}

/// Reads an object whose keys are identities in hexadecimal.
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
