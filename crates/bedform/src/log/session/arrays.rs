//! The arrays that a session has looked up, with the shapes that it gives them.

use std::collections::HashMap;

use bedform_format::log::GrownArray;
use bedform_format::{DataType, ObjectPath};

use super::{SessionMember, holds_text};
use crate::error::{Error, ErrorKind, Result};
use crate::log::array::ArrayHandle;
use crate::log::coordinator::AppendedAxes;
use crate::log::shapes::enlarge;
use crate::log::stream::WriteTarget;
use crate::zarr::new_array::NewArray;

/// The arrays of a session, by path.
#[derive(Default)]
pub(in crate::log) struct SessionArrays {
    by_path: HashMap<ObjectPath, SessionArray>,
    /// The keys of all arrays that the session has looked up: an array that takes the place of one
    /// of them is refused.
    keys: HashMap<ObjectPath, [u8; 16]>,
}

/// An array that this session has written to.
pub(super) struct SessionArray {
    pub(super) target: WriteTarget,
    /// The shape before this session enlarged it.
    pub(super) before: Vec<u64>,
    /// The epoch in which it was looked up: others may have enlarged it since.
    epoch: u32,
    pub(super) data_type: DataType,
    /// True if the array appears with the next commit: no other session knows it.
    is_new: bool,
}

impl SessionArray {
    pub(super) fn new(target: WriteTarget, data_type: DataType, epoch: u32, is_new: bool) -> Self {
        Self { before: target.shape.clone(), target, epoch, data_type, is_new }
    }

    /// Returns the entry of a commit's directory for the array, if it becomes larger.
    fn grown(&self) -> Option<GrownArray> {
        let WriteTarget { key, shape, .. } = &self.target;
        (*shape != self.before).then(|| GrownArray {
            key: *key,
            base: self.before.clone(),
            shape: shape.clone(),
        })
    }
}

impl SessionArrays {
    /// Returns the state of the array at `path`. Looks it up again if its shape is from before the
    /// last commit and not `enough`, since others may have enlarged the array.
    pub(super) fn large_enough(
        &mut self,
        member: &SessionMember,
        path: &ObjectPath,
        enough: impl Fn(&[u64]) -> bool,
    ) -> Result<&mut SessionArray> {
        let is_old = |known: &SessionArray| {
            known.epoch != member.epoch
                && known.grown().is_none()
                && !known.is_new
                && !enough(&known.target.shape)
        };
        if self.by_path.get(path).is_some_and(is_old) {
            self.by_path.remove(path);
        }
        self.at(member, path)
    }

    /// Returns the state of the array at `path`, which the first write looks up.
    pub(super) fn at(
        &mut self,
        member: &SessionMember,
        path: &ObjectPath,
    ) -> Result<&mut SessionArray> {
        if !self.by_path.contains_key(path) {
            let found = self.look_up(member, path)?;
            self.by_path.insert(path.clone(), found);
        }
        self.by_path.get_mut(path).ok_or_else(|| Error::invalid("no such array"))
    }

    fn look_up(&mut self, member: &SessionMember, path: &ObjectPath) -> Result<SessionArray> {
        member.store.refresh_if_stale()?;
        let array = ArrayHandle::open(member.store.clone(), path.clone())?;
        let state = array.state()?;
        let refused =
            |why: &str| Error::new(ErrorKind::Unsupported, format!("{} {why}", array.name()));
        let Some(identity) = state.identity().filter(|_| state.shard().is_some()) else {
            return Err(refused(
                "has no shards of Bedform's, so a session cannot write to it; convert the store \
                 with 'bedform convert', or write to the array directly",
            ));
        };
        if identity.store != member.log.store {
            return Err(refused(
                "came here from another store, so a session cannot write to it; copy it into a new \
                 array, or write to it directly",
            ));
        }
        if state.is_text() {
            return Err(holds_text(path));
        }
        if *self.keys.entry(path.clone()).or_insert(identity.array) != identity.array {
            return Err(member.conflict(&format!("{path} was replaced by another array")));
        }
        let mut shape = state.metadata.shape.clone();
        if let Some(promised) = member.promised_shapes.get(&identity.array) {
            enlarge(&mut shape, promised);
        }
        let target = WriteTarget::new(identity.array, state.layout.item_size, shape);
        Ok(SessionArray::new(target, state.metadata.data_type, member.epoch, false))
    }

    /// Adds an array that the session has created.
    pub(super) fn add_created(&mut self, path: ObjectPath, array: SessionArray) {
        self.keys.insert(path.clone(), array.target.key);
        self.by_path.insert(path, array);
    }

    /// Fails if an array has the path of one that this session has created and not committed, or
    /// lies below or above such a path.
    pub(super) fn check_not_created(&self, arrays: &[(ObjectPath, NewArray)]) -> Result<()> {
        let is_within = |inner: &ObjectPath, outer: &ObjectPath| {
            let rest = inner.as_str().strip_prefix(outer.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let created =
            || self.by_path.iter().filter(|(_, known)| known.is_new).map(|(path, _)| path);
        for (path, _) in arrays {
            let is_taken =
                |created: &&ObjectPath| is_within(path, created) || is_within(created, path);
            if let Some(created) = created().find(is_taken) {
                return Err(Error::new(
                    ErrorKind::Exists,
                    format!("{path} cannot be created: this session has created {created}"),
                ));
            }
        }
        Ok(())
    }

    /// Notes the axes along which the session appends.
    pub(in crate::log) fn note_appended(&self, appended: &mut AppendedAxes) {
        for SessionArray { target, .. } in self.by_path.values() {
            appended.note(target.key, &target.shape, &target.base);
        }
    }

    /// Returns the arrays that the session enlarges, and forgets their known shapes: the next
    /// commit looks them up again.
    pub(in crate::log) fn take_grown(&mut self) -> Vec<GrownArray> {
        let grown = self.by_path.values().filter_map(SessionArray::grown).collect();
        self.by_path.retain(|_, known| known.grown().is_none());
        grown
    }

    /// Notes that created arrays are visible to all.
    pub(in crate::log) fn end_commit(&mut self) {
        self.by_path.values_mut().for_each(|known| known.is_new = false);
    }

    /// Forgets all that it knows of the arrays except their keys.
    pub(in crate::log) fn forget_shapes(&mut self) {
        self.by_path.clear();
    }
}
