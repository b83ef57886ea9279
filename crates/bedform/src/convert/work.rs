//! The work directory of a conversion: `.<target>.bedform-partial`, beside the target.
//!
//! | name | holds |
//! |---|---|
//! | `lock` | nothing: it makes the directory, whose lock a conversion holds, so that two do not mix |
//! | `plan.json` | what is converted, from which source, as that was when it began, into which layouts, in which regions |
//! | `store` | the store that grows |
//! | `done`, `done.earlier` | the finished regions: see `journal` |
//!
//! What lies there is believed only under its plan. A conversion that begins removes the plan of another
//! one first and writes its own last, each durably, so that no crash leaves a plan beside the store or the
//! marks of another one.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::{Condition, Durability, Lock, Storage, StorageErrorKind};
use serde_json::{Value, json};

use super::journal::Journal;
use super::plan::ConvertPlan;
use super::publish::publish_tree;
use super::source::ConvertSource;
use super::subtree::Subtree;
use super::target::has_name;
use super::words::quoted;
use super::{ConvertError, Outcome};
use crate::error::{Error, ErrorKind, Result};

/// Of `plan.json`: another version is another plan.
const PLAN_VERSION: u64 = 4;
const LOCK: &str = "lock";
const PLAN: &str = "plan.json";
const STORE: &str = "store";
/// A plan that is larger is none of ours.
const PLAN_BYTES_MAX: u64 = 1 << 30;
/// Others may remove the directory before its lock is taken.
const ATTEMPTS_MAX: usize = 16;

/// The work directory of a conversion, held by this one alone.
pub(super) struct WorkDirectory {
    parent: Arc<dyn Storage>,
    directory: ObjectPath,
    target: ObjectPath,
    /// The target as the user named it.
    shown: String,
    _lock: Box<dyn Lock>,
}

impl WorkDirectory {
    /// Takes the work directory of the target `name` in `parent`; makes it if it is missing.
    ///
    /// # Errors
    /// `Busy` if another conversion to this target is running; those of storage.
    pub(super) fn take(parent: &Arc<dyn Storage>, name: &ObjectPath, shown: &str) -> Outcome<Self> {
        let directory =
            ObjectPath::parse(&format!(".{name}.bedform-partial")).map_err(Error::from)?;
        let marker = directory.join(LOCK).map_err(Error::from)?;
        for _ in 0..ATTEMPTS_MAX {
            match parent.put(&marker, &[], Durability::Process, Condition::Absent) {
                Err(error) if error.kind != StorageErrorKind::Exists => {
                    return Err(Error::from(error).into());
                }
                _ => {}
            }
            match parent.try_lock(&directory) {
                // Another conversion has published, and removed the directory, meanwhile.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(Error::from(error).into()),
                Ok(None) => break,
                Ok(Some(lock)) => {
                    parent.sweep(&directory).map_err(Error::from)?;
                    let (parent, target) = (parent.clone(), name.clone());
                    let shown = shown.to_owned();
                    return Ok(Self { parent, directory, target, shown, _lock: lock });
                }
            }
        }
        Err(ConvertError::Busy(format!(
            "another conversion to {} is running: wait for it or stop it",
            quoted(shown)
        )))
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
                quoted(&format!("{}/{}", self.parent.name(), self.directory))
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
        let path = self.directory.join(PLAN)?;
        let Some(object) = self.parent.find(&path)? else { return Ok(None) };
        let size = object.version().size;
        if size > PLAN_BYTES_MAX {
            return Ok(Some(Value::Null));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        object.read(0, &mut bytes)?;
        Ok(Some(serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    fn begin_anew(&self, described: &Value) -> Result<()> {
        let storage = &*self.parent;
        let plan = self.directory.join(PLAN)?;
        storage.delete(&plan, Durability::Disk, Condition::None)?;
        storage.delete_tree(&self.directory.join(STORE)?, Durability::Disk)?;
        Journal::remove(storage, &self.directory)?;
        let text = format!("{described:#}\n");
        storage.put(&plan, text.as_bytes(), Durability::Disk, Condition::None)?;
        Ok(())
    }

    /// The place of the store that grows.
    ///
    /// # Errors
    /// None that happen: the name is short.
    pub(super) fn store(&self) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Subtree::new(self.parent.clone(), self.directory.join(STORE)?)))
    }

    /// The finished regions.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn journal(&self) -> Result<Journal> {
        Journal::open(&*self.parent, &self.directory)
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
        if has_name(&*self.parent, &self.target)? {
            return Err(appeared());
        }
        let store = self.directory.join(STORE)?;
        publish_tree(&*self.parent, &store, &self.target).map_err(|error| match error.kind() {
            ErrorKind::Exists => appeared(),
            _ => error,
        })?;
        let removed = self.parent.delete_tree(&self.directory, Durability::Disk);
        Ok(removed.err().map(|error| format!("the work directory stays: {error}: remove it")))
    }
}
