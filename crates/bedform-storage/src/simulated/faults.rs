//! Counts of calls, and scheduled failures.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;

use super::state::refuse;

/// The kinds of calls that can be counted and made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum CallKind {
    Open,
    OpenDirectory,
    Stat,
    Read,
    Create,
    Write,
    Reserve,
    SetSize,
    SetDirect,
    SyncFile,
    SyncDirectory,
    SyncWhole,
    Close,
    Rename,
    Exchange,
    Link,
    Unlink,
    MakeDirectory,
    RemoveDirectory,
    List,
    Lock,
}

impl CallKind {
    /// All kinds.
    pub const ALL: [Self; 21] = [
        Self::Open,
        Self::OpenDirectory,
        Self::Stat,
        Self::Read,
        Self::Create,
        Self::Write,
        Self::Reserve,
        Self::SetSize,
        Self::SetDirect,
        Self::SyncFile,
        Self::SyncDirectory,
        Self::SyncWhole,
        Self::Close,
        Self::Rename,
        Self::Exchange,
        Self::Link,
        Self::Unlink,
        Self::MakeDirectory,
        Self::RemoveDirectory,
        Self::List,
        Self::Lock,
    ];

    /// True for a call whose failure leaves it unknown which changes are durable.
    pub fn is_sync(self) -> bool {
        matches!(self, Self::SyncFile | Self::SyncDirectory | Self::SyncWhole)
    }
}

/// The way in which a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailure {
    /// With this system error number, before any work.
    Error(i32),
    /// With this system error number, after its work is done.
    ErrorAfter(i32),
    /// A read or write does half of its work, rounded up; other calls succeed.
    Short,
}

#[derive(Debug, Default)]
pub(super) struct CallFaults {
    pub(super) calls: u64,
    pub(super) counts: BTreeMap<CallKind, u64>,
    pub(super) failures: BTreeMap<(CallKind, u64), CallFailure>,
    pub(super) power_fails_at: Option<u64>,
    pub(super) lacks: Vec<CallKind>,
}

impl CallFaults {
    /// Counts a call and returns its scheduled failure.
    pub(super) fn next(&mut self, kind: CallKind) -> io::Result<Option<CallFailure>> {
        let call = self.calls;
        self.calls += 1;
        let count = self.counts.entry(kind).or_default();
        let number = *count;
        *count += 1;
        if self.power_fails_at.is_some_and(|at| call >= at) {
            return refuse(Errno::IO);
        }
        if kind != CallKind::Rename && self.lacks.contains(&kind) {
            return refuse(Errno::OPNOTSUPP);
        }
        Ok(self.failures.remove(&(kind, number)))
    }
}
