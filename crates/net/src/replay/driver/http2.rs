//! A connection of HTTP/2.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::Request;
use manyways_model::drive::Input;
use manyways_unit::Size;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use super::recording::Message;
use super::{Link, Order, Reports};

/// Windows of a stream and of the connection, about those of browsers.
const STREAM_WINDOW: u32 = 6 << 20;
const CONNECTION_WINDOW: u32 = 15 << 20;
/// Maximum length of a frame that is received.
const MAX_FRAME: u32 = 64 << 10;

pub(super) async fn speak(
    link: &Link,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> io::Result<()> {
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME)
        .enable_push(false)
        .handshake::<_, Bytes>(stream);
    let (sender, connection) = handshake.await.map_err(io::Error::other)?;
    link.report(Input::Opened(link.number));
    let mut cancels: HashMap<usize, oneshot::Sender<()>> = HashMap::new();
    tokio::pin!(connection);
    loop {
        tokio::select! {
            ended = &mut connection => {
                ended.map_err(io::Error::other)?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            order = orders.recv() => match order {
                Some(Order::Send(exchange)) => {
                    let Some(message) = link.messages.get(exchange).cloned() else { continue };
                    let (cancel, cancelled) = oneshot::channel();
                    cancels.insert(exchange, cancel);
                    let (reports, sender) = (link.reports.clone(), sender.clone());
                    tokio::task::spawn_local(async move {
                        tokio::select! {
                            done = issue(exchange, message, sender, &reports) => {
                                if let Err(error) = done {
                                    tracing::debug!("exchange {exchange}: {error}");
                                    let _ = reports.send(Input::Failed(exchange));
                                }
                            }
                            // Dropping the stream resets it.
                            _ = cancelled => {}
                        }
                    });
                }
                Some(Order::Cancel(exchange)) => {
                    if let Some(cancel) = cancels.remove(&exchange) {
                        let _ = cancel.send(());
                    }
                }
                None => return Ok(()),
            }
        }
    }
}

async fn issue(
    exchange: usize,
    message: Message,
    sender: SendRequest<Bytes>,
    reports: &Reports,
) -> Result<(), h2::Error> {
    let invalid = |_| h2::Error::from(h2::Reason::INTERNAL_ERROR);
    let mut request = Request::builder().method(message.method.as_str()).uri(&message.url);
    for field in &message.fields {
        request = request.header(field.name.to_ascii_lowercase(), field.value.as_slice());
    }
    let request = request.body(()).map_err(invalid)?;
    let mut sender = sender.ready().await?;
    let upload = message.body.unwrap_or_default();
    let (response, mut body) = sender.send_request(request, upload.length == 0)?;
    let mut left = upload.length;
    for mut piece in upload.pieces() {
        while !piece.is_empty() {
            body.reserve_capacity(piece.len());
            let granted = std::future::poll_fn(|context| body.poll_capacity(context)).await;
            let granted = granted.transpose()?.unwrap_or(0).min(piece.len());
            left -= granted as u64;
            body.send_data(piece.split_to(granted), left == 0)?;
        }
    }
    let response = response.await?;
    let _ = reports.send(Input::ResponseStarted(exchange));
    let mut stream = response.into_body();
    let mut received = 0;
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        received += piece.len() as u64;
        stream.flow_control().release_capacity(piece.len())?;
        let total = Size::from_bytes(received);
        let _ = reports.send(Input::Received { exchange, total });
    }
    stream.trailers().await?;
    let _ = reports.send(Input::Ended(exchange));
    Ok(())
}
