//! Sources: where the chunks of an array lie, and what lies over them.

pub(crate) mod locate;
