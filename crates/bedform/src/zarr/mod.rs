//! Zarr stores: documents, drafts, shards.

pub(crate) mod description;
pub(crate) mod documents;
pub(crate) mod nodes;
pub(crate) mod object;
pub(crate) mod outer;
pub(crate) mod region;
pub(crate) mod source;
pub(crate) mod together;

pub use region::WriteStatistics;
