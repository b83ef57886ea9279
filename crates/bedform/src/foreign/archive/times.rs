//! CF times: units such as `hours since 2001-01-01`, and times of one unit converted to those of
//! another.
//!
//! A conversion is exact: each time denotes the same nanosecond before and after. If no stored
//! number does, the conversion is refused. Moments are integers, nanoseconds since a day of the
//! calendar; no floating-point sum rounds them.

use bedform_format::DataType;

use super::values::VariableElements;

/// The word between unit and epoch in the units of times.
const SINCE: &str = " since ";
const NS_PER_SECOND: i128 = 1_000_000_000;
const NS_PER_DAY: i128 = 86_400 * NS_PER_SECOND;
/// The most years of an epoch before and after year 0.
const YEARS_MAX: i64 = 1_000_000;
/// No larger number of a unit of time is a date.
const UNITS_MAX: f64 = 1e18;
/// The first day of the Gregorian calendar.
const GREGORIAN_BEGINS: (i64, i64, i64) = (1582, 10, 15);

/// The rule by which days become dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calendar {
    /// Julian until 4 October 1582, Gregorian from the next day, the 15th, on.
    Standard,
    ProlepticGregorian,
    Julian,
    /// Years of 365 days.
    NoLeap,
    /// Years of 366 days.
    AllLeap,
    /// Months of 30 days.
    Days360,
}

/// A unit of time, and the moment from which it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeUnits {
    unit_ns: i128,
    epoch_ns: i128,
    calendar: Calendar,
}

/// Returns true for units that count from an epoch.
pub(super) fn is_since(units: &str) -> bool {
    units.to_ascii_lowercase().contains(SINCE)
}

/// Returns one name for each calendar; CF has two for some.
pub(super) fn calendar_name(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    match name.as_str() {
        "gregorian" => "standard".to_owned(),
        "365_day" => "noleap".to_owned(),
        "366_day" => "all_leap".to_owned(),
        _ => name,
    }
}

impl Calendar {
    fn of(name: Option<&str>) -> Option<Self> {
        Some(match calendar_name(name.unwrap_or("standard")).as_str() {
            "standard" => Self::Standard,
            "proleptic_gregorian" => Self::ProlepticGregorian,
            "julian" => Self::Julian,
            "noleap" => Self::NoLeap,
            "all_leap" => Self::AllLeap,
            "360_day" => Self::Days360,
            _ => return None,
        })
    }

