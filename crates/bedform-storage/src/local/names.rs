//! The reserved names of local storage, and the rules for removing them.

use std::io;

use super::publish;
use crate::file_system::{FileKind, FileSystem, LockWait, uninterrupted};

const TEMPORARY_PREFIX: &str = ".bedform-temp-";
/// The file whose lock is the caller-visible lock of its directory.
pub(super) const LOCK_NAME: &str = ".bedform-lock";
/// The most attempts to find a free temporary name.
pub(super) const ATTEMPTS_MAX: usize = 16;

/// True for the reserved names of local storage, which listings leave out: locks, and objects and
/// trees before publication.
///
/// ```
/// assert!(bedform_storage::is_own_name(".bedform-lock"));
/// assert!(!bedform_storage::is_own_name(".bedform-temp-notes.txt"));
/// ```
pub fn is_own_name(name: &str) -> bool {
    name == LOCK_NAME || is_temporary_name(name)
}

/// True for names of unpublished objects and workspaces: the prefix, the process number and a
/// token, in hexadecimal.
pub(super) fn is_temporary_name(name: &str) -> bool {
    let hexadecimal = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    name.strip_prefix(TEMPORARY_PREFIX)
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(process, token)| hexadecimal(process, 8) && hexadecimal(token, 16))
}

/// Returns a temporary name that no other call gets.
pub(super) fn temporary_name<F: FileSystem>(system: &F) -> String {
    format!("{TEMPORARY_PREFIX}{:08x}-{:016x}", std::process::id(), system.token())
}

/// Creates a file under a new temporary name, on the storage target if one is given, and takes its
/// lock. The lock shows sweepers that the writer is alive.
pub(super) fn create_temporary<F: FileSystem>(
    system: &F,
    directory: &F::Handle,
    target: Option<u32>,
) -> io::Result<(String, F::Handle)> {
    let create = |name: &str| match target {
        None => system.create_file(directory, name),
        Some(target) => system.create_file_on(directory, name, target),
    };
    for _ in 0..ATTEMPTS_MAX {
        let name = temporary_name(system);
        let file = match uninterrupted(|| create(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            outcome => outcome?,
        };
        match hold(system, &file) {
            Ok(true) => return Ok((name, file)),
            // A sweeper took the lock first and has removed the name, or is about to.
            Ok(false) => drop(file),
            Err(error) => {
                drop(file);
                let _ = uninterrupted(|| system.unlink(directory, &name));
                return Err(error);
            }
        }
    }
    Err(io::Error::other("no free temporary name"))
}

/// Takes the lock of a new temporary file; false if a sweeper took it first.
fn hold<F: FileSystem>(system: &F, file: &F::Handle) -> io::Result<bool> {
    match uninterrupted(|| system.lock(file, LockWait::Never)) {
        Ok(()) => Ok(uninterrupted(|| system.status(file))?.names > 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        // No locks here: a sweeper cannot take one either, and so removes nothing.
        Err(error) if is_missing_feature(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// True for the errors of a system that lacks a call.
pub(super) fn is_missing_feature(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The result of sweeping a temporary name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SweepResult {
    /// An object of a dead writer, which was removed.
    Removed,
    /// A file that a live writer may need, or no file.
    Kept,
    /// A workspace of a tree, which has its own lock.
    Workspace,
}

/// Removes the file `name` if it is an unpublished object of a dead writer.
pub(super) fn remove_orphan<F: FileSystem>(
    system: &F,
    directory: &F::Handle,
    name: &str,
) -> io::Result<SweepResult> {
    let kind = match uninterrupted(|| system.stat_child(directory, name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SweepResult::Kept),
        outcome => outcome?.kind,
    };
    match kind {
        FileKind::File => {}
        FileKind::Directory => return Ok(SweepResult::Workspace),
        _ => return Ok(SweepResult::Kept),
    }
    let file = match uninterrupted(|| system.open_child(directory, name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SweepResult::Kept),
        outcome => outcome?,
    };
    // Locked: the writer is alive. On any other error its death is unproven.
    if uninterrupted(|| system.lock(&file, LockWait::Never)).is_err() {
        return Ok(SweepResult::Kept);
    }
    match uninterrupted(|| system.unlink(directory, name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SweepResult::Kept),
        outcome => outcome.map(|()| SweepResult::Removed),
    }
}

/// Removes the lock file of `directory` if it is unlocked, because its holder died.
pub(super) fn remove_free_lock<F: FileSystem>(system: &F, directory: &F::Handle) -> io::Result<()> {
    let file = match uninterrupted(|| system.open_child(directory, LOCK_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        outcome => outcome?,
    };
    if uninterrupted(|| system.lock(&file, LockWait::Never)).is_err() {
        return Ok(());
    }
    publish::remove_lock_file(system, directory, &file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_exact_form_are_ours_to_remove() {
        assert!(is_temporary_name(".bedform-temp-0000002a-0123456789abcdef"));
        for name in [
            ".bedform-temp-",
            ".bedform-temp-2a-0123456789abcdef",
            ".bedform-temp-0000002a-0123456789abcdef.bak",
            ".bedform-temp-0000002A-0123456789abcdef",
            "bedform-temp-0000002a-0123456789abcdef",
            ".bedform-lock",
        ] {
            assert!(!is_temporary_name(name), "{name}");
        }
    }
}
