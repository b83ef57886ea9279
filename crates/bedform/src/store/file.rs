//! A foreign file as a store: its groups and variables.

use std::collections::BTreeMap;

use bedform_format::ObjectPath;
use bedform_geometry::Selection;
use serde_json::{Map, Value};

use super::verify::Verified;
use crate::array::Array;
use crate::array::verified::note;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::foreign::attributes::{AttributeStyle, group_attributes, variable_attributes};
use crate::options::{OpenOptions, ProgressCallback};
use crate::zarr::nodes::NodeKind;

/// A foreign file, and the options that opened it.
#[derive(Debug)]
pub(super) struct FileStore {
    pub(super) file: ForeignFile,
    pub(super) options: OpenOptions,
}

impl FileStore {
    pub(super) fn format(&self) -> &str {
        &self.file.map().format
    }

    pub(super) fn kind(&self, path: &ObjectPath) -> Option<NodeKind> {
        if path.is_root() || self.file.group(path.as_str()).is_some() {
            return Some(NodeKind::Group);
        }
        self.file.described(path.as_str()).map(|_| NodeKind::Array)
    }

    pub(super) fn nodes(&self) -> Result<BTreeMap<ObjectPath, NodeKind>> {
        let map = self.file.map();
        let groups = map.groups.iter().map(|group| (&group.path, NodeKind::Group));
        let arrays = map.arrays.iter().map(|array| (&array.path, NodeKind::Array));
        let nodes = groups.filter(|(path, _)| !path.is_empty()).chain(arrays);
        nodes.map(|(path, kind)| Ok((ObjectPath::parse(path)?, kind))).collect()
    }

    pub(super) fn group_attributes(&self, path: &ObjectPath) -> Result<Map<String, Value>> {
        match self.file.group(path.as_str()) {
            Some(group) => {
                Ok(group_attributes(&group.attributes, AttributeStyle::of(self.file.map())))
            }
            None if path.is_root() => Ok(Map::new()),
            None => Err(self.missing("group", path)),
        }
    }

    pub(super) fn variable_attributes(&self, path: &ObjectPath) -> Result<Map<String, Value>> {
        let array = self.file.described(path.as_str());
        let array = array.ok_or_else(|| self.missing("variable", path))?;
        Ok(variable_attributes(array, AttributeStyle::of(self.file.map())))
    }

    fn missing(&self, what: &str, path: &ObjectPath) -> Error {
        Error::new(ErrorKind::NotFound, format!("no {what} {path:?} in {}", self.file.name()))
    }

