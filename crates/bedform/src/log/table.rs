//! Tables: the boxes that many commits touch, in place of the commits' directories.
//!
//! A root names its last commits directly, and earlier ones by tables. If
//! [`OpenOptions::commits_named`](crate::OpenOptions::commits_named) are named directly, the next
//! commit first merges them into a table, with each preceding table that is no larger than all
//! newer rows together. So a row is copied once for each doubling of the log, and the number of
//! tables grows as the logarithm of the rows. A commit costs the same after any number of earlier
//! ones.
//!
//! A table is durable before a root names it. It never changes, and stays until all of its commits
//! are settled. Even if a larger table has replaced it, older roots still name it, and readers may
//! have pinned one of these.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::checksum::crc32c;
use bedform_format::log::{
    BlockKind, Root, Table, TableBlock, TableGrowth, TableIndex, TableRecord, TableRow,
};
use bedform_storage::{Condition, Durability, Object};

use super::place::LogPlace;
use super::view::{ArraySection, RootView};
use crate::cache::{EntryKind, ObjectKey};
use crate::error::{Error, ErrorKind, Result};
use crate::zarr::publish::random_key;

const TABLES: &str = "tables";
/// Maximum number of rows of a table that is merged from others: a commit waits for the merge.
const ROWS_MAX: u64 = 1 << 17;
/// Maximum number of tables that are kept open.
const OPEN_MAX: usize = 64;
/// The cache position of a table's index: no block lies there.
const INDEX: u64 = u64::MAX;

/// A new table, and the tables and commits of a root that it replaces.
#[derive(Debug)]
pub(super) struct TableMerge {
    /// The names of the replaced tables, and the numbers of the replaced commits.
    tables: Vec<String>,
    commits: Vec<u64>,
    record: TableRecord,
}

impl TableMerge {
    /// Puts the table into a root in place of its inputs; does nothing if the root no longer has
    /// all of them.
    pub(super) fn apply(&self, root: &mut Root) {
        let kept = root.tables.len().saturating_sub(self.tables.len());
        let names = root.tables[kept..].iter().map(|table| &table.name);
        let numbers = root.commits.iter().map(|commit| commit.number);
        let is_there = names.eq(&self.tables)
            && numbers.take(self.commits.len()).eq(self.commits.iter().copied())
            && self.record.first > root.settled;
        if !is_there {
            return;
        }
        root.tables.truncate(kept);
        root.tables.push(self.record.clone());
        root.commits.drain(..self.commits.len());
        if root.commits.is_empty() {
            // The shapes are in the table.
            root.shapes.clear();
        }
    }
}

impl LogPlace {
    fn table_path(name: &str) -> Result<ObjectPath> {
        Ok(ObjectPath::root().join(TABLES)?.join(name)?)
    }

    /// Returns the names of all existing tables.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn table_names(&self) -> Result<Vec<String>> {
        let entries = self.named(self.storage.list(&ObjectPath::root().join(TABLES)?))?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    /// Removes a table.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn remove_table(&self, name: &str) -> Result<()> {
        let path = Self::table_path(name)?;
        self.named(self.storage.delete(&path, Durability::Process, Condition::None))
    }

    /// Writes a table, which must have commits. Durable on return.
    fn write_table(&self, table: &Table) -> Result<TableRecord> {
        let encoded = table.encode(&self.limits);
        let (bytes, index_bytes) = encoded.map_err(|error| Error::invalid(error.to_string()))?;
        let (Some(first), Some(last)) = (table.commits.first(), table.commits.last()) else {
            return Err(Error::invalid("a table without commits"));
        };
        let name = TableRecord::name(*last, &random_key()?);
        let path = Self::table_path(&name)?;
        self.named(self.storage.put(&path, &bytes, Durability::Disk, Condition::Absent))?;
        Ok(TableRecord {
            name,
            first: *first,
            last: *last,
            rows: (table.rows.len() + table.growths.len()) as u64,
            bytes: bytes.len() as u64,
            index_bytes: index_bytes as u64,
            checksum: crc32c(&bytes[bytes.len() - index_bytes..]),
        })
    }

    fn open_table(&self, record: &TableRecord) -> Result<Arc<dyn Object>> {
        let path = Self::table_path(&record.name)?;
        let name = || format!("{}/{path}", self.name());
        let object = self.storage.open(&path).map_err(|error| match error.is_not_found() {
            // Settled and removed since its root was read; or lost, which the next lookup reports.
            true => Error::new(ErrorKind::SnapshotMoved, format!("{} is gone", name())),
            false => Error::from(error).at(self.name()),
        })?;
        let size = object.version().size;
        match size == record.bytes {
            true => Ok(object.into()),
            false => Err(Error::corrupt(name(), format!("{size} bytes, not {}", record.bytes))),
        }
    }

    fn read_index(&self, record: &TableRecord, object: &dyn Object) -> Result<TableIndex> {
        let damaged = |problem: &dyn std::fmt::Display| {
            Error::corrupt(format!("{}/{TABLES}/{}", self.name(), record.name), problem)
        };
        let mut bytes = vec![0; usize::try_from(record.index_bytes).unwrap_or(usize::MAX)];
        object.read(record.bytes - record.index_bytes, &mut bytes)?;
        if crc32c(&bytes) != record.checksum {
            return Err(damaged(&"its index has changed"));
        }
        let index = TableIndex::decode(&bytes, &self.limits).map_err(|error| damaged(&error))?;
        let is_whole = index.blocks_bytes() == record.bytes - record.index_bytes
            && index.commits.last() == Some(&record.last)
            && index.commits.contains(&record.first);
        if is_whole { Ok(index) } else { Err(damaged(&"it is not what its root says")) }
    }

    /// Returns the first commit of a table after `settled`.
    ///
    /// # Errors
    /// As [`RootView::index`].
    pub(super) fn first_after(&self, record: &TableRecord, settled: u64) -> Result<u64> {
        let index = self.read_index(record, &*self.open_table(record)?)?;
        let first = index.commits.iter().find(|commit| **commit > settled);
        Ok(first.copied().unwrap_or(record.last))
    }
}

