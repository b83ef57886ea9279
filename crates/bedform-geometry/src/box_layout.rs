//! Boxes on storage: cut, packed into chunks, and the predicted cost of reads of regions.
//!
//! - [`CutBoxes`] cuts boxes into boxes of limited size.
//! - [`PackedBoxes`] places boxes in a row of chunks, none across two chunks.
//! - [`BoxExtents`] and [`StepCosts`] predict the seconds of a read by the model of H. Tang's
//!   dissertation, section 4.2.2, "Performance Model".
//! - [`OrderChoice`] chooses an order by sampled regions, as in "Target Layout Decision Making".

mod choice;
mod cost;
mod cut;
mod pack;

pub use choice::{ChoiceOptions, OrderChoice, RegionSampler};
pub use cost::{BoxExtents, StepCosts, StripedTargets, TargetSteps};
pub use cut::CutBoxes;
pub use pack::PackedBoxes;
