//! The identity of a commit before it has a number.

use super::Result;
use super::varint::{ColumnReader, write_varint};

const WHAT: &str = "the session of a record";

/// The commit to which a record belongs. A root contains the commit if it names this session with
/// this epoch or a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommitId {
    /// Identity of the session.
    pub session: [u8; 16],
    /// The number of commits of the session, including this one.
    pub epoch: u32,
}

impl CommitId {
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.session);
        write_varint(u64::from(self.epoch), bytes);
    }

    pub(super) fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let [session] = reader.pieces::<16>(1, WHAT)? else {
            return Err(super::LogError::CutShort { what: WHAT });
        };
        Ok(Self { session: *session, epoch: reader.number_u32(WHAT)? })
    }
}
