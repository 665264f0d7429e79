//! The order and times of connection attempts to a server's addresses, on one path (RFC 8305).
//!
//! [`HappyEyeballs`] connects to a server whose name two sources resolve: the path's own name
//! servers, and those of other paths of the same host. Content networks return different addresses
//! on each network, so only addresses of the path's own name servers count. While these have not
//! answered, it connects speculatively to the addresses that another path has resolved. If both
//! paths are sent to the same servers, this saves a slow path one round trip. A caller that knows
//! the addresses from the start has only the states `Connecting` and `Over`.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Connection attempt delay: wait before the next address is tried in parallel (RFC 8305 §5).
    /// `None` tries one address after the other.
    pub attempt_delay: Option<Span>,
    /// Timeout of one attempt. `None` for no timeout.
    pub attempt_timeout: Option<Span>,
    /// Timeout of all attempts together, from the start of the first. `None` for no timeout.
    pub timeout: Option<Span>,
    /// Maximum number of a server's addresses that [`Config::select`] returns.
    pub max_addresses: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            attempt_delay: Some(Span::from_millis(250)),
            attempt_timeout: None,
            timeout: None,
            max_addresses: 8,
        }
    }
}

impl Config {
    /// Creates a configuration that tries one address after the other, each for this time.
    pub fn sequential(attempt_timeout: Span) -> Self {
        let attempt_timeout = Some(attempt_timeout);
        Self { attempt_delay: None, attempt_timeout, ..Self::default() }
    }

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

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The addresses that another path has resolved, limited to the families of this path.
    OtherAddresses(Vec<SocketAddr>),
    /// The addresses that the path's own name servers have returned.
    OwnAddresses(Vec<SocketAddr>),
    /// Success of [`Output::Connect`].
    Connected(SocketAddr),
    /// Failure of [`Output::Connect`].
    Failed(SocketAddr),
}

/// An action for the shell. After [`Output::Use`], [`Output::Exhausted`] and [`Output::TimedOut`],
/// there are no further outputs, and the shell ends all other attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Connect to this address, and report the result.
    Connect(SocketAddr),
    /// Abort the attempt to this address, or close its connection.
    Abandon(SocketAddr),
    /// Use this connection.
    Use(SocketAddr),
    /// The attempts to all addresses have failed.
    Exhausted,
    /// The timeout of all attempts has expired.
    TimedOut,
}

/// Connects one path to one server.
#[derive(Debug)]
pub struct HappyEyeballs {
    config: Config,
    state: State,
    deadline: Option<Time>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
enum State {
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

impl HappyEyeballs {
    /// Creates a core that waits for addresses.
    pub fn new(config: Config) -> Self {
        Self { config, state: State::Resolving, deadline: None, outputs: VecDeque::new() }
    }

    /// Applies an event.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::OtherAddresses(addresses) => {
                if matches!(self.state, State::Resolving) && !addresses.is_empty() {
                    self.state = State::Speculating(self.attempts(now, addresses));
                }
            }
            Input::OwnAddresses(addresses) => self.on_own_addresses(now, addresses),
            Input::Connected(address) => self.on_connected(address),
            Input::Failed(address) => self.on_failed(now, address),
        }
    }

    /// Returns the next action; `None` if there is none before the next input or
    /// [`HappyEyeballs::next_wakeup`].
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if matches!(self.state, State::Over) {
            return None;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.state = State::Over;
            return Some(Output::TimedOut);
        }
        let (State::Speculating(attempts) | State::Connecting { attempts, .. }) = &mut self.state
        else {
            return None;
        };
        if let Some(address) = attempts.overdue(now) {
            self.on_failed(now, address);
            return Some(Output::Abandon(address));
        }
        attempts.start_next(now, &self.config).map(Output::Connect)
    }

    /// When to poll again without an input; `None` if nothing is waiting for a time.
    pub fn next_wakeup(&self) -> Option<Time> {
        let attempts = match &self.state {
            State::Speculating(attempts) | State::Connecting { attempts, .. } => {
                attempts.next_wakeup()
            }
            State::Resolving | State::Holding(_) => None,
            State::Over => return None,
        };
        attempts.into_iter().chain(self.deadline).min()
    }

    fn attempts(&mut self, now: Time, addresses: Vec<SocketAddr>) -> Attempts {
        let timeout = self.config.timeout;
        self.deadline = self.deadline.or(timeout.map(|timeout| now + timeout));
        Attempts::new(now, addresses)
    }

    fn on_own_addresses(&mut self, now: Time, own: Vec<SocketAddr>) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Holding(held) if own.contains(&held) => self.end(Output::Use(held)),
            State::Speculating(attempts)
                if attempts.addresses().iter().all(|address| own.contains(address)) =>
            {
                self.state = State::Connecting { attempts, retry: own };
            }
            // A connection to a server that is not among the own addresses is of no use.
            State::Holding(held) => {
                self.outputs.push_back(Output::Abandon(held));
                self.connect(now, own);
            }
            State::Speculating(attempts) => {
                self.outputs.extend(attempts.running().map(Output::Abandon));
                self.connect(now, own);
            }
            State::Resolving => self.connect(now, own),
            other => self.state = other,
        }
    }

    fn connect(&mut self, now: Time, own: Vec<SocketAddr>) {
        if own.is_empty() {
            return self.end(Output::Exhausted);
        }
        let attempts = self.attempts(now, own);
        self.state = State::Connecting { attempts, retry: Vec::new() };
    }

    fn on_connected(&mut self, address: SocketAddr) {
        match &self.state {
            State::Speculating(attempts) if attempts.is_running(address) => {
                let others = attempts.running().filter(|other| *other != address);
                self.outputs.extend(others.map(Output::Abandon));
                self.state = State::Holding(address);
            }
            State::Connecting { attempts, .. } if attempts.is_running(address) => {
                self.end(Output::Use(address));
            }
            _ => {}
        }
    }

    fn on_failed(&mut self, now: Time, address: SocketAddr) {
        let (State::Speculating(attempts) | State::Connecting { attempts, .. }) = &mut self.state
        else {
            return;
        };
        attempts.on_failed(now, address);
        if !attempts.is_exhausted() {
            return;
        }
        match std::mem::replace(&mut self.state, State::Resolving) {
            State::Connecting { retry, .. } if !retry.is_empty() => self.connect(now, retry),
            State::Connecting { .. } => self.end(Output::Exhausted),
            _ => {}
        }
    }

    fn end(&mut self, output: Output) {
        self.outputs.push_back(output);
        self.state = State::Over;
    }
}

#[cfg(test)]
mod tests;
