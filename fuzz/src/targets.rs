//! The fuzz targets: one function per decoder. Each accepts any bytes, and panics only if a decoder
//! breaks a promise.

use std::cell::RefCell;

use bedform_codec::{ChunkCodec, Scratch, text};
use bedform_format::amr::{CellHeader, FabHeader, PlotfileHeader};
use bedform_format::archive::ArchiveMap;
use bedform_format::checksum::crc32c;
use bedform_format::chunk_map::{ChunkMap, SourceVersion};
use bedform_format::codec::{
    BloscCompressor, BloscConfiguration, BloscShuffle, ChecksumKind, PcodecConfiguration,
    PcodecDelta, PcodecMode, StoredNumber,
};
use bedform_format::hdf5::look_at_everything;
use bedform_format::index::IndexRecord;
use bedform_format::log::{
    BlockKind, Boxes, Directory, LogError, Promise, PromiseFile, PromisesHeader, RecordHead, Root,
    Sealed, Section, SegmentHeader, SettledShards, TableBlock, TableIndex, varint,
};
use bedform_format::mesh::MeshRecord;
use bedform_format::mesh_replica::MeshCatalogue;
use bedform_format::metadata::{
    ChunkKeys, Identity, NodeSummary, check_seal, parse_array, parse_array_v2,
    parse_consolidated_v2, parse_document, parse_group, seal, write_array,
};
use bedform_format::references::{Reference, looks_like_references, parse as parse_references};
use bedform_format::replica::{Catalogue, Replica};
use bedform_format::shard::{ShardIndex, Stamp};
use bedform_format::{
    BytesCodec, CodecChain, DataType, Endian, Limits, ObjectPath, Serializer, json, netcdf_classic,
    trace::{self, knowledge::Knowledge, selection::selection_blocks},
};
use bedform_patterns::{Analyzer, Place};
use bedform_query::{
    AttributeNumber, Decision, Expression, Operand, Packing, PredicateScratch, ScalarValue,
    ValueDecoding, ValueRange, ValueSlice, ValueType, Values, range_of,
};
use bedform_storage::Profile;
use serde_json::{Map, Value};

/// All targets, by name.
pub(crate) const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("metadata_v3", metadata_v3),
    ("metadata_v2", metadata_v2),
    ("json", json_document),
    ("shard", shard),
    ("codecs", codecs),
    ("netcdf_classic", netcdf_header),
    ("plotfile", plotfile),
    ("plotfile_level", plotfile_level),
    ("plotfile_fab", plotfile_fab),
    ("mesh_record", mesh_record),
    ("hdf5", look_at_everything),
    ("chunk_map", chunk_map),
    ("log", log),
    ("names", names),
    ("references", references),
    ("traces", traces),
    ("catalogue", catalogue),
    ("index", index_record),
    ("expressions", expressions),
];

/// Records of value indexes, also with a valid checksum.
fn index_record(data: &[u8]) {
    let limits = Limits::default();
    let _ = IndexRecord::decode(data, &limits);
    let checked = [data, &crc32c(data).to_le_bytes()].concat();
    let Some(found) = IndexRecord::decode(&checked, &limits) else { return };
    let again = found.encode().expect("what was read can be written");
    assert_eq!(IndexRecord::decode(&again, &limits).as_ref(), Some(&found));
    assert!(!found.group.contains(['/', '.']), "a name leads nowhere");
    let product = |shape: &[u64]| shape.iter().try_fold(1_u64, |all, one| all.checked_mul(*one));
    assert!(product(&found.block_shape).is_some(), "elements of a block have a number");
    let pages =
        found.grid_shape().into_iter().zip(&found.page_shape).map(|(all, one)| all.div_ceil(*one));
    let pages: Vec<u64> = pages.collect();
    assert_eq!(product(&pages), Some(found.pages.len() as u64), "every block has a page");
}

