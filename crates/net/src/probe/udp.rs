//! Bursts of UDP datagrams.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use manyways_model::probe::burst::{self, Arrival, BurstSummary};
use manyways_model::probe::cost::{Plan, Transfer};
use manyways_sys::socket::{dropped_packets, is_too_large};
use manyways_unit::{Rate, Size, Span, Time};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, ip_header, lookup};
use super::peer::client::{Control, ControlCost, ProbeServer};
use super::peer::message::{BurstMessage, Direction, Order, Reply};
use super::peer::token::Token;
use super::report::Measurement;

/// A burst of datagrams at a constant rate.
#[derive(Clone, Debug)]
pub struct Udp {
    pub server: ProbeServer,
    pub direction: Direction,
    pub packets: u64,
    /// Bytes of UDP payload.
    pub size: u16,
    /// Of UDP payload.
    pub rate: Rate,
}

/// Result of a burst, as the receiver of the datagrams saw it.
#[derive(Clone, PartialEq, Debug)]
pub struct UdpReport {
    pub direction: Direction,
    pub summary: BurstSummary,
}

impl Udp {
    pub const MAX_PACKETS: u64 = 1_000_000;
    pub const MIN_SIZE: u16 = 32;
    pub const MAX_SIZE: u16 = 1_452;
    /// Time beyond the burst, for handshakes and the last datagrams.
    const GRACE: Span = Span::from_secs(20);
    /// Time to wait for datagrams after the last one should have come.
    const LATE: Duration = Duration::from_secs(2);

    pub fn new(server: ProbeServer, direction: Direction) -> Self {
        Self { server, direction, packets: 1_000, size: 200, rate: Rate::from_mbps(1) }
    }

    fn burst(&self) -> Span {
        self.rate.time_for(Size::from_bytes(self.packets * u64::from(self.size)))
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let mut control = Control::connect(run, &self.server, ControlCost::short()).await?;
        let order = Order::Udp {
            direction: self.direction,
            packets: self.packets,
            size: self.size,
            rate: self.rate.as_bps(),
        };
        let token = control.order(order).await?;
        let summary = match self.direction {
            Direction::Down => self.receive(run, &control, token).await?,
            Direction::Up => self.send(run, &mut control, token).await?,
        };
        run.report(Measurement::Udp(UdpReport { direction: self.direction, summary }));
        control.send(Order::Stop).await?;
        Ok(())
    }

    async fn receive(
        &self,
        run: &mut Run,
        control: &Control,
        token: Token,
    ) -> Result<BurstSummary, ProbeError> {
        let socket = control.datagrams().await?;
        let header = ip_header(control.server().ip()) + 8;
        let mut hello = [0; super::peer::token::UDP_HEAD];
        token.write_datagram(&mut hello, 0, 0);
        let dropped = || drops(socket.as_fd());
        let mut buffer = vec![0; 2_048];
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut missing: BTreeSet<u64> = (0..self.packets).collect();
        let mut reported = Time::ZERO;
        // The first datagrams may be lost, and then nothing would come.
        const MAX_HELLOS: usize = 5;
        for _ in 0..MAX_HELLOS {
            run.spend(Size::from_bytes(header + hello.len() as u64), Size::ZERO)?;
            let _ = socket.send(&hello).await;
            let wait = Instant::now() + Duration::from_secs(1);
            if timeout_at(wait, socket.readable()).await.is_ok() {
                break;
            }
        }
        let mut end = Instant::now() + Duration::from(self.burst()) + Self::LATE;
        while let Ok(received) = timeout_at(end, socket.recv(&mut buffer)).await {
            let length = match received {
                Ok(length) => length,
                Err(error) if run.path().has_carrier() => {
                    tracing::debug!("a datagram was not received: {error}");
                    continue;
                }
                Err(error) => return Err(ProbeError::io(run.path(), "receive", error)),
            };
            let now = run.now();
            let datagram = buffer.get(..length).and_then(Token::read_datagram);
            // A server that is not honest may send any number.
            let is_of_burst =
                |(own, sequence, _): &(Token, u64, u64)| *own == token && *sequence < self.packets;
            let Some((_, sequence, nanos)) = datagram.filter(is_of_burst) else { continue };
            run.spend(Size::ZERO, Size::from_bytes(header + length as u64))?;
            arrivals.push(Arrival { sequence, sent: Time::from_nanos(nanos), received: now });
            missing.remove(&sequence);
            if missing.is_empty() {
                break;
            }
            if sequence + 1 == self.packets {
                // Only those that were overtaken can still come.
                end = end.min(Instant::now() + Self::LATE);
            }
            if now.since(reported) >= Span::from_millis(500) {
                reported = now;
                // The highest number shows how many were sent so far.
                let sent = arrivals.iter().map(|arrival| arrival.sequence + 1).max();
                let summary = burst::summary(sent.unwrap_or(0), dropped(), &arrivals);
                run.report(Measurement::Udp(UdpReport { direction: self.direction, summary }));
            }
        }
        Ok(burst::summary(self.packets, dropped(), &arrivals))
    }

