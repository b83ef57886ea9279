//! A worker of a conversion in another process, which copies and compares the regions of its tasks:
//! see `tasks`.

use std::path::Path;
use std::sync::Arc;

use bedform_format::{ObjectPath, metadata};
use bedform_geometry::Region;
use bedform_remote::RemoteStorage;
use bedform_storage::{Mode, Profile, Storage};

use super::ConvertResult;
use super::copy::{copy_region, differs, is_same};
use super::source::{ConvertSource, RegionBuffers, SourceArray};
use super::tasks::{ArrayRegions, RegionTask, TargetPlace, key_of};
use super::words::quoted;
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_of;
use crate::options::OpenOptions;
use crate::store::Store;

/// A worker's open source and target of a conversion.
#[derive(Debug)]
pub struct RegionWorker {
    source: ConvertSource,
    store: Store,
    /// The target's name in messages.
    shown: String,
    /// Whether the arrays are drafts, which no reader sees.
    are_drafts: bool,
}

impl RegionWorker {
    /// Opens source and target of a conversion. Settings of `options` for writing, cache and
    /// profile are replaced by those of the conversion. Creates nothing.
    ///
    /// # Errors
    /// `NotFound` if this process does not see the target; `Conflict` if the source is in another
    /// state than when the conversion began; those of opening.
    pub fn open(
        source: ConvertSource,
        place: &TargetPlace,
        mut options: OpenOptions,
    ) -> Result<Self> {
        if source.state()? != place.source_state {
            let text = format!(
                "{} is here in another state than where the conversion began: it has changed, or has the same \
                 name on another storage",
                quoted(source.name())
            );
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let source = match &place.part {
            Some((path, held)) => source.part(path, held.clone()),
            None => source,
        };
        let profile = Profile::from_json("the profile of the conversion", &place.profile);
        options.profile = Some(profile.map_err(|error| Error::invalid(error.to_string()))?);
        (options.writable, options.cache_bytes) = (true, 0);
        let storage = storage_at(place, &options)?;
        let store = Store::open(storage, options).map_err(|error| match error.kind() {
            ErrorKind::NotFound => not_seen(place),
            _ => error,
        })?;
        let (shown, are_drafts) = (place.place.clone(), place.tree.is_none());
        Ok(Self { source, store, shown, are_drafts })
    }

    /// Copies, or compares, the regions of a task; they are durable on return. Returns warnings for
    /// the user.
    ///
    /// # Errors
    /// [`ConvertError::Differs`](super::ConvertError::Differs); `Conflict` if the target now
    /// belongs to another conversion; those of reading and writing.
    pub fn run(&self, task: &RegionTask) -> ConvertResult<Vec<String>> {
        for regions in &task.arrays {
            let source = self.source.array(&regions.array)?;
            match task.is_comparison {
                false => self.copy(regions, &source)?,
                true => compare(regions, &source, self.target(&source, regions)?)?,
            }
        }
        Ok(self.store.take_warnings())
    }

    /// Opens the target before each region: a draft of another conversion with the same name must
    /// not get this one's shards.
    fn copy(&self, regions: &ArrayRegions, source: &SourceArray) -> Result<()> {
        let mut values = RegionBuffers::default();
        for (start, shape) in &regions.regions {
            let region = Region::new(start.clone(), shape.clone())?;
            copy_region(source, &self.target(source, regions)?, &region, &mut values)?;
        }
        Ok(())
    }

    /// Opens the array of the target anew: the conversion may have been restarted since.
    fn target(&self, source: &SourceArray, regions: &ArrayRegions) -> Result<Array> {
        let path = ObjectPath::parse(&regions.array)?;
        let opened = match self.are_drafts {
            true => self.store.open_draft(&path),
            false => self.store.array(&path),
        };
        let moved_on = || {
            let text = format!(
                "array {} of the target in {} belongs to another conversion by now",
                quoted(&regions.array),
                quoted(&self.shown)
            );
            Error::new(ErrorKind::Conflict, text)
        };
        let array = opened.map_err(|error| match error.kind() {
            ErrorKind::NotFound => moved_on(),
            _ => error,
        })?;
        let is_own = metadata::hex(&key_of(&array)?) == regions.key
            && source.shape == regions.shape
            && array.metadata()?.shape == regions.shape;
        if is_own { Ok(array) } else { Err(moved_on()) }
    }
}

fn compare(regions: &ArrayRegions, source: &SourceArray, target: Array) -> ConvertResult<()> {
    let copy = SourceArray::of_store(target)?;
    let (mut left, mut right) = (RegionBuffers::default(), RegionBuffers::default());
    for (start, shape) in &regions.regions {
        let region = Region::new(start.clone(), shape.clone()).map_err(Error::from)?;
        if !is_same(source, &copy, &region, &mut left, &mut right)? {
            return Err(differs(&regions.array, &region, None));
        }
    }
    Ok(())
}

/// The storage of the growing store. Checked before it is opened for writing, which would create a
/// missing directory.
fn storage_at(place: &TargetPlace, options: &OpenOptions) -> Result<Arc<dyn Storage>> {
    let Some(tree) = &place.tree else {
        let storage = RemoteStorage::open(&place.place, Mode::Create, &options.remote);
        let storage = storage.map_err(|error| Error::invalid(error.to_string()))?;
        return Ok(Arc::new(storage));
    };
    let tree = ObjectPath::parse(tree)?;
    let opened = storage_of(Path::new(&place.place), Mode::ReadWrite, options);
    let parent = opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => not_seen(place),
        _ => error,
    })?;
    match parent.stat(&tree.join("zarr.json")?) {
        Ok(_) => Ok(parent.within(&tree)?),
        Err(error) if error.is_not_found() => Err(not_seen(place)),
        Err(error) => Err(error.into()),
    }
}

fn not_seen(place: &TargetPlace) -> Error {
    let text = format!(
        "the target is not seen in {}: workers must reach source and target by the same paths, as on a shared \
         file system or in an object store",
        quoted(&place.place)
    );
    Error::new(ErrorKind::NotFound, text)
}
