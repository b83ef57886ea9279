//! The work directory of a conversion: `.<target>.bedform-partial`, beside the target.
//!
//! | name | holds |
//! |---|---|
//! | `plan.json` | what is converted, from which source, as that was when it began, into which layouts, in which regions |
//! | `store-<8 hexadecimal digits>` | the store that grows, under a name that no other one has had |
//! | `done`, `done.earlier` | the finished regions: see `journal` |
//! | `linked` | of a store that is reorganized: all that is not copied is there |
//!
//! A conversion holds the lock of the directory, so that two do not mix; the lock dies with its owner. Workers
//! in other processes outlive it: one of a conversion that was stopped may still be writing a region when another
//! conversion begins, of a source that has changed since. Each begins a store of another name, so that the shards of
//! such a worker are in a store that is published by nobody. A worker whose conversion was taken up again writes
//! what the others write: it is of the same source, in the same state.
//!
//! What lies there is believed only under its plan. A conversion that begins removes the plan of another
//! one first and writes its own last, each durably, so that no crash leaves a plan beside the store or the
//! marks of another one.

use std::sync::Arc;

use bedform_format::{ObjectPath, metadata};
use bedform_storage::{Condition, Durability, Storage, StorageExt, TreePublication};
use serde_json::{Value, json};

use super::journal::Journal;
use super::plan::ConvertPlan;
use super::source::ConvertSource;
use super::words::quoted;
use super::{ConvertError, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::publication::{StagedTree, has_name};
use crate::zarr::publish::random_key;

/// Of `plan.json`: another version is another plan.
const PLAN_VERSION: u64 = 5;
const PLAN: &str = "plan.json";
/// The member of `plan.json` that has the name of the store; plans of earlier versions lack it.
const TREE: &str = "tree";
/// What says that all but the regions lies in the store that grows.
const LINKED: &str = "linked";
/// What the names of stores begin with.
const TREE_PREFIX: &str = "store";
/// A plan that is larger is none of ours.
const PLAN_BYTES_MAX: u64 = 256 << 20;

/// The work directory of a conversion, held by this one alone.
pub(super) struct WorkDirectory {
    staged: StagedTree,
    /// The target as the user named it.
    shown: String,
}

impl WorkDirectory {
    /// Takes the work directory of the target `name` in `parent`; makes it if it is missing.
    ///
    /// # Errors
    /// `Busy` if another conversion to this target is running; those of storage.
    pub(super) fn take(parent: &Arc<dyn Storage>, name: &ObjectPath, shown: &str) -> Outcome<Self> {
        let hidden = format!(".{name}.bedform-partial");
        let Some(taken) = Self::take_as(parent, name, &hidden)? else {
            let shown = quoted(shown);
            return Err(ConvertError::Busy(format!(
                "another conversion to {shown} is running: wait for it or stop it"
            )));
        };
        Ok(Self { shown: shown.to_owned(), ..taken })
    }

    /// Takes the directory `hidden` beside the target `name`; nothing if another process has it.
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

    /// The path of `name` in the directory, below the place of the target.
    ///
    /// # Errors
    /// For a path that is too long.
    pub(super) fn at(&self, name: &str) -> Result<ObjectPath> {
        Ok(self.staged.directory().join(name)?)
    }

    fn parent(&self) -> &dyn Storage {
        &**self.staged.parent()
    }

    /// Takes up what lies there if it is of this plan and of the source as it is; else begins anew. Gives
    /// what is to be said of a source that has changed meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` if it is of another source or of other options, unless it is to be thrown away;
    /// those of storage.
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
            // Earlier versions had one name for all.
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

    /// Takes up what lies there if it is of this plan, of the source as it is, and linked; else begins anew, and says
    /// so.
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

    /// Notes that all but the regions lies in the store that grows.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn note_linked(&self) -> Result<()> {
        let path = self.at(LINKED)?;
        self.parent().put(&path, b"\n", Durability::Disk, Condition::None)?;
        Ok(())
    }

    /// Removes the directory with all that is in it.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn remove(self) -> Result<()> {
        self.staged.remove()
    }

    /// The plan that lies there, null for one that cannot be read, and the name of its store.
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

    /// Where the store that grows lies, below the place of the target.
    ///
    /// # Errors
    /// For a path that is too long.
    pub(super) fn tree(&self) -> Result<ObjectPath> {
        self.staged.tree()
    }

    /// Removes what killed writers have left in the store. That of living ones stays.
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

    /// The place of the store that grows.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn store(&self) -> Result<Arc<dyn Storage>> {
        self.staged.storage()
    }

    /// The finished regions.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn journal(&self) -> Result<Journal> {
        Journal::open(self.parent(), self.staged.directory())
    }

    /// Gives the finished store its name, durably, and removes the work directory. Gives what is to be said
    /// if that stays.
    ///
    /// # Errors
    /// `Exists` if something has got the name meanwhile; those of storage.
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

/// True for the name of a store that grows.
fn is_tree(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match name.strip_prefix(TREE_PREFIX) {
        // That of earlier versions.
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|digits| digits.len() == 8 && digits.bytes().all(is_digit)),
        None => false,
    }
}