    async fn send(
        &self,
        run: &mut Run,
        control: &mut Control,
        token: Token,
    ) -> Result<BurstSummary, ProbeError> {
        let socket = control.datagrams().await?;
        let header = ip_header(control.server().ip()) + 8;
        let mut datagram = vec![0; usize::from(self.size)];
        let start = Instant::now();
        for sequence in 0..self.packets {
            let before = Size::from_bytes(sequence * u64::from(self.size));
            sleep_until(start + Duration::from(self.rate.time_for(before))).await;
            run.spend(Size::from_bytes(header + u64::from(self.size)), Size::ZERO)?;
            token.write_datagram(&mut datagram, sequence, run.now().as_nanos());
            match socket.send(&datagram).await {
                Err(error) if !run.path().has_carrier() => {
                    return Err(ProbeError::io(run.path(), "send", error));
                }
                // A router has dropped a datagram, and its loss is not that of a small one.
                Err(error) if is_too_large(&error) => return Err(ProbeError::TooLarge(self.size)),
                _ => {}
            }
        }
        loop {
            match control.reply().await? {
                Reply::Burst(burst) => return Ok(self.summary(&burst)),
                Reply::Ended { .. } => {
                    return Err(ProbeError::Server("the server counted nothing".to_owned()));
                }
                _ => {}
            }
        }
    }

    /// The summary of the server, which need not be honest.
    fn summary(&self, burst: &BurstMessage) -> BurstSummary {
        let span = |nanos: Option<u64>| nanos.map(Span::from_nanos);
        let received = burst.received.min(self.packets);
        let dropped = burst.dropped.min(self.packets - received);
        // A server counts as many duplicates as packets.
        let duplicates = burst.duplicates.min(2 * self.packets - received);
        BurstSummary {
            sent: self.packets,
            received,
            dropped,
            loss: burst::loss(self.packets, received, dropped),
            duplicates,
            reordered: burst.reordered.min(received),
            mean_gap: span(burst.mean_gap),
            median_gap: span(burst.median_gap),
            p90_gap: span(burst.p90_gap),
            median_variation: span(burst.median_variation),
            p90_variation: span(burst.p90_variation),
            max_variation: span(burst.max_variation),
        }
    }
}

/// Datagrams for which a socket had no room.
pub(super) fn drops(socket: BorrowedFd<'_>) -> u64 {
    dropped_packets(socket).map_or(0, u64::from)
}

impl Probe for Udp {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn target(&self) -> String {
        self.server.name()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let refuse = |text: String| Err(InvalidParameter(text));
        if !(1..=Self::MAX_PACKETS).contains(&self.packets) {
            return refuse(format!("the number of packets is from 1 to {}", Self::MAX_PACKETS));
        }
        if !(Self::MIN_SIZE..=Self::MAX_SIZE).contains(&self.size) {
            let (min, max) = (Self::MIN_SIZE, Self::MAX_SIZE);
            return refuse(format!("the size is from {min} to {max} bytes"));
        }
        let max = Span::from_secs(60);
        if self.rate.is_zero() || self.burst() > max {
            return refuse(format!("at this rate the burst would take more than {max}"));
        }
        // A network may double packets.
        let data = 2 * self.packets * (48 + u64::from(self.size));
        let hellos = 5 * (48 + super::peer::token::UDP_HEAD as u64);
        let (up, down) = match self.direction {
            Direction::Up => (data / 2, 0),
            Direction::Down => (hellos, data),
        };
        let control = ControlCost::short();
        let transfer = Transfer {
            start: Span::ZERO,
            duration: self.burst() + Self::GRACE,
            up: Size::from_bytes(up) + control.up(),
            down: Size::from_bytes(down) + control.down(),
        };
        let lookup = Plan::new(vec![lookup(&self.server.host)]);
        Ok(lookup.then(Span::ZERO, &Plan::new(vec![transfer])))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
