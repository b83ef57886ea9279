//! `bedform settle`: commits become shards.

use bedform::Result;
use bedform::log::settle::SettleOptions;
use bedform_format::ObjectPath;
use serde_json::json;

use crate::arguments::{Arguments, open};
use crate::words::{Progress, bytes, count, parse_bytes, parse_seconds};
use crate::{Command, Outcome};

pub(crate) const COMMAND: Command =
    Command { help: HELP, flags: &["--json"], valued: &["--memory", "--array", "--grace"], run };
const HELP: &str = "\
Usage: bedform settle STORE [--memory SIZE] [--array NAME]... [--grace TIME] [--json]

Turn the commits of sessions into shards, so that the store is plain Zarr. Readers and writers may go on
meanwhile. Stop it whenever you like: settled shards stay, and the same command goes on.

  --memory SIZE  the limit for what is in memory at a time: 512MiB by default
  --array NAME   only this array; repeat it for more
  --grace TIME   keep what readers may need so long: 30min, 1h; 0 by default
  --json         print one JSON object
";

fn run(arguments: &Arguments) -> Result<Outcome> {
    let (path, _) = arguments.path(0)?;
    let mut options = SettleOptions::default();
    if let Some(memory) = arguments.value("--memory") {
        options.memory_bytes = parse_bytes(memory)?;
    }
    if let Some(grace) = arguments.value("--grace") {
        options.grace = parse_seconds(grace)?;
    }
    if arguments.has("--array") {
        let names =
            arguments.values("--array").into_iter().map(|name| Ok(ObjectPath::parse(name)?));
        options.arrays = Some(names.collect::<Result<_>>()?);
    }
    let store = open(path, true)?;
    let progress = Progress::new("settling");
    let done = store.settle_with(&options, &|done, of| progress.tell(done, of))?;
    drop(progress);
    let left = store.log_summary()?;
    if arguments.has("--json") {
        let value = json!({
            "path": path, "commits": done.commits, "objects": done.objects, "bytes": done.bytes,
            "read_bytes": done.read_bytes, "rounds": done.rounds, "rewritten": done.rewritten,
            "left": left.to_json(),
        });
        return Ok(Outcome { text: format!("{value}\n"), code: 0 });
    }
    let mut text = match (done.objects, done.commits) {
        (0, 0) => format!("{path}: nothing to settle"),
        _ => format!(
            "{path}: {} settled, {} of {} written",
            count(done.commits, "commit"),
            count(done.objects, "object"),
            bytes(done.bytes)
        ),
    };
    if left.commits > 0 {
        text += &format!("; {} in the log, {}", count(left.commits, "commit"), bytes(left.bytes));
    }
    if let Some(open @ 1..) = left.segments_open {
        text += &format!(
            "; {} may hold writes that no commit has, of a writer that is alive or dead: 'bedform \
             recover' tells",
            count(open, "segment")
        );
    }
    Ok(Outcome { text: text + "\n", code: 0 })
}
