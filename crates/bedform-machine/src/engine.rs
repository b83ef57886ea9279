//! The event loop of a simulation, in the order of time.
//!
//! Every server works through its requests in order, so the end of a request is known when it is
//! made. Only later entries into a queue are events: the arrival of pieces at targets, the start of
//! their transfer over a link, and ends. Events at the same time happen in the order in which they
//! were scheduled.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::description::Machine;
use crate::error::MachineError;
use crate::report::{Bound, Simulation};
use crate::servers::{BandwidthServer, PieceOrder, ServerPool, TargetQueue};
use crate::workload::{ClientOperation, FileLayout, Workload};

impl Machine {
    /// Simulates `workload` on this machine by the equations of `docs/simulation.md`. Equal
    /// machines and workloads give equal results.
    ///
    /// ```
    /// use bedform_machine::{Machine, Workload};
    ///
    /// let machine = Machine::from_json(r#"{
    ///     "name": "one disk",
    ///     "targets": {
    ///         "count": 1, "seek_seconds": 0.5,
    ///         "read_bytes_per_second": 100, "write_bytes_per_second": 100
    ///     },
    ///     "clients": {"request_seconds": 0.25, "link_bytes_per_second": 1000}
    /// }"#)?;
    /// // Two places of a file: for each 0.25 s to ask, 0.5 s to seek, 1 s to read.
    /// let workload = Workload::from_json(r#"{
    ///     "files": [{}],
    ///     "clients": [{"operations": [{"read": [0, 0, 100]}, {"read": [0, 700, 100]}]}]
    /// }"#)?;
    /// let simulation = machine.simulate(&workload)?;
    /// assert_eq!(simulation.seconds, 3.5);
    /// assert_eq!(simulation.bound().unwrap().what, "target");
    /// # Ok::<(), bedform_machine::MachineError>(())
    /// ```
    ///
    /// # Errors
    /// `TooMany` for workloads beyond the limits, before memory is allocated; `ClientOperation` for the
    /// first operation that does not fit the files or the machine; `Barriers`; as
    /// [`Machine::check`].
    pub fn simulate(&self, workload: &Workload) -> Result<Simulation, MachineError> {
        self.check()?;
        workload.check(self)?;
        let mut engine = Engine::new(self, workload)?;
        engine.run();
        Ok(engine.report())
    }
}

/// A scheduled event.
#[derive(Debug)]
struct SimulationEvent {
    time: f64,
    /// Sequence number, which orders events at the same time.
    number: u64,
    what: EventAction,
}

#[derive(Debug)]
enum EventAction {
    /// A client continues.
    Step(usize),
    /// A piece arrives at its target.
    Arrive(PieceInFlight, PieceOrder),
    /// A piece starts to move; the time is the end of the move.
    Move(PieceInFlight, f64),
    /// A piece of a request ends.
    End(PieceInFlight),
    /// A request arrives at the metadata servers.
    Metadata(usize, f64),
}

/// A piece in flight.
#[derive(Debug, Clone, Copy)]
struct PieceInFlight {
    client: usize,
    request: usize,
    bytes: u64,
    is_write: bool,
}

impl PartialEq for SimulationEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SimulationEvent {}

impl PartialOrd for SimulationEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SimulationEvent {
    /// Reversed, so that a heap returns the earliest event first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

/// The state of a client.
#[derive(Debug)]
struct ClientState {
    next: usize,
    in_flight: u32,
    in_flight_max: u32,
    /// Number of requests sent.
    sent: u32,
    node: usize,
    /// Time when it can send again.
    free: f64,
    busy_seconds: f64,
    line: Option<BandwidthServer>,
    ended: f64,
}

/// The state of a node: its link in both directions, and its device.
#[derive(Debug)]
struct NodeState {
    inward: BandwidthServer,
    outward: BandwidthServer,
    /// Lines of its file system client, if that is slower than the link.
    read: Option<BandwidthServer>,
    written: Option<BandwidthServer>,
    device_busy: f64,
    device_free: f64,
}

/// The last write to an object.
#[derive(Debug, Clone, Copy, Default)]
struct LastWrite {
    /// Index of the writing node plus one; 0 if the object was never written.
    node: u32,
    /// Offset of its end in the object.
    end: u64,
    /// Bytes of the object since the target's last seek for it.
    gathered: u64,
}

struct Engine<'a> {
    machine: &'a Machine,
    workload: &'a Workload,
    layouts: Vec<FileLayout>,
    /// For each file, the index of its first object in `written`.
    objects: Vec<usize>,
    /// For each object, its last write.
    written: Vec<LastWrite>,
    events: BinaryHeap<SimulationEvent>,
    foreseen: u64,
    clients: Vec<ClientState>,
    nodes: Vec<NodeState>,
    targets: Vec<TargetQueue>,
    metadata: ServerPool,
    fabric: Option<BandwidthServer>,
    /// For each request in flight, the number of its unfinished pieces; and the free indexes of
    /// that list.
    pieces_left: Vec<u32>,
    unused: Vec<usize>,
    waiting: usize,
    report: Simulation,
}

