//! HTTP CONNECT (RFC 9110, 9.3.6), for applications that are configured to use an HTTP proxy.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::mux::Destination;
use manyways_wire::Peek;
use manyways_wire::http::{Head, Host, head};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Reads an application's request and accepts it. Returns the target, and the bytes that followed
/// the request.
pub(super) async fn accept(
    mut stream: TcpStream,
    limits: &IoLimits,
) -> io::Result<(TcpStream, Destination, Bytes)> {
    let limit = Duration::from(limits.proxy_request);
    let request = timeout(limit, read_request(&mut stream)).await;
    match request.map_err(|_| io::ErrorKind::TimedOut)?? {
        Some((target, rest)) => {
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            Ok((stream, target, rest))
        }
        None => {
            let words = "this proxy only knows CONNECT\n";
            let answer = format!(
                "HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{words}",
                words.len()
            );
            stream.write_all(answer.as_bytes()).await?;
            Err(io::Error::new(io::ErrorKind::InvalidData, "the request is not a CONNECT"))
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> io::Result<Option<(Destination, Bytes)>> {
    let mut bytes = BytesMut::with_capacity(1024);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match head(&bytes) {
            Peek::More(_) => {}
            Peek::Complete(Head::Connect { target, length }) => {
                // The parser rejects a CONNECT without a port.
                let port = target.port.unwrap_or(443);
                let target = match target.host {
                    Host::Name(name) => Destination::Name(name.as_str().to_owned(), port),
                    Host::Address(address) => Destination::Address(address, port),
                };
                return Ok(Some((target, bytes.split_off(length).freeze())));
            }
            Peek::Complete(_) | Peek::No => return Ok(None),
        }
    }
}
