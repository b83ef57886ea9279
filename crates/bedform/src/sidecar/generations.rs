//! Numbered helper files that never change: the newest valid one counts.

use bedform_format::chunk_map::SourceVersion;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Condition, Durability, Storage, StorageErrorKind};
use serde_json::{Map, Value};

use super::{Helper, Sidecar};

/// Generations that are tried before a damaged list counts as empty.
const TRIED_MAX: usize = 4;
/// Attempts to create the next number while other writers create it.
const ATTEMPTS_MAX: usize = 64;
/// Digits of a number in a name.
const DIGITS: usize = 8;

impl Sidecar {
    /// Returns the newest valid generation in the directory `list` of the sidecar that was made of
    /// `source`, and its number.
    pub fn load_newest<H: Helper>(
        &self,
        list: &str,
        source: &SourceVersion,
        limits: &Limits,
    ) -> Option<(u64, H)> {
        let storage = self.holder.to_read()?;
        let numbers = numbers(&*storage, &self.directory.join(list).ok()?);
        let newest = numbers.into_iter().rev().take(TRIED_MAX);
        let found = newest.filter_map(|number| {
            let name = format!("{list}/{}", name_of(number));
            Some((number, self.read(&*storage, &name, source, limits)?))
        });
        let found = found.into_iter().next();
        if found.is_some() {
            self.note_use();
        }
        found
    }

    /// Returns the highest number in the directory `list`, valid or not; 0 if there is none.
    pub fn last_number(&self, list: &str) -> u64 {
        let directory = self.directory.join(list).ok();
        let numbers = self.holder.to_read().zip(directory).map(|(storage, directory)| {
            numbers(&*storage, &directory).last().copied().unwrap_or(0)
        });
        numbers.unwrap_or(0)
    }

    /// Returns the newest generation in the directory `list` that is a JSON object of at most
    /// `bytes_max` bytes, for display.
    pub fn newest_document(&self, list: &str, bytes_max: u64) -> Option<Map<String, Value>> {
        let storage = self.holder.to_read()?;
        let numbers = numbers(&*storage, &self.directory.join(list).ok()?);
        numbers.into_iter().rev().take(TRIED_MAX).find_map(|number| {
            let bytes = self.bytes_from(&format!("{list}/{}", name_of(number)), 0, bytes_max)?;
            serde_json::from_slice(&bytes).ok()
        })
    }

    /// Keeps `helper` as the next generation in the directory `list`, and removes those before the
    /// last. Returns its number if it was kept. A writer that builds on an earlier generation
    /// compares the numbers.
    pub fn save_next<H: Helper>(&self, list: &str, helper: &H) -> Option<u64> {
        let (storage, bytes) = self.ready_to_write(helper)?;
        let directory = self.directory.join(list).ok()?;
        let number = create_next(&*storage, &directory, &bytes)?;
        // A reader that has listed them may be opening the one before.
        for old in numbers(&*storage, &directory).into_iter().filter(|old| old + 1 < number) {
            let Ok(path) = directory.join(&name_of(old)) else { continue };
            let _ = storage.delete(&path, Durability::Process, Condition::None);
        }
        self.keep_within(&*storage);
        Some(number)
    }
}

/// Creates the object with the next number.
fn create_next(storage: &dyn Storage, directory: &ObjectPath, bytes: &[u8]) -> Option<u64> {
    for _ in 0..ATTEMPTS_MAX {
        let number = numbers(storage, directory).last().map_or(Some(1), |last| last.checked_add(1));
        let number = number.filter(|number| name_of(*number).len() == DIGITS)?;
        let path = directory.join(&name_of(number)).ok()?;
        match storage.put(&path, bytes, Durability::Process, Condition::Absent) {
            // A late writer may have got a number that was used and removed.
            Ok(_) if numbers(storage, directory).last().is_some_and(|last| *last > number) => {
                let _ = storage.delete(&path, Durability::Process, Condition::None);
            }
            Ok(_) => return Some(number),
            Err(error) if error.kind == StorageErrorKind::Exists => {}
            Err(_) => return None,
        }
    }
    None
}

fn name_of(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

/// Returns the existing numbers, ascending.
fn numbers(storage: &dyn Storage, directory: &ObjectPath) -> Vec<u64> {
    let entries = storage.list(directory).unwrap_or_default().into_iter();
    let names = entries.filter(|entry| !entry.is_directory && entry.name.len() == DIGITS);
    names.filter_map(|entry| entry.name.parse().ok()).collect()
}
