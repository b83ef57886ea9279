use proptest::prelude::*;

use super::*;

const LINK: f64 = 1e12;

/// A machine with `targets` targets that read 1000 and write 500 bytes per second; all other costs
/// are zero.
fn machine(targets: u32) -> Machine {
    let text = format!(
        r#"{{"name": "test",
            "targets": {{"count": {targets}, "read_bytes_per_second": 1000,
                         "write_bytes_per_second": 500}},
            "clients": {{"link_bytes_per_second": {LINK}}}}}"#
    );
    Machine::from_json(&text).unwrap()
}

fn file(first: u64, count: u32, bytes: u64) -> FileStriping {
    FileStriping { first: Some(first), count: Some(count), bytes: Some(bytes) }
}

fn client(operations: &[ClientOperation]) -> ClientWorkload {
    ClientWorkload { operations: operations.to_vec(), ..ClientWorkload::default() }
}

fn run(machine: &Machine, files: &[FileStriping], clients: &[ClientWorkload]) -> Simulation {
    let workload = Workload { files: files.to_vec(), clients: clients.to_vec() };
    machine.simulate(&workload).unwrap()
}

fn close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 1e-9, "{found} and not {wanted}");
}

#[test]
fn one_client_and_one_target_take_the_sum_of_all_costs() {
    let mut machine = machine(1);
    machine.clients.request_seconds = 0.25;
    machine.targets.seek_seconds = 0.5;
    machine.targets.request_seconds = 0.125;
    machine.targets.latency_seconds = 2.0;
    // Three positions: K * (C + P + S + b / R + D).
    let reads: Vec<_> = (0..3).map(|place| ClientOperation::Read(0, place * 5000, 100)).collect();
    let found = run(&machine, &[file(0, 1, 1000)], &[client(&reads)]);
    close(found.seconds, 3.0 * (0.25 + 0.125 + 0.5 + 0.1 + 2.0));
    assert_eq!((found.requests, found.read_bytes, found.targets[0].seeks), (3, 300, 3));
    close(found.targets[0].busy_seconds(), 3.0 * 0.725);
}

#[test]
fn a_target_seeks_only_where_the_next_piece_is_not_the_next_byte() {
    let mut machine = machine(1);
    machine.targets.seek_seconds = 10.0;
    let reads = [
        ClientOperation::Read(0, 0, 100),
        ClientOperation::Read(0, 100, 100),
        ClientOperation::Read(1, 200, 100),
        ClientOperation::Read(0, 200, 100),
    ];
    let found = run(&machine, &[file(0, 1, 50), file(0, 1, 50)], &[client(&reads)]);
    assert_eq!(found.targets[0].seeks, 3);
    close(found.seconds, 30.4);
}

#[test]
fn what_caches_collect_of_an_object_is_one_seek() {
    let mut machine = machine(1);
    machine.targets.seek_seconds = 10.0;
    // Two files alternately, 50 bytes at a time, from two clients.
    let writes =
        |file| (0..6).map(|at| ClientOperation::Write(file, at * 50, 50)).collect::<Vec<_>>();
    let (files, clients) = ([file(0, 1, 1000), file(0, 1, 1000)], [writes(0), writes(1)]);
    let clients: Vec<_> = clients.iter().map(|operations| client(operations)).collect();
    for (gather_bytes, seeks) in [(0, 12), (49, 12), (100, 6), (149, 6), (150, 4), (1 << 20, 2)] {
        machine.targets.gather_bytes = gather_bytes;
        let found = run(&machine, &files, &clients);
        assert_eq!(found.targets[0].seeks, seeks, "{gather_bytes} bytes");
    }
    // A piece that does not continue the object's last piece was not collected with it.
    let jumps = [
        ClientOperation::Write(0, 100, 50),
        ClientOperation::Write(0, 0, 50),
        ClientOperation::Read(0, 50, 50),
    ];
    assert_eq!(run(&machine, &files, &[client(&jumps)]).targets[0].seeks, 2);
}

#[test]
fn clients_of_one_target_wait_in_its_queue() {
    let one = [ClientOperation::Read(0, 0, 100)];
    let clients: Vec<_> = (0..7).map(|_| client(&one)).collect();
    let found = run(&machine(1), &[file(0, 1, 1000)], &clients);
    close(found.seconds, 0.7);
    assert_eq!(found.targets[0].queue_max, 7);
    // In the order of their numbers, since all arrived at the same time.
    for (ended, number) in found.clients.iter().zip(1..) {
        close(*ended, 0.1 * f64::from(number));
    }
}

