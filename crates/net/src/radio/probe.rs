//! Probes the timers of a radio on a network interface.
//!
//! A [`Prober`] sends probes bound to one interface and counts the packets of the interface.
//! [`run`] executes a [`ProbeSchedule`] on it. A [`ProbeFile`] stores the results line by line, so
//! that an interrupted run can be resumed.
//!
//! A probe is an ICMP echo, or a TCP connection that is reset after its handshake. A refused
//! connection is an answer too. No special server is needed.

mod document;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use manyways_model::radio::gap_sweep::{Action, GapSample, ProbeSchedule};
use manyways_model::radio::infer::Probe;
use manyways_sys::clock::Clock;
use manyways_sys::interface;
use manyways_unit::{Span, Time};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

pub use self::document::Document;

/// Timeout of an answer; paging and a promotion can take more than 3 s.
pub const PROBE_TIMEOUT: Span = Span::from_secs(10);
/// Delay of a wait after which its gap is void.
const MAX_LATE: Span = Span::from_secs(1);
/// Consecutive lost probes after which the target counts as unreachable.
const MAX_LOST: u32 = 8;
/// In bytes.
const MAX_FILE_SIZE: u64 = 64 << 20;
const CSV_HEADER: &str = "idle,round_trip,silence,restarts,time\n";
/// Default TCP ports.
const DEFAULT_PORTS: [u16; 2] = [443, 80];
/// Payload bytes of an echo.
const ECHO_PAYLOAD: usize = 16;

/// Kind of probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Echo,
    /// A TCP connection to this port.
    Connect(u16),
}

impl Method {
    pub fn description(self) -> String {
        match self {
            Self::Echo => "ICMP echo".to_owned(),
            Self::Connect(port) => format!("TCP to port {port}"),
        }
    }
}

