//! Predicted seconds of reads, by a [`Profile`].
//!
//! ```text
//! storage = waits * request_seconds_one                     one after the other
//!         + requests * request_seconds_many                 as many in flight as are worth it
//!         + bytes / min(read_bytes_per_second_many, streams * read_bytes_per_second_one)
//! ```
//!
//! where the bytes take at least as long as those of the largest request, which one stream
//! delivers. For a place whose cold requests were measured by size the formula is instead
//!
//! ```text
//! storage = names * request_seconds_one + index_wait + max(one(size), requests * max(many(size), one(size) / streams))
//! ```
//!
//! Processor and storage work overlap, except during the first answers:
//!
//! ```text
//! cold   = waits * request_seconds_one + max(rest of storage, work) + min(rest of storage, work) / requests
//! cached = work
//! ```
//!
//! with the work of [`Processor`](crate::Processor), shared by its cores. A cold request has
//! additional processor work, to bring its bytes into memory.

use serde::Serialize;

use crate::{ColdRequest, FactorKind, ProcessorSeconds, ProcessorWork, Profile, Refined};

/// The requests and bytes of a read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StorageDemand {
    /// Number of answers that must arrive before the next request can be made.
    pub waits: f64,
    /// Number of all requests.
    pub requests: f64,
    /// Number of all bytes.
    pub bytes: f64,
    /// Number of concurrent requests that fetch most of the bytes, limited by their benefit and by
    /// memory.
    pub streams: f64,
    /// Bytes of the largest request; 0 if a request may use several streams.
    pub largest: f64,
    /// Number of requests for indexes, included in `requests`.
    pub index_requests: f64,
    /// Bytes of indexes, included in `bytes`.
    pub index_bytes: f64,
    /// Number of waits for names of objects that are not in memory: directories, attributes.
    pub names: f64,
}

/// The storage and processor work of a read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReadWork {
    /// The work of the storage.
    pub demand: StorageDemand,
    /// The work of the processor.
    pub work: ProcessorWork,
    /// Threads that share the work of a cached read.
    pub threads: u32,
    /// Threads that share the work of a cold read, at least as many: some of them wait.
    pub threads_waiting: u32,
}

/// The part of a read that takes most of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dominant {
    /// Waiting for answers and opening objects.
    Requests,
    /// Moving bytes.
    Bytes,
    /// Decoding chunks.
    Decoding,
    /// Filling the result.
    Copying,
}

/// The predicted seconds of a read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadSeconds {
    /// Seconds with nothing in memory.
    pub cold: f64,
    /// Seconds with all objects in the page cache; equal to `cold` in a place without one.
    pub cached: f64,
    /// The largest part of the cold read.
    pub dominant: Dominant,
    /// The largest part of the cached read.
    pub cached_dominant: Dominant,
}

impl FactorKind {
    /// Returns the class of a read with nothing in memory.
    pub fn cold(dominant: Dominant) -> Self {
        if dominant == Dominant::Requests { Self::Waiting } else { Self::Cold }
    }

    /// Returns the class of a read from the page cache by `threads` threads. `None` for a small
    /// read: its fixed cost is measured separately and says nothing about a codec.
    pub fn cached(dominant: Dominant, threads: u32) -> Option<Self> {
        let kind = if threads > 1 { Self::Shared } else { Self::Cached };
        (dominant != Dominant::Requests).then_some(kind)
    }
}

impl Profile {
    /// Predicts the seconds of a read, of storage and processor together.
    ///
    /// ```
    /// use bedform_storage::{StorageDemand, Profile, ProcessorWork, ReadWork};
    ///
    /// let demand = StorageDemand {
    ///     waits: 2.0,
    ///     requests: 9.0,
    ///     bytes: 4e6,
    ///     streams: 8.0,
    ///     ..Default::default()
    /// };
    /// let work = ProcessorWork { objects: 1.0, requests: 9.0, bytes: 4e6, chunks: 8.0, ..Default::default() };
    /// let seconds = Profile::default_local().read_seconds(&ReadWork { demand, work, threads: 2, threads_waiting: 16 });
    /// assert!(seconds.cached < seconds.cold);
    /// ```
    pub fn read_seconds(&self, read: &ReadWork) -> ReadSeconds {
        let machine = &self.processor;
        let parts = machine.parts_of(&read.work);
        let (cold, dominant) = match self.is_remote {
            true => self.cold_by_rates(read, &parts),
            false => {
                self.cold_by_sizes(read, &parts).unwrap_or_else(|| self.cold_by_rates(read, &parts))
            }
        };
        if self.is_remote {
            return ReadSeconds { cold, cached: cold, dominant, cached_dominant: dominant };
        }
        let opening = self.opening_seconds(read);
        let cached_dominant = most([
            (parts.requests + machine.read_seconds + opening, Dominant::Requests),
            (parts.bytes, Dominant::Bytes),
            (parts.decoding, Dominant::Decoding),
            (parts.copying, Dominant::Copying),
        ]);
        let cached = opening + machine.shared(parts.sum(), read.threads);
        ReadSeconds { cold, cached, dominant, cached_dominant }
    }

