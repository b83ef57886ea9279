//! Files and directories in memory, each with its durable state and its unconfirmed changes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::Version;
use crate::file_system::{FileKind, FileStatus, Replace};

/// The number of the directory that holds the roots of all places.
pub(super) const TOP: u64 = 1;
/// The name of the first root.
pub(super) const FIRST: &str = "simulated";
/// An arbitrary device number: there is one device.
const DEVICE: u64 = 7;

pub(super) fn refuse<T>(errno: Errno) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno.raw_os_error()))
}

/// A change of a file's bytes or size that no sync has confirmed.
#[derive(Debug, Clone)]
pub(super) enum FileChange {
    Write { offset: u64, bytes: Arc<[u8]> },
    Size(u64),
}

/// An atomic change of names in one directory that no sync has confirmed.
pub(super) type NameChange = Vec<(String, Option<u64>)>;

/// A change, with a mark if a sync has failed since: a later sync does not confirm it either.
#[derive(Debug, Clone)]
pub(super) struct Pending<T> {
    pub(super) change: T,
    pub(super) is_doubtful: bool,
    /// The number that this change shares with one of another directory. Both are kept or lost
    /// together, because a file system's journal has them in one transaction.
    pub(super) transaction: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedFile {
    /// The bytes that readers see.
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) durable: Arc<Vec<u8>>,
    pub(super) pending: Vec<Pending<FileChange>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedDirectory {
    pub(super) entries: BTreeMap<String, u64>,
    pub(super) durable: BTreeMap<String, u64>,
    pub(super) pending: Vec<Pending<NameChange>>,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    File(SimulatedFile),
    Directory(SimulatedDirectory),
}

#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) body: Body,
    pub(super) names: u64,
    pub(super) modified: i64,
    pub(super) changed: i64,
    /// The handle that holds the lock.
    pub(super) lock: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct SimulatedState {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) next_inode: u64,
    pub(super) next_token: u64,
    pub(super) next_transaction: u64,
    pub(super) clock: i64,
    /// The step of the clock for every change.
    pub(super) clock_step: i64,
}

