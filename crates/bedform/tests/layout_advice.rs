//! Layout advice for typical data sets, and properties of all advice.

#![expect(clippy::unwrap_used, reason = "a test may stop")]
#![expect(clippy::print_stdout, reason = "the tables, for those who look")]

use bedform::layout::{
    Advice, AdviseError, AdviseRequest, Appendable, Candidate, Read, ReadMix, Reader, advise,
};
use bedform_geometry::{Order, Selection};
use bedform_storage::Profile;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const MAP: &[usize] = &[2, 3];
const SERIES: &[usize] = &[0];

fn climate(reads: &[(&[usize], f64)]) -> AdviseRequest {
    let mut request = AdviseRequest::new(&[8760, 37, 721, 1440], 4, Profile::default_local());
    request.dimension_names = ["time", "level", "lat", "lon"].map(String::from).to_vec();
    request.reads = ReadMix::of_axes(reads);
    request.readers = vec![Reader::Bedform];
    request
}

fn combustion(side: u64) -> AdviseRequest {
    let mut request = AdviseRequest::new(&[side; 3], 8, Profile::default_local());
    request.dimension_names = ["i", "j", "k"].map(String::from).to_vec();
    request.reads = ReadMix::of_axes(&[(&[1, 2], 1.0), (&[0, 2], 1.0), (&[0, 1], 1.0)]);
    request.readers = vec![Reader::Bedform];
    request
}

fn shown(title: &str, request: &AdviseRequest) -> Advice {
    let started = std::time::Instant::now();
    let advice = advise(request).unwrap();
    println!("## {title} ({:.0} ms)\n{advice}", started.elapsed().as_secs_f64() * 1e3);
    advice
}

fn bytes(shape: &[u64], item_size: u64) -> u64 {
    shape.iter().product::<u64>() * item_size
}

/// The largest accepted time of zarr-python, relative to a store with its own defaults.
const RATIO_MAX: f64 = 1.6;

fn worst_ratio(candidate: &Candidate) -> f64 {
    candidate.readers.iter().filter_map(|cost| cost.worst_ratio).fold(0.0, f64::max)
}

/// Checks properties of all advice.
fn check_sound(request: &AdviseRequest, advice: &Advice) -> Result<(), TestCaseError> {
    let chunk = &advice.chunk_shape;
    prop_assert_eq!(chunk.len(), request.shape.len());
    let best = advice.predicted[0].cost_seconds;
    for ((&chunk, &shard), &length) in chunk.iter().zip(&advice.shard_shape).zip(&advice.shape) {
        prop_assert!(chunk >= 1 && chunk <= length);
        prop_assert_eq!(shard % chunk, 0);
        prop_assert!(shard < length + chunk);
    }
    let whole = bytes(&advice.shape, request.item_size);
    for candidate in &advice.predicted {
        if request.appendable.is_none() {
            let size = bytes(&candidate.layout.chunk_shape, request.item_size);
            prop_assert!(
                (request.chunk_bytes_min.min(whole)..=request.chunk_bytes_max).contains(&size)
            );
        }
        // Another reader reads a cheaper candidate too slowly.
        let is_borne = worst_ratio(candidate) <= RATIO_MAX.max(worst_ratio(&advice.predicted[0]));
        prop_assert!(!is_borne || best <= candidate.cost_seconds * (1.0 + 1e-6), "{}", advice);
        prop_assert!(candidate.costs.iter().all(|cost| cost.seconds.is_finite()));
    }
    if let Some(append) = request.appendable {
        let shard = advice.shard_shape[append.axis];
        prop_assert_eq!(append.append_len % shard, 0);
        prop_assert_eq!(request.shape[append.axis] % shard, 0);
    }
    Ok(())
}

#[test]
fn chunks_of_one_file_lie_in_its_order_and_need_no_index() {
    for (reads, axis) in [(SERIES, 0), (MAP, 3)] {
        let mut request = climate(&[(reads, 1.0)]);
        (request.in_one_file, request.checksummed) = (true, false);
        (request.compression_ratio, request.chunk_bytes_max) = (2.0, 4 << 20);
        let advice = shown("one file", &request);
        assert!(advice.predicted.iter().all(|one| one.layout.order == Order::RowMajor));
        let whole = advice.shard_shape.iter().zip(&advice.shape).all(|(file, all)| file >= all);
        assert!(whole, "{:?}", advice.shard_shape);
        // As long as the read along its axes: the chunks need no neighbours.
        let [cost] = advice.costs() else { panic!("one read") };
        assert!(advice.chunk_shape[axis] > 100, "{:?}", advice.chunk_shape);
        assert_eq!(cost.objects, 1.0);
        assert!(cost.requests <= cost.chunks, "{cost:?}");
        assert!(bytes(&advice.chunk_shape, 4) <= 4 << 20);
    }
}

