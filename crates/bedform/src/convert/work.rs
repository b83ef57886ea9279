//! The work directory of a conversion: `.<target>.bedform-partial`, beside the target.
//!
//! | name | holds |
//! |---|---|
//! | `plan.json` | the plan: source and its state when it began, codecs, layouts, regions |
//! | `store-<8 hexadecimal digits>` | the growing store, under a name that no other store has had |
//! | `done`, `done.earlier` | the finished regions: see `journal` |
//! | `linked` | in a reorganization: the mark that everything but the copied regions is there |
//!
//! A conversion holds the lock of the directory, so that two do not mix; the lock dies with its
//! owner. Workers in other processes outlive it. A worker of a stopped conversion may still be
//! writing a region when another conversion begins, of a source that has changed since. So each
//! conversion that starts over names its store anew, and such a worker writes into a store that
//! nobody publishes. A worker of a conversion that was resumed writes the same shards as the
//! others: it reads the same source in the same state.
//!
//! The content of the directory is valid only for its plan. A conversion that starts over first
//! removes the old plan and writes its own last, each durably. So no crash leaves a plan with the
//! store or the marks of another one.

use std::sync::Arc;

use bedform_format::{ObjectPath, metadata};
use bedform_storage::{Condition, Durability, Storage, StorageExt, TreePublication};
use serde_json::{Value, json};

use super::journal::Journal;
use super::plan::ConvertPlan;
use super::source::ConvertSource;
use super::words::quoted;
use super::{ConvertError, ConvertResult};
use crate::error::{Error, ErrorKind, Result};
use crate::publication::{StagedTree, has_name};
use crate::zarr::publish::random_key;

/// The version of `plan.json`: a plan of another version does not match.
const PLAN_VERSION: u64 = 5;
const PLAN: &str = "plan.json";
/// The member of `plan.json` with the name of the store; plans of earlier versions lack it.
const TREE: &str = "tree";
/// The mark that everything but the copied regions is in the growing store.
const LINKED: &str = "linked";
/// The prefix of the names of growing stores.
const TREE_PREFIX: &str = "store";
/// The most bytes of a plan that Bedform writes.
const PLAN_BYTES_MAX: u64 = 256 << 20;

/// The work directory of a conversion, under this conversion's lock.
pub(super) struct WorkDirectory {
    staged: StagedTree,
    /// The target as the user named it.
    shown: String,
}

impl WorkDirectory {
    /// Locks the work directory of the target `name` in `parent`, and creates it if it is missing.
    ///
    /// # Errors
    /// `Busy` if another conversion to this target is running; those of storage.
    pub(super) fn take(
        parent: &Arc<dyn Storage>,
        name: &ObjectPath,
        shown: &str,
    ) -> ConvertResult<Self> {
        let hidden = format!(".{name}.bedform-partial");
        let Some(taken) = Self::take_as(parent, name, &hidden)? else {
            let shown = quoted(shown);
            return Err(ConvertError::Busy(format!(
                "another conversion to {shown} is running: wait for it or stop it"
            )));
        };
        Ok(Self { shown: shown.to_owned(), ..taken })
    }

