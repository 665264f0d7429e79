//! The throughput of one TCP connection.

use std::os::fd::AsFd;
use std::time::Duration;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::probe::throughput::{Throughput, ThroughputEstimate};
use manyways_unit::{Size, Span, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, lookup};
use super::peer::client::{Control, ControlCost, ProbeServer};
use super::peer::message::{Direction, Order, Reply};
use super::report::Measurement;

/// A bulk transfer with a probe server.
#[derive(Clone, Debug)]
pub struct Tcp {
    pub server: ProbeServer,
    pub direction: Direction,
    /// Maximum duration.
    pub duration: Span,
    /// Whether the transfer takes the whole duration; otherwise it ends when its rate is known.
    pub is_full: bool,
    /// Maximum bytes.
    pub bytes: Size,
}

/// Result of a bulk transfer.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpReport {
    pub direction: Direction,
    /// Received bytes of the transfer.
    pub bytes: Size,
    pub duration: Span,
    /// From the request to the first bytes of a download: a round trip and the work of the server.
    pub first_byte: Option<Span>,
    /// Without slow start; `None` before the first tenth of a second.
    pub estimate: Option<ThroughputEstimate>,
    /// Received bytes of each tenth of a second.
    pub slots: Vec<u64>,
    /// State of TCP at the sender over time.
    pub samples: Vec<TcpSample>,
}

/// The state of TCP at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSample {
    /// Since the start of the transfer.
    pub at: Span,
    pub rtt: Option<Span>,
    /// Congestion window, in packets.
    pub cwnd: u32,
    /// Retransmitted packets since the start.
    pub retransmitted: u32,
}

impl Tcp {
    /// Time beyond the duration, for handshakes and the last bytes.
    const GRACE: Span = Span::from_secs(15);
    /// Bytes that are in flight when the transfer ends.
    const RECEIVE_WINDOW: u64 = 6 << 20;

    pub fn new(server: ProbeServer, direction: Direction) -> Self {
        Self {
            server,
            direction,
            duration: Span::from_secs(10),
            is_full: false,
            bytes: Size::from_bytes(300_000_000),
        }
    }

    fn control(&self) -> ControlCost {
        ControlCost::transfer(self.duration)
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let mut control = Control::connect(run, &self.server, self.control()).await?;
        let order = Order::Tcp {
            direction: self.direction,
            bytes: self.bytes.as_bytes(),
            millis: self.duration.as_nanos().div_ceil(1_000_000),
        };
        let token = control.order(order).await?;
        let stream = control.data(token).await?;
        let mut transfer = State::new(self, run.now());
        let done = match self.direction {
            Direction::Down => self.receive(run, &mut control, stream, &mut transfer).await,
            Direction::Up => self.send(run, &mut control, stream, &mut transfer).await,
        };
        if done.is_ok() || transfer.bytes > 0 {
            transfer.report(run);
        }
        done?;
        control.send(Order::Stop).await?;
        Ok(())
    }

    async fn receive(
        &self,
        run: &mut Run,
        control: &mut Control,
        mut stream: TcpStream,
        transfer: &mut State<'_>,
    ) -> Result<(), ProbeError> {
        let mut buffer = vec![0; 256 << 10];
        let end = Instant::now() + Duration::from(self.duration);
        loop {
            tokio::select! {
                read = timeout_at(end, stream.read(&mut buffer)) => {
                    let Ok(read) = read else { return Ok(()) };
                    let length = read
                        .map_err(|error| ProbeError::io(run.path(), "receive", error))?;
                    if length == 0 {
                        return Ok(());
                    }
                    run.spend(with_acks(length), with_headers(length))?;
                    if transfer.add(run, run.now(), length as u64) {
                        return Ok(());
                    }
                }
                reply = control.reply() => transfer.on_reply(&reply?),
            }
        }
    }

    async fn send(
        &self,
        run: &mut Run,
        control: &mut Control,
        mut stream: TcpStream,
        transfer: &mut State<'_>,
    ) -> Result<(), ProbeError> {
        // Random bytes, because a proxy might compress others.
        let mut chunk = vec![0; 32 << 10];
        let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut chunk);
        // Little waits in the kernel, so that the transfer ends soon after its last write.
        let _ =
            manyways_sys::socket::set_notsent_lowat(stream.as_fd(), Size::from_bytes(128 << 10));
        let end = Instant::now() + Duration::from(self.duration);
        let mut sent = 0;
        let mut sampled = Time::ZERO;
        // Bytes that the prediction already contains, and the reason why it has no more.
        let (mut paid, mut limit) = (0, None);
        while sent < self.bytes.as_bytes() {
            if paid == 0 {
                let rest = usize::try_from(self.bytes.as_bytes() - sent).unwrap_or(usize::MAX);
                match pay(run, chunk.len().min(rest)) {
                    Ok(length) => paid = length,
                    Err(error) => {
                        limit = Some(error);
                        break;
                    }
                }
            }
            tokio::select! {
                written = timeout_at(end, stream.write(&chunk[..paid])) => {
                    let Ok(written) = written else { break };
                    let length = written
                        .map_err(|error| ProbeError::io(run.path(), "send", error))?;
                    paid -= length;
                    sent += length as u64;
                    let now = run.now();
                    if now.since(sampled) >= State::SAMPLE_INTERVAL {
                        sampled = now;
                        transfer.sample(now, &stream);
                    }
                }
                reply = control.reply() => {
                    if transfer.on_received(run, &reply?, sent) {
                        break;
                    }
                }
            }
        }
        run.refund(Size::from_bytes(paid as u64), Size::ZERO);
        let _ = stream.shutdown().await;
        // The server counts what arrives.
        loop {
            let Ok(reply) = timeout_at(end + Duration::from_secs(5), control.reply()).await else {
                break;
            };
            let reply = reply?;
            if matches!(reply, Reply::Ended { .. }) {
                break;
            }
            transfer.on_received(run, &reply, sent);
        }
        limit.map_or(Ok(()), Err)
    }
}

