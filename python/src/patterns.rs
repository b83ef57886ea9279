//! Patterns in reads that another tool recorded.

use std::collections::BTreeMap;

use bedform::{Error, ErrorKind};
use bedform_patterns::{Analyzer, PatternKind, Place};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raise;
use crate::signals::detached;

/// Returns the kind of pattern that predicted each read, from the earlier reads in its stream. The
/// result is a code per read, and the kinds by code, from 1 on. The code of an unpredicted read is
/// 0.
///
/// Reads are in the order in which they began, with streams mixed. The three arguments have equal
/// numbers of elements, of type `uint64`.
#[pyfunction]
pub(crate) fn predicted<'py>(
    py: Python<'py>,
    offsets: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
    streams: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Vec<String>)> {
    let column = |buffer| PyBuffer::<u64>::get(buffer)?.to_vec(py);
    let [offsets, lengths, streams] = [column(offsets)?, column(lengths)?, column(streams)?];
    if lengths.len() != offsets.len() || streams.len() != offsets.len() {
        let message = "offsets, lengths and streams must have as many elements each";
        return Err(raise(Error::new(ErrorKind::InvalidArgument, message)));
    }
    let (codes, kinds) = detached(py, || codes(&offsets, &lengths, &streams));
    Ok((PyBytes::new(py, &codes), kinds.iter().map(|kind| kind.name().to_owned()).collect()))
}

/// Analyzes one stream after another, so that memory holds a single analyzer.
fn codes(offsets: &[u64], lengths: &[u64], streams: &[u64]) -> (Vec<u8>, Vec<PatternKind>) {
    let mut of_stream: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, stream) in streams.iter().enumerate() {
        of_stream.entry(*stream).or_default().push(number);
    }
    let mut codes = vec![0; offsets.len()];
    let mut kinds = Vec::new();
    for reads in of_stream.values() {
        let mut analyzer = Analyzer::default();
        for &number in reads {
            // An impossible byte range belongs to no pattern.
            let Some(place) = Place::bytes(offsets[number], lengths[number]) else { continue };
            let kind = analyzer.push(place).predicted;
            codes[number] = kind.map_or(0, |kind| code(kind, &mut kinds));
        }
    }
    (codes, kinds)
}

fn code(kind: PatternKind, kinds: &mut Vec<PatternKind>) -> u8 {
    let number = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
        kinds.push(kind);
        kinds.len() - 1
    });
    u8::try_from(number + 1).unwrap_or(u8::MAX)
}