/// Expressions: the first four bytes choose types and decodings, the rest is the text, and the
/// elements too. Ranges must never decide against the elements.
fn expressions(data: &[u8]) {
    let Some((choice, rest)) = data.split_at_checked(4) else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let Ok(expression) = Expression::parse(text) else { return };
    let written = expression.to_string();
    if written.len() <= 64 << 10 {
        let again = Expression::parse(&written).expect("what was written can be read");
        assert_eq!(again.to_string(), written);
        assert_eq!(again.names(), expression.names());
    }
    let operands: Vec<Operand> = expression
        .names()
        .iter()
        .enumerate()
        .map(|(index, name)| Operand {
            name: (*name).into(),
            decoding: chosen_decoding(index, choice[index % 4]),
        })
        .collect();
    let Ok(predicate) = expression.bind(&operands) else { return };
    let values: Vec<Values> = operands
        .iter()
        .enumerate()
        .map(|(index, operand)| {
            let bytes: Vec<u8> = data.iter().copied().cycle().skip(index).take(16 * 8).collect();
            let stored = operand.decoding.stored();
            Values::of_bytes(stored, &bytes[..16 * stored.bytes()]).expect("whole elements")
        })
        .collect();
    let columns: Vec<ValueSlice<'_>> = values.iter().map(Values::as_slice).collect();
    let mut found = [7; 16];
    predicate.evaluate(&columns, &mut PredicateScratch::default(), &mut found);
    let ranges: Vec<Option<ValueRange>> = operands
        .iter()
        .zip(&columns)
        .map(|(operand, column)| {
            let (least_and_greatest, missing) = range_of(&operand.decoding, *column);
            Some(ValueRange { least_and_greatest, missing: missing > 0 })
        })
        .collect();
    match predicate.decide(&ranges) {
        Decision::None => assert_eq!(found, [0; 16]),
        Decision::All => assert_eq!(found, [1; 16]),
        Decision::Some => assert!(found.iter().all(|byte| *byte < 2)),
    }
}

/// One of the decodings of expressions.
fn chosen_decoding(index: usize, choice: u8) -> ValueDecoding {
    const TYPES: [ValueType; 12] = [
        ValueType::Float64,
        ValueType::Int16,
        ValueType::Float32,
        ValueType::Bool,
        ValueType::UInt8,
        ValueType::Int64,
        ValueType::UInt64,
        ValueType::Float16,
        ValueType::Int8,
        ValueType::Int32,
        ValueType::UInt16,
        ValueType::UInt32,
    ];
    let stored = TYPES[(index + usize::from(choice & 15)) % TYPES.len()];
    let number = |bit: u8, number: f64| {
        (choice & bit != 0).then_some(AttributeNumber::Typed(ScalarValue::Float64(number)))
    };
    let packing = Packing {
        fill_value: number(16, 32.0).into_iter().collect(),
        scale_factor: number(32, -0.01),
        add_offset: number(64, 273.15),
        unsigned: (choice & 128 != 0).then_some(true),
        ..Packing::default()
    };
    ValueDecoding::new(stored, packing).unwrap_or_else(|_| ValueDecoding::raw(stored))
}

