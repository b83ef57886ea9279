//! Tests of object stores and servers through the public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod azure;
mod conformance;
mod google;
mod lost_answers;
mod remote;
mod server;