/// Writes `bytes` into `content` at `offset`, filling a gap with zeros.
pub(super) fn overlay(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

pub(super) fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Inode {
    pub(super) fn new(body: Body, clock: i64) -> Self {
        Self { body, names: 1, modified: clock, changed: clock, lock: None }
    }
}

impl SimulatedState {
    pub(super) fn new() -> Self {
        let root = TOP + 1;
        let names = BTreeMap::from([(FIRST.to_owned(), root)]);
        let top =
            SimulatedDirectory { entries: names.clone(), durable: names, pending: Vec::new() };
        let inode = |directory| Inode::new(Body::Directory(directory), 1);
        Self {
            inodes: BTreeMap::from([
                (TOP, inode(top)),
                (root, inode(SimulatedDirectory::default())),
            ]),
            next_inode: root + 1,
            next_token: 1,
            next_transaction: 1,
            clock: 1,
            clock_step: 1,
        }
    }

    fn tick(&mut self) -> i64 {
        self.clock = self.clock.saturating_add(self.clock_step);
        self.clock
    }

    pub(super) fn inode(&self, number: u64) -> io::Result<&Inode> {
        self.inodes.get(&number).map_or_else(|| refuse(Errno::STALE), Ok)
    }

    pub(super) fn inode_mut(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).map_or_else(|| refuse(Errno::STALE), Ok)
    }

    pub(super) fn file(&self, number: u64) -> io::Result<&SimulatedFile> {
        match &self.inode(number)?.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => refuse(Errno::ISDIR),
        }
    }

    pub(super) fn file_mut(&mut self, number: u64) -> io::Result<&mut SimulatedFile> {
        match &mut self.inode_mut(number)?.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => refuse(Errno::ISDIR),
        }
    }

    pub(super) fn directory(&self, number: u64) -> io::Result<&SimulatedDirectory> {
        match &self.inode(number)?.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) => refuse(Errno::NOTDIR),
        }
    }

    pub(super) fn directory_mut(&mut self, number: u64) -> io::Result<&mut SimulatedDirectory> {
        match &mut self.inode_mut(number)?.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) => refuse(Errno::NOTDIR),
        }
    }

    /// Returns the inode number of `path` below the root `place`.
    pub(super) fn resolve(&self, place: &str, path: &str) -> io::Result<u64> {
        let mut at = TOP;
        for segment in place.split('/').chain(path.split('/')).filter(|segment| !segment.is_empty())
        {
            at = self.child(at, segment)?;
        }
        Ok(at)
    }

    pub(super) fn child(&self, directory: u64, name: &str) -> io::Result<u64> {
        if name == "." {
            return Ok(directory);
        }
        let found = self.directory(directory)?.entries.get(name).copied();
        found.map_or_else(|| refuse(Errno::NOENT), Ok)
    }

    pub(super) fn status(&self, number: u64) -> io::Result<FileStatus> {
        let inode = self.inode(number)?;
        let (kind, size) = match &inode.body {
            Body::File(file) => (FileKind::File, file.bytes.len() as u64),
            Body::Directory(_) => (FileKind::Directory, 0),
        };
        let version = Version {
            size,
            modified_ns: inode.modified,
            changed_ns: inode.changed,
            identity: (DEVICE, number),
        };
        Ok(FileStatus { kind, version, names: inode.names })
    }

    pub(super) fn change_file(&mut self, number: u64, change: FileChange) -> io::Result<()> {
        let clock = self.tick();
        let file = self.file_mut(number)?;
        let content = Arc::make_mut(&mut file.bytes);
        match &change {
            FileChange::Write { offset, bytes } => overlay(content, index(*offset), bytes),
            FileChange::Size(size) => content.resize(index(*size), 0),
        }
        file.pending.push(Pending { change, is_doubtful: false, transaction: None });
        let inode = self.inode_mut(number)?;
        (inode.modified, inode.changed) = (clock, clock);
        Ok(())
    }

    /// Applies `change` to `directory` and updates the name counts of its files.
    pub(super) fn change_names(&mut self, directory: u64, change: NameChange) -> io::Result<()> {
        self.change_names_in(directory, change, None)
    }

    /// Applies two changes, in one directory or two, that are kept or lost together.
    fn change_both(
        &mut self,
        (first, mut change): (u64, NameChange),
        (second, other): (u64, NameChange),
    ) -> io::Result<()> {
        if first == second {
            change.extend(other);
            return self.change_names(first, change);
        }
        self.directory(second)?;
        let transaction = Some(self.next_transaction);
        self.next_transaction += 1;
        self.change_names_in(first, change, transaction)?;
        self.change_names_in(second, other, transaction)
    }

    fn change_names_in(
        &mut self,
        directory: u64,
        change: NameChange,
        transaction: Option<u64>,
    ) -> io::Result<()> {
        let clock = self.tick();
        for (name, target) in &change {
            let entries = &mut self.directory_mut(directory)?.entries;
            let before = match target {
                Some(number) => entries.insert(name.clone(), *number),
                None => entries.remove(name),
            };
            for (number, is_gain) in [(before, false), (*target, true)] {
                if let Some(inode) = number.and_then(|number| self.inodes.get_mut(&number)) {
                    let names = inode.names;
                    inode.names = if is_gain { names + 1 } else { names.saturating_sub(1) };
                    inode.changed = clock;
                }
            }
        }
        let pending = Pending { change, is_doubtful: false, transaction };
        self.directory_mut(directory)?.pending.push(pending);
        let inode = self.inode_mut(directory)?;
        (inode.modified, inode.changed) = (clock, clock);
        Ok(())
    }

    /// Adds a file or directory; giving the name counts it.
    pub(super) fn add(&mut self, directory: u64, name: &str, body: Body) -> io::Result<u64> {
        if name == "." || self.directory(directory)?.entries.contains_key(name) {
            return refuse(Errno::EXIST);
        }
        if self.inode(directory)?.names == 0 {
            return refuse(Errno::NOENT);
        }
        let number = self.next_inode;
        self.next_inode += 1;
        let mut inode = Inode::new(body, self.clock);
        inode.names = 0;
        self.inodes.insert(number, inode);
        self.change_names(directory, vec![(name.to_owned(), Some(number))])?;
        Ok(number)
    }

    pub(super) fn rename(
        &mut self,
        (from, name): (u64, &str),
        (to, new): (u64, &str),
        replace: Replace,
    ) -> io::Result<()> {
        let number = self.child(from, name)?;
        if let Ok(existing) = self.child(to, new) {
            if replace == Replace::Refuse {
                return refuse(Errno::EXIST);
            }
            self.file(existing)?;
        }
        let (gone, gained) = ((name.to_owned(), None), (new.to_owned(), Some(number)));
        self.change_both((from, vec![gone]), (to, vec![gained]))
    }

    pub(super) fn rename_directory(
        &mut self,
        (from, name): (u64, &str),
        (to, new): (u64, &str),
    ) -> io::Result<()> {
        let number = self.child(from, name)?;
        self.directory(number)?;
        match self.child(to, new) {
            Ok(there) if !self.directory(there)?.entries.is_empty() => {
                return refuse(Errno::NOTEMPTY);
            }
            _ => {}
        }
        let (gone, gained) = ((name.to_owned(), None), (new.to_owned(), Some(number)));
        self.change_both((from, vec![gone]), (to, vec![gained]))
    }

    pub(super) fn exchange(
        &mut self,
        (one, name): (u64, &str),
        (other, other_name): (u64, &str),
    ) -> io::Result<()> {
        let [first, second] = [self.child(one, name)?, self.child(other, other_name)?];
        let change = |name: &str, number| vec![(name.to_owned(), Some(number))];
        self.change_both((one, change(name, second)), (other, change(other_name, first)))
    }

    pub(super) fn remove(&mut self, directory: u64, name: &str, kind: FileKind) -> io::Result<()> {
        let number = self.child(directory, name)?;
        match (&self.inode(number)?.body, kind) {
            (Body::File(_), FileKind::Directory) => return refuse(Errno::NOTDIR),
            (Body::Directory(_), FileKind::File) => return refuse(Errno::ISDIR),
            (Body::Directory(inner), _) if !inner.entries.is_empty() => {
                return refuse(Errno::NOTEMPTY);
            }
            _ => {}
        }
        self.change_names(directory, vec![(name.to_owned(), None)])
    }

    /// Confirms the changes of a file, except those that a failed sync left in doubt.
    pub(super) fn sync_file(&mut self, number: u64) -> io::Result<()> {
        let file = self.file_mut(number)?;
        if file.pending.iter().all(|pending| !pending.is_doubtful) {
            file.durable = Arc::clone(&file.bytes);
            file.pending.clear();
            return Ok(());
        }
        let mut durable = file.durable.to_vec();
        for pending in file.pending.iter().filter(|pending| !pending.is_doubtful) {
            match &pending.change {
                FileChange::Write { offset, bytes } => overlay(&mut durable, index(*offset), bytes),
                FileChange::Size(size) => durable.resize(index(*size), 0),
            }
        }
        file.durable = Arc::new(durable);
        file.pending.retain(|pending| pending.is_doubtful);
        Ok(())
    }

    pub(super) fn sync_directory(&mut self, number: u64) -> io::Result<()> {
        let directory = self.directory_mut(number)?;
        let mut transactions = Vec::new();
        for pending in directory.pending.iter().filter(|pending| !pending.is_doubtful) {
            apply_names(&mut directory.durable, &pending.change);
            transactions.extend(pending.transaction);
        }
        directory.pending.retain(|pending| pending.is_doubtful);
        transactions.into_iter().for_each(|transaction| self.confirm(transaction));
        Ok(())
    }

    /// Confirms the rest of a transaction, and earlier changes of the same names.
    fn confirm(&mut self, transaction: u64) {
        let mut others = Vec::new();
        for inode in self.inodes.values_mut() {
            let Body::Directory(SimulatedDirectory { durable, pending, .. }) = &mut inode.body
            else {
                continue;
            };
            let is_of_it = |pending: &Pending<_>| pending.transaction == Some(transaction);
            let Some(last) = pending.iter().position(is_of_it) else { continue };
            let names: Vec<String> =
                pending[last].change.iter().map(|(name, _)| name.clone()).collect();
            let is_of_them = |pending: &Pending<NameChange>| {
                pending.change.iter().any(|(name, _)| names.contains(name))
            };
            let mut number = 0;
            pending.retain(|pending| {
                let is_confirmed = number <= last && is_of_them(pending);
                number += 1;
                if is_confirmed {
                    apply_names(durable, &pending.change);
                    others.extend(pending.transaction.filter(|other| *other != transaction));
                }
                !is_confirmed
            });
        }
        others.into_iter().for_each(|other| self.confirm(other));
    }

    /// Confirms all changes.
    pub(super) fn sync_whole(&mut self) -> io::Result<()> {
        let numbers: Vec<u64> = self.inodes.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| match self.inode(number)?.body {
            Body::File(_) => self.sync_file(number),
            Body::Directory(_) => self.sync_directory(number),
        })
    }

    /// Marks all changes as doubtful, after a failed sync of the whole device.
    pub(super) fn doubt_whole(&mut self) {
        let numbers: Vec<u64> = self.inodes.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.doubt(number));
    }

    /// Marks the changes of a file or directory as doubtful after a failed sync: no later sync
    /// confirms them.
    pub(super) fn doubt(&mut self, number: u64) {
        match self.inodes.get_mut(&number).map(|inode| &mut inode.body) {
            Some(Body::File(file)) => {
                file.pending.iter_mut().for_each(|pending| pending.is_doubtful = true);
            }
            Some(Body::Directory(directory)) => {
                directory.pending.iter_mut().for_each(|pending| pending.is_doubtful = true);
                let transactions: Vec<_> =
                    directory.pending.iter().filter_map(|pending| pending.transaction).collect();
                self.doubt_transactions(&transactions);
            }
            None => {}
        }
    }

    fn doubt_transactions(&mut self, transactions: &[u64]) {
        for inode in self.inodes.values_mut() {
            let Body::Directory(directory) = &mut inode.body else { continue };
            for pending in &mut directory.pending {
                pending.is_doubtful |=
                    pending.transaction.is_some_and(|t| transactions.contains(&t));
            }
        }
    }
}

pub(super) fn apply_names(entries: &mut BTreeMap<String, u64>, change: &NameChange) {
    for (name, target) in change {
        match target {
            Some(number) => entries.insert(name.clone(), *number),
            None => entries.remove(name),
        };
    }
}
