//! Errors of an object store as errors of storage: without secrets, and with a remedy.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

use ::object_store::Error;

use super::transport::{ServerFailure, failure_of};
use bedform_format::web_page::description;
use bedform_storage::{StorageError, StorageErrorKind};

/// The most characters of a server's message.
const SAID_MAX: usize = 300;

/// Returns the error of `operation` on the object `path`.
pub(super) fn to_error(operation: &'static str, path: &str, error: Error) -> StorageError {
    let said = said(&error);
    let kind = match &error {
        // A missing bucket must not pass for an empty one.
        Error::NotFound { .. } if NO_BUCKET.iter().any(|code| said.contains(code)) => {
            StorageErrorKind::Server
        }
        Error::NotFound { .. } => StorageErrorKind::NotFound,
        // A read creates nothing that might exist.
        Error::AlreadyExists { .. } if is_read(operation) && !denies(&said) => {
            StorageErrorKind::Server
        }
        Error::AlreadyExists { .. } if !denies(&said) => StorageErrorKind::Exists,
        Error::Precondition { .. } | Error::NotModified { .. } => StorageErrorKind::Conflict,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            StorageErrorKind::PermissionDenied
        }
        // The errors of some requests have only a text.
        _ if denies(&said) => StorageErrorKind::PermissionDenied,
        _ => StorageErrorKind::Server,
    };
    let source = matches!(kind, StorageErrorKind::Server | StorageErrorKind::PermissionDenied)
        .then(|| io::Error::other(format!("{}{said}", hint(operation, &error, kind, &said))));
    StorageError { kind, operation, path: path.to_owned(), source }
}

fn is_read(operation: &str) -> bool {
    matches!(operation, "open" | "read" | "stat" | "list" | "calibrate")
}

/// Texts of servers and clients for a lack of permission. The last ones are the addresses of the
/// metadata servers that hand out a machine's credentials if there are no others.
const DENIED: [&str; 11] = [
    "[AccessDenied]",
    "[InvalidAccessKeyId]",
    "[SignatureDoesNotMatch]",
    "[AuthenticationFailed]",
    "[AuthorizationFailure]",
    "[AuthorizationPermissionMismatch]",
    // Azure sends it with the status of a conflict.
    "[PublicAccessNotPermitted]",
    // Azure sends this to a client that may not know whether the object exists.
    "[ResourceNotFound]",
    CREDENTIALS_OF_MACHINES,
    CREDENTIALS_OF_GOOGLE,
    CREDENTIALS_OF_AZURE,
];
const CREDENTIALS_OF_MACHINES: &str = "//169.254.169.254/";
const CREDENTIALS_OF_GOOGLE: &str = "/computeMetadata/";
const CREDENTIALS_OF_AZURE: &str = "/metadata/identity/";

/// Codes of servers for a missing bucket or container.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

fn denies(said: &str) -> bool {
    DENIED.iter().any(|text| said.contains(text))
}

/// Texts of 4xx answers to a damaged or delayed request: a repeated one may succeed.
const PASSING: [&str; 5] = [
    "status code: 429",
    "status code: 408",
    "<Code>RequestTimeout</Code>",
    "<Code>IncompleteBody</Code>",
    "<Code>BadDigest</Code>",
];

/// True if the server refuses the request for good.
pub(super) fn is_refusal(error: &Error) -> bool {
    match error {
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::NotFound { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. } => true,
        Error::AlreadyExists { .. } => denies(&said(error)),
        // The redirected request reached no server that would carry it out.
        _ if matches!(failure_of(error), Some(ServerFailure::Redirected { .. })) => true,
        Error::Generic { .. } => {
            says(error, "status code: 4") && !PASSING.iter().any(|text| says(error, text))
        }
        _ => false,
    }
}

/// True if the server did nothing because it is too busy; a later request may succeed.
pub(super) fn is_too_many(error: &Error) -> bool {
    matches!(error, Error::Generic { .. }) && says(error, "status code: 429")
}

/// True if an answer may have been cut off: the client repeats only requests without any answer.
pub(super) fn may_be_cut(error: &Error) -> bool {
    // A message of the server was received whole.
    let is_of_server = says(error, "status code") || failure_of(error).is_some();
    matches!(error, Error::Generic { .. }) && !is_of_server && !is_out_of_range(error)
}

