//! Structured elements: NumPy descriptions of their fields. The engine handles such an element as
//! opaque bytes.

use serde_json::{Value, json};

use super::{MetadataError, parse_data_type};
use crate::fields::{Fields, Named, invalid, unsupported};
use crate::{DataType, Endian};

type Result<T> = std::result::Result<T, MetadataError>;

/// Largest number of fields of an element, with those of nested structures.
const FIELDS_MAX: usize = 1024;
/// Largest depth of nested structures.
const DEPTH_MAX: usize = 8;

/// The type of a structured element.
#[derive(Debug, Clone, PartialEq)]
pub struct Structure {
    /// NumPy's description of the fields: a list of names, types, and optional shapes.
    numpy: Value,
    bytes: u64,
}

impl Structure {
    /// Parses the list that is the `dtype` in Zarr v2.
    pub(super) fn parse_v2(list: &[Value]) -> Result<Self> {
        Parser { left: FIELDS_MAX }.fields_v2("dtype", list, 0)
    }

    /// Parses the `fields` of a Zarr v3 data type whose numbers have this byte order.
    pub(super) fn parse_v3(named: &Named<'_>, endian: Endian) -> Result<Self> {
        Parser { left: FIELDS_MAX }.fields_v3(&named.fields()?, endian, 0)
    }

    /// Returns NumPy's description of the fields.
    pub fn numpy(&self) -> &Value {
        &self.numpy
    }

    /// Returns the opaque type of the whole element.
    pub(super) fn data_type(&self, field: &str) -> Result<DataType> {
        DataType::raw(self.bytes).ok_or_else(|| invalid(field, "elements of too many bytes"))
    }
}

/// A parser that may read `left` more fields.
struct Parser {
    left: usize,
}

impl Parser {
    fn enter(&mut self, at: &str, fields: usize, depth: usize) -> Result<()> {
        self.left = self.left.checked_sub(fields).ok_or_else(|| invalid(at, "too many fields"))?;
        if depth > DEPTH_MAX || fields == 0 {
            return Err(invalid(at, "expected fields, not nested too deeply"));
        }
        Ok(())
    }

    fn fields_v2(&mut self, at: &str, list: &[Value], depth: usize) -> Result<Structure> {
        self.enter(at, list.len(), depth)?;
        let (mut fields, mut bytes) = (Vec::with_capacity(list.len()), 0_u64);
        for (index, field) in list.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let wrong = || invalid(at.as_str(), "expected a name and a type");
            let parts = field.as_array().ok_or_else(wrong)?;
            let (name, kind, shape) = match parts.as_slice() {
                [name, kind] => (name, kind, None),
                [name, kind, shape] => (name, kind, Some(shape)),
                _ => return Err(wrong()),
            };
            let name = name.as_str().ok_or_else(wrong)?;
            let (numpy, size) = match kind {
                Value::Array(inner) => {
                    let inner = self.fields_v2(&at, inner, depth + 1)?;
                    (inner.numpy, inner.bytes)
                }
                Value::String(text) => element_v2(&at, text)?,
                _ => return Err(wrong()),
            };
            let count = shape.map_or(Some(1), count_of).ok_or_else(wrong)?;
            bytes = size
                .checked_mul(count)
                .and_then(|size| bytes.checked_add(size))
                .ok_or_else(wrong)?;
            fields.push(match shape {
                None => json!([name, numpy]),
                Some(shape) => json!([name, numpy, shape]),
            });
        }
        Ok(Structure { numpy: Value::Array(fields), bytes })
    }

    fn fields_v3(
        &mut self,
        of: &Fields<'_, '_>,
        endian: Endian,
        depth: usize,
    ) -> Result<Structure> {
        let at = of.at("fields");
        let list = of.list("fields")?;
        self.enter(&at, list.len(), depth)?;
        let (mut fields, mut bytes) = (Vec::with_capacity(list.len()), 0_u64);
        for (index, field) in list.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let wrong = || invalid(at.as_str(), "expected a name and a type");
            let (name, kind) = match field {
                Value::Array(parts) => match parts.as_slice() {
                    [name, kind] => (name, kind),
                    _ => return Err(wrong()),
                },
                Value::Object(_) => {
                    let members = Fields::new(&at, field)?;
                    (members.need("name")?, members.need("data_type")?)
                }
                _ => return Err(wrong()),
            };
            let name = name.as_str().ok_or_else(wrong)?;
            let named = Named::parse(&at, kind)?;
            let (numpy, size) = match is_structured(named.name) {
                true => {
                    let inner = self.fields_v3(&named.fields()?, endian, depth + 1)?;
                    (inner.numpy, inner.bytes)
                }
                false => described(&at, parse_data_type(kind)?, endian)?,
            };
            bytes = bytes.checked_add(size).ok_or_else(wrong)?;
            fields.push(json!([name, numpy]));
        }
        Ok(Structure { numpy: Value::Array(fields), bytes })
    }
}