/// Catalogues of replicas, also with a valid seal: the seal must not be the only defence.
fn catalogue(data: &[u8]) {
    let limits = Limits::default();
    let _ = Catalogue::decode(data, &limits);
    let _ = MeshCatalogue::decode(data, &limits);
    let members = data.strip_prefix(b"{").unwrap_or(data);
    let mut sealed = [br#"{"seal":"0000000000:00000000","#.as_slice(), members].concat();
    let length = format!("{:010}", sealed.len());
    sealed[9..19].copy_from_slice(length.as_bytes());
    let checksum = format!("{:08x}", crc32c(&sealed));
    sealed[20..28].copy_from_slice(checksum.as_bytes());
    if let Some(found) = MeshCatalogue::decode(&sealed, &limits) {
        let again = found.encode().expect("what was read can be written");
        assert_eq!(MeshCatalogue::decode(&again, &limits).as_ref(), Some(&found));
        let mut ids = found.replicas.iter().map(|one| &one.id);
        assert!(ids.all(|id| !id.contains(['/', '.'])), "a name leads nowhere");
    }
    let Some(found) = Catalogue::decode(&sealed, &limits) else { return };
    let again = found.encode().expect("what was read can be written");
    assert_eq!(Catalogue::decode(&again, &limits).as_ref(), Some(&found));
    let bytes = found.replicas.iter().map(|one| u128::from(one.stored_bytes)).sum::<u128>();
    assert!(u64::try_from(bytes).is_ok(), "sums of them have a number");
    for Replica { id, array_shape, held, document, .. } in &found.replicas {
        assert!(!id.contains(['/', '.']), "a name leads nowhere");
        let elements = held.shape().into_iter().try_fold(1_u64, u64::checked_mul);
        assert!(elements.is_some(), "elements have a number");
        for (axis, length) in array_shape.iter().enumerate() {
            let end = held.bounds().map_or(0, |bounds| bounds.end(axis));
            assert!(end <= *length, "what a replica holds lies in its array");
        }
        let _ = parse_array(document, &limits);
    }
}

/// Traces, the knowledge learned from them, and the patterns in both.
fn traces(data: &[u8]) {
    assert!(trace::whole_bytes(data) <= data.len());
    // As a payload with a valid head: a fuzzer does not find checksums.
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes();
    let framed = [b"BfTr".as_slice(), &length, &crc32c(data).to_le_bytes(), data].concat();
    for block in trace::blocks(&framed) {
        let again = block.encode().expect("what was read can be written");
        assert_eq!(trace::blocks(&again).next(), Some(block));
    }
    selections(data);
    if let Some(known) = Knowledge::decode(data, &Limits::default()) {
        known.encode().expect("what was read can be written");
        for global in known.arrays.values().flat_map(|array| &array.global.0) {
            assert!(global.split(data.len() % 64).len() < 64);
        }
        let patterns = known.arrays.into_values().flat_map(|array| array.patterns.0);
        follow(&mut Analyzer::knowing(patterns), data);
    }
    follow(&mut Analyzer::default(), data);
}

/// Selections of reads of lists and points: as a file, and as the content of a block with a valid
/// hash.
fn selections(data: &[u8]) {
    let blocks: Vec<_> = selection_blocks(data).collect();
    assert!(blocks.iter().map(|block| block.bytes.len()).sum::<usize>() <= data.len());
    let framed = |payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        [b"BfSe".as_slice(), &length, &crc32c(payload).to_le_bytes(), payload].concat()
    };
    // A fuzzer does not find hashes either, so the hash of the content is inserted.
    let bytes = framed(data);
    let hash = selection_blocks(&bytes).next().and_then(|block| block.hash_of_content());
    if let Some(hash) = hash {
        let mut payload = data.to_vec();
        payload[1..9].copy_from_slice(&hash.to_le_bytes());
        let bytes = framed(&payload);
        let block = selection_blocks(&bytes).next().expect("a block that has its hash");
        let selection = block.decode().expect("content of this hash");
        assert_eq!(selection.hash(), hash);
        let again = selection.encode(hash).expect("what was read can be written");
        let block = selection_blocks(&again).next().expect("what was written can be read");
        assert_eq!(block.decode(), Some(selection));
    }
}

fn follow(analyzer: &mut Analyzer, data: &[u8]) {
    let mut at = 0_i64;
    for step in data.iter().take(512) {
        // Small steps, some far ones, and occasionally another number of axes.
        at = match step {
            0xff => i64::MAX - 1,
            0xfe => i64::MIN,
            step => at.saturating_add(i64::from(*step) - 8),
        };
        let bounds = (at, at.saturating_add(i64::from(step % 3)));
        let rank = if *step == 0xfd { 3 } else { 1 };
        analyzer.push(Place::new(std::iter::repeat_n(bounds, rank)));
        analyzer.ahead().take(4).for_each(drop);
    }
    assert!(analyzer.heap_bytes() < 8 << 20);
}