/// True if the server does not know the upload.
pub(super) fn is_of_upload(source: &(dyn std::error::Error + 'static)) -> bool {
    says(source, "NoSuchUpload")
}

/// True if the text of an error, or of one of its sources, contains `text`.
fn says(error: &(dyn std::error::Error + 'static), text: &str) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.to_string().contains(text) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Codes of servers for a missing object.
const MISSING: [&str; 4] = ["[NoSuchKey]", "[BlobNotFound]", "[NoSuchVersion]", "[NotFound]"];

/// Returns `error`, changed if it stands for a missing object although the server gave another
/// reason: an unknown user, or a gateway without a route.
pub(super) fn strict(error: Error) -> Error {
    if !matches!(error, Error::NotFound { .. }) {
        return error;
    }
    let said = said(&error);
    let body = said.rsplit_once("404 Not Found").map(|(_, body)| body.trim_matches([':', ' ']));
    let names_code = said.ends_with(']');
    let is_missing = MISSING.iter().any(|code| said.ends_with(code));
    if is_missing || (!names_code && body.is_none_or(str::is_empty)) {
        return error;
    }
    Error::Generic { store: "server", source: said.into() }
}

/// The client's text for an answer without `Content-Length`.
const LENGTH_MISSING: &str = "Content-Length Header missing";

/// True if the server did not send the length of an object.
pub(super) fn lacks_length(error: &Error) -> bool {
    says(error, LENGTH_MISSING)
}

/// True if the server says, by its status or a code, that an object ends before a range begins.
pub(super) fn is_beyond_end(error: &Error) -> bool {
    failure_of(error).is_none()
        && (says(error, "status code: 416") || says(error, "<Code>InvalidRange</Code>"))
}

/// True if the requested bytes lie outside the object.
pub(super) fn is_out_of_range(error: &Error) -> bool {
    let said = said(error);
    // The text of an XML document does not contain the status.
    let is_said = said.to_lowercase().contains("range") || says(error, "status code: 416");
    // Servers without range requests mention a "range" as well.
    let is_other = matches!(error, Error::NotFound { .. } | Error::NotSupported { .. });
    !is_other && failure_of(error).is_none() && (is_said || said.contains("416"))
}

/// Returns the remedy for a server's message.
fn hint(operation: &str, error: &Error, kind: StorageErrorKind, said: &str) -> &'static str {
    let has = |text: &str| said.contains(text);
    if has("NoSuchBucket") {
        "there is no such bucket: "
    } else if has("ContainerNotFound") {
        "there is no such container: "
    } else if has("InvalidAccessKeyId")
        || has("SignatureDoesNotMatch")
        || has("[AuthenticationFailed]")
    {
        "the credentials are not those of this store: "
    } else if has("PublicAccessNotPermitted") {
        "credentials are needed: "
    } else if has("AuthorizationHeaderMalformed")
        || has("PermanentRedirect")
        || has("IncorrectRegion")
    {
        "the bucket lies in another region than AWS_REGION says: "
    } else if has("RequestTimeTooSkewed") || has("RequestExpired") {
        "the clock of this machine is wrong: "
    } else if has(CREDENTIALS_OF_GOOGLE) {
        "no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS, run 'gcloud auth application-default \
         login', or say anonymous where all may: "
    } else if has(CREDENTIALS_OF_AZURE) {
        "no credentials were found: set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or say anonymous \
         where all may read: "
    } else if has(CREDENTIALS_OF_MACHINES) {
        "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or say anonymous where \
         all may read: "
    } else if has(LENGTH_MISSING) {
        "the server does not say how long an object is: let it send Content-Length, files as they are, neither \
         compressed nor in pieces (chunked): "
    } else if has("client error (Connect)") {
        "the server cannot be reached: "
    } else {
        match error {
            Error::NotSupported { .. } if is_read(operation) => {
                "the server sends no parts of objects (requests with a Range): copy it to this machine: "
            }
            Error::Unauthenticated { .. } => "credentials are needed, or others: ",
            Error::AlreadyExists { .. } => {
                "the server answered the read with status 409, a conflict with the state of the object: "
            }
            _ if kind == StorageErrorKind::PermissionDenied => denial(operation),
            _ => "",
        }
    }
}

/// Returns the permission that an operation lacks.
fn denial(operation: &str) -> &'static str {
    match operation {
        "list" => "these credentials may not list it, which takes s3:ListBucket, or its like: ",
        "delete" => {
            "these credentials may not delete it, which takes s3:DeleteObject, or its like: "
        }
        // Without permission to list, a server does not tell which object is missing.
        "open" | "stat" => {
            "these credentials give no access to it, or it is not there and they may not list \
             (s3:ListBucket, or its like): "
        }
        _ => "these credentials give no access to it: ",
    }
}

/// Returns the texts of an error and its sources, in one line without secrets.
fn said(error: &Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = error.source();
    while let Some(error) = next {
        let own = error.to_string();
        // Most errors repeat the texts of their sources.
        if !text.contains(&own) {
            let separator = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{separator}{own}");
        }
        next = error.source();
    }
    if text.is_empty() {
        text = error.to_string();
    }
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = in_document(&line).or_else(|| in_page(&line)).unwrap_or(line);
    redacted(&line).chars().take(SAID_MAX).collect()
}

/// Returns the message and code of an XML document.
fn in_document(text: &str) -> Option<String> {
    let part = |open: &str, close: &str| {
        let (_, rest) = text.split_once(open)?;
        rest.split_once(close).map(|(part, _)| part)
    };
    let code = part("<Code>", "</Code>")?;
    Some(match part("<Message>", "</Message>") {
        Some(message) => format!("{} [{code}]", unescaped(message)),
        None => format!("[{code}]"),
    })
}

/// Returns the text before a web page, and the description of the page.
fn in_page(text: &str) -> Option<String> {
    let at = text.find('<')?;
    description(&text.as_bytes()[at..]).map(|page| format!("{}{page}", &text[..at]))
}

fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (escaped, plain) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(escaped, plain);
    }
    text
}