/// Takes the next bytes to send from the prediction, and returns how many: at the limit fewer than
/// `length`, but at least a packet.
fn pay(run: &mut Run, mut length: usize) -> Result<usize, ProbeError> {
    const PACKET: usize = 1_400;
    loop {
        match run.spend(with_headers(length), with_acks(length)) {
            Err(_) if length > 2 * PACKET => length /= 2,
            paid => return paid.map(|()| length),
        }
    }
}

/// Bytes of received data with the headers of their packets.
fn with_headers(length: usize) -> Size {
    Size::from_bytes((length + (length / 1_400 + 1) * 52) as u64)
}

/// Bytes of the acknowledgements of received data.
fn with_acks(length: usize) -> Size {
    Size::from_bytes(((length / 2_800 + 1) * 52) as u64)
}

/// A transfer so far.
struct State<'a> {
    tcp: &'a Tcp,
    started: Time,
    throughput: Throughput,
    bytes: u64,
    last: Time,
    reported: Time,
    samples: Vec<TcpSample>,
}

impl<'a> State<'a> {
    const SAMPLE_INTERVAL: Span = Span::from_millis(100);

    fn new(tcp: &'a Tcp, now: Time) -> Self {
        Self {
            tcp,
            started: now,
            throughput: Throughput::new(now),
            bytes: 0,
            last: now,
            reported: now,
            samples: Vec::new(),
        }
    }

    /// Counts bytes that arrived. Returns whether the transfer may end.
    fn add(&mut self, run: &mut Run, now: Time, bytes: u64) -> bool {
        self.throughput.add(now, Size::from_bytes(bytes));
        self.bytes += bytes;
        self.last = now;
        if now.since(self.reported) < Self::SAMPLE_INTERVAL {
            return false;
        }
        self.reported = now;
        self.report(run);
        let is_known = self.throughput.estimate(now).is_some_and(|estimate| estimate.is_stable);
        is_known && !self.tcp.is_full
    }

    /// Takes the count of the server in a transfer up. It cannot have received more than was sent,
    /// nor later than now.
    fn on_received(&mut self, run: &mut Run, reply: &Reply, sent: u64) -> bool {
        let Reply::Received { nanos, bytes } = reply else { return false };
        let more = (*bytes).min(sent).saturating_sub(self.bytes);
        let at = (self.started + Span::from_nanos(*nanos)).min(run.now());
        self.add(run, at.max(self.last), more)
    }

    fn on_reply(&mut self, reply: &Reply) {
        if let Reply::Sample { nanos, rtt, cwnd, retransmitted } = *reply {
            let rtt = rtt.map(Span::from_nanos);
            self.push(TcpSample { at: Span::from_nanos(nanos), rtt, cwnd, retransmitted });
        }
    }

    fn sample(&mut self, now: Time, stream: &TcpStream) {
        if let Ok(tcp) = manyways_sys::socket::tcp_state(stream.as_fd()) {
            self.push(TcpSample {
                at: now.since(self.started),
                rtt: tcp.rtt,
                cwnd: tcp.cwnd,
                retransmitted: tcp.total_retrans,
            });
        }
    }

    /// A hostile server can send any number of samples.
    fn push(&mut self, sample: TcpSample) {
        const MAX_SAMPLES: usize = 10_000;
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(sample);
        }
    }

    fn report(&mut self, run: &mut Run) {
        run.report(Measurement::Tcp(TcpReport {
            direction: self.tcp.direction,
            bytes: Size::from_bytes(self.bytes),
            duration: self.last.since(self.started),
            // Up, the server counts whole intervals.
            first_byte: match self.tcp.direction {
                Direction::Down => self.throughput.first_byte(),
                Direction::Up => None,
            },
            estimate: self.throughput.estimate(self.last),
            slots: self.throughput.slots().to_vec(),
            samples: self.samples.clone(),
        }));
    }
}

impl Probe for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn target(&self) -> String {
        self.server.name()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let max = Span::from_secs(60);
        if self.duration.is_zero() || self.duration > max {
            return Err(InvalidParameter(format!("the duration is from 1 ms to {max}")));
        }
        if self.bytes == Size::ZERO {
            return Err(InvalidParameter("the maximum of bytes is zero".to_owned()));
        }
        let bytes = usize::try_from(self.bytes.as_bytes() + Self::RECEIVE_WINDOW);
        let bytes = bytes.unwrap_or(usize::MAX / 4).min(usize::MAX / 4);
        let (data, acks) = (with_headers(bytes), with_acks(bytes));
        // Each read and write counts as packets of its own.
        let data = Size::from_bytes(data.as_bytes() + data.as_bytes() / 16);
        let acks = Size::from_bytes(acks.as_bytes() * 2);
        let (up, down) = match self.direction {
            Direction::Up => (data, acks),
            Direction::Down => (acks, data),
        };
        let transfer = Transfer {
            start: Span::ZERO,
            duration: self.duration + Self::GRACE,
            up: up + self.control().up(),
            down: down + self.control().down(),
        };
        let lookup = Plan::new(vec![lookup(&self.server.host)]);
        Ok(lookup.then(Span::ZERO, &Plan::new(vec![transfer])))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
