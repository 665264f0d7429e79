//! State that the connections of a server share.

use std::net::SocketAddr;

use manyways_model::matching::Request;
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use manyways_wire::archive::Protocol;
use manyways_wire::archive::container::ContainerError;

use super::alarm::Alarm;
use super::contents::Pieces;
use super::log::{Log, Served};
use super::responder::{Content, Reply, Responder};

/// State of a server.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) responder: Responder,
    pub(super) alarm: Alarm,
    pub(super) clock: Clock,
    /// From 1970 to the origin of the clock.
    pub(super) epoch: Span,
    pub(super) log: Log,
}

/// A connection of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) number: u64,
    /// Address to which the client connected.
    pub(super) server: SocketAddr,
    /// `https` or `http`.
    pub(super) scheme: &'static str,
}

impl Service {
    /// Decides about a request that arrived at a time, and begins its entry in the log.
    pub(super) fn decide(
        &self,
        peer: &Peer,
        request: &Request<'_>,
        protocol: Protocol,
        at: Time,
    ) -> (Reply, Served) {
        let mut reply = self.responder.respond(request, at + self.epoch);
        let nothing = super::Outcome::Miss { nearest: None };
        let served = Served {
            method: request.method.to_owned(),
            url: url(request),
            connection: peer.number,
            server: peer.server,
            protocol,
            outcome: std::mem::replace(&mut reply.outcome, nothing),
            at,
            think: reply.think,
            first_byte: None,
            last_byte: None,
            bytes: 0,
        };
        (reply, served)
    }

    /// Opens the content of a response.
    ///
    /// # Errors
    /// The archive cannot be read, or is damaged.
    pub(super) async fn open(&self, content: &Content) -> Result<Pieces, ContainerError> {
        match content {
            Content::None => Ok(Pieces::whole(bytes::Bytes::new())),
            Content::Text(text) => Ok(Pieces::whole(text.clone())),
            Content::Recorded { exchange, range } => {
                self.responder.contents().pieces(*exchange, range.clone()).await
            }
        }
    }
}

/// The absolute URL of a request. Bytes that are not UTF-8 are replaced.
fn url(request: &Request<'_>) -> String {
    let path = String::from_utf8_lossy(request.path);
    let mut url = String::with_capacity(request.authority.len() + path.len() + 16);
    for part in [request.scheme, "://", request.authority, &path] {
        url.push_str(part);
    }
    if let Some(query) = request.query {
        url.push('?');
        url.push_str(&String::from_utf8_lossy(query));
    }
    url
}
