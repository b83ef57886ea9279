//! Decoders and encoders for every format that Bedform reads or writes; the part of Bedform that
//! handles untrusted bytes.
//!
//! Nothing here opens a file, starts a thread or reads a clock. So every decoder can be fuzzed, and
//! this crate suffices to write a second implementation.
//!
//! | module | content |
//! |---|---|
//! | [`path`] | [`ObjectPath`]: a name that cannot leave its store |
//! | [`size`] | sizes such as `256 MiB` |
//! | [`shown`] | escapes untrusted text for messages and tables |
//! | [`limits`] | [`Limits`]: bounds on the sizes and counts in a file |
//! | [`checksum`] | CRC-32C, seals and fingerprints |
//! | [`dtype`] | [`DataType`]: types of elements and their names |
//! | [`codec`] | codec chains, and their names in metadata |
//! | [`json`] | a strict JSON parser, and the writer |
//! | [`shard`] | the tail of a shard: index and stamp |
//! | [`metadata`] | arrays and groups: Zarr v3 and v2 documents |
//! | [`amr`] | the texts of AMReX plotfiles: levels, boxes, locations of FABs |
//! | [`archive`] | many foreign files that are read as one store |
//! | [`chunk_map`] | the extents of a foreign file's variables |
//! | [`index`] | records of value indexes, which name blocks and source objects |
//! | [`mesh`] | records of refined meshes in stores |
//! | [`mesh_replica`] | catalogues of the replicas of refined meshes |
//! | [`log`] | segments, sections, directories and roots of the log |
//! | [`replica`] | catalogues of replicas, and the elements of each replica |
//! | [`sealed`] | JSON objects with an embedded checksum |
//! | [`header`] | file formats whose header locates all variables |
//! | [`netcdf_classic`] | the header of NetCDF classic files |
//! | [`hdf5`] | the metadata of HDF5 and NetCDF-4 files |
//! | [`references`] | sets of references into other files, as kerchunk writes them |
//! | [`mod@trace`] | recorded reads, their selections, and the knowledge merged from them |
//! | [`web_page`] | web pages in the place of data |

pub mod amr;
pub mod archive;
pub mod base64;
pub mod checksum;
pub mod chunk_map;
pub mod codec;
pub mod dtype;
mod fields;
pub mod hdf5;
pub mod header;
pub mod index;
pub mod json;
pub mod limits;
pub mod log;
pub mod mesh;
pub mod mesh_replica;
pub mod metadata;
pub mod netcdf_classic;
pub mod path;
pub mod references;
pub mod replica;
pub mod sealed;
pub mod shard;
pub mod shown;
pub mod size;
pub mod trace;
pub mod web_page;

pub use codec::{BytesCodec, CodecChain, Serializer};
pub use dtype::{DataType, Endian, TimeUnit};
pub use limits::Limits;
pub use path::{ObjectPath, PathError};
