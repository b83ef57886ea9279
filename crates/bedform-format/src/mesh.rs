//! The record of a refined mesh in a store: the attribute [`MESH_ATTRIBUTE`] of its group.
//!
//! The group of a mesh has a group `level_N` for each level, and these have an array for each
//! component, one with the boxes, and one with the sub-boxes, which says where the elements of each
//! lie. `docs/format.md`, "Refined meshes", describes them.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::{MetadataError, invalid};
use crate::{Limits, ObjectPath};

/// The attribute that makes a group a refined mesh.
pub const MESH_ATTRIBUTE: &str = "bedform_mesh";
/// The array with the boxes of a level.
pub const BOXES_ARRAY: &str = "boxes";
/// The array with the sub-boxes of a level.
pub const SUB_BOXES_ARRAY: &str = "sub_boxes";

const VERSION: u64 = 1;
/// The coordinates that axes can have.
const COORDINATES: [&str; 3] = ["cartesian", "cylindrical", "spherical"];
/// Largest number of cells of a sub-box: 2 GiB of float64.
const SUB_BOX_CELLS_MAX: u64 = 1 << 28;
/// Largest number of axes of a mesh.
const RANK_MAX: usize = 3;
/// Largest number of cells along an axis of a level.
const LENGTH_MAX: u64 = 1 << 48;

/// The facts that a store keeps of a refined mesh, beside its boxes and elements.
///
/// ```
/// use bedform_format::Limits;
/// use bedform_format::mesh::{MeshComponentRecord, MeshLevelRecord, MeshRecord};
/// let level = |cells: u64, step: f64| MeshLevelRecord {
///     shape: vec![cells; 2],
///     ratio: if cells == 8 { vec![2; 2] } else { vec![] },
///     spacing: vec![step; 2],
///     step: 7,
/// };
/// let record = MeshRecord {
///     version: 1,
///     time: 0.5,
///     lower: vec![0.0; 2],
///     upper: vec![1.0; 2],
///     coordinates: "cartesian".to_owned(),
///     order: "hilbert".to_owned(),
///     sub_box: vec![64; 2],
///     components: vec![MeshComponentRecord { name: "rho".to_owned(), array: "rho".to_owned() }],
///     levels: vec![level(8, 0.125), level(16, 0.0625)],
/// };
/// assert_eq!(MeshRecord::decode(&record.encode(), &Limits::default()), Ok(record));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshRecord {
    /// The version of the format: 1.
    pub version: u64,
    /// The time of the simulation.
    pub time: f64,
    /// The lower bound of the domain along each axis, in the units of the simulation.
    pub lower: Vec<f64>,
    /// The upper bound of the domain along each axis.
    pub upper: Vec<f64>,
    /// The coordinates that the axes have: `cartesian`, `cylindrical` or `spherical`.
    #[serde(default = "cartesian")]
    pub coordinates: String,
    /// The name of the order of the sub-boxes, for people.
    pub order: String,
    /// The most cells of a sub-box along each axis.
    pub sub_box: Vec<u64>,
    /// The components.
    pub components: Vec<MeshComponentRecord>,
    /// The levels, coarsest first.
    pub levels: Vec<MeshLevelRecord>,
}

/// A component of a refined mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshComponentRecord {
    /// The name, any text.
    pub name: String,
    /// The name of its array in the group of each level.
    pub array: String,
}

/// A level of a refined mesh.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshLevelRecord {
    /// The cells of the domain along each axis.
    pub shape: Vec<u64>,
    /// Cells of the next level along each axis in one cell; empty for the last level.
    pub ratio: Vec<u32>,
    /// The size of a cell along each axis, in the units of the simulation.
    pub spacing: Vec<f64>,
    /// The time step.
    pub step: i64,
}

