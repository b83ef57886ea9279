//! Building values: no key twice, and no more memory than is left for them.

use std::cell::{Cell, RefCell};

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::TEXT;
use super::compact::compact;
use super::texts::{JsonText, Texts};

/// Memory of a value, wherever it lies.
const VALUE: u64 = size_of::<Value>() as u64;
/// What an object takes beside its entries: its table.
const OBJECT: u64 = 112;
/// What an entry takes beside its value and the bytes of its key: the key, its hash, its places in the table.
const ENTRY: u64 = 88;
/// What an entry of a large object takes more: room for others, and time, since its hash lies anywhere.
const LARGE_ENTRY: u64 = 88;
/// Entries of an object that are gathered before it is built: one with fewer has no room for others.
const SMALL: usize = 8;
/// What a text that is kept takes beside its bytes and those of its key: its place, two allocations, and its place
/// in lists of what there is.
const KEPT: u64 = 224;
/// What a list or string takes beside what it holds.
const ALLOCATION: u64 = 32;

/// Memory that may still be taken.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<u64>,
    is_spent: Cell<bool>,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        Self { left: Cell::new(bytes), is_spent: Cell::new(false) }
    }

    /// True if values were refused because they take too much.
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

/// Where the members of an object go that stay text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'a> {
    /// The keys that lead to the object from where the document is.
    pub(super) path: &'a [&'a str],
    pub(super) texts: &'a RefCell<Option<Texts>>,
}

impl Slot<'_> {
    fn fill<'de, A: MapAccess<'de>>(
        &self,
        mut entries: A,
        budget: &Budget,
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

/// Builds a [`Value`] within a budget, and refuses a key that an object has already.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strict<'a> {
    pub(super) budget: &'a Budget,
    /// Objects whose members stay text.
    pub(super) kept: &'a [Slot<'a>],
    /// The member that stays text in its place, if it is an object.
    pub(super) as_text: Option<&'a str>,
}

impl Strict<'_> {
    /// For what lies in a list, where nothing is kept.
    fn inner(&self) -> Strict<'_> {
        Strict { budget: self.budget, kept: &[], as_text: None }
    }

    /// The value of a member that stays text.
    fn text<E: de::Error>(&self, raw: &RawValue) -> Result<Value, E> {
        if raw.get().starts_with('{') {
            self.string(raw.get())?;
            return Ok(Value::String(compact(raw.get(), TEXT.into())));
        }
        let value = self.inner().deserialize(&mut serde_json::Deserializer::from_str(raw.get()));
        match value.map_err(E::custom)? {
            // It stands for no text.
            Value::String(text) => Ok(Value::String(text.trim_start_matches(TEXT).to_owned())),
            value => Ok(value),
        }
    }

    fn string<E: de::Error>(&self, text: &str) -> Result<(), E> {
        self.budget.take(ALLOCATION + text.len() as u64)
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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
                entries.next_value_seed(Strict { kept: &below, as_text: None, ..self })?
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
            // Of the length that it needs.
            map = small.into_iter().collect();
        }
        Ok(Value::Object(map))
    }
}

impl Strict<'_> {
    /// What is kept within the member `key`.
    fn below(&self, key: &str) -> Vec<Slot<'_>> {
        let slots = self.kept.iter().filter_map(|slot| {
            let (first, path) = slot.path.split_first()?;
            (*first == key).then_some(Slot { path, ..*slot })
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
