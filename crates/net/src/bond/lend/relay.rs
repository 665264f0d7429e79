//! The two connections of a loan, and the buffer between them.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use manyways_proto::relay::{Frame, Lane, LaneError, PipeQueue, QUEUE_INTERVAL};
use manyways_sys::clock::Clock;
use manyways_unit::{Size, Span, Time};
use tokio::io::{Interest, Ready};
use tokio::sync::Notify;

use crate::bond::carrier::{CarrierError, Received, TcpCarrier};

/// Bytes that may wait for one of the two connections.
pub(super) const BUFFER: Size = Size::from_mib(4);
/// Interval at which datagrams that wait too long are dropped, and counters are updated.
const TICK: Duration = Duration::from_millis(100);
/// Time for which a loan that ends passes on what it has, and without progress.
const MAX_LEAVE_TIME: Span = Span::from_secs(60);
const MAX_LEAVE_PAUSE: Span = Span::from_secs(5);
/// Time without frames after which a loan that ends has passed on everything.
const QUIET_TIME: Span = Span::from_millis(300);
/// Time since the last frame of the gateway for which it counts as sending.
const SENDING_TIME: Span = Span::from_millis(100);

/// State of a loan, for the screen and the limit.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of the lent network in both directions.
    pub(super) bytes: Cell<u64>,
    /// Bytes that wait at this device.
    pub(super) backlog: Cell<u64>,
    /// Notified when the loan has to end, in order.
    pub(super) leave: Notify,
    /// Whether the device is no longer paired: the loan ends at once.
    pub(super) is_revoked: Cell<bool>,
}

