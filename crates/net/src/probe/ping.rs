//! Round trips of ICMP echoes, or of TCP handshakes.

mod echo;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::probe::round_trips::{EchoSchedule, Next};
use manyways_sys::socket::tcp_state;
use manyways_unit::{Size, Span, Time};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::echo::EchoSocket;
use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, ip_header, lookup};
use super::report::{Measurement, PingReport};
use crate::path::{PathSpec, socket};

/// Packets to one address, and the times until its answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ping {
    /// Name or address.
    pub target: String,
    pub method: PingMethod,
    pub count: u64,
    /// From one packet to the next, which does not wait for an answer.
    pub interval: Span,
    /// Time to wait for an answer.
    pub timeout: Span,
    /// Payload bytes of an ICMP echo.
    pub payload: u16,
}

/// How a target is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PingMethod {
    /// ICMP echo.
    Icmp,
    /// Handshake of TCP with this port. A refusal is an answer too.
    Tcp(u16),
}

impl PingMethod {
    pub fn name(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Tcp(_) => "tcp",
        }
    }
}

impl Ping {
    pub const MAX_COUNT: u64 = 100_000;
    pub const MIN_INTERVAL: Span = Span::from_millis(10);
    /// Time beyond the timeout of the last packet, for the end of the probe itself.
    const GRACE: Span = Span::from_millis(200);

    /// Ten packets to a target, five a second, as a person in a hurry would send them.
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            method: PingMethod::Icmp,
            count: 10,
            interval: Span::from_millis(200),
            timeout: Span::from_secs(2),
            payload: 56,
        }
    }

    /// Maximum bytes of one packet and its answer, with the larger IP header if the address is
    /// unknown.
    fn one(&self, address: Option<IpAddr>) -> Transfer {
        let ip = address.map_or(40, ip_header);
        let (up, down) = match self.method {
            PingMethod::Icmp => {
                let echo = ip + 8 + u64::from(self.payload);
                (echo, echo)
            }
            PingMethod::Tcp(_) => {
                // SYN with options, repeated after 1, 3, 7, … s; ACK with a timestamp; RST.
                let syns = u64::from((self.timeout.as_secs_f64() + 1.0).log2() as u32) + 1;
                (syns * (ip + 40) + 2 * (ip + 32), syns * (ip + 40))
            }
        };
        let (up, down) = (Size::from_bytes(up), Size::from_bytes(down));
        Transfer { start: Span::ZERO, duration: self.timeout, up, down }
    }

    fn literal(&self) -> Option<IpAddr> {
        self.target.parse().ok()
    }

    async fn icmp(&self, run: &mut Run, address: IpAddr) -> Result<(), ProbeError> {
        let socket = EchoSocket::open(run.path(), address)?;
        let mut state = State::new(self, address);
        let mut answer = vec![0; 2_048];
        loop {
            let now = run.now();
            match state.schedule.next(now) {
                Next::Done => {
                    state.report(run);
                    return Ok(());
                }
                Next::Send => {
                    let one = self.one(Some(address));
                    run.spend(one.up, one.down)?;
                    let sequence = state.schedule.send(run.now());
                    let sent = socket.send(sequence as u16, self.payload).await;
                    state.on_sent(run.path(), sent)?;
                }
                Next::Wait(until) => {
                    let wait = Duration::from(until.since(now));
                    match timeout(wait, socket.receive(&mut answer)).await {
                        Err(_) => state.report_regularly(run),
                        Ok(Ok((sequence, age))) => {
                            let sequence = state.schedule.whole_number(sequence);
                            state.schedule.receive(run.now() - age, sequence);
                            state.report_regularly(run);
                        }
                        Ok(Err(error)) => {
                            return Err(ProbeError::io(run.path(), "receive echoes", error));
                        }
                    }
                }
            }
        }
    }

    async fn tcp(&self, run: &mut Run, server: SocketAddr) -> Result<(), ProbeError> {
        let mut state = State::new(self, server.ip());
        let mut attempts = JoinSet::new();
        let clock = run.clock();
        loop {
            let now = run.now();
            match state.schedule.next(now) {
                Next::Done => {
                    state.report(run);
                    return Ok(());
                }
                Next::Send => {
                    let one = self.one(Some(server.ip()));
                    run.spend(one.up, one.down)?;
                    let now = run.now();
                    let sequence = state.schedule.send(now);
                    let (path, limit) = (run.path().clone(), Duration::from(self.timeout));
                    attempts.spawn(async move {
                        let connected = timeout(limit, handshake(&path, server)).await;
                        let connected =
                            connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                        // This task runs later than the packet arrives, on a busy machine by far.
                        let at = match connected {
                            Ok(Some(round_trip)) => clock.now().min(now + round_trip),
                            _ => clock.now(),
                        };
                        (sequence, at, connected)
                    });
                }
                Next::Wait(until) => {
                    let deadline = Instant::now() + Duration::from(until.since(now));
                    let ended = tokio::select! {
                        Some(ended) = attempts.join_next() => ended,
                        () = sleep_until(deadline) => continue,
                    };
                    let Ok((sequence, at, connected)) = ended else { continue };
                    match connected {
                        Ok(_) => {
                            state.schedule.receive(at, sequence);
                        }
                        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                            state.refused += 1;
                            state.schedule.receive(at, sequence);
                        }
                        Err(error) => state.on_sent(run.path(), Err(error))?,
                    }
                    state.report_regularly(run);
                }
            }
        }
    }
}

