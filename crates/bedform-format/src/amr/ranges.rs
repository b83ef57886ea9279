//! Tables of minima and maxima in the description of a level.

use memchr::memchr_iter;

use super::text::{TextCursor, parse_real};

/// The least and greatest value of a component, as the writer saw them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ComponentRange {
    /// The least value; may be infinite or not a number.
    pub least: f64,
    /// The greatest value; may be infinite or not a number.
    pub greatest: f64,
}

/// The ranges of one component of a level.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ComponentRanges {
    /// One range for each box (versions 1 and 3).
    Boxes(Vec<ComponentRange>),
    /// One range for the whole level (version 4).
    Level(ComponentRange),
}

/// Parses the two tables of versions 1 and 3, of `boxes` lines with `components` numbers each.
pub(super) fn ranges_of_boxes(
    tables: &[u8],
    boxes: usize,
    components: u64,
    component: usize,
) -> Option<Vec<ComponentRange>> {
    let mut cursor = TextCursor::unlimited("Cell_H", tables);
    let mut column = || {
        let is_shape = cursor.count("the boxes of a table").ok()? == boxes as u64
            && cursor.byte(b',').is_ok()
            && cursor.count("the components of a table").ok()? == components;
        cursor.end_line("the shape of a table").ok().filter(|()| is_shape)?;
        let lines =
            (0..boxes).map(|_| field(cursor.line("a table").ok()?.rest(), components, component));
        lines.collect::<Option<Vec<f64>>>()
    };
    let (minima, maxima) = (column()?, column()?);
    let pairs = minima.into_iter().zip(maxima);
    Some(pairs.map(|(least, greatest)| ComponentRange { least, greatest }).collect())
}

/// Parses the two lines of version 4.
pub(super) fn level_range(
    tables: &[u8],
    components: u64,
    component: usize,
) -> Option<ComponentRange> {
    let mut cursor = TextCursor::unlimited("Cell_H", tables);
    let mut next = || {
        cursor.skip_space();
        field(cursor.line("a table").ok()?.rest(), components, component)
    };
    Some(ComponentRange { least: next()?, greatest: next()? })
}

/// Parses number `index` of a line of `count` numbers, each before a comma.
fn field(line: &[u8], count: u64, index: usize) -> Option<f64> {
    let mut start = 0;
    let mut found = None;
    let mut commas = 0;
    for end in memchr_iter(b',', line) {
        if commas == index {
            found = line.get(start..end);
        }
        start = end.saturating_add(1);
        commas += 1;
    }
    let is_whole = commas as u64 == count && line.get(start..)?.trim_ascii().is_empty();
    found.filter(|_| is_whole).and_then(|word| parse_real(word.trim_ascii()))
}
