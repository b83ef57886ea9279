//! The choice of codecs for an array, the predicted time of decoding, and the work behind it.
//!
//! `bedform_codec` encodes and decodes; this module knows profiles and prices.

pub(crate) mod choice;
pub(crate) mod cost;
pub(crate) mod work;
