//! A read as requests of many clients, for a simulated machine.

use std::sync::Arc;

use bedform_format::shard::Extent;
use bedform_machine::{ClientOperation, ClientWorkload, FileStriping, OPERATIONS_MAX, Workload};

use super::explain::{Fetch, for_each_fetch};
use super::plan::ReadPlan;
use crate::error::{Error, ErrorKind, Result};

/// The most clients that share a read.
const CLIENTS_MAX: u32 = 1 << 20;

/// The requests of a read for one object.
struct FileRequests {
    index: Option<Extent>,
    extents: Vec<Extent>,
}

/// Returns the requests of a read that `clients` share. Each object is a file. The requests, in the
/// order of the plan, are cut into one run for each client; the runs differ by at most one request.
/// A client opens each object that it has requests for and reads its index, unless this process has
/// the index cached.
///
/// # Errors
/// As [`explain`](super::explain::explain); `LimitExceeded` for more requests or clients than the
/// simulation allows; `Unsupported` for an array that a callback reads.
pub(crate) fn read_workload(plan: ReadPlan<'_>, clients: u32) -> Result<Workload> {
    if clients == 0 || clients > CLIENTS_MAX {
        let text = format!("{clients} clients: simulated are between 1 and {CLIENTS_MAX}");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    if plan.calls_back() {
        let text = "a callback reads the array: the requests that it makes are not known";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let mut fetches: Vec<FileRequests> = Vec::new();
    let mut segments: Vec<(*const (), usize)> = Vec::new();
    let mut count = 0_u64;
    for_each_fetch(plan, &mut |fetch| {
        match fetch {
            Fetch::Nothing { .. } => {}
            Fetch::Object { resolved, comes_whole: true, .. } => {
                let whole = Extent { offset: 0, length: resolved.opened.object.version().size };
                fetches.push(FileRequests { index: None, extents: vec![whole] });
                count += 1;
            }
            Fetch::Object { resolved, .. } => {
                let opened = &resolved.opened;
                let bytes = opened.index_bytes;
                let end = opened.object.version().size;
                let index = (bytes > 0)
                    .then(|| Extent { offset: end.saturating_sub(bytes), length: bytes });
                let extents =
                    resolved.units.iter().flat_map(|unit| unit.extents.iter().copied()).collect();
                fetches.push(FileRequests { index, extents });
                count += fetches.last().map_or(0, |fetch| fetch.extents.len() as u64);
            }
            Fetch::Payload { object, unit } => {
                let place = Arc::as_ptr(object).cast::<()>();
                let known = segments.iter().find(|(segment, _)| *segment == place);
                let number = known.map_or(fetches.len(), |(_, number)| *number);
                if number == fetches.len() {
                    segments.push((place, number));
                    fetches.push(FileRequests { index: None, extents: Vec::new() });
                }
                fetches[number].extents.extend(unit.extents.iter().copied());
                count += unit.extents.len() as u64;
            }
        }
        match count > OPERATIONS_MAX {
            true => Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("more than {OPERATIONS_MAX} requests: simulate a part of the selection"),
            )),
            false => Ok(()),
        }
    })?;
    Ok(share(&fetches, clients))
}

/// Deals the requests to clients.
fn share(fetches: &[FileRequests], clients: u32) -> Workload {
    let total: usize = fetches.iter().map(|fetch| fetch.extents.len()).sum();
    let mut dealt = vec![ClientWorkload::default(); clients as usize];
    let mut given = 0_usize;
    for (fetch, file) in fetches.iter().zip(0_u32..) {
        let mut last = None;
        for extent in fetch.extents.iter().filter(|extent| extent.length > 0) {
            let client = given * dealt.len() / total;
            given += 1;
            let operations = &mut dealt[client].operations;
            if last != Some(client) {
                operations.push(ClientOperation::Open(file));
                operations.extend(
                    fetch.index.map(|at| ClientOperation::Read(file, at.offset, at.length)),
                );
                last = Some(client);
            }
            operations.push(ClientOperation::Read(file, extent.offset, extent.length));
        }
    }
    Workload { files: vec![FileStriping::default(); fetches.len()], clients: dealt }
}
