//! The C library, called as C calls it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "pointers to what lives on the stack")]

mod foreign;
mod misuse;
mod query;
mod support;
mod use_of_it;
