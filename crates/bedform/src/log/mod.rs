//! The log: what is committed and not yet settled.
//!
//! `docs/log.md` says what is on disk and argues that nothing is lost or half seen.
//!
//! | module | holds |
//! |---|---|
//! | `place` | where a store's log is, and its roots |
//! | `view` | one root and what it refers to: what readers pin |
//! | `section` | a section, and where the boxes of an array lie in it |
//! | `tree` | which of many boxes have a share in a region |
//! | `overlay` | what lies over an object's chunks |
//! | `blocks` | copies from the blocks of segments |
//! | `boxes` | selections as boxes |
//! | `segment` | the file that one writer appends to |
//! | [`session`] | writing: buffers, sections, commits |
//! | [`mod@settle`] | commits become shards |

pub(crate) mod blocks;
mod boxes;
pub(crate) mod overlay;
pub(crate) mod place;
mod section;
mod segment;
pub mod session;
pub mod settle;
mod tree;
pub(crate) mod view;
