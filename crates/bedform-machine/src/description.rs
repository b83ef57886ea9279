//! The description of a machine, and its validation.

use serde::{Deserialize, Serialize};

use crate::error::MachineError;

/// Largest number of storage targets of a machine.
pub const TARGETS_MAX: u32 = 1 << 16;
const TEXT_BYTES_MAX: usize = 4096;
/// From a modem up to the total memory bandwidth of a large machine.
const RATE_RANGE: (f64, f64) = (1.0, 1e18);
const SECONDS_RANGE: (f64, f64) = (0.0, 3600.0);
const COUNT_RANGE: (f64, f64) = (1.0, 1e6);
/// Each request in flight takes memory in the simulation.
const IN_FLIGHT_RANGE: (f64, f64) = (1.0, 4096.0);
const GATHER_BYTES_RANGE: (f64, f64) = (0.0, (1_u64 << 50) as f64);
const STRIPE_BYTES_RANGE: (f64, f64) = (1.0, (1_u64 << 50) as f64);

/// A parallel file system and its clients, from a description file in `machines`.
///
/// Rates are in bytes per second, times in seconds. A missing cost is zero; a missing rate is
/// unbounded.
///
/// ```
/// use bedform_machine::Machine;
///
/// let machine = Machine::from_json(r#"{
///     "name": "two disks",
///     "targets": {
///         "count": 2, "seek_seconds": 8e-3,
///         "read_bytes_per_second": 250e6, "write_bytes_per_second": 250e6
///     },
///     "clients": {"request_seconds": 1.9e-3, "link_bytes_per_second": 1e9}
/// }"#)?;
/// assert_eq!(machine.striping.count, 1);
/// # Ok::<(), bedform_machine::MachineError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The name of the machine, for people.
    pub name: String,
    /// Source of its figures, and notes for users.
    #[serde(default)]
    pub about: String,
    /// The storage targets.
    pub targets: TargetCosts,
    /// The processes that read and write.
    pub clients: Clients,
    /// The metadata servers.
    #[serde(default)]
    pub metadata: MetadataCosts,
    /// The network that carries messages between clients.
    #[serde(default)]
    pub fabric: Fabric,
    /// The device of each node, if nodes have one.
    #[serde(default)]
    pub local: Option<DeviceCosts>,
    /// Default striping of files, for workloads that do not set it.
    #[serde(default)]
    pub striping: Striping,
}

/// The storage targets; all have equal costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetCosts {
    /// Number of targets.
    pub count: u32,
    /// `R`: read bandwidth of one target in bytes per second.
    pub read_bytes_per_second: f64,
    /// `W`: write bandwidth of one target in bytes per second.
    pub write_bytes_per_second: f64,
    /// `S`: seconds per seek.
    #[serde(default)]
    pub seek_seconds: f64,
    /// `P`: additional busy seconds of the target per request.
    #[serde(default)]
    pub request_seconds: f64,
    /// `D`: additional seconds per request during which no resource is busy.
    #[serde(default)]
    pub latency_seconds: f64,
    /// `H`: busy seconds of the target when another node writes to an object.
    #[serde(default)]
    pub handover_seconds: f64,
    /// `U`: bytes of an object that caches collect before one write.
    #[serde(default)]
    pub gather_bytes: u64,
}

/// The processes that read and write; all have equal costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Number of clients that share a node and its link.
    #[serde(default = "one")]
    pub per_node: u32,
    /// `L`: bandwidth of a node's link in each direction, in bytes per second.
    pub link_bytes_per_second: f64,
    /// `F`: bandwidth of a node's file system client for reads, and for writes, in bytes per
    /// second, if below its link's.
    #[serde(default)]
    pub storage_bytes_per_second: Option<f64>,
    /// `B`: bandwidth of one client in bytes per second, if below its link's.
    #[serde(default)]
    pub bytes_per_second: Option<f64>,
    /// `C`: busy seconds of a client to send a request.
    #[serde(default)]
    pub request_seconds: f64,
    /// `Q`: number of concurrent requests of one client.
    #[serde(default = "one")]
    pub requests_in_flight: u32,
}

/// The metadata servers, with one shared queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetadataCosts {
    /// `M`: number of concurrent operations.
    pub servers: u32,
    /// Seconds to create a file.
    pub create_seconds: f64,
    /// Seconds to open a file.
    pub open_seconds: f64,
    /// Seconds to sync a file whose bytes are at the targets.
    pub sync_seconds: f64,
}

/// The network that carries messages between clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fabric {
    /// Total bandwidth of all messages in bytes per second, if bounded.
    pub bytes_per_second: Option<f64>,
    /// `G`: busy seconds of a client per message.
    pub message_seconds: f64,
}

