//! `bedform info`: the contents of a store or file.

use bedform::{NodeKind, Result, Store};
use bedform_format::ObjectPath;
use serde_json::{Map, Value, json};

use crate::arguments::{Arguments, open};
use crate::words::{bytes, count, shape};
use crate::{Command, Outcome};

pub(crate) const COMMAND: Command = Command { help: HELP, flags: &["--json"], valued: &[], run };
const HELP: &str = "\
Usage: bedform info PATH [ARRAY] [--json]

Tell what a store or file holds: its arrays with shapes, types and chunks, and the commits in its log. With ARRAY
tell all about this array.
";

fn run(arguments: &Arguments) -> Result<Outcome> {
    let (path, rest) = arguments.path(1)?;
    let store = open(path, false)?;
    let text = match rest.first() {
        Some(name) => of_array(&store, name, arguments.has("--json"))?,
        None => of_store(&store, path, arguments.has("--json"))?,
    };
    Ok(Outcome { text, code: 0 })
}

fn of_array(store: &Store, name: &str, as_json: bool) -> Result<String> {
    let facts = store.array(&ObjectPath::parse(name)?)?.describe()?;
    if as_json {
        return Ok(format!("{facts}\n"));
    }
    let facts = facts.as_object().into_iter().flatten();
    let lines = facts.filter(|(_, value)| !value.is_null()).map(|(key, value)| match value {
        Value::Array(_) if ["shape", "chunks", "shards"].contains(&key.as_str()) => {
            format!("{key:<12} {}\n", shape(value))
        }
        Value::String(text) => format!("{key:<12} {text}\n"),
        value => format!("{key:<12} {value}\n"),
    });
    Ok(lines.collect())
}

fn of_store(store: &Store, path: &str, as_json: bool) -> Result<String> {
    let mut arrays = Map::new();
    let mut refused = Map::new();
    for (name, kind) in store.nodes()? {
        if kind == NodeKind::Array {
            match store.array(&name).and_then(|array| array.describe()) {
                Ok(facts) => drop(arrays.insert(name.to_string(), facts)),
                Err(error) => drop(refused.insert(name.to_string(), json!(error.to_string()))),
            }
        }
    }
    // Foreign files have no log.
    let log = store.log_summary().ok();
    if as_json {
        let log = log.map(|log| log.to_json());
        let value = json!({"path": path, "log": log, "arrays": arrays, "refused": refused});
        return Ok(format!("{value}\n"));
    }
    let mut text = format!("{path}: {}\n", count(arrays.len() as u64, "array"));
    if let Some(log) = log {
        let commits = match log.commits {
            0 => "nothing to settle".to_owned(),
            _ => format!("{} to settle", count(log.commits, "commit")),
        };
        let open = log.segments_open.map_or("?".to_owned(), |open| open.to_string());
        text += &format!("log: {commits}, {} of segments, {open} open\n", bytes(log.bytes));
    }
    for (name, facts) in &arrays {
        let dtype =
            facts["dtype"].as_str().map_or_else(|| facts["dtype"].to_string(), str::to_owned);
        let (all, chunks) = (shape(&facts["shape"]), shape(&facts["chunks"]));
        text += &format!("{name}: {all} of {dtype}, chunks {chunks}\n");
    }
    for (name, reason) in &refused {
        let reason = reason.as_str().unwrap_or_default();
        text += &format!("{name}: cannot be opened: {reason}\n");
    }
    Ok(text)
}
