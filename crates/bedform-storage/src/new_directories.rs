//! Directories that a failed creation leaves behind.

use std::path::{Path, PathBuf};

/// The directories of a path that do not exist yet, to be removed if the store or file there is
/// refused.
///
/// ```
/// use bedform_storage::NewDirectories;
///
/// # let base = std::env::temp_dir().join(format!("bedform-new-{}", std::process::id()));
/// # std::fs::create_dir(&base).unwrap();
/// let new = NewDirectories::of(&base.join("a/b"));
/// std::fs::create_dir_all(base.join("a/b")).unwrap();
/// new.remove();
/// assert!(base.exists() && !base.join("a").exists());
/// # std::fs::remove_dir(base).unwrap();
/// ```
#[derive(Debug)]
pub struct NewDirectories(Vec<PathBuf>);

impl NewDirectories {
    /// Looks which of `path` and the directories above it are missing.
    pub fn of(path: &Path) -> Self {
        let Ok(absolute) = std::path::absolute(path) else { return Self(Vec::new()) };
        let missing = absolute.ancestors().take_while(|path| path.symlink_metadata().is_err());
        Self(missing.map(Path::to_path_buf).collect())
    }

    /// Removes those that exist now and are empty. One that another process has put something into
    /// stays.
    pub fn remove(self) {
        let _ = self.0.iter().try_for_each(std::fs::remove_dir);
    }
}
