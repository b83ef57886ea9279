//! Prints the content of HDF5 files as the parser reads it, one line of JSON per file.
//!
//! `hdf5_dump [--map] FILE..` prints all objects, or with `--map` the chunk map.
//! `tools/compare_hdf5.py` compares the output with h5py's.
#![allow(clippy::print_stdout, missing_docs)]

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use bedform_format::Limits;
use bedform_format::chunk_map::{ForeignStorage, SourceVersion};
use bedform_format::hdf5::{
    BLOCK_BYTES, ChunkIndex, Dataset, Dataspace, Datatype, Hdf5Error, Hdf5File, Hdf5FillValue,
    Hdf5Layout, Hdf5Object, Hdf5Value, LinkTarget, ManyRead, ObjectKind, ReadAt, ReadError,
    TypeKind, chunk_map,
};
use serde_json::{Value as Json, json};

struct Local(File);

impl ReadAt for Local {
    fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn read_many(&self, _: &[(u64, usize)]) -> ManyRead {
        Ok(None)
    }
}

fn main() -> std::io::Result<()> {
    let mut paths: Vec<String> = std::env::args().skip(1).collect();
    let is_map = paths.iter().any(|argument| argument == "--map");
    paths.retain(|argument| argument != "--map");
    let mut out = std::io::stdout().lock();
    for path in paths {
        let found = if is_map { map(&path) } else { dump(&path) };
        let found = found.unwrap_or_else(|error| failure(&error));
        writeln!(out, "{}", json!({ "path": path, "found": found }))?;
    }
    Ok(())
}

fn failure(error: &Hdf5Error) -> Json {
    let kind = match error {
        Hdf5Error::NotHdf5 => "not-hdf5",
        Hdf5Error::Unknown { .. } => "unknown",
        Hdf5Error::Corrupt { .. } => "corrupt",
        Hdf5Error::Limit { .. } => "limit",
        _ => "read",
    };
    json!({ "error": kind, "message": error.to_string() })
}

fn open(path: &str) -> Result<(Local, u64), Hdf5Error> {
    let file = File::open(path).map_err(|error| Hdf5Error::Read(error.into()))?;
    let size = file.metadata().map_err(|error| Hdf5Error::Read(error.into()))?.len();
    Ok((Local(file), size))
}

fn map(path: &str) -> Result<Json, Hdf5Error> {
    let (reader, size) = open(path)?;
    let limits = Limits::default();
    let file = Hdf5File::open(&reader, size, BLOCK_BYTES, &limits)?;
    let source = SourceVersion { size, ..SourceVersion::default() };
    let map = chunk_map(&file, &source, &limits)?;
    let description: Json = serde_json::from_slice(&map.description()?).unwrap_or_default();
    let tables: Vec<Json> = map
        .arrays
        .iter()
        .filter_map(|array| match &array.storage {
            ForeignStorage::Chunked { chunks, .. } => Some(chunks),
            _ => None,
        })
        .map(|table| json!([table.indexes, table.offsets, table.lengths, table.filter_masks]))
        .collect();
    Ok(json!({ "description": description, "tables": tables }))
}

fn dump(path: &str) -> Result<Json, Hdf5Error> {
    let (reader, size) = open(path)?;
    let file = Hdf5File::open(&reader, size, BLOCK_BYTES, &Limits::default())?;
    let root = file.superblock().root;
    let mut walk = Walk { file: &file, objects: Vec::new(), met: HashSet::new() };
    walk.visit("/", root)?;
    Ok(json!({ "version": file.superblock().version, "objects": walk.objects }))
}

