//! Workloads described by a few parameters: the patterns of file system benchmarks.

use serde::{Deserialize, Serialize};

use crate::error::MachineError;
use crate::workload::{
    CLIENTS_MAX, ClientOperation, ClientWorkload, FileStriping, OPERATIONS_MAX, Workload,
};

/// The layout of the clients' bytes in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternShape {
    /// One file; the bytes of each client are contiguous.
    Contiguous,
    /// One file; the first requests of all clients, then the second ones, and so on.
    Strided,
    /// One file per client.
    FilePerClient,
}

/// A workload in which all clients read, or all write, the same amount in the same way.
///
/// One client creates a written file, the others open it, and each client syncs the file that it
/// wrote. Each client opens the file that it reads.
///
/// ```
/// use bedform_machine::{FileStriping, BenchmarkPattern, PatternShape};
///
/// let pattern = BenchmarkPattern {
///     shape: PatternShape::Strided,
///     clients: 4,
///     client_bytes: 1 << 20,
///     request_bytes: 1 << 16,
///     is_write: true,
///     requests_in_flight: None,
///     stripes: FileStriping { count: Some(4), ..FileStriping::default() },
/// };
/// assert_eq!(pattern.workload()?.clients.len(), 4);
/// # Ok::<(), bedform_machine::MachineError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchmarkPattern {
    /// Layout of the bytes in files.
    pub shape: PatternShape,
    /// Number of clients.
    pub clients: u32,
    /// Bytes per client.
    pub client_bytes: u64,
    /// Bytes per request; the last request of a client may be smaller.
    pub request_bytes: u64,
    /// True for writes.
    #[serde(default)]
    pub is_write: bool,
    /// Number of concurrent requests of a client; by default the machine's.
    #[serde(default)]
    pub requests_in_flight: Option<u32>,
    /// Striping of each file.
    #[serde(default)]
    pub stripes: FileStriping,
}

impl BenchmarkPattern {
    /// Returns the operations of all clients.
    ///
    /// # Errors
    /// `TooMany` beyond the limits, before memory is allocated; `Malformed` for requests of no
    /// bytes.
    pub fn workload(&self) -> Result<Workload, MachineError> {
        let requests = self.check()?;
        let is_shared = self.shape != PatternShape::FilePerClient;
        let files = if is_shared { 1 } else { self.clients };
        let clients = (0..self.clients)
            .map(|number| {
                let file = if is_shared { 0 } else { number };
                let mut operations = Vec::new();
                match (self.is_write, is_shared) {
                    (false, _) => operations.push(ClientOperation::Open(file)),
                    (true, false) => operations.push(ClientOperation::Create(file)),
                    (true, true) if number == 0 => {
                        operations
                            .extend([ClientOperation::Create(file), ClientOperation::Barrier]);
                    }
                    (true, true) => {
                        operations.extend([ClientOperation::Barrier, ClientOperation::Open(file)]);
                    }
                }
                operations.extend((0..requests).map(|step| self.request(number, file, step)));
                operations.extend(self.is_write.then_some(ClientOperation::Sync(file)));
                ClientWorkload {
                    requests_in_flight: self.requests_in_flight,
                    node: None,
                    operations,
                }
            })
            .collect();
        Ok(Workload { files: vec![self.stripes; files as usize], clients })
    }

    /// Checks the pattern and returns the number of requests per client.
    fn check(&self) -> Result<u64, MachineError> {
        let clients = u64::from(self.clients);
        let too_many = |what, count, most| Err(MachineError::TooMany { what, count, most });
        if self.request_bytes == 0 {
            let reason = "requests have no bytes".into();
            return Err(MachineError::Malformed { what: "pattern", reason });
        }
        if clients > CLIENTS_MAX as u64 {
            return too_many("clients", clients, CLIENTS_MAX as u64);
        }
        let requests = self.client_bytes.div_ceil(self.request_bytes);
        let operations = requests.saturating_add(3).saturating_mul(clients);
        if operations > OPERATIONS_MAX {
            return too_many("operations", operations, OPERATIONS_MAX);
        }
        match self.client_bytes.checked_mul(clients.max(1)) {
            Some(_) => Ok(requests),
            None => too_many("bytes of each client", self.client_bytes, u64::MAX / clients.max(1)),
        }
    }

    fn request(&self, client: u32, file: u32, step: u64) -> ClientOperation {
        let begin = step * self.request_bytes;
        let length = self.request_bytes.min(self.client_bytes - begin);
        let client = u64::from(client);
        let offset = match self.shape {
            PatternShape::FilePerClient => begin,
            PatternShape::Contiguous => client * self.client_bytes + begin,
            // The last requests, which may be smaller, are contiguous, too.
            PatternShape::Strided => begin * u64::from(self.clients) + client * length,
        };
        match self.is_write {
            true => ClientOperation::Write(file, offset, length),
            false => ClientOperation::Read(file, offset, length),
        }
    }
}
