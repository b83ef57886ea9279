//! The links of a group, with lookup by name.

use crate::hdf5::{GroupLinks, Link};

/// The links of a group.
pub(super) struct LinkLookup {
    links: GroupLinks,
    /// Indexes of the links, sorted by name.
    by_name: Vec<usize>,
}

/// Approximate memory of a link without its name, in bytes.
const LINK_BYTES: u64 = 24;

impl LinkLookup {
    pub(super) fn of(links: GroupLinks) -> Self {
        let mut by_name: Vec<usize> = (0..links.links.len()).collect();
        by_name.sort_unstable_by_key(|at| links.links.get(*at).map(|link| link.name.as_slice()));
        Self { links, by_name }
    }

    /// Returns the links in the order of the file.
    pub(super) fn links(&self) -> &[Link] {
        &self.links.links
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<&Link> {
        let link_at = |at: &usize| self.links.links.get(*at);
        let at = self
            .by_name
            .binary_search_by_key(&Some(name), |at| link_at(at).map(|link| link.name.as_slice()));
        self.by_name.get(at.ok()?).and_then(link_at)
    }

    /// Approximate memory of the listing, in bytes.
    pub(super) fn weight(&self) -> u64 {
        let names = self.links.links.iter().map(|link| link.name.len() as u64);
        names.fold(0, |sum, bytes| sum.saturating_add(bytes).saturating_add(LINK_BYTES))
    }
}
