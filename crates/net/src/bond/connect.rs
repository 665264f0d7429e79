//! HTTP CONNECT (RFC 9110 §9.3.6), for applications that are told to use an HTTP proxy.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyways_proto::mux::Target;
use manyways_wire::Peek;
use manyways_wire::http::{Head, Host, head};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What an application gets to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// Hears where an application wants to go and says yes. What it sent beyond that comes along.
pub(super) async fn hear(mut stream: TcpStream) -> io::Result<(TcpStream, Target, Bytes)> {
    let asked = timeout(PATIENCE, ask(&mut stream)).await.map_err(|_| io::ErrorKind::TimedOut)?;
    match asked? {
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
            Err(io::Error::new(io::ErrorKind::InvalidData, "it does not ask for CONNECT"))
        }
    }
}

async fn ask(stream: &mut TcpStream) -> io::Result<Option<(Target, Bytes)>> {
    let mut bytes = BytesMut::with_capacity(1024);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match head(&bytes) {
            Peek::More(_) => {}
            Peek::Complete(Head::Connect { target, length }) => {
                // The parser refuses one without a port.
                let port = target.port.unwrap_or(443);
                let target = match target.host {
                    Host::Name(name) => Target::Name(name.as_str().to_owned(), port),
                    Host::Address(address) => Target::Address(address, port),
                };
                return Ok(Some((target, bytes.split_off(length).freeze())));
            }
            Peek::Complete(_) | Peek::No => return Ok(None),
        }
    }
}
