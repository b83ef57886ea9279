//! Bytes to types and back: the part of Bedform that meets bytes it cannot trust.
//!
//! Nothing here opens a file, starts a thread or reads a clock, so that every decoder can be fuzzed
//! and a second implementation could be written from this crate alone.
//!
//! | module | holds |
//! |---|---|
//! | [`path`] | [`ObjectPath`]: a name that cannot leave its store |
//! | [`size`] | sizes as people write them |
//! | [`shown`] | text of others as it is shown to people |
//! | [`limits`] | [`Limits`]: what a file may claim before it is refused |
//! | [`checksum`] | CRC-32C |
//! | [`dtype`] | [`DataType`]: types of elements and their names |
//! | [`codec`] | what a codec chain is, as metadata name it |
//! | [`json`] | JSON documents from outside, read strictly |
//! | [`shard`] | the tail of a shard: index and stamp |
//! | [`metadata`] | arrays and groups: Zarr v3 and v2 documents |
//! | [`archive`] | many foreign files that are read as one |
//! | [`chunk_map`] | where the bytes of a foreign file's variables lie |
//! | [`log`] | segments, sections, directories and roots of the log |
//! | [`replica`] | catalogues of replicas, and the elements that a replica has |
//! | [`sealed`] | JSON objects with a checksum of their own |
//! | [`header`] | formats whose files say in a header where their variables lie, as a chunk map |
//! | [`netcdf_classic`] | the header of NetCDF classic files |
//! | [`hdf5`] | the metadata of HDF5 and NetCDF-4 files |
//! | [`references`] | sets of references into other files, as kerchunk writes them |
//! | [`mod@trace`] | recorded reads, their selections, and the knowledge that they are merged into |

pub mod archive;
pub mod checksum;
pub mod chunk_map;
pub mod codec;
pub mod dtype;
mod fields;
pub mod hdf5;
pub mod header;
pub mod json;
pub mod limits;
pub mod log;
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

pub use codec::{BytesCodec, CodecChain, Serializer};
pub use dtype::{DataType, Endian, TimeUnit};
pub use limits::Limits;
pub use path::{ObjectPath, PathError};
