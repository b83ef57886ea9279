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
//! | `stream` | what one writer writes: data, and sections that say what they mean |
//! | [`session`] | writing: what the members of a job take and declare |
//! | `commit` | what the members do together to commit |
//! | [`mod@settle`] | commits become shards |

mod boxes;
pub(crate) mod commit;
pub(crate) mod overlay;
pub(crate) mod place;
mod segment;
pub mod session;
pub mod settle;
mod stream;
pub(crate) mod view;
