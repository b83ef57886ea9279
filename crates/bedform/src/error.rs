//! The error of the engine: its kind tells a caller how to react, its message names the failure,
//! the object and the remedy.

use std::fmt;
use std::io;

use bedform_codec::CodecError;
use bedform_format::amr::AmrError;
use bedform_format::json::JsonError;
use bedform_format::metadata::MetadataError;
use bedform_format::shown;
use bedform_geometry::GeometryError;
use bedform_storage::{StorageError, StorageErrorKind, limit_behind};

/// The kinds of errors, by the action that a caller can take. The names are the same in Python and
/// C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such store, array or group: check the name.
    NotFound,
    /// It exists and was to be created: open it, or choose another name.
    Exists,
    /// The call is wrong: fix the argument.
    InvalidArgument,
    /// A selection leaves the array: fix the selection.
    OutOfBounds,
    /// The data need a feature that this version lacks.
    Unsupported,
    /// Stored bytes are damaged: restore them from a copy.
    Corrupt,
    /// Another writer was faster: read again and retry.
    Conflict,
    /// The data moved on while they were read: read again.
    SnapshotMoved,
    /// The data claim more than a limit allows: raise the limit if they are to be trusted.
    LimitExceeded,
    /// The store is read-only or was opened so.
    ReadOnly,
    /// The system refuses access.
    PermissionDenied,
    /// No space left: free some and retry.
    NoSpace,
    /// An earlier write has an unknown outcome: open the store again.
    Poisoned,
    /// The caller stopped the work.
    Interrupted,
    /// The device or system failed.
    Io,
    /// A bug of Bedform: report it.
    Internal,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::NotFound,
        Self::Exists,
        Self::InvalidArgument,
        Self::OutOfBounds,
        Self::Unsupported,
        Self::Corrupt,
        Self::Conflict,
        Self::SnapshotMoved,
        Self::LimitExceeded,
        Self::ReadOnly,
        Self::PermissionDenied,
        Self::NoSpace,
        Self::Poisoned,
        Self::Interrupted,
        Self::Io,
        Self::Internal,
    ];

    /// The stable name, which all doors share.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::Exists => "Exists",
            Self::InvalidArgument => "InvalidArgument",
            Self::OutOfBounds => "OutOfBounds",
            Self::Unsupported => "Unsupported",
            Self::Corrupt => "Corrupt",
            Self::Conflict => "Conflict",
            Self::SnapshotMoved => "SnapshotMoved",
            Self::LimitExceeded => "LimitExceeded",
            Self::ReadOnly => "ReadOnly",
            Self::PermissionDenied => "PermissionDenied",
            Self::NoSpace => "NoSpace",
            Self::Poisoned => "Poisoned",
            Self::Interrupted => "Interrupted",
            Self::Io => "Io",
            Self::Internal => "Internal",
        }
    }
}

/// A failed operation. The message is one line: the failure, the object, the remedy. Quoted names
/// and values are escaped for display: see [`shown`].
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The source of an error of too little memory, which has the same kind as a limit that data
/// exceed.
#[derive(Debug, thiserror::Error)]
#[error("memory is short")]
struct NoMemory;

