//! The fence on the body of a request, where the connection takes the bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Method;
use hyper::body::{Body, Frame, SizeHint};

use super::fence::{BoxError, WriteFence, only_reads};

/// The body of a request. The body of a write ends in an error when the connection takes it without the Lease: of a write that
/// waited while the process was paused, nothing whole leaves.
#[derive(Debug)]
pub struct FencedBody<B> {
    body: B,
    fence: Option<WriteFence>,
}

impl<B> FencedBody<B> {
    /// The body of a request of this method.
    #[must_use]
    pub fn new(body: B, method: &Method, gate: &WriteFence) -> Self {
        let gate = (!only_reads(method)).then(|| gate.clone());
        Self { body, fence: gate }
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Body for FencedBody<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Some(Err(closed)) = self.fence.as_ref().map(WriteFence::admit) {
            return Poll::Ready(Some(Err(closed.into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_err(Into::into)
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
    use std::time::Instant;

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};

    use super::super::FenceClosed;
    use super::super::tests::with_claim;
    use super::*;

    #[tokio::test]
    async fn the_body_of_a_write_is_there_only_while_the_lease_is_held() {
        let (gate, renewed) = with_claim();
        let body = |method| FencedBody::new(Full::new(Bytes::from_static(b"{}")), &method, &gate);
        let whole = body(Method::POST).collect().await.unwrap().to_bytes();
        assert_eq!(whole, "{}");
        let (write, read) = (body(Method::PATCH), body(Method::GET));
        assert_eq!(write.size_hint().exact(), Some(2));
        renewed.send_replace(Instant::now());
        assert!(write.collect().await.unwrap_err().is::<FenceClosed>());
        assert_eq!(read.collect().await.unwrap().to_bytes(), "{}");
    }
}
