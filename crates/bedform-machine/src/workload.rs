//! The work of clients: files, and for each client its operations in order.

use serde::{Deserialize, Serialize};

use crate::description::Machine;
use crate::error::MachineError;

/// The most clients of a workload.
pub const CLIENTS_MAX: usize = 1 << 20;
/// The most files of a workload.
pub const FILES_MAX: usize = 1 << 20;
/// The most operations of all clients.
pub const OPERATIONS_MAX: u64 = 1 << 23;
/// The most pieces of all requests.
pub const PIECES_MAX: u64 = 1 << 26;
/// Objects of all files, each of which remembers who wrote to it last.
const OBJECTS_MAX: u64 = 1 << 26;
/// The end of the largest file: sums of a few of these do not overflow.
const FILE_BYTES_MAX: u64 = 1 << 60;
const IN_FLIGHT_MAX: u32 = 4096;
const SECONDS_MAX: f64 = 1e9;
const BYTES_MAX: u64 = 1 << 60;

/// Files, and the operations of each client on them.
///
/// ```
/// use bedform_machine::{Client, Operation, Workload};
///
/// let workload = Workload::from_json(r#"{
///     "files": [{"first": 0, "count": 2, "bytes": 1048576}],
///     "clients": [{"operations": [{"open": 0}, {"read": [0, 0, 4096]}, "barrier"]}]
/// }"#)?;
/// assert_eq!(workload.clients[0].operations[1], Operation::Read(0, 0, 4096));
/// # Ok::<(), bedform_machine::MachineError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The files, counted from 0.
    pub files: Vec<FileStriping>,
    /// The clients, counted from 0; as many neighbours as the machine says share a node.
    pub clients: Vec<Client>,
}

/// On which targets a file lies; absent fields have the machine's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileStriping {
    /// `f`: the target of its first byte, modulo the number of targets; if absent the file's number times
    /// the number of its targets, so that files follow each other around.
    pub first: Option<u64>,
    /// `k`: how many targets it lies on; no more than there are.
    pub count: Option<u32>,
    /// `s`: bytes on one target before the next.
    pub bytes: Option<u64>,
}

/// The operations of one client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Requests in flight at the same time, if not as many as the machine says.
    #[serde(default)]
    pub requests_in_flight: Option<u32>,
    /// The node it runs on, if not the one that follows from its number.
    #[serde(default)]
    pub node: Option<u32>,
    /// Its operations, in order.
    pub operations: Vec<Operation>,
}

/// One step of a client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads of a file, from an offset, so many bytes.
    Read(u32, u64, u64),
    /// Writes to a file, at an offset, so many bytes.
    Write(u32, u64, u64),
    /// Creates a file.
    Create(u32),
    /// Opens a file.
    Open(u32),
    /// Waits until a file is durable.
    Sync(u32),
    /// Sends so many bytes to other clients, in so many messages.
    Send(u64, u64),
    /// Receives so many bytes from other clients, in so many messages.
    Receive(u64, u64),
    /// Reads so many bytes from the node's own device.
    LocalRead(u64),
    /// Writes so many bytes to the node's own device.
    LocalWrite(u64),
    /// Computes for so many seconds.
    Compute(f64),
    /// Waits for all clients.
    Barrier,
}

impl Workload {
    /// Reads a workload from JSON.
    ///
    /// # Errors
    /// `Malformed` if the text is no workload. Whether it fits a machine is checked when it is run.
    pub fn from_json(text: &str) -> Result<Self, MachineError> {
        serde_json::from_str(text).map_err(|error| MachineError::Malformed {
            what: "workload",
            reason: error.to_string(),
        })
    }

