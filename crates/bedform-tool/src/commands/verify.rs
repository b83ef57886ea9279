//! `bedform verify`: a complete read with all checks.

use bedform::Result;
use bedform::store::NOT_CHECKED;
use serde_json::{Value, json};

use crate::arguments::{Arguments, open};
use crate::words::Progress;
use crate::{Command, EXIT_ERROR, EXIT_NO, Outcome};

pub(crate) const COMMAND: Command = Command { help: HELP, flags: &["--json"], valued: &[], run };
const HELP: &str = "\
Usage: bedform verify PATH [--json]

Read everything that is stored, check every checksum, name every bad object. Commits that are not settled are
read in the log. Missing shards are counted, and are no error: their data may be in the log, may never have been
written, may be all fill value, or may be lost. Plain Zarr does not tell these apart.

Exit code 0 if all is well, 1 if something is damaged, 2 if nothing is, but something is of a kind that cannot
be checked here.
";

fn run(arguments: &Arguments) -> Result<Outcome> {
    let (path, _) = arguments.path(0)?;
    let store = open(path, false)?;
    let progress = Progress::new("verifying");
    let found = store.verify(None, &|done, of| progress.tell(done, of))?;
    drop(progress);
    let unchecked = found.problems.iter().filter(|line| line.starts_with(NOT_CHECKED)).count();
    let damaged = found.problems.len() - unchecked;
    let code = match (damaged, unchecked) {
        (0, 0) => 0,
        (0, _) => EXIT_ERROR,
        _ => EXIT_NO,
    };
    if arguments.has("--json") {
        let absent = found.absent.iter().map(|one| {
            let counts = json!({"objects": one.objects, "of": one.of, "in_log": one.in_log});
            (one.array.to_string(), counts)
        });
        let value = json!({
            "path": path, "whole": found.problems.is_empty(), "damaged": damaged,
            "unchecked": unchecked, "problems": found.problems,
            "absent": absent.collect::<serde_json::Map<String, Value>>(),
        });
        return Ok(Outcome { text: format!("{value}\n"), code });
    }
    let mut lines = found.problems;
    lines.extend(found.absent.iter().map(|one| {
        format!(
            "{}: {} of {} objects are not there: {} have data in the log, the others were never \
             written, are all fill value, or lost",
            one.array, one.objects, one.of, one.in_log
        )
    }));
    lines.push(match (damaged, unchecked) {
        (0, 0) => format!("{path}: everything that is stored is whole"),
        (0, _) => {
            format!(
                "{path}: {unchecked} of what is stored cannot be checked, everything else is whole"
            )
        }
        _ => format!("{path}: {damaged} objects or parts of the log are damaged"),
    });
    Ok(Outcome { text: lines.join("\n") + "\n", code })
}
