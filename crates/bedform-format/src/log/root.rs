//! A root: the commits that are not settled, in order. The highest root of a log is the truth.
//!
//! It names the last commits each, and those before them by a few [tables](super::Table), so that the cost of a
//! commit does not grow with their number.
//!
//! A small JSON document that only Bedform writes, once:
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
//! Version 1, which is read and no longer written, has all commits in `commits`, neither `since` nor `tables`, and
//! as `settled_shards` one list, or nothing.
//! The seal is that of the store's own documents: length and CRC-32C. It must be there, and the
//! document must be byte for byte what would be written for what it says.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Result, SealedCodec, check_limit, check_segment_name, invalid};
use crate::fields::{self, Fields};
use crate::metadata::{self, check_seal_in_form, hex, identity_field_up_to, parse_hex, seal};
use crate::{Limits, json};

const WHAT: &str = "a root";
const COMMIT: &str = "a commit of a root";
const TABLE: &str = "a table of a root";
/// The version that is written.
const VERSION: i64 = 2;
/// Tables, and lists of settled shards, that a root may name.
const TABLES_MAX: u64 = 4096;
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
    /// Commits up to this one are in the shards.
    pub settled: u64,
    /// From the root of this number on commits were added only: what an earlier one of these needs, this one
    /// needs, too.
    pub since: u64,
    /// Commits after `settled`, in order. The first may have such that are settled, too.
    pub tables: Vec<TableRecord>,
    /// The commits after those, in order.
    pub commits: Vec<CommitRecord>,
    /// The shapes of the arrays that `commits` have made larger, by their keys, after the last commit.
    pub shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// The last epoch of each session that was committed: what tells the records of a commit from
    /// those that a writer left behind when it died.
    pub sessions: BTreeMap<[u8; 16], u32>,
    /// Lists of the shards that were settled since the log has had commits, the newest last. What several say of
    /// a shard holds.
    pub settled_shards: Vec<SettledRecord>,
}

/// Where a table is, and that it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRecord {
    /// The name of the object: the number of its last commit, and what no other attempt has.
    pub name: String,
    /// Its first commit that was not settled when the root was made.
    pub first: u64,
    /// Its last commit.
    pub last: u64,
    /// Rows and growths, those of settled commits included.
    pub rows: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// How many of them, the last, are the index.
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

    /// The last commit of the table of this name; `None` for names of anything else.
    pub fn parse_name(name: &str) -> Option<u64> {
        let (number, _) = name.split_once('-')?;
        if number.len() == NUMBER_DIGITS { number.parse().ok() } else { None }
    }

    /// A name for a table whose last commit is `last`; `key` is what no other attempt has.
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
        let (number, bytes) = (number(&fields, "number")?, number(&fields, "bytes")?);
        Ok(Self { number, bytes, checksum: checksum(&fields)? })
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

    /// This root as bytes, sealed.
    ///
    /// # Errors
    /// As [`Root::check`], and [`LogError::Limit`](super::LogError::Limit) if it becomes too large.
    pub fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.encode_as(VERSION, limits)
    }

    /// This root as the first version wrote it, for tests: without tables, and with one list of shards at most.
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

    /// True if there are commits that are not settled.
    pub fn has_commits(&self) -> bool {
        !self.tables.is_empty() || !self.commits.is_empty()
    }

    /// The number of the first commit that is not settled.
    pub fn first_commit(&self) -> Option<u64> {
        let tables = self.tables.iter().map(|table| table.first);
        tables.chain(self.commits.iter().map(|commit| commit.number)).next()
    }

    /// The number of the last commit that is not settled.
    pub fn last_commit(&self) -> Option<u64> {
        let tables = self.tables.iter().map(|table| table.last);
        tables.chain(self.commits.iter().map(|commit| commit.number)).next_back()
    }
}

fn checksum(fields: &Fields<'_, '_>) -> Result<u32> {
    let checksum = number(fields, "checksum")?;
    u32::try_from(checksum).map_err(|_| invalid(WHAT, format!("a checksum of {checksum}")))
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
