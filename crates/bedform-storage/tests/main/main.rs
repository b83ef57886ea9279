//! Storage seen from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod azure;
mod conformance;
mod google;
mod growing;
mod local;
mod lost_answers;
mod processes;
mod remote;
mod server;
mod simulated;
