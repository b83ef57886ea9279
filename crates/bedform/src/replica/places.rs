//! The places of the elements of a replica of points: an array of its own beside the elements.
//!
//! They are read at the first need, compared with the catalogue's fingerprint, and shared by all
//! replicas with the same points.

use std::sync::{Arc, OnceLock};

use bedform_format::replica::{ReplicaElements, fingerprint_of};
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::Selection;

use super::catalogue::PLACES;
use super::open_replica::OpenReplica;
use super::source::{ReplicaSource, versions_of};
use crate::error::{Error, Result};
use crate::plan::copy::CopyTarget;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::plan::{PlanPiece, ReadPlan};
use crate::source::Settled;
use crate::zarr::source::ZarrSource;

/// Places of points, loaded once for all replicas with the same points.
pub(super) type SharedPlaces = Arc<OnceLock<Option<Vec<u64>>>>;

impl OpenReplica {
    /// Returns the places of its elements in the C order of the array, ascending; `None` for a
    /// replica without points, or if they cannot be read.
    pub(crate) fn places(&self) -> Option<&[u64]> {
        let places = self.places.get_or_init(|| self.load_places().ok());
        if places.is_none() {
            self.distrust();
        }
        places.as_deref()
    }

    fn load_places(&self) -> Result<Vec<u64>> {
        let damaged = || Error::corrupt(self.name(), "its places are not those of the catalogue");
        let ReplicaElements::Points { count, first, last } = self.record.held else {
            return Err(damaged());
        };
        let opened = self.opened().ok_or_else(damaged)?;
        let path = ObjectPath::parse(PLACES)?;
        let of = self.record.places.as_ref().ok_or_else(damaged)?;
        let state = self.state_of(&opened.hierarchy, &path, of.document.clone())?;
        let is_number = state.metadata.data_type == DataType::UInt64;
        if state.metadata.shape != [count] || !is_number {
            return Err(damaged());
        }
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(8));
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes.ok_or_else(damaged)?).map_err(|_| damaged())?;
        buffer.resize(bytes.unwrap_or(0), 0);
        let geometry = state.layout.geometry(&Selection::all(&[count]))?;
        let own = versions_of(&of.objects);
        let source = ZarrSource { hierarchy: &opened.hierarchy, path: &path, state: &state };
        let source = ReplicaSource { source, own: &own };
        let piece = PlanPiece {
            source: &source,
            moment: &Settled,
            layout: &state.layout,
            meaning: 0,
            geometry: &geometry,
            cache: None,
            begins: None,
            cells_before: 0,
        };
        let plan = ReadPlan::new(std::slice::from_ref(&piece), &opened.hierarchy.tuning);
        execute(plan, Deliver::Buffer(CopyTarget::new(&mut buffer)))?;
        #[allow(clippy::host_endian_bytes)]
        let number = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        let places: Vec<u64> = buffer.as_chunks::<8>().0.iter().map(number).collect();
        let ascend = places.windows(2).all(|pair| pair[0] < pair[1]);
        let is_right = ascend
            && places.first() == Some(&first)
            && places.last() == Some(&last)
            && of.fingerprint == fingerprint_of(&places);
        is_right.then_some(places).ok_or_else(damaged)
    }
}
