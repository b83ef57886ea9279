//! Object headers, versions 1 and 2: the messages of a group, a dataset or a named type.

use std::collections::HashSet;

use super::cursor::{Cursor, FileBlock};
use super::error::{Hdf5Error, Result};
use super::source::CountedFile;

/// The type number of a header message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageKind(pub(super) u16);

impl MessageKind {
    pub(super) const DATASPACE: Self = Self(0x01);
    pub(super) const LINK_INFORMATION: Self = Self(0x02);
    pub(super) const DATATYPE: Self = Self(0x03);
    pub(super) const OLD_FILL_VALUE: Self = Self(0x04);
    pub(super) const FILL_VALUE: Self = Self(0x05);
    pub(super) const LINK: Self = Self(0x06);
    pub(super) const EXTERNAL_FILES: Self = Self(0x07);
    pub(super) const LAYOUT: Self = Self(0x08);
    pub(super) const FILTERS: Self = Self(0x0b);
    pub(super) const ATTRIBUTE: Self = Self(0x0c);
    pub(super) const SHARED_MESSAGE_TABLE: Self = Self(0x0f);
    pub(super) const CONTINUATION: Self = Self(0x10);
    pub(super) const SYMBOL_TABLE: Self = Self(0x11);
    pub(super) const DRIVER_INFORMATION: Self = Self(0x14);
    pub(super) const ATTRIBUTE_INFORMATION: Self = Self(0x15);
    pub(super) const CACHE_IMAGE: Self = Self(0x18);

    /// Returns true if the format defines the number.
    fn is_known(self) -> bool {
        self.0 != 0x09 && self.0 <= 0x18
    }
}

/// Flag of a message: the body is a reference to a shared message.
pub(super) const FLAG_SHARED: u8 = 0x02;
/// Flag of a message: a reader that does not know its type must refuse the object.
const FLAG_FAIL_IF_UNKNOWN: u8 = 0x80;
/// Flags of a header of version 2.
const ATTRIBUTE_ORDER_TRACKED: u8 = 0x04;
const ATTRIBUTE_LIMITS_STORED: u8 = 0x10;
const TIMES_STORED: u8 = 0x20;
/// Bytes of a version 1 header before its messages.
const OLD_PREFIX_BYTES: u64 = 16;
/// Largest length of a version 2 header's prefix, in bytes.
const NEW_PREFIX_BYTES: u64 = 34;
/// Bytes of the signature and checksum of a piece of a version 2 header.
const PIECE_OVERHEAD: u64 = 8;

/// A message of an object header.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) kind: MessageKind,
    pub(super) flags: u8,
    /// Creation order, if the header tracks it.
    pub(super) order: Option<u16>,
    pub(super) body: FileBlock,
}

impl Message {
    pub(super) fn cursor(&self) -> Cursor<'_> {
        self.body.cursor()
    }
}

/// The messages of an object, in the order of the file.
#[derive(Debug, Clone)]
pub(super) struct ObjectHeader {
    /// Address of the object.
    pub(super) address: u64,
    /// True if the creation order of attributes is tracked.
    pub(super) attribute_order_tracked: bool,
    pub(super) messages: Vec<Message>,
}

/// A header while its pieces are read.
struct HeaderPieces {
    messages: Vec<Message>,
    /// Addresses and lengths of pieces still to read, and addresses of all known pieces.
    pending: Vec<(u64, u64)>,
    met: HashSet<u64>,
    /// Bytes of pieces that may still be read; a hostile file may overlap pieces.
    bytes_left: u64,
    /// Flags of a version 2 header; `None` for version 1.
    flags: Option<u8>,
}

impl ObjectHeader {
    pub(super) fn read(source: &CountedFile<'_>, address: u64) -> Result<Self> {
        let prefix = source.block_up_to(address, NEW_PREFIX_BYTES)?;
        let mut pieces = HeaderPieces {
            messages: Vec::new(),
            pending: Vec::new(),
            met: HashSet::from([address]),
            bytes_left: source.limits.attributes_bytes_max,
            flags: None,
        };
        if prefix.bytes.starts_with(b"OHDR") {
            pieces.read_new(source, address, &prefix)?;
        } else {
            pieces.read_old(source, address, prefix.cursor())?;
        }
        let flags = pieces.flags.unwrap_or(0);
        let attribute_order_tracked = flags & ATTRIBUTE_ORDER_TRACKED != 0;
        Ok(Self { address, attribute_order_tracked, messages: pieces.messages })
    }

    /// Returns the first message of a kind.
    pub(super) fn find(&self, kind: MessageKind) -> Option<&Message> {
        self.messages.iter().find(|message| message.kind == kind)
    }

