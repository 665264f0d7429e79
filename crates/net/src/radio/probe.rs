//! The timers of a radio, probed on an interface that is there.
//!
//! A [`Line`] sends probes over one interface, bound to it, and counts what passes it; [`run`] does
//! with it what a [`Plan`] says, and a [`Record`] keeps what comes of it, line by line, so that a run
//! that was stopped goes on later.
//!
//! A probe is an ICMP echo, or a TCP connection that is dropped as soon as it is there: an answer that
//! refuses it is an answer too. Nobody has to run a server for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use manyways_model::radio::infer::Probe;
use manyways_model::radio::ladder::{Next, Plan, Sample};
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// How long an answer may take. Paging and a promotion take three seconds and more.
pub const PATIENCE: Span = Span::from_secs(10);
/// After so many probes in a row without an answer, nobody answers.
const MOST_LOST: u32 = 8;
/// The largest file that is read.
const MOST_RECORD: u64 = 64 << 20;
/// The first line of a file.
const HEADER: &str = "idle,round_trip,silence,restarts,time\n";
/// Those that are asked by TCP where nobody says.
const PORTS: [u16; 2] = [443, 80];
/// What an echo carries: as little as others send.
const ECHO: usize = 16;

/// How a probe asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// An ICMP echo.
    Echo,
    /// A TCP connection to that port.
    Connect(u16),
}

impl Method {
    /// In words.
    pub fn words(self) -> String {
        match self {
            Self::Echo => "ICMP echo".to_owned(),
            Self::Connect(port) => format!("TCP to port {port}"),
        }
    }
}

