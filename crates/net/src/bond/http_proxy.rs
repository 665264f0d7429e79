//! The HTTP proxy, for applications that are configured to use one: CONNECT (RFC 9110, 9.3.6), and
//! requests for `http://` URIs (RFC 9112, 3.2.2), one on each connection.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::mux::Destination;
use manyways_wire::http::{Authority, Host, ProxyHead, ProxyHeadError, ProxyRequest, proxy_head};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::proxy_connection::{PendingReply, ProxyConnection, http_error, send_last};
use super::proxy_password::ProxyPassword;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Reads an application's request. A request that the proxy refuses is answered.
pub(super) async fn accept(
    mut stream: TcpStream,
    limits: &IoLimits,
    password: Option<&ProxyPassword>,
) -> io::Result<ProxyConnection> {
    let limit = Duration::from(limits.proxy_request);
    let request = timeout(limit, read_request(&mut stream)).await;
    let (head, rest) = match request.map_err(|_| io::ErrorKind::TimedOut)?? {
        Ok(read) => read,
        Err(error) => {
            let status = match error {
                ProxyHeadError::TooLong => "431 Request Header Fields Too Large",
                _ => "400 Bad Request",
            };
            send_last(stream, &http_error(status, "", &error.to_string()), limit).await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    };
    if let Some(password) = password
        && !head.authorization.is_some_and(|field| password.matches_basic(&field))
    {
        let answer = http_error(
            "407 Proxy Authentication Required",
            "Proxy-Authenticate: Basic realm=\"manyways\"\r\n",
            "this proxy requires a user name and a password",
        );
        send_last(stream, &answer, limit).await;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(match head.request {
        ProxyRequest::Connect { target } => {
            let (to, reply) = (destination(target, HTTPS_PORT), PendingReply::Connect);
            ProxyConnection { stream, to, first: rest, body: None, reply }
        }
        ProxyRequest::Forward { target, head, mut body } => {
            let (to, reply) = (destination(target, HTTP_PORT), PendingReply::Response);
            let mut first = BytesMut::from(&head[..]);
            let length = body.take(&rest);
            first.extend_from_slice(&rest[..length]);
            ProxyConnection { stream, to, first, body: Some(body), reply }
        }
    })
}

/// Reads the header of a request, and maybe more bytes.
async fn read_request(
    stream: &mut TcpStream,
) -> io::Result<Result<(ProxyHead, BytesMut), ProxyHeadError>> {
    let mut bytes = BytesMut::with_capacity(1024);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match proxy_head(&bytes) {
            Ok(None) => {}
            Ok(Some(head)) => {
                let rest = bytes.split_off(head.length);
                return Ok(Ok((head, rest)));
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

fn destination(target: Authority, default_port: u16) -> Destination {
    let port = target.port.unwrap_or(default_port);
    match target.host {
        Host::Name(name) => Destination::Name(name.as_str().to_owned(), port),
        Host::Address(address) => Destination::Address(address, port),
    }
}
