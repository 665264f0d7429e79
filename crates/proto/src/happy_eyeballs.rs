//! Which address of a server is tried when, on one path (RFC 8305).
//!
//! [`Dialer`] connects to a server whose name two sources resolve: the path's own name servers, and
//! those of other paths of the same host. Content networks answer differently on each network, so
//! only addresses of the path's own name servers count. But while these have not answered, the
//! dialer connects speculatively to the addresses that another path has resolved: where both are
//! sent to the same servers, that saves a slow path a round trip.
//!
//! ```text
//! Resolving ──other path's addresses──▶ Speculating ──connected──▶ Holding
//!     │                                  │      │  all attempts failed    │
//!     │                                  │      └──▶ Resolving            │
//!     └───────own addresses──┬───────────┘                                │
//!                            ▼                              own addresses │
//!                        Connecting ◀──held address is not among them─────┤
//!                            │                                            │
//!                            └────connected────▶ Over ◀──────it is────────┘
//! ```
//!
//! Where all speculative addresses are among the own ones, the attempts go on; where they all fail,
//! the own addresses are tried from the start.

mod attempts;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use manyways_unit::{Span, Time};

use attempts::Attempts;

/// How connection attempts are paced.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DialConfig {
    /// The next address is tried in addition to the ones before after this time (RFC 8305 §5).
    pub attempt_delay: Span,
    /// At most this many addresses of a server are tried.
    pub max_addresses: usize,
}

impl Default for DialConfig {
    fn default() -> Self {
        Self { attempt_delay: Span::from_millis(250), max_addresses: 8 }
    }
}

impl DialConfig {
    /// The addresses of a server in the order in which they are tried: only those that the path
    /// can reach, of alternating families, beginning with the family of the first one (RFC 8305
    /// §4).
    pub fn select(
        &self,
        addresses: &[IpAddr],
        is_reachable: impl Fn(IpAddr) -> bool,
    ) -> Vec<IpAddr> {
        let reachable = addresses.iter().copied().filter(|address| is_reachable(*address));
        let reachable: Vec<IpAddr> = reachable.collect();
        let first_is_v4 = reachable.first().is_some_and(IpAddr::is_ipv4);
        let (first, second): (Vec<IpAddr>, Vec<IpAddr>) =
            reachable.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
        let mut second = second.into_iter();
        let mut mixed = Vec::new();
        for address in first {
            mixed.push(address);
            mixed.extend(second.next());
        }
        mixed.extend(second);
        mixed.truncate(self.max_addresses);
        mixed
    }
}

/// What happened while a path dials.
#[derive(Clone, Debug)]
pub enum DialInput {
    /// Another path has resolved the name to these addresses of this path's families.
    OtherAddresses(Vec<SocketAddr>),
    /// The path's own name servers have.
    OwnAddresses(Vec<SocketAddr>),
    /// The answer to [`DialOutput::Connect`]: a connection.
    Connected(SocketAddr),
    /// The other answer to [`DialOutput::Connect`].
    Failed(SocketAddr),
}

/// What to do while a path dials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialOutput {
    /// Connect to this address, and report the result.
    Connect(SocketAddr),
    /// Close all connections, and abort all attempts.
    Abort,
    /// This connection is the one to use; there are no further outputs.
    Use(SocketAddr),
    /// No address of the server could be connected to; there are no further outputs.
    Failed,
}

/// Connects one path to one server.
#[derive(Debug)]
pub struct Dialer {
    config: DialConfig,
    state: DialState,
    outputs: VecDeque<DialOutput>,
}

#[derive(Debug)]
enum DialState {
    /// No connection attempt is under way.
    Resolving,
    /// Addresses of another path are tried, and the own ones are not known.
    Speculating(Attempts),
    /// A speculative connection is there, and the own addresses are not known.
    Holding(SocketAddr),
    /// Own addresses are tried; `retry` has all of them while only some were tried speculatively.
    Connecting {
        attempts: Attempts,
        retry: Vec<SocketAddr>,
    },
    Over,
}

impl Dialer {
    /// Creates a dialer that waits for addresses.
    pub fn new(config: DialConfig) -> Self {
        Self { config, state: DialState::Resolving, outputs: VecDeque::new() }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: DialInput) {
        match input {
            DialInput::OtherAddresses(addresses) => {
                if matches!(self.state, DialState::Resolving) && !addresses.is_empty() {
                    self.state = DialState::Speculating(self.attempts(now, addresses));
                }
            }
            DialInput::OwnAddresses(addresses) => self.on_own_addresses(now, addresses),
            DialInput::Connected(address) => self.on_connected(address),
            DialInput::Failed(address) => self.on_failed(now, address),
        }
    }

    /// The next thing to do, or `None` before the next input or [`Dialer::next_wakeup`].
    pub fn poll(&mut self, now: Time) -> Option<DialOutput> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        match &mut self.state {
            DialState::Speculating(attempts) | DialState::Connecting { attempts, .. } => {
                attempts.poll(now).map(DialOutput::Connect)
            }
            _ => None,
        }
    }

    /// When to poll again although nothing happened.
    pub fn next_wakeup(&self) -> Option<Time> {
        match &self.state {
            DialState::Speculating(attempts) | DialState::Connecting { attempts, .. } => {
                attempts.next_wakeup()
            }
            _ => None,
        }
    }

    fn attempts(&self, now: Time, addresses: Vec<SocketAddr>) -> Attempts {
        Attempts::new(now, self.config.attempt_delay, addresses)
    }

    fn on_own_addresses(&mut self, now: Time, own: Vec<SocketAddr>) {
        match std::mem::replace(&mut self.state, DialState::Over) {
            DialState::Holding(held) if own.contains(&held) => self.end(DialOutput::Use(held)),
            DialState::Speculating(attempts)
                if attempts.addresses().iter().all(|address| own.contains(address)) =>
            {
                self.state = DialState::Connecting { attempts, retry: own };
            }
            DialState::Holding(_) | DialState::Speculating(_) => {
                // A connection to a server that is not this path's own is worth nothing.
                self.outputs.push_back(DialOutput::Abort);
                self.connect(now, own);
            }
            DialState::Resolving => self.connect(now, own),
            other => self.state = other,
        }
    }

    fn connect(&mut self, now: Time, own: Vec<SocketAddr>) {
        if own.is_empty() {
            return self.end(DialOutput::Failed);
        }
        let attempts = self.attempts(now, own);
        self.state = DialState::Connecting { attempts, retry: Vec::new() };
    }

    fn on_connected(&mut self, address: SocketAddr) {
        match &self.state {
            DialState::Speculating(attempts) if attempts.is_trying(address) => {
                self.state = DialState::Holding(address);
            }
            DialState::Connecting { attempts, .. } if attempts.is_trying(address) => {
                self.end(DialOutput::Use(address));
            }
            _ => {}
        }
    }

    fn on_failed(&mut self, now: Time, address: SocketAddr) {
        let (DialState::Speculating(attempts) | DialState::Connecting { attempts, .. }) =
            &mut self.state
        else {
            return;
        };
        attempts.on_failed(now, address);
        if !attempts.is_exhausted() {
            return;
        }
        match std::mem::replace(&mut self.state, DialState::Resolving) {
            DialState::Connecting { retry, .. } if !retry.is_empty() => self.connect(now, retry),
            DialState::Connecting { .. } => self.end(DialOutput::Failed),
            _ => {}
        }
    }

    fn end(&mut self, output: DialOutput) {
        self.outputs.push_back(output);
        self.state = DialState::Over;
    }
}

#[cfg(test)]
mod tests;
