//! `bedform recover`: the remains of dead writers.

use std::path::Path;

use bedform::log::recover::{LeftoverPolicy, Recovered};
use bedform::log::session::Burst;
use bedform::{Error, Result};
use serde_json::json;

use crate::arguments::{Arguments, open};
use crate::words::{bytes, count};
use crate::{Command, EXIT_NO, Outcome};

pub(crate) const COMMAND: Command =
    Command { help: HELP, flags: &["--commit", "--discard", "--json"], valued: &["--burst"], run };
const HELP: &str = "\
Usage: bedform recover STORE [--burst DIRECTORY] [--commit | --discard] [--json]

Find the remains of dead writers, in the log and in the burst tier. Committed data need no recovery: every
reader sees them. Commits that a burst tier has promised become visible. Writes without a commit are listed, and
stay until --commit or --discard. Live writers are not touched. On a cluster run the command on every node whose
burst tier may hold data.

  --burst DIRECTORY  the burst tier's directory, if BEDFORM_BURST does not name it
  --commit           make writes that no commit has visible, over what was committed since
  --discard          give up writes that no commit has, and promises that cannot be kept
  --json             print one JSON object

Exit code 1 if a promised commit is damaged and waits for a decision: the commits before it are visible.
";

fn run(arguments: &Arguments) -> Result<Outcome> {
    let (path, _) = arguments.path(0)?;
    let leftover = match (arguments.has("--commit"), arguments.has("--discard")) {
        (true, true) => return Err(Error::invalid("--commit and --discard exclude each other")),
        (true, false) => LeftoverPolicy::Commit,
        (false, true) => LeftoverPolicy::Discard,
        (false, false) => LeftoverPolicy::Keep,
    };
    let store = open(path, true)?;
    let burst = match arguments.value("--burst") {
        Some(directory) => Some(Burst::existing(Path::new(directory))?),
        None => Burst::of_store(&**store.storage())?,
    };
    let done = store.recover(burst.as_ref(), leftover)?;
    let waits = !done.damaged.is_empty() && leftover != LeftoverPolicy::Discard;
    let text = if arguments.has("--json") {
        let mut value = done.to_json();
        value["path"] = json!(path);
        format!("{value}\n")
    } else {
        lines(&done, leftover).into_iter().map(|line| format!("{path}: {line}\n")).collect()
    };
    Ok(Outcome { text, code: if waits { EXIT_NO } else { 0 } })
}

fn lines(done: &Recovered, leftover: LeftoverPolicy) -> Vec<String> {
    let mut lines = Vec::new();
    if done.drained_bytes > 0 {
        lines.push(format!("{} came from the burst tier", bytes(done.drained_bytes)));
    }
    if done.completed > 0 {
        lines.push(format!("{} became visible", count(done.completed, "promised commit")));
    }
    if done.live > 0 {
        lines.push(format!("{} left alone: a writer is alive there", count(done.live, "segment")));
    }
    let gives_up = leftover == LeftoverPolicy::Discard;
    let then = match gives_up {
        true => "it is given up",
        false => "run this there with --burst; if nothing is there any more, --discard gives it up",
    };
    lines.extend(done.tiers.iter().map(|tier| {
        format!("a writer that died may have promised more, through the burst tier {tier}: {then}")
    }));
    let wait = match gives_up {
        true => "given up",
        false => {
            "nothing else is written before that is decided: restore what is damaged and run this again, or \
             --discard gives it up with the later commits of its session"
        }
    };
    lines.extend(done.damaged.iter().map(|damage| format!("{damage}: {wait}")));
    if done.given_up > 0 {
        lines.push(format!("{} given up", count(done.given_up, "promised commit")));
    }
    for found in &done.found {
        let arrays = match found.arrays.is_empty() {
            true => "arrays that are gone".to_owned(),
            false => found.arrays.join(", "),
        };
        lines.push(format!(
            "{} of {} to {arrays} by rank {} of session {} never committed",
            count(found.writes, "write"),
            bytes(found.bytes),
            found.rank,
            found.session.get(..8).unwrap_or(&found.session),
        ));
    }
    if !done.found.is_empty() {
        lines.push(match leftover {
            LeftoverPolicy::Commit => format!("{} made of them", count(done.committed, "commit")),
            LeftoverPolicy::Discard => "they are given up".to_owned(),
            _ => "they stay: --commit makes them visible, --discard gives them up".to_owned(),
        });
    }
    if lines.is_empty() {
        let text = "nothing to recover: committed data are visible, and data that had not reached the \
                    log are lost with their writer";
        lines.push(text.to_owned());
    }
    lines
}
