//! Committed datatypes, found by address or by content.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::hdf5::datatype::{Datatype, TypeKind};

/// The committed datatypes of a file, in file order.
#[derive(Default)]
pub(super) struct NamedTypes {
    types: Vec<(String, Datatype)>,
    by_address: HashMap<u64, usize>,
    /// Indexes of the distinct types by hash; only the first of equal types is listed.
    by_kind: HashMap<u64, Vec<usize>>,
    hashing: RandomState,
}

impl NamedTypes {
    pub(super) fn push(&mut self, name: String, address: u64, datatype: Datatype) {
        let number = self.types.len();
        self.by_address.entry(address).or_insert(number);
        if self.of_kind(&datatype.kind).is_none() {
            let hash = self.hashing.hash_one(&datatype.kind);
            self.by_kind.entry(hash).or_default().push(number);
        }
        self.types.push((name, datatype));
    }

    /// Returns the name of a committed type, or of the first committed type with equal content.
    pub(super) fn name_of(&self, datatype: &Datatype) -> Option<&str> {
        let committed = datatype.committed.and_then(|address| self.by_address.get(&address));
        let found = committed.copied().or_else(|| self.of_kind(&datatype.kind))?;
        self.types.get(found).map(|(name, _)| name.as_str())
    }

    fn of_kind(&self, kind: &TypeKind) -> Option<usize> {
        let mut equal = self.by_kind.get(&self.hashing.hash_one(kind))?.iter().copied();
        equal.find(|at| self.types.get(*at).is_some_and(|(_, known)| known.kind == *kind))
    }
}
