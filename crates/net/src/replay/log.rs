//! The requests that were served.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use manyways_unit::{Span, Time};
use manyways_wire::archive::Protocol;

use super::Outcome;

/// Requests in a log; further ones are only counted.
pub const MAX_SERVED: usize = 200_000;

/// A request, and how it was served. Times are since the start of the server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Served {
    pub method: String,
    /// Absolute, as asked for.
    pub url: String,
    /// Number of the client's connection, from 0 in the order of acceptance.
    pub connection: u64,
    /// Address to which the client connected.
    pub server: SocketAddr,
    pub protocol: Protocol,
    pub outcome: Outcome,
    /// When the last byte of the request had arrived.
    pub at: Time,
    /// The time that the server was to wait before the response.
    pub think: Span,
    /// When the head of the response was passed to the kernel (HTTP/1), or to the connection (HTTP/2).
    /// `None` if no response was sent.
    pub first_byte: Option<Time>,
    /// When the last byte was passed to the kernel, or to the encryption. `None` if the client ended the
    /// response early.
    pub last_byte: Option<Time>,
    /// Bytes of the body that were sent, without framing.
    pub bytes: u64,
}

/// The log of a server.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    served: Vec<Served>,
    omitted: u64,
}

impl Log {
    pub(super) fn add(&self, served: Served) {
        let mut state = self.lock();
        if state.served.len() < MAX_SERVED {
            state.served.push(served);
        } else {
            state.omitted += 1;
        }
    }

    /// Takes the entries, and the number of those that had no place.
    pub(super) fn take(&self) -> (Vec<Served>, u64) {
        let state = std::mem::take(&mut *self.lock());
        (state.served, state.omitted)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_place_are_counted() {
        let served = Served {
            method: String::new(),
            url: String::new(),
            connection: 0,
            server: "192.0.2.1:443".parse().unwrap(),
            protocol: Protocol::Http2,
            outcome: Outcome::Miss { nearest: None },
            at: Time::ZERO,
            think: Span::ZERO,
            first_byte: None,
            last_byte: None,
            bytes: 0,
        };
        let log = Log::default();
        log.lock().served = vec![served.clone(); MAX_SERVED - 1];
        for _ in 0..3 {
            log.add(served.clone());
        }
        let (all, omitted) = log.take();
        assert_eq!((all.len(), omitted), (MAX_SERVED, 2));
        log.add(served);
        assert_eq!(log.take().0.len(), 1);
    }
}
