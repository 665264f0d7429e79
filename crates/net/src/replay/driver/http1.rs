//! A connection of HTTP/1, whose responses the observer of passing connections reads.

use std::collections::VecDeque;
use std::io;

use manyways_model::drive::Input;
use manyways_unit::Size;
use manyways_wire::exchange::{Event, http1::Observer};
use manyways_wire::stream::Endpoint;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::recording::{Message, Upload};
use super::{Link, Order};

/// An exchange on the connection.
struct Open {
    exchange: usize,
    received: u64,
}

pub(super) async fn speak(
    link: &Link,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> io::Result<()> {
    link.report(Input::Opened(link.number));
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut observer = Observer::default();
    // In the order of their requests.
    let mut open: VecDeque<Open> = VecDeque::new();
    let mut buffer = vec![0; 64 << 10];
    // Bytes that wait to be written, so that a long request does not stop the reading.
    let (mut unsent, mut at) = (Vec::new(), 0);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Send(exchange)) => {
                    let Some(message) = link.messages.get(exchange) else { continue };
                    let bytes = request(message);
                    let mut ignore = |_: Event<'_>| {};
                    observer.handle(Endpoint::Client, &bytes, &mut ignore).map_err(io::Error::other)?;
                    unsent.extend_from_slice(&bytes);
                    open.push_back(Open { exchange, received: 0 });
                }
                // Without streams, only the end of the connection ends an exchange.
                Some(Order::Cancel(exchange)) if open.iter().any(|one| one.exchange == exchange) => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Some(Order::Cancel(_)) => {}
                None => return Ok(()),
            },
            written = writer.write(&unsent[at..]), if at < unsent.len() => {
                at += written?;
                writer.flush().await?;
                if at == unsent.len() {
                    (unsent, at) = (Vec::new(), 0);
                }
            }
            length = reader.read(&mut buffer) => {
                let length = match length {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                    length => length?,
                };
                let mut each = |event: Event<'_>| observe(link, &mut open, &event);
                if length == 0 {
                    observer.end(Endpoint::Server, &mut each);
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                observer.handle(Endpoint::Server, &buffer[..length], &mut each).map_err(io::Error::other)?;
            }
        }
    }
}

/// Reports an event of the oldest open exchange.
fn observe(link: &Link, open: &mut VecDeque<Open>, event: &Event<'_>) {
    let Some(first) = open.front_mut() else { return };
    let exchange = first.exchange;
    match event {
        Event::Interim(..) | Event::Response(..) => link.report(Input::ResponseStarted(exchange)),
        Event::Body(_, Endpoint::Server, bytes) => {
            first.received += bytes.len() as u64;
            let total = Size::from_bytes(first.received);
            link.report(Input::Received { exchange, total });
        }
        Event::End(_, Endpoint::Server, _) => {
            open.pop_front();
            link.report(Input::Ended(exchange));
        }
        Event::Abort(..) | Event::Upgraded(_) => {
            open.pop_front();
            link.report(Input::Failed(exchange));
        }
        _ => {}
    }
}

/// Returns a request with its body.
fn request(message: &Message) -> Vec<u8> {
    let rest = message.url.split_once("://").map_or("", |(_, rest)| rest);
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if target.starts_with('/') { "" } else { "/" };
    let mut bytes =
        format!("{} {slash}{target} HTTP/1.1\r\nHost: {host}\r\n", message.method).into_bytes();
    for field in &message.fields {
        bytes.extend_from_slice(field.name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(&field.value);
        bytes.extend_from_slice(b"\r\n");
    }
    if let Some(body) = &message.body {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.length).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    message.body.iter().flat_map(Upload::pieces).for_each(|piece| bytes.extend_from_slice(&piece));
    bytes
}