impl<'a> Engine<'a> {
    fn new(machine: &'a Machine, workload: &'a Workload) -> Result<Self, MachineError> {
        let layouts = workload.layouts(machine)?;
        let mut objects = Vec::with_capacity(layouts.len());
        let mut count = 0;
        for layout in &layouts {
            objects.push(count);
            count += layout.count as usize;
        }
        let per_node = machine.clients.per_node as usize;
        let clients: Vec<ClientState> = workload
            .clients
            .iter()
            .enumerate()
            .map(|(number, client)| ClientState {
                next: 0,
                in_flight: 0,
                sent: 0,
                in_flight_max: client
                    .requests_in_flight
                    .unwrap_or(machine.clients.requests_in_flight)
                    .max(1),
                node: client.node.map_or(number / per_node, |node| node as usize),
                free: 0.0,
                busy_seconds: 0.0,
                line: machine.clients.bytes_per_second.map(BandwidthServer::new),
                ended: 0.0,
            })
            .collect();
        let nodes = clients.iter().map(|client| client.node + 1).max().unwrap_or(0);
        let link = || BandwidthServer::new(machine.clients.link_bytes_per_second);
        let storage = || machine.clients.storage_bytes_per_second.map(BandwidthServer::new);
        let node = || NodeState {
            inward: link(),
            outward: link(),
            read: storage(),
            written: storage(),
            device_busy: 0.0,
            device_free: 0.0,
        };
        Ok(Self {
            machine,
            workload,
            layouts,
            objects,
            written: vec![LastWrite::default(); count],
            events: BinaryHeap::new(),
            foreseen: 0,
            clients,
            nodes: (0..nodes).map(|_| node()).collect(),
            targets: vec![TargetQueue::default(); machine.targets.count as usize],
            metadata: ServerPool::new(machine.metadata.servers as usize),
            fabric: machine.fabric.bytes_per_second.map(BandwidthServer::new),
            pieces_left: Vec::new(),
            unused: Vec::new(),
            waiting: 0,
            report: Simulation {
                seconds: 0.0,
                read_bytes: 0,
                written_bytes: 0,
                requests: 0,
                targets: Vec::new(),
                bounds: Vec::new(),
                barriers: Vec::new(),
                clients: Vec::new(),
                metadata_operations: 0,
            },
        })
    }

    fn run(&mut self) {
        for client in 0..self.clients.len() {
            self.foresee(0.0, EventAction::Step(client));
        }
        while let Some(SimulationEvent { time, what, .. }) = self.events.pop() {
            match what {
                EventAction::Step(client) => self.step(client, time),
                EventAction::Arrive(flight, mut order) => {
                    if flight.is_write {
                        self.note_write(&flight, &mut order);
                    }
                    let target = &mut self.targets[order.piece.target as usize];
                    let (moving, moved) = target.take(&self.machine.targets, time, &order);
                    self.foresee(moving, EventAction::Move(flight, moved));
                }
                EventAction::Move(flight, moved) => self.carry(flight, time, moved),
                EventAction::End(flight) => self.end(flight, time),
                EventAction::Metadata(client, seconds) => {
                    let end = self.metadata.serve(time, seconds);
                    self.foresee(end, EventAction::Step(client));
                }
            }
        }
    }

    fn foresee(&mut self, time: f64, what: EventAction) {
        self.events.push(SimulationEvent { time, number: self.foreseen, what });
        self.foreseen += 1;
    }

