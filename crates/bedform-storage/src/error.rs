//! Failures of storage: the operation, the object, and the remedy.

use std::fmt;
use std::io;

use bedform_format::shown::message;
use rustix::io::Errno;

/// The class of a [`StorageError`], which tells the caller the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageErrorKind {
    /// No such object. Create it, or look elsewhere.
    NotFound,
    /// The object exists and was to be created. Open it, or choose another name.
    Exists,
    /// The object changed since it was read. Read it again and retry.
    Conflict,
    /// The place, or this handle, is read-only.
    ReadOnly,
    /// The system refuses access.
    PermissionDenied,
    /// No space or quota left. Free some and retry.
    NoSpace,
    /// The file would be larger than this process, or its file system, may make one. Raise the limit.
    FileTooLarge,
    /// The object is not a plain file inside the store: a link out of it, a device, a directory.
    NotAnObject,
    /// The object ends before the requested bytes.
    Truncated,
    /// The outcome of an earlier write is unknown, so this handle does nothing more. Open the store
    /// again: it shows the last state that is known to be whole.
    Poisoned,
    /// The program was asked to stop while it waited. Repeat the call to continue.
    Interrupted,
    /// The place has no such operation. Work without it.
    Unsupported,
    /// The target of a reference is missing or differs from the recorded one. The source gives the
    /// reason.
    Dangling,
    /// A server cannot be reached, or refuses. The source holds its message.
    Server,
    /// Any other failure of the device or the system.
    Io,
}

/// The message about a file system without locks.
pub(crate) const NO_LOCKS: &str = "this file system has no locks (flock): mount it with -o flock \
     (Lustre) or with a lock manager (NFS); 'bedform check DIRECTORY' tests it";

/// A failed operation on an object.
#[derive(Debug)]
pub struct StorageError {
    /// The class of the error, with its remedy.
    pub kind: StorageErrorKind,
    /// The operation, as a verb: "open", "read", "write", "sync", "publish", "delete", "list".
    pub operation: &'static str,
    /// The object or directory, as the user knows it.
    pub path: String,
    /// The error of the system, if a system call failed.
    pub source: Option<io::Error>,
}

impl StorageError {
    /// Returns an error that no system call caused.
    pub fn new(kind: StorageErrorKind, operation: &'static str, path: impl fmt::Display) -> Self {
        Self { kind, operation, path: path.to_string(), source: None }
    }

    /// Returns the error for a system call that failed with `source`.
    pub fn from_io(operation: &'static str, path: impl fmt::Display, source: io::Error) -> Self {
        Self {
            kind: StorageErrorKind::of(&source),
            operation,
            path: path.to_string(),
            source: Some(source),
        }
    }

    /// True for a lock that failed because the file system gives none.
    fn is_without_locks(&self) -> bool {
        let missing = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK];
        let errno = self.source.as_ref().and_then(Errno::from_io_error);
        matches!(self.operation, "lock" | "sweep") && errno.is_some_and(|it| missing.contains(&it))
    }

    /// True if the object is missing.
    pub fn is_not_found(&self) -> bool {
        self.kind == StorageErrorKind::NotFound
    }
}

impl StorageErrorKind {
    /// Returns the kind that stands for a system error.
    pub fn of(error: &io::Error) -> Self {
        use io::ErrorKind as E;
        // A link that must not be followed; a socket, or a device without a driver.
        let special = [Errno::LOOP, Errno::NXIO];
        if special.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            return Self::NotAnObject;
        }
        match error.kind() {
            E::NotFound | E::NotADirectory => Self::NotFound,
            E::AlreadyExists => Self::Exists,
            E::PermissionDenied => Self::PermissionDenied,
            E::ReadOnlyFilesystem => Self::ReadOnly,
            E::StorageFull | E::QuotaExceeded => Self::NoSpace,
            E::FileTooLarge => Self::FileTooLarge,
            E::UnexpectedEof => Self::Truncated,
            E::IsADirectory | E::CrossesDevices => Self::NotAnObject,
            _ => Self::Io,
        }
    }

    /// Returns the kind as a phrase for a message.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::NotFound => "it does not exist",
            Self::Exists => "it exists already",
            Self::Conflict => "it was changed by another writer; read it again and retry",
            Self::ReadOnly => "it is read-only",
            Self::PermissionDenied => "permission denied",
            Self::NoSpace => "no space left; free some and try again",
            Self::FileTooLarge => {
                "it would pass the limit on the size of a file (RLIMIT_FSIZE): raise it with ulimit -f"
            }
            Self::NotAnObject => "it is not a plain file inside the store",
            Self::Truncated => "it ends too early",
            Self::Poisoned => "an earlier write failed with unknown outcome; open the store again",
            Self::Interrupted => "stopped while it was waited for",
            Self::Unsupported => "it cannot be done there",
            Self::Dangling => "it is not as the references say",
            Self::Server => "the server did not give it",
            Self::Io => "the device or system failed",
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot {} ", self.operation)?;
        match self.path.as_str() {
            // A caller that knows the directory's name adds it in front.
            "" => write!(formatter, "the directory itself: {}", self.kind.phrase())?,
            path => write!(formatter, "{path:?}: {}", self.kind.phrase())?,
        }
        let tells_more = |source: &io::Error| match self.kind {
            StorageErrorKind::Io
            | StorageErrorKind::Server
            | StorageErrorKind::Unsupported
            | StorageErrorKind::Dangling => true,
            // A server's message, not an error of the system.
            StorageErrorKind::PermissionDenied | StorageErrorKind::Poisoned => {
                source.raw_os_error().is_none()
            }
            _ => false,
        };
        let Some(source) = self.source.as_ref().filter(|source| tells_more(source)) else {
            return Ok(());
        };
        if self.is_without_locks() {
            return write!(formatter, " ({NO_LOCKS})");
        }
        // A server may have sent any text.
        write!(formatter, " ({})", message(source.to_string()))?;
        limit_behind(source).map_or(Ok(()), |limit| write!(formatter, "; {limit}"))
    }
}

/// Returns the limit of the environment that a call has met, with its remedy. `None` for any other
/// failure.
pub fn limit_behind(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some("raise the limit on open files (RLIMIT_NOFILE) with ulimit -n"),
        Errno::NFILE => {
            Some("the system has no more open files to give: close some, or raise fs.file-max")
        }
        Errno::NOMEM => Some(
            "use less memory, or raise the limit on it (RLIMIT_AS with ulimit -v, or a control group's)",
        ),
        // From starting a thread or process.
        Errno::AGAIN => Some(
            "raise the limit on processes and threads (RLIMIT_NPROC with ulimit -u, or a control group's)",
        ),
        _ => None,
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_is_named_with_the_remedy() {
        for errno in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK] {
            let said = StorageError::from_io("lock", "t", errno.into()).to_string();
            assert!(said.contains("-o flock") && said.contains("bedform check"), "{said}");
            let other = StorageError::from_io("read", "t", errno.into()).to_string();
            assert!(!other.contains("flock"), "{other}");
        }
    }

    #[test]
    fn the_directory_itself_has_a_name_in_messages() {
        let said =
            |path: &str| StorageError::new(StorageErrorKind::NotFound, "open", path).to_string();
        assert_eq!(said(""), "cannot open the directory itself: it does not exist");
        assert_eq!(said("a/b"), "cannot open \"a/b\": it does not exist");
    }
}
