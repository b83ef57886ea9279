//! The shards of an array as a sink of settled data.

use super::object::{ObjectWrite, open_stored};
use super::source::ZarrSource;
use crate::error::Result;
use crate::source::Moment;
use crate::write::elements::WriteInput;
use crate::write::sink::{BuiltUnit, Sink, StagedUnit, StoredUnit, WriteResources};

/// The sink of one array's settled commits. A unit is a shard; its stamp names the commits that it
/// contains.
#[derive(Clone, Copy)]
pub(crate) struct ShardSink<'a> {
    pub(crate) source: &'a ZarrSource<'a>,
    pub(crate) moment: &'a dyn Moment,
    /// See the field of [`ObjectWrite`].
    pub(crate) kept_beside: Option<&'static str>,
}

impl ShardSink<'_> {
    fn change<'s>(
        &'s self,
        coordinates: &[u64],
        valid: Option<&'s [u64]>,
        resources: WriteResources,
    ) -> ObjectWrite<'s> {
        ObjectWrite {
            source: self.source,
            moment: self.moment,
            plan: None,
            input: WriteInput::Bytes(&[]),
            coordinates: coordinates.to_vec(),
            valid,
            resources,
            check: None,
            kept_beside: self.kept_beside,
        }
    }
}

impl Sink for ShardSink<'_> {
    fn unit_name(&self, coordinates: &[u64]) -> String {
        self.source.object_name_of(coordinates)
    }

    fn open_unit(&self, coordinates: &[u64]) -> Result<Option<StoredUnit>> {
        open_stored(self.source, coordinates)
    }

    fn stage_built<'s>(
        &'s self,
        coordinates: &[u64],
        valid: Option<&'s [u64]>,
        built: &'s BuiltUnit,
        resources: WriteResources,
    ) -> Result<Box<dyn StagedUnit + 's>> {
        self.change(coordinates, valid, resources).stage_built(built)
    }

    fn is_covered(&self, coordinates: &[u64]) -> Result<bool> {
        let contained = self.open_unit(coordinates)?.map_or(0, |stored| stored.contained);
        let name = || self.unit_name(coordinates);
        Ok(self.moment.cover(coordinates, contained, &name)?.is_some())
    }

    fn publish_covered(&self, coordinates: &[u64], resources: WriteResources) -> Result<u64> {
        self.change(coordinates, None, resources).run()
    }
}
