//! A download over two connections at once, as with Multipath TCP (RFC 8684): the second one joins
//! when the handshake of the first one is over, and each segment is assigned to one of them.
//!
//! Each connection has its own window and repairs its losses alone; windows are not coupled, because
//! the networks share no bottleneck. Segments on a path that stands still for longer than its
//! retransmission timeout are sent on the other one too (reinjection), once; until the path has
//! acknowledged something, it gets no others. The receive window does not limit.

use std::collections::VecDeque;

use manyways_proto::sched::{Assignment, PathId, PathView, SchedulerKind, Schedulers, SendRequest};
use manyways_trace::scenario::LinkSpec;
use manyways_unit::{Rate, Size, Span, Time};

use super::{Connection, End, Growth, PATIENCE, SEGMENT, Window};

/// The path with room and the least round trip, as in the first scheduler of Linux's Multipath TCP.
const SCHEDULER: SchedulerKind = SchedulerKind::MinRtt;

/// The bytes of a download in segments.
struct Data {
    bytes: usize,
    /// Segments that were assigned to a path.
    assigned: usize,
    /// For each segment, whether it has arrived, the sender knows that, and it was reinjected.
    has_arrived: Vec<bool>,
    is_acknowledged: Vec<bool>,
    is_reinjected: Vec<bool>,
    missing: usize,
}

impl Data {
    fn new(bytes: usize) -> Self {
        let count = bytes.div_ceil(SEGMENT);
        Self {
            bytes,
            assigned: 0,
            has_arrived: vec![false; count],
            is_acknowledged: vec![false; count],
            is_reinjected: vec![false; count],
            missing: count,
        }
    }

    fn size(&self, segment: usize) -> usize {
        SEGMENT.min(self.bytes - segment * SEGMENT)
    }

    fn on_arrival(&mut self, segment: usize) {
        self.missing -= usize::from(!std::mem::replace(&mut self.has_arrived[segment], true));
    }
}

/// The packet that a path waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first byte at the server.
    Syn,
    /// Its answer at the device.
    SynAck,
    /// The request, or the end of the join, at the server.
    Request,
    Open,
}

/// A connection over one of the links.
struct Path {
    connection: Connection,
    /// The start in the time of the connection and in that of the download.
    start: (Time, Time),
    phase: Phase,
    window: Window,
    /// Ends in the stream of the connection, with the segment, of those that the sender waits for
    /// and of those that the receiver waits for.
    waiting: VecDeque<(usize, usize)>,
    under_way: VecDeque<(usize, usize)>,
    delivered: usize,
    /// The last acknowledgement, or the first sending after it.
    progress: Time,
    has_stalled: bool,
    /// Segments of the other path that this one sends too.
    reinjections: VecDeque<usize>,
}

impl Path {
    /// Begins the handshake at `now`, when the traces are at `position`.
    fn new(spec: &LinkSpec, position: Span, now: Time, bytes: usize) -> Self {
        let mut connection = Connection::new(spec, bytes);
        connection.widen(End::Server, End::Device);
        connection.limit(spec, position);
        connection.send(End::Device, 1);
        Self {
            start: (connection.now, now),
            connection,
            phase: Phase::Syn,
            window: Window::new(Growth::Cubic),
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            delivered: 0,
            progress: Time::ZERO,
            has_stalled: false,
            reinjections: VecDeque::new(),
        }
    }

    /// Processes the events until `now`, in the time of the download.
    fn advance(&mut self, now: Time, data: &mut Data) {
        let at = self.start.0 + now.since(self.start.1);
        self.connection.now = at;
        self.connection.link.pump(at);
        match self.phase {
            Phase::Syn if self.connection.take(End::Server) > 0 => {
                self.connection.send(End::Server, 1);
                self.phase = Phase::SynAck;
            }
            Phase::SynAck if self.connection.take(End::Device) > 0 => {
                self.window.on_round_trip(at.since(self.start.0));
                self.connection.send(End::Device, 1);
                self.phase = Phase::Request;
            }
            Phase::Request if self.connection.take(End::Server) > 0 => self.phase = Phase::Open,
            Phase::Open => self.exchange(at, data),
            _ => {}
        }
    }

    /// Notes acknowledgements and arrivals.
    fn exchange(&mut self, at: Time, data: &mut Data) {
        let waiting = self.connection.socket(End::Server).send_queue();
        self.window.on_waiting(at, waiting);
        self.window.on_dropped(at, self.connection.dropped(End::Server));
        let acknowledged = self.window.acknowledged();
        while let Some((_, segment)) = self.waiting.pop_front_if(|one| one.0 <= acknowledged) {
            data.is_acknowledged[segment] = true;
            self.progress = at;
            self.has_stalled = false;
        }
        self.delivered += self.connection.take(End::Device);
        let delivered = self.delivered;
        while let Some((_, segment)) = self.under_way.pop_front_if(|one| one.0 <= delivered) {
            data.on_arrival(segment);
        }
    }