impl RootView {
    fn table_name(&self, record: &TableRecord) -> String {
        format!("{}/{TABLES}/{}", self.place.name(), record.name)
    }

    fn table(&self, record: &TableRecord) -> Result<Arc<dyn Object>> {
        let tables = || self.loaded().tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = tables().get(&record.name) {
            return Ok(object.clone());
        }
        let object = self.place.open_table(record)?;
        let mut all = tables();
        if all.len() >= OPEN_MAX {
            all.clear();
        }
        all.insert(record.name.clone(), object.clone());
        Ok(object)
    }

    /// Returns an object of a table from the cache, or loads it.
    fn of_table<T: std::any::Any + Send + Sync>(
        &self,
        record: &TableRecord,
        position: u64,
        memory_bytes: impl Fn(&T) -> u64,
        load: impl FnOnce(&dyn Object) -> Result<T>,
    ) -> Result<Arc<T>> {
        let cache = self.loaded().metadata();
        let object = ObjectKey::Name(record.name.as_str().into());
        let key = cache.key_of_immutable(EntryKind::Table, self.scope(), object, position);
        if let Some(known) = cache.get(&key) {
            return Ok(known);
        }
        let loaded = Arc::new(load(&*self.table(record)?)?);
        cache.put(key, memory_bytes(&loaded), || loaded.clone());
        Ok(loaded)
    }

    /// Returns the index of a table of the root.
    ///
    /// # Errors
    /// `Corrupt` for a damaged table; `SnapshotMoved` for one that is gone; those of storage.
    pub(super) fn index(&self, record: &TableRecord) -> Result<Arc<TableIndex>> {
        self.of_table(record, INDEX, TableIndex::memory_bytes, |object| {
            self.place.read_index(record, object)
        })
    }

    fn block<T: std::any::Any + Send + Sync>(
        &self,
        record: &TableRecord,
        block: &TableBlock,
        decode: impl Fn(&[u8]) -> std::result::Result<Vec<T>, bedform_format::log::LogError>,
    ) -> Result<Arc<Vec<T>>> {
        let memory_bytes = |items: &Vec<T>| 192 * items.len() as u64 + 64;
        self.of_table(record, block.offset, memory_bytes, |object| {
            let mut bytes = vec![0; usize::try_from(block.bytes).unwrap_or(usize::MAX)];
            object.read(block.offset, &mut bytes)?;
            decode(&bytes).map_err(|error| Error::corrupt(self.table_name(record), error))
        })
    }

    fn rows(
        &self,
        record: &TableRecord,
        index: &TableIndex,
        block: &TableBlock,
    ) -> Result<Arc<Vec<TableRow>>> {
        self.block(record, block, |bytes| block.rows(bytes, index, self.limits()))
    }

    fn growths_of_block(
        &self,
        record: &TableRecord,
        block: &TableBlock,
    ) -> Result<Arc<Vec<TableGrowth>>> {
        self.block(record, block, |bytes| block.growths(bytes, self.limits()))
    }

    /// Calls `visit` with the sections in a block of rows that touch the array `key`, by commits
    /// after `after`, oldest first.
    pub(super) fn sections_of_block(
        &self,
        (record, index, block): (&TableRecord, &TableIndex, &TableBlock),
        key: &[u8; 16],
        after: u64,
        visit: &mut dyn FnMut(ArraySection) -> Result<()>,
    ) -> Result<()> {
        let rows = self.rows(record, index, block)?;
        let first = rows.partition_point(|row| (row.key, row.commit) <= (*key, after));
        let behind = rows.partition_point(|row| row.key <= *key);
        let own = &rows[first..behind.max(first)];
        for run in own.chunk_by(|one, next| (one.commit, one.order) == (next.commit, next.order)) {
            let row = &run[0];
            let segment = index.segments.get(row.segment as usize);
            visit(ArraySection {
                commit: row.commit,
                order: row.order,
                segment: segment.map(|segment| segment.name.clone()).unwrap_or_default(),
                offset: row.offset,
                stored_bytes: row.stored_bytes,
                boxes: run.iter().map(|row| (row.start.clone(), row.end.clone())).collect(),
            })?;
        }
        Ok(())
    }

