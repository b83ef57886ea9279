//! Detection of the kind of data at a path or URL: a store, a foreign file, or something else.

use std::io::ErrorKind as IoErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::header::format_of;
use bedform_format::netcdf_classic::shown;
use bedform_format::references::looks_like_references;
use bedform_format::web_page;
use bedform_storage::{LocalStorage, Mode, Storage, StorageErrorKind};

use super::file_at_url::{FrontCachedFile, has_query, kind_at, names_file};
use super::{remote_of, storage_of, url_of};
use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;

/// The kind of data at a path or URL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaceKind {
    /// A Zarr v3 store: a group or an array.
    ZarrV3,
    /// A Zarr v2 store.
    ZarrV2,
    /// A plotfile of AMReX: a directory with a refined mesh.
    Plotfile,
    /// A file whose header lists its variables, by the name of its format: `netcdf-classic-1`.
    WithHeader(&'static str),
    /// An HDF5 file, perhaps NetCDF-4.
    Hdf5,
    /// A JSON document of references into other files, as kerchunk writes it.
    References,
    /// A file of another kind, with a description: "a GRIB file: convert it to NetCDF first, ...".
    OtherFile(String),
    /// A directory, or a place of an object store, without a store.
    Directory,
    /// Nothing.
    Missing,
}

