//! Servers that process one request after the other: targets, links, devices.

use std::collections::VecDeque;

use crate::description::TargetCosts;
use crate::report::TargetLoad;
use crate::stripes::RequestPiece;

/// A resource with a bandwidth that serves one transfer after the other.
#[derive(Debug, Clone)]
pub(super) struct BandwidthServer {
    seconds_per_byte: f64,
    free: f64,
    pub(super) busy_seconds: f64,
}

impl BandwidthServer {
    pub(super) fn new(bytes_per_second: f64) -> Self {
        Self { seconds_per_byte: 1.0 / bytes_per_second, free: 0.0, busy_seconds: 0.0 }
    }

    /// Transfers `bytes` that are available from `time` on; returns the time when the last of them
    /// has passed.
    pub(super) fn carry(&mut self, time: f64, bytes: u64) -> f64 {
        let taken = bytes as f64 * self.seconds_per_byte;
        self.free = time.max(self.free) + taken;
        self.busy_seconds += taken;
        self.free
    }
}

/// Several equal servers with one queue; the server that is free first serves.
#[derive(Debug, Clone)]
pub(super) struct ServerPool {
    free: Vec<f64>,
    pub(super) busy_seconds: f64,
}

impl ServerPool {
    pub(super) fn new(servers: usize) -> Self {
        Self { free: vec![0.0; servers], busy_seconds: 0.0 }
    }

    /// Serves an arrival at `time` for `seconds`; returns the time when it is done.
    pub(super) fn serve(&mut self, time: f64, seconds: f64) -> f64 {
        self.busy_seconds += seconds;
        let first = self.free.iter_mut().min_by(|a, b| a.total_cmp(b));
        first.map_or(time, |free| {
            *free = time.max(*free) + seconds;
            *free
        })
    }
}

/// A piece to move at a target.
#[derive(Debug, Clone, Copy)]
pub(super) struct PieceOrder {
    pub(super) piece: RequestPiece,
    pub(super) file: u32,
    pub(super) is_write: bool,
    /// True if another node wrote to the object last.
    pub(super) is_handed_over: bool,
    /// True if it is written together with the previous piece of its object.
    pub(super) is_gathered: bool,
}

/// A storage target with its queue.
#[derive(Debug, Clone, Default)]
pub(super) struct TargetQueue {
    free: f64,
    /// File, object and offset at which the last piece ended.
    head: Option<(u32, u32, u64)>,
    /// Time when each piece in the queue has been moved, oldest first.
    queue: VecDeque<f64>,
    pub(super) load: TargetLoad,
}

impl TargetQueue {
    /// Accepts a piece that arrives at `time` (equation 2); returns the times when it starts to
    /// move and has moved.
    pub(super) fn take(
        &mut self,
        costs: &TargetCosts,
        time: f64,
        order: &PieceOrder,
    ) -> (f64, f64) {
        while self.queue.front().is_some_and(|&moved| moved <= time) {
            self.queue.pop_front();
        }
        let RequestPiece { object, offset, length, .. } = order.piece;
        let place = (order.file, object, offset);
        let is_next = order.is_gathered || self.head == Some(place);
        let seek = if is_next { 0.0 } else { costs.seek_seconds };
        let handover = if order.is_handed_over { costs.handover_seconds } else { 0.0 };
        let rate = match order.is_write {
            true => costs.write_bytes_per_second,
            false => costs.read_bytes_per_second,
        };
        let moving = time.max(self.free) + (costs.request_seconds + seek + handover);
        let taken = length as f64 / rate;
        self.free = moving + taken;
        self.head = Some((order.file, object, offset + length));
        self.queue.push_back(self.free);
        let load = &mut self.load;
        load.requests += 1;
        load.bytes += length;
        load.seeks += u64::from(!is_next);
        load.handovers += u64::from(order.is_handed_over);
        load.moving_seconds += taken;
        load.seeking_seconds += seek;
        load.request_seconds += costs.request_seconds;
        load.handover_seconds += handover;
        load.queue_max = load.queue_max.max(self.queue.len() as u64);
        (moving, self.free)
    }
}
