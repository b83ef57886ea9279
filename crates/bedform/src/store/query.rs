//! Queries of the arrays of a group.

use bedform_format::ObjectPath;
use strsim::osa_distance;

use super::{Store, StoreBacking};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::query::{QueryArray, QueryOptions, ValueQuery};
use crate::zarr::nodes::NodeKind;

/// Attempts of a call whose data are settled or replaced meanwhile.
const ATTEMPTS_MAX: usize = 5;
/// The most names that the error of an unknown name lists.
const NAMES_LISTED_MAX: usize = 12;
/// Characters at the start of a name by which it is compared with others.
const NAME_COMPARED_MAX: usize = 64;

/// A query of the arrays of a group of a store. Cheap to clone; safe to share between threads.
///
/// Each call reads all arrays as of one moment of its own, later ones see later commits.
#[derive(Debug, Clone)]
pub struct StoreQuery {
    group: QueriedGroup,
    expression: String,
    options: QueryOptions,
    dims: Vec<String>,
}

/// The group of a query, as of one moment: the arrays that it names.
#[derive(Debug, Clone)]
pub struct QueriedGroup {
    store: Store,
    path: ObjectPath,
}

impl Store {
    /// Makes a query of the expression `text` over arrays of the group at `path`. Reads their
    /// metadata, and no elements. It has as many threads as the store, unless `options` say.
    ///
    /// # Errors
    /// Those of [`ValueQuery::new`]; `NotFound` for a name without an array, with the names of the
    /// group, near ones first.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bedform::{Elements, NewArray, OpenOptions, Store};
    /// use bedform_format::ObjectPath;
    /// use bedform_geometry::Selection;
    /// use bedform_storage::MemoryStorage;
    /// use serde_json::json;
    ///
    /// let mut options = OpenOptions::default();
    /// options.writable = true;
    /// let store = Store::create(Arc::new(MemoryStorage::new()), &Default::default(), options)?;
    /// let new = json!({"shape": [4], "dtype": "uint8", "dims": ["time"]});
    /// let new = NewArray::from_json_with(&new, &OpenOptions::default())?;
    /// let t = store.create_array(&ObjectPath::parse("t")?, &new)?;
    /// t.write(&Selection::all(&[4]), Elements::Bytes(&[3, 9, 4, 7]))?;
    ///
    /// let query = store.query("t > 3", &ObjectPath::root(), Default::default())?;
    /// let (_, counts) = query.at_one_moment(|query, _| query.count(None))?;
    /// assert_eq!((counts, query.dims()), (vec![3], ["time".to_owned()].as_slice()));
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn query(
        &self,
        text: &str,
        path: &ObjectPath,
        mut options: QueryOptions,
    ) -> Result<StoreQuery> {
        options.threads = options.threads.or(self.options().threads);
        let group = QueriedGroup { store: self.clone(), path: path.clone() };
        let mut query =
            StoreQuery { group, expression: text.to_owned(), options, dims: Vec::new() };
        query.dims = query.repeated(|query, _| Ok(query.dims().to_vec()))?;
        Ok(query)
    }

    /// The name of its place, as errors have it.
    fn name(&self) -> String {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.storage.name(),
            StoreBacking::File(store) => store.file.name(),
        }
    }

    /// True if the store stays at one moment: a snapshot, or a foreign file.
    fn is_of_one_moment(&self) -> bool {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.held.is_some(),
            StoreBacking::File(_) => true,
        }
    }
}

impl StoreQuery {
    /// The dimensions of the query.
    pub fn dims(&self) -> &[String] {
        &self.dims
    }