/// Why a loan has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    #[error("the device has ended the connection")]
    Pipe(#[source] CarrierError),
    #[error("the gateway has ended the connection: {0}")]
    Gateway(#[source] CarrierError),
    #[error("{0}")]
    Lane(#[from] LaneError),
    #[error("it is no longer paired")]
    Revoked,
}

/// A loan that ends in order. Both ends know it, and send nothing new.
#[derive(Debug)]
struct Leaving {
    since: Time,
    /// Bytes that were received from each end before.
    received: [u64; 2],
    /// Bytes that each end may still send: one that does not care must not send for ever.
    limit: u64,
    /// Bytes that were passed on, and when there were more for the last time.
    sent: u64,
    sent_at: Time,
}

impl Leaving {
    fn new(now: Time, received: [u64; 2], limit: Size) -> Self {
        Self { since: now, received, limit: limit.as_bytes(), sent: 0, sent_at: now }
    }

    /// Whether each of the two ends may send more.
    fn may_send(&self, received: [u64; 2]) -> [bool; 2] {
        [0, 1].map(|end| received[end] - self.received[end] < self.limit)
    }

    /// Whether the loan has ended: all is passed on, or the rest cannot be.
    fn is_over(&mut self, now: Time, is_quiet: bool, sent: u64) -> bool {
        if sent != self.sent {
            (self.sent, self.sent_at) = (sent, now);
        }
        is_quiet
            || now.since(self.sent_at) >= MAX_LEAVE_PAUSE
            || now.since(self.since) >= MAX_LEAVE_TIME
    }
}

/// One connection, and the frames that wait for it.
struct End {
    io: TcpCarrier,
    /// Frames for this end.
    lane: Lane<Bytes>,
    is_blocked: bool,
    is_new: bool,
    /// Of the pipe.
    queue: Option<PipeQueue>,
    /// Whether bulk frames wait until the queue of the pipe is short.
    is_held: bool,
}

impl End {
    fn new(io: TcpCarrier, buffer: Size, queue: Option<PipeQueue>) -> Self {
        let (lane, is_blocked, is_held) = (Lane::new(buffer), false, false);
        Self { io, lane, is_blocked, is_new: true, queue, is_held }
    }

    /// Returns the events to wait for. `has_room` is whether the lane of the other end has.
    fn interest(&self, has_room: bool) -> Interest {
        match (has_room, self.is_blocked) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            // The device at this end may vanish meanwhile.
            (false, false) => Interest::ERROR,
        }
    }

    async fn ready(&self, has_room: bool) -> io::Result<Ready> {
        let ready = self.io.stream.ready(self.interest(has_room)).await?;
        if ready.is_error()
            && let Some(error) = self.io.stream.take_error()?
        {
            return Err(error);
        }
        Ok(ready)
    }

    /// Reads frames for `other`.
    fn read(
        &mut self,
        now: Time,
        buffer: &mut Vec<u8>,
        other: &mut Lane<Bytes>,
    ) -> Result<Result<(), CarrierError>, LaneError> {
        let mut wrong = Ok(());
        let take = |received| {
            if let Received::Frame(frame) = received
                && let Err(error) = other.receive(now, frame)
            {
                wrong = Err(error);
            }
        };
        let done = match std::mem::take(&mut self.is_new) {
            // Frames may have come with the handshake.
            true => self.io.decrypt(take),
            false => self.io.read(buffer, take),
        };
        wrong.map(|()| done)
    }

    /// Sends waiting frames until the connection accepts no more.
    fn write(&mut self, now: Time, holds_control: bool) -> Result<(), CarrierError> {
        // Samples the unsent bytes in the kernel, and sets their limit.
        let info = self.io.transport_info();
        let mut queue = self.queue.as_mut().filter(|_| self.lane.has_bulk());
        if let (Some(queue), Some(info)) = (&mut queue, &info) {
            queue.observe(now, info);
        }
        let mut written = 0;
        self.is_held = false;
        loop {
            let mut is_empty = false;
            while self.io.writable_bytes() > self.io.queued_bytes() {
                let mut next = self.lane.poll_urgent(now, holds_control);
                if next.is_none() {
                    let queued = written + self.io.queued_bytes() as u64;
                    self.is_held = self.lane.has_bulk()
                        && queue.as_mut().is_some_and(|queue| !queue.has_room(now, queued));
                    if !self.is_held {
                        next = self.lane.poll_bulk();
                    }
                }
                let Some(frame) = next else {
                    is_empty = true;
                    break;
                };
                self.io.queue_frame(&frame);
            }
            written += self.io.queued_bytes() as u64;
            self.is_blocked = !self.io.flush()?;
            if is_empty || self.is_blocked {
                return Ok(());
            }
        }
    }
}

/// Passes frames on between the two connections of a loan until one of them ends, or this device
/// stops to lend.
pub(super) async fn run(
    pipe: TcpCarrier,
    far: TcpCarrier,
    (holds_acks, buffer_size): (bool, Size),
    progress: Rc<Progress>,
    clock: Clock,
) -> Result<(), RelayError> {
    let mut near = End::new(pipe, buffer_size, Some(PipeQueue::default()));
    let mut far = End::new(far, buffer_size, None);
    let mut buffer = Vec::new();
    let mut leave = pin!(progress.leave.notified());
    let mut tick = tokio::time::interval(TICK);
    let mut leaving: Option<Leaving> = None;
    let (mut last_frame, mut gateway_sent) = (clock.now(), Time::ZERO);
    let mut is_first = true;
    loop {
        let mut is_tick = std::mem::take(&mut is_first);
        let before = [near.io.byte_counts().0, far.io.byte_counts().0];
        let may_send = leaving.as_ref().map_or([true; 2], |leaving| leaving.may_send(before));
        let far_has_room = far.lane.has_room() && may_send[0];
        let near_has_room = near.lane.has_room() && may_send[1];
        let [mut near_ready, mut far_ready] = [Ready::EMPTY; 2];
        if !is_tick {
            tokio::select! {
                ready = near.ready(far_has_room) => near_ready = ready.map_err(|e| RelayError::Pipe(e.into()))?,
                ready = far.ready(near_has_room) => far_ready = ready.map_err(|e| RelayError::Gateway(e.into()))?,
                () = &mut leave, if leaving.is_none() => {
                    leaving = Some(Leaving::new(clock.now(), before, buffer_size));
                    near.io.queue_frame(&Frame::Leave);
                    far.io.queue_frame(&Frame::Leave);
                    is_tick = true;
                }
                () = tokio::time::sleep(QUEUE_INTERVAL.into()), if near.is_held => {}
                _ = tick.tick() => is_tick = true,
            }
        }
        if progress.is_revoked.get() {
            return Err(RelayError::Revoked);
        }
        let now = clock.now();
        if near_ready.is_readable() || near_ready.is_read_closed() || is_tick && far_has_room {
            near.read(now, &mut buffer, &mut far.lane)?.map_err(RelayError::Pipe)?;
        }
        if far_ready.is_readable() || far_ready.is_read_closed() || is_tick && near_has_room {
            far.read(now, &mut buffer, &mut near.lane)?.map_err(RelayError::Gateway)?;
        }
        let after = [near.io.byte_counts().0, far.io.byte_counts().0];
        if after != before {
            last_frame = now;
        }
        if after[1] != before[1] {
            gateway_sent = now;
        }
        let holds_control = holds_acks && !is_sending(now, gateway_sent, near.lane.is_empty());
        near.write(now, false).map_err(RelayError::Pipe)?;
        far.write(now, holds_control).map_err(RelayError::Gateway)?;
        let (received, sent) = far.io.byte_counts();
        progress.bytes.set(received + sent);
        let backlog = near.lane.status().backlog + far.lane.status().backlog;
        progress.backlog.set(backlog.as_bytes());
        if let Some(leaving) = &mut leaving {
            let is_quiet = backlog.is_zero() && now.since(last_frame) >= QUIET_TIME;
            if leaving.is_over(now, is_quiet, near.io.byte_counts().1 + sent) {
                return Ok(());
            }
        }
    }
}

/// Whether ACKs for the gateway do not wait: it sent a frame a moment ago, or nothing of it waits for
/// the pipe any longer, so that these are the last ones.
fn is_sending(now: Time, gateway_sent: Time, is_near_empty: bool) -> bool {
    now.since(gateway_sent) < SENDING_TIME || is_near_empty
}

#[cfg(test)]
mod tests {
    use manyways_proto::relay::Class;

    use super::*;
    use crate::bond::carrier::CarrierIo;
    use crate::bond::carrier::tests::carriers;

    /// Bytes of a message.
    const LENGTH: u64 = 10_000;

    fn at(secs: u64) -> Time {
        Time::from_millis(secs * 1_000)
    }

    /// Passes frames from the gateway to a pipe whose other end reads nothing, and returns the greatest backlog.
    async fn backlog_of(buffer: Size, sent: u64) -> u64 {
        let [pipe, laptop] = carriers().await;
        let [far, gateway] = carriers().await;
        let (CarrierIo::Tcp(mut pipe), CarrierIo::Tcp(mut far)) = (pipe, far) else {
            panic!("TCP")
        };
        let CarrierIo::Tcp(mut gateway) = gateway else { panic!("TCP") };
        pipe.relay();
        far.relay();
        let progress = Rc::new(Progress::default());
        let relay = run(*pipe, *far, (false, buffer), Rc::clone(&progress), Clock::start());
        let feed = async {
            let (mut number, mut greatest) = (0, 0);
            while number * LENGTH < sent {
                if gateway.flush().unwrap() {
                    let (class, sealed) = (Class::Bulk, Bytes::from(vec![0; LENGTH as usize]));
                    gateway.queue_frame(&Frame::Sealed { class, number, sealed });
                    number += 1;
                }
                // Time is paused: it goes on when the relay has nothing to do.
                tokio::time::sleep(Duration::from_millis(1)).await;
                greatest = greatest.max(progress.backlog.get());
                if is_full(&progress, buffer) && !gateway.flush().unwrap() {
                    break;
                }
            }
            greatest
        };
        let greatest = tokio::select! {
            ended = relay => panic!("{ended:?}"),
            greatest = feed => greatest,
        };
        drop(laptop);
        greatest
    }

    fn is_full(progress: &Progress, buffer: Size) -> bool {
        progress.backlog.get() >= buffer.as_bytes()
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_relay_reads_no_more_than_its_buffer_holds() {
        let greatest = backlog_of(Size::from_bytes(100_000), 20_000_000).await;
        // One read may exceed it.
        assert!((100_000..500_000).contains(&greatest), "{greatest}");
    }

    #[test]
    fn a_loan_that_ends_passes_on_what_it_has_while_there_is_progress() {
        let mut leaving = Leaving::new(at(100), [7, 8], Size::from_mib(4));
        // 4 MiB over 0.6 Mbit/s.
        for second in 0..56 {
            assert!(!leaving.is_over(at(100 + second), false, second * 75_000), "{second} s");
        }
        assert!(leaving.is_over(at(157), true, 4_194_304));
        let mut leaving = Leaving::new(at(100), [0, 0], Size::from_mib(4));
        assert!(!leaving.is_over(at(103), false, 1_000) && !leaving.is_over(at(107), false, 1_000));
        assert!(leaving.is_over(at(108), false, 1_000), "nothing was passed on for 5 s");
    }

    #[test]
    fn an_end_that_does_not_stop_sends_no_more_than_a_buffer_and_for_a_minute() {
        let mut leaving = Leaving::new(at(0), [50, 5_000], Size::from_bytes(1_000));
        assert_eq!(leaving.may_send([1_049, 5_000]), [true, true]);
        assert_eq!(leaving.may_send([1_050, 5_999]), [false, true]);
        assert_eq!(leaving.may_send([1_049, 6_000]), [true, false]);
        let ended = (0..100).find(|second| leaving.is_over(at(*second), false, *second));
        assert_eq!(ended, Some(60));
    }

    #[test]
    fn acks_wait_while_messages_of_a_silent_gateway_wait_for_the_pipe() {
        let (before, now) = (Time::from_millis(900), Time::from_millis(1_000));
        assert!(is_sending(now, now, false));
        assert!(is_sending(now, before + Span::from_millis(1), false));
        assert!(!is_sending(now, before, false), "the radio may sleep");
        assert!(is_sending(now, before, true), "the ACKs of the last messages");
    }
}