struct Walk<'f, 'r> {
    file: &'f Hdf5File<'r>,
    objects: Vec<Json>,
    met: HashSet<u64>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, path: &str, address: u64) -> Result<(), Hdf5Error> {
        // An object with several names is shown under the first one only.
        if !self.met.insert(address) {
            return Ok(());
        }
        let object = match self.file.object(address) {
            Ok(object) => object,
            Err(error) => {
                self.objects.push(json!({ "path": path, "failure": failure(&error) }));
                return Ok(());
            }
        };
        let mut shown = match &object.kind {
            ObjectKind::Group => return self.group(path, &object),
            ObjectKind::Dataset(dataset) => self.dataset(dataset),
            ObjectKind::Datatype(datatype) => json!({ "kind": "type", "dtype": type_of(datatype) }),
        };
        shown["path"] = path.into();
        shown["attributes"] = self.attributes(&object);
        self.objects.push(shown);
        Ok(())
    }

    fn group(&mut self, path: &str, object: &Hdf5Object) -> Result<(), Hdf5Error> {
        let links = self.file.links(object)?.links;
        let names: Vec<String> = links.iter().map(|link| text(&link.name)).collect();
        let attributes = self.attributes(object);
        self.objects.push(json!({
            "path": path, "kind": "group", "links": names, "attributes": attributes,
        }));
        for (link, name) in links.iter().zip(names) {
            if let LinkTarget::Hard(address) = link.target {
                let separator = if path == "/" { "" } else { "/" };
                self.visit(&format!("{path}{separator}{name}"), address)?;
            }
        }
        Ok(())
    }

    fn attributes(&self, object: &Hdf5Object) -> Json {
        let attributes = match self.file.attributes(object) {
            Ok(attributes) => attributes,
            Err(error) => return failure(&error),
        };
        let shown = attributes.iter().map(|attribute| {
            let values = match self.file.values(attribute) {
                Ok(values) => values.iter().map(value).collect(),
                Err(error) => failure(&error),
            };
            let shape = match &attribute.space {
                Dataspace::Null => Json::Null,
                space => json!(space.shape()),
            };
            json!([text(&attribute.name), shape, type_of(&attribute.datatype), values])
        });
        shown.collect()
    }

    fn dataset(&self, dataset: &Dataset) -> Json {
        let (shape, max_shape) = match &dataset.space {
            Dataspace::Null => (Json::Null, Json::Null),
            Dataspace::Simple { shape, max_shape } => (json!(shape), json!(max_shape)),
            _ => (json!([]), json!([])),
        };
        let filters: Vec<Json> = dataset
            .filters
            .iter()
            .map(|filter| json!([filter.id, u16::from(filter.optional), filter.values]))
            .collect();
        let fill = match &dataset.fill_value {
            Hdf5FillValue::Undefined => json!("undefined"),
            Hdf5FillValue::Default => json!("default"),
            Hdf5FillValue::Value(bytes) => json!(hexadecimal(bytes)),
        };
        json!({
            "kind": "dataset", "shape": shape, "max_shape": max_shape,
            "dtype": type_of(&dataset.datatype), "fill": fill, "filters": filters,
            "layout": self.layout(dataset),
        })
    }

    fn layout(&self, dataset: &Dataset) -> Json {
        match &dataset.layout {
            Hdf5Layout::Compact(data) => json!(["compact", hexadecimal(data)]),
            Hdf5Layout::Contiguous { offset, length } => json!(["contiguous", offset, length]),
            Hdf5Layout::Virtual => json!(["virtual"]),
            Hdf5Layout::External => json!(["external"]),
            Hdf5Layout::Chunked(layout) => {
                let mut chunks = Vec::new();
                let found = self.file.chunks(dataset, &mut |chunk| {
                    let place = (chunk.offset, chunk.length, chunk.filter_mask);
                    chunks.push(json!([chunk.position, place.0, place.1, place.2]));
                    Ok(())
                });
                let chunks = match found {
                    Ok(()) => Json::Array(chunks),
                    Err(error) => failure(&error),
                };
                let index = match layout.index {
                    ChunkIndex::Single { .. } => "Single".to_owned(),
                    other => format!("{other:?}"),
                };
                json!(["chunked", layout.shape, index, layout.edges_unfiltered, chunks])
            }
            _ => json!(["?"]),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        shown.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    shown
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn type_of(datatype: &Datatype) -> Json {
    let size = datatype.size;
    match &datatype.kind {
        TypeKind::Integer { bits, signed } => {
            let order = format!("{:?}", bits.order);
            json!(["integer", size, order, bits.offset, bits.precision, signed])
        }
        TypeKind::Float { bits, format } => json!([
            "float",
            size,
            format!("{:?}", bits.order),
            bits.offset,
            bits.precision,
            [format.sign_at, format.exponent_at, format.exponent_bits],
            [format.mantissa_at, format.mantissa_bits],
            format.exponent_bias,
        ]),
        TypeKind::Text(form) => json!(["text", size, format!("{:?}", form.padding), form.utf8]),
        TypeKind::VariableText(form) => {
            json!(["variable-text", format!("{:?}", form.padding), form.utf8])
        }
        TypeKind::Bits(bits) => {
            json!(["bits", size, format!("{:?}", bits.order), bits.offset, bits.precision])
        }
        TypeKind::Opaque { tag } => json!(["opaque", size, text(tag)]),
        TypeKind::Compound(members) => {
            let members: Vec<Json> = members
                .iter()
                .map(|member| json!([text(&member.name), member.offset, type_of(&member.datatype)]))
                .collect();
            json!(["compound", size, members])
        }
        TypeKind::Reference(kind) => json!(["reference", size, format!("{kind:?}")]),
        TypeKind::Enumeration { base, members } => {
            let members: Vec<Json> = members
                .iter()
                .map(|(name, value)| json!([text(name), hexadecimal(value)]))
                .collect();
            json!(["enumeration", type_of(base), members])
        }
        TypeKind::Sequence(base) => json!(["sequence", type_of(base)]),
        TypeKind::Array { shape, base } => json!(["array", shape, type_of(base)]),
        TypeKind::Complex(base) => json!(["complex", type_of(base)]),
        TypeKind::Time => json!(["time", size]),
        _ => json!(["?"]),
    }
}

fn value(value: &Hdf5Value) -> Json {
    match value {
        Hdf5Value::Integer(number) => json!(number.to_string()),
        Hdf5Value::Float(number) => json!(["f", hexadecimal(&number.to_be_bytes())]),
        Hdf5Value::Text(bytes) => json!(["t", hexadecimal(bytes)]),
        Hdf5Value::Reference(address) => json!(["r", address]),
        Hdf5Value::List(values) => json!(["l", values.iter().map(self::value).collect::<Vec<_>>()]),
        Hdf5Value::Record(values) => {
            json!(["c", values.iter().map(self::value).collect::<Vec<_>>()])
        }
        Hdf5Value::Bytes(bytes) => json!(["b", hexadecimal(bytes)]),
        _ => json!(["?"]),
    }
}