    /// Locks the directory `hidden` beside the target `name`; `None` if another process holds it.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn take_as(
        parent: &Arc<dyn Storage>,
        name: &ObjectPath,
        hidden: &str,
    ) -> Result<Option<Self>> {
        let staged = StagedTree::resume(parent, name, hidden)?;
        Ok(staged.map(|staged| Self { staged, shown: name.as_str().to_owned() }))
    }

    /// The path of the entry `name` of the directory, within the target's place.
    ///
    /// # Errors
    /// `InvalidArgument` for a path that is too long.
    pub(super) fn at(&self, name: &str) -> Result<ObjectPath> {
        Ok(self.staged.directory().join(name)?)
    }

    fn parent(&self) -> &dyn Storage {
        &**self.staged.parent()
    }

    /// Resumes if the directory has this plan of the source in this state; otherwise starts over.
    /// Returns a warning if the source has changed since.
    ///
    /// # Errors
    /// `InvalidArgument` if the directory has another source or other options, unless `restart`
    /// discards it; those of storage.
    pub(super) fn match_plan(
        &mut self,
        plan: &ConvertPlan,
        source: &ConvertSource,
        state: &str,
        restart: bool,
    ) -> Result<Option<String>> {
        let described = described(plan, source, state);
        let (earlier, tree) = if restart { (None, None) } else { self.earlier_plan()? };
        if earlier.as_ref() == Some(&described) {
            // Earlier versions had one name for all stores.
            if let Some(tree) = tree {
                self.staged.grow_as(tree);
            }
            return Ok(None);
        }
        let is_same =
            |key: &str| earlier.as_ref().and_then(|earlier| earlier.get(key)) == described.get(key);
        let has_changed = is_same("version") && is_same("source") && !is_same("state");
        if earlier.is_some() && !has_changed {
            return Err(Error::invalid(format!(
                "an unfinished conversion lies in {}, of another source or with other options: repeat \
                 it as it was, or start over with restart=True (--restart)",
                quoted(&format!("{}/{}", self.parent().name(), self.staged.directory()))
            )));
        }
        self.begin_anew(described)?;
        Ok(has_changed.then(|| {
            format!(
                "{} has changed since an unfinished conversion of it began: what that had copied was \
                 thrown away",
                quoted(source.name())
            )
        }))
    }

    /// Resumes, and returns false, if the directory has this plan of the source in this state, and
    /// is linked. Otherwise starts over, and returns true.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn match_or_begin(
        &mut self,
        plan: &ConvertPlan,
        source: &ConvertSource,
        state: &str,
    ) -> Result<bool> {
        let described = described(plan, source, state);
        let (earlier, tree) = self.earlier_plan()?;
        let is_linked = self.parent().find(&self.at(LINKED)?)?.is_some();
        if let (true, true, Some(tree)) = (is_linked, earlier.as_ref() == Some(&described), tree) {
            self.staged.grow_as(tree);
            return Ok(false);
        }
        self.begin_anew(described)?;
        Ok(true)
    }

    /// Records durably that everything but the copied regions is in the growing store.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn note_linked(&self) -> Result<()> {
        let path = self.at(LINKED)?;
        self.parent().put(&path, b"\n", Durability::Disk, Condition::None)?;
        Ok(())
    }

    /// Removes the directory with everything in it.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn remove(self) -> Result<()> {
        self.staged.remove()
    }

    /// The plan in the directory, null if it cannot be parsed, and the name of its store.
    fn earlier_plan(&self) -> Result<(Option<Value>, Option<String>)> {
        let path = self.at(PLAN)?;
        let unreadable = (Some(Value::Null), None);
        let Some(object) = self.parent().find(&path)? else { return Ok((None, None)) };
        let size = object.version().size;
        if size > PLAN_BYTES_MAX {
            return Ok(unreadable);
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        object.read(0, &mut bytes)?;
        let mut plan: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        match plan.as_object_mut().and_then(|plan| plan.remove(TREE)) {
            None => Ok((Some(plan), None)),
            Some(Value::String(name)) if is_tree(&name) => Ok((Some(plan), Some(name))),
            Some(_) => Ok(unreadable),
        }
    }

    fn begin_anew(&mut self, mut described: Value) -> Result<()> {
        let plan = self.at(PLAN)?;
        let tree = format!("{TREE_PREFIX}-{}", metadata::hex(&random_key()?[..4]));
        let storage = self.parent();
        storage.delete(&plan, Durability::Disk, Condition::None)?;
        storage.delete(&self.at(LINKED)?, Durability::Disk, Condition::None)?;
        for entry in storage.list(self.staged.directory())? {
            if entry.is_directory && is_tree(&entry.name) {
                storage.delete_tree(&self.at(&entry.name)?, Durability::Disk)?;
            }
        }
        Journal::remove(storage, self.staged.directory())?;
        described[TREE] = json!(tree);
        let text = format!("{described:#}\n");
        storage.put(&plan, text.as_bytes(), Durability::Disk, Condition::None)?;
        self.staged.grow_as(tree);
        Ok(())
    }

    /// The path of the growing store, within the target's place.
    ///
    /// # Errors
    /// `InvalidArgument` for a path that is too long.
    pub(super) fn tree(&self) -> Result<ObjectPath> {
        self.staged.tree()
    }

    /// Removes the remains of killed writers from the store. Those of living writers stay.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn sweep(&self) -> Result<()> {
        let mut directories = vec![self.tree()?];
        while let Some(directory) = directories.pop() {
            self.parent().sweep(&directory)?;
            for entry in self.parent().list(&directory)? {
                if entry.is_directory {
                    directories.push(directory.join(&entry.name)?);
                }
            }
        }
        Ok(())
    }

    /// The place of the growing store.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn store(&self) -> Result<Arc<dyn Storage>> {
        self.staged.storage()
    }

    /// Opens the journal of finished regions.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn journal(&self) -> Result<Journal> {
        Journal::open(self.parent(), self.staged.directory())
    }

    /// Gives the finished store its name, durably, and removes the work directory. Returns a
    /// warning if the directory cannot be removed.
    ///
    /// # Errors
    /// `Exists` if the name was taken meanwhile; those of storage.
    pub(super) fn publish(self) -> Result<Option<String>> {
        let appeared = || {
            let text = format!(
                "target {} appeared while the conversion ran: move it away and run the same conversion \
                 again; nothing is copied twice",
                quoted(&self.shown)
            );
            Error::new(ErrorKind::Exists, text)
        };
        if has_name(self.parent(), self.staged.target())? {
            return Err(appeared());
        }
        let published = self.staged.publish(TreePublication::Absent, Durability::Disk);
        published.map_err(|error| match error.kind() {
            ErrorKind::Exists => appeared(),
            _ => error,
        })?;
        let removed = self.staged.remove();
        Ok(removed.err().map(|error| format!("the work directory stays: {error}: remove it")))
    }
}

fn described(plan: &ConvertPlan, source: &ConvertSource, state: &str) -> Value {
    json!({
        "version": PLAN_VERSION,
        "source": source.name(),
        "state": state,
        "codecs": plan.codecs,
        "arrays": plan.arrays,
    })
}

/// True for the name of a growing store.
fn is_tree(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match name.strip_prefix(TREE_PREFIX) {
        // The name of earlier versions.
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|digits| digits.len() == 8 && digits.bytes().all(is_digit)),
        None => false,
    }
}
