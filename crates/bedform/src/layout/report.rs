//! Advice as text.

use std::fmt;

use bedform_format::shown::{NAME_CHARS_MAX, printable};

use super::advise::{Advice, NamedRead};
use super::cost::{Read, ReadCost, bytes_of};
use super::readers::ReaderCost;
use crate::size::bytes_text;

/// The most candidates that are printed; the others stay in the value.
const ROWS_MAX: usize = 12;

impl fmt::Display for Advice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "chunks {} ({}) in shards {} ({}), {} order, for {} of {}",
            shape_text(&self.chunk_shape),
            bytes_text(bytes_of(&self.chunk_shape, self.item_size)),
            shape_text(&self.shard_shape),
            bytes_text(bytes_of(&self.shard_shape, self.item_size)),
            self.order,
            shape_text(&self.shape),
            bytes_text(bytes_of(&self.shape, self.item_size)),
        )?;
        let header = ["read", "weight", "chunks", "requests", "moved", "seconds"];
        let mut rows = vec![header.map(String::from).to_vec()];
        for (read, cost) in self.reads.iter().zip(self.costs()) {
            rows.push(vec![
                read.name.clone(),
                format!("{:.3}", read.weight),
                format!("{:.0}", cost.chunks),
                format!("{:.0}", cost.requests),
                bytes_text(cost.bytes),
                seconds_text(cost.seconds),
            ]);
        }
        write_table(formatter, &rows, 5)?;
        self.write_candidates(formatter)?;
        writeln!(
            formatter,
            "\nup to {} requests in flight, gaps of up to {} read over",
            self.requests_in_flight,
            bytes_text(self.merge_gap_bytes as f64),
        )?;
        writeln!(
            formatter,
            "Smart-IO: optimized chunk {}, window {} to {}",
            bytes_text(self.ocs),
            bytes_text(self.window.least),
            bytes_text(self.window.most),
        )?;
        self.notes.iter().try_for_each(|note| writeln!(formatter, "note: {note}"))
    }
}

impl Advice {
    /// Writes the table of compared layouts, with a column for each reader.
    fn write_candidates(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readers = self.predicted.first().map_or(&[][..], |chosen| &chosen.readers);
        let mut header = ["layout", "chunk", "shard", "order"].map(String::from).to_vec();
        header.extend(readers.iter().map(|cost| cost.reader.name().to_owned()));
        header.extend(["slowest", "verdict"].map(String::from));
        let mut rows = vec![header];
        for candidate in self.predicted.iter().take(ROWS_MAX) {
            let slowest = candidate.costs.iter().map(|cost| cost.seconds).fold(0.0, f64::max);
            let mut row = vec![
                candidate.name.clone(),
                shape_text(&candidate.layout.chunk_shape),
                shape_text(&candidate.layout.shard_shape),
                candidate.layout.order.name().into(),
            ];
            row.extend(candidate.readers.iter().map(reader_text));
            row.extend([seconds_text(slowest), candidate.verdict.clone()]);
            rows.push(row);
        }
        write_table(formatter, &rows, 0)
    }
}

/// Returns the seconds of a reader, and their ratio to those for a store of its own defaults.
fn reader_text(cost: &ReaderCost) -> String {
    match cost.worst_ratio {
        Some(ratio) => format!("{} ({}x)", seconds_text(cost.seconds), factor_text(ratio)),
        None => seconds_text(cost.seconds),
    }
}

/// Returns the text for a layout that takes a reader too long, compared with a store of its own
/// defaults.
pub(super) fn beyond_text(cost: &ReaderCost) -> String {
    format!(
        "{} takes {} times its own store for {}",
        cost.reader,
        factor_text(cost.worst_ratio.unwrap_or(1.0)),
        cost.worst_read.as_deref().unwrap_or("a read"),
    )
}

fn factor_text(factor: f64) -> String {
    match factor {
        10.0.. => format!("{factor:.0}"),
        _ => format!("{factor:.1}"),
    }
}

/// Writes columns aligned, the last `right` of them to the right.
fn write_table(
    formatter: &mut fmt::Formatter<'_>,
    rows: &[Vec<String>],
    right: usize,
) -> fmt::Result {
    let columns = rows.first().map_or(0, Vec::len);
    // Names of dimensions come from files, and a width over 65,535 cannot be formatted.
    let shown = |row: &Vec<String>| -> Vec<String> {
        row.iter().map(|cell| printable(cell, NAME_CHARS_MAX).into_owned()).collect()
    };
    let rows: Vec<_> = rows.iter().map(shown).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    writeln!(formatter)?;
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            match column + right >= columns {
                true => line += &format!("{cell:>width$}  "),
                false => line += &format!("{cell:<width$}  "),
            }
        }
        writeln!(formatter, "{}", line.trim_end())?;
    }
    Ok(())
}

pub(super) fn read_name(read: &Read, names: &[String]) -> String {
    match read {
        Read::Axes { spanned } => axes_text(spanned, names),
        Read::Box { shape } => format!("box {}", shape_text(shape)),
        Read::Everything => "everything".into(),
        Read::Selection(selection) => {
            format!("selection of {} elements", selection.len().unwrap_or(u64::MAX))
        }
    }
}

pub(super) fn axes_text(spanned: &[usize], names: &[String]) -> String {
    let name = |&axis: &usize| match names.get(axis) {
        Some(name) => name.clone(),
        None => format!("axis {axis}"),
    };
    let names: Vec<_> = spanned.iter().map(name).collect();
    if names.is_empty() { "one element".into() } else { names.join(",") }
}

/// Returns the reason why a layout with `costs` lost to one with `best`: the read that made most of
/// the difference.
pub(super) fn verdict(costs: &[ReadCost], best: &[ReadCost], reads: &[NamedRead]) -> String {
    let excess =
        |number: usize| (costs[number].seconds - best[number].seconds) * reads[number].weight;
    let Some(worst) = (0..costs.len()).max_by(|&a, &b| excess(a).total_cmp(&excess(b))) else {
        return String::new();
    };
    let (cost, best, name) = (&costs[worst], &best[worst], &reads[worst].name);
    if excess(worst) <= 1e-9 * best.seconds {
        return "costs the same".into();
    }
    let bytes = cost.bytes / best.bytes.max(1.0);
    let requests = cost.requests / best.requests.max(1.0);
    match bytes.max(requests) {
        ..1.05 => format!("{:.1} % slower for {name}", 100.0 * (cost.seconds / best.seconds - 1.0)),
        _ if bytes >= requests => {
            format!("moves {} times the bytes for {name}", factor_text(bytes))
        }
        _ => format!("{} times the requests for {name}", factor_text(requests)),
    }
}

pub(super) fn shape_text(shape: &[u64]) -> String {
    let sizes: Vec<_> = shape.iter().map(u64::to_string).collect();
    if sizes.is_empty() { "scalar".into() } else { sizes.join("x") }
}

pub(super) fn seconds_text(seconds: f64) -> String {
    match seconds {
        ..1e-3 => format!("{:.0} us", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}