/// The result of an operation of the engine.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::with(kind, message.into(), None)
    }

    fn with(
        kind: ErrorKind,
        message: String,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: shown::message(message), source }
    }

    /// Makes the error of a wrong argument.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// Makes the error of damaged data in the object `object`.
    pub fn corrupt(object: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Corrupt,
            format!("{object} is damaged: {problem}; restore it from a copy"),
        )
    }

    /// Makes the error of a thread that the system refuses to start.
    pub(crate) fn no_thread(error: &io::Error) -> Self {
        let remedy = limit_behind(error).map_or_else(String::new, |limit| format!("; {limit}"));
        Self::new(ErrorKind::Io, format!("cannot start a thread: {error}{remedy}"))
    }

    /// Makes the error of too little memory, by the system or by a limit on this process.
    pub(crate) fn no_memory(message: impl Into<String>) -> Self {
        Self::with(ErrorKind::LimitExceeded, message.into(), Some(Box::new(NoMemory)))
    }

    /// True if memory is short, rather than the data at fault.
    pub(crate) fn is_of_memory(&self) -> bool {
        self.source.as_deref().is_some_and(|source| source.is::<NoMemory>())
    }

    /// True if the stored document is damaged, or of a kind that this version lacks. Its neighbours
    /// can still be read.
    pub(crate) fn is_of_document(&self) -> bool {
        match self.kind {
            ErrorKind::Corrupt | ErrorKind::Unsupported => true,
            ErrorKind::LimitExceeded => !self.is_of_memory(),
            _ => false,
        }
    }

    /// The kind, by which the caller can react.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True if storage denies listing.
    pub(crate) fn is_of_list(&self) -> bool {
        let source =
            self.source.as_deref().and_then(|source| source.downcast_ref::<StorageError>());
        self.kind == ErrorKind::PermissionDenied
            && source.is_some_and(|source| source.operation == "list")
    }

    /// Puts `place` in front of the message.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = shown::message(format!("{place}: {}", self.message));
        self
    }

    /// Puts `more` behind the message: a part of the work that was done in spite of the error.
    pub(crate) fn followed_by(mut self, more: impl fmt::Display) -> Self {
        self.message = shown::message(format!("{}; {more}", self.message));
        self
    }

    /// Makes the error of a chunk or record at `place` that cannot be decoded. It is damaged unless
    /// its codec cannot be run or memory is short.
    pub(crate) fn decoding(place: impl fmt::Display, error: CodecError) -> Self {
        match error {
            CodecError::Unsupported(what) => {
                Self::new(ErrorKind::Unsupported, format!("{place}: {what}"))
            }
            CodecError::Memory { .. } => Self::no_memory(format!(
                "{place}: {error}; read less at a time, or raise the limit on memory (RLIMIT_AS with \
                 ulimit -v, or a control group's)"
            )),
            error => Self::corrupt(place, error),
        }
    }

    /// Makes the error of a chunk or record that cannot be encoded.
    pub(crate) fn encoding(error: CodecError) -> Self {
        match error {
            CodecError::Memory { .. } => Self::no_memory(format!(
                "cannot encode: {error}; write less at a time, or raise the limit on memory (RLIMIT_AS \
                 with ulimit -v, or a control group's)"
            )),
            error => Self::new(ErrorKind::Unsupported, error.to_string()),
        }
    }

    /// Makes the error of a refused metadata document, by the name of its object.
    pub fn metadata(object: impl fmt::Display, error: MetadataError) -> Self {
        let kind = match &error {
            MetadataError::Unsupported { .. } | MetadataError::Json(JsonError::WebPage(_)) => {
                ErrorKind::Unsupported
            }
            MetadataError::Json(
                JsonError::TooLarge { .. }
                | JsonError::TooDeep { .. }
                | JsonError::TooManyValues { .. },
            ) => ErrorKind::LimitExceeded,
            _ => ErrorKind::Corrupt,
        };
        let message = match kind {
            ErrorKind::Corrupt => format!("{object} is not valid metadata: {error}"),
            _ => format!("{object}: {error}"),
        };
        Self::with(kind, message, Some(Box::new(error)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<StorageError> for Error {
    fn from(mut error: StorageError) -> Self {
        // An engine error of a callback, which storage has wrapped, is unwrapped unchanged.
        let is_own = |source: &io::Error| source.get_ref().is_some_and(|inner| inner.is::<Self>());
        if let Some(source) = error.source.take_if(|source| is_own(source))
            && let Some(Ok(own)) = source.into_inner().map(|inner| inner.downcast::<Self>())
        {
            return *own;
        }
        let kind = match error.kind {
            StorageErrorKind::NotFound => ErrorKind::NotFound,
            StorageErrorKind::Exists => ErrorKind::Exists,
            StorageErrorKind::Conflict => ErrorKind::Conflict,
            StorageErrorKind::ReadOnly => ErrorKind::ReadOnly,
            StorageErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            StorageErrorKind::NoSpace => ErrorKind::NoSpace,
            StorageErrorKind::NotAnObject
            | StorageErrorKind::Truncated
            | StorageErrorKind::Dangling => ErrorKind::Corrupt,
            StorageErrorKind::Poisoned => ErrorKind::Poisoned,
            StorageErrorKind::Interrupted => ErrorKind::Interrupted,
            _ => ErrorKind::Io,
        };
        Self::with(kind, error.to_string(), Some(Box::new(error)))
    }
}

impl From<GeometryError> for Error {
    fn from(error: GeometryError) -> Self {
        let kind = match error {
            GeometryError::IndexOutOfBounds { .. } | GeometryError::RangePastEnd { .. } => {
                ErrorKind::OutOfBounds
            }
            _ => ErrorKind::InvalidArgument,
        };
        Self::with(kind, error.to_string(), Some(Box::new(error)))
    }
}

impl From<AmrError> for Error {
    fn from(error: AmrError) -> Self {
        let kind = match error {
            AmrError::Unsupported { .. } => ErrorKind::Unsupported,
            AmrError::Limit { .. } => ErrorKind::LimitExceeded,
            _ => ErrorKind::Corrupt,
        };
        Self::with(kind, error.to_string(), Some(Box::new(error)))
    }
}

impl From<bedform_format::PathError> for Error {
    fn from(error: bedform_format::PathError) -> Self {
        Self::with(ErrorKind::InvalidArgument, error.to_string(), Some(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use bedform_codec::{ChunkCodec, Scratch};
    use bedform_format::{
        BytesCodec, CodecChain, DataType, Endian, Limits, ObjectPath, Serializer, json,
    };

    use super::*;

    #[test]
    fn whatever_an_error_quotes_it_is_fit_to_be_shown() {
        for quoted in
            ["\u{1b}]0;t\u{7}", "\u{9b}2J", "\u{202e}", "a\nb", &"\u{200b}".repeat(1_000_000)]
        {
            let said = || quoted.to_owned();
            let server = io::Error::other(said());
            let metadata = bedform_format::metadata::MetadataError::from(
                json::parse(said().as_bytes(), &Limits::default()).unwrap_err(),
            );
            let errors = [
                Error::new(ErrorKind::Io, said()),
                Error::invalid("x").at(quoted),
                Error::invalid("x").followed_by(quoted),
                Error::corrupt(quoted, quoted),
                Error::metadata(quoted, metadata),
                Error::from(StorageError::from_io("open", quoted, server)),
                ObjectPath::parse(quoted).map_or_else(Error::from, |_| Error::invalid(said())),
            ];
            for error in errors {
                let shown = error.to_string();
                assert!(shown.is_ascii() && !shown.contains(char::is_control), "{shown:.300}");
                assert!(shown.chars().count() <= shown::MESSAGE_CHARS_MAX, "{}", shown.len());
            }
        }
    }

    #[test]
    fn a_chunk_is_not_damaged_where_zstd_gets_no_memory() {
        let bytes = vec![BytesCodec::Zstd { level: 3, checksum: false }];
        let serializer = Serializer::Bytes(Endian::Little);
        let zstd = CodecChain { transpose: None, serializer, bytes };
        let codec = ChunkCodec::new(&zstd, DataType::UInt8, &[4096]);
        let (elements, mut encoded) = (vec![7; 4096], Vec::new());
        codec.encode(&elements, &mut Scratch::default(), &mut encoded).unwrap();
        let name = "error::tests::a_chunk_is_not_damaged_where_zstd_gets_no_memory";
        crate::memory::shortage::of(name, || {
            let shortage = CodecError::Memory { bytes: elements.len() };
            for needed in [16, elements.len()] {
                let mut scratch = Scratch::default();
                let decoded = codec.decode_front(&encoded, 0, needed, &mut scratch);
                assert_eq!(decoded.unwrap_err(), shortage);
            }
            let written = codec.encode(&elements, &mut Scratch::default(), &mut Vec::new());
            assert_eq!(written.as_ref().unwrap_err(), &shortage);
            for error in [Error::decoding("c/0", shortage.clone()), Error::encoding(shortage)] {
                assert_eq!(error.kind(), ErrorKind::LimitExceeded);
                assert!(error.is_of_memory() && error.to_string().contains("ulimit -v"), "{error}");
            }
        });
    }

    #[test]
    fn a_limit_of_the_environment_is_named() {
        for (code, said) in [
            (rustix::io::Errno::MFILE, "ulimit -n"),
            (rustix::io::Errno::NOMEM, "ulimit -v"),
            (rustix::io::Errno::FBIG, "ulimit -f"),
        ] {
            let error = StorageError::from_io("write", "c/0", code.into());
            let error = Error::from(error);
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains(said), "{error}");
        }
        let error = Error::no_thread(&rustix::io::Errno::AGAIN.into());
        assert!(error.to_string().contains("ulimit -u"), "{error}");
        let full = StorageError::from_io("write", "c/0", rustix::io::Errno::NOSPC.into());
        assert_eq!(Error::from(full).kind(), ErrorKind::NoSpace);
    }
}
