//! Bodies of responses to the player.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

use super::super::sink::Body;
use super::pool::Pool;
use super::transfers::Outcome;

/// The body of a response.
#[derive(Debug)]
pub(super) enum Content {
    /// In memory; empty after it was sent.
    Text(Bytes),
    Stream(Streamed),
}

/// The bytes of a transfer, at the pace of the player: a transfer requests no more bytes than its
/// reader takes. Dropped before the end, it ends the transfer.
#[derive(Debug)]
pub(super) struct Streamed {
    /// The piece that showed that the object exists.
    pub(super) first: Option<Bytes>,
    pub(super) body: Body,
    /// Missing bytes; `None` if the length is unknown.
    pub(super) left: Option<u64>,
    pub(super) outcome: oneshot::Receiver<Outcome>,
    /// The transfer in its pool.
    pub(super) id: u64,
    pub(super) pool: Arc<Pool>,
}

/// The transfer failed: the connection of HTTP/1.1 is closed, the stream of HTTP/2 is reset.
#[derive(Debug, thiserror::Error)]
#[error("the transfer broke off")]
pub(super) struct Aborted;

impl hyper::body::Body for Content {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match self.get_mut() {
            Self::Text(text) if text.is_empty() => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Self::Stream(stream) => stream.poll_piece(context).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Stream(stream) => stream.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Stream(Streamed { left: Some(left), .. }) => SizeHint::with_exact(*left),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

impl Streamed {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        if self.left == Some(0) {
            return Poll::Ready(None);
        }
        let piece = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.body.poll_next(context)),
        };
        let Some(mut piece) = piece else {
            // Without a length, only the transfer knows whether this is the end.
            let outcome = ready!(Pin::new(&mut self.outcome).poll(context));
            let is_complete = self.left.is_none() && matches!(outcome, Ok(Ok(_)));
            return Poll::Ready((!is_complete).then_some(Err(Aborted)));
        };
        if let Some(left) = &mut self.left {
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= piece.len() as u64;
        }
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Drop for Content {
    /// After the last byte, the transfer still verifies the version of the object, and then its
    /// connections are free again.
    fn drop(&mut self) {
        if let Self::Stream(stream) = self
            && stream.left == Some(0)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            stream.pool.on_ending(stream.id);
            let mut body = std::mem::replace(&mut stream.body, Body::closed());
            runtime.spawn(async move { while body.next().await.is_some() {} });
        }
    }
}
