//! Why a machine or a workload cannot be simulated.

/// Why a machine or a workload cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The text is no document of its kind.
    #[error("the {what} cannot be read: {reason}")]
    Malformed {
        /// The document.
        what: &'static str,
        /// The reason, for people.
        reason: String,
    },
    /// A number that no machine has.
    #[error("{field} is {value}, which is not between {least:e} and {most:e}")]
    Implausible {
        /// The field.
        field: String,
        /// Its value.
        value: f64,
        /// The least that is accepted.
        least: f64,
        /// The most that is accepted.
        most: f64,
    },
    /// There is more of something than is simulated at once.
    #[error("{count} {what}; at most {most} are simulated")]
    TooMany {
        /// The things of which there are too many.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// The most that are accepted.
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
    /// Clients would wait for each other for ever.
    #[error(
        "client {client} has {found} barriers and client 0 has {wanted}: all must have as many"
    )]
    Barriers {
        /// The client, counted from 0.
        client: usize,
        /// Barriers that it has.
        found: u64,
        /// Barriers that the first client has.
        wanted: u64,
    },
}
