//! Choice of codecs for arrays that are settled for the first time, from samples of their logged
//! data.

use std::sync::Arc;

use bedform_format::metadata::parse_array;
use bedform_geometry::{delinearize, element_count};

use super::plan::SettlePlan;
use crate::codec::choice::SampleBlock;
use crate::error::{Error, Result};
use crate::log::opened::OpenedStore;
use crate::log::view::RootView;
use crate::source::Moment as _;
use crate::write::elements::ChunkElements;
use crate::write::sample::{SampleBlocks, spread};
use crate::zarr::choosing::{ArrayToClose, chosen_by, close};
use crate::zarr::state::ArrayState;

/// Chunks of an object that are searched for one with committed elements.
const LOOKED_MAX: usize = 64;
/// The same, as long as none was found.
const OTHERS_MAX: u64 = 1 << 12;

/// Gives codecs to the arrays of `plans` that have none yet, all in one commit.
///
/// # Errors
/// `Corrupt` for damaged records; as [`close`].
pub(super) fn choose_codecs(
    store: &Arc<OpenedStore>,
    view: &Arc<RootView>,
    plans: &mut [SettlePlan],
) -> Result<()> {
    let mut closings = Vec::new();
    for plan in plans.iter().filter(|plan| plan.state.is_open) {
        let chosen =
            chosen_by(store, &plan.path, &plan.state.metadata, || sample(store, view, plan))?;
        closings.push(ArrayToClose { path: &plan.path, state: &plan.state, chosen: Some(chosen) });
    }
    if closings.is_empty() {
        return Ok(());
    }
    let documents = close(store, &closings)?;
    drop(closings);
    let open = plans.iter_mut().filter(|plan| plan.state.is_open);
    for (plan, mut document) in open.zip(documents) {
        // Commits may have made the array larger than its document says.
        document["shape"] = plan.state.metadata.shape.clone().into();
        let metadata = parse_array(&document, &store.options.limits)
            .map_err(|error| Error::metadata(store.name_of(&plan.path), error))?;
        plan.state = Arc::new(ArrayState::new(store, &plan.path, metadata, document, None)?);
    }
    Ok(())
}

/// Returns chunks that the commits of `view` have written to, spread over the array.
fn sample(
    store: &OpenedStore,
    view: &Arc<RootView>,
    plan: &SettlePlan,
) -> Result<Vec<SampleBlock>> {
    let pinned = plan.pinned(store, view);
    let layout = &plan.state.layout;
    let objects = plan.objects.len() as u64;
    let mut blocks = SampleBlocks::new(layout, objects.saturating_mul(layout.object_bytes()));
    let objects = spread(objects, blocks.count_max());
    let per_object = blocks.count_max().div_ceil(objects.len().max(1));
    for at in objects {
        let object = usize::try_from(at).ok().and_then(|at| plan.objects.get(at));
        let Some(object) = object else { continue };
        let coordinates = plan.coordinates(object.number);
        let name = || pinned.source.object_name_of(&coordinates);
        let Some(cover) = pinned.moment.cover(&coordinates, 0, &name)? else { continue };
        let wanted = blocks.found.len() + per_object;
        let chunks = element_count(&layout.per_object).unwrap_or(u64::MAX);
        let positions = spread(chunks, LOOKED_MAX).into_iter().chain(0..chunks.min(OTHERS_MAX));
        for (number, position) in positions.enumerate() {
            // If few chunks were written, all may lie between the first positions: the others
            // follow.
            let is_late = number >= LOOKED_MAX && !blocks.found.is_empty();
            if is_late || blocks.are_enough() || blocks.found.len() >= wanted {
                break;
            }
            let inside = delinearize(position, &layout.per_object);
            let chunk: Vec<u64> = (0..inside.len())
                .map(|axis| coordinates[axis] * layout.per_object[axis] + inside[axis])
                .collect();
            if cover.touches(&chunk) {
                let mut elements = ChunkElements::default();
                elements.clear(layout);
                elements.lay(&chunk, &*cover)?;
                blocks.add(&mut elements, &chunk, true);
            }
        }
    }
    Ok(blocks.found)
}
