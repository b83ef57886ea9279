//! Tests of storage through its public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod conformance;
mod growing;
mod local;
mod processes;
mod simulated;
