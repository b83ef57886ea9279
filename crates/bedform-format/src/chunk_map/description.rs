//! Serialization of other modules' types in the JSON description of a chunk map.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::codec::BytesCodec;
use crate::codec::definitions::ChunkMapCodec;
use crate::{DataType, Endian};

fn parse_data_type<E: de::Error>(name: &str) -> Result<DataType, E> {
    DataType::parse_numpy(&format!("|{name}"))
        .map(|(data_type, _)| data_type)
        .ok_or_else(|| E::custom(format!("unknown data type {name:?}")))
}

pub(super) mod data_type {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        data_type: &DataType,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&data_type.numpy())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DataType, D::Error> {
        parse_data_type(&String::deserialize(deserializer)?)
    }
}

pub(super) mod optional_data_type {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        data_type: &Option<DataType>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        data_type.map(DataType::numpy).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DataType>, D::Error> {
        Option::<String>::deserialize(deserializer)?.as_deref().map(parse_data_type).transpose()
    }
}

pub(super) mod endian {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        endian: &Endian,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match endian {
            Endian::Little => "little",
            Endian::Big => "big",
        })
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Endian, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "little" => Ok(Endian::Little),
            "big" => Ok(Endian::Big),
            other => Err(de::Error::custom(format!("unknown byte order {other:?}"))),
        }
    }
}

pub(super) mod hexadecimal {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(bytes))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_str(HexadecimalVisitor)
    }
}

pub(super) mod optional_hexadecimal {
    use super::*;

    #[derive(Deserialize)]
    #[serde(transparent)]
    struct HexadecimalBytes(#[serde(with = "hexadecimal")] Vec<u8>);

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(to_text).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::<HexadecimalBytes>::deserialize(deserializer)?.map(|bytes| bytes.0))
    }
}

fn to_text(bytes: &[u8]) -> String {
    let digits = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(digits[usize::from(byte >> 4)]));
        text.push(char::from(digits[usize::from(byte & 15)]));
    }
    text
}

/// A visitor that decodes hexadecimal digits straight from the document, without a copy of the
/// text.
struct HexadecimalVisitor;

impl Visitor<'_> for HexadecimalVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("hexadecimal digits, two for a byte")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(E::custom("an odd number of hexadecimal digits"));
        }
        pairs
            .iter()
            .map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?))
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| E::custom("not a hexadecimal digit"))
    }
}

pub(super) mod codecs {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        codecs: &[BytesCodec],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let named: Option<Vec<ChunkMapCodec>> = codecs.iter().map(ChunkMapCodec::of).collect();
        named
            .ok_or_else(|| serde::ser::Error::custom("a codec that foreign files do not have"))?
            .serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<BytesCodec>, D::Error> {
        let codecs = Vec::<ChunkMapCodec>::deserialize(deserializer)?;
        codecs.into_iter().map(|codec| codec.codec().map_err(de::Error::custom)).collect()
    }
}