    /// Checks all counts, offsets and barriers against the limits of a simulation.
    pub(super) fn check(&self, machine: &Machine) -> Result<(), MachineError> {
        at_most("clients", self.clients.len() as u64, CLIENTS_MAX as u64)?;
        at_most("files", self.files.len() as u64, FILES_MAX as u64)?;
        let operations = self.clients.iter().map(|client| client.operations.len() as u64).sum();
        at_most("operations", operations, OPERATIONS_MAX)?;
        let layouts = self.layouts(machine)?;
        at_most("objects", layouts.iter().map(|file| u64::from(file.count)).sum(), OBJECTS_MAX)?;
        let mut pieces = 0_u64;
        let mut barriers = Vec::with_capacity(self.clients.len());
        for (number, client) in self.clients.iter().enumerate() {
            let in_flight = u64::from(client.requests_in_flight.unwrap_or(1));
            at_most("requests in flight", in_flight, u64::from(IN_FLIGHT_MAX))?;
            let node = u64::from(client.node.unwrap_or(0));
            at_most("nodes", node, CLIENTS_MAX as u64 - 1)?;
            let mut waits = 0;
            for (place, operation) in client.operations.iter().enumerate() {
                let wrong = |reason: String| MachineError::Operation {
                    client: number,
                    operation: place,
                    reason,
                };
                pieces = pieces.saturating_add(check(operation, &layouts, machine).map_err(wrong)?);
                waits += u64::from(*operation == Operation::Barrier);
            }
            barriers.push(waits);
        }
        at_most("pieces of requests", pieces, PIECES_MAX)?;
        let wanted = barriers.first().copied().unwrap_or(0);
        match barriers.iter().position(|&found| found != wanted) {
            Some(client) => Err(MachineError::Barriers { client, found: barriers[client], wanted }),
            None => Ok(()),
        }
    }

    /// Where each file lies on `machine`.
    pub(super) fn layouts(&self, machine: &Machine) -> Result<Vec<Layout>, MachineError> {
        let targets = machine.targets.count;
        self.files
            .iter()
            .zip(0_u64..)
            .map(|(file, number)| {
                let count = file.count.unwrap_or(machine.striping.count).min(targets);
                let bytes = file.bytes.unwrap_or(machine.striping.bytes);
                if count == 0 || bytes == 0 || bytes > FILE_BYTES_MAX {
                    let reason = format!("file {number} has {count} stripes of {bytes} bytes");
                    return Err(MachineError::Malformed { what: "workload", reason });
                }
                let first = file.first.unwrap_or(number * u64::from(count)) % u64::from(targets);
                Ok(Layout { first, count, bytes })
            })
            .collect()
    }
}

/// Where a file lies: [`FileStriping`] with the absent fields filled in, and checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) bytes: u64,
}

/// How many pieces an operation has, if it is possible.
fn check(operation: &Operation, files: &[Layout], machine: &Machine) -> Result<u64, String> {
    let find = |file: u32| {
        let known = usize::try_from(file).ok().and_then(|file| files.get(file));
        known.ok_or_else(|| format!("there is no file {file}, only {}", files.len()))
    };
    match *operation {
        Operation::Read(file, offset, length) | Operation::Write(file, offset, length) => {
            let layout = find(file)?;
            let end = offset.checked_add(length).filter(|&end| end <= FILE_BYTES_MAX);
            match (length, end) {
                (0, _) => Err("it moves no bytes".into()),
                (_, None) => Err(format!("it ends behind byte {FILE_BYTES_MAX} of the file")),
                (_, Some(end)) => {
                    let stripes = (end - 1) / layout.bytes - offset / layout.bytes + 1;
                    Ok(stripes.min(u64::from(layout.count)))
                }
            }
        }
        Operation::Create(file) | Operation::Open(file) | Operation::Sync(file) => {
            find(file).map(|_| 0)
        }
        Operation::Send(bytes, messages) | Operation::Receive(bytes, messages) => {
            match bytes.max(messages) <= BYTES_MAX {
                true => Ok(0),
                false => Err(format!("more than {BYTES_MAX} bytes or messages")),
            }
        }
        Operation::LocalRead(bytes) | Operation::LocalWrite(bytes) => {
            match (machine.local.is_some(), bytes <= BYTES_MAX) {
                (true, true) => Ok(0),
                (false, _) => Err("the nodes of this machine have no device of their own".into()),
                (_, false) => Err(format!("more than {BYTES_MAX} bytes")),
            }
        }
        Operation::Compute(seconds) => match (0.0..=SECONDS_MAX).contains(&seconds) {
            true => Ok(0),
            false => Err(format!("it computes for {seconds} seconds")),
        },
        Operation::Barrier => Ok(0),
    }
}

fn at_most(what: &'static str, count: u64, most: u64) -> Result<(), MachineError> {
    match count <= most {
        true => Ok(()),
        false => Err(MachineError::TooMany { what, count, most }),
    }
}