    fn is_writable(&self) -> bool {
        self.phase == Phase::Open && !self.has_stalled && self.window.room() >= SEGMENT
    }

    fn send(&mut self, segment: usize, data: &Data) {
        let now = self.connection.now;
        let count = self.connection.send(End::Server, data.size(segment));
        self.window.on_sent(now, count);
        if self.waiting.is_empty() {
            self.progress = now;
        }
        self.waiting.push_back((self.window.sent(), segment));
        self.under_way.push_back((self.window.sent(), segment));
    }

    /// When the path stands still if nothing is acknowledged until then.
    fn stall_at(&self) -> Option<Time> {
        let is_waiting = !self.waiting.is_empty() && !self.has_stalled;
        is_waiting.then(|| self.progress + self.window.timeout())
    }

    /// Segments to reinject, if the path now stands still.
    fn stalled_segments(&mut self, data: &mut Data) -> Vec<usize> {
        if self.stall_at().is_none_or(|at| self.connection.now < at) {
            return Vec::new();
        }
        self.has_stalled = true;
        let segments = self.waiting.iter().map(|one| one.1);
        segments.filter(|one| !std::mem::replace(&mut data.is_reinjected[*one], true)).collect()
    }

    fn view(&self, path: usize) -> PathView {
        let (rtt, rtt_var) = self.window.round_trip().unwrap_or_default();
        let congestion_window = Size::from_bytes(self.window.size() as u64);
        let in_flight = self.window.sent() - self.window.acknowledged();
        PathView {
            path: PathId(path as u8),
            is_writable: self.is_writable(),
            rtt,
            rtt_var,
            congestion_window,
            in_flight: Size::from_bytes(in_flight as u64),
            unsent: Size::ZERO,
            rate: Rate::of(congestion_window, rtt),
            delivery_rate: Rate::of(congestion_window, rtt),
            window_delay: Span::ZERO,
            drain_time: Span::ZERO,
            second_hop: None,
        }
    }

    /// Sends the packets of the last inputs. Returns when to advance again, in the time of the
    /// download.
    fn flush(&mut self) -> Option<Time> {
        let now = self.connection.now;
        self.connection.link.pump(now);
        let next = [self.connection.link.next_wakeup(now), self.stall_at()];
        let next = next.into_iter().flatten().min()?;
        Some(self.start.1 + next.since(self.start.0))
    }
}

/// Runs a download that begins when the traces of the links are at `position`: handshake, request and
/// bytes. `None` if it is not complete after [`PATIENCE`].
pub fn download_over_both(links: [&LinkSpec; 2], position: Span, bytes: usize) -> Option<Span> {
    let [first, second] = links;
    let mut data = Data::new(bytes);
    let mut schedulers = Schedulers::default();
    let mut now = Time::ZERO;
    let mut paths = vec![Path::new(first, position, now, bytes)];
    while now < Time::ZERO + PATIENCE {
        paths.iter_mut().for_each(|path| path.advance(now, &mut data));
        if data.missing == 0 {
            return Some(now.since(Time::ZERO));
        }
        if paths.len() == 1 && paths[0].phase == Phase::Request {
            paths.push(Path::new(second, position + now.since(Time::ZERO), now, bytes));
        }
        if let [first, second] = &mut paths[..] {
            second.reinjections.extend(first.stalled_segments(&mut data));
            first.reinjections.extend(second.stalled_segments(&mut data));
        }
        send(&mut paths, &mut data, &mut schedulers);
        let next = paths.iter_mut().filter_map(Path::flush).min()?;
        now = next.max(now + Span::from_nanos(1));
    }
    None
}

/// Sends all segments for which there is room, first those that are sent again.
fn send(paths: &mut [Path], data: &mut Data, schedulers: &mut Schedulers) {
    for path in &mut *paths {
        while path.is_writable()
            && let Some(segment) = path.reinjections.pop_front()
        {
            if !data.is_acknowledged[segment] {
                path.send(segment, data);
            }
        }
    }
    while data.assigned < data.has_arrived.len() && paths.iter().any(Path::is_writable) {
        let backlog = Size::from_bytes((data.bytes - data.assigned * SEGMENT) as u64);
        let request = SendRequest { backlog, total: backlog, primary: Some(PathId(0)) };
        let open = paths.iter().enumerate().filter(|(_, path)| path.phase == Phase::Open);
        let views: Vec<PathView> = open.map(|(index, path)| path.view(index)).collect();
        match schedulers.choose(SCHEDULER, &request, &views) {
            Assignment::Send { index, .. } => {
                paths[usize::from(views[index].path.0)].send(data.assigned, data);
                data.assigned += 1;
            }
            Assignment::SendOnAll | Assignment::Wait => return,
        }
    }
}

#[cfg(test)]
mod tests;
