//! A connection that an application requests from a proxy, and the proxy's answer.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use manyways_proto::mux::{Destination, ResetCode};
use manyways_wire::http::RequestBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes that a refused application may still send until its connection is closed.
const MAX_UNREAD: usize = 1 << 20;

/// A connection of an application through a proxy.
#[derive(Debug)]
pub(super) struct ProxyConnection {
    pub(super) stream: TcpStream,
    pub(super) to: Destination,
    /// The first bytes for the server.
    pub(super) first: BytesMut,
    /// Delimits the further bytes for the server; `None` if all bytes are for the server.
    pub(super) body: Option<RequestBody>,
    pub(super) reply: PendingReply,
}

/// The answer that an application still expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PendingReply {
    Socks,
    /// HTTP CONNECT.
    Connect,
    /// The response to an HTTP request, which the server sends if it is reached.
    Response,
}

/// The reason why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("a rule of the policy blocks this destination")]
    Blocked,
    #[error("the gateway has not answered in time")]
    NoAnswer,
    #[error("{0}")]
    Failed(ResetCode),
}

impl Refusal {
    /// The failure of a direct connection.
    pub(super) fn from_error(error: &io::Error) -> Self {
        Self::Failed(match error.kind() {
            io::ErrorKind::ConnectionRefused => ResetCode::Refused,
            io::ErrorKind::TimedOut => ResetCode::Timeout,
            io::ErrorKind::NotFound => ResetCode::NameNotFound,
            _ => ResetCode::Unreachable,
        })
    }

    /// The reply code of SOCKS5 (RFC 1928, 6).
    fn socks_code(self) -> u8 {
        match self {
            Self::Blocked | Self::Failed(ResetCode::Forbidden) => 2,
            Self::Failed(ResetCode::Unreachable) => 3,
            Self::Failed(ResetCode::NameNotFound) => 4,
            Self::Failed(ResetCode::Refused) => 5,
            Self::NoAnswer | Self::Failed(ResetCode::Timeout) => 6,
            Self::Failed(_) => 1,
        }
    }

    fn http_status(self) -> &'static str {
        match self {
            Self::Blocked | Self::Failed(ResetCode::Forbidden) => "403 Forbidden",
            Self::NoAnswer | Self::Failed(ResetCode::Timeout) => "504 Gateway Timeout",
            Self::Failed(_) => "502 Bad Gateway",
        }
    }
}

impl PendingReply {
    /// Answers that the connection is open.
    pub(super) async fn accept(self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Socks => stream.write_all(&socks_reply(0)).await,
            Self::Connect => stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Self::Response => Ok(()),
        }
    }

    /// Answers that there is no connection, and closes the application's connection.
    pub(super) async fn refuse(
        self,
        stream: TcpStream,
        to: &Destination,
        refusal: Refusal,
        limit: Duration,
    ) {
        let answer = match self {
            Self::Socks => socks_reply(refusal.socks_code()).to_vec(),
            Self::Connect | Self::Response => {
                let sentence = format!("cannot connect to {to}: {refusal}");
                http_error(refusal.http_status(), "", &sentence)
            }
        };
        send_last(stream, &answer, limit).await;
    }
}

/// A reply of SOCKS5 without an address.
pub(super) fn socks_reply(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// A response with one sentence. `fields` are further fields of its header, each with its line end.
pub(super) fn http_error(status: &str, fields: &str, sentence: &str) -> Vec<u8> {
    let body = format!("manyways: {sentence}\n");
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends the last bytes of a connection, and waits until the application has closed it. Otherwise
/// its unread bytes would reset the connection, and the application could lose the answer.
pub(super) async fn send_last(mut stream: TcpStream, answer: &[u8], limit: Duration) {
    let sending = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let (mut unread, mut buffer) = (0, [0; 4096]);
        while unread < MAX_UNREAD {
            match stream.read(&mut buffer).await? {
                0 => break,
                length => unread += length,
            }
        }
        io::Result::Ok(())
    };
    let _ = timeout(limit, sending).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_code_and_a_status() {
        use ResetCode::*;
        for (refusal, code, status) in [
            (Refusal::Blocked, 2, "403 "),
            (Refusal::Failed(Forbidden), 2, "403 "),
            (Refusal::Failed(Unreachable), 3, "502 "),
            (Refusal::Failed(NameNotFound), 4, "502 "),
            (Refusal::Failed(Refused), 5, "502 "),
            (Refusal::Failed(Timeout), 6, "504 "),
            (Refusal::NoAnswer, 6, "504 "),
            (Refusal::Failed(Limit), 1, "502 "),
            (Refusal::Failed(Aborted), 1, "502 "),
        ] {
            assert_eq!(refusal.socks_code(), code, "{refusal}");
            assert!(refusal.http_status().starts_with(status), "{refusal}");
        }
    }
}