/// Connects, and closes the connection with a reset, which needs no answer. Returns the kernel's
/// round-trip time of the handshake; `None` if a packet was sent twice.
async fn handshake(path: &PathSpec, server: SocketAddr) -> io::Result<Option<Span>> {
    let socket = socket(path, server)?;
    socket.set_zero_linger()?;
    let stream = socket.connect(server).await?;
    let state = tcp_state(stream.as_fd()).ok().filter(|state| state.total_retrans == 0);
    Ok(state.and_then(|state| state.rtt))
}

impl Probe for Ping {
    fn name(&self) -> &'static str {
        "ping"
    }

    fn target(&self) -> String {
        match self.method {
            PingMethod::Icmp => self.target.clone(),
            PingMethod::Tcp(port) if self.target.contains(':') => {
                format!("[{}]:{port}", self.target)
            }
            PingMethod::Tcp(port) => format!("{}:{port}", self.target),
        }
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let refuse = |text: String| Err(InvalidParameter(text));
        if !(1..=Self::MAX_COUNT).contains(&self.count) {
            return refuse(format!("the count is from 1 to {}", Self::MAX_COUNT));
        }
        if self.interval < Self::MIN_INTERVAL {
            return refuse(format!("the interval is at least {}", Self::MIN_INTERVAL));
        }
        if self.timeout.is_zero() {
            return refuse("the timeout is zero".to_owned());
        }
        // Sequence numbers have 16 bits: an answer must not be that to an earlier packet.
        if self.interval * 65_536 <= self.timeout {
            return refuse(format!("the timeout is below {}", self.interval * 65_536));
        }
        let one = self.one(self.literal());
        let last = Transfer { duration: one.duration + Self::GRACE, ..one };
        let lookup = Plan::new(vec![lookup(&self.target)]);
        Ok(lookup.then(Span::ZERO, &Plan::repeated(last, self.count, self.interval)))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(async move {
            let address = run.resolve(&self.target).await?;
            match self.method {
                PingMethod::Icmp => self.icmp(run, address).await,
                PingMethod::Tcp(port) => self.tcp(run, SocketAddr::new(address, port)).await,
            }
        })
    }
}

/// A ping so far.
struct State<'a> {
    ping: &'a Ping,
    address: IpAddr,
    schedule: EchoSchedule,
    refused: u64,
    reported_at: Time,
}

impl<'a> State<'a> {
    /// A summary of more echoes costs too much after each of them.
    const MAX_IMMEDIATE: usize = 1_000;
    const REPORT_INTERVAL: Span = Span::from_millis(100);

    fn new(ping: &'a Ping, address: IpAddr) -> Self {
        Self {
            ping,
            address,
            schedule: EchoSchedule::new(ping.count, ping.interval, ping.timeout),
            refused: 0,
            reported_at: Time::ZERO,
        }
    }

    /// Takes the result of a system call. A packet that the network refuses is a lost one.
    fn on_sent(&self, path: &PathSpec, sent: io::Result<()>) -> Result<(), ProbeError> {
        use io::ErrorKind::{
            HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut, WouldBlock,
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) if !path.has_carrier() => Err(ProbeError::io(path, "send", error)),
            Err(error) => match error.kind() {
                HostUnreachable | NetworkUnreachable | TimedOut | WouldBlock => Ok(()),
                PermissionDenied => Err(ProbeError::NotPermitted(
                    "a firewall of this host does not let the packets out".to_owned(),
                )),
                _ => Err(ProbeError::io(path, "send", error)),
            },
        }
    }

    fn report_regularly(&mut self, run: &mut Run) {
        let now = run.now();
        let is_immediate = self.schedule.round_trips().echoes().len() <= Self::MAX_IMMEDIATE;
        if is_immediate || now.since(self.reported_at) >= Self::REPORT_INTERVAL {
            self.reported_at = now;
            self.report(run);
        }
    }

    fn report(&self, run: &mut Run) {
        run.report(Measurement::Ping(PingReport {
            address: self.address,
            method: self.ping.method,
            echoes: self.schedule.round_trips().echoes().to_vec(),
            summary: self.schedule.round_trips().summary(),
            refused: self.refused,
        }));
    }
}

#[cfg(test)]
mod tests;
