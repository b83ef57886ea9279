//! Links: the names in a group and their targets.

use super::cursor::Cursor;
use super::error::{Hdf5Error, Result};

/// A named link of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The name as bytes, mostly UTF-8.
    pub name: Vec<u8>,
    /// The object or path to which the name refers.
    pub target: LinkTarget,
    /// Creation order, if the group tracks it.
    pub order: Option<u64>,
}

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTarget {
    /// The object at this address.
    Hard(u64),
    /// The object at this path, if any.
    Soft(Vec<u8>),
    /// An object of another file, which the parser never opens.
    External {
        /// The other file.
        file: Vec<u8>,
        /// The path in it.
        path: Vec<u8>,
    },
    /// A link type that a program registered.
    UserDefined(u8),
}

const NAME_WIDTH: u8 = 0x03;
const HAS_ORDER: u8 = 0x04;
const HAS_KIND: u8 = 0x08;
const HAS_CHARSET: u8 = 0x10;
const KIND_EXTERNAL: u8 = 64;

impl Link {
    pub(super) fn decode(mut cursor: Cursor<'_>) -> Result<Self> {
        cursor.version(1, "a link")?;
        let flags = cursor.u8()?;
        let kind = if flags & HAS_KIND != 0 { cursor.u8()? } else { 0 };
        let order = if flags & HAS_ORDER != 0 { Some(cursor.u64()?) } else { None };
        if flags & HAS_CHARSET != 0 {
            cursor.skip(1)?;
        }
        let width = 1_usize.checked_shl((flags & NAME_WIDTH).into()).unwrap_or(1);
        let length = usize::try_from(cursor.uint(width)?).unwrap_or(usize::MAX);
        let name = cursor.take(length)?.to_vec();
        if name.is_empty() {
            return Err(cursor.corrupt("a link without a name"));
        }
        let target = match kind {
            0 => LinkTarget::Hard(cursor.required_address()?),
            1 => {
                let length = cursor.u16()?;
                LinkTarget::Soft(cursor.take(length.into())?.to_vec())
            }
            KIND_EXTERNAL => {
                let length = cursor.u16()?;
                external(cursor.split(length.into())?)?
            }
            2..KIND_EXTERNAL => return Err(cursor.corrupt(format!("a link of kind {kind}"))),
            _ => LinkTarget::UserDefined(kind),
        };
        Ok(Self { name, target, order })
    }
}

fn external(mut cursor: Cursor<'_>) -> Result<LinkTarget> {
    let version_and_flags = cursor.u8()?;
    if version_and_flags != 0 {
        return Err(Hdf5Error::unknown(format!("external links of form {version_and_flags}")));
    }
    let file = cursor.zero_terminated()?.to_vec();
    let path = cursor.zero_terminated()?.to_vec();
    Ok(LinkTarget::External { file, path })
}
