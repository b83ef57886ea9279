//! A parser for kerchunk's documents: <https://fsspec.github.io/kerchunk/spec.html>.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::{Reference, References, ReferencesBuilder, ReferencesError, TARGET_BYTES_MAX, shown};
use crate::Limits;

type Result<T> = std::result::Result<T, ReferencesError>;

/// Prefix of inline values in base64.
const BASE64: &str = "base64:";
/// Decodes base64 with or without padding.
const BASE64_ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Names of Zarr documents, as keys of references.
const DOCUMENTS: [&str; 5] = [".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"];
/// Members of a document of version 1.
const MEMBERS: [&str; 4] = ["version", "templates", "gen", "refs"];

/// Returns true if a document that starts with `start` may be a set of references, judged by its
/// first key and the start of that key's value.
///
/// ```
/// use bedform_format::references::looks_like_references;
/// assert!(looks_like_references(br#"{"version": 1, "refs": {}}"#));
/// assert!(looks_like_references(br#" {"t/0.0": ["a.nc", 0, 10], "#));
/// assert!(!looks_like_references(br#"{"type": "FeatureCollection"}"#));
/// ```
pub fn looks_like_references(start: &[u8]) -> bool {
    // Ignores a character that is cut at the end.
    let valid = start.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let Some(rest) = valid.trim_start().strip_prefix('{') else { return false };
    let Some((key, rest)) =
        rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'))
    else {
        return false;
    };
    let value = rest.trim_start().strip_prefix(':').map(str::trim_start);
    let is_list = value.and_then(|value| value.strip_prefix('[')).is_some_and(|list| {
        let list = list.trim_start();
        list.is_empty() || list.starts_with('"')
    });
    MEMBERS.contains(&key)
        || DOCUMENTS.iter().any(|name| key.rsplit('/').next() == Some(name))
        || (key.contains('/') && is_list)
}

/// Parses a set of references.
///
/// # Errors
/// [`ReferencesError`] for all documents that the module header excludes.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<References> {
    let limit = limits.references_bytes_max;
    if bytes.len() as u64 > limit {
        return Err(ReferencesError::TooLarge { what: "too many bytes", limit });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| syntax(&error))?;
    let mut document = Document { limits, flat: None, refs: None, templates: None };
    members(text, &mut |key, raw| document.member(key, raw))?;
    document.finish()
}

fn syntax(error: &dyn fmt::Display) -> ReferencesError {
    ReferencesError::Syntax(shown(&error.to_string()))
}

/// A document while its members are read.
struct Document<'a> {
    limits: &'a Limits,
    /// References outside of `refs`; in version 0, all of them.
    flat: Option<ReferencesBuilder>,
    refs: Option<ReferencesBuilder>,
    templates: Option<BTreeMap<String, String>>,
}

impl Document<'_> {
    fn finish(self) -> Result<References> {
        let is_flat = self.refs.is_none();
        let Some(mut builder) = self.refs.or(self.flat) else {
            return Err(ReferencesError::NotReferences("it has no keys"));
        };
        let templates = self.templates.filter(|_| !is_flat).unwrap_or_default();
        builder.rename(|target| expanded(target, &templates))?;
        builder.finish()
    }

    /// Reads a member of the document.
    fn member(&mut self, key: &str, raw: &RawValue) -> Result<()> {
        let text = raw.get();
        match key {
            "version" if !text.starts_with(['"', '[', '{']) => match text {
                "0" | "1" => Ok(()),
                other => Err(ReferencesError::Version(shown(other))),
            },
            "refs" if text.starts_with('{') => {
                let mut builder = ReferencesBuilder::new(self.limits);
                members(text, &mut |key, raw| add(&mut builder, key, raw))?;
                match self.refs.replace(builder) {
                    None => Ok(()),
                    Some(_) => Err(ReferencesError::Twice("refs".to_owned())),
                }
            }
            "templates" if text.starts_with('{') => {
                let read = serde_json::from_str::<BTreeMap<String, String>>(text);
                let bad = |_| ReferencesError::value("templates", "templates are texts");
                self.templates = Some(read.map_err(bad)?);
                Ok(())
            }
            "gen" if text.starts_with('[') => {
                match text.trim_matches(['[', ']', ' ', '\n', '\t', '\r']) {
                    "" => Ok(()),
                    _ => Err(ReferencesError::Generated),
                }
            }
            _ => {
                let limits = self.limits;
                let builder = self.flat.get_or_insert_with(|| ReferencesBuilder::new(limits));
                add(builder, key, raw)
            }
        }
    }
}

