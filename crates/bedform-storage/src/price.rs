//! What reads cost, by a [`Profile`].
//!
//! ```text
//! storage = waits * request_seconds_one                     one after the other
//!         + requests * request_seconds_many                 as many in flight as are worth it
//!         + bytes / min(read_bytes_per_second_many, streams * read_bytes_per_second_one)
//! ```
//!
//! where the bytes take at least as long as those of the largest request, which come in one stream. The processor
//! works while the storage does, but for its first answers:
//!
//! ```text
//! cold   = waits * request_seconds_one + max(rest of storage, work) + min(rest of storage, work) / requests
//! cached = work
//! ```
//!
//! with the work of [`Processor`](crate::Processor), shared by its cores.

use serde::Serialize;

use crate::{ProcessorWork, Profile};

/// What a read asks the storage for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// Answers that are waited for before more can be asked.
    pub waits: f64,
    /// Requests in all.
    pub requests: f64,
    /// Bytes in all.
    pub bytes: f64,
    /// Requests that bring most of the bytes, at once as far as that is worth it, and as there is room for.
    pub streams: f64,
    /// Bytes of the largest request; 0 where a request may be several streams.
    pub largest: f64,
}

/// What a read asks of storage and processor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReadWork {
    /// Of the storage.
    pub demand: Demand,
    /// Of the processor.
    pub work: ProcessorWork,
    /// Threads that share the work.
    pub threads: u32,
}

/// What most of a read's time goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dominant {
    /// Waiting for answers, opening objects.
    Requests,
    /// Moving bytes.
    Bytes,
    /// Decoding chunks.
    Decoding,
    /// Filling the result.
    Copying,
}

/// How long a read takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadSeconds {
    /// With nothing in memory.
    pub cold: f64,
    /// With all objects in the page cache; as cold where there is none.
    pub cached: f64,
    /// What most of the cold read is.
    pub dominant: Dominant,
    /// What most of the cached read is.
    pub cached_dominant: Dominant,
}

impl Profile {
    /// Predicted seconds of a read, of storage and processor together.
    ///
    /// ```
    /// use bedform_storage::{Demand, Profile, ProcessorWork, ReadWork};
    ///
    /// let demand = Demand { waits: 2.0, requests: 9.0, bytes: 4e6, streams: 8.0, largest: 0.0 };
    /// let work = ProcessorWork { objects: 1.0, requests: 9.0, bytes: 4e6, chunks: 8.0, ..Default::default() };
    /// let seconds = Profile::default_local().read_seconds(&ReadWork { demand, work, threads: 2 });
    /// assert!(seconds.cached < seconds.cold);
    /// ```
    pub fn read_seconds(&self, read: &ReadWork) -> ReadSeconds {
        let ReadWork { demand, work, threads } = read;
        let machine = &self.processor;
        let parts = machine.parts_of(work);
        let gain = machine.gain_of(*threads);
        let waits = demand.waits * self.request_seconds_one;
        let request = self.request_seconds_many.max(self.request_cpu_seconds / gain);
        let requests = demand.requests * request;
        let bytes = self.byte_seconds(demand.bytes, demand.streams, demand.largest);
        let (rest, done) = (requests + bytes, parts.sum() / gain);
        let overlapped = rest.max(done) + rest.min(done) / demand.requests.max(1.0);
        let cold = machine.read_seconds + waits + overlapped;
        let dominant = most([
            (waits + requests + parts.requests / gain, Dominant::Requests),
            (bytes + parts.bytes / gain, Dominant::Bytes),
            (parts.decoding / gain, Dominant::Decoding),
            (parts.copying / gain, Dominant::Copying),
        ]);
        if self.is_remote {
            return ReadSeconds { cold, cached: cold, dominant, cached_dominant: dominant };
        }
        let cached_dominant = most([
            (parts.requests + machine.read_seconds, Dominant::Requests),
            (parts.bytes, Dominant::Bytes),
            (parts.decoding, Dominant::Decoding),
            (parts.copying, Dominant::Copying),
        ]);
        let cached = machine.shared(parts.sum(), *threads);
        ReadSeconds { cold, cached, dominant, cached_dominant }
    }

    /// Predicted seconds that the storage takes for a read that finds nothing in memory.
    ///
    /// ```
    /// use bedform_storage::{Demand, Profile};
    ///
    /// // 8 MB from an object store: as one request, or in eight parts at once.
    /// let far = Profile::default_remote();
    /// let read = |count: f64| Demand {
    ///     waits: 1.0,
    ///     requests: count,
    ///     bytes: 8e6,
    ///     streams: count,
    ///     largest: 8e6 / count,
    /// };
    /// assert!(far.seconds_of(read(8.0)) < 0.5 * far.seconds_of(read(1.0)));
    /// ```
    pub fn seconds_of(&self, demand: Demand) -> f64 {
        let Demand { waits, requests, bytes, streams, largest } = demand;
        waits * self.request_seconds_one
            + requests * self.request_seconds_many
            + self.byte_seconds(bytes, streams, largest)
    }

