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
/// Time for which a loan that ends passes on what it has.
const MAX_LEAVE_TIME: Span = Span::from_secs(5);
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
    /// Notified when the loan has to end.
    pub(super) leave: Notify,
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
    fn interest(&self, has_room: bool) -> Option<Interest> {
        match (has_room, self.is_blocked) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        }
    }

    async fn ready(&self, has_room: bool) -> io::Result<Ready> {
        match self.interest(has_room) {
            Some(interest) => self.io.stream.ready(interest).await,
            None => std::future::pending().await,
        }
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
    let (mut leaving_since, mut last_frame, mut gateway_sent) = (None, clock.now(), Time::ZERO);
    let mut is_first = true;
    loop {
        let (near_has_room, far_has_room) = (near.lane.has_room(), far.lane.has_room());
        let mut is_tick = std::mem::take(&mut is_first);
        let before = [near.io.byte_counts().0, far.io.byte_counts().0];
        let [mut near_ready, mut far_ready] = [Ready::EMPTY; 2];
        if !is_tick {
            tokio::select! {
                ready = near.ready(far_has_room) => near_ready = ready.map_err(|e| RelayError::Pipe(e.into()))?,
                ready = far.ready(near_has_room) => far_ready = ready.map_err(|e| RelayError::Gateway(e.into()))?,
                () = &mut leave, if leaving_since.is_none() => {
                    leaving_since = Some(clock.now());
                    near.io.queue_frame(&Frame::Leave);
                    far.io.queue_frame(&Frame::Leave);
                    is_tick = true;
                }
                () = tokio::time::sleep(QUEUE_INTERVAL.into()), if near.is_held => {}
                _ = tick.tick() => is_tick = true,
            }
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
        if let Some(since) = leaving_since {
            let is_quiet = backlog.is_zero() && now.since(last_frame) >= QUIET_TIME;
            if is_quiet || now.since(since) >= MAX_LEAVE_TIME {
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
mod tests;
