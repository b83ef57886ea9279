//! Errors of machines and workloads.

/// The reason why a machine or workload cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The text is not a valid document of its kind.
    #[error("the {what} cannot be read: {reason}")]
    Malformed {
        /// The kind of document.
        what: &'static str,
        /// The reason, for people.
        reason: String,
    },
    /// A number outside its plausible range.
    #[error("{field} is {value}, which is not between {least:e} and {most:e}")]
    Implausible {
        /// The field.
        field: String,
        /// Its value.
        value: f64,
        /// The smallest accepted value.
        least: f64,
        /// The largest accepted value.
        most: f64,
    },
    /// More items than a simulation supports.
    #[error("{count} {what}; at most {most} are simulated")]
    TooMany {
        /// The items.
        what: &'static str,
        /// Their number.
        count: u64,
        /// The largest accepted number.
        most: u64,
    },
    /// An operation does not fit the files or the machine.
    #[error("operation {operation} of client {client}: {reason}")]
    Operation {
        /// The client, counted from 0.
        client: usize,
        /// The operation, counted from 0.
        operation: usize,
        /// The reason, for people.
        reason: String,
    },
    /// Clients would deadlock at a barrier.
    #[error(
        "client {client} has {found} barriers and client 0 has {wanted}: all must have as many"
    )]
    Barriers {
        /// The client, counted from 0.
        client: usize,
        /// Number of its barriers.
        found: u64,
        /// Number of barriers of client 0.
        wanted: u64,
    },
}