    /// Runs a client as far as possible at `time` (equation 5).
    fn step(&mut self, client: usize, time: f64) {
        let workload = self.workload;
        loop {
            let state = &mut self.clients[client];
            let Some(&operation) = workload.clients[client].operations.get(state.next) else {
                state.ended = state.ended.max(time);
                return;
            };
            match operation {
                ClientOperation::Read(file, offset, length)
                | ClientOperation::Write(file, offset, length) => {
                    if state.in_flight == state.in_flight_max {
                        return;
                    }
                    state.next += 1;
                    let is_write = matches!(operation, ClientOperation::Write(..));
                    self.send(client, time, is_write, file, (offset, length));
                }
                _ if state.in_flight > 0 => return,
                _ => {
                    state.next += 1;
                    // The client continues by a later event, when the operation ends.
                    return self.wait(client, time, operation);
                }
            }
        }
    }

    /// Sends a request (equation 1).
    fn send(
        &mut self,
        client: usize,
        time: f64,
        is_write: bool,
        file: u32,
        (offset, length): (u64, u64),
    ) {
        let sent = self.ask(client, time);
        let state = &mut self.clients[client];
        state.in_flight += 1;
        state.sent = state.sent.saturating_add(1);
        self.report.requests += 1;
        *match is_write {
            true => &mut self.report.written_bytes,
            false => &mut self.report.read_bytes,
        } += length;
        let request = self.unused.pop().unwrap_or_else(|| {
            self.pieces_left.push(0);
            self.pieces_left.len() - 1
        });
        let layout = self.layouts[file as usize];
        let mut count = 0;
        for piece in layout.pieces(self.machine.targets.count, offset, length) {
            count += 1;
            let flight = PieceInFlight { client, request, bytes: piece.length, is_write };
            let order =
                PieceOrder { piece, file, is_write, is_handed_over: false, is_gathered: false };
            self.foresee(sent, EventAction::Arrive(flight, order));
        }
        self.pieces_left[request] = count;
    }

    /// Keeps the client busy with sending, from `time` on; returns the time when it has sent.
    fn ask(&mut self, client: usize, time: f64) -> f64 {
        let seconds = self.machine.clients.request_seconds;
        let state = &mut self.clients[client];
        state.free = state.free.max(time) + seconds;
        state.busy_seconds += seconds;
        state.free
    }

    /// Records a write to an object, and marks the order if another node wrote before, or if caches
    /// have collected the piece with the ones before (equation 2).
    fn note_write(&mut self, flight: &PieceInFlight, order: &mut PieceOrder) {
        let object = self.objects[order.file as usize] + order.piece.object as usize;
        let node = u32::try_from(self.clients[flight.client].node).unwrap_or(u32::MAX - 1) + 1;
        let length = order.piece.length;
        let before = self.written[object];
        let together = before.gathered.saturating_add(length);
        order.is_handed_over = before.node != 0 && before.node != node;
        order.is_gathered = before.node != 0
            && before.end == order.piece.offset
            && together <= self.machine.targets.gather_bytes;
        self.written[object] = LastWrite {
            node,
            end: order.piece.offset + length,
            gathered: if order.is_gathered { together } else { length },
        };
    }

    /// Moves a piece over the links while its target moves it (equations 3 and 4).
    fn carry(&mut self, flight: PieceInFlight, moving: f64, moved: f64) {
        let state = &mut self.clients[flight.client];
        let node = &mut self.nodes[state.node];
        let (link, storage) = match flight.is_write {
            true => (&mut node.outward, &mut node.written),
            false => (&mut node.inward, &mut node.read),
        };
        let mut over = link.carry(moving, flight.bytes).max(moved);
        for line in [storage, &mut state.line].into_iter().flatten() {
            over = over.max(line.carry(moving, flight.bytes));
        }
        self.foresee(over + self.machine.targets.latency_seconds, EventAction::End(flight));
    }

    fn end(&mut self, flight: PieceInFlight, time: f64) {
        let left = &mut self.pieces_left[flight.request];
        *left -= 1;
        if *left == 0 {
            self.unused.push(flight.request);
            self.clients[flight.client].in_flight -= 1;
            self.step(flight.client, time);
        }
    }

