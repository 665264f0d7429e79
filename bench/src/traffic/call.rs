//! A flow like a voice call: small datagrams in both directions at a constant rate.

use std::collections::HashSet;
use std::io;
use std::iter::repeat_n;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use super::Measurement;
use super::dial::{Dialer, connect};
use super::socks::{self, Command};
use manyways_rig::sample::quantile;

/// Send datagrams that come back; the value is the median of the delay towards here. If none comes
/// back, it fails.
///
/// Both ends are on one machine and share a clock, so that each way is measured by itself.
#[derive(clap::Args)]
pub struct Call {
    /// How long.
    #[arg(long, value_name = "TIME")]
    length: Span,
    /// How large each datagram is, in bytes; the least is 24.
    #[arg(long, value_name = "BYTES", default_value_t = SIZE)]
    size: usize,
}

/// 50 datagrams of 160 bytes per second, as in G.711 with 20 ms frames.
const INTERVAL: Duration = Duration::from_millis(20);
const SIZE: usize = 160;
/// A datagram that arrives later than this after the last one was sent counts as lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes the receive time at the server into a datagram, after the sequence number and the send
/// time.
pub fn stamp(packet: &mut [u8], now: u64) {
    if let Some(place) = packet.get_mut(16..24) {
        place.copy_from_slice(&now.to_be_bytes());
    }
}

/// A socket, the header of its datagrams, and the control connection that must stay open.
struct CallSocket {
    socket: UdpSocket,
    to: SocketAddr,
    header: Vec<u8>,
    _control: Option<TcpStream>,
}

impl Call {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let line = CallSocket::open(dialer).await?;
        let clock = Clock::start();
        let now = || clock.absolute(Time::ZERO) + clock.now().as_nanos();
        let count = (Duration::from(self.length).as_secs_f64() / INTERVAL.as_secs_f64()) as u64;
        let mut ticks = tokio::time::interval(INTERVAL);
        let (mut number, mut arrivals, mut end) = (0, Vec::new(), None);
        let (mut buffer, mut numbers) = ([0; 2048], HashSet::new());
        while (arrivals.len() as u64) < count {
            let late = end.unwrap_or_else(|| Instant::now() + LOSS_TIMEOUT);
            tokio::select! {
                () = tokio::time::sleep_until(late), if end.is_some() => break,
                _ = ticks.tick(), if number < count => {
                    let mut packet = line.header.clone();
                    packet.extend(number.to_be_bytes());
                    packet.extend(now().to_be_bytes());
                    packet.resize(line.header.len() + self.size.max(24), 0);
                    line.socket.send_to(&packet, line.to).await?;
                    number += 1;
                    end = (number == count).then(|| Instant::now() + LOSS_TIMEOUT);
                }
                received = line.socket.recv(&mut buffer) => {
                    let packet = buffer.get(line.header.len()..received?).unwrap_or_default();
                    let arrival = Arrival::parse(packet, now());
                    // A duplicate does not make up for a lost one.
                    arrivals.extend(arrival.filter(|one| numbers.insert(one.number)));
                }
            }
        }
        summarize(count, &arrivals)
    }
}

impl CallSocket {
    async fn open(dialer: &Dialer) -> io::Result<Self> {
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let socket = UdpSocket::bind((dialer.from.unwrap_or(any), 0)).await?;
        let Some(proxy) = dialer.socks else {
            let to = dialer.server.into();
            return Ok(Self { socket, to, header: Vec::new(), _control: None });
        };
        let mut control = connect(None, false, proxy).await?;
        let to = socks::send_request(&mut control, Command::Associate, dialer.server).await?;
        Ok(Self { socket, to, header: socks::header(dialer.server), _control: Some(control) })
    }
}

/// A datagram that was echoed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Arrival {
    number: u64,
    /// Seconds to the server, and back.
    up: f64,
    down: f64,
}

impl Arrival {
    fn parse(packet: &[u8], now: u64) -> Option<Self> {
        let field = |at: usize| {
            let bytes = packet.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        let (number, sent, there) = (field(0)?, field(8)?, field(16)?);
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        Some(Self { number, up: seconds(sent, there), down: seconds(there, now) })
    }
}

fn summarize(count: u64, arrivals: &[Arrival]) -> io::Result<Measurement> {
    if arrivals.is_empty() {
        return Err(io::Error::other("no datagram of the call came back"));
    }
    let samples: Vec<f64> = arrivals.iter().map(|arrival| arrival.down).collect();
    let ups: Vec<f64> = arrivals.iter().map(|arrival| arrival.up).collect();
    let late = arrivals.windows(2).filter(|pair| pair[0].number > pair[1].number).count();
    let lost = count.saturating_sub(arrivals.len() as u64);
    let trips = round_trips(arrivals, lost);
    let figure = |values: &[f64], share| quantile(values, share).unwrap_or_default();
    let more = [
        ("up", figure(&ups, 0.5)),
        ("up_p95", figure(&ups, 0.95)),
        ("down_p95", figure(&samples, 0.95)),
        ("trip_p95", figure(&trips, 0.95)),
        ("trip_median", figure(&trips, 0.5)),
        ("reordered", late as f64),
        ("lost", lost as f64),
        ("sent", count as f64),
    ];
    // JSON has no infinite number: a figure that is missing is one.
    let more = more.into_iter().filter(|(_, value)| value.is_finite());
    let more = more.map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Measurement { value: figure(&samples, 0.5), samples, extra: more })
}

/// The round trips of all datagrams; those of the lost ones are infinite.
fn round_trips(arrivals: &[Arrival], lost: u64) -> Vec<f64> {
    let trips = arrivals.iter().map(|arrival| arrival.up + arrival.down);
    trips.chain(repeat_n(f64::INFINITY, lost as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_or_never_is_counted() {
        let arrival = |number| Arrival { number, up: 0.02, down: 0.01 };
        let arrivals = [arrival(0), arrival(2), arrival(1), arrival(4)];
        let measurement = summarize(5, &arrivals).unwrap();
        assert_eq!((measurement.extra["reordered"], measurement.extra["lost"]), (1.0, 1.0));
        assert_eq!((measurement.value, measurement.extra["up"]), (0.01, 0.02));
    }

    #[test]
    fn the_round_trip_of_a_lost_datagram_is_infinite() {
        let arrivals: Vec<Arrival> =
            (0..95).map(|number| Arrival { number, up: 0.01, down: 0.01 }).collect();
        let of = |count| summarize(count, &arrivals).unwrap().extra;
        // Of 100, the 95th came; of 101, the 96th is lost.
        assert_eq!(of(100).get("trip_p95"), Some(&0.02));
        let more = of(101);
        assert_eq!((more.get("trip_p95"), more.get("trip_median")), (None, Some(&0.02)));
        assert_eq!(of(191).get("trip_median"), None);
    }

    #[test]
    fn a_call_of_which_nothing_comes_back_fails() {
        assert!(summarize(5, &[]).is_err());
    }

    #[test]
    fn each_way_has_its_own_delay() {
        let mut packet = vec![0; SIZE];
        packet[..8].copy_from_slice(&7_u64.to_be_bytes());
        packet[8..16].copy_from_slice(&1_000_000_000_u64.to_be_bytes());
        stamp(&mut packet, 1_020_000_000);
        let arrival = Arrival::parse(&packet, 1_050_000_000);
        assert_eq!(arrival, Some(Arrival { number: 7, up: 0.02, down: 0.03 }));
        assert_eq!(Arrival::parse(&packet[..20], 0), None);
    }
}
