//! The meaning that attributes give to stored values, and joined times in the units of the first
//! file.
//!
//! By CF the bounds of times have no units of their own: they have those of the times.

use bedform_format::Endian;
use bedform_format::chunk_map::{ForeignArray, ForeignAttribute, ForeignEncoding, ForeignStorage};
use serde_json::Value;

use super::times::{TimeUnits, calendar_name, converted, is_since};
use super::values::VariableElements;
use crate::foreign::attributes::{AttributeStyle, group_attributes};

/// Attributes that decide the meaning of stored values: files that differ in them cannot be read as
/// one.
pub(super) const MEANINGS: [&str; 7] =
    ["units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"];
/// Attributes in which labels must not differ. A missing value is not a label, so its attributes do
/// not count.
const OF_LABELS: [&str; 5] = ["units", "calendar", "scale_factor", "add_offset", "_Unsigned"];
/// Attributes that name the bounds of a variable.
const BOUNDS: [&str; 2] = ["bounds", "climatology"];
/// Attributes that hold missing values.
const MISSING: [&str; 2] = ["_FillValue", "missing_value"];

/// Returns the value of an attribute, regardless of its byte order, and with a list of one number
/// as that number.
pub(super) fn meaning(array: &ForeignArray, name: &str) -> Option<Value> {
    let (_, attribute) = array.attributes.iter().find(|(own, _)| own == name)?;
    let only = [(name.to_owned(), attribute.clone())];
    let value = group_attributes(&only, AttributeStyle::H5netcdf).remove(name)?;
    Some(match value {
        Value::Array(list) if list.len() == 1 => list.into_iter().next().unwrap_or_default(),
        other => other,
    })
}

pub(super) fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "missing".to_owned(), Value::to_string)
}

pub(super) fn text(array: &ForeignArray, name: &str) -> Option<String> {
    meaning(array, name)?.as_str().map(str::to_owned)
}

/// Returns the path of a member of a group.
pub(super) fn member_of(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") }
}

/// Returns the path of a variable that the one at `path` names.
fn sibling_path(path: &str, name: &str) -> String {
    member_of(path.rsplit_once('/').map_or("", |(group, _)| group), name)
}

/// Returns the units and calendar of times; `None` for other variables.
fn since_units(array: &ForeignArray) -> Option<(String, Option<String>)> {
    let units = text(array, "units").filter(|units| is_since(units))?;
    Some((units, text(array, "calendar")))
}

/// Returns the units of times as one text; `None` for other variables.
pub(super) fn time_meaning(array: &ForeignArray) -> Option<String> {
    let (units, calendar) = since_units(array)?;
    Some(format!("{units}, {}", calendar_name(calendar.as_deref().unwrap_or("standard"))))
}

/// Gives the bounds of times the units of the times, if they have none.
pub(super) fn give_units_to_bounds(arrays: &mut [ForeignArray]) {
    let mut inherited = Vec::new();
    for array in arrays.iter().filter(|array| since_units(array).is_some()) {
        let named = BOUNDS.iter().filter_map(|name| text(array, name));
        let of_times = ["units", "calendar"];
        let given = array.attributes.iter().filter(|(name, _)| of_times.contains(&name.as_str()));
        let given: Vec<_> = given.cloned().collect();
        inherited.extend(named.map(|name| (sibling_path(&array.path, &name), given.clone())));
    }
    for (path, given) in inherited {
        let bounds = arrays.iter_mut().find(|array| array.path == path);
        if let Some(bounds) = bounds.filter(|bounds| meaning(bounds, "units").is_none()) {
            bounds.attributes.retain(|(name, _)| name != "calendar");
            bounds.attributes.extend(given);
        }
    }
}

/// Returns one name for all spellings of a unit of latitude or longitude.
fn of_degrees(units: &str) -> Option<&'static str> {
    match units {
        "degrees_north" | "degree_north" | "degree_N" | "degrees_N" | "degreeN" | "degreesN" => {
            Some("degrees_north")
        }
        "degrees_east" | "degree_east" | "degree_E" | "degrees_E" | "degreeE" | "degreesE" => {
            Some("degrees_east")
        }
        _ => None,
    }
}

