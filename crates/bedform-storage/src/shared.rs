//! [`Storage`] for an `Arc`, so that wrappers accept a shared storage as any other.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Bell, Condition, Durability, GrowingObject, ListedEntry, Lock, Object, ObjectWriter,
    PendingObject, Storage, StorageError, SyncAll, TreePublication, Version, Workspace,
    WorkspaceName, WriteHint,
};

type Result<T> = std::result::Result<T, StorageError>;

impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn identity(&self) -> Option<String> {
        (**self).identity()
    }

    fn is_remote(&self) -> bool {
        (**self).is_remote()
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        (**self).open(path)
    }

    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        (**self).open_end(path, bytes)
    }

    fn ask_end(&self, path: &ObjectPath, bytes: u64, bell: &Arc<Bell>) -> Option<PendingObject> {
        (**self).ask_end(path, bytes, bell)
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        (**self).stat(path)
    }

    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        (**self).modified_ns(path)
    }

    fn now(&self) -> Result<i64> {
        (**self).now()
    }

    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool> {
        (**self).is_current(path, version)
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        (**self).create(path, durability, hint)
    }

    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version> {
        (**self).put(path, bytes, durability, condition)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        (**self).grow(path, durability, size_hint)
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        (**self).grow_lane(path, lane, durability)
    }

    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        (**self).beside(suffix)
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        (**self).within(path)
    }

    fn workspace(
        &self,
        directory: &ObjectPath,
        name: WorkspaceName<'_>,
    ) -> Result<Option<Box<dyn Workspace>>> {
        (**self).workspace(directory, name)
    }

    fn publish_tree(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        how: TreePublication,
        durability: Durability,
    ) -> Result<()> {
        (**self).publish_tree(staged, target, how, durability)
    }

    fn publish_object(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        durability: Durability,
    ) -> Result<()> {
        (**self).publish_object(staged, target, durability)
    }

    fn delete(
        &self,
        path: &ObjectPath,
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        (**self).delete(path, durability, condition)
    }

    fn delete_tree(&self, path: &ObjectPath, durability: Durability) -> Result<()> {
        (**self).delete_tree(path, durability)
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<ListedEntry>> {
        (**self).list(path)
    }

    fn sync(&self, path: &ObjectPath) -> Result<()> {
        (**self).sync(path)
    }

    fn can_sync_all(&self) -> bool {
        (**self).can_sync_all()
    }

    fn sync_all(&self, directories: &[ObjectPath]) -> Result<SyncAll<'_>> {
        (**self).sync_all(directories)
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        (**self).lock(path)
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        (**self).try_lock(path)
    }

    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        (**self).try_lock_of_dead(path)
    }

    fn sweep(&self, path: &ObjectPath) -> Result<u64> {
        (**self).sweep(path)
    }
}