#[test]
fn a_striped_request_is_moved_by_all_its_targets_at_once() {
    let read = client(&[ClientOperation::Read(0, 0, 4000)]);
    close(run(&machine(8), &[file(0, 4, 100)], std::slice::from_ref(&read)).seconds, 1.0);
    let found = run(&machine(8), &[file(6, 4, 1000)], &[read]);
    let bytes: Vec<_> = found.targets.iter().map(|load| load.bytes).collect();
    assert_eq!(bytes, [1000, 1000, 0, 0, 0, 0, 1000, 1000]);
    assert_eq!(found.targets_used(), 4);
}

#[test]
fn requests_that_are_waited_for_one_after_the_other_are_bounded_by_latency() {
    let mut machine = machine(1);
    machine.targets.latency_seconds = 10.0;
    let read = client(&[ClientOperation::Read(0, 0, 10); 6]);
    let found = run(&machine, &[file(0, 1, 1000)], std::slice::from_ref(&read));
    assert_eq!(found.bound(), Some(&Bound { what: "latency", seconds: 60.0 }));
    assert!(found.seconds < 62.0, "{}", found.seconds);
    machine.clients.requests_in_flight = 4;
    let found = run(&machine, &[file(0, 1, 1000)], &[read]);
    assert_eq!(found.bound(), Some(&Bound { what: "latency", seconds: 20.0 }));
}

#[test]
fn the_link_of_a_node_bounds_its_clients_together() {
    let mut machine = machine(4);
    machine.clients.link_bytes_per_second = 100.0;
    machine.clients.per_node = 2;
    let clients: Vec<_> =
        (0..4).map(|file| client(&[ClientOperation::Read(file, 0, 1000)])).collect();
    let files: Vec<_> = (0..4).map(|target| file(target, 1, 1000)).collect();
    let found = run(&machine, &files, &clients);
    close(found.seconds, 20.0);
    assert_eq!(found.bounds[0], Bound { what: "link", seconds: 20.0 });
    // Storage may use only half of the link.
    machine.clients.storage_bytes_per_second = Some(50.0);
    close(run(&machine, &files, &clients).seconds, 40.0);
    machine.clients.storage_bytes_per_second = None;
    // A limit of each client.
    machine.clients.link_bytes_per_second = LINK;
    machine.clients.bytes_per_second = Some(200.0);
    let found = run(&machine, &files, &clients);
    close(found.seconds, 5.0);
    assert_eq!(found.bound().unwrap().what, "client");
}

#[test]
fn reads_and_writes_go_over_a_link_at_the_same_time() {
    let mut machine = machine(2);
    machine.clients.link_bytes_per_second = 100.0;
    machine.clients.per_node = 2;
    let clients = [
        client(&[ClientOperation::Read(0, 0, 1000)]),
        client(&[ClientOperation::Write(1, 0, 1000)]),
    ];
    close(run(&machine, &[file(0, 1, 1), file(1, 1, 1)], &clients).seconds, 10.0);
}

#[test]
fn requests_in_flight_hide_the_delay_and_not_the_sending() {
    let mut machine = machine(1);
    machine.targets.latency_seconds = 1.0;
    machine.clients.request_seconds = 0.2;
    let mut reads =
        client(&(0..4).map(|at| ClientOperation::Read(0, at * 100, 100)).collect::<Vec<_>>());
    close(run(&machine, &[file(0, 1, 100)], &[reads.clone()]).seconds, 4.0 * 1.3);
    reads.requests_in_flight = Some(4);
    close(run(&machine, &[file(0, 1, 100)], &[reads.clone()]).seconds, 4.0 * 0.2 + 0.1 + 1.0);
    // The third request is sent when the first has ended.
    reads.requests_in_flight = Some(2);
    close(run(&machine, &[file(0, 1, 100)], &[reads]).seconds, 1.3 + 0.2 + 1.3);
}

#[test]
fn metadata_servers_serve_as_many_at_once_as_there_are() {
    let mut machine = machine(1);
    machine.metadata =
        MetadataCosts { servers: 2, create_seconds: 0.5, open_seconds: 0.25, sync_seconds: 1.0 };
    let files: Vec<_> = (0..10).map(|_| file(0, 1, 1)).collect();
    let creates: Vec<_> = (0..10).map(|file| client(&[ClientOperation::Create(file)])).collect();
    let found = run(&machine, &files, &creates);
    close(found.seconds, 2.5);
    assert_eq!(found.bound(), Some(&Bound { what: "metadata", seconds: 2.5 }));
    let one = [ClientOperation::Create(0), ClientOperation::Open(0), ClientOperation::Sync(0)];
    close(run(&machine, &files, &[client(&one)]).seconds, 1.75);
}