/// The description of a path that is neither a plain file nor a directory.
pub(crate) const NO_FILE: &str = "a device, a socket or a pipe";
/// The description of a set of references where a file is expected.
pub(crate) const REFERENCES: &str = "a set of references: open it by itself";
/// Bytes of a document in which references and web pages are recognized.
const FRONT_BYTES: u64 = web_page::FRONT_BYTES as u64;
/// The signature of HDF5, at byte 0, 512, 1,024, 2,048, ...: the bytes before it belong to the
/// user.
const HDF5_SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// The number of offsets after 0 at which the signature is looked for.
const HDF5_PLACES: u32 = 12;
/// Documents of which a Zarr v2 store has at least one.
const ZARR_V2: [&str; 3] = [".zgroup", ".zarray", ".zmetadata"];
/// First bytes of files that people mistake for NetCDF or HDF5.
const OTHERS: [(&[u8], &str); 13] = [
    (b"GRIB", "a GRIB file: convert it to NetCDF first, for example with cfgrib and xarray"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x1f\x8b", "a gzip file: unpack it first"),
    (b"BZh", "a bzip2 file: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file: unpack it first"),
    (b"\x0e\x03\x13\x01", "an HDF4 file: convert it with h4toh5 first"),
    (b"II*\0", "a TIFF file"),
    (b"MM\0*", "a TIFF file"),
    (b"\x93NUMPY", "a NumPy file: use numpy.load"),
    (b"SIMPLE  =", "a FITS file: use astropy"),
    (b"PAR1", "a Parquet file"),
    (b"<", "an XML document: a download that failed, perhaps"),
    (b"{", "a JSON document"),
];

impl PlaceKind {
    /// The name of the kind, the same in every door: `zarr-v3`, `zarr-v2`, `netcdf-classic-1`
    /// (`-2`, `-5`), `hdf5`, `plotfile`, `references`, `file`, `directory`, `missing`.
    pub fn name(&self) -> String {
        match self {
            Self::ZarrV3 => "zarr-v3".to_owned(),
            Self::ZarrV2 => "zarr-v2".to_owned(),
            Self::Plotfile => "plotfile".to_owned(),
            Self::WithHeader(format) => (*format).to_owned(),
            Self::Hdf5 => "hdf5".to_owned(),
            Self::References => "references".to_owned(),
            Self::OtherFile(_) => "file".to_owned(),
            Self::Directory => "directory".to_owned(),
            Self::Missing => "missing".to_owned(),
        }
    }
}

/// Detects the kind of data at `path`, a path or URL, by the documents of a store and the first
/// bytes of a file. Links are followed: they are the user's own here.
///
/// # Errors
/// `PermissionDenied`, `Io` and others of storage; `InvalidArgument` for an invalid URL.
///
/// ```
/// use bedform::{OpenOptions, PlaceKind, detect};
/// # let path = std::env::temp_dir().join(format!("bedform-detect-{}.nc", std::process::id()));
/// std::fs::write(&path, b"CDF\x05")?;
/// assert_eq!(detect(&path, &OpenOptions::default())?, PlaceKind::WithHeader("netcdf-classic-5"));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn detect(path: &Path, options: &OpenOptions) -> Result<PlaceKind> {
    if let Some(url) = url_of(path) {
        return kind_of_url(url, options);
    }
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if is_missing(&error) => return Ok(PlaceKind::Missing),
        Err(error) => return Err(failed(path, &error)),
    };
    if found.is_dir() {
        return kind_of_place(&*storage_of(path, Mode::ReadOnly, options)?);
    }
    let (storage, name) = file_of(path, options)?;
    match FrontCachedFile::local(&*storage, &name, options) {
        Ok(opened) => opened.kind(),
        Err(error) if error.kind == StorageErrorKind::NotAnObject => {
            Ok(PlaceKind::OtherFile(NO_FILE.to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

/// True for a local path of anything but a directory.
pub(crate) fn is_file(path: &Path) -> bool {
    url_of(path).is_none() && std::fs::metadata(path).is_ok_and(|found| !found.is_dir())
}

/// The directory of the file at `path`, with links resolved, as storage; and the file's name in it.
///
/// # Errors
/// `NotFound`, `PermissionDenied`, `Io`; `InvalidArgument` for a path that has no name.
pub(crate) fn file_of(
    path: &Path,
    options: &OpenOptions,
) -> Result<(Arc<dyn Storage>, ObjectPath)> {
    let unusable = || Error::invalid(format!("{}: not the path of a file", path.display()));
    let real = path.canonicalize().map_err(|error| failed(path, &error))?;
    let (parent, name) = real.parent().zip(real.file_name()).ok_or_else(unusable)?;
    match name.to_str().map(ObjectPath::parse) {
        Some(Ok(name)) => Ok((storage_of(parent, Mode::ReadOnly, options)?, name)),
        _ => {
            let shown = ObjectPath::parse(&shown(name.as_bytes()))?;
            let storage = LocalStorage::open_with_alias(parent, &shown, name)?;
            Ok((Arc::new(storage), shown))
        }
    }
}

/// Detects the kind of data at a URL: a file if its name ends like one, else a store if there is
/// one.
fn kind_of_url(url: &str, options: &OpenOptions) -> Result<PlaceKind> {
    if has_query(url) {
        return kind_at(url, options);
    }
    let storage = remote_of(url, Mode::ReadOnly, &mut options.clone())?;
    if names_file(url) {
        let kind = kind_at(url, options)?;
        return if kind == PlaceKind::Missing { kind_of_place(&*storage) } else { Ok(kind) };
    }
    match kind_of_place(&*storage)? {
        PlaceKind::Directory => match kind_at(url, options)? {
            PlaceKind::Missing => Ok(PlaceKind::Directory),
            kind => Ok(kind),
        },
        kind => Ok(kind),
    }
}

/// Detects the kind of a place by its documents.
fn kind_of_place(storage: &dyn Storage) -> Result<PlaceKind> {
    let has = |name: &str| match storage.stat(&ObjectPath::root().join(name)?) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) if error.kind == StorageErrorKind::NotAnObject => Ok(false),
        Err(error) => Err(Error::from(error)),
    };
    if has("zarr.json")? {
        return Ok(PlaceKind::ZarrV3);
    }
    for name in ZARR_V2 {
        if has(name)? {
            return Ok(PlaceKind::ZarrV2);
        }
    }
    if has("Header")? && has("Level_0/Cell_H")? {
        return Ok(PlaceKind::Plotfile);
    }
    Ok(PlaceKind::Directory)
}

/// Fills a buffer with the bytes from an offset on.
pub(crate) type ReadBytes<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<()>;

/// Detects the kind of a file of `size` bytes by its first bytes.
pub(super) fn kind_of_bytes(size: u64, read: ReadBytes<'_>) -> Result<PlaceKind> {
    let mut start = vec![0; usize::try_from(size.min(16)).unwrap_or(0)];
    read(0, &mut start)?;
    if let Some((_, name)) = format_of(&start) {
        return Ok(PlaceKind::WithHeader(name));
    }
    for place in std::iter::once(0).chain((0..HDF5_PLACES).map(|step| 512_u64 << step)) {
        let mut signature = [0; HDF5_SIGNATURE.len()];
        if place + signature.len() as u64 > size {
            break;
        }
        read(place, &mut signature)?;
        if signature == *HDF5_SIGNATURE {
            return Ok(PlaceKind::Hdf5);
        }
    }
    // A page may begin with a byte order mark.
    if matches!(start.trim_ascii_start().first(), Some(b'{' | b'<' | 0xef)) {
        let mut front = vec![0; usize::try_from(size.min(FRONT_BYTES)).unwrap_or(0)];
        read(0, &mut front)?;
        if looks_like_references(&front) {
            return Ok(PlaceKind::References);
        }
        if let Some(page) = web_page::description(&front) {
            return Ok(PlaceKind::OtherFile(page));
        }
    }
    let known = OTHERS.iter().find(|(first, _)| start.starts_with(first));
    Ok(PlaceKind::OtherFile(match known {
        _ if start.is_empty() => "empty".to_owned(),
        Some((_, looks)) => (*looks).to_owned(),
        None => {
            let first: Vec<_> = start.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("of an unknown kind (it starts with {})", first.join(" "))
        }
    }))
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), IoErrorKind::NotFound | IoErrorKind::NotADirectory)
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let kind = match error.kind() {
        _ if is_missing(error) => ErrorKind::NotFound,
        IoErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn kind_of(bytes: &[u8]) -> PlaceKind {
        let storage = bedform_storage::MemoryStorage::new();
        let path = ObjectPath::parse("file").unwrap();
        let durability = bedform_storage::Durability::Process;
        storage.put(&path, bytes, durability, bedform_storage::Condition::None).unwrap();
        FrontCachedFile::local(&storage, &path, &OpenOptions::default()).unwrap().kind().unwrap()
    }

    #[test]
    fn files_are_told_by_their_first_bytes() {
        for (version, name) in
            [(1, "netcdf-classic-1"), (2, "netcdf-classic-2"), (5, "netcdf-classic-5")]
        {
            let found = kind_of(&[b'C', b'D', b'F', version]);
            assert_eq!(found, PlaceKind::WithHeader(name));
        }
        for place in [0, 512, 1024, 2048, 512 << 11] {
            let bytes = [&vec![0; place][..], HDF5_SIGNATURE].concat();
            assert_eq!(kind_of(&bytes), PlaceKind::Hdf5, "at {place}");
        }
        let looks = |bytes: &[u8]| match kind_of(bytes) {
            PlaceKind::OtherFile(looks) => looks,
            other => panic!("{other:?}"),
        };
        assert_eq!(looks(b""), "empty");
        assert!(looks(b"GRIB....").contains("GRIB"));
        assert!(looks(b"\n\n\n<html><title>Log in</title>").contains("a web page, \"Log in\""));
        assert!(looks(b"<Error>").contains("XML"));
        assert!(looks(b"CDF\x03").contains("43 44 46 03"));
        assert!(looks(&[&[0; 513][..], HDF5_SIGNATURE].concat()).contains("unknown"));
    }

    #[test]
    fn a_path_names_a_store_a_file_a_directory_or_nothing() {
        let directory =
            std::env::temp_dir().join(format!("bedform-detected-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let kind = |name: &str| detect(&directory.join(name), &OpenOptions::default()).unwrap();
        assert_eq!(kind(""), PlaceKind::Missing);
        for (name, document) in [("three", "zarr.json"), ("two", ".zarray"), ("none", "other")] {
            fs::create_dir_all(directory.join(name)).unwrap();
            fs::write(directory.join(name).join(document), "{}").unwrap();
        }
        assert_eq!(kind("three"), PlaceKind::ZarrV3);
        assert_eq!(kind("two"), PlaceKind::ZarrV2);
        assert_eq!(kind("none"), PlaceKind::Directory);
        assert_eq!(kind("three/zarr.json/below"), PlaceKind::Missing);
        fs::write(directory.join("file"), HDF5_SIGNATURE).unwrap();
        std::os::unix::fs::symlink(directory.join("file"), directory.join("none/link")).unwrap();
        assert_eq!(kind("none/link"), PlaceKind::Hdf5);
        fs::remove_dir_all(directory).unwrap();
    }
}
