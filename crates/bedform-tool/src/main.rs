//! The program `bedform` that `make install` brings, for machines without Python. It keeps the
//! stores of a simulation in order. Its commands, their options and their exit codes are those of
//! the Python package, which has more of them.
//!
//! | module | holds |
//! |---|---|
//! | `arguments` | options and their values |
//! | `words` | sizes, times and counts in words |
//! | `commands` | the commands |

mod arguments;
mod commands;
mod words;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use arguments::Arguments;
use bedform::Result;
use commands::{info, recover, settle, verify};

/// The exit code of a `no`, such as damage that was found.
const EXIT_NO: u8 = 1;
/// The exit code of an error.
const EXIT_ERROR: u8 = 2;

const HELP: &str = "\
Usage: bedform COMMAND ...

  recover STORE    find the remains of dead writers, and make promised commits visible
  settle STORE     turn the commits of sessions into shards, so that the store is plain Zarr
  info PATH        tell what a store or file holds
  verify PATH      read everything that is stored, and check every checksum

bedform COMMAND --help tells more. Exit code 0 if all is well, 1 for a no (damage, a promise that cannot be
kept), 2 for an error. The Python package (pip install bedform) has a program of this name with more commands,
such as optimize, convert and explain.
";

/// A command.
struct Command {
    help: &'static str,
    /// Options without a value.
    flags: &'static [&'static str],
    /// Options with a value.
    valued: &'static [&'static str],
    run: fn(&Arguments) -> Result<Outcome>,
}

/// The output of a command, and its exit code.
struct Outcome {
    text: String,
    code: u8,
}

fn main() -> ExitCode {
    let given: Vec<String> =
        match std::env::args_os().skip(1).map(|one| one.into_string()).collect() {
            Ok(given) => given,
            Err(one) => return refused(&format!("{} is not UTF-8", one.to_string_lossy())),
        };
    let Some((command, rest)) = given.split_first() else { return printed(HELP, EXIT_ERROR) };
    let command = match command.as_str() {
        "recover" => recover::COMMAND,
        "settle" => settle::COMMAND,
        "info" => info::COMMAND,
        "verify" => verify::COMMAND,
        "--help" | "-h" | "help" => return printed(HELP, 0),
        "--version" => return printed(concat!("bedform ", env!("CARGO_PKG_VERSION"), "\n"), 0),
        other => {
            return refused(&format!(
                "there is no command {other:?} here; there are recover, settle, info and verify; the \
                     Python package has more"
            ));
        }
    };
    if rest.iter().any(|one| one == "--help" || one == "-h") {
        return printed(command.help, 0);
    }
    let arguments = Arguments::parse(rest, command.flags, command.valued);
    match arguments.and_then(|arguments| (command.run)(&arguments)) {
        Ok(Outcome { text, code }) => printed(&text, code),
        Err(error) => refused(&error.to_string()),
    }
}

fn refused(text: &str) -> ExitCode {
    // If stderr is closed the exit code still tells.
    let _ = writeln!(std::io::stderr(), "bedform: {text}");
    EXIT_ERROR.into()
}

fn printed(text: &str, code: u8) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader such as `head` has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => refused(&error.to_string()),
        _ => code.into(),
    }
}