    /// As [`Profile::read_seconds`], corrected by the factors of earlier reads.
    pub fn refined_seconds(&self, read: &ReadWork, by: Refined) -> ReadSeconds {
        let seconds = self.read_seconds(read);
        let cold = seconds.cold * by.of(FactorKind::cold(seconds.dominant)).counts();
        let of_cached = FactorKind::cached(seconds.cached_dominant, read.threads);
        let factor = of_cached.map_or(1.0, |kind| by.of(kind).counts());
        let cached = match self.is_remote {
            true => cold,
            // For any factors, a read from memory is no slower than one without.
            false => cold.min(seconds.cached * factor),
        };
        ReadSeconds { cold, cached, ..seconds }
    }

    /// Returns the seconds of opening the objects, as far as opening waits for a server.
    fn opening_seconds(&self, read: &ReadWork) -> f64 {
        let at_once = f64::from(read.threads_waiting.max(1)).min(read.work.objects);
        self.open_seconds * read.work.objects / at_once.max(1.0)
    }

    /// Predicts a cold read by the measured times of requests of its sizes: its seconds and their
    /// largest part. `None` if cold requests were not measured.
    fn cold_by_sizes(&self, read: &ReadWork, parts: &ProcessorSeconds) -> Option<(f64, Dominant)> {
        let ReadWork { demand, .. } = read;
        let fetched = (demand.requests - demand.index_requests).max(0.0);
        let one = self.cold_request((demand.bytes - demand.index_bytes) / fetched.max(1.0))?;
        let index = self.cold_request(demand.index_bytes / demand.index_requests.max(1.0))?;
        let at_once = demand.streams.max(1.0);
        let gain = self.processor.gain_of(read.threads.max(read.threads_waiting));
        let each = |request: ColdRequest| request.seconds_many.max(request.seconds_one / at_once);
        let of = |count: f64, request: ColdRequest| match count > 0.0 {
            true => request.seconds_one.max(count * each(request)),
            false => 0.0,
        };
        // A place that asks a server at each opening finds the name with the same request.
        let names = match self.open_seconds > 0.0 {
            true => self.opening_seconds(read),
            false => demand.names * index.seconds_one,
        };
        // A read of indexes alone waits for none beforehand.
        let index_wait = if demand.index_requests > 0.0 { index.seconds_one } else { 0.0 };
        let indexes = (demand.index_requests - 1.0).max(0.0) * each(index);
        let storage = of(fetched, one) + indexes;
        let requests = parts.requests - self.request_work(read)
            + demand.index_requests * index.processor_seconds;
        let fetching = fetched * one.processor_seconds;
        let done = (requests + fetching + parts.decoding + parts.copying) / gain;
        let overlapped = storage.max(done) + storage.min(done) / demand.requests.max(1.0);
        let seconds = self.processor.read_seconds + names + index_wait + overlapped;
        // The time that a request of a single page would take too is waiting.
        let least = self.cold_request(0.0)?;
        let waiting = of(fetched, least).min(storage);
        let dominant = most([
            (names + index_wait + indexes + waiting, Dominant::Requests),
            (storage - indexes - waiting + fetching / gain, Dominant::Bytes),
            (parts.decoding / gain, Dominant::Decoding),
            (parts.copying / gain, Dominant::Copying),
        ]);
        Some((seconds, dominant))
    }

    /// Returns the seconds of one core for requests whose bytes are in memory.
    fn request_work(&self, read: &ReadWork) -> f64 {
        read.work.requests * self.processor.request_seconds
    }

    /// Predicts a cold read by the two rates of the place and the time of its small requests.
    fn cold_by_rates(&self, read: &ReadWork, parts: &ProcessorSeconds) -> (f64, Dominant) {
        let ReadWork { demand, threads, .. } = read;
        let machine = &self.processor;
        let gain = machine.gain_of(*threads);
        let waits = demand.waits * self.request_seconds_one;
        let request = self.request_seconds_many.max(self.request_cpu_seconds / gain);
        let requests = demand.requests * request;
        let bytes = self.byte_seconds(demand.bytes, demand.streams, demand.largest);
        let (rest, done) = (requests + bytes, parts.sum() / gain);
        let overlapped = rest.max(done) + rest.min(done) / demand.requests.max(1.0);
        let waits = waits + self.opening_seconds(read);
        let dominant = most([
            (waits + requests + parts.requests / gain, Dominant::Requests),
            (bytes + parts.bytes / gain, Dominant::Bytes),
            (parts.decoding / gain, Dominant::Decoding),
            (parts.copying / gain, Dominant::Copying),
        ]);
        (machine.read_seconds + waits + overlapped, dominant)
    }

