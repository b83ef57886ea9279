//! Builds values; refuses duplicate keys and values beyond the memory budget.

use std::cell::{Cell, RefCell};

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::TEXT;
use super::compact::compact;
use super::texts::{JsonText, Texts};

/// Memory of a value, in bytes.
const VALUE: u64 = size_of::<Value>() as u64;
/// Memory of an object without its entries, in bytes.
const OBJECT: u64 = 112;
/// Memory of an entry without its value and the bytes of its key: the key, its hash, and its slots
/// in the table.
const ENTRY: u64 = 88;
/// Additional charge per entry of a large object: spare capacity of the table, and time, since
/// hashes are scattered.
const LARGE_ENTRY: u64 = 88;
/// Largest number of entries of a small object, which is built with exact capacity.
const SMALL: usize = 8;
/// Memory of a member kept as text, without its bytes and its key's: its node, two allocations, and
/// its place in lists of members.
const KEPT: u64 = 224;
/// Memory of a list or string without its content, in bytes.
const ALLOCATION: u64 = 32;

/// Bytes of memory that values may still take.
#[derive(Debug)]
pub(super) struct ValuesBudget {
    left: Cell<u64>,
    is_spent: Cell<bool>,
}

impl ValuesBudget {
    pub(super) fn new(bytes: u64) -> Self {
        Self { left: Cell::new(bytes), is_spent: Cell::new(false) }
    }

    /// Returns true if values were refused because they take too much memory.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    fn take<E: de::Error>(&self, bytes: u64) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| {
            self.is_spent.set(true);
            E::custom("too many values")
        })?;
        self.left.set(left);
        Ok(())
    }
}

/// The destination of an object's members that are kept as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextSlot<'a> {
    /// The keys that lead from the current value to the object.
    pub(super) path: &'a [&'a str],
    pub(super) texts: &'a RefCell<Option<Texts>>,
}

impl TextSlot<'_> {
    fn fill<'de, A: MapAccess<'de>>(
        &self,
        mut entries: A,
        budget: &ValuesBudget,
    ) -> Result<Value, A::Error> {
        let mut texts = Texts::new();
        while let Some(key) = entries.next_key::<String>()? {
            budget.take(KEPT + key.len() as u64)?;
            let text = JsonText::from_raw(entries.next_value::<&RawValue>()?);
            if texts.contains_key(&key) {
                return Err(appears_twice(&key));
            }
            texts.insert(key, text);
        }
        self.texts.replace(Some(texts));
        Ok(Value::Object(Map::new()))
    }
}

fn appears_twice<E: de::Error>(key: &str) -> E {
    let short: String = key.chars().take(80).collect();
    E::custom(format!("the key {short:?} appears twice"))
}

/// A builder of one [`Value`] within a budget; it refuses duplicate keys of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct StrictBuilder<'a> {
    pub(super) budget: &'a ValuesBudget,
    /// Objects whose members are kept as text.
    pub(super) kept: &'a [TextSlot<'a>],
    /// The member that is kept as text in its place, if it is an object.
    pub(super) as_text: Option<&'a str>,
}

impl StrictBuilder<'_> {
    /// Returns the builder for items of a list; nothing in a list is kept as text.
    fn inner(&self) -> StrictBuilder<'_> {
        StrictBuilder { budget: self.budget, kept: &[], as_text: None }
    }

    /// Returns the value that stands for a member kept as text.
    fn text<E: de::Error>(&self, raw: &RawValue) -> Result<Value, E> {
        if raw.get().starts_with('{') {
            self.string(raw.get())?;
            return Ok(Value::String(compact(raw.get(), TEXT.into())));
        }
        let value = self.inner().deserialize(&mut serde_json::Deserializer::from_str(raw.get()));
        match value.map_err(E::custom)? {
            // Such a string does not stand for text.
            Value::String(text) => Ok(Value::String(text.trim_start_matches(TEXT).to_owned())),
            value => Ok(value),
        }
    }

    fn string<E: de::Error>(&self, text: &str) -> Result<(), E> {
        self.budget.take(ALLOCATION + text.len() as u64)
    }
}

impl<'de> DeserializeSeed<'de> for StrictBuilder<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictBuilder<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.string(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        self.string(&value)?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.budget.take(ALLOCATION)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.inner())? {
            self.budget.take(VALUE)?;
            list.push(item);
        }
        list.shrink_to_fit();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if let Some(slot) = self.kept.iter().find(|slot| slot.path.is_empty()) {
            return slot.fill(entries, self.budget);
        }
        self.budget.take(OBJECT)?;
        let mut small: Vec<(String, Value)> = Vec::new();
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.budget.take(ENTRY + VALUE + key.len() as u64)?;
            let value = if self.as_text == Some(&key) {
                self.text(entries.next_value()?)?
            } else {
                let below = self.below(&key);
                entries.next_value_seed(StrictBuilder { kept: &below, as_text: None, ..self })?
            };
            if map.is_empty() && small.len() < SMALL {
                if small.iter().any(|(other, _)| *other == key) {
                    return Err(appears_twice(&key));
                }
                small.push((key, value));
                continue;
            }
            self.budget.take(LARGE_ENTRY)?;
            map.extend(small.drain(..));
            insert(&mut map, key, value)?;
        }
        if map.is_empty() {
            // Collects with exact capacity.
            map = small.into_iter().collect();
        }
        Ok(Value::Object(map))
    }
}

impl StrictBuilder<'_> {
    /// Returns the slots for objects within the member `key`.
    fn below(&self, key: &str) -> Vec<TextSlot<'_>> {
        let slots = self.kept.iter().filter_map(|slot| {
            let (first, path) = slot.path.split_first()?;
            (*first == key).then_some(TextSlot { path, ..*slot })
        });
        slots.collect()
    }
}

fn insert<E: de::Error>(map: &mut Map<String, Value>, key: String, value: Value) -> Result<(), E> {
    match map.entry(key) {
        Entry::Occupied(entry) => return Err(appears_twice(entry.key())),
        Entry::Vacant(entry) => entry.insert(value),
    };
    Ok(())
}