    /// True if commits in tables touch the array `key`.
    pub(super) fn is_in_tables(&self, key: &[u8; 16]) -> Result<bool> {
        let settled = self.root.settled;
        for record in &self.root.tables {
            let index = self.index(record)?;
            let blocks = index.blocks_of(BlockKind::Rows, key);
            for block in blocks.filter(|block| block.commits.1 > settled) {
                let rows = self.rows(record, &index, block)?;
                if rows.iter().any(|row| row.key == *key && row.commit > settled) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Calls `visit` with each growth of the array `key` by commits after `after` in tables, in
    /// order, until it returns false.
    pub(super) fn growths_in_tables(
        &self,
        key: &[u8; 16],
        after: u64,
        visit: &mut dyn FnMut(&TableGrowth) -> bool,
    ) -> Result<()> {
        for record in self.root.tables.iter().filter(|record| record.last > after) {
            let index = self.index(record)?;
            let blocks = index.blocks_of(BlockKind::Growths, key);
            for block in blocks.filter(|block| block.commits.1 > after) {
                let growths = self.growths_of_block(record, block)?;
                let first =
                    growths.partition_point(|one| (one.grown.key, one.commit) <= (*key, after));
                let own = growths[first..].iter().take_while(|one| one.grown.key == *key);
                for growth in own {
                    if !visit(growth) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the array's shape after the last commit that has enlarged it, if that commit is in a
    /// table.
    pub(super) fn shape_in_tables(&self, key: &[u8; 16]) -> Result<Option<Vec<u64>>> {
        let settled = self.root.settled;
        for record in self.root.tables.iter().rev() {
            let index = self.index(record)?;
            let blocks = index.blocks_of(BlockKind::Growths, key).rev();
            for block in blocks.filter(|block| block.commits.1 > settled) {
                let growths = self.growths_of_block(record, block)?;
                let behind = growths.partition_point(|one| one.grown.key <= *key);
                let last = growths[..behind].last();
                let last = last.filter(|one| one.grown.key == *key && one.commit > settled);
                if let Some(growth) = last {
                    return Ok(Some(growth.grown.shape.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Returns the shapes of all arrays that commits in tables have enlarged, after the last of
    /// these commits.
    pub(super) fn shapes_in_tables(&self) -> Result<BTreeMap<[u8; 16], Vec<u64>>> {
        let mut shapes = BTreeMap::new();
        for record in &self.root.tables {
            let index = self.index(record)?;
            let is_growth = |block: &&TableBlock| block.kind == BlockKind::Growths;
            for block in index.blocks.iter().filter(is_growth) {
                let growths = self.growths_of_block(record, block)?;
                for growth in growths.iter().filter(|one| one.commit > self.root.settled) {
                    shapes.insert(growth.grown.key, growth.grown.shape.clone());
                }
            }
        }
        Ok(shapes)
    }

    /// Returns the unsettled commits of a table. Reads and checks every block.
    ///
    /// # Errors
    /// As [`RootView::index`].
    pub(super) fn whole_table(&self, record: &TableRecord) -> Result<Table> {
        let index = self.index(record)?;
        let mut table = Table {
            commits: index.commits.clone(),
            segments: index.segments.clone(),
            ..Table::default()
        };
        for block in &index.blocks {
            match block.kind {
                BlockKind::Rows => {
                    table.rows.extend_from_slice(&self.rows(record, &index, block)?);
                }
                BlockKind::Growths => {
                    table.growths.extend_from_slice(&self.growths_of_block(record, block)?);
                }
            }
        }
        table.drop_settled(self.root.settled);
        Ok(table)
    }

    /// Writes a table of the commits that the root names directly, if there are at least `many`,
    /// and of the preceding tables that are due. Durable on return.
    ///
    /// # Errors
    /// As [`RootView::index`]. No data are lost then: a later commit may try again.
    pub(super) fn merge(&self, many: usize) -> Result<Option<TableMerge>> {
        let Root { tables, commits, .. } = &*self.root;
        if commits.len() < many {
            return Ok(None);
        }
        let mut tail = Table::default();
        for record in commits {
            tail.add(record, &*self.directory(record)?);
        }
        let mut rows = (tail.rows.len() + tail.growths.len()) as u64;
        let mut kept = tables.len();
        while let Some(before) = kept.checked_sub(1)
            && tables[before].rows <= rows
            && rows + tables[before].rows <= ROWS_MAX
        {
            rows += tables[before].rows;
            kept = before;
        }
        let mut merged = Table::default();
        for record in &tables[kept..] {
            merged.extend(self.whole_table(record)?);
        }
        merged.extend(tail);
        merged.sort();
        Ok(Some(TableMerge {
            tables: tables[kept..].iter().map(|table| table.name.clone()).collect(),
            commits: commits.iter().map(|commit| commit.number).collect(),
            record: self.place.write_table(&merged)?,
        }))
    }
}
