//! Limits of answers: length, speed, and no encoding.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::bytes::Bytes;
use ::http_body::{Body, Frame, SizeHint};
use ::object_store::client::{HttpError, HttpRequest, HttpResponse, HttpResponseBody};
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, RANGE};
use reqwest::{Method, StatusCode};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::{RepeatedRequest, ServerFailure, TransferLimits};
use crate::remote::object::WHOLE_BYTES_MAX;

/// The most bytes of an answer that is no object, such as a page of a list.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The most bytes that are read of an error page.
const ERROR_PAGE_BYTES_MAX: usize = 64 << 10;
/// Values of `Content-Encoding` without an encoding; the last belongs to requests, but some servers
/// keep it.
const PLAIN: [&str; 3] = ["", "identity", "aws-chunked"];

/// The limits of an answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerLimits {
    bytes_max: u64,
    /// The request has a range, so the status must be that of a part: a whole object is not read.
    is_part: bool,
    /// The page of a 404 is needed, which tells whether the object or the bucket is missing.
    is_judged: bool,
}

impl AnswerLimits {
    /// Returns the limits of the answer to `request`, from an object store or a web server.
    pub(super) fn of(request: &HttpRequest, is_store: bool) -> Self {
        let is_judged = is_store && *request.method() == Method::GET;
        let range = request.headers().get(RANGE).and_then(|range| range.to_str().ok());
        if let Some(range) = range {
            return Self { bytes_max: length_of(range).unwrap_or(0), is_part: true, is_judged };
        }
        let query = request.uri().query().unwrap_or_default();
        // A web server sends nothing else.
        let is_object = *request.method() == Method::GET && (query.is_empty() || !is_store);
        let bytes_max = if is_object { WHOLE_BYTES_MAX } else { ANSWER_BYTES_MAX };
        Self { bytes_max, is_part: false, is_judged }
    }

    /// True for a range without bytes.
    pub(super) fn is_of_nothing(self) -> bool {
        self.is_part && self.bytes_max == 0
    }
}

/// Returns the bytes of a range; `None` for a form that this crate does not write.
fn length_of(range: &str) -> Option<u64> {
    match range.strip_prefix("bytes=")?.split_once('-')? {
        ("", last) => last.parse().ok(),
        (first, last) => {
            let [first, last]: [u64; 2] = [first.parse().ok()?, last.parse().ok()?];
            last.checked_sub(first)?.checked_add(1)
        }
    }
}

/// Returns `response` with a body that ends with an error where it exceeds the `expected` limits.
///
/// # Errors
/// If its header exceeds them.
pub(super) async fn bounded(
    response: HttpResponse,
    expected: AnswerLimits,
    pace: TransferLimits,
    call: &Arc<RepeatedRequest>,
) -> Result<HttpResponse, HttpError> {
    if !response.status().is_success() {
        let status = response.status();
        let (page, is_whole) = error_page(response, pace, call).await;
        let is_judged = expected.is_judged && status == StatusCode::NOT_FOUND;
        if is_judged && !is_whole {
            return Err(call.failed(ServerFailure::PageCutOff(status)));
        }
        return Ok(page);
    }
    if let Some(encoding) = encoding_of(response.headers()) {
        return Err(call.failed(ServerFailure::Encoded(encoding)));
    }
    let is_read = !expected.is_part || response.status() == StatusCode::PARTIAL_CONTENT;
    let length = response.headers().get(CONTENT_LENGTH).and_then(|text| text.to_str().ok());
    let length: Option<u64> = length.and_then(|text| text.parse().ok());
    let has_body = !response.body().is_end_stream();
    if is_read && has_body && length.is_some_and(|length| length > expected.bytes_max) {
        return Err(call.failed(ServerFailure::TooLong(expected.bytes_max)));
    }
    let call = call.clone();
    let (bytes_max, left) = (expected.bytes_max, expected.bytes_max);
    Ok(response.map(|body| {
        HttpResponseBody::new(BoundedBody {
            body,
            bytes_max,
            left,
            pace,
            call,
            moved: 0,
            window: None,
        })
    }))
}