impl MeshRecord {
    /// Returns the attribute.
    pub fn encode(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Parses and checks the attribute.
    ///
    /// # Errors
    /// [`MetadataError::Field`] for a record that no mesh has: another version, counts that
    /// disagree, domains that are not the refined ones, names that occur twice.
    pub fn decode(value: &Value, limits: &Limits) -> Result<Self, MetadataError> {
        let version = value.get("version").and_then(Value::as_u64);
        if version != Some(VERSION) {
            return Err(invalid(at("version"), "not 1: a later version of Bedform wrote it"));
        }
        let record = Self::deserialize(value).map_err(|error| {
            invalid(MESH_ATTRIBUTE, format!("not the record of a mesh: {error}"))
        })?;
        record.check(limits)?;
        Ok(record)
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.lower.len()
    }

    fn check(&self, limits: &Limits) -> Result<(), MetadataError> {
        let rank = self.rank();
        if !(1..=RANK_MAX).contains(&rank) {
            return Err(invalid(at("lower"), format!("{rank} axes: a mesh has 1 to {RANK_MAX}")));
        }
        let lengths = [("upper", self.upper.len()), ("sub_box", self.sub_box.len())];
        if let Some((field, length)) = lengths.iter().find(|(_, length)| *length != rank) {
            return Err(invalid(at(field), format!("{length} numbers for {rank} axes")));
        }
        let axes = self.lower.iter().zip(&self.upper);
        if axes.clone().any(|(low, high)| !(low.is_finite() && high.is_finite() && low < high)) {
            return Err(invalid(at("upper"), "not above the lower bound"));
        }
        if self.sub_box.iter().any(|length| !(1..=LENGTH_MAX).contains(length)) {
            return Err(invalid(at("sub_box"), "not a number of cells"));
        }
        let cells = self.sub_box.iter().fold(1, |all: u64, length| all.saturating_mul(*length));
        if cells > SUB_BOX_CELLS_MAX {
            return Err(invalid(at("sub_box"), format!("{cells} cells, over {SUB_BOX_CELLS_MAX}")));
        }
        self.check_coordinates()?;
        self.check_components(limits)?;
        self.check_levels(limits)
    }

    fn check_coordinates(&self) -> Result<(), MetadataError> {
        if COORDINATES.contains(&&*self.coordinates) {
            return Ok(());
        }
        Err(invalid(
            at("coordinates"),
            format!("{:?}, not one of {COORDINATES:?}", self.coordinates),
        ))
    }

    fn check_components(&self, limits: &Limits) -> Result<(), MetadataError> {
        let count = self.components.len();
        if count as u64 > limits.mesh_components_max {
            return Err(invalid(at("components"), format!("{count}, over the limit")));
        }
        let (mut names, mut arrays) = (HashSet::new(), HashSet::new());
        for MeshComponentRecord { name, array } in &self.components {
            let is_path = ObjectPath::parse(array).is_ok_and(|path| !path.is_root());
            let is_own = [BOXES_ARRAY, SUB_BOXES_ARRAY].contains(&&**array);
            if name.trim().is_empty() || name.trim() != name || name.chars().any(char::is_control) {
                return Err(invalid(
                    at("components"),
                    format!("{name:?}: a name has no blanks around it, and no control characters"),
                ));
            }
            if !is_path || is_own || array.contains('/') {
                return Err(invalid(at("components"), format!("{array:?} names no array")));
            }
            if !names.insert(name) || !arrays.insert(array) {
                return Err(invalid(at("components"), format!("{name:?} occurs twice")));
            }
        }
        Ok(())
    }

    fn check_levels(&self, limits: &Limits) -> Result<(), MetadataError> {
        let (rank, count) = (self.rank(), self.levels.len());
        if count == 0 || count > limits.mesh_levels_max {
            return Err(invalid(at("levels"), format!("{count} levels")));
        }
        for (number, level) in self.levels.iter().enumerate() {
            let refuse =
                |problem: &str| Err(invalid(format!("{MESH_ATTRIBUTE}.levels[{number}]"), problem));
            let next = self.levels.get(number + 1);
            let ratios = if next.is_some() { rank } else { 0 };
            if [level.shape.len(), level.spacing.len()] != [rank; 2] || level.ratio.len() != ratios
            {
                return refuse("another number of axes");
            }
            if level.shape.iter().any(|length| !(1..=LENGTH_MAX).contains(length)) {
                return refuse("not a number of cells");
            }
            if level.spacing.iter().any(|step| !step.is_finite() || *step <= 0.0) {
                return refuse("a cell without a size");
            }
            let axes = level.shape.iter().zip(&level.ratio);
            let refined = axes.map(|(length, ratio)| length.checked_mul(u64::from(*ratio)));
            if next.is_some_and(|next| !refined.eq(next.shape.iter().copied().map(Some))) {
                return refuse("the domain of the next level is not the refined one");
            }
        }
        Ok(())
    }
}

fn cartesian() -> String {
    COORDINATES[0].to_owned()
}

fn at(field: &str) -> String {
    format!("{MESH_ATTRIBUTE}.{field}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> Value {
        json!({
            "version": 1, "time": 0.1, "lower": [0.0, -1.0], "upper": [1.0, 1.0],
            "coordinates": "cylindrical", "order": "z", "sub_box": [8, 8],
            "components": [{"name": "a/b", "array": "component_0"}],
            "levels": [
                {"shape": [8, 4], "ratio": [2, 4], "spacing": [0.1, 0.2], "step": 3},
                {"shape": [16, 16], "ratio": [], "spacing": [0.05, 0.05], "step": -1},
            ],
        })
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let read = MeshRecord::decode(&record(), &Limits::default()).unwrap();
        assert_eq!(read.encode(), record());
    }

    #[test]
    fn records_that_no_mesh_has_are_refused() {
        let wrong = [
            ("/version", json!(2)),
            ("/lower", json!([])),
            ("/upper", json!([1.0])),
            ("/upper/1", json!(-1.0)),
            ("/coordinates", json!("polar")),
            ("/sub_box/0", json!(0)),
            ("/components/0/array", json!("a/b")),
            ("/components/0/array", json!("sub_boxes")),
            ("/components/0/array", json!("..")),
            ("/components/0/name", json!("")),
            ("/components/0/name", json!("a ")),
            ("/components/0/name", json!("a\nb")),
            ("/sub_box", json!([1_u64 << 40, 1])),
            ("/components", json!([{"name": "a", "array": "a"}, {"name": "a", "array": "b"}])),
            ("/levels", json!([])),
            ("/levels/0/shape/0", json!(9)),
            ("/levels/0/ratio/0", json!(0)),
            ("/levels/0/ratio", json!([])),
            ("/levels/1/ratio", json!([2, 2])),
            ("/levels/1/shape/0", json!(u64::MAX)),
            ("/levels/1/spacing/0", json!(0.0)),
            ("/levels/1/spacing/0", json!(null)),
        ];
        for (pointer, value) in wrong {
            let mut record = record();
            *record.pointer_mut(pointer).unwrap() = value;
            assert!(MeshRecord::decode(&record, &Limits::default()).is_err(), "{pointer}");
        }
    }
}