/// Why it cannot be probed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel does not count for an interface of that name.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// Nothing came back.
    #[error("{0} does not answer {1}")]
    Silent(IpAddr, String),
    /// It stopped answering.
    #[error("{MOST_LOST} probes in a row had no answer")]
    Lost,
    /// The kernel.
    #[error("cannot send probes: {0}")]
    Send(#[source] io::Error),
    /// The counters.
    #[error("cannot read how many packets have passed: {0}")]
    Count(#[source] io::Error),
    /// What was measured.
    #[error("cannot write down what was measured: {0}")]
    Record(#[source] io::Error),
}

/// One interface, and whom to ask over it.
#[derive(Debug)]
pub struct Line {
    interface: String,
    source: Option<IpAddr>,
    target: IpAddr,
    method: Method,
    clock: Clock,
    /// Of echoes.
    socket: Option<Socket>,
    sequence: u16,
}

/// What became of a probe.
struct Answer {
    round_trip: Option<Span>,
    /// The packets of its own.
    own: u64,
}

impl Line {
    /// Finds out how `target` answers over the interface, by an echo first, then on the usual ports,
    /// or only on that `port`. The radio is awake then.
    ///
    /// # Errors
    /// Where it does not, or this user may send nothing there.
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
                // Where users may send no echoes, the ports are left.
                line.socket = line.echoes().ok();
                let echo = line.socket.is_some().then_some(Method::Echo);
                echo.into_iter().chain(PORTS.map(Method::Connect)).collect()
            }
        };
        let mut refused = None;
        for method in &methods {
            line.method = *method;
            match line.ask() {
                Ok(Answer { round_trip: Some(_), .. }) => return Ok(line),
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(match refused {
            Some(error) => ProbeError::Send(error),
            None => {
                let words: Vec<String> = methods.iter().map(|method| method.words()).collect();
                ProbeError::Silent(target, words.join(" nor "))
            }
        })
    }

    /// How it asks.
    pub fn method(&self) -> Method {
        self.method
    }

    /// How many packets the interface has sent and received, as the kernel says for the network
    /// namespace of this thread.
    fn packets(&self) -> Result<u64, ProbeError> {
        let text =
            std::fs::read_to_string("/proc/thread-self/net/dev").map_err(ProbeError::Count)?;
        counted(&text, &self.interface)
            .ok_or_else(|| ProbeError::NoInterface(self.interface.clone()))
    }

    fn bound(&self, kind: Type, protocol: Protocol) -> io::Result<Socket> {
        let domain = if self.target.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, kind, Some(protocol))?;
        match socket.bind_device(Some(self.interface.as_bytes())) {
            // Before Linux 5.7 only root may; then the source address has to do.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && self.source.is_some() => {}
            other => other?,
        }
        if let Some(source) = self.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        Ok(socket)
    }

    fn echoes(&self) -> io::Result<Socket> {
        let protocol = if self.target.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
        self.bound(Type::DGRAM, protocol)
    }

    fn ask(&mut self) -> io::Result<Answer> {
        match self.method {
            Method::Echo => self.echo(),
            Method::Connect(port) => self.connect(port),
        }
    }

    fn connect(&self, port: u16) -> io::Result<Answer> {
        let socket = self.bound(Type::STREAM, Protocol::TCP)?;
        // Dropped, it ends with one packet and no answer.
        socket.set_linger(Some(Duration::ZERO))?;
        let target: SockAddr = SocketAddr::new(self.target, port).into();
        let sent = self.clock.now();
        let connected = socket.connect_timeout(&target, PATIENCE.into());
        let round_trip = Some(self.clock.now().since(sent));
        match connected {
            // SYN, SYN and ACK, ACK, and the RST of the end.
            Ok(()) => Ok(Answer { round_trip, own: 4 }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Ok(Answer { round_trip, own: 2 })
            }
            Err(error) if is_silence(&error) => Ok(Answer { round_trip: None, own: 1 }),
            Err(error) => Err(error),
        }
    }

    fn echo(&mut self) -> io::Result<Answer> {
        let Some(socket) = &self.socket else { return Err(io::ErrorKind::Unsupported.into()) };
        self.sequence = self.sequence.wrapping_add(1);
        let (request, reply) = if self.target.is_ipv4() { (8, 0) } else { (128, 129) };
        // The kernel fills in identifier and checksum.
        let [high, low] = self.sequence.to_be_bytes();
        let mut packet = [0; 8 + ECHO];
        (packet[0], packet[6], packet[7]) = (request, high, low);
        let target: SockAddr = SocketAddr::new(self.target, 0).into();
        let sent = self.clock.now();
        match socket.send_to(&packet, &target) {
            Err(error) if is_silence(&error) => return Ok(Answer { round_trip: None, own: 1 }),
            other => other?,
        };
        loop {
            let left = PATIENCE.saturating_sub(self.clock.now().since(sent));
            if left.is_zero() {
                return Ok(Answer { round_trip: None, own: 1 });
            }
            socket.set_read_timeout(Some(Duration::from(left).max(Duration::from_millis(1))))?;
            let mut answer = [0; 64];
            let length = match (&*socket).read(&mut answer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_silence(&error) => {
                    return Ok(Answer { round_trip: None, own: 1 });
                }
                Err(error) => return Err(error),
            };
            // One that comes after our patience has another number.
            if length >= 8 && answer[0] == reply && answer[6..8] == packet[6..8] {
                let round_trip = Some(self.clock.now().since(sent));
                return Ok(Answer { round_trip, own: 2 });
            }
        }
    }
}

/// Whether an error means that nobody answered this one, and the next may be answered.
fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut, WouldBlock};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | TimedOut | WouldBlock)
}

/// Packets of an interface, both ways, in what `/proc/net/dev` says.
fn counted(text: &str, interface: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name.trim() == interface).then_some(rest)
    })?;
    let field = |place: usize| line.split_whitespace().nth(place)?.parse::<u64>().ok();
    Some(field(1)?.wrapping_add(field(9)?))
}

/// What was measured, in a file: CSV, a line each, in seconds.
///
/// `idle` is the silence that was wanted and `silence` the one that was kept, `restarts` says how
/// often others' packets broke it before, and `time` is when the answer came, since 1970.
#[derive(Debug)]
pub struct Record {
    file: File,
    probes: Vec<Probe>,
}