/// The local device of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCosts {
    /// Read bandwidth in bytes per second.
    pub read_bytes_per_second: f64,
    /// Write bandwidth in bytes per second.
    pub write_bytes_per_second: f64,
    /// Additional busy seconds of the device per request.
    #[serde(default)]
    pub request_seconds: f64,
}

/// The default striping of a file over targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Striping {
    /// Number of targets of a file.
    pub count: u32,
    /// Length of a stripe in bytes.
    pub bytes: u64,
}

impl Default for MetadataCosts {
    fn default() -> Self {
        Self { servers: 1, create_seconds: 0.0, open_seconds: 0.0, sync_seconds: 0.0 }
    }
}

impl Default for Striping {
    fn default() -> Self {
        Self { count: 1, bytes: 1 << 20 }
    }
}

fn one() -> u32 {
    1
}

impl Machine {
    /// Parses a description from JSON with the keys of its TOML file.
    ///
    /// # Errors
    /// `Malformed` if the text is not a description or has unknown keys; as [`Machine::check`].
    pub fn from_json(text: &str) -> Result<Self, MachineError> {
        let machine: Self = serde_json::from_str(text).map_err(|error| {
            MachineError::Malformed { what: "machine description", reason: error.to_string() }
        })?;
        machine.check()?;
        Ok(machine)
    }

    /// Checks every field against its plausible range.
    ///
    /// # Errors
    /// `Implausible` with the first field that is out of range or not a number; `Malformed` for
    /// texts that are too long.
    pub fn check(&self) -> Result<(), MachineError> {
        if self.name.len() > TEXT_BYTES_MAX || self.about.len() > TEXT_BYTES_MAX {
            let reason = format!("a text is over {TEXT_BYTES_MAX} bytes");
            return Err(MachineError::Malformed { what: "machine description", reason });
        }
        for (field, value, range) in self.numbers() {
            if !(range.0..=range.1).contains(&value) {
                let (least, most) = range;
                return Err(MachineError::Implausible { field: field.into(), value, least, most });
            }
        }
        Ok(())
    }

    fn numbers(&self) -> Vec<(&'static str, f64, (f64, f64))> {
        let Self { name: _, about: _, targets, clients, metadata, fabric, local, striping } = self;
        let targets_range = (1.0, f64::from(TARGETS_MAX));
        let mut numbers = vec![
            ("targets.count", f64::from(targets.count), targets_range),
            ("targets.read_bytes_per_second", targets.read_bytes_per_second, RATE_RANGE),
            ("targets.write_bytes_per_second", targets.write_bytes_per_second, RATE_RANGE),
            ("targets.seek_seconds", targets.seek_seconds, SECONDS_RANGE),
            ("targets.request_seconds", targets.request_seconds, SECONDS_RANGE),
            ("targets.latency_seconds", targets.latency_seconds, SECONDS_RANGE),
            ("targets.handover_seconds", targets.handover_seconds, SECONDS_RANGE),
            ("targets.gather_bytes", targets.gather_bytes as f64, GATHER_BYTES_RANGE),
            ("clients.per_node", f64::from(clients.per_node), COUNT_RANGE),
            ("clients.link_bytes_per_second", clients.link_bytes_per_second, RATE_RANGE),
            ("clients.request_seconds", clients.request_seconds, SECONDS_RANGE),
            ("clients.requests_in_flight", f64::from(clients.requests_in_flight), IN_FLIGHT_RANGE),
            ("metadata.servers", f64::from(metadata.servers), COUNT_RANGE),
            ("metadata.create_seconds", metadata.create_seconds, SECONDS_RANGE),
            ("metadata.open_seconds", metadata.open_seconds, SECONDS_RANGE),
            ("metadata.sync_seconds", metadata.sync_seconds, SECONDS_RANGE),
            ("fabric.message_seconds", fabric.message_seconds, SECONDS_RANGE),
            ("striping.count", f64::from(striping.count), targets_range),
            ("striping.bytes", striping.bytes as f64, STRIPE_BYTES_RANGE),
        ];
        let given = [
            ("clients.storage_bytes_per_second", clients.storage_bytes_per_second),
            ("clients.bytes_per_second", clients.bytes_per_second),
            ("fabric.bytes_per_second", fabric.bytes_per_second),
        ];
        for (field, value) in given {
            numbers.extend(value.map(|value| (field, value, RATE_RANGE)));
        }
        if let Some(local) = local {
            numbers.extend([
                ("local.read_bytes_per_second", local.read_bytes_per_second, RATE_RANGE),
                ("local.write_bytes_per_second", local.write_bytes_per_second, RATE_RANGE),
                ("local.request_seconds", local.request_seconds, SECONDS_RANGE),
            ]);
        }
        numbers
    }
}