/// Kerchunk references: every listed key is found, and its range has an end.
fn references(data: &[u8]) {
    let _ = looks_like_references(data);
    let Ok(set) = parse_references(data, &Limits::default()) else { return };
    let mut directories = vec![ObjectPath::root()];
    let mut found = 0;
    while let Some(directory) = directories.pop() {
        assert!(set.is_directory(&directory));
        for entry in set.list(&directory) {
            let path = directory.join(&entry.name).expect("keys are paths of objects");
            match set.find(&path) {
                Some(Reference::Range { target, offset, length }) => {
                    assert!(!set.target(target).is_empty());
                    assert!(offset.checked_add(length.unwrap_or(0)).is_some());
                    found += 1;
                }
                Some(Reference::Inline(bytes)) => {
                    assert!(bytes.len() <= data.len());
                    found += 1;
                }
                None => {}
            }
            if set.is_directory(&path) {
                directories.push(path);
            }
        }
    }
    assert_eq!(found, set.len());
}

/// Fails for inputs that a working fuzzer finds within seconds.
pub(crate) fn canary(data: &[u8]) {
    assert!(!data.starts_with(b"bed"), "the canary has been found");
}

fn metadata_v3(data: &[u8]) {
    let limits = Limits::default();
    let Ok(document) = json::parse(data, &limits) else { return };
    let _ = check_seal(data, &document);
    let (others, texts) = parse_document(data, &limits).expect("its texts are JSON, too");
    for text in texts.kept().iter().flat_map(|(_, texts)| texts.values()) {
        if let Ok(value) = text.parse(&limits) {
            assert_eq!(NodeSummary::of(text, &limits), Ok(NodeSummary::of_value(&value)));
        }
    }
    let _ = parse_group(&others, texts);
    let Ok(metadata) = parse_array(&document, &limits) else { return };
    assert!(metadata.rank() <= limits.rank_max);
    // An accepted document can be written, and equals itself when read again.
    let written = write_array(&metadata);
    let bytes = seal(written.clone());
    let again = json::parse(&bytes, &limits).expect("our own document is JSON");
    assert_eq!(check_seal(&bytes, &again), Ok(metadata.identity.is_some()));
    if metadata.data_type.v3_name().is_some() {
        let again = parse_array(&again, &limits).expect("our own document is valid");
        assert_eq!(again.shape, metadata.shape);
        assert_eq!(again.encoding, metadata.encoding);
        assert_eq!(again.identity, metadata.identity);
    }
}

fn metadata_v2(data: &[u8]) {
    let limits = Limits::default();
    let Ok(document) = json::parse(data, &limits) else { return };
    if let Ok(metadata) = parse_array_v2(&document, Map::new(), &limits) {
        assert!(metadata.rank() <= limits.rank_max);
        assert_eq!(metadata.zarr_format, 2);
    }
    for (path, _) in parse_consolidated_v2(&document).unwrap_or_default() {
        assert!(path.len() < data.len());
    }
}

fn json_document(data: &[u8]) {
    let limits = Limits::default();
    let Ok(value) = json::parse(data, &limits) else { return };
    // Accepted text is JSON, except for non-finite numbers, integers beyond floats, and escapes of
    // unpaired surrogates.
    if let Ok(other) = serde_json::from_slice::<Value>(data) {
        assert!(is_alike(&value, &other), "{value:?} {other:?}");
    } else {
        let text = String::from_utf8_lossy(data);
        let has_digits = data.chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
        let is_beyond =
            has_digits.into_iter().any(|run| run.len() > 300 && run[0].is_ascii_digit());
        let has_halves = text.to_ascii_lowercase().contains(r"\ud");
        let has_words = text.contains("NaN") || text.contains("Infinity");
        assert!(is_beyond || has_halves || has_words, "{text}");
    }
}