    /// Returns the messages of a kind.
    pub(super) fn all(&self, kind: MessageKind) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.kind == kind)
    }
}

impl HeaderPieces {
    fn read_old(
        &mut self,
        source: &CountedFile<'_>,
        address: u64,
        mut prefix: Cursor<'_>,
    ) -> Result {
        let start = prefix;
        let [version, _] = prefix.array()?;
        if version != 1 {
            return Err(start.corrupt("no object header"));
        }
        // Skips the number of messages; the lengths suffice.
        prefix.skip(6)?;
        let length = u64::from(prefix.u32()?);
        let first = address.saturating_add(OLD_PREFIX_BYTES);
        self.pending.push((first, length));
        while let Some((address, length)) = self.pending.pop() {
            self.spend(length)?;
            let block = source.block(address, length)?;
            self.add_messages(block.cursor())?;
        }
        Ok(())
    }

    fn read_new(&mut self, source: &CountedFile<'_>, address: u64, prefix: &FileBlock) -> Result {
        let mut cursor = prefix.cursor();
        cursor.signature(*b"OHDR")?;
        cursor.version(2, "the object header")?;
        let flags = cursor.u8()?;
        if flags & TIMES_STORED != 0 {
            cursor.skip(16)?;
        }
        if flags & ATTRIBUTE_LIMITS_STORED != 0 {
            cursor.skip(4)?;
        }
        let width = 1_usize.checked_shl((flags & 3).into()).unwrap_or(1);
        let length = cursor.uint(width)?;
        let before = cursor.at().saturating_sub(prefix.at);
        let whole = before.checked_add(length).and_then(|bytes| bytes.checked_add(4));
        let whole = whole.ok_or_else(|| prefix.cursor().corrupt("a header without an end"))?;
        self.flags = Some(flags);
        self.spend(whole)?;
        let block = source.checked_block(address, whole)?;
        let mut cursor = block.cursor();
        cursor.skip(usize::try_from(before).unwrap_or(usize::MAX))?;
        self.add_messages(cursor)?;
        while let Some((address, length)) = self.pending.pop() {
            if length < PIECE_OVERHEAD {
                let at = source.offset_of(address)?;
                return Err(Hdf5Error::corrupt(at, "a piece of a header without room"));
            }
            self.spend(length)?;
            let block = source.checked_block(address, length)?;
            let mut cursor = block.cursor();
            cursor.signature(*b"OCHK")?;
            self.add_messages(cursor)?;
        }
        Ok(())
    }

    fn spend(&mut self, bytes: u64) -> Result {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or_else(|| Hdf5Error::limit("a very long object header"))?;
        Ok(())
    }

    fn add_messages(&mut self, mut cursor: Cursor<'_>) -> Result {
        let prefix_bytes = match self.flags {
            None => 8,
            Some(flags) if flags & ATTRIBUTE_ORDER_TRACKED != 0 => 6,
            Some(_) => 4,
        };
        // Remaining bytes too few for a message are a gap.
        while cursor.len() >= prefix_bytes {
            let message = self.message(&mut cursor)?;
            match message.kind {
                MessageKind(0) => {}
                MessageKind::CONTINUATION => self.continue_at(&message)?,
                kind if !kind.is_known() && message.flags & FLAG_FAIL_IF_UNKNOWN != 0 => {
                    return Err(Hdf5Error::unknown(format!("messages of kind {}", kind.0)));
                }
                _ => self.messages.push(message),
            }
        }
        Ok(())
    }

    fn message(&self, cursor: &mut Cursor<'_>) -> Result<Message> {
        let kind = match self.flags {
            None => cursor.u16()?,
            Some(_) => cursor.u8()?.into(),
        };
        let length = cursor.u16()?;
        let flags = cursor.u8()?;
        let mut order = None;
        match self.flags {
            None => cursor.skip(3)?,
            Some(header) if header & ATTRIBUTE_ORDER_TRACKED != 0 => order = Some(cursor.u16()?),
            Some(_) => {}
        }
        let at = cursor.at();
        let bytes = cursor.take(length.into())?.to_vec();
        let body = FileBlock { bytes, at, widths: cursor.widths() };
        Ok(Message { kind: MessageKind(kind), flags, order, body })
    }

    fn continue_at(&mut self, message: &Message) -> Result {
        let mut cursor = message.cursor();
        let address = cursor.required_address()?;
        let length = cursor.length()?;
        if !self.met.insert(address) {
            return Err(cursor.corrupt("a header that continues in itself"));
        }
        self.pending.push((address, length));
        Ok(())
    }
}
