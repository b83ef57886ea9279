//! The engine under faults, crashes, other writers and hostile data.
//!
//! `cargo test` runs the regressions. All other tests are stages of `make reliability`, which
//! compares the counts with the floors of `reliability/stages.toml`. `cargo test` lists these tests
//! as ignored, and runs them with `-- --ignored`. Random cases follow from a seed that differs
//! between runs; each test prints it with the command that repeats it.

#![allow(clippy::disallowed_methods, reason = "tests make files of their own")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::host_endian_bytes,
    clippy::type_complexity,
    clippy::too_many_lines
)]

mod bombs;
mod child;
mod crash;
mod damage;
mod failures;
mod frozen;
mod fuzz_regressions;
mod hostile;
mod kills;
mod limits;
mod lost;
mod machine;
mod misbehaving;
mod model;
mod moments;
mod moved;
mod nodes;
mod paths;
mod place;
mod publication;
mod races;
mod regressions;
mod roles;
mod schedules;
#[path = "../../../bedform-remote/tests/main/server.rs"]
#[allow(dead_code)]
mod server;
mod servers;
mod settling;
mod support;
mod tiers;
mod watched;
mod weights;
mod workloads;