/// Returns true if values are equal, except for integers beyond 64 bits, which other parsers read
/// as floats.
fn is_alike(value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::Array(values), Value::Array(others)) => {
            values.len() == others.len()
                && values.iter().zip(others).all(|(value, other)| is_alike(value, other))
        }
        (Value::Object(values), Value::Object(others)) => {
            values.len() == others.len()
                && values
                    .iter()
                    .all(|(key, value)| others.get(key).is_some_and(|other| is_alike(value, other)))
        }
        (Value::String(text), Value::Number(number)) => {
            let (own, other) = (json::marked_number(text), number.as_f64());
            own.zip(other).is_some_and(|(own, other)| (own - other).abs() <= own.abs() * 1e-15)
        }
        _ => value == other,
    }
}

fn shard(data: &[u8]) {
    let Some((head, rest)) = data.split_at_checked(8) else { return };
    let word = head.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let checked = word & 1 == 1;
    let size = word >> 1;
    if let Ok(index) = ShardIndex::decode(rest, checked, size) {
        for position in 0..index.len() {
            if let Ok(Some(extent)) = index.get(position) {
                assert!(extent.end() <= size);
            }
        }
        assert!(index.data_end() <= size);
        assert_eq!(ShardIndex::decode(&index.encode(checked), checked, size), Ok(index));
    }
    // With a valid checksum: the checksum must not be the only defence.
    let mut sealed = rest.to_vec();
    sealed.extend_from_slice(&bedform_format::checksum::crc32c(rest).to_le_bytes());
    let _ = ShardIndex::decode(&sealed, true, size);
    for bytes in [rest, &sealed] {
        if let Ok(stamp) = Stamp::decode(bytes) {
            let identity = Identity { store: [1; 16], array: [2; 16] };
            let _ = stamp.check(&identity, &[0, 1]);
            assert_eq!(Stamp::decode(&stamp.encode()), Ok(stamp));
        }
    }
}

/// Every codec alone, and common chains.
fn chains() -> Vec<(CodecChain, DataType)> {
    let blosc = BytesCodec::Blosc(BloscConfiguration {
        compressor: BloscCompressor::Lz4,
        level: 5,
        shuffle: BloscShuffle::Byte,
        type_size: 4,
        block_size: 0,
    });
    let zstd = BytesCodec::Zstd { level: 3, checksum: false };
    let (gzip, zlib) = (BytesCodec::Gzip { level: 5 }, BytesCodec::Zlib { level: 5 });
    let shuffle = BytesCodec::Shuffle { element_size: 4 };
    let of = |data_type| StoredNumber { data_type, endian: Endian::Big };
    let (decoded, encoded) = (of(DataType::UInt32), of(DataType::Float16));
    let delta = BytesCodec::Delta { decoded, encoded: of(DataType::Int64) };
    let lists: [&[BytesCodec]; 21] = [
        &[],
        &[zstd],
        &[gzip],
        &[zlib],
        &[blosc],
        &[BytesCodec::Crc32c],
        &[BytesCodec::Fletcher32],
        &[shuffle, zlib],
        &[shuffle, zlib, BytesCodec::Fletcher32],
        &[shuffle, blosc],
        &[zstd, gzip],
        &[gzip, gzip, zstd],
        &[blosc, zstd],
        &[BytesCodec::Crc32c, zstd, BytesCodec::Crc32c],
        &[BytesCodec::Lz4],
        &[BytesCodec::Bz2],
        &[BytesCodec::Lzma { is_alone: false }],
        &[BytesCodec::Lzma { is_alone: true }],
        &[delta, BytesCodec::Lz4],
        &[
            BytesCodec::AsType { decoded, encoded },
            BytesCodec::Checksum { kind: ChecksumKind::Adler32, is_first: true },
        ],
        &[
            delta,
            BytesCodec::Quantize { decoded: of(DataType::Int64), encoded, digits: 1 },
            shuffle,
        ],
    ];
    let chain = |bytes: &[BytesCodec], serializer| CodecChain {
        transpose: None,
        serializer,
        bytes: bytes.to_vec(),
    };
    let numbers = lists
        .iter()
        .map(|bytes| (chain(bytes, Serializer::Bytes(Endian::Little)), DataType::UInt32));
    let texts =
        lists[..5].iter().map(|bytes| (chain(bytes, Serializer::VlenUtf8), DataType::String));
    let pcodec = Serializer::Pcodec(PcodecConfiguration {
        level: 8,
        mode: PcodecMode::Auto,
        delta: PcodecDelta::Auto,
        page_elements: 1 << 18,
    });
    let packed = [
        (chain(&[], pcodec), DataType::UInt16),
        (chain(&[], pcodec), DataType::Int32),
        (chain(&[], pcodec), DataType::Float64),
        (chain(&[zstd], pcodec), DataType::Float32),
    ];
    numbers.chain(texts).chain(packed).collect()
}

