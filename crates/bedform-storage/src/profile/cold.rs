//! Times of cold requests by size, measured through the engine.
//!
//! Small requests wait for the device. Larger ones wait for the page cache, which takes bytes in
//! more slowly than a fast device delivers them; the largest bypass it. No two rates describe that,
//! so a few sizes are measured, and times between two sizes are interpolated.

use serde::{Deserialize, Serialize};

use super::{Profile, ProfileError, RATE_RANGE, SECONDS_RANGE, malformed, within};

/// The most sizes in a profile.
const SIZES_MAX: usize = 32;

/// The times of a request of one size whose bytes are not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColdRequest {
    /// Size of the request in bytes.
    pub bytes: f64,
    /// Seconds of a request with no other in flight.
    pub seconds_one: f64,
    /// Seconds per request of a read that makes many: time over count.
    pub seconds_many: f64,
    /// Processor seconds per request.
    pub processor_seconds: f64,
}

impl ColdRequest {
    /// Returns the bytes and times multiplied by `factor`.
    fn times(self, factor: f64) -> Self {
        Self {
            bytes: self.bytes * factor,
            seconds_one: self.seconds_one * factor,
            seconds_many: self.seconds_many * factor,
            processor_seconds: self.processor_seconds * factor,
        }
    }

    /// Interpolates linearly between this request and `other`, at `bytes`.
    fn towards(self, other: Self, bytes: f64) -> Self {
        let part = (bytes - self.bytes) / (other.bytes - self.bytes);
        let between = |here: f64, there: f64| here + part * (there - here);
        Self {
            bytes,
            seconds_one: between(self.seconds_one, other.seconds_one),
            seconds_many: between(self.seconds_many, other.seconds_many),
            processor_seconds: between(self.processor_seconds, other.processor_seconds),
        }
    }
}

impl Profile {
    /// Returns the times of a cold request of `bytes` bytes; `None` if not measured.
    ///
    /// ```
    /// use bedform_storage::{ColdRequest, Profile};
    ///
    /// let at = |bytes, seconds_many| ColdRequest { bytes, seconds_many, ..Default::default() };
    /// let requests = vec![at(4096.0, 0.25), at(65536.0, 1.25)];
    /// let profile = Profile { cold_requests: requests, ..Profile::default_local() };
    /// assert_eq!(profile.cold_request(34816.0).unwrap().seconds_many, 0.75);
    /// // A request is at least a page; twice the largest takes twice as long.
    /// assert_eq!(profile.cold_request(10.0).unwrap().seconds_many, 0.25);
    /// assert_eq!(profile.cold_request(131072.0).unwrap().seconds_many, 2.5);
    /// ```
    pub fn cold_request(&self, bytes: f64) -> Option<ColdRequest> {
        let [first, .., last] = &*self.cold_requests else { return None };
        if bytes <= first.bytes {
            return Some(*first);
        }
        let pairs = self.cold_requests.iter().zip(self.cold_requests.iter().skip(1));
        let found = pairs.into_iter().find(|(_, above)| bytes <= above.bytes);
        Some(found.map_or_else(
            || last.times(bytes / last.bytes),
            |(below, above)| below.towards(*above, bytes),
        ))
    }

    /// Checks that the times of cold requests are plausible for a device.
    ///
    /// # Errors
    /// As [`Profile::check`].
    pub(super) fn check_cold(&self) -> Result<(), ProfileError> {
        within("open_seconds", self.open_seconds, (0.0, SECONDS_RANGE.1))?;
        let requests = &self.cold_requests;
        let rises = requests.iter().zip(requests.iter().skip(1)).all(|(a, b)| a.bytes < b.bytes);
        if !rises || requests.len() > SIZES_MAX || requests.len() == 1 {
            let reason = format!("its cold_requests are not 2 to {SIZES_MAX} sizes that rise");
            return Err(malformed("the profile", reason));
        }
        for request in requests {
            within("size of a cold request", request.bytes, RATE_RANGE)?;
            for seconds in [request.seconds_one, request.seconds_many] {
                within("time of a cold request", seconds, SECONDS_RANGE)?;
            }
            let processor = request.processor_seconds;
            within("processor time of a cold request", processor, (0.0, SECONDS_RANGE.1))?;
        }
        Ok(())
    }
}
