//! Whether the members of a session create the same arrays.
//!
//! Each member gives a digest of its arrays, or nothing. Only if digests differ does the coordinator tell
//! its arrays to all, so that each member can say what it has given instead.

use std::collections::BTreeMap;

use bedform_format::ObjectPath;
use bedform_format::checksum::Fingerprint;
use bedform_format::metadata::write_data_type;
use serde_json::{Map, Value, json};

use crate::comm::{COORDINATOR, Communicator, Group, decide, ranks_in_words};
use crate::error::{Error, Result};
use crate::zarr::new_array::NewArray;

/// Bytes of a value that an error shows.
const SHOWN_MAX: usize = 80;

/// Arrays that a member gives, by path: what a user says of each, by name.
pub(super) struct GivenArrays(BTreeMap<String, BTreeMap<String, Value>>);

impl GivenArrays {
    /// What this member gives; nothing where there is no member with which it could differ.
    pub(super) fn of(members: &Group, arrays: &[(ObjectPath, NewArray)]) -> Self {
        let arrays = if members.size() == 1 { &[] } else { arrays };
        let described = arrays.iter().map(|(path, array)| (path.to_string(), described(array)));
        Self(described.collect())
    }

    /// The same for the same arrays; nothing of a member that gives none.
    pub(super) fn digest(&self, members: &Group) -> Vec<u8> {
        if self.0.is_empty() && members.rank() != COORDINATOR {
            return Vec::new();
        }
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(json!(self.0).to_string().as_bytes());
        fingerprint.finish().to_le_bytes().to_vec()
    }

    /// The error of all members, of which some have given other arrays than the coordinator. Collective.
    pub(super) fn explain(&self, members: &Group) -> Error {
        self.told(members).err().unwrap_or_else(|| Error::invalid("the arrays differ"))
    }

    fn told(&self, members: &Group) -> Result<()> {
        let mine = json!(self.0).to_string().into_bytes();
        let first = decide(members, Ok(Vec::new()), |_| Ok(mine))?;
        let first: BTreeMap<_, _> = serde_json::from_slice(&first).unwrap_or_default();
        let said = match self.0.is_empty() {
            true => String::new(),
            false => self.difference(&first).unwrap_or_default(),
        };
        decide(members, Ok(said.into_bytes()), |said| Err(Error::invalid(in_words(&said))))
            .map(drop)
    }

    /// What the coordinator has given and, behind a zero, what this member has given instead.
    fn difference(&self, first: &BTreeMap<String, BTreeMap<String, Value>>) -> Option<String> {
        let missing = |mine: &str, path: &String| Some(format!("{path:?}\0{mine} {path:?}"));
        if let Some(path) = first.keys().find(|path| !self.0.contains_key(*path)) {
            return missing("no", path);
        }
        for (path, mine) in &self.0 {
            let Some(first) = first.get(path) else {
                return Some(format!("no {path:?}\0{path:?}"));
            };
            let differing = mine.iter().find(|(name, value)| first.get(*name) != Some(*value));
            if let Some((name, value)) = differing {
                let first = first.get(name).unwrap_or(&Value::Null);
                let shown = |value: &Value| format!("{name} {} for {path:?}", shortened(value));
                return Some(format!("{}\0{}", shown(first), shown(value)));
            }
        }
        None
    }
}

/// What a user says of an array, by name.
fn described(array: &NewArray) -> BTreeMap<String, Value> {
    let NewArray { shape, data_type, layout, fill_value, dimension_names, attributes } = array;
    let codecs = (&layout.serializer, &layout.codecs, &layout.transpose, layout.checksum);
    [
        ("shape", json!(shape)),
        ("dtype", write_data_type(*data_type)),
        ("chunks", json!(layout.chunk_shape)),
        ("shards", json!(layout.shard_shape)),
        ("order", json!(layout.order.name())),
        ("codecs", json!(format!("{codecs:?}"))),
        ("fill_value", fill_value.to_json(*data_type)),
        ("dims", json!(dimension_names)),
        ("attributes", sorted(&Value::Object(attributes.clone()))),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The same value with the keys of all objects in order: that in which they were given does not count.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let object: BTreeMap<_, _> =
                object.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            Value::Object(object.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(values) => values.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn shortened(value: &Value) -> String {
    let mut text = value.to_string();
    if let Some(end) = (0..=SHOWN_MAX).rev().find(|end| text.is_char_boundary(*end))
        && text.len() > SHOWN_MAX
    {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Whether members with these digests, by rank, give the same arrays, or none.
pub(super) fn are_alike(digests: &[Vec<u8>]) -> bool {
    digests.iter().all(|digest| digest.is_empty() || Some(digest) == digests.first())
}

/// What is wrong where members have [said](GivenArrays::difference) this, by rank.
fn in_words(said: &[Vec<u8>]) -> String {
    let first = said.iter().find(|said| !said.is_empty());
    let ranks: Vec<u32> = (0_u32..)
        .zip(said)
        .filter(|(_, said)| Some(*said) == first)
        .map(|(rank, _)| rank)
        .collect();
    let text = String::from_utf8_lossy(first.map_or(&[], Vec::as_slice));
    let (expected, given) = text.split_once('\0').unwrap_or_default();
    let (ranks, verb) = (ranks_in_words(&ranks), if ranks.len() == 1 { "gives" } else { "give" });
    format!(
        "the processes of a session must create the same arrays: rank {COORDINATOR} gives {expected}, \
         {ranks} {verb} {given}; nothing is created"
    )
}
