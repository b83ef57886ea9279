//! Workloads: files, and the operations of each client in order.

use serde::{Deserialize, Serialize};

use crate::description::Machine;
use crate::error::MachineError;

/// Largest number of clients of a workload.
pub const CLIENTS_MAX: usize = 1 << 20;
/// Largest number of files of a workload.
pub const FILES_MAX: usize = 1 << 20;
/// Largest number of operations of all clients.
pub const OPERATIONS_MAX: u64 = 1 << 23;
/// Largest number of pieces of all requests.
pub const PIECES_MAX: u64 = 1 << 26;
/// Largest number of objects of all files; each records its last write.
const OBJECTS_MAX: u64 = 1 << 26;
/// Largest end of a file in bytes; sums of a few of these do not overflow.
const FILE_BYTES_MAX: u64 = 1 << 60;
const IN_FLIGHT_MAX: u32 = 4096;
const SECONDS_MAX: f64 = 1e9;
const BYTES_MAX: u64 = 1 << 60;

/// Files, and the operations of each client.
///
/// ```
/// use bedform_machine::{ClientWorkload, ClientOperation, Workload};
///
/// let workload = Workload::from_json(r#"{
///     "files": [{"first": 0, "count": 2, "bytes": 1048576}],
///     "clients": [{"operations": [{"open": 0}, {"read": [0, 0, 4096]}, "barrier"]}]
/// }"#)?;
/// assert_eq!(workload.clients[0].operations[1], ClientOperation::Read(0, 0, 4096));
/// # Ok::<(), bedform_machine::MachineError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The files, counted from 0.
    pub files: Vec<FileStriping>,
    /// The clients, counted from 0; consecutive ones share a node, as many as the machine says.
    pub clients: Vec<ClientWorkload>,
}

/// The striping of a file; missing fields have the machine's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileStriping {
    /// `f`: the target of its first byte, modulo the number of targets. By default the file's index
    /// times its number of targets, so that consecutive files use consecutive targets.
    pub first: Option<u64>,
    /// `k`: the number of its targets; at most the machine's.
    pub count: Option<u32>,
    /// `s`: the length of a stripe in bytes.
    pub bytes: Option<u64>,
}

/// The operations of one client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientWorkload {
    /// Number of concurrent requests; by default the machine's.
    #[serde(default)]
    pub requests_in_flight: Option<u32>,
    /// The node of the client, if it does not follow from its index.
    #[serde(default)]
    pub node: Option<u32>,
    /// Its operations, in order.
    pub operations: Vec<ClientOperation>,
}

/// One operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientOperation {
    /// Reads a file: file, offset, bytes.
    Read(u32, u64, u64),
    /// Writes a file: file, offset, bytes.
    Write(u32, u64, u64),
    /// Creates a file.
    Create(u32),
    /// Opens a file.
    Open(u32),
    /// Waits until a file is durable.
    Sync(u32),
    /// Sends messages to other clients: bytes, number of messages.
    Send(u64, u64),
    /// Receives messages from other clients: bytes, number of messages.
    Receive(u64, u64),
    /// Reads from the node's own device: bytes.
    LocalRead(u64),
    /// Writes to the node's own device: bytes.
    LocalWrite(u64),
    /// Computes: seconds.
    Compute(f64),
    /// Waits for all clients.
    Barrier,
}

impl ClientOperation {
    /// Returns the operation with `before` added to the index of its file.
    fn with_file_after(self, before: u32) -> Self {
        let moved = |file: u32| file.saturating_add(before);
        match self {
            Self::Read(file, offset, bytes) => Self::Read(moved(file), offset, bytes),
            Self::Write(file, offset, bytes) => Self::Write(moved(file), offset, bytes),
            Self::Create(file) => Self::Create(moved(file)),
            Self::Open(file) => Self::Open(moved(file)),
            Self::Sync(file) => Self::Sync(moved(file)),
            other => other,
        }
    }
}

impl Workload {
    /// Adds the files and operations of another workload: each client carries on with the operations
    /// of the client of the same number.
    ///
    /// ```
    /// use bedform_machine::{ClientOperation, ClientWorkload, FileStriping, Workload};
    ///
    /// let part = Workload {
    ///     files: vec![FileStriping::default()],
    ///     clients: vec![ClientWorkload {
    ///         operations: vec![ClientOperation::Read(0, 0, 4096)],
    ///         ..ClientWorkload::default()
    ///     }],
    /// };
    /// let mut all = part.clone();
    /// all.append(part);
    /// assert_eq!(all.files.len(), 2);
    /// assert_eq!(all.clients[0].operations[1], ClientOperation::Read(1, 0, 4096));
    /// ```
    pub fn append(&mut self, other: Self) {
        let before = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.files.extend(other.files);
        let count = self.clients.len().max(other.clients.len());
        self.clients.resize(count, ClientWorkload::default());
        for (own, added) in self.clients.iter_mut().zip(other.clients) {
            let moved = added.operations.into_iter().map(|one| one.with_file_after(before));
            own.operations.extend(moved);
        }
    }

    /// Parses a workload from JSON.
    ///
    /// # Errors
    /// `Malformed` if the text is not a workload. The simulation checks if it fits the machine.
    pub fn from_json(text: &str) -> Result<Self, MachineError> {
        serde_json::from_str(text).map_err(|error| MachineError::Malformed {
            what: "workload",
            reason: error.to_string(),
        })
    }

    /// Checks all counts, offsets and barriers against the limits of the simulation.
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
                waits += u64::from(*operation == ClientOperation::Barrier);
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

    /// Returns the striping of each file on `machine`.
    pub(super) fn layouts(&self, machine: &Machine) -> Result<Vec<FileLayout>, MachineError> {
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
                Ok(FileLayout { first, count, bytes })
            })
            .collect()
    }
}

/// The striping of a file: a checked [`FileStriping`] without missing fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileLayout {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) bytes: u64,
}

/// Returns the number of pieces of an operation, if it is possible.
fn check(
    operation: &ClientOperation,
    files: &[FileLayout],
    machine: &Machine,
) -> Result<u64, String> {
    let find = |file: u32| {
        let known = usize::try_from(file).ok().and_then(|file| files.get(file));
        known.ok_or_else(|| format!("there is no file {file}, only {}", files.len()))
    };
    match *operation {
        ClientOperation::Read(file, offset, length)
        | ClientOperation::Write(file, offset, length) => {
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
        ClientOperation::Create(file)
        | ClientOperation::Open(file)
        | ClientOperation::Sync(file) => find(file).map(|_| 0),
        ClientOperation::Send(bytes, messages) | ClientOperation::Receive(bytes, messages) => {
            match bytes.max(messages) <= BYTES_MAX {
                true => Ok(0),
                false => Err(format!("more than {BYTES_MAX} bytes or messages")),
            }
        }
        ClientOperation::LocalRead(bytes) | ClientOperation::LocalWrite(bytes) => {
            match (machine.local.is_some(), bytes <= BYTES_MAX) {
                (true, true) => Ok(0),
                (false, _) => Err("the nodes of this machine have no device of their own".into()),
                (_, false) => Err(format!("more than {BYTES_MAX} bytes")),
            }
        }
        ClientOperation::Compute(seconds) => match (0.0..=SECONDS_MAX).contains(&seconds) {
            true => Ok(0),
            false => Err(format!("it computes for {seconds} seconds")),
        },
        ClientOperation::Barrier => Ok(0),
    }
}

fn at_most(what: &'static str, count: u64, most: u64) -> Result<(), MachineError> {
    match count <= most {
        true => Ok(()),
        false => Err(MachineError::TooMany { what, count, most }),
    }
}
