//! HTTP/1.1, with control over every byte of a response.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::answer::{Action, CHUNKED, Reply};
use crate::{ConnectionInfo, Server};

/// Size of a chunk of a chunked body.
const CHUNK: usize = 64 * 1024;
/// Maximum length of a request head.
const MAX_HEAD: usize = 16 * 1024;

/// Closes a connection with a TCP reset.
pub trait Abort {
    fn abort(self);
}

impl Abort for TcpStream {
    fn abort(self) {
        // If this fails, the peer sees a normal close, which is a fault too.
        let _ = self.set_zero_linger();
    }
}

impl Abort for TlsStream<TcpStream> {
    fn abort(self) {
        self.into_inner().0.abort();
    }
}

/// Answers requests until one side closes the connection.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin + Abort>(
    mut stream: S,
    door: ConnectionInfo,
    server: &Server,
) {
    while let Some(head) = head(&mut stream).await {
        let mut lines = head.lines();
        let target = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
        let header = |wanted: &str| {
            let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
            fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
        };
        let range = header("range").and_then(parse_range);
        let reply = server.reply(door, target, range, header("if-range"));
        if send(&mut stream, &reply).await.is_err() {
            return;
        }
        match reply.action {
            Action::Continue => {}
            Action::Close | Action::GoAway | Action::GoAwayGracefully => {
                let _ = stream.shutdown().await;
                return;
            }
            Action::Reset(_) => return stream.abort(),
            Action::Stall => return std::future::pending().await,
        }
    }
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// Parses the value of a `Range` header.
pub fn parse_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (from, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let to = match last {
        "" => None,
        last => Some(last.parse::<u64>().ok()? + 1),
    };
    Some((from.parse().ok()?, to))
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> std::io::Result<()> {
    if let Some(words) = reply.raw_head {
        return stream.write_all(words).await;
    }
    if reply.is_headless {
        return Ok(());
    }
    let mut head = format!("HTTP/1.1 {} As it is\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = reply.length {
        head.push_str(&format!("content-length: {length}\r\n"));
    }
    if reply.action == Action::GoAwayGracefully {
        head.push_str("connection: close\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    let body = &reply.body[..reply.sent_length];
    if !reply.headers.iter().any(|(name, _)| *name == CHUNKED) {
        stream.write_all(body).await?;
        return stream.flush().await;
    }
    for chunk in body.chunks(CHUNK) {
        stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
        stream.write_all(chunk).await?;
        stream.write_all(b"\r\n").await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    stream.flush().await
}
