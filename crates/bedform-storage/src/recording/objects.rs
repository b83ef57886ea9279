//! Objects and writers of a recorded storage.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use super::{Log, Result, StorageOperation};
use crate::{
    Answer, Bell, Bytes, Condition, GrowingObject, Object, ObjectWriter, ReadBlock, Version,
    forward,
};

#[derive(Debug, Clone)]
pub(super) struct RecordedObject {
    pub(super) inner: Arc<dyn Object>,
    pub(super) path: ObjectPath,
    pub(super) log: Log,
}

impl RecordedObject {
    fn event(&self, operation: StorageOperation, offset: u64, bytes: usize) {
        let range = offset..offset + bytes as u64;
        let identity = self.inner.version().identity;
        self.log.record(operation, &self.path, range, false, identity);
    }

    pub(super) fn boxed(inner: Box<dyn Object>, path: ObjectPath, log: Log) -> Box<dyn Object> {
        Box::new(Self { inner: Arc::from(inner), path, log })
    }
}

impl Object for RecordedObject {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buffer)?;
        self.event(StorageOperation::Read, offset, buffer.len());
        Ok(())
    }

    fn read_past<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> Result<Option<&'b [u8]>> {
        let bytes = self.inner.read_past(offset, length, block)?;
        if bytes.is_some() {
            self.event(StorageOperation::Read, offset, length);
        }
        Ok(bytes)
    }

    fn request(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let this = self.clone();
        Some(self.inner.request(offset, length, bell)?.then(move |outcome| {
            let bytes = outcome?;
            this.event(StorageOperation::Read, offset, bytes.len());
            Ok(bytes)
        }))
    }

    fn buffered_bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let bytes = self.inner.buffered_bytes(offset, length)?;
        self.event(StorageOperation::ReadResident, offset, length);
        Some(bytes)
    }

    fn kept(&self) -> Option<Arc<dyn Object>> {
        let inner = self.inner.kept()?;
        Some(Arc::new(Self { inner, ..self.clone() }))
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let count = self.inner.read_resident(offset, buffer)?;
        self.event(StorageOperation::ReadResident, offset, count);
        Ok(count)
    }

    fn read_ahead(&self, offset: u64, length: u64) -> bool {
        let range = offset..offset.saturating_add(length);
        let identity = self.inner.version().identity;
        self.log.record(StorageOperation::ReadAhead, &self.path, range, false, identity);
        self.inner.read_ahead(offset, length)
    }

    fn is_current(&self) -> Result<bool> {
        let is_current = self.inner.is_current()?;
        self.event(StorageOperation::IsCurrent, 0, 0);
        Ok(is_current)
    }

    forward!(self.inner as Object: version, buffered_range);
}

pub(super) struct RecordedWriter<'a> {
    pub(super) inner: Box<dyn ObjectWriter + 'a>,
    pub(super) path: ObjectPath,
    pub(super) is_durable: bool,
    pub(super) log: Log,
}

impl ObjectWriter for RecordedWriter<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let start = self.inner.position();
        self.inner.append(bytes)?;
        let range = start..self.inner.position();
        self.log.record(StorageOperation::Append, &self.path, range, false, (0, 0));
        Ok(())
    }

    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let start = self.inner.position();
        let left = self.inner.append_owned(bytes)?;
        let range = start..self.inner.position();
        self.log.record(StorageOperation::Append, &self.path, range, false, (0, 0));
        Ok(left)
    }

    fn hand_over(&mut self) -> Result<()> {
        self.is_durable = false;
        self.inner.hand_over()
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { inner, path, is_durable, log } = *self;
        let version = inner.publish(condition)?;
        let range = 0..version.size;
        log.record(StorageOperation::Publish, &path, range, is_durable, version.identity);
        Ok(version)
    }

    forward!(self.inner as ObjectWriter: position, keep_replaced);
}

pub(super) struct RecordedGrowing {
    pub(super) inner: Box<dyn GrowingObject>,
    pub(super) path: ObjectPath,
    pub(super) lane: Lane,
    pub(super) is_durable: bool,
    pub(super) synced: u64,
    pub(super) log: Log,
}

impl GrowingObject for RecordedGrowing {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut start = self.inner.position();
        self.inner.append(bytes)?;
        let end = self.inner.position();
        while start < end {
            let run = self.lane.run(start);
            let length = run.length.min(end - start);
            let range = run.offset..run.offset + length;
            self.log.record(StorageOperation::AppendGrowing, &self.path, range, false, (0, 0));
            start += length;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.inner.sync()?;
        let end = self.inner.position();
        // The sync of a shared object covers all earlier bytes.
        let range =
            if self.lane.is_alone() { self.synced..end } else { 0..self.lane.run(end).offset };
        self.synced = end;
        self.log.record(StorageOperation::SyncGrowing, &self.path, range, self.is_durable, (0, 0));
        Ok(())
    }

    forward!(self.inner as GrowingObject: position, flush);
}
