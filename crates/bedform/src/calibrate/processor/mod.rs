//! Measurement of this machine's processor and memory, for their part in reads.
//!
//! Codecs decode three kinds of fields (smooth, noisy, sparse), which separates the cost of an
//! encoded byte from that of a decoded one. Memory is copied and gathered. Small reads of an array
//! in memory give the fixed costs of a read and a chunk. Each figure is a median, and is measured
//! again where the times differ much; a note reports figures that still vary.

#![allow(clippy::disallowed_methods, reason = "it reads what the kernel says")]

mod codecs;
mod engine;
mod memory;
mod stopwatch;

use bedform_storage::calibrate::check_cancelled;
use bedform_storage::{Processor, Profile};

use crate::error::Result;
use stopwatch::Stopwatch;

/// The most seconds of the measurement on an idle machine.
const SECONDS: f64 = 1.5;
/// The least gain of all cores over one; less means that other programs use them.
const GAIN_LEAST: f64 = 1.2;

/// Measures the machine, and adds the figures to `profile`, whose storage was measured. Takes about
/// a second and a half, with all cores at the end. `progress` is called with the stage and the part
/// done, 0 to 1.
///
/// # Errors
/// `Interrupted` if the call was cancelled.
pub(super) fn measure_processor(
    profile: &mut Profile,
    progress: &mut dyn FnMut(&'static str, f64),
) -> Result<()> {
    let cores = u32::try_from(bedform_storage::cores()).unwrap_or(1);
    let mut machine = Processor { name: model(), cores, ..Processor::default() };
    let mut watch = Stopwatch::new(SECONDS / 60.0);
    let mut stage = |what, done| {
        progress(what, done);
        check_cancelled("the processor")
    };
    stage("copying in memory", 0.0)?;
    memory::measure(&mut machine, &mut watch);
    stage("decoding", 0.2)?;
    codecs::measure(&mut machine, &mut watch);
    stage("reading small arrays in memory", 0.8)?;
    engine::measure(&mut machine, &mut watch)?;
    stage("decoding on all cores", 0.9)?;
    machine.gain = codecs::gain(machine.cores);
    stage("done", 1.0)?;
    // Even cores that share their execution units gain at least a fifth.
    let is_alone = machine.cores > 1 && machine.gain < GAIN_LEAST;
    if watch.was_disturbed() || is_alone {
        profile.notes.push("the processor was busy while it was measured: calibrate again".into());
    }
    profile.processor = machine;
    Ok(())
}

/// The processor's model, as the kernel reports it.
fn model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or(std::env::consts::ARCH).chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_measured_in_all_that_reads_are_priced_by() {
        let mut profile = Profile::default_local();
        let mut stages = Vec::new();
        measure_processor(&mut profile, &mut |_, done| stages.push(done)).unwrap();
        assert!(profile.to_json().is_ok());
        assert!(stages.is_sorted() && stages.last() == Some(&1.0));
        let machine = &profile.processor;
        assert!(!machine.name.is_empty());
        let assumed = Processor::default();
        for (name, times) in &machine.codecs {
            assert!(name == "other" || *times != assumed.codecs[name], "{name} was measured");
        }
        let slow = machine.codec("zlib").decoding(1.0, 1e6, 1e6);
        assert!(machine.codec("crc32c").decoding(1.0, 1e6, 1e6) < slow);
    }
}