/// Reason why probing stops.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel does not have counters of this interface.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// No answer; the second value names the tried methods.
    #[error("{0} does not answer {1}")]
    NoAnswer(IpAddr, String),
    /// The target no longer answers.
    #[error("{MAX_LOST} consecutive probes had no answer")]
    Lost,
    #[error("cannot send probes: {0}")]
    Send(#[source] io::Error),
    #[error("cannot read the packet counters: {0}")]
    Count(#[source] io::Error),
    #[error("cannot write the results: {0}")]
    Write(#[source] io::Error),
}

/// An interface, and the target of its probes.
#[derive(Debug)]
pub struct Prober {
    interface: String,
    source: Option<IpAddr>,
    target: IpAddr,
    method: Method,
    clock: Clock,
    /// For ICMP echoes.
    socket: Option<Socket>,
    sequence: u16,
}

/// Result of a probe.
struct ProbeResult {
    rtt: Option<Span>,
    /// Packets of the probe itself, both directions.
    own_packets: u64,
}

impl Prober {
    /// Finds a method by which `target` answers over the interface: an echo first, then the default
    /// ports, or only `port`. The radio is connected afterwards.
    ///
    /// # Errors
    /// Fails if the target does not answer, or if sending is not permitted.
    pub fn open(
        interface: &str,
        sources: &[IpAddr],
        target: IpAddr,
        port: Option<u16>,
    ) -> Result<Self, ProbeError> {
        let mut line = Self {
            interface: interface.to_owned(),
            source: sources.iter().copied().find(|ip| ip.is_ipv4() == target.is_ipv4()),
            target,
            method: Method::Echo,
            clock: Clock::start(),
            socket: None,
            sequence: 0,
        };
        line.packets()?;
        let methods: Vec<Method> = match port {
            Some(port) => vec![Method::Connect(port)],
            None => {
                // Without permission for echoes only the ports remain.
                line.socket = line.echo_socket().ok();
                let echo = line.socket.is_some().then_some(Method::Echo);
                echo.into_iter().chain(DEFAULT_PORTS.map(Method::Connect)).collect()
            }
        };
        let mut refused = None;
        for method in &methods {
            line.method = *method;
            match line.probe() {
                Ok(ProbeResult { rtt: Some(_), .. }) => return Ok(line),
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(match refused {
            Some(error) => ProbeError::Send(error),
            None => {
                let words: Vec<String> =
                    methods.iter().map(|method| method.description()).collect();
                ProbeError::NoAnswer(target, words.join(" nor "))
            }
        })
    }

    pub fn method(&self) -> Method {
        self.method
    }

    /// Packets of the interface in both directions, from the kernel's counters in this thread's
    /// network namespace.
    fn packets(&self) -> Result<u64, ProbeError> {
        let counters = interface::counters(&self.interface).map_err(ProbeError::Count)?;
        let counters = counters.ok_or_else(|| ProbeError::NoInterface(self.interface.clone()))?;
        Ok(counters.received_packets.wrapping_add(counters.sent_packets))
    }

    fn bound_socket(&self, kind: Type, protocol: Protocol) -> io::Result<Socket> {
        let domain = if self.target.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, kind, Some(protocol))?;
        match socket.bind_device(Some(self.interface.as_bytes())) {
            // Before Linux 5.7 only root can bind to an interface; the source address is used
            // instead.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && self.source.is_some() => {}
            other => other?,
        }
        if let Some(source) = self.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        Ok(socket)
    }

    fn echo_socket(&self) -> io::Result<Socket> {
        let protocol = if self.target.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
        self.bound_socket(Type::DGRAM, protocol)
    }

    fn probe(&mut self) -> io::Result<ProbeResult> {
        match self.method {
            Method::Echo => self.echo(),
            Method::Connect(port) => self.connect(port),
        }
    }

    fn connect(&self, port: u16) -> io::Result<ProbeResult> {
        let socket = self.bound_socket(Type::STREAM, Protocol::TCP)?;
        // A reset closes the connection with one packet and no answer.
        socket.set_linger(Some(Duration::ZERO))?;
        let target: SockAddr = SocketAddr::new(self.target, port).into();
        let sent = self.clock.now();
        let connected = socket.connect_timeout(&target, PROBE_TIMEOUT.into());
        let round_trip = Some(self.clock.now().since(sent));
        match connected {
            // SYN, SYN-ACK, ACK and RST.
            Ok(()) => Ok(ProbeResult { rtt: round_trip, own_packets: 4 }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Ok(ProbeResult { rtt: round_trip, own_packets: 2 })
            }
            Err(error) if is_lost_probe(&error) => Ok(ProbeResult { rtt: None, own_packets: 1 }),
            Err(error) => Err(error),
        }
    }

    fn echo(&mut self) -> io::Result<ProbeResult> {
        let Some(socket) = &self.socket else { return Err(io::ErrorKind::Unsupported.into()) };
        self.sequence = self.sequence.wrapping_add(1);
        let (request, reply) = if self.target.is_ipv4() { (8, 0) } else { (128, 129) };
        // The kernel sets identifier and checksum.
        let [high, low] = self.sequence.to_be_bytes();
        let mut packet = [0; 8 + ECHO_PAYLOAD];
        (packet[0], packet[6], packet[7]) = (request, high, low);
        let target: SockAddr = SocketAddr::new(self.target, 0).into();
        let sent = self.clock.now();
        match socket.send_to(&packet, &target) {
            Err(error) if is_lost_probe(&error) => {
                return Ok(ProbeResult { rtt: None, own_packets: 1 });
            }
            other => other?,
        };
        loop {
            let remaining = PROBE_TIMEOUT.saturating_sub(self.clock.now().since(sent));
            if remaining.is_zero() {
                return Ok(ProbeResult { rtt: None, own_packets: 1 });
            }
            socket
                .set_read_timeout(Some(Duration::from(remaining).max(Duration::from_millis(1))))?;
            let mut answer = [0; 64];
            let length = match (&*socket).read(&mut answer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_lost_probe(&error) => {
                    return Ok(ProbeResult { rtt: None, own_packets: 1 });
                }
                Err(error) => return Err(error),
            };
            // An answer after the timeout has another sequence number.
            if length >= 8 && answer[0] == reply && answer[6..8] == packet[6..8] {
                let round_trip = Some(self.clock.now().since(sent));
                return Ok(ProbeResult { rtt: round_trip, own_packets: 2 });
            }
        }
    }
}

/// Whether an error means a lost probe, so that the next one can succeed.
fn is_lost_probe(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut, WouldBlock};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | TimedOut | WouldBlock)
}

/// Results of probes in a CSV file, one line each, in seconds.
///
/// `idle` is the planned gap, `silence` the actual one, `restarts` the number of disturbed attempts
/// before, and `time` the Unix time of the answer.
#[derive(Debug)]
pub struct ProbeFile {
    file: File,
    probes: Vec<Probe>,
}

impl ProbeFile {
    /// Creates a file, or continues an existing one with `resume`.
    ///
    /// # Errors
    /// `AlreadyExists` if the file exists and `resume` is false, `InvalidData` if it has another
    /// format, and errors of the system.
    pub fn open(path: &Path, resume: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true);
        let mut file = match resume {
            true => options.create(true).open(path)?,
            false => options.create_new(true).open(path)?,
        };
        let mut text = String::new();
        (&file).take(MAX_FILE_SIZE).read_to_string(&mut text)?;
        if text.is_empty() {
            file.write_all(CSV_HEADER.as_bytes())?;
            return Ok(Self { file, probes: Vec::new() });
        }
        let probes = parse_file(&text).ok_or(io::ErrorKind::InvalidData)?;
        if !text.ends_with('\n') {
            // The process that wrote the file was killed within a line.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            file.set_len(whole as u64)?;
        }
        Ok(Self { file, probes })
    }

    /// All probes in the file.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// The planned gaps in the file, for [`ProbeSchedule::new`].
    pub fn planned_gaps(&self) -> Vec<Span> {
        self.probes.iter().map(|probe| Span::from_secs_f64(probe.gap)).collect()
    }

    fn add(&mut self, sample: &GapSample, time: Span) -> io::Result<()> {
        let [idle, round_trip, silence] =
            [sample.planned_gap, sample.round_trip, sample.gap].map(Span::as_secs_f64);
        // One write per line, so that a killed process leaves whole lines.
        let line = format!(
            "{idle},{round_trip:.6},{silence:.6},{},{:.3}\n",
            sample.restarts,
            time.as_secs_f64()
        );
        self.file.write_all(line.as_bytes())?;
        // Rounded as in the file, so that a resumed run has the same result.
        self.probes.extend(parse_line(&line));
        Ok(())
    }
}

