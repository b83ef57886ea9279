//! A check whether a program of this machine has a file open for writing.

#![allow(clippy::disallowed_methods, reason = "it reads what the kernel says")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns true if a process, this one included, has the file open for writing. Only processes
/// whose files this one may list are checked.
///
/// It is for files that stay whole while they are written. The check is incomplete: it misses
/// writers of other users and of other machines.
pub(super) fn has_writer(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let identity = (metadata.dev(), metadata.ino());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes.filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()))
    });
    numbered.into_iter().any(|process| writes(&process.path(), identity))
}

fn writes(process: &Path, identity: (u64, u64)) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut same = open.filter(|entry| {
        let found = fs::metadata(entry.path()).map(|found| (found.dev(), found.ino()));
        found.is_ok_and(|found| found == identity)
    });
    same.any(|entry| {
        let facts = fs::read_to_string(process.join("fdinfo").join(entry.file_name()));
        facts.is_ok_and(|facts| is_open_for_writing(&facts))
    })
}

/// Returns true if the flags in a file's `fdinfo` allow writing: they are octal, and the last two
/// bits are the access mode.
fn is_open_for_writing(facts: &str) -> bool {
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_writer_is_seen_for_as_long_as_it_has_the_file_open() {
        let path = std::env::temp_dir().join(format!("bedform-writers-{}", std::process::id()));
        let writer =
            OpenOptions::new().write(true).create(true).truncate(true).open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(has_writer(&reader));
        drop(writer);
        assert!(!has_writer(&reader));
        fs::remove_file(&path).unwrap();
    }
}