/// Adds the reference under a key.
fn add(builder: &mut ReferencesBuilder, key: &str, raw: &RawValue) -> Result<()> {
    let text = raw.get();
    let bad = |reason| ReferencesError::value(key, reason);
    match text.as_bytes().first() {
        // A Zarr document that is an object instead of a string.
        Some(b'{') => builder.add(key, Reference::Inline(text.as_bytes())),
        Some(b'"') => {
            let JsonString(value) = text_of(text)?;
            match value.strip_prefix(BASE64) {
                None => builder.add(key, Reference::Inline(value.as_bytes())),
                Some(encoded) => {
                    let decoded = BASE64_ENGINE.decode(encoded);
                    let bytes = decoded.map_err(|_| bad("its base64 is damaged"))?;
                    builder.add(key, Reference::Inline(&bytes))
                }
            }
        }
        Some(b'[') => {
            let mut list = serde_json::Deserializer::from_str(text);
            let Items(items, is_longer) =
                list.deserialize_seq(ItemsVisitor).map_err(|error| syntax(&error))?;
            let [first, offset, length] = items.map(|item| item.map(RawValue::get));
            let target = first.filter(|first| first.starts_with('"'));
            let target = target.ok_or_else(|| bad("the first of its list is no path"))?;
            let JsonString(target) = text_of(target)?;
            let number = |text: &str| {
                let is_plain = text.bytes().all(|digit| digit.is_ascii_digit());
                let number = text.parse::<u64>().ok().filter(|_| is_plain);
                number.ok_or_else(|| bad("offset and length are whole numbers of bytes"))
            };
            let (offset, length) = match (offset, length, is_longer) {
                (None, None, false) => (0, None),
                (Some(offset), Some(length), false) => (number(offset)?, Some(number(length)?)),
                _ => return Err(bad("a list is of a path, or of a path, an offset and a length")),
            };
            builder.add(key, Reference::Range { target: &target, offset, length })
        }
        _ => Err(bad("it is neither text nor a list")),
    }
}

/// Substitutes templates in a target; `None` if it has none.
fn expanded(target: &str, templates: &BTreeMap<String, String>) -> Result<Option<String>> {
    let refused = || ReferencesError::Expression(shown(target));
    if target.contains("{%") {
        return Err(refused());
    }
    if !target.contains("{{") {
        return Ok(None);
    }
    let (mut expanded, mut rest) = (String::new(), target);
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or_else(refused)?;
        let value = templates.get(name.trim()).ok_or_else(refused)?;
        // A template that contains templates is a function.
        if value.contains("{{") || value.contains("{%") {
            return Err(refused());
        }
        expanded.push_str(before);
        expanded.push_str(value);
        if expanded.len() > TARGET_BYTES_MAX {
            return Err(ReferencesError::value(target, "its path is too long"));
        }
        rest = after;
    }
    expanded.push_str(rest);
    match expanded.len() <= TARGET_BYTES_MAX && !expanded.is_empty() {
        true => Ok(Some(expanded)),
        false => Err(ReferencesError::value(target, "its path is empty or too long")),
    }
}

/// A JSON string, borrowed from the document if it has no escapes.
struct JsonString<'a>(Cow<'a, str>);

fn text_of(raw: &str) -> Result<JsonString<'_>> {
    let mut deserializer = serde_json::Deserializer::from_str(raw);
    deserializer.deserialize_str(TextVisitor).map_err(|error| syntax(&error))
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = JsonString<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> std::result::Result<Self::Value, E> {
        Ok(JsonString(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Self::Value, E> {
        Ok(JsonString(Cow::Owned(text.to_owned())))
    }
}

impl<'de> DeserializeSeed<'de> for TextVisitor {
    type Value = JsonString<'de>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// The first three items of a list, and true if there are more.
struct Items<'de>([Option<&'de RawValue>; 3], bool);

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut list: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut items = [None; 3];
        for item in &mut items {
            *item = list.next_element::<&RawValue>()?;
        }
        let mut is_longer = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            is_longer = true;
        }
        Ok(Items(items, is_longer))
    }
}

/// A callback for the key and value of each member of an object.
type TakeMember<'a> = &'a mut dyn FnMut(&str, &RawValue) -> Result<()>;

/// Calls `take` for each member of the object `text`, in order, until it returns an error.
fn members(text: &str, take: TakeMember<'_>) -> Result<()> {
    let mut failed = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = deserializer.deserialize_map(MembersVisitor { take, failed: &mut failed });
    let read = read.and_then(|()| deserializer.end());
    match failed {
        Some(error) => Err(error),
        None => read.map_err(|error| syntax(&error)),
    }
}

struct MembersVisitor<'a> {
    take: TakeMember<'a>,
    /// The error of the callback, which serde's error cannot carry.
    failed: &'a mut Option<ReferencesError>,
}

impl<'de> Visitor<'de> for MembersVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(JsonString(key)) = map.next_key_seed(TextVisitor)? {
            let raw = map.next_value::<&RawValue>()?;
            if let Err(error) = (self.take)(&key, raw) {
                let text = error.to_string();
                *self.failed = Some(error);
                return Err(A::Error::custom(text));
            }
        }
        Ok(())
    }
}