fn codecs(data: &[u8]) {
    thread_local! {
        static CODECS: RefCell<(Vec<(ChunkCodec, bool)>, Scratch)> = RefCell::new({
            let codecs = chains().into_iter().map(|(chain, data_type)| {
                (ChunkCodec::new(&chain, data_type, &[8, 33]), data_type == DataType::String)
            });
            (codecs.collect(), Scratch::default())
        });
    }
    let Some((&[choice, skip], encoded)) = data.split_first_chunk::<2>() else { return };
    CODECS.with_borrow_mut(|(codecs, scratch)| {
        let (codec, is_text) = &codecs[usize::from(choice) % codecs.len()];
        // The filter mask is HDF5's, whose texts are not chunks.
        let skip = if *is_text { 0 } else { u32::from(skip & 7) };
        if let Ok(decoded) = codec.decode(encoded, skip, scratch) {
            if *is_text {
                let _ = text::split(decoded, 8 * 33);
            } else {
                assert_eq!(decoded.len(), codec.decoded_bytes());
            }
        }
    });
}

fn netcdf_header(data: &[u8]) {
    let limits = Limits::default();
    let source = SourceVersion { size: 1 << 20, ..SourceVersion::default() };
    if let Ok(bedform_format::chunk_map::ParsedHeader::Complete(map)) =
        netcdf_classic::parse(data, &source, &limits)
    {
        map.check(&limits).expect("a header gives a map that holds");
    }
}

/// The `Header` of a plotfile.
fn plotfile(data: &[u8]) {
    let Ok(header) = PlotfileHeader::parse(data, &Limits::default()) else { return };
    assert!(!header.levels.is_empty() && header.levels.len() == header.domains.len());
    for (number, level) in header.levels.iter().enumerate() {
        level.cell_header_path().expect("every level has a Cell_H");
        let ratios = if number + 1 == header.levels.len() { 0 } else { header.rank() };
        assert_eq!(level.refinement_ratio.len(), ratios);
        assert_eq!(level.spacing.len(), header.rank());
    }
}

/// The `Cell_H` of a level of a plotfile, with its tables.
fn plotfile_level(data: &[u8]) {
    let Ok(level) = CellHeader::parse(data, &Limits::default()) else { return };
    assert!(!level.boxes.is_empty() && level.boxes.len() == level.locations.len());
    assert!(level.locations.iter().all(|place| (place.file as usize) < level.files.len()));
    assert_eq!(level.ghost_cells.len(), level.boxes.rank());
    for component in [0, level.components / 2, level.components] {
        let ranges = level.component_ranges(data, component);
        assert!(ranges.is_none() || component < level.components);
    }
}

/// The header of a FAB of a plotfile.
fn plotfile_fab(data: &[u8]) {
    let Ok(header) = FabHeader::parse(data, &Limits::default()) else { return };
    assert!(header.header_bytes <= data.len() && data[header.header_bytes - 1] == b'\n');
    let item_size = header.data_type.item_size().expect("numbers have a size") as u64;
    assert_eq!(header.cells().cells() * item_size, header.component_bytes);
    header.component_bytes.checked_mul(header.components).expect("the bytes can be counted");
}

