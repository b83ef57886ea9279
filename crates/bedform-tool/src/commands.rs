//! The commands.

pub(crate) mod info;
pub(crate) mod recover;
pub(crate) mod settle;
pub(crate) mod verify;