/// The probes in the text of a file; `None` if it has another format. Malformed lines and a last
/// line without line end are ignored.
fn parse_file(text: &str) -> Option<Vec<Probe>> {
    let lines = text.strip_prefix(CSV_HEADER)?.split_inclusive('\n');
    Some(lines.filter(|line| line.ends_with('\n')).filter_map(parse_line).collect())
}

fn parse_line(line: &str) -> Option<Probe> {
    let fields: Vec<f64> =
        line.trim_end().split(',').map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [idle, round_trip, _, _, _] = fields[..] else { return None };
    let is_time = |secs: f64| secs.is_finite() && secs >= 0.0;
    (is_time(idle) && is_time(round_trip)).then_some(Probe { gap: idle, round_trip })
}

/// Executes a plan until it is done or `pause` returns `false`. `pause` waits for the given time
/// and receives the plan's state.
///
/// # Errors
/// Fails if the target no longer answers or a system call fails; the recorded results remain.
pub fn run(
    line: &mut Prober,
    plan: &mut ProbeSchedule,
    record: &mut ProbeFile,
    pause: &mut dyn FnMut(&ProbeSchedule, Span) -> bool,
) -> Result<bool, ProbeError> {
    let mut lost = 0;
    // Time has passed since the line was opened.
    let woken = line.probe().map_err(ProbeError::Send)?;
    if woken.rtt.is_none() {
        tracing::debug!("the first probe was lost");
    }
    plan.start(line.clock.now(), line.packets()?);
    loop {
        let now = line.clock.now();
        match plan.next_action(now, line.packets()?) {
            Action::Done => return Ok(true),
            Action::Wait(at) => {
                if !pause(plan, at.since(now)) {
                    return Ok(false);
                }
                // The process was stopped: the gap is longer than planned, and begins again.
                if line.clock.now().since(at) > MAX_LATE {
                    line.probe().map_err(ProbeError::Send)?;
                    plan.start(line.clock.now(), line.packets()?);
                }
            }
            Action::Probe => {
                let sent = line.clock.now();
                let answer = line.probe().map_err(ProbeError::Send)?;
                let now = line.clock.now();
                lost = if answer.rtt.is_none() { lost + 1 } else { 0 };
                let sample = plan.on_probe_result(
                    sent,
                    answer.rtt,
                    answer.own_packets,
                    now,
                    line.packets()?,
                );
                if let Some(sample) = sample {
                    let time = line.clock.epoch() + now.since(Time::ZERO);
                    record.add(&sample, time).map_err(ProbeError::Write)?;
                }
                if lost == MAX_LOST {
                    return Err(ProbeError::Lost);
                }
                if !pause(plan, Span::ZERO) {
                    return Ok(false);
                }
            }
        }
    }
}

/// Splits a user's target into host and optional port.
///
/// # Errors
/// Fails if the port is not a number up to 65 535.
pub fn host_and_port(text: &str) -> Result<(&str, Option<u16>), std::num::ParseIntError> {
    // An IPv6 address contains colons, and has brackets if a port follows.
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = rest.strip_prefix(':').map(str::parse).transpose()?;
        return Ok((host, port));
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((host, Some(port.parse()?))),
        None => Ok((text, None)),
    }
}

#[cfg(test)]
mod tests;