    /// Seconds that `bytes` take in so many requests at once, of which the largest has `largest`.
    fn byte_seconds(&self, bytes: f64, streams: f64, largest: f64) -> f64 {
        let in_one = largest / self.read_bytes_per_second_one;
        (bytes / self.bytes_per_second_of(streams)).max(in_one)
    }

    /// Bytes per second of so many requests at once.
    pub fn bytes_per_second_of(&self, streams: f64) -> f64 {
        let at_once = streams.clamp(1.0, f64::from(self.requests_in_flight).max(1.0));
        self.read_bytes_per_second_many.min(at_once * self.read_bytes_per_second_one)
    }

    /// In how many requests at once `bytes` that lie together come soonest: as many as make the time for
    /// the bytes of one as long as all of them take as requests.
    ///
    /// ```
    /// use bedform_storage::Profile;
    ///
    /// let far = Profile::default_remote();
    /// assert_eq!(far.streams_for(1e3), 1.0);
    /// assert!(far.streams_for(1e7) > 5.0);
    /// assert!(far.streams_for(1e12) <= 32.0);
    /// ```
    pub fn streams_for(&self, bytes: f64) -> f64 {
        let most = self.read_bytes_per_second_many / self.read_bytes_per_second_one;
        let most = most.ceil().min(f64::from(self.requests_in_flight)).max(1.0);
        let even = bytes / (self.read_bytes_per_second_one * self.request_seconds_many);
        even.sqrt().clamp(1.0, most)
    }

    /// The gap between two extents that is cheaper to read than to skip, by a read of so many requests.
    /// While more of them at once bring more bytes, bytes are dear and requests cheap.
    #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a float cast saturates")]
    pub fn gap_for(&self, requests: f64) -> u64 {
        let worth = self.bytes_per_second_of(requests) * self.request_seconds_many;
        self.merge_gap_bytes.min(worth as u64)
    }
}

fn most(parts: [(f64, Dominant); 4]) -> Dominant {
    let [first, rest @ ..] = parts;
    rest.into_iter().fold(first, |most, part| if part.0 > most.0 { part } else { most }).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_number_of_streams_is_no_worse_than_any_other() {
        let far = Profile::default_remote();
        for bytes in [1e3, 1e5, 3e6, 4e7, 1e9] {
            let seconds = |streams: f64| {
                let requests = streams;
                let largest = bytes / streams;
                far.seconds_of(Demand { waits: 1.0, requests, bytes, streams, largest })
            };
            let best = seconds(far.streams_for(bytes));
            for streams in 1..=32 {
                assert!(best <= 1.02 * seconds(f64::from(streams)), "{bytes} in {streams}");
            }
        }
    }

    #[test]
    fn a_price_says_what_most_of_it_is() {
        let near = Profile::default_local();
        let demand = Demand { waits: 2.0, requests: 2.0, bytes: 1e6, streams: 1.0, largest: 0.0 };
        let work = ProcessorWork {
            objects: 1.0,
            requests: 2.0,
            bytes: 1e6,
            chunks: 4.0,
            ..Default::default()
        };
        let price = |demand, work| near.read_seconds(&ReadWork { demand, work, threads: 2 });
        let large = Demand { bytes: 1e9, streams: 9.0, ..demand };
        assert_eq!(price(large, work).dominant, Dominant::Bytes);
        assert_eq!(price(Demand { requests: 1e4, ..demand }, work).dominant, Dominant::Requests);
        let slow = ProcessorWork { decoding_seconds: 1.0, ..work };
        assert_eq!(price(demand, slow).dominant, Dominant::Decoding);
        // Half as long by two cores that do 1.6 times the work of one, beside the storage.
        assert!((0.5..0.8).contains(&price(demand, slow).cached));
        let scattered = ProcessorWork { runs: 1e9, ..work };
        assert_eq!(price(demand, scattered).cached_dominant, Dominant::Copying);
    }

    #[test]
    fn a_read_takes_as_long_as_its_largest_request() {
        let far = Profile::default_remote();
        let read =
            |largest| Demand { waits: 1.0, requests: 8.0, bytes: 4e7, streams: 8.0, largest };
        assert!(far.seconds_of(read(5e6)) < 0.15);
        assert!(far.seconds_of(read(3.3e7)) > 3.3e7 / far.read_bytes_per_second_one);
    }

    #[test]
    fn few_requests_read_over_small_gaps_alone() {
        let far = Profile::default_remote();
        assert!(far.gap_for(1.0) < 80_000);
        assert!(far.gap_for(4.0) > far.gap_for(2.0));
        assert!(far.gap_for(1e6) <= far.merge_gap_bytes);
    }
}
