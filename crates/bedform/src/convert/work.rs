//! The work directory of a conversion: `.<target>.bedform-partial`, beside the target.
//!
//! | name | holds |
//! |---|---|
//! | `plan.json` | what is converted, from which source, as that was when it began, into which layouts, in which regions |
//! | `store` | the store that grows |
//! | `done`, `done.earlier` | the finished regions: see `journal` |
//!
//! A conversion holds the lock of the directory, so that two do not mix; the lock dies with its owner.
//!
//! What lies there is believed only under its plan. A conversion that begins removes the plan of another
//! one first and writes its own last, each durably, so that no crash leaves a plan beside the store or the
//! marks of another one.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::{Condition, Durability, Storage, StorageExt, TreePublication};
use serde_json::{Value, json};

use super::journal::Journal;
use super::plan::ConvertPlan;
use super::source::ConvertSource;
use super::words::quoted;
use super::{ConvertError, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::publication::{StagedTree, has_name};

/// Of `plan.json`: another version is another plan.
const PLAN_VERSION: u64 = 5;
const PLAN: &str = "plan.json";
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
        let Some(staged) = StagedTree::resume(parent, name, &hidden)? else {
            let shown = quoted(shown);
            return Err(ConvertError::Busy(format!(
                "another conversion to {shown} is running: wait for it or stop it"
            )));
        };
        Ok(Self { staged, shown: shown.to_owned() })
    }

    fn at(&self, name: &str) -> Result<ObjectPath> {
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
        &self,
        plan: &ConvertPlan,
        source: &ConvertSource,
        restart: bool,
    ) -> Result<Option<String>> {
        let described = json!({
            "version": PLAN_VERSION,
            "source": source.name(),
            "state": source.state()?,
            "codecs": plan.codecs,
            "arrays": plan.arrays,
        });
        let earlier = if restart { None } else { self.earlier_plan()? };
        if earlier.as_ref() == Some(&described) {
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
        self.begin_anew(&described)?;
        Ok(has_changed.then(|| {
            format!(
                "{} has changed since an unfinished conversion of it began: what that had copied was \
                 thrown away",
                quoted(source.name())
            )
        }))
    }

    /// The plan that lies there; null for one that cannot be read.
    fn earlier_plan(&self) -> Result<Option<Value>> {
        let path = self.at(PLAN)?;
        let Some(object) = self.parent().find(&path)? else { return Ok(None) };
        let size = object.version().size;
        if size > PLAN_BYTES_MAX {
            return Ok(Some(Value::Null));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        object.read(0, &mut bytes)?;
        Ok(Some(serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    fn begin_anew(&self, described: &Value) -> Result<()> {
        let storage = self.parent();
        let plan = self.at(PLAN)?;
        storage.delete(&plan, Durability::Disk, Condition::None)?;
        storage.delete_tree(&self.staged.tree()?, Durability::Disk)?;
        Journal::remove(storage, self.staged.directory())?;
        let text = format!("{described:#}\n");
        storage.put(&plan, text.as_bytes(), Durability::Disk, Condition::None)?;
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
