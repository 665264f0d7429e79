//! One measurement of a client.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use manyways_model::probe::burst::{self, Arrival, BurstSummary};
use manyways_unit::{Rate, Size, Span, Time};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::admission::Grant;
use super::{Datagram, Expected, MAX_WAITING_DATAGRAMS, State, lock};
use crate::bond::PublicKey;
use crate::probe::peer::message::{BurstMessage, Direction, Order, REPORT_INTERVAL, Reply};
use crate::probe::peer::token::{Token, UDP_HEAD};
use crate::probe::udp::drops;

/// Time in which the data of a measurement must begin.
const DATA_TIMEOUT: Duration = Duration::from_secs(15);
/// Time to wait for the last datagrams of a burst.
const LATE: Duration = Duration::from_secs(2);
/// Bytes of one write. Small enough for an early end.
const CHUNK: usize = 32 << 10;

/// A measurement. Dropping it ends it in the books of the server.
pub(super) struct Measurement {
    state: Arc<State>,
    key: PublicKey,
    order: Order,
    grant: Grant,
    token: Option<Token>,
    sent: u64,
    received: u64,
}

impl Drop for Measurement {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            lock(&self.state.expected).remove(&token);
        }
        let used = self.sent + self.received;
        lock(&self.state.admission).end(self.key, &self.grant, used);
    }
}

impl Measurement {
    pub(super) fn new(state: Arc<State>, key: PublicKey, order: Order, grant: Grant) -> Self {
        Self { state, key, order, grant, token: Token::generate(), sent: 0, received: 0 }
    }

    pub(super) fn ended(&self) -> Reply {
        Reply::Ended { sent: self.sent, received: self.received }
    }

    /// Runs to the end; a client that disappears ends it too.
    pub(super) async fn run(&mut self, replies: mpsc::Sender<Reply>) {
        let Some(token) = self.token else {
            let reason = "the server has no random numbers".to_owned();
            let _ = replies.send(Reply::Refused { reason }).await;
            return;
        };
        let ready = Reply::Ready { token };
        match self.order {
            Order::Tcp { direction, .. } => {
                let (sender, stream) = oneshot::channel();
                lock(&self.state.expected).insert(token, Expected::Stream(sender));
                let _ = replies.send(ready).await;
                let Ok(Ok(stream)) = timeout(DATA_TIMEOUT, stream).await else { return };
                let done = match direction {
                    Direction::Down => self.send_stream(stream, &replies).await,
                    Direction::Up => self.receive_stream(stream, &replies).await,
                };
                if let Err(error) = done {
                    tracing::debug!("a transfer ended: {error}");
                }
            }
            Order::Udp { direction, packets, size, rate } => {
                let (sender, datagrams) = mpsc::channel(MAX_WAITING_DATAGRAMS);
                lock(&self.state.expected).insert(token, Expected::Datagrams(sender));
                let _ = replies.send(ready).await;
                match direction {
                    Direction::Down => {
                        self.send_burst(token, datagrams, packets, size, Rate::from_bps(rate))
                            .await;
                    }
                    Direction::Up => self.receive_burst(datagrams, packets, size, &replies).await,
                }
            }
            Order::Echo { packets, size, .. } => {
                lock(&self.state.expected).insert(token, Expected::Echoes(packets));
                let _ = replies.send(ready).await;
                tokio::time::sleep(self.grant.duration.into()).await;
                let rest = match lock(&self.state.expected).get(&token) {
                    Some(Expected::Echoes(rest)) => *rest,
                    _ => 0,
                };
                let bytes = packets.saturating_sub(rest) * u64::from(size);
                (self.sent, self.received) = (bytes, bytes);
            }
            Order::Stop => {}
        }
    }

    /// Waits after these bytes of a connection, so that the client keeps its rate.
    async fn pace(&self, bytes: u64, end: Instant) {
        let (now, size) = (self.state.clock.now(), Size::from_bytes(bytes));
        let wait = lock(&self.state.admission).pace(now, self.key, &self.grant, size);
        if !wait.is_zero() {
            sleep_until((Instant::now() + Duration::from(wait)).min(end)).await;
        }
    }

