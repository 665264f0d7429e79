//! The order and times of connection attempts to a server's addresses, on one path (RFC 8305).
//!
//! [`Dialer`] connects to a server whose name two sources resolve: the path's own name servers, and
//! those of other paths of the same host. Content networks return different addresses on each
//! network, so only addresses of the path's own name servers count. While these have not answered,
//! the dialer connects speculatively to the addresses that another path has resolved. If both paths
//! are sent to the same servers, this saves a slow path one round trip.
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
//! If all speculative addresses are among the own ones, the attempts continue. If they all fail,
//! the own addresses are tried from the start.

mod attempts;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use manyways_unit::{Span, Time};

use attempts::Attempts;

/// Pace and number of connection attempts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DialConfig {
    /// Connection attempt delay: wait before the next address is tried in parallel (RFC 8305 §5).
    pub attempt_delay: Span,
    /// Maximum number of a server's addresses that are tried.
    pub max_addresses: usize,
}

impl Default for DialConfig {
    fn default() -> Self {
        Self { attempt_delay: Span::from_millis(250), max_addresses: 8 }
    }
}

impl DialConfig {
    /// Returns the addresses of a server in the order of the attempts: only those that the path can
    /// reach, with alternating families, beginning with the family of the first one (RFC 8305 §4).
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

/// An event while a path dials.
#[derive(Clone, Debug)]
pub enum DialInput {
    /// The addresses that another path has resolved, limited to the families of this path.
    OtherAddresses(Vec<SocketAddr>),
    /// The addresses that the path's own name servers have returned.
    OwnAddresses(Vec<SocketAddr>),
    /// Success of [`DialOutput::Connect`].
    Connected(SocketAddr),
    /// Failure of [`DialOutput::Connect`].
    Failed(SocketAddr),
}

/// An action while a path dials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialOutput {
    /// Connect to this address, and report the result.
    Connect(SocketAddr),
    /// Close all connections, and abort all attempts.
    Abort,
    /// Use this connection; there are no further outputs.
    Use(SocketAddr),
    /// No connection to any address succeeded; there are no further outputs.
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
    /// Addresses of another path are tried, and the own ones are unknown.
    Speculating(Attempts),
    /// A speculative connection exists, and the own addresses are unknown.
    Holding(SocketAddr),
    /// Own addresses are tried. `retry` contains all of them if only some were tried speculatively.
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

    /// Applies an event.
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

    /// Returns the next action; `None` if there is none before the next input or
    /// [`Dialer::next_wakeup`].
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

    /// When to poll again without an input; `None` if no attempt is waiting.
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
                // A connection to a server that is not among the own addresses is of no use.
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