#[test]
fn climate_maps_and_series_get_chunks_of_one_level_and_some_of_every_other_axis() {
    let request = climate(&[(MAP, 0.7), (SERIES, 0.3)]);
    let advice = shown("climate, maps 0.7, series 0.3", &request);
    check_sound(&request, &advice).unwrap();
    let chunk = &advice.chunk_shape;
    assert_eq!(chunk[1], 1, "no read spans levels");
    assert!(chunk[0] > 1 && chunk[0] < 8760, "neither maps nor series alone");
    assert!(chunk[2] >= 16 && chunk[3] >= 16);
    // Each read costs at most a small factor more than in a layout for it alone.
    let alone = |reads: &[(&[usize], f64)]| advise(&climate(reads)).unwrap().costs()[0].seconds;
    let (map, series) = (advice.costs()[0].seconds, advice.costs()[1].seconds);
    println!(
        "map {:.1} x, series {:.1} x",
        map / alone(&[(MAP, 1.0)]),
        series / alone(&[(SERIES, 1.0)])
    );
    // An array in time order reads a series as 8760 scattered pieces.
    assert!(series < 8760.0 * request.profile.request_seconds_many);
    assert!(map < 100e-3);
}

#[test]
fn climate_maps_alone_get_whole_maps() {
    let advice = shown("climate, maps only", &climate(&[(MAP, 1.0)]));
    assert_eq!(advice.chunk_shape[..2], [1, 1]);
    let map = 721 * 1440;
    assert!(advice.chunk_shape[2] * advice.chunk_shape[3] >= map / 8, "{advice}");
}

#[test]
fn climate_series_alone_get_chunks_long_in_time() {
    let advice = shown("climate, series only", &climate(&[(SERIES, 1.0)]));
    assert!(advice.chunk_shape[0] >= 8760 / 4, "{advice}");
    assert!(advice.chunk_shape[1..].iter().product::<u64>() <= 16, "{advice}");
}

#[test]
fn a_growing_climate_array_gets_shards_that_an_append_never_rewrites() {
    let reads: &[(&[usize], f64)] = &[(MAP, 0.7), (SERIES, 0.3)];
    for (have, append_len, allowed) in [(0, 24, 24), (8760, 24, 24), (8760, 1, 1), (36, 24, 12)] {
        let mut request = climate(reads);
        request.shape[0] = have;
        request.appendable = Some(Appendable { axis: 0, append_len, expected_len: Some(8760) });
        let advice = shown(&format!("climate, {have} and growing by {append_len}"), &request);
        check_sound(&request, &advice).unwrap();
        assert!(allowed % advice.shard_shape[0] == 0);
    }
}

#[test]
fn combustion_planes_get_near_cubic_chunks_and_cost_alike() {
    for side in [512, 4096] {
        let request = combustion(side);
        let advice = shown(&format!("combustion {side}^3, planes"), &request);
        check_sound(&request, &advice).unwrap();
        let (least, most) = (advice.chunk_shape.iter().min(), advice.chunk_shape.iter().max());
        assert!(most.unwrap() / least.unwrap() <= 2, "{advice}");
        let seconds = || advice.costs().iter().map(|cost| cost.seconds);
        let (fast, slow) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
        assert!(slow / fast <= 1.5, "{advice}");
        if side == 512 {
            // The contiguous file takes 612 ms for its slowest plane on such a device.
            assert!(slow < 0.612 / 12.0, "{advice}");
            assert!((8..=32).contains(most.unwrap()));
        }
    }
}

