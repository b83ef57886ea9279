//! Servers of one request after the other: targets, links, devices.

use std::collections::VecDeque;

use crate::description::Targets;
use crate::report::TargetLoad;
use crate::stripes::Piece;

/// Something of a bandwidth that serves one transfer after the other.
#[derive(Debug, Clone)]
pub(super) struct Line {
    seconds_per_byte: f64,
    free: f64,
    pub(super) busy_seconds: f64,
}

impl Line {
    pub(super) fn new(bytes_per_second: f64) -> Self {
        Self { seconds_per_byte: 1.0 / bytes_per_second, free: 0.0, busy_seconds: 0.0 }
    }

    /// Carries `bytes` that are there from `time` on: when the last of them is over.
    pub(super) fn carry(&mut self, time: f64, bytes: u64) -> f64 {
        let taken = bytes as f64 * self.seconds_per_byte;
        self.free = time.max(self.free) + taken;
        self.busy_seconds += taken;
        self.free
    }
}

/// Several alike behind one queue; the one that is free first serves.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    free: Vec<f64>,
    pub(super) busy_seconds: f64,
}

impl Counter {
    pub(super) fn new(servers: usize) -> Self {
        Self { free: vec![0.0; servers], busy_seconds: 0.0 }
    }

    /// Serves what comes at `time` for `seconds`: when it is done.
    pub(super) fn serve(&mut self, time: f64, seconds: f64) -> f64 {
        self.busy_seconds += seconds;
        let first = self.free.iter_mut().min_by(|a, b| a.total_cmp(b));
        first.map_or(time, |free| {
            *free = time.max(*free) + seconds;
            *free
        })
    }
}

/// A piece that a target is asked to move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) piece: Piece,
    pub(super) file: u32,
    pub(super) is_write: bool,
    /// Whether another node was the last to write to the object.
    pub(super) is_handed_over: bool,
    /// Whether it is written in one go with the piece before it in its object.
    pub(super) is_gathered: bool,
}

/// A storage target and its queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Target {
    free: f64,
    /// File, object and byte where the last piece ended.
    head: Option<(u32, u32, u64)>,
    /// When each piece that has come is moved, oldest first.
    queue: VecDeque<f64>,
    pub(super) load: TargetLoad,
}

impl Target {
    /// Takes a piece that comes at `time` (equation 2): when it begins to move, and when it has.
    pub(super) fn take(&mut self, costs: &Targets, time: f64, order: &Order) -> (f64, f64) {
        while self.queue.front().is_some_and(|&moved| moved <= time) {
            self.queue.pop_front();
        }
        let Piece { object, offset, length, .. } = order.piece;
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