/// The record of a refined mesh in a store.
fn mesh_record(data: &[u8]) {
    let Ok(value) = serde_json::from_slice(data) else { return };
    let Ok(record) = MeshRecord::decode(&value, &Limits::default()) else { return };
    assert!(record.levels.iter().all(|level| level.shape.len() == record.rank()));
    assert_eq!(MeshRecord::decode(&record.encode(), &Limits::default()), Ok(record));
}

fn chunk_map(data: &[u8]) {
    let limits = Limits::default();
    // With a valid checksum: the checksum must not be the only defence.
    let mut sealed = data.to_vec();
    if let Some((body, checksum)) = sealed.split_last_chunk_mut::<4>() {
        *checksum = bedform_format::checksum::crc32c(body).to_le_bytes();
    }
    for bytes in [data, &sealed] {
        if let Ok(map) = ChunkMap::decode(bytes, &limits) {
            map.check(&limits).expect("a decoded map holds");
        }
        if let Ok(map) = ArchiveMap::decode(bytes, &limits) {
            let again = map.encode().expect("what was read can be written");
            assert_eq!(ArchiveMap::decode(&again, &limits).as_ref(), Ok(&map));
        }
    }
}

/// Log decoders; the first byte chooses the decoder.
fn log(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut limits = Limits::default();
    // With these limits, a run of a few bytes takes milliseconds, not the second that an input may
    // take.
    (limits.section_entries_max, limits.section_boxes_max) = (1 << 16, 1 << 18);
    match choice % 8 {
        0 => log_records(data, &limits),
        1 => {
            let Some((shape, bytes)) = data.split_first_chunk::<3>() else { return };
            let shape = shape.map(|byte| if byte == 0xff { u64::MAX } else { u64::from(byte) });
            if let Ok(boxes) = Boxes::decode(bytes, &shape, &limits) {
                boxes.validate(&shape).expect("decoded boxes lie in their shape");
                assert_eq!(boxes.encode(&shape).expect("decoded boxes have a form"), bytes);
            }
        }
        2 => {
            let Ok(section) = Section::decode(data, &limits) else { return };
            section.check(&limits).expect("a decoded section holds");
            let touched = section.touched().expect("a decoded section can be described");
            let entries: u64 = touched.iter().map(|part| part.entries).sum();
            assert_eq!(entries, section.entries.len() as u64);
            if let Some(bytes) = unless_too_large(section.encode(&limits)) {
                assert_eq!(Section::decode(&bytes, &limits), Ok(section));
            }
        }
        3 => {
            let Ok(directory) = Directory::decode(data, &limits) else { return };
            directory.check(&limits).expect("a decoded directory holds");
            for part in directory.sections.iter().flat_map(|section| &section.arrays).take(8) {
                assert!(directory.sections_of(&part.key, &part.start, &part.end).count() > 0);
            }
            if let Some(bytes) = unless_too_large(directory.encode(&limits)) {
                assert_eq!(Directory::decode(&bytes, &limits), Ok(directory));
            }
        }
        4 => {
            let Ok(shards) = SettledShards::decode(data, &limits) else { return };
            for array in &shards.arrays {
                let found = array.iter().take(4);
                found.for_each(|(at, commit)| {
                    assert_eq!(shards.commit_of(array.key(), &at), Some(commit));
                });
            }
            if let Some(bytes) = unless_too_large(shards.encode(&limits)) {
                assert_eq!(SettledShards::decode(&bytes, &limits), Ok(shards));
            }
        }
        5 => {
            let _ = Root::decode(data, &limits);
            // With a valid seal: the seal must not be the only defence.
            let Ok(document) = json::parse(data, &limits) else { return };
            let sealed = seal(document.clone());
            if let Ok(root) = Root::decode(&sealed, &limits) {
                let again = root.encode(&limits).expect("a decoded root holds");
                assert_eq!(Root::decode(&again, &limits), Ok(root));
            }
        }
        6 => {
            let Ok(index) = TableIndex::decode(data, &limits) else { return };
            for block in index.blocks.iter().take(8) {
                let found = index.blocks_of(block.kind, &block.keys.1);
                assert!(found.into_iter().any(|other| other == block));
            }
        }
        _ => {
            // A block under an index entry that claims as little as possible about it.
            let Some((items, bytes)) = data.split_first() else { return };
            let (kind, keys, commits) = (BlockKind::Rows, ([0; 16], [0xff; 16]), (0, u64::MAX));
            let (offset, checksum) = (0, crc32c(bytes));
            let (items, length) = (u64::from(*items), bytes.len() as u64);
            let block = TableBlock {
                kind,
                keys,
                items,
                commits,
                bounds: None,
                offset,
                bytes: length,
                checksum,
            };
            let index = TableIndex { commits: vec![1], segments: Vec::new(), blocks: Vec::new() };
            let _ = block.rows(bytes, &index, &limits);
            let _ = block.growths(bytes, &limits);
        }
    }
}

