//! The log: what is committed and not yet settled.
//!
//! `docs/log.md` says what is on disk and argues that nothing is lost or half seen.
//!
//! | module | holds |
//! |---|---|
//! | `place` | where a store's log is, and its roots |
//! | `view` | one root and what it refers to: what readers pin |
//! | `overlay` | the pieces that lie over an object's chunks |
//! | `boxes` | selections as boxes |
//! | `segment` | the file that one writer appends to |
//! | [`session`] | writing: buffers, sections, commits |
//! | [`mod@settle`] | commits become shards |

mod boxes;
pub(crate) mod overlay;
pub(crate) mod place;
mod segment;
pub mod session;
pub mod settle;
pub(crate) mod view;