/// Returns the first attribute by which the labels of two variables differ in meaning, with both
/// values.
pub(super) fn other_labels(
    first: &ForeignArray,
    array: &ForeignArray,
) -> Option<(&'static str, Option<Value>, Option<Value>)> {
    let times = [first, array].map(|array| {
        let (units, calendar) = since_units(array)?;
        TimeUnits::parse(&units, calendar.as_deref())
    });
    let is_one_time = times[0].is_some() && times[0] == times[1];
    OF_LABELS.into_iter().find_map(|name| {
        let (of, own) = (meaning(first, name), meaning(array, name));
        let words = [&of, &own].map(|value| value.as_ref().and_then(Value::as_str));
        let is_same = match name {
            "units" | "calendar" if is_one_time => true,
            "units" => {
                let degrees = words.map(|word| word.and_then(of_degrees));
                of == own || degrees[0].is_some() && degrees[0] == degrees[1]
            }
            "calendar" => {
                let [of, own] = words.map(|word| calendar_name(word.unwrap_or("standard")));
                of == own
            }
            _ => of == own,
        };
        (!is_same).then_some((name, of, own))
    })
}

/// Returns the missing values, little-endian.
pub(super) fn missing_elements(array: &ForeignArray) -> Vec<Vec<u8>> {
    let named = array.attributes.iter().filter(|(name, _)| MISSING.contains(&name.as_str()));
    let elements = named.flat_map(|(_, attribute)| {
        let ForeignAttribute::Values(values) = attribute else { return Vec::new() };
        if Some(values.data_type) != array.data_type {
            return Vec::new();
        }
        let size = values.data_type.item_size().unwrap_or(1).max(1);
        let element = |element: &[u8]| little_endian(element, values.endian);
        values.data.chunks_exact(size).map(element).collect()
    });
    elements.collect()
}

fn little_endian(element: &[u8], order: Endian) -> Vec<u8> {
    let mut element = element.to_vec();
    if order == Endian::Big {
        element.reverse();
    }
    element
}

/// The way in which times of a file become those of the first file.
pub(super) enum TimeUnification {
    /// No change: they are not times, or have equal units.
    AsTheyAre,
    /// Other words for the same units.
    SameUnits,
    /// Other units.
    Convert(TimeConversion),
    /// The reason why they cannot be converted.
    Never(String),
}

/// The units of times of a file, and those of the first file.
pub(super) struct TimeConversion {
    from: TimeUnits,
    to: TimeUnits,
    shown: (String, String),
}

/// Compares the units of a variable with those of the first file.
pub(super) fn unified(first: &ForeignArray, array: &ForeignArray) -> TimeUnification {
    let (Some(of), Some(own)) = (since_units(first), since_units(array)) else {
        return TimeUnification::AsTheyAre;
    };
    if of == own {
        return TimeUnification::AsTheyAre;
    }
    let [to, from] =
        [&of, &own].map(|(units, calendar)| TimeUnits::parse(units, calendar.as_deref()));
    let calendars =
        [&of, &own].map(|(_, name)| calendar_name(name.as_deref().unwrap_or("standard")));
    if of.0 == own.0 && calendars[0] == calendars[1] || from.is_some() && from == to {
        return TimeUnification::SameUnits;
    }
    match (from, to) {
        (Some(from), Some(to)) if calendars[0] == calendars[1] => {
            TimeUnification::Convert(TimeConversion { from, to, shown: (own.0, of.0) })
        }
        _ => TimeUnification::Never(format!(
            "{:?} has times in {:?} ({}), which are not compared with {:?} ({})",
            array.path, own.0, calendars[1], of.0, calendars[0]
        )),
    }
}

/// Gives a variable the units of the first file's.
pub(super) fn take_units(first: &ForeignArray, array: &mut ForeignArray) {
    let of_times = |name: &str| matches!(name, "units" | "calendar");
    array.attributes.retain(|(name, _)| !of_times(name));
    let given = first.attributes.iter().filter(|(name, _)| of_times(name));
    array.attributes.extend(given.cloned());
}

impl TimeConversion {
    /// Converts times to the units of the first file, stores them in the variable itself, and
    /// returns them.
    ///
    /// # Errors
    /// The reason why they cannot be converted.
    pub(super) fn apply(
        &self,
        array: &mut ForeignArray,
        times: &VariableElements,
    ) -> std::result::Result<VariableElements, String> {
        let missing = missing_elements(array);
        let (own, of) = &self.shown;
        if ["scale_factor", "add_offset"].iter().any(|name| meaning(array, name).is_some()) {
            return Err(format!(
                "{:?} has packed times in {own:?}, which are not converted to {of:?}",
                array.path
            ));
        }
        let found = converted(times, &self.from, &self.to, &missing).map_err(|at| {
            let value = at.map_or_else(String::new, |at| times.shown(at));
            format!(
                "{:?} has the time {value} {own}, which has no exact number in {of:?}",
                array.path
            )
        })?;
        array.storage = ForeignStorage::Compact { data: found.bytes.clone() };
        array.endian = Endian::Little;
        array.fill_value = None;
        array.encoding = ForeignEncoding::default();
        Ok(found)
    }
}