    async fn send_stream(
        &mut self,
        mut stream: TcpStream,
        replies: &mpsc::Sender<Reply>,
    ) -> io::Result<()> {
        // Random bytes, because a proxy might compress others.
        let mut chunk = vec![0; CHUNK];
        let _ = SystemRandom::new().fill(&mut chunk);
        let clock = self.state.clock;
        let started = clock.now();
        let end = Instant::now() + Duration::from(self.grant.duration);
        let mut reported = started;
        while self.sent < self.grant.bytes {
            let rest = usize::try_from(self.grant.bytes - self.sent).unwrap_or(usize::MAX);
            let Ok(written) = timeout_at(end, stream.write(&chunk[..CHUNK.min(rest)])).await else {
                break;
            };
            let written = written? as u64;
            self.sent += written;
            self.pace(written, end).await;
            let now = clock.now();
            if now.since(reported) >= REPORT_INTERVAL {
                reported = now;
                if let Ok(tcp) = manyways_sys::socket::tcp_state(stream.as_fd()) {
                    let sample = Reply::Sample {
                        nanos: now.since(started).as_nanos(),
                        rtt: tcp.rtt.map(Span::as_nanos),
                        cwnd: tcp.cwnd,
                        retransmitted: tcp.total_retrans,
                    };
                    // A client that reads no messages does not delay its own transfer.
                    let _ = replies.try_send(sample);
                }
            }
        }
        // The client may close first.
        let _ = timeout_at(end + LATE, stream.shutdown()).await;
        Ok(())
    }

    async fn receive_stream(
        &mut self,
        mut stream: TcpStream,
        replies: &mpsc::Sender<Reply>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let clock = self.state.clock;
        let end = Instant::now() + Duration::from(self.grant.duration) + LATE;
        let (mut started, mut reported): (Option<Time>, Time) = (None, Time::ZERO);
        loop {
            let Ok(length) = timeout_at(end, stream.read(&mut buffer)).await else { break };
            let length = length?;
            let now = clock.now();
            let begin = *started.get_or_insert(now);
            self.received += length as u64;
            self.pace(length as u64, end).await;
            let is_end = length == 0 || self.received >= self.grant.bytes;
            if is_end || now.since(reported) >= REPORT_INTERVAL {
                reported = now;
                let nanos = now.since(begin).as_nanos();
                let reply = Reply::Received { nanos, bytes: self.received };
                match is_end {
                    true => drop(replies.send(reply).await),
                    false => drop(replies.try_send(reply)),
                }
            }
            if is_end {
                break;
            }
        }
        Ok(())
    }

    async fn send_burst(
        &mut self,
        token: Token,
        mut datagrams: mpsc::Receiver<Datagram>,
        packets: u64,
        size: u16,
        rate: Rate,
    ) {
        // The address has proved itself by the token.
        let Ok(Some(first)) = timeout(DATA_TIMEOUT, datagrams.recv()).await else { return };
        let mut datagram = vec![0; usize::from(size).max(UDP_HEAD)];
        let start = Instant::now();
        let clock = self.state.clock;
        for sequence in 0..packets {
            let before = Size::from_bytes(sequence * u64::from(size));
            sleep_until(start + Duration::from(rate.time_for(before))).await;
            if self.sent + u64::from(size) > self.grant.bytes {
                return;
            }
            token.write_datagram(&mut datagram, sequence, clock.now().as_nanos());
            if self.state.udp.send_to(&datagram, first.from).await.is_ok() {
                self.sent += u64::from(size);
            }
        }
    }

    async fn receive_burst(
        &mut self,
        mut datagrams: mpsc::Receiver<Datagram>,
        packets: u64,
        size: u16,
        replies: &mpsc::Sender<Reply>,
    ) {
        // Other bursts use the socket too, so that this is the maximum.
        let dropped = || {
            let of_socket = drops(self.state.udp.as_fd());
            of_socket + self.state.dropped.load(Ordering::Relaxed)
        };
        let before = dropped();
        let mut arrivals = Vec::new();
        let mut end = Instant::now() + DATA_TIMEOUT;
        while let Ok(Some(datagram)) = timeout_at(end, datagrams.recv()).await {
            if arrivals.is_empty() {
                end = Instant::now() + Duration::from(self.grant.duration) + LATE;
            }
            // As many as were planned, and as many duplicates.
            if arrivals.len() as u64 >= 2 * packets {
                break;
            }
            self.received += u64::from(size);
            arrivals.push(Arrival {
                sequence: datagram.sequence,
                sent: Time::from_nanos(datagram.nanos),
                received: datagram.received,
            });
            if datagram.sequence.checked_add(1) == Some(packets) {
                // Only those that were overtaken can still come.
                end = end.min(Instant::now() + LATE);
            }
        }
        let summary = burst::summary(packets, dropped().saturating_sub(before), &arrivals);
        let _ = replies.send(Reply::Burst(message(&summary))).await;
    }
}

fn message(summary: &BurstSummary) -> BurstMessage {
    let nanos = |span: Option<Span>| span.map(Span::as_nanos);
    BurstMessage {
        received: summary.received,
        duplicates: summary.duplicates,
        reordered: summary.reordered,
        dropped: summary.dropped,
        mean_gap: nanos(summary.mean_gap),
        median_gap: nanos(summary.median_gap),
        p90_gap: nanos(summary.p90_gap),
        median_variation: nanos(summary.median_variation),
        p90_variation: nanos(summary.p90_variation),
        max_variation: nanos(summary.max_variation),
    }
}