/// Returns `text` without the queries of URLs, which may be signatures, and without user names and
/// passwords.
pub(super) fn redacted(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + 3);
        kept.push_str(before);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | ')' | ',');
        let (url, after) = url.split_at(url.find(is_end).unwrap_or(url.len()));
        let (url, query) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?..."));
        let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        let host = host.rsplit_once('@').map_or(host.to_owned(), |(_, host)| format!("...@{host}"));
        kept.push_str(&host);
        kept.push_str(path);
        kept.push_str(query);
        rest = after;
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_to_be_missing_is_missing() {
        let is_missing = |text: &str| {
            let source = text.to_owned().into();
            matches!(strict(Error::NotFound { path: "a".into(), source }), Error::NotFound { .. })
        };
        let of = |body: &str| format!("Server returned non-2xx status code: 404 Not Found: {body}");
        let document = |code: &str| of(&format!("<Error><Code>{code}</Code></Error>"));
        for text in
            ["No data in memory found", &of(""), &document("NoSuchKey"), &document("BlobNotFound")]
        {
            assert!(is_missing(text), "{text}");
        }
        for text in
            [&of("404 page not found"), &document("XAdminUserNotFound"), &document("NoSuchBucket")]
        {
            assert!(!is_missing(text), "{text}");
        }
    }

    #[test]
    fn a_server_refuses_with_a_status_whatever_document_follows() {
        let refuses = |said: &str| {
            let source = format!("Server returned non-2xx status code: {said}").into();
            is_refusal(&Error::Generic { store: "S3", source })
        };
        let document = |code: &str| format!("<Error><Code>{code}</Code></Error>");
        assert!(refuses("400 Bad Request"));
        assert!(refuses(&format!("400 Bad Request: {}", document("InvalidArgument"))));
        assert!(refuses(&format!("405 Method Not Allowed: {}", document("MethodNotAllowed"))));
        for said in ["429 Too Many Requests", "408 Request Timeout", "503 Slow Down"] {
            assert!(!refuses(said) && !refuses(&format!("{said}: {}", document("SlowDown"))));
        }
        for code in ["RequestTimeout", "IncompleteBody", "BadDigest"] {
            assert!(!refuses(&format!("400 Bad Request: {}", document(code))));
        }
    }

    #[test]
    fn a_page_in_an_answer_is_named_by_its_title() {
        let body = "<!DOCTYPE html><html><head><title>Log in</title></head><body>a text</body>";
        let source = format!("status code: 401 Unauthorized: {body}").into();
        let error = to_error("open", "t.nc", Error::Generic { store: "HTTP", source }).to_string();
        assert!(error.contains("401 Unauthorized: a web page, \"Log in\""), "{error}");
        assert!(!error.contains("<html>"), "{error}");
    }

    #[test]
    fn errors_that_only_a_text_tells_say_what_to_do() {
        let of = |text: &str| {
            let source = format!("status code: 403 Forbidden: {text}").into();
            to_error("list", "roots", Error::Generic { store: "S3", source })
        };
        let document = |code: &str, message: &str| {
            format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>")
        };
        let (denied, server) = (StorageErrorKind::PermissionDenied, StorageErrorKind::Server);
        for (text, kind, expected) in [
            (
                document("AccessDenied", "No"),
                denied,
                "these credentials may not list it, which takes s3:ListBucket, or its like: No",
            ),
            (
                document("SignatureDoesNotMatch", "No"),
                denied,
                "the credentials are not those of this store: No",
            ),
            (
                document("AuthenticationFailed", "No"),
                denied,
                "the credentials are not those of this store: No",
            ),
            ("PUT http://169.254.169.254/latest".to_owned(), denied, "no credentials were found: "),
            (
                "GET http://169.254.169.254/computeMetadata/v1/a".to_owned(),
                denied,
                "no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS",
            ),
            (
                "GET http://169.254.169.254/metadata/identity/oauth2/token".to_owned(),
                denied,
                "no credentials were found: set AZURE_STORAGE_ACCOUNT_KEY",
            ),
            (document("ContainerNotFound", "No"), server, "there is no such container: No"),
            (
                "client error (Connect): refused".to_owned(),
                server,
                "the server cannot be reached: ",
            ),
            (document("Odd", "a &#34;b&#34; &lt; &amp;lt;"), server, "a \"b\" < &lt; [Odd]"),
        ] {
            let error = of(&text);
            assert_eq!(error.kind, kind, "{text}");
            let said = error.source.unwrap().to_string();
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_in_no_message() {
        for (text, expected) in [
            ("no URL: a?b@c", "no URL: a?b@c"),
            ("get https://h/p?sig=x&y=z failed", "get https://h/p?... failed"),
            ("(s3://key:word@bucket/a@b)", "(s3://...@bucket/a@b)"),
            ("\"http://u:p@h?q\", http://h/ok", "\"http://...@h?...\", http://h/ok"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }
}