/// Returns the encoding of a decoded value; `None` if it exceeds the memory limit, which a value
/// that lost unused parts may do.
fn unless_too_large(encoded: Result<Vec<u8>, LogError>) -> Option<Vec<u8>> {
    match encoded {
        Ok(bytes) => Some(bytes),
        Err(LogError::Limit { .. }) => None,
        Err(other) => panic!("what was decoded cannot be encoded: {other}"),
    }
}

/// Heads, unchanged and with valid checksums; columns.
fn log_records(data: &[u8], limits: &Limits) {
    let mut sealed = data.to_vec();
    if let Some((body, checksum)) = sealed.split_last_chunk_mut::<4>() {
        *checksum = bedform_format::checksum::crc32c(body).to_le_bytes();
    }
    for bytes in [data, &sealed] {
        if let Ok(head) = RecordHead::decode(bytes) {
            assert!(head.record_bytes() >= head.body_bytes);
            assert_eq!(head.encode(), bytes);
        }
        if let Ok(header) = SegmentHeader::decode(bytes) {
            assert_eq!(header.encode(), bytes);
        }
        if let Ok(promise) = Promise::decode(bytes) {
            assert_eq!(promise.encode(), bytes);
        }
        if let Ok(header) = PromisesHeader::decode(bytes) {
            assert_eq!(header.encode(), bytes);
        }
    }
    if let Ok(file) = PromiseFile::decode(data, limits) {
        let numbers = file.promises.iter().map(|promise| promise.number);
        assert!(numbers.is_sorted_by(|one, next| one < next));
        assert!(file.promises.iter().all(|promise| promise.number >= file.header.first));
    }
    if let Ok((sealed, stored)) = Sealed::open(data, limits) {
        assert_eq!([&sealed.encode_head()[..], stored].concat(), data);
    }
    for count in [1, 3, data.len(), 1000] {
        if let Ok(column) = varint::decode_column(data, count) {
            assert_eq!(varint::encode_column(&column), data);
        }
    }
}

/// Paths, chunk keys and profiles.
fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(path) = ObjectPath::parse(text) {
        assert_eq!(path.as_str(), text);
        assert!(path.is_within(&path.parent()));
        assert!(text.split('/').all(|segment| segment != ".." && segment != "."));
        assert!(!text.starts_with('/') && !text.contains('\\') && !text.contains('\0'));
    }
    for prefixed in [false, true] {
        for separator in ['/', '.'] {
            let keys = ChunkKeys { prefixed, separator };
            for rank in 0..5 {
                if let Some(coordinates) = keys.parse(text, rank) {
                    assert_eq!(keys.name(&coordinates), text);
                }
            }
        }
    }
    if let Ok(profile) = Profile::from_json("a profile", text) {
        let again = profile.to_json().expect("a valid profile can be written");
        assert_eq!(Profile::from_json("again", &again).expect("valid"), profile);
        assert!(profile.optimized_chunk_bytes().is_finite());
    }
}
