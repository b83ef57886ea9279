//! A counter of the bytes of a request's body that have left this process.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::bytes::Bytes;
use ::http_body::Body as _;
use ::object_store::PutPayload;
use ::object_store::client::HttpRequestBody;

/// Bytes of a slice, the unit of counting; a smaller body is sent at once.
const SLICE_BYTES: usize = 64 << 10;

/// The number of sent bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct SentBytes(Arc<AtomicU64>);

/// A slice of a body, counted when the connection drops it.
struct Slice {
    bytes: Bytes,
    sent: SentBytes,
}

impl SentBytes {
    /// Cuts a body into counted slices; a small body is not counted.
    pub(super) async fn watch(mut body: HttpRequestBody) -> (HttpRequestBody, Option<Self>) {
        if body.content_length() <= SLICE_BYTES {
            return (body, None);
        }
        let (sent, mut slices) = (Self::default(), Vec::new());
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let Ok(mut bytes) = frame.into_data() else { continue };
            while !bytes.is_empty() {
                let bytes = bytes.split_to(bytes.len().min(SLICE_BYTES));
                slices.push(Bytes::from_owner(Slice { bytes, sent: sent.clone() }));
            }
        }
        (slices.into_iter().collect::<PutPayload>().into(), Some(sent))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.sent.0.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_the_same_in_slices_and_counted_as_they_go() {
        let whole: Vec<u8> = (0..=250).cycle().take(300_000).collect();
        let pieces = [&whole[..1], &whole[1..200_000], &whole[200_000..]];
        let payload: PutPayload = pieces.map(Bytes::copy_from_slice).into_iter().collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut body, sent) = runtime.block_on(SentBytes::watch(payload.into()));
        let sent = sent.unwrap();
        assert_eq!(body.content_length(), whole.len());
        let mut found = Vec::new();
        let next = |body: &mut HttpRequestBody| {
            let frame = runtime.block_on(poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)));
            frame.map(|frame| frame.unwrap().into_data().unwrap())
        };
        while let Some(bytes) = next(&mut body) {
            assert!(bytes.len() <= SLICE_BYTES);
            found.extend_from_slice(&bytes);
        }
        assert_eq!((found == whole, sent.bytes()), (true, 0));
        drop(body);
        assert_eq!(sent.bytes(), whole.len() as u64);
        let small = HttpRequestBody::from(vec![1; SLICE_BYTES]);
        assert!(runtime.block_on(SentBytes::watch(small)).1.is_none());
    }
}