#[test]
fn a_lock_changes_hands_when_another_node_writes_to_an_object() {
    let mut machine = machine(2);
    machine.targets.handover_seconds = 5.0;
    machine.clients.per_node = 2;
    let write = |at| client(&[ClientOperation::Write(0, at, 100)]);
    // Clients 0 and 1 share a node; only one node writes the second object.
    let clients = [write(0), write(200), write(400), write(100)];
    let found = run(&machine, &[file(0, 2, 100)], &clients);
    let handovers: Vec<_> = found.targets.iter().map(|load| load.handovers).collect();
    assert_eq!(handovers, [1, 0]);
    close(found.seconds, 0.2 * 3.0 + 5.0);
}

#[test]
fn messages_take_the_client_the_link_and_the_fabric() {
    let mut machine = machine(1);
    machine.fabric.message_seconds = 0.01;
    let messages = |bytes, count| {
        [
            client(&[ClientOperation::Send(bytes, count)]),
            client(&[ClientOperation::Receive(bytes, count)]),
        ]
    };
    close(run(&machine, &[], &messages(1, 50)).seconds, 0.5);
    machine.fabric.bytes_per_second = Some(100.0);
    close(run(&machine, &[], &messages(1000, 50)).seconds, 10.0);
    machine.clients.link_bytes_per_second = 10.0;
    close(run(&machine, &[], &messages(1000, 50)).seconds, 100.0);
}

#[test]
fn a_local_device_serves_its_node_alone() {
    let mut machine = machine(1);
    machine.clients.per_node = 2;
    let write = client(&[ClientOperation::LocalWrite(100)]);
    let workload = Workload { files: vec![], clients: vec![write.clone(); 4] };
    assert!(matches!(machine.simulate(&workload), Err(MachineError::Operation { .. })));
    machine.local = Some(DeviceCosts {
        read_bytes_per_second: 1000.0,
        write_bytes_per_second: 100.0,
        request_seconds: 0.5,
    });
    close(machine.simulate(&workload).unwrap().seconds, 3.0);
}

#[test]
fn a_barrier_waits_for_the_last_and_costs_messages() {
    let mut machine = machine(1);
    machine.fabric.message_seconds = 0.5;
    let clients: Vec<_> = (0..5_u32)
        .map(|number| {
            client(&[
                ClientOperation::Compute(f64::from(number)),
                ClientOperation::Barrier,
                ClientOperation::Compute(1.0),
            ])
        })
        .collect();
    let found = run(&machine, &[], &clients);
    assert_eq!(found.barriers, [4.0 + 3.0 * 0.5]);
    close(found.seconds, 6.5);
    let uneven =
        Workload { files: vec![], clients: vec![clients[0].clone(), ClientWorkload::default()] };
    let error = machine.simulate(&uneven).unwrap_err();
    assert!(matches!(error, MachineError::Barriers { client: 1, found: 0, wanted: 1 }));
}

#[test]
fn nothing_takes_no_time() {
    let found = machine(3).simulate(&Workload::default()).unwrap();
    assert_eq!((found.seconds, found.bound()), (0.0, None));
}