/// Returns true for zarr-python's names of structured types.
pub(super) fn is_structured(name: &str) -> bool {
    matches!(name, "structured" | "struct")
}

fn element_v2(at: &str, name: &str) -> Result<(Value, u64)> {
    let (data_type, endian) = DataType::parse_numpy(name)
        .ok_or_else(|| unsupported(at, format!("the data type {name:?}")))?;
    described(at, data_type, endian.unwrap_or(Endian::NATIVE))
}

fn described(at: &str, data_type: DataType, endian: Endian) -> Result<(Value, u64)> {
    let size =
        data_type.item_size().ok_or_else(|| unsupported(at, format!("a field of {data_type}")))?;
    let order = match (data_type.swap_size(), endian) {
        (1, _) => '|',
        (_, Endian::Little) => '<',
        (_, Endian::Big) => '>',
    };
    Ok((Value::from(format!("{order}{}", data_type.numpy())), size as u64))
}

/// Returns the number of elements in a field that is an array.
fn count_of(shape: &Value) -> Option<u64> {
    match shape {
        Value::Array(lengths) if lengths.len() <= 32 => {
            lengths.iter().try_fold(1_u64, |count, length| count.checked_mul(length.as_u64()?))
        }
        length => length.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind_are_described_as_numpy_does() {
        let list =
            json!([["a", "<f4"], ["b", ">i2", [2, 3]], ["c", [["d", "|S3"], ["e", "<M8[ns]"]], 2]]);
        let parsed = Structure::parse_v2(list.as_array().unwrap()).unwrap();
        assert_eq!((parsed.numpy(), parsed.bytes), (&list, 4 + 12 + 22));
        let kind = json!({"name": "structured", "configuration": {"fields": [
            ["a", "float32"],
            {"name": "b", "data_type": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}},
            ["c", {"name": "struct", "configuration": {"fields": [["d", "int16"]]}}],
        ]}});
        let named = Named::parse("data_type", &kind).unwrap();
        let parsed = Structure::parse_v3(&named, Endian::Big).unwrap();
        assert_eq!(parsed.numpy(), &json!([["a", ">f4"], ["b", "|S3"], ["c", [["d", ">i2"]]]]));
        assert_eq!(parsed.data_type("").unwrap(), DataType::Raw(9));
    }

    #[test]
    fn fields_without_end_or_of_no_fixed_size_are_refused() {
        let mut deep = json!([["a", "<f4"]]);
        for _ in 0..20 {
            deep = json!([["a", deep]]);
        }
        let many: Vec<Value> = (0..2000).map(|name| json!([name.to_string(), "<f4"])).collect();
        let huge = json!([["a", "<f8", [1_u64 << 40, 1_u64 << 40]]]);
        let large = json!([["a", "<f8", 1 << 20]]);
        for list in
            [deep, Value::Array(many), huge, json!([["a", "|O"]]), json!([]), json!([["a"]])]
        {
            assert!(Structure::parse_v2(list.as_array().unwrap()).is_err(), "{list:.60}");
        }
        let parsed = Structure::parse_v2(large.as_array().unwrap()).unwrap();
        assert!(parsed.data_type("dtype").is_err());
    }
}
