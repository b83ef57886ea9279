//! The engine under faults, crashes, other writers and hostile data.
//!
//! `cargo test` runs everything in small; `make reliability` runs the stages of
//! `reliability/stages.toml` with `BEDFORM_EFFORT=gate`, and compares their counts with the floors
//! there. Seeds are fixed, plus one that differs from run to run and is printed; `BEDFORM_SEED`
//! gives it again.
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