impl Record {
    /// Begins a file, or goes on with it.
    ///
    /// # Errors
    /// `AlreadyExists` where it is there and `resume` is not said, `InvalidData` where it is no such
    /// file, and what the system says.
    pub fn open(path: &Path, resume: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true);
        let mut file = match resume {
            true => options.create(true).open(path)?,
            false => options.create_new(true).open(path)?,
        };
        let mut text = String::new();
        (&file).take(MOST_RECORD).read_to_string(&mut text)?;
        if text.is_empty() {
            file.write_all(HEADER.as_bytes())?;
            return Ok(Self { file, probes: Vec::new() });
        }
        let probes = recorded(&text).ok_or(io::ErrorKind::InvalidData)?;
        if !text.ends_with('\n') {
            // Whoever wrote it was killed amid a line.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            file.set_len(whole as u64)?;
        }
        Ok(Self { file, probes })
    }

    /// Everything in it.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// The silences in it, as a plan wants to know them.
    pub fn done(&self) -> Vec<Span> {
        self.probes.iter().map(|probe| Span::from_secs_f64(probe.idle)).collect()
    }

    fn add(&mut self, sample: &Sample, time: Span) -> io::Result<()> {
        let [idle, round_trip, silence] =
            [sample.idle, sample.round_trip, sample.silence].map(Span::as_secs_f64);
        // One write a line: it is there as a whole, whenever we are killed.
        let line = format!(
            "{idle},{round_trip:.6},{silence:.6},{},{:.3}\n",
            sample.restarts,
            time.as_secs_f64()
        );
        self.file.write_all(line.as_bytes())?;
        // As the file has it: who goes on with it comes to the same.
        self.probes.extend(probe(&line));
        Ok(())
    }
}

/// The probes in the text of such a file; none where it is something else. Lines that are none are
/// passed over, and so is a last one without its end.
fn recorded(text: &str) -> Option<Vec<Probe>> {
    let lines = text.strip_prefix(HEADER)?.split_inclusive('\n');
    Some(lines.filter(|line| line.ends_with('\n')).filter_map(probe).collect())
}

fn probe(line: &str) -> Option<Probe> {
    let fields: Vec<f64> =
        line.trim_end().split(',').map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [idle, round_trip, _, _, _] = fields[..] else { return None };
    let is_time = |secs: f64| secs.is_finite() && secs >= 0.0;
    (is_time(idle) && is_time(round_trip)).then_some(Probe { idle, round_trip })
}

/// Does what a plan says, until it is done or `pause` says no; then it was stopped. `pause` waits for
/// so long, and is told how the plan stands.
///
/// # Errors
/// Where nobody answers any more, or the system fails; what was measured is kept.
pub fn run(
    line: &mut Line,
    plan: &mut Plan,
    record: &mut Record,
    pause: &mut dyn FnMut(&Plan, Span) -> bool,
) -> Result<bool, ProbeError> {
    let mut lost = 0;
    // It has been silent for a while since the line was opened.
    let woken = line.ask().map_err(ProbeError::Send)?;
    if woken.round_trip.is_none() {
        tracing::debug!("the first probe was lost");
    }
    plan.begin(line.clock.now(), line.packets()?);
    loop {
        let now = line.clock.now();
        match plan.look(now, line.packets()?) {
            Next::Done => return Ok(true),
            Next::Look(at) => {
                if !pause(plan, at.since(now)) {
                    return Ok(false);
                }
            }
            Next::Probe => {
                let sent = line.clock.now();
                let answer = line.ask().map_err(ProbeError::Send)?;
                let now = line.clock.now();
                lost = if answer.round_trip.is_none() { lost + 1 } else { 0 };
                let sample = plan.probed(sent, answer.round_trip, answer.own, now, line.packets()?);
                if let Some(sample) = sample {
                    let time = line.clock.epoch() + now.since(Time::ZERO);
                    record.add(&sample, time).map_err(ProbeError::Record)?;
                }
                if lost == MOST_LOST {
                    return Err(ProbeError::Lost);
                }
                if !pause(plan, Span::ZERO) {
                    return Ok(false);
                }
            }
        }
    }
}

/// An address to connect to from what a user wrote: a host, and the port where there is one.
///
/// # Errors
/// Where that is no port.
pub fn host_and_port(text: &str) -> Result<(&str, Option<u16>), std::num::ParseIntError> {
    // An IPv6 address has colons of its own, and brackets where a port follows.
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