    /// Reads the variables at `paths` except those that only the library of their format reads.
    pub(super) fn verify(
        &self,
        paths: &[ObjectPath],
        progress: ProgressCallback<'_>,
    ) -> Result<Verified> {
        let mut found = Verified::default();
        for (done, path) in (0..).zip(paths) {
            progress(done, paths.len() as u64);
            let outcome = match Array::of_file(&self.file, path.as_str()) {
                Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
                Err(error) => Err(error),
                Ok(array) => {
                    let all = Selection::all(&array.shape()?);
                    array.visit(&all, &|_| Ok(())).map(drop)
                }
            };
            if let Err(error) = outcome {
                note(error.at(path.as_str()), &mut found.problems)?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use bedform_format::chunk_map::{
        ChunkMap, ForeignArray, ForeignAttribute, ForeignEncoding, ForeignGroup, ForeignStorage,
    };
    use bedform_format::{DataType, Endian};
    use bedform_geometry::Region;
    use bedform_storage::{LocalStorage, Mode, Storage};

    use super::*;
    use crate::comm::Alone;
    use crate::foreign::source_version;
    use crate::log::session::SessionOptions;
    use crate::store::Store;
    use crate::write::elements::Elements;

    /// A directory of one test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("bedform-file-store-{name}-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir(&directory).unwrap();
            Self(directory)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const ELEMENTS: [i16; 6] = [1, -2, 3, -4, 5, -6];

    /// Writes a file that begins like HDF5, followed by six big-endian numbers. Its chunk map has
    /// them as `g/v`, and a variable that only the library reads.
    fn write_hdf5(path: &Path) -> ChunkMap {
        let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
        bytes.extend(ELEMENTS.iter().flat_map(|element| element.to_be_bytes()));
        fs::write(path, &bytes).unwrap();
        let storage = LocalStorage::open(path.parent().unwrap(), Mode::ReadOnly).unwrap();
        let name = ObjectPath::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let variable = |path: &str, storage| ForeignArray {
            path: path.to_owned(),
            shape: vec![2, 3],
            unlimited: vec![false, false],
            data_type: Some(DataType::Int16),
            endian: Endian::Big,
            fill_value: None,
            dimension_names: Some(vec!["y".to_owned(), "x".to_owned()]),
            attributes: vec![("units".to_owned(), ForeignAttribute::Text("K".to_owned()))],
            encoding: ForeignEncoding::default(),
            storage,
        };
        let group = |path: &str| ForeignGroup { path: path.to_owned(), ..ForeignGroup::default() };
        let reason = "text of any length".to_owned();
        ChunkMap {
            source: source_version(&storage.stat(&name).unwrap()),
            format: "netcdf4".to_owned(),
            groups: vec![group(""), group("g")],
            arrays: vec![
                variable("g/v", ForeignStorage::Contiguous { offset: 8, length: 12 }),
                variable("text", ForeignStorage::Native { reason }),
            ],
        }
    }

    /// The file with its chunk map kept beside it, opened as a store.
    fn opened(path: &Path) -> Store {
        let map = write_hdf5(path);
        fs::create_dir(path.with_extension("h5.bedform")).unwrap();
        let options = OpenOptions::default();
        ForeignFile::open_with_map(path, map, false, &options).unwrap();
        Store::open_path(path, options).unwrap()
    }

    fn path(text: &str) -> ObjectPath {
        ObjectPath::parse(text).unwrap()
    }

    #[test]
    fn a_file_whose_chunk_map_is_kept_is_a_store_of_its_groups_and_variables() {
        let scratch = Scratch::new("store");
        let store = opened(&scratch.0.join("f.h5"));
        assert_eq!(store.format().unwrap(), "netcdf4");
        let nodes = store.nodes().unwrap();
        let kinds = [("g", NodeKind::Group), ("g/v", NodeKind::Array), ("text", NodeKind::Array)];
        assert_eq!(nodes, kinds.map(|(name, kind)| (path(name), kind)).into());
        assert_eq!(store.kind(&path("nothing")).unwrap(), None);
        assert_eq!(store.attributes(&path("text")).unwrap()["units"], "K");
        let array = store.array(&path("g/v")).unwrap();
        assert_eq!(array.dimension_names().unwrap(), [Some("y".to_owned()), Some("x".to_owned())]);
        let described = array.describe().unwrap();
        assert_eq!(described["dtype"], "int16");
        assert_eq!(described["attributes"]["units"], "K");
        let mut buffer = [0; 4];
        let selection = Region::new([0, 1], [2, 1]).unwrap().into();
        array.read(&selection, &mut buffer).unwrap();
        let found = buffer.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair));
        assert_eq!(found.collect::<Vec<_>>(), [-2, 5]);
        let error = store.array(&path("text")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn whatever_would_change_a_file_says_that_foreign_files_are_never_written() {
        let scratch = Scratch::new("written");
        let file = scratch.0.join("f.h5");
        let store = opened(&file);
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let selection = Region::new([0, 0], [2, 3]).unwrap().into();
        let array = store.array(&path("g/v")).unwrap();
        let errors = [
            Store::open_path(&file, options).unwrap_err(),
            store.create_group(&path("new"), &Map::new()).unwrap_err(),
            store.delete(&path("g")).unwrap_err(),
            store.set_attributes(&path("g"), Map::new()).unwrap_err(),
            store.session(Box::new(Alone), SessionOptions::default()).unwrap_err(),
            store.settle().unwrap_err(),
            array.write(&selection, Elements::Bytes(&[0; 12])).unwrap_err(),
            array.resize(&[3, 3]).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            assert!(error.to_string().contains("foreign files are never written"), "{error}");
        }
    }

    #[test]
    fn a_file_whose_chunk_map_is_not_known_says_what_to_do() {
        let scratch = Scratch::new("unknown");
        let file = scratch.0.join("f.h5");
        let map = write_hdf5(&file);
        let options = OpenOptions::default();
        let error = Store::open_path(&file, options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("bedform info"), "{error}");
        // A chunk map of an earlier state of the file is ignored.
        fs::create_dir(file.with_extension("h5.bedform")).unwrap();
        ForeignFile::open_with_map(&file, map, false, &options).unwrap();
        assert!(ForeignFile::find(&file, true, &options).unwrap().is_none(), "of other references");
        assert!(Store::open_path(&file, options.clone()).is_ok());
        fs::write(&file, [fs::read(&file).unwrap(), vec![0]].concat()).unwrap();
        let error = Store::open_path(&file, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_classic_file_needs_no_kept_chunk_map() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bedform-format/golden");
        for version in [1, 2, 5] {
            let file = golden.join(format!("classic-{version}.nc"));
            let store = Store::open_path(&file, OpenOptions::default()).unwrap();
            assert_eq!(store.format().unwrap(), format!("netcdf-classic-{version}"));
            assert!(store.verify(None, &|_, _| ()).unwrap().problems.is_empty());
        }
    }

    #[test]
    fn verify_names_the_variable_whose_bytes_are_gone() {
        let scratch = Scratch::new("verify");
        let file = scratch.0.join("f.h5");
        let store = opened(&file);
        assert!(store.verify(None, &|_, _| ()).unwrap().problems.is_empty());
        fs::write(&file, b"short").unwrap();
        let problems = store.verify(None, &|_, _| ()).unwrap().problems;
        assert!(problems.len() == 1 && problems[0].contains("g/v"), "{problems:?}");
        assert!(store.verify(Some(&[path("nowhere")]), &|_, _| ()).is_err());
    }
}