    /// Performs an operation for which the client waits (equations 6 to 10).
    fn wait(&mut self, client: usize, time: f64, operation: ClientOperation) {
        let costs = &self.machine.metadata;
        let end = match operation {
            // Clients do not wait for reads and writes here.
            ClientOperation::Read(..) | ClientOperation::Write(..) => time,
            ClientOperation::Create(_) => return self.metadata(client, time, costs.create_seconds),
            ClientOperation::Open(_) => return self.metadata(client, time, costs.open_seconds),
            ClientOperation::Sync(_) => return self.metadata(client, time, costs.sync_seconds),
            ClientOperation::Send(bytes, messages) => {
                self.message(client, time, bytes, messages, true)
            }
            ClientOperation::Receive(bytes, messages) => {
                self.message(client, time, bytes, messages, false)
            }
            ClientOperation::LocalRead(bytes) => self.local(client, time, bytes, false),
            ClientOperation::LocalWrite(bytes) => self.local(client, time, bytes, true),
            ClientOperation::Compute(seconds) => {
                self.clients[client].busy_seconds += seconds;
                time + seconds
            }
            ClientOperation::Barrier => return self.barrier(time),
        };
        self.foresee(end, EventAction::Step(client));
    }

    fn metadata(&mut self, client: usize, time: f64, seconds: f64) {
        self.report.metadata_operations += 1;
        let sent = self.ask(client, time);
        self.foresee(sent, EventAction::Metadata(client, seconds));
    }

    fn message(&mut self, client: usize, time: f64, bytes: u64, count: u64, out: bool) -> f64 {
        let busy = self.machine.fabric.message_seconds * count as f64;
        let state = &mut self.clients[client];
        state.busy_seconds += busy;
        let node = &mut self.nodes[state.node];
        let link = if out { &mut node.outward } else { &mut node.inward };
        let mut end = link.carry(time, bytes).max(time + busy);
        if let Some(line) = &mut state.line {
            end = end.max(line.carry(time, bytes));
        }
        // A message has a sender and a receiver, but passes the fabric once.
        match self.fabric.as_mut().filter(|_| out) {
            Some(fabric) => end.max(fabric.carry(time, bytes)),
            None => end,
        }
    }

    fn local(&mut self, client: usize, time: f64, bytes: u64, is_write: bool) -> f64 {
        let Some(costs) = &self.machine.local else { return time };
        let rate = match is_write {
            true => costs.write_bytes_per_second,
            false => costs.read_bytes_per_second,
        };
        let taken = costs.request_seconds + bytes as f64 / rate;
        let node = &mut self.nodes[self.clients[client].node];
        node.device_busy += taken;
        node.device_free = node.device_free.max(time) + taken;
        node.device_free
    }

    fn barrier(&mut self, time: f64) {
        self.waiting += 1;
        if self.waiting < self.clients.len() {
            return;
        }
        self.waiting = 0;
        let rounds = self.clients.len().next_power_of_two().trailing_zeros();
        let end = time + self.machine.fabric.message_seconds * f64::from(rounds);
        self.report.barriers.push(end);
        for client in 0..self.clients.len() {
            self.foresee(end, EventAction::Step(client));
        }
    }

    fn report(mut self) -> Simulation {
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let nodes = &self.nodes;
        let servers = f64::from(self.machine.metadata.servers);
        let bound = |what, seconds| Bound { what, seconds };
        let links = nodes.iter().flat_map(|node| {
            let storage = [&node.read, &node.written].into_iter().flatten();
            [&node.inward, &node.outward].into_iter().chain(storage)
        });
        let lines = self.clients.iter().map(|client| {
            client.line.as_ref().map_or(0.0, |line| line.busy_seconds).max(client.busy_seconds)
        });
        let latency = self.machine.targets.latency_seconds;
        let waits = self
            .clients
            .iter()
            .map(|client| latency * f64::from(client.sent.div_ceil(client.in_flight_max.max(1))));
        let mut bounds = vec![
            bound("target", most(&mut self.targets.iter().map(|one| one.load.busy_seconds()))),
            bound("link", most(&mut links.map(|link| link.busy_seconds))),
            bound("client", most(&mut lines.into_iter())),
            bound("latency", most(&mut waits.into_iter())),
            bound("metadata", self.metadata.busy_seconds / servers),
            bound("fabric", self.fabric.as_ref().map_or(0.0, |fabric| fabric.busy_seconds)),
            bound("local", most(&mut nodes.iter().map(|node| node.device_busy))),
        ];
        // The sort is stable: equal bounds stay in the order of the list.
        bounds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        self.report.bounds = bounds;
        self.report.clients = self.clients.iter().map(|client| client.ended).collect();
        self.report.seconds = most(&mut self.report.clients.iter().copied());
        self.report.targets = self.targets.iter().map(|target| target.load).collect();
        self.report
    }
}