    /// Returns the number of a date's day; `None` for a date that the calendar lacks.
    fn day_number(self, (year, month, day): (i64, i64, i64)) -> Option<i64> {
        let index = usize::try_from(month - 1).ok().filter(|index| *index < 12)?;
        // Calendars with Julian years have no year 0.
        let has_year_0 = !matches!(self, Self::Standard | Self::Julian);
        if year.abs() > YEARS_MAX || !has_year_0 && year < 1 {
            return None;
        }
        let julian_leap = year % 4 == 0;
        let gregorian_leap = julian_leap && (year % 100 != 0 || year % 400 == 0);
        let is_gregorian = self == Self::ProlepticGregorian
            || self == Self::Standard && (year, month, day) >= GREGORIAN_BEGINS;
        let is_leap = match self {
            Self::NoLeap | Self::Days360 => false,
            Self::AllLeap => true,
            _ if is_gregorian => gregorian_leap,
            _ => julian_leap,
        };
        let mut lengths = [31, 28 + i64::from(is_leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        if self == Self::Days360 {
            lengths = [30; 12];
        }
        let is_gap = self == Self::Standard && !is_gregorian && (year, month, day) > (1582, 10, 4);
        if !(1..=lengths[index]).contains(&day) || is_gap {
            return None;
        }
        let in_year = lengths[..index].iter().sum::<i64>() + day - 1;
        let before = year - 1;
        let julian_days = before * 365 + before.div_euclid(4);
        // Both calendars of `Standard` count from one day: 1 January 1 is two days earlier in the
        // Julian one.
        let years = match self {
            Self::NoLeap => year * 365,
            Self::AllLeap => year * 366,
            Self::Days360 => year * 360,
            _ if is_gregorian => julian_days - before.div_euclid(100) + before.div_euclid(400),
            _ => julian_days - 2,
        };
        Some(years + in_year)
    }
}

impl TimeUnits {
    /// Parses units in the form of CF, with a calendar; `None` for others, and for units without a
    /// fixed length such as months.
    pub(super) fn parse(units: &str, calendar: Option<&str>) -> Option<Self> {
        let units = units.trim().to_ascii_lowercase();
        let (unit, epoch) = units.split_once(SINCE)?;
        let unit_ns = match unit.trim() {
            "day" | "days" | "d" => NS_PER_DAY,
            "hour" | "hours" | "hr" | "hrs" | "h" => 3600 * NS_PER_SECOND,
            "minute" | "minutes" | "min" | "mins" => 60 * NS_PER_SECOND,
            "second" | "seconds" | "sec" | "secs" | "s" => NS_PER_SECOND,
            "millisecond" | "milliseconds" | "millisec" | "millisecs" | "msec" | "msecs" | "ms" => {
                NS_PER_SECOND / 1000
            }
            "microsecond" | "microseconds" | "microsec" | "microsecs" | "us" => 1000,
            "nanosecond" | "nanoseconds" | "ns" => 1,
            _ => return None,
        };
        let calendar = Calendar::of(calendar)?;
        let epoch_ns = epoch_of(epoch.trim(), calendar)?;
        Some(Self { unit_ns, epoch_ns, calendar })
    }

    /// Returns the moment of an integer.
    fn moment(&self, number: i128) -> Option<i128> {
        number.checked_mul(self.unit_ns)?.checked_add(self.epoch_ns)
    }

    /// Returns the moment of a number, to the nearest nanosecond.
    fn moment_of(&self, number: f64) -> Option<i128> {
        if number.is_nan() || number.abs() > UNITS_MAX {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let (whole, part) =
            (number.trunc() as i128, (number.fract() * self.unit_ns as f64).round() as i128);
        self.moment(whole)?.checked_add(part)
    }

    /// Returns the number of a moment, rounded.
    #[allow(clippy::cast_precision_loss)]
    fn number_of(&self, moment: i128) -> f64 {
        let since = moment - self.epoch_ns;
        let (whole, part) = (since.div_euclid(self.unit_ns), since.rem_euclid(self.unit_ns));
        whole as f64 + part as f64 / self.unit_ns as f64
    }
}

/// Converts times in `from` to elements in `to`; `missing` are the missing values. On failure
/// returns the position of the first time without an element in `to`, or `None` if the units cannot
/// be compared.
pub(super) fn converted(
    times: &VariableElements,
    from: &TimeUnits,
    to: &TimeUnits,
    missing: &[Vec<u8>],
) -> std::result::Result<VariableElements, Option<usize>> {
    if from.calendar != to.calendar {
        return Err(None);
    }
    let mut bytes = Vec::with_capacity(times.bytes.len());
    for (at, element) in times.iter().enumerate() {
        let is_missing = |element: &[u8]| missing.iter().any(|missing| missing == element);
        if is_missing(element) || times.is_nan(at) {
            bytes.extend_from_slice(element);
            continue;
        }
        let same = converted_one(times.data_type, (element, times.number(at)), from, to);
        // A missing value would hide it.
        match same.filter(|element| !is_missing(element)) {
            Some(element) => bytes.extend(element),
            None => return Err(Some(at)),
        }
    }
    Ok(VariableElements { data_type: times.data_type, bytes })
}

fn converted_one(
    data_type: DataType,
    (element, number): (&[u8], Option<f64>),
    from: &TimeUnits,
    to: &TimeUnits,
) -> Option<Vec<u8>> {
    match data_type {
        DataType::Float64 => {
            let moment = from.moment_of(number?)?;
            let found = to.number_of(moment);
            (to.moment_of(found)? == moment).then(|| found.to_le_bytes().to_vec())
        }
        DataType::Float32 => {
            let moment = from.moment_of(number?)?;
            #[allow(clippy::cast_possible_truncation)]
            let found = to.number_of(moment) as f32;
            (to.moment_of(f64::from(found))? == moment).then(|| found.to_le_bytes().to_vec())
        }
        _ => {
            let since = from.moment(integer(data_type, element)?)? - to.epoch_ns;
            let is_whole = since.rem_euclid(to.unit_ns) == 0;
            is_whole.then(|| element_of(data_type, since.div_euclid(to.unit_ns))).flatten()
        }
    }
}

/// Returns the integer that an element holds.
pub(super) fn integer(data_type: DataType, element: &[u8]) -> Option<i128> {
    use DataType as T;
    Some(match data_type {
        T::Int8 => i8::from_le_bytes(element.try_into().ok()?).into(),
        T::Int16 => i16::from_le_bytes(element.try_into().ok()?).into(),
        T::Int32 => i32::from_le_bytes(element.try_into().ok()?).into(),
        T::Int64 => i64::from_le_bytes(element.try_into().ok()?).into(),
        T::UInt8 => u8::from_le_bytes(element.try_into().ok()?).into(),
        T::UInt16 => u16::from_le_bytes(element.try_into().ok()?).into(),
        T::UInt32 => u32::from_le_bytes(element.try_into().ok()?).into(),
        T::UInt64 => u64::from_le_bytes(element.try_into().ok()?).into(),
        _ => return None,
    })
}

/// Returns an integer as an element; `None` if the type cannot hold it.
fn element_of(data_type: DataType, number: i128) -> Option<Vec<u8>> {
    use DataType as T;
    Some(match data_type {
        T::Int8 => i8::try_from(number).ok()?.to_le_bytes().to_vec(),
        T::Int16 => i16::try_from(number).ok()?.to_le_bytes().to_vec(),
        T::Int32 => i32::try_from(number).ok()?.to_le_bytes().to_vec(),
        T::Int64 => i64::try_from(number).ok()?.to_le_bytes().to_vec(),
        T::UInt8 => u8::try_from(number).ok()?.to_le_bytes().to_vec(),
        T::UInt16 => u16::try_from(number).ok()?.to_le_bytes().to_vec(),
        T::UInt32 => u32::try_from(number).ok()?.to_le_bytes().to_vec(),
        T::UInt64 => u64::try_from(number).ok()?.to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// Returns the moment of a date and time such as `2001-01-01 06:00:00.5 UTC`, in lower case. Only
/// forms that all programs read alike have one: udunits applies time zones and accepts an hour
/// alone, cftime ignores both in some calendars.
fn epoch_of(text: &str, calendar: Calendar) -> Option<i128> {
    let text = [" z", "z", " utc"].iter().find_map(|zone| text.strip_suffix(zone)).unwrap_or(text);
    let (date, time) = match text.find([' ', 't']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (sign, date) = match date.strip_prefix('-') {
        Some(date) => (-1, date),
        None => (1, date),
    };
    let mut parts = date.split('-').map(digits);
    let date = (sign * parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    let day = i128::from(calendar.day_number(date)?) * NS_PER_DAY;
    Some(day + time.map_or(Some(0), time_of_day)?)
}

/// Returns the nanoseconds since midnight of `6:00` or `06:00:00.5`.
fn time_of_day(text: &str) -> Option<i128> {
    let mut parts = text.split(':');
    let hours = digits(parts.next()?)?;
    let minutes = digits(parts.next()?)?;
    let (seconds, part) = match parts.next().map(|text| text.split_once('.').unwrap_or((text, "")))
    {
        None => (0, 0),
        Some((seconds, part)) => (digits(seconds)?, fraction_ns(part)?),
    };
    let is_time = parts.next().is_none() && hours < 24 && minutes < 60 && seconds < 60;
    let seconds = i128::from(hours * 3600 + minutes * 60 + seconds);
    is_time.then_some(seconds * NS_PER_SECOND + part)
}

/// Returns the nanoseconds of the digits behind a decimal point; `None` below a microsecond, which
/// cftime ignores.
fn fraction_ns(digits_behind: &str) -> Option<i128> {
    let known = digits_behind.trim_end_matches('0');
    if known.is_empty() {
        return digits_behind.bytes().all(|byte| byte.is_ascii_digit()).then_some(0);
    }
    let microseconds = 10_i128.pow(6_u32.checked_sub(u32::try_from(known.len()).ok()?)?);
    Some(i128::from(digits(known)?) * microseconds * 1000)
}

/// Returns the number of up to ten digits and nothing else.
fn digits(text: &str) -> Option<i64> {
    let is_number =
        (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str, calendar: &str) -> Option<TimeUnits> {
        TimeUnits::parse(text, Some(calendar))
    }

    #[test]
    fn epochs_lie_as_many_days_apart_as_the_calendar_says() {
        for (calendar, from, to, days) in [
            ("standard", "2000-02-28", "2000-03-01", 2),
            ("gregorian", "1582-10-04", "1582-10-15", 1),
            ("standard", "1-1-1", "2001-01-01", 730_487),
            ("proleptic_gregorian", "0001-01-01", "2001-01-01", 730_485),
            ("proleptic_gregorian", "0000-01-01", "0001-01-01", 366),
            ("proleptic_gregorian", "-0001-01-01", "0000-01-01", 365),
            ("proleptic_gregorian", "1900-02-28", "1900-03-01", 1),
            ("julian", "1900-02-28", "1900-03-01", 2),
            ("noleap", "2000-02-28", "2000-03-01", 1),
            ("365_day", "2000-01-01", "2004-01-01", 4 * 365),
            ("all_leap", "2001-02-28", "2001-03-01", 2),
            ("360_day", "2000-02-30", "2001-02-30", 360),
        ] {
            let [from, to] = [from, to].map(|date| units(&format!("days since {date}"), calendar));
            let apart = to.unwrap().epoch_ns - from.unwrap().epoch_ns;
            assert_eq!(apart, days * NS_PER_DAY, "{calendar}");
        }
    }

    #[test]
    fn dates_that_a_calendar_lacks_and_units_without_a_length_are_refused() {
        for (text, calendar) in [
            ("days since 2001-02-29", "standard"),
            ("days since 2000-02-29", "noleap"),
            ("days since 2000-01-31", "360_day"),
            ("days since 1582-10-10", "standard"),
            ("days since 0000-01-01", "standard"),
            ("months since 2000-01-01", "standard"),
            ("days since 2000-01-01", "none"),
            ("days since 2000-13-01", "standard"),
            ("days since yesterday", "standard"),
            ("days since 2000-01-01 25:00", "standard"),
            ("days", "standard"),
            ("days since ", "standard"),
        ] {
            assert_eq!(units(text, calendar), None, "{text} {calendar}");
        }
    }

    #[test]
    fn one_epoch_has_many_forms() {
        let expected = units("hours since 2001-01-01 05:30:00", "standard").unwrap();
        for text in [
            "hours since 2001-1-1 5:30",
            "hrs since 2001-01-01T05:30:00Z",
            "HOURS SINCE 2001-01-01 05:30:00.000 UTC",
            "h since 2001-01-01 05:30 Z",
            "hours since 2001-01-01T05:30 UTC",
        ] {
            assert_eq!(units(text, "gregorian"), Some(expected), "{text}");
        }
        let part = units("s since 2001-01-01 05:30:00.25", "standard").unwrap();
        assert_eq!(part.epoch_ns - expected.epoch_ns, NS_PER_SECOND / 4);
    }

    #[test]
    fn epochs_that_programs_read_differently_are_refused() {
        for epoch in [
            "2001-01-01 06:30:00 +1:00",
            "2001-01-01 06:30:00+0100",
            "2001-01-01 00:30:00 -5",
            "2001-01-01 00:00 -5:30",
            "2001-01-01 00:00 +1",
            "2001-01-01 05:30:00 +00:00",
            "2001-01-01 05:30 GMT",
            "2001-01-01 05:30 EST",
            "2001-01-01 1",
            "2001-01-01 12",
            "2001-01-01T12",
            "2001-01-01 12 UTC",
            "2001-01-01 12Z",
            "2001-01-01 12:",
            "2001-01-01  12:00",
            "2001-01-01 05:30.5",
            "2001-01-01 05:30:00.0000001",
            "2001-01-01 0530",
            "2001-01-01T05:30T",
            "+2001-01-01",
            "2001-01",
            "2001",
        ] {
            for calendar in ["standard", "noleap", "360_day"] {
                assert_eq!(units(&format!("hours since {epoch}"), calendar), None, "{epoch}");
            }
        }
    }

    fn of_i32(values: &[i32]) -> VariableElements {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        VariableElements { data_type: DataType::Int32, bytes }
    }

    fn of_f64(values: &[f64]) -> VariableElements {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        VariableElements { data_type: DataType::Float64, bytes }
    }

    #[test]
    fn times_are_converted_where_that_is_exact() {
        let hours = units("hours since 2001-02-01", "standard").unwrap();
        let days = units("days since 2001-01-01", "standard").unwrap();
        let minutes = units("minutes since 2001-01-01", "standard").unwrap();
        let found = converted(&of_i32(&[0, 24, -1]), &hours, &minutes, &[]).unwrap();
        assert_eq!(found, of_i32(&[44_640, 46_080, 44_580]));
        assert_eq!(converted(&of_i32(&[0, 24, 25]), &hours, &days, &[]), Err(Some(2)));
        let found = converted(&of_f64(&[0.0, 12.0, -1.5]), &hours, &days, &[]).unwrap();
        assert_eq!(found, of_f64(&[31.0, 31.5, 30.9375]));
        // The type has no room.
        let nanoseconds = units("nanoseconds since 2001-01-01", "standard").unwrap();
        assert_eq!(converted(&of_i32(&[0]), &hours, &nanoseconds, &[]), Err(Some(0)));
        // Missing times stay, and no time becomes a missing one.
        let missing = vec![(-999_i32).to_le_bytes().to_vec()];
        let kept = converted(&of_i32(&[-999]), &hours, &minutes, &missing).unwrap();
        assert_eq!(kept, of_i32(&[-999]));
        let shifted = units("hours since 2001-02-02", "standard").unwrap();
        let lost = converted(&of_i32(&[-1023]), &hours, &shifted, &missing);
        assert_eq!(lost, Ok(of_i32(&[-1047])));
        assert_eq!(converted(&of_i32(&[-975]), &hours, &shifted, &missing), Err(Some(0)));
        let kept = converted(&of_f64(&[f64::NAN]), &hours, &days, &[]).unwrap();
        assert!(kept.is_nan(0));
        assert_eq!(converted(&of_f64(&[f64::INFINITY]), &hours, &days, &[]), Err(Some(0)));
        // Far from the epoch a double has no room for nanoseconds.
        let old = units("days since 1801-01-01", "standard").unwrap();
        assert_eq!(converted(&of_f64(&[1.0 / 7.0]), &hours, &old, &[]), Err(Some(0)));
        let other = units("days since 2001-01-01", "noleap").unwrap();
        assert_eq!(converted(&of_i32(&[0]), &hours, &other, &[]), Err(None));
    }
}