    /// Predicts the storage seconds of a read with nothing in memory.
    ///
    /// ```
    /// use bedform_storage::{StorageDemand, Profile};
    ///
    /// // 8 MB from an object store: as one request, or in eight parts at once.
    /// let far = Profile::default_remote();
    /// let read = |count: f64| StorageDemand {
    ///     waits: 1.0,
    ///     requests: count,
    ///     bytes: 8e6,
    ///     streams: count,
    ///     largest: 8e6 / count,
    ///     ..Default::default()
    /// };
    /// assert!(far.seconds_of(read(8.0)) < 0.5 * far.seconds_of(read(1.0)));
    /// ```
    pub fn seconds_of(&self, demand: StorageDemand) -> f64 {
        let StorageDemand { waits, requests, bytes, streams, largest, .. } = demand;
        waits * self.request_seconds_one
            + requests * self.request_seconds_many
            + self.byte_seconds(bytes, streams, largest)
    }

    /// Returns the seconds of `bytes` in `streams` concurrent requests, the largest of `largest`
    /// bytes.
    fn byte_seconds(&self, bytes: f64, streams: f64, largest: f64) -> f64 {
        let in_one = largest / self.read_bytes_per_second_one;
        (bytes / self.bytes_per_second_of(streams)).max(in_one)
    }

    /// Returns the bytes per second of `streams` concurrent requests.
    pub fn bytes_per_second_of(&self, streams: f64) -> f64 {
        let at_once = streams.clamp(1.0, f64::from(self.requests_in_flight).max(1.0));
        self.read_bytes_per_second_many.min(at_once * self.read_bytes_per_second_one)
    }

    /// Returns the number of concurrent requests that fetches `bytes` contiguous bytes soonest. At
    /// that number the transfer time of one request equals the request time of all of them.
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

    /// Returns the largest gap between two extents that is cheaper to read than to skip, in bytes,
    /// for a read of `requests` requests. While more requests bring more bandwidth, bytes are
    /// expensive and requests cheap.
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
                far.seconds_of(StorageDemand {
                    waits: 1.0,
                    requests,
                    bytes,
                    streams,
                    largest,
                    ..StorageDemand::default()
                })
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
        let demand = StorageDemand {
            waits: 2.0,
            requests: 2.0,
            bytes: 1e6,
            streams: 1.0,
            ..StorageDemand::default()
        };
        let work = ProcessorWork {
            objects: 1.0,
            requests: 2.0,
            bytes: 1e6,
            chunks: 4.0,
            ..Default::default()
        };
        let price = |demand, work| {
            near.read_seconds(&ReadWork { demand, work, threads: 2, threads_waiting: 16 })
        };
        let large = StorageDemand { bytes: 1e9, streams: 9.0, ..demand };
        assert_eq!(price(large, work).dominant, Dominant::Bytes);
        assert_eq!(
            price(StorageDemand { requests: 1e4, ..demand }, work).dominant,
            Dominant::Requests
        );
        let slow = ProcessorWork { decoding_seconds: 1.0, ..work };
        assert_eq!(price(demand, slow).dominant, Dominant::Decoding);
        // Two cores do 1.6 times the work of one, while the storage works as well.
        assert!((0.5..0.8).contains(&price(demand, slow).cached));
        let scattered = ProcessorWork { runs: 1e9, ..work };
        assert_eq!(price(demand, scattered).cached_dominant, Dominant::Copying);
    }

    #[test]
    fn a_read_takes_as_long_as_its_largest_request() {
        let far = Profile::default_remote();
        let whole =
            StorageDemand { waits: 1.0, requests: 8.0, bytes: 4e7, ..StorageDemand::default() };
        let read = |largest| StorageDemand { streams: 8.0, largest, ..whole };
        assert!(far.seconds_of(read(5e6)) < 0.15);
        assert!(far.seconds_of(read(3.3e7)) > 3.3e7 / far.read_bytes_per_second_one);
    }

    #[test]
    fn cold_requests_that_were_measured_take_what_was_measured() {
        let at = |bytes, seconds_one, seconds_many| ColdRequest {
            bytes,
            seconds_one,
            seconds_many,
            processor_seconds: 1e-6,
        };
        let near = Profile {
            cold_requests: vec![at(4e3, 1e-3, 1e-4), at(1e6, 5e-3, 1e-3)],
            ..Profile::default_local()
        };
        let price = |requests: f64, streams, names| {
            let bytes = requests * 4e3;
            let demand = StorageDemand {
                waits: 1.0,
                requests,
                bytes,
                streams,
                names,
                ..StorageDemand::default()
            };
            let read = ReadWork { demand, threads: 2, threads_waiting: 16, ..ReadWork::default() };
            near.read_seconds(&read).cold
        };
        assert!((1.0e-3..1.1e-3).contains(&price(1.0, 1.0, 0.0)));
        // A name takes as long as a page.
        assert!((4.0e-3..4.1e-3).contains(&price(1.0, 1.0, 3.0)));
        assert!((10.0e-3..11.0e-3).contains(&price(100.0, 16.0, 0.0)));
        // With few in flight, each waits alone.
        assert!((50.0e-3..51.0e-3).contains(&price(100.0, 2.0, 0.0)));
    }

    #[test]
    fn few_requests_read_over_small_gaps_alone() {
        let far = Profile::default_remote();
        assert!(far.gap_for(1.0) < 80_000);
        assert!(far.gap_for(4.0) > far.gap_for(2.0));
        assert!(far.gap_for(1e6) <= far.merge_gap_bytes);
    }
}