#[test]
fn hostile_descriptions_are_errors() {
    for (from, to, wanted) in [
        (r#""count": 2"#, r#""count": 0"#, "targets.count is 0"),
        (r#""count": 2"#, r#""count": 4000000000"#, "targets.count is 4000000000"),
        (r#""count": 2"#, r#""count": -1"#, "machine description cannot be read"),
        (r#""read_bytes_per_second": 1000"#, r#""read_bytes_per_second": 0"#, "between 1e0 and"),
        (r#""read_bytes_per_second": 1000"#, r#""read_bytes_per_second": 1e999"#, "read"),
        (r#""name""#, r#""speed": 1, "name""#, "unknown field `speed`"),
        (r#""link"#, r#""requests_in_flight": 5000, "link"#, "requests_in_flight is 5000"),
    ] {
        let text = r#"{"name": "x", "targets": {"count": 2, "read_bytes_per_second": 1000,
            "write_bytes_per_second": 500}, "clients": {"link_bytes_per_second": 10}}"#;
        assert!(Machine::from_json(text).is_ok());
        let error = Machine::from_json(&text.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(wanted) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn hostile_workloads_are_errors() {
    let refused = |files: &[FileStriping], operation: ClientOperation| {
        let clients = vec![client(&[operation])];
        machine(2).simulate(&Workload { files: files.to_vec(), clients }).unwrap_err().to_string()
    };
    let plain = [file(u64::MAX, u32::MAX, 1)];
    assert!(refused(&plain, ClientOperation::Read(1, 0, 1)).contains("there is no file 1"));
    assert!(refused(&plain, ClientOperation::Read(0, 0, 0)).contains("no bytes"));
    assert!(refused(&plain, ClientOperation::Read(0, u64::MAX, 2)).contains("ends behind byte"));
    assert!(refused(&plain, ClientOperation::Compute(f64::NAN)).contains("NaN seconds"));
    assert!(refused(&[file(0, 0, 1)], ClientOperation::Barrier).contains("0 stripes"));
    assert!(refused(&[file(0, 1, 0)], ClientOperation::Barrier).contains("stripes of 0 bytes"));
    let clients = vec![ClientWorkload { node: Some(u32::MAX), ..ClientWorkload::default() }];
    let many = Workload { files: vec![], clients };
    assert!(matches!(machine(1).simulate(&many), Err(MachineError::TooMany { .. })));
    // Without `first`, consecutive files start at consecutive targets.
    let clients = (0..3).map(|file| client(&[ClientOperation::Read(file, 0, 1)])).collect();
    let found = machine(2)
        .simulate(&Workload { files: vec![FileStriping::default(); 3], clients })
        .unwrap();
    assert_eq!(found.targets.iter().map(|load| load.requests).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn patterns_touch_each_byte_once_and_in_their_order() {
    let pattern = |shape| BenchmarkPattern {
        shape,
        clients: 3,
        client_bytes: 250,
        request_bytes: 100,
        is_write: false,
        requests_in_flight: None,
        stripes: FileStriping::default(),
    };
    let reads = |shape| -> Vec<Vec<ClientOperation>> {
        let workload = pattern(shape).workload().unwrap();
        let reads = |client: ClientWorkload| {
            client.operations.into_iter().filter(|one| matches!(one, ClientOperation::Read(..)))
        };
        workload.clients.into_iter().map(|client| reads(client).collect()).collect()
    };
    let read = |file, offset, length| ClientOperation::Read(file, offset, length);
    let second = reads(PatternShape::Contiguous).swap_remove(1);
    assert_eq!(second, [read(0, 250, 100), read(0, 350, 100), read(0, 450, 50)]);
    let second = reads(PatternShape::Strided).swap_remove(1);
    assert_eq!(second, [read(0, 100, 100), read(0, 400, 100), read(0, 650, 50)]);
    let second = reads(PatternShape::FilePerClient).swap_remove(1);
    assert_eq!(second, [read(1, 0, 100), read(1, 100, 100), read(1, 200, 50)]);
    for shape in [PatternShape::Contiguous, PatternShape::Strided, PatternShape::FilePerClient] {
        let written = BenchmarkPattern { is_write: true, ..pattern(shape) }.workload().unwrap();
        let found = machine(2).simulate(&written).unwrap();
        assert_eq!((found.written_bytes, found.requests), (750, 9));
        let hostile =
            BenchmarkPattern { clients: u32::MAX, client_bytes: u64::MAX, ..pattern(shape) };
        assert!(matches!(hostile.workload(), Err(MachineError::TooMany { .. })));
        assert!(BenchmarkPattern { request_bytes: 0, ..pattern(shape) }.workload().is_err());
    }
}

fn any_operation(files: u32) -> impl Strategy<Value = ClientOperation> {
    let range = || (0..files, 0_u64..20_000, 1_u64..5000);
    prop_oneof![
        4 => range().prop_map(|(file, offset, length)| ClientOperation::Read(file, offset, length)),
        4 => range().prop_map(|(file, offset, length)| ClientOperation::Write(file, offset, length)),
        1 => (0..files).prop_map(ClientOperation::Create),
        1 => (0..files).prop_map(ClientOperation::Sync),
        1 => (0_u64..1000, 0_u64..9).prop_map(|(bytes, count)| ClientOperation::Send(bytes, count)),
        1 => (0.0..0.5).prop_map(ClientOperation::Compute),
    ]
}

prop_compose! {
    fn any_workload()(files in prop::collection::vec((0_u64..9, 1_u32..7, 1_u64..900), 1..4))(
        clients in prop::collection::vec(
            (prop::collection::vec(any_operation(u32::try_from(files.len()).unwrap()), 0..12),
             1_u32..4),
            0..7,
        ),
        files in Just(files),
    ) -> Workload {
        Workload {
            files: files.into_iter().map(|(first, count, bytes)| file(first, count, bytes)).collect(),
            clients: clients
                .into_iter()
                .map(|(operations, in_flight)| ClientWorkload {
                    requests_in_flight: Some(in_flight),
                    node: None,
                    operations,
                })
                .collect(),
        }
    }
}

prop_compose! {
    fn any_machine()(
        count in 1_u32..6,
        costs in prop::collection::vec(0.0..0.1, 7),
        link in 100.0..100_000.0_f64,
        per_node in 1_u32..4,
        line in prop::option::of(100.0..10_000.0),
    ) -> Machine {
        let mut machine = machine(count);
        machine.targets.seek_seconds = costs[0];
        machine.targets.request_seconds = costs[1];
        machine.targets.latency_seconds = costs[2];
        machine.targets.handover_seconds = costs[3];
        machine.clients.request_seconds = costs[4];
        machine.clients.link_bytes_per_second = link;
        machine.clients.bytes_per_second = line;
        machine.clients.per_node = per_node;
        machine.metadata.create_seconds = costs[5];
        machine.metadata.sync_seconds = costs[6];
        machine.fabric.bytes_per_second = line;
        machine.fabric.message_seconds = costs[5];
        machine
    }
}

proptest! {
    #[test]
    fn pieces_hold_each_byte_of_a_request_once(
        first in 0_u64..9, count in 1_u32..6, bytes in 1_u64..9, targets in 6_u32..9,
        offset in 0_u64..100, length in 0_u64..100,
    ) {
        let machine = machine(targets);
        let workload = Workload { files: vec![file(first, count, bytes)], clients: vec![] };
        let layout = workload.layouts(&machine).unwrap()[0];
        let mut found: Vec<(u32, u32, u64)> = layout
            .pieces(targets, offset, length)
            .flat_map(|piece| {
                (0..piece.length).map(move |at| (piece.target, piece.object, piece.offset + at))
            })
            .collect();
        // Computed byte by byte, by the definition on the page.
        let mut wanted: Vec<_> = (offset..offset + length)
            .map(|byte| {
                let object = byte / bytes % u64::from(count);
                let target = (first + object) % u64::from(targets);
                let place = byte / (bytes * u64::from(count)) * bytes + byte % bytes;
                (u32::try_from(target).unwrap(), u32::try_from(object).unwrap(), place)
            })
            .collect();
        found.sort_unstable();
        wanted.sort_unstable();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn a_simulation_is_the_same_again_loses_no_byte_and_keeps_every_bound(
        machine in any_machine(), workload in any_workload(),
    ) {
        let found = machine.simulate(&workload).unwrap();
        prop_assert_eq!(&found, &machine.simulate(&workload).unwrap());
        let sum = |wanted: fn(&ClientOperation) -> u64| -> u64 {
            workload.clients.iter().flat_map(|client| &client.operations).map(wanted).sum()
        };
        let read = sum(|one| if let ClientOperation::Read(.., length) = one { *length } else { 0 });
        let written = sum(|one| if let ClientOperation::Write(.., length) = one { *length } else { 0 });
        prop_assert_eq!((found.read_bytes, found.written_bytes), (read, written));
        prop_assert_eq!(found.targets.iter().map(|load| load.bytes).sum::<u64>(), read + written);
        for bound in &found.bounds {
            prop_assert!(bound.seconds <= found.seconds + 1e-9, "{:?} of {}", bound, found.seconds);
        }
        // Bytes over the total bandwidth, and the requests of each client in sequence.
        let all = f64::from(machine.targets.count);
        prop_assert!(found.seconds >= read as f64 / 1000.0 / all - 1e-9);
        prop_assert!(found.seconds >= written as f64 / 500.0 / all - 1e-9);
        for (client, ended) in workload.clients.iter().zip(&found.clients) {
            let asked = client.operations.iter().filter(|one| {
                !matches!(one, ClientOperation::Compute(_) | ClientOperation::Send(..))
            });
            prop_assert!(*ended >= asked.count() as f64 * machine.clients.request_seconds - 1e-9);
        }
    }
}
