//! The choice of codecs for an array, and the price of decoding.
//!
//! `bedform_codec` encodes and decodes; this module knows profiles and prices.

pub(crate) mod choice;
pub(crate) mod cost;
