//! The description of a machine, and its validation.

use serde::{Deserialize, Serialize};

use crate::error::MachineError;

/// The most storage targets that a machine may have.
pub const TARGETS_MAX: u32 = 1 << 16;
const TEXT_BYTES_MAX: usize = 4096;
/// Between a modem and all the memory of a large machine.
const RATE_RANGE: (f64, f64) = (1.0, 1e18);
const SECONDS_RANGE: (f64, f64) = (0.0, 3600.0);
const COUNT_RANGE: (f64, f64) = (1.0, 1e6);
/// Each request in flight takes memory.
const IN_FLIGHT_RANGE: (f64, f64) = (1.0, 4096.0);
const GATHER_BYTES_RANGE: (f64, f64) = (0.0, (1_u64 << 50) as f64);
const STRIPE_BYTES_RANGE: (f64, f64) = (1.0, (1_u64 << 50) as f64);

/// A parallel file system and its clients, as a description file in `machines` says it.
///
/// Rates are bytes per second, times seconds. A cost that the description does not name is zero, a
/// rate that it does not name is unbounded.
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
    /// Where its figures come from, and what else a user should know.
    #[serde(default)]
    pub about: String,
    /// The storage targets.
    pub targets: Targets,
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
    /// How files are striped where a workload does not say.
    #[serde(default)]
    pub striping: Striping,
}

/// The storage targets, all alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Targets {
    /// How many.
    pub count: u32,
    /// `R`: bytes per second of one target, read.
    pub read_bytes_per_second: f64,
    /// `W`: bytes per second of one target, written.
    pub write_bytes_per_second: f64,
    /// `S`: seconds from one place to another.
    #[serde(default)]
    pub seek_seconds: f64,
    /// `P`: seconds for which each request keeps the target busy besides.
    #[serde(default)]
    pub request_seconds: f64,
    /// `D`: seconds that each request takes besides, and that keep nobody busy.
    #[serde(default)]
    pub latency_seconds: f64,
    /// `H`: seconds for which the target is busy when another node writes to an object.
    #[serde(default)]
    pub handover_seconds: f64,
    /// `U`: bytes of an object that caches collect before they are written in one go.
    #[serde(default)]
    pub gather_bytes: u64,
}

/// The processes that read and write, all alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// How many share a node and its link.
    #[serde(default = "one")]
    pub per_node: u32,
    /// `L`: bytes per second of a node's link, in each direction.
    pub link_bytes_per_second: f64,
    /// `F`: bytes per second that a node's file system client reads, and writes, if they are fewer than
    /// its link's.
    #[serde(default)]
    pub storage_bytes_per_second: Option<f64>,
    /// `B`: bytes per second of one client, if they are fewer than its link's.
    #[serde(default)]
    pub bytes_per_second: Option<f64>,
    /// `C`: seconds for which sending a request keeps a client busy.
    #[serde(default)]
    pub request_seconds: f64,
    /// `Q`: requests of one client that are in flight at the same time.
    #[serde(default = "one")]
    pub requests_in_flight: u32,
}

/// The metadata servers behind one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetadataCosts {
    /// `M`: operations that are served at the same time.
    pub servers: u32,
    /// Seconds to create a file.
    pub create_seconds: f64,
    /// Seconds to open one.
    pub open_seconds: f64,
    /// Seconds to sync one whose bytes are at the targets.
    pub sync_seconds: f64,
}

/// The network that carries messages between clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fabric {
    /// Bytes per second of all messages together, if that is bounded.
    pub bytes_per_second: Option<f64>,
    /// `G`: seconds for which a message keeps a client busy.
    pub message_seconds: f64,
}

/// A device of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCosts {
    /// Bytes per second, read.
    pub read_bytes_per_second: f64,
    /// Bytes per second, written.
    pub write_bytes_per_second: f64,
    /// Seconds for which each request keeps the device busy besides.
    #[serde(default)]
    pub request_seconds: f64,
}

/// How a file lies on targets where nobody says another thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Striping {
    /// Targets of a file.
    pub count: u32,
    /// Bytes on one target before the next.
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
    /// Reads a description from JSON, the same keys as in its TOML file.
    ///
    /// # Errors
    /// `Malformed` if the text is no description, or has unknown keys; as [`Machine::check`].
    pub fn from_json(text: &str) -> Result<Self, MachineError> {
        let machine: Self = serde_json::from_str(text).map_err(|error| {
            MachineError::Malformed { what: "machine description", reason: error.to_string() }
        })?;
        machine.check()?;
        Ok(machine)
    }

    /// Checks every field against the range that a machine can have.
    ///
    /// # Errors
    /// `Implausible` with the first field that is out of range (not a number included), `Malformed` for
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
