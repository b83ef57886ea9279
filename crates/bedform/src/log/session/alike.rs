//! The check that the members of a session create the same arrays.
//!
//! Each member sends a digest of its arrays, or nothing. Only if digests differ does the
//! coordinator send its arrays to all, so that each member can name its difference.

use std::collections::BTreeMap;

use bedform_format::ObjectPath;
use bedform_format::checksum::Fingerprint;
use bedform_format::metadata::write_data_type;
use serde_json::{Map, Value, json};

use crate::comm::{COORDINATOR, Communicator, MemberGroup, decide, ranks_in_words};
use crate::error::{Error, Result};
use crate::zarr::new_array::NewArray;

/// Maximum number of bytes of a value in an error.
const SHOWN_MAX: usize = 80;

/// The arrays that a member gives: by path, their properties by name.
pub(super) struct GivenArrays(BTreeMap<String, BTreeMap<String, Value>>);

impl GivenArrays {
    /// Describes the arrays of this member; empty if there is no other member.
    pub(super) fn of(members: &MemberGroup, arrays: &[(ObjectPath, NewArray)]) -> Self {
        let arrays = if members.size() == 1 { &[] } else { arrays };
        let described = arrays.iter().map(|(path, array)| (path.to_string(), described(array)));
        Self(described.collect())
    }

    /// Returns a digest that is equal for equal arrays. It is empty for a member that gives none,
    /// except on the coordinator.
    pub(super) fn digest(&self, members: &MemberGroup) -> Vec<u8> {
        if self.0.is_empty() && members.rank() != COORDINATOR {
            return Vec::new();
        }
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(json!(self.0).to_string().as_bytes());
        fingerprint.finish().to_le_bytes().to_vec()
    }

    /// Returns the error of all members if some give other arrays than the coordinator. Collective.
    pub(super) fn explain(&self, members: &MemberGroup) -> Error {
        self.told(members).err().unwrap_or_else(|| Error::invalid("the arrays differ"))
    }

    fn told(&self, members: &MemberGroup) -> Result<()> {
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

    /// Returns the first difference: the coordinator's value and, behind a zero byte, this member's
    /// value.
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

/// Returns the properties of an array by name.
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

/// Returns the same value with the keys of all objects sorted: their order does not count.
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

/// True if the members with these digests, by rank, give the same arrays, or none.
pub(super) fn are_alike(digests: &[Vec<u8>]) -> bool {
    digests.iter().all(|digest| digest.is_empty() || Some(digest) == digests.first())
}

/// Returns the error message from the members' [differences](GivenArrays::difference), by rank.
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