    /// Calls `act` with the query and the group as of one moment, for which all that it reads
    /// holds. If data of that moment are settled or replaced meanwhile, calls it again with a later
    /// one, 5 times at most.
    ///
    /// # Errors
    /// That of `act`; `Conflict` if the arrays have other dimensions than when the query was made;
    /// `SnapshotMoved` if data kept moving, or the store is a snapshot whose data are gone.
    pub fn at_one_moment<T>(
        &self,
        mut act: impl FnMut(&ValueQuery, &QueriedGroup) -> Result<T>,
    ) -> Result<T> {
        self.repeated(|query, group| {
            if query.dims() != self.dims {
                let (now, then) = (query.dims().join(", "), self.dims.join(", "));
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "the query has the dimensions {now} now, it had {then} when it was opened: \
                         open it again"
                    ),
                ));
            }
            act(query, group)
        })
    }

    fn repeated<T>(
        &self,
        mut act: impl FnMut(&ValueQuery, &QueriedGroup) -> Result<T>,
    ) -> Result<T> {
        if self.group.store.is_of_one_moment() {
            return self.once(&self.group, &mut act);
        }
        let mut attempt = 1;
        loop {
            let then = self.group.store.snapshot()?;
            let group = QueriedGroup { store: then, path: self.group.path.clone() };
            match self.once(&group, &mut act) {
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => {
                    if attempt == ATTEMPTS_MAX {
                        return Err(error.followed_by(format!("it was tried {attempt} times")));
                    }
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn once<T>(
        &self,
        group: &QueriedGroup,
        act: &mut impl FnMut(&ValueQuery, &QueriedGroup) -> Result<T>,
    ) -> Result<T> {
        let arrays = group.arrays(&ValueQuery::names(&self.expression)?)?;
        let query = ValueQuery::new(&self.expression, &arrays, self.options.clone())?;
        act(&query, group)
    }
}

impl QueriedGroup {
    /// Opens an array by its name or path in the group.
    ///
    /// # Errors
    /// `NotFound` with up to 12 names of the group, near ones first; those of [`Store::array`].
    pub fn array(&self, name: &str) -> Result<Array> {
        let name = name.trim_matches('/');
        let path = self.path.join(name)?;
        // Not the kind first: both calls read the metadata.
        match self.store.array(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.unknown(name)?),
            found => found,
        }
    }

    /// Opens several arrays, as [`QueriedGroup::array`] does, for calls of a [`ValueQuery`].
    ///
    /// # Errors
    /// As [`QueriedGroup::array`].
    pub fn arrays(&self, names: &[String]) -> Result<Vec<QueryArray>> {
        names.iter().map(|name| Ok(QueryArray::new(name.clone(), self.array(name)?))).collect()
    }

    /// Returns the error of a name without an array.
    fn unknown(&self, name: &str) -> Result<Error> {
        let place = self.store.name();
        if self.store.is_array() {
            let text = format!("{place} is a single array: a query names arrays of a group");
            return Ok(Error::invalid(text));
        }
        let nodes = match self.store.nodes() {
            // The names are a help; a store that may not be listed has none.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
            nodes => Some(nodes?),
        };
        let kind_of = |path: &ObjectPath| nodes.as_ref().and_then(|nodes| nodes.get(path).copied());
        let missing = |text: String| Error::new(ErrorKind::NotFound, text);
        if !self.path.is_root() && nodes.is_some() && kind_of(&self.path) != Some(NodeKind::Group) {
            return Ok(missing(format!("no group {:?} in {place}", self.path)));
        }
        if kind_of(&self.path.join(name)?) == Some(NodeKind::Group) {
            let text = format!("{name:?} is a group of {place}: a query names arrays");
            return Ok(Error::invalid(text));
        }
        let place = match self.path.is_root() {
            true => place,
            false => format!("group {:?} of {place}", self.path),
        };
        let nodes = nodes.unwrap_or_default();
        let arrays = nodes.iter().filter(|(_, kind)| **kind == NodeKind::Array);
        let prefix = if self.path.is_root() { String::new() } else { format!("{}/", self.path) };
        let below = arrays.filter_map(|(path, _)| path.as_str().strip_prefix(&prefix)).collect();
        let text = format!("no array {name:?} in {place}: it has {}", near_first(name, below));
        Ok(missing(text))
    }
}

/// Lists some of the names, those that are most like `name` first.
fn near_first(name: &str, mut names: Vec<&str>) -> String {
    let start =
        |name: &str| name.chars().take(NAME_COMPARED_MAX).collect::<String>().to_lowercase();
    let wanted = start(name);
    names.sort_by_cached_key(|known| osa_distance(&wanted, &start(known)));
    let is_cut = names.len() > NAMES_LISTED_MAX;
    names.truncate(NAMES_LISTED_MAX);
    match names.as_slice() {
        [] => "none".to_owned(),
        listed => format!("{}{}", listed.join(", "), if is_cut { ", ..." } else { "" }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bedform_geometry::Selection;
    use bedform_storage::MemoryStorage;
    use serde_json::{Map, json};

    use super::*;
    use crate::comm::Alone;
    use crate::log::session::{Session, SessionOptions};
    use crate::options::OpenOptions;
    use crate::write::elements::Elements;
    use crate::zarr::NewArray;

    fn path(text: &str) -> ObjectPath {
        ObjectPath::parse(text).unwrap()
    }

    /// A store with the arrays `g/t` and `g/u` of four bytes, all 1.
    fn store() -> Store {
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let store = Store::create(Arc::new(MemoryStorage::new()), &Map::new(), options).unwrap();
        for name in ["g/t", "g/u"] {
            create(&store, name, &[4], &["time"]);
        }
        commit_and_settle(&store, 1);
        store
    }

    fn create(store: &Store, name: &str, shape: &[u64], dims: &[&str]) {
        let new = json!({"shape": shape, "dtype": "uint8", "dims": dims});
        let new = NewArray::from_json_with(&new, &OpenOptions::default()).unwrap();
        store.create_array(&path(name), &new).unwrap();
    }

    fn session(store: &Store) -> Session {
        store.session(Box::new(Alone), SessionOptions::default()).unwrap()
    }

    fn commit(session: &mut Session, value: u8) {
        for name in ["g/t", "g/u"] {
            let elements = Elements::Bytes(&[value; 4]);
            session.write(&path(name), &Selection::all(&[4]), elements).unwrap();
        }
        session.commit().unwrap();
    }

    /// Moves the data on: shards of the next commit take the place of those that snapshots need.
    fn commit_and_settle(store: &Store, value: u8) {
        let mut session = session(store);
        commit(&mut session, value);
        session.close().unwrap();
    }

    fn query(store: &Store, text: &str) -> Result<StoreQuery> {
        store.query(text, &path("g"), QueryOptions::default())
    }

    fn matches(query: &StoreQuery) -> u64 {
        query.at_one_moment(|query, _| query.count(None)).unwrap().1[0]
    }

    #[test]
    fn arrays_of_a_call_are_those_of_one_commit() {
        let store = store();
        let query = query(&store, "t == u").unwrap();
        let mut session = session(&store);
        commit(&mut session, 2);
        let found = query.at_one_moment(|query, group| {
            let before = query.points(&group.arrays(&["t".to_owned()])?, None)?;
            commit(&mut session, 3);
            let after = query.points(&group.arrays(&["u".to_owned()])?, None)?;
            Ok((before.values, after.values))
        });
        let (before, after) = found.unwrap();
        assert_eq!(before, after);
        assert_eq!(before[0].as_bytes(), [2; 4]);
        let later = query
            .at_one_moment(|query, group| query.points(&group.arrays(&["u".to_owned()])?, None));
        assert_eq!(later.unwrap().values[0].as_bytes(), [3; 4]);
    }

    #[test]
    fn a_call_begins_again_when_its_data_were_replaced_and_gives_up_in_the_end() {
        let store = store();
        let query = query(&store, "t == u").unwrap();
        let count = |moves: u8| {
            let mut calls = 0;
            let found = query.at_one_moment(|query, _| {
                calls += 1;
                if calls <= moves {
                    commit_and_settle(&store, 10 * moves + calls);
                }
                query.count(None)
            });
            (found.map(|(_, counts)| counts), calls)
        };
        let (found, calls) = count(2);
        assert_eq!((found.unwrap(), calls), (vec![4], 3));
        let (found, calls) = count(9);
        let error = found.unwrap_err();
        assert_eq!((error.kind(), calls), (ErrorKind::SnapshotMoved, 5), "{error}");

        // A snapshot stays where it is.
        let then = store.snapshot().unwrap();
        let query = then.query("t == u", &path("g"), QueryOptions::default()).unwrap();
        let mut calls = 0;
        let found = query.at_one_moment(|query, _| {
            calls += 1;
            commit_and_settle(&store, 100 + calls);
            query.count(None)
        });
        assert_eq!((found.unwrap_err().kind(), calls), (ErrorKind::SnapshotMoved, 1));
    }

    #[test]
    fn an_unknown_name_lists_the_near_ones_first() {
        let store = store();
        for number in 0..20 {
            create(&store, &format!("g/other{number}"), &[4], &["time"]);
        }
        let text = |text: &str, kind| {
            let error = query(&store, text).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            error.to_string()
        };
        let unknown = text("Other17 > 3", ErrorKind::NotFound);
        assert!(unknown.contains("it has other17, other1"), "{unknown}");
        assert_eq!(unknown.matches("other").count(), 12, "{unknown}");
        assert!(unknown.ends_with(", ..."), "{unknown}");
        let error = store.query("t > 3", &path("h"), QueryOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("no group \"h\""), "{error}");
        let error = store.query("g > 3", &ObjectPath::root(), QueryOptions::default()).unwrap_err();
        assert!(error.to_string().contains("is a group"), "{error}");
    }

    #[test]
    fn a_region_lies_within_the_arrays_also_when_they_change() {
        let store = store();
        let within = |range: std::ops::Range<u64>| {
            let region = vec![("time".to_owned(), range)];
            let options = QueryOptions { region, ..QueryOptions::default() };
            store.query("t == 1", &path("g"), options)
        };
        let error = within(2..5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds);
        let says = "start 2 + count 3 passes the end of time (size 4)";
        assert!(error.to_string().contains(says), "{error}");
        let query = within(2..4).unwrap();
        assert_eq!(matches(&query), 2);
        store.array(&path("g/t")).unwrap().resize(&[3]).unwrap();
        let shrunk = query.at_one_moment(|query, _| query.count(None)).unwrap_err();
        assert_eq!(shrunk.kind(), ErrorKind::OutOfBounds);
    }

    #[test]
    fn an_array_that_was_made_anew_with_other_dimensions_is_a_conflict() {
        let store = store();
        let query = query(&store, "t == 1").unwrap();
        store.delete(&path("g/t")).unwrap();
        create(&store, "g/t", &[2, 2], &["y", "x"]);
        let error = query.at_one_moment(|query, _| query.count(None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("y, x now, it had time"), "{error}");
    }
}