#[test]
fn combustion_planes_cost_alike_on_devices_like_this_one() {
    for rate in [0.9e9, 1.2e9, 1.7e9] {
        for microseconds in [8.0, 12.0, 16.0, 20.0] {
            let mut request = combustion(512);
            request.profile.read_bytes_per_second_many = rate;
            request.profile.request_seconds_many = microseconds * 1e-6;
            let advice = advise(&request).unwrap();
            let seconds = || advice.costs().iter().map(|cost| cost.seconds);
            let (fast, slow) =
                (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
            assert!(slow / fast <= 1.5 && slow < 0.612 / 12.0, "{advice}");
        }
    }
}

#[test]
fn the_slow_storage_of_the_paper_gets_larger_chunks() {
    let mut request = combustion(4096);
    request.profile = Profile::lustre_example();
    let advice = shown("combustion 4096^3 on Lustre", &request);
    let local = advise(&combustion(4096)).unwrap();
    let size = |advice: &Advice| bytes(&advice.chunk_shape, 8);
    assert!(size(&advice) >= 8 * size(&local) && size(&advice) >= 256 << 10, "{advice}");
    assert!((size(&advice) as f64) < advice.window.most, "{advice}");
}

#[test]
fn an_object_store_gets_shards_of_one_chunk_where_a_second_wait_would_cost_more() {
    let advice = |request_seconds: f64| {
        let mut request = AdviseRequest::new(&[365, 721, 1440], 4, Profile::default_remote());
        request.reads = ReadMix::of_axes(&[(&[1, 2], 0.5), (&[0], 0.5)]);
        request.readers = vec![Reader::Bedform];
        request.profile.read_bytes_per_second_many = 1.2e9;
        request.profile.requests_in_flight = 64;
        request.profile.request_seconds_many = request_seconds;
        let title = format!("a server that takes {} us a request", request_seconds * 1e6);
        let advice = shown(&title, &request);
        check_sound(&request, &advice).unwrap();
        advice
    };
    let (cheap, dear) = (advice(200e-6), advice(5e-3));
    assert_eq!(cheap.chunk_shape, cheap.shard_shape, "{cheap}");
    assert!(cheap.costs().iter().all(|cost| cost.whole_objects == cost.objects));
    // A request costs a tenth of a wait here, so fewer requests are worth a second wait.
    assert_ne!(dear.chunk_shape, dear.shard_shape, "{dear}");
}

#[test]
fn arrays_of_any_legal_shape_get_an_answer() {
    let shapes: [&[u64]; 12] = [
        &[],
        &[0],
        &[1],
        &[5],
        &[0, 100],
        &[3, 0, 7],
        &[1 << 40],
        &[1 << 40, 1 << 40],
        &[1 << 62; 4],
        &[1; 32],
        &[2; 32],
        &[100_000, 1, 3],
    ];
    for shape in shapes {
        for item_size in [1, 8, 1 << 30] {
            let request = AdviseRequest::new(shape, item_size, Profile::default_local());
            let advice = shown(&format!("{shape:?} of {item_size}"), &request);
            let shards: f64 = std::iter::zip(&advice.shape, &advice.shard_shape)
                .map(|(size, shard)| size.div_ceil(*shard) as f64)
                .product();
            assert!(shards <= 100_000.0 || !advice.notes.is_empty(), "{advice}");
        }
    }
}

#[test]
fn a_small_array_is_one_shard() {
    for shape in [&[12, 19, 90, 180][..], &[2161, 4320], &[1000]] {
        let advice = advise(&AdviseRequest::new(shape, 4, Profile::default_local())).unwrap();
        assert!(std::iter::zip(shape, &advice.shard_shape).all(|(size, shard)| shard >= size));
    }
}

#[test]
fn the_default_reads_are_planes_series_and_boxes_a_third_each() {
    let mix = ReadMix::default_for(&[100, 200, 300]).reads;
    let axes = |spanned: &[usize]| Read::Axes { spanned: spanned.to_vec() };
    let reads: Vec<_> = mix.iter().map(|(read, _)| read.clone()).collect();
    let cube = Read::Box { shape: vec![32; 3] };
    let planes = [axes(&[0, 1]), axes(&[0, 2]), axes(&[1, 2])];
    let series = [axes(&[0]), axes(&[1]), axes(&[2])];
    assert_eq!(reads, [&planes[..], &series[..], &[cube][..]].concat());
    assert!(mix.iter().take(6).all(|(_, weight)| (weight - 1.0 / 9.0).abs() < 1e-12));
    assert_eq!(ReadMix::default_for(&[]).reads, [(Read::Everything, 1.0)]);
    assert_eq!(ReadMix::default_for(&[1, 0]).reads, [(Read::Everything, 1.0)]);
    assert_eq!(ReadMix::default_for(&[1, 9]).reads, [(axes(&[1]), 1.0)]);
}

#[test]
fn questions_that_cannot_be_answered_say_why() {
    let ask = |change: &dyn Fn(&mut AdviseRequest)| -> AdviseError {
        let mut request = climate(&[(MAP, 1.0)]);
        change(&mut request);
        advise(&request).unwrap_err()
    };
    let append = Appendable { axis: 4, append_len: 1, expected_len: None };
    let cases: [(&str, AdviseError); 11] = [
        ("33 dimensions", ask(&|request| request.shape = vec![1; 33])),
        ("dimension 1 is 9223372036854775808 long", ask(&|request| request.shape[1] = 1 << 63)),
        ("item size", ask(&|request| request.item_size = 0)),
        ("compression ratio", ask(&|request| request.compression_ratio = f64::NAN)),
        ("cores", ask(&|request| request.cores = 0)),
        ("largest chunk", ask(&|request| request.chunk_bytes_max = 1)),
        ("dimension 4", ask(&|request| request.appendable = Some(append))),
        ("dimension 9", ask(&|request| request.reads = ReadMix::of_axes(&[(&[9], 1.0)]))),
        ("weight", ask(&|request| request.reads = ReadMix::of_axes(&[(MAP, -1.0)]))),
        (
            "selection",
            ask(&|request| {
                request.reads.reads = vec![(Read::Selection(Selection::all(&[1])), 1.0)];
            }),
        ),
        ("read_bytes", ask(&|request| request.profile.read_bytes_per_second_many = 0.0)),
    ];
    for (part, error) in cases {
        assert!(error.to_string().contains(part), "{part:?} in {error}");
    }
}

#[test]
fn advice_is_a_document_with_named_orders() {
    let advice = advise(&combustion(512)).unwrap();
    let value = serde_json::to_value(&advice).unwrap();
    assert_eq!(value["order"], advice.order.name());
    assert!(value["predicted"][0]["chunk_shape"].is_array());
    assert_eq!(value["predicted"].as_array().unwrap().len(), advice.predicted.len());
    let orders = |order: Order| {
        let of = |candidate: &&Candidate| candidate.layout.order == order;
        advice.predicted.iter().filter(of).count()
    };
    assert!(Order::ALL.into_iter().all(|order| orders(order) > 0), "{advice}");
}

fn any_request() -> impl Strategy<Value = AdviseRequest> {
    let shape = prop::collection::vec(prop_oneof![0_u64..4, 1_u64..3000], 0..5);
    let reads =
        prop::collection::vec((prop::collection::vec(0_usize..8, 0..4), 0.01_f64..1.0), 0..4);
    let append = prop::option::of((0_usize..8, 1_u64..50));
    let profile = prop_oneof![Just(Profile::default_local()), Just(Profile::default_remote())];
    let readers = prop::sample::select(vec![
        vec![Reader::Bedform],
        Reader::ALL.to_vec(),
        vec![Reader::ZarrPython],
    ]);
    (shape, 1_u64..17, reads, append, any::<bool>(), profile, readers).prop_map(
        |(shape, item_size, reads, append, checksummed, profile, readers)| {
            let rank = shape.len();
            let mut request = AdviseRequest::new(&shape, item_size, profile);
            for (spanned, weight) in reads {
                let spanned = spanned.into_iter().filter(|&axis| axis < rank).collect();
                request.reads.reads.push((Read::Axes { spanned }, weight));
            }
            request.appendable = append
                .filter(|&(axis, _)| axis < rank)
                .map(|(axis, append_len)| Appendable { axis, append_len, expected_len: None });
            request.checksummed = checksummed;
            request.readers = readers;
            request
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn advice_is_never_worse_than_what_it_was_compared_with(request in any_request()) {
        let advice = advise(&request).unwrap();
        check_sound(&request, &advice)?;
        prop_assert_eq!(advise(&request).unwrap(), advice, "the same question, the same answer");
    }
}

#[test]
fn dearer_requests_lead_to_larger_chunks_and_cost_at_most_as_much_more() {
    for side in [256, 300, 384, 512, 777, 1024] {
        for factor in [2.0, 5.0, 20.0, 50.0] {
            let request = combustion(side);
            let mut dearer = request.clone();
            dearer.profile.request_seconds_one *= factor;
            dearer.profile.request_seconds_many *= factor;
            let (near, far) = (advise(&request).unwrap(), advise(&dearer).unwrap());
            // The layout of the near storage remains a candidate.
            let cost = |advice: &Advice| advice.predicted[0].cost_seconds;
            assert!(cost(&far) >= cost(&near), "{near}\n{far}");
            assert!(cost(&far) <= factor * cost(&near), "{near}\n{far}");
            // Lengths come from a list, so neighbouring answers may swap.
            let size = |advice: &Advice| bytes(&advice.chunk_shape, 8) as f64;
            assert!(size(&far) >= 0.75 * size(&near), "{near}\n{far}");
        }
    }
}

/// Arrays of many kinds, with the bytes of an element.
const SHAPES: [(&[u64], u64); 10] = [
    (&[20_000_000], 8),
    (&[200_000], 4),
    (&[8000, 6000], 2),
    (&[100_000, 100], 4),
    (&[1460, 181, 360], 4),
    (&[400, 400, 400], 4),
    (&[40, 1500, 1400], 4),
    (&[48, 37, 181, 360], 4),
    (&[8760, 37, 721, 1440], 4),
    (&[120, 60, 90], 4),
];

#[test]
fn default_layouts_are_within_the_bound_of_zarr_python() {
    for (shape, item_size) in SHAPES {
        let request = AdviseRequest::new(shape, item_size, Profile::default_local());
        let advice = shown(&format!("{shape:?} for any reader"), &request);
        check_sound(&request, &advice).unwrap();
        assert!(worst_ratio(&advice.predicted[0]) <= RATIO_MAX, "{advice}");
        let readers: Vec<_> = advice.predicted[0].readers.iter().map(|cost| cost.reader).collect();
        assert_eq!(readers, Reader::ALL);
        // Small chunks cost Bedform less, but zarr-python far too much.
        let mut own = request.clone();
        own.readers = vec![Reader::Bedform];
        let own = advise(&own).unwrap();
        assert!(
            own.predicted[0].cost_seconds <= advice.predicted[0].cost_seconds * 1.2,
            "{advice}"
        );
    }
}

#[test]
fn zarr_python_alone_gets_a_layout_that_it_reads_no_slower() {
    for (shape, item_size) in SHAPES {
        let mut request = AdviseRequest::new(shape, item_size, Profile::default_local());
        let any = advise(&request).unwrap();
        request.readers = vec![Reader::ZarrPython];
        let alone = advise(&request).unwrap();
        let cost = &alone.predicted[0].readers[0];
        assert_eq!(
            (cost.reader, cost.seconds),
            (Reader::ZarrPython, alone.predicted[0].cost_seconds)
        );
        assert!(cost.seconds <= any.predicted[0].readers[1].seconds * 1.05, "{any}\n{alone}");
    }
}

#[test]
fn where_no_layout_suits_zarr_python_the_least_bad_is_taken_and_said() {
    // An append of one step adds whole shards, so chunks have one step along time.
    let mut request = climate(&[(SERIES, 1.0)]);
    request.readers = Reader::ALL.to_vec();
    request.shape[0] = 0;
    request.appendable = Some(Appendable { axis: 0, append_len: 1, expected_len: Some(8760) });
    let advice = shown("series of an array that grows step by step", &request);
    check_sound(&request, &advice).unwrap();
    let least = advice.predicted.iter().map(worst_ratio).fold(f64::INFINITY, f64::min);
    let taken = worst_ratio(&advice.predicted[0]);
    assert!(taken > RATIO_MAX && taken <= 1.2 * least, "{taken} and {least} of\n{advice}");
    assert!(advice.notes.iter().any(|note| note.contains("zarr-python takes")), "{advice}");
}

#[test]
fn kinds_of_reads_that_no_layout_serves_well_are_named_with_the_best_for_each() {
    let request = climate(&[(MAP, 0.5), (SERIES, 0.5)]);
    let advice = shown("maps and series, each alone", &request);
    let kinds = advice.kinds.as_ref().unwrap();
    assert_eq!(kinds.alone.len(), 2);
    for (kind, cost) in kinds.alone.iter().zip(advice.costs()) {
        assert!(kind.alone_seconds <= kind.seconds && kind.seconds == cost.seconds, "{advice}");
    }
    assert!(kinds.nearest_ratio > 2.0, "{advice}");
    let told = advice.notes.iter().filter(|note| note.contains("twice the best")).count();
    assert_eq!(told, 2, "{advice}");
    // With one kind of read there is nothing to compare.
    assert!(advise(&climate(&[(MAP, 1.0)])).unwrap().kinds.is_none());
}

#[test]
fn a_copy_may_keep_the_chunks_of_its_source() {
    let mut request = climate(&[(MAP, 1.0)]);
    request.shape = vec![365, 3, 721, 1440];
    request.source_chunks = Some(vec![1, 1, 721, 1440]);
    let advice = shown("a copy of a file of maps", &request);
    let found = |chunk: &[u64]| advice.predicted.iter().any(|one| one.layout.chunk_shape == chunk);
    assert!(found(&[1, 1, 721, 1440]), "{advice}");
}