fn encoding_of(headers: &HeaderMap) -> Option<String> {
    let encodings = headers.get_all(CONTENT_ENCODING).iter();
    let mut encodings = encodings.flat_map(|value| value.to_str().unwrap_or("?").split(','));
    let is_plain = |encoding: &str| PLAIN.iter().any(|plain| encoding.eq_ignore_ascii_case(plain));
    encodings.find(|encoding| !is_plain(encoding.trim())).map(|encoding| {
        // A server may send any text.
        encoding.trim().chars().filter(char::is_ascii_graphic).take(20).collect()
    })
}

/// Returns an error answer with as much of its page as arrives soon; false if the page was cut off.
async fn error_page(
    response: HttpResponse,
    pace: TransferLimits,
    call: &RepeatedRequest,
) -> (HttpResponse, bool) {
    let (parts, mut body) = response.into_parts();
    call.note(format!("the server answered {}", parts.status));
    let (mut page, mut is_whole) = (Vec::new(), true);
    let reading = async {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let Ok(frame) = frame else {
                is_whole = false;
                break;
            };
            let Ok(bytes) = frame.into_data() else { continue };
            let room = ERROR_PAGE_BYTES_MAX - page.len();
            page.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if page.len() == ERROR_PAGE_BYTES_MAX {
                break;
            }
        }
    };
    // The status counts even if the page is incomplete.
    let _ = timeout(pace.stall.min(call.left(pace)), reading).await;
    let page = String::from_utf8_lossy(&page).into_owned();
    (HttpResponse::from_parts(parts, page.into()), is_whole)
}

/// A body that is passed on as it arrives, within the limits of length and speed.
#[derive(Debug)]
struct BoundedBody {
    body: HttpResponseBody,
    bytes_max: u64,
    left: u64,
    pace: TransferLimits,
    call: Arc<RepeatedRequest>,
    /// Bytes that arrived in the present window.
    moved: u64,
    /// The end of the present window; the first one starts when the body is polled.
    window: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    fn take(&mut self, frame: &Frame<Bytes>) -> Result<(), HttpError> {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(left) = self.left.checked_sub(bytes) else {
            return Err(self.call.failed(ServerFailure::TooLong(self.bytes_max)));
        };
        self.left = left;
        self.moved += bytes;
        Ok(())
    }

    /// Returns a failure if too few bytes arrived in a window.
    fn poll_window(&mut self, cx: &mut Context<'_>) -> Poll<ServerFailure> {
        let stall = self.pace.stall;
        let moved = &mut self.moved;
        let window = self.window.get_or_insert_with(|| {
            *moved = 0;
            Box::pin(sleep(stall))
        });
        while window.as_mut().poll(cx).is_ready() {
            if *moved < self.pace.bytes_min() {
                return Poll::Ready(slowness(*moved, stall));
            }
            *moved = 0;
            window.as_mut().reset(Instant::now() + stall);
        }
        Poll::Pending
    }
}

fn slowness(bytes: u64, time: Duration) -> ServerFailure {
    ServerFailure::Slow { bytes, time }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let taken = self.take(&frame);
                Poll::Ready(Some(taken.map(|()| frame)))
            }
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => {
                self.poll_window(cx).map(|failure| Some(Err(self.call.failed(failure))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_their_lengths_and_what_is_none_has_no_bytes() {
        for (range, length) in [
            ("bytes=0-0", Some(1)),
            ("bytes=5-9", Some(5)),
            ("bytes=-7", Some(7)),
            ("bytes=9-8", None),
            ("bytes=9-", None),
            ("bytes=0-18446744073709551615", None),
            ("items=0-1", None),
        ] {
            assert_eq!(length_of(range), length, "{range}");
        }
    }

    #[test]
    fn only_what_is_encoded_is() {
        let encoding = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, text.parse().unwrap());
            encoding_of(&headers)
        };
        for plain in ["", "identity", "Identity, aws-chunked"] {
            assert_eq!(encoding(plain), None, "{plain}");
        }
        for encoded in ["gzip", "br", "deflate", "zstd", "x"] {
            assert_eq!(encoding(encoded).as_deref(), Some(encoded));
            assert_eq!(encoding(&format!("identity, {encoded}")).as_deref(), Some(encoded));
        }
        assert_eq!(encoding_of(&HeaderMap::new()), None);
    }
}
