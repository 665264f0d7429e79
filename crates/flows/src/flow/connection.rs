//! One TCP connection, from its first captured segment to its last.
//!
//! A capture may begin in the middle of a connection, or contain only one direction. Unknown values
//! are then `None`, not zero.

use manyways_unit::{Span, Time};

use super::first_window::{Estimate, FirstWindow};
use super::limit::{Judge, LimitedBy, Moment};
use super::release::Releases;
use super::stream::Stream;
use manyways_wire::stream::End;
use manyways_wire::tcp::{Flags, Segment};

/// Default of a SYN without the option (RFC 9293, 3.7.1).
const LEAST_MSS: u16 = 536;
/// Assumed if no SYN was captured.
const USUAL_MSS: u16 = 1_460;

/// Maximum time in which an endpoint sends available data once it is permitted to.
const WAKING: Span = Span::from_millis(1);
/// Assumed for a window with unknown scale: the largest possible one (RFC 7323, 2.3).
const UNKNOWN_WINDOW: u64 = 1 << 30;

/// State of a TCP connection.
#[derive(Clone, Debug)]
pub struct Connection {
    started: Time,
    last: Time,
    handshake: Handshake,
    /// `None` until the first FIN or RST.
    ending: Option<Box<Ending>>,
    ends: [Half; 2],
    first_window: FirstWindow,
}

/// FIN and RST of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    /// Time of the first FIN.
    fin: Option<Time>,
    /// Time of the first RST.
    reset: Option<Time>,
    /// RSTs of each endpoint. Streams do not count them, because their sequence numbers may be
    /// outside the stream.
    resets: [Resets; 2],
}

/// RSTs of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
struct Resets {
    packets: u32,
    /// Payload bytes: a diagnostic text (RFC 9293, 3.10.7.3).
    bytes: u64,
}

/// Times and counts of the handshake's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// First SYN of the client.
    pub syn: Option<Time>,
    /// First SYN/ACK of the server.
    pub answer: Option<Time>,
    /// First acknowledgment of the SYN/ACK.
    pub done: Option<Time>,
    /// Number of SYNs.
    pub syns: u32,
    /// Number of SYN/ACKs.
    pub answers: u32,
}

/// Options of an endpoint's SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Maximum segment size, in bytes.
    pub mss: u16,
    /// Window scale in bits. `None` unless both endpoints sent the option.
    pub scale: Option<u8>,
    /// Whether the endpoint permits SACK.
    pub takes_sack: bool,
    /// Whether the endpoint sends timestamps.
    pub has_stamps: bool,
}

/// Receive windows of an endpoint, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The first window after its SYN.
    pub first: u32,
    /// The smallest window after its SYN.
    pub least: u32,
    /// The largest window after its SYN.
    pub most: u32,
    /// Number of times the window closed.
    pub closed: u32,
    /// Whether the latest window was zero.
    is_closed: bool,
}

/// The data of one endpoint, and the reactions to it.
#[derive(Clone, Debug, Default)]
struct Half {
    hello: Option<Hello>,
    stream: Option<Stream>,
    /// Only for endpoints that send more than one segment in a row: a single segment does not wait
    /// for ACKs.
    releases: Option<Box<Releases>>,
    windows: Option<Windows>,
    judge: Judge,
    /// Time at which all sent data was acknowledged and the window had space.
    all_acked: Option<Time>,
    /// Whether the receive window of the peer has space for a segment.
    has_room: bool,
    /// Whether the window had no space at some time since the last new segment.
    was_blocked: bool,
    /// Whether its FIN passed.
    is_done: bool,
    /// Whether its RST passed, before any RST of the peer.
    gave_up: bool,
}

impl Handshake {
    /// Time from the capture point to the server and back. `None` if a SYN or SYN/ACK passed twice,
    /// or is missing.
    pub fn to_server(&self) -> Option<Span> {
        let both = self.syn.zip(self.answer).filter(|_| self.is_clear());
        both.and_then(|(syn, answer)| after(syn, answer))
    }

    /// Time from the capture point to the client and back. `None` if a SYN or SYN/ACK passed twice,
    /// or is missing.
    pub fn to_client(&self) -> Option<Span> {
        let both = self.answer.zip(self.done).filter(|_| self.is_clear());
        both.and_then(|(answer, done)| after(answer, done))
    }

    /// False if a response may belong to any of several copies.
    fn is_clear(&self) -> bool {
        self.syns == 1 && self.answers == 1
    }
}

/// Returns the time from a cause to its effect. `None` if not positive, because clocks of captures
/// may step back.
fn after(earlier: Time, later: Time) -> Option<Span> {
    (later > earlier).then(|| later.since(earlier))
}

impl Connection {
    /// Creates a connection whose first segment passes at `now`.
    pub fn new(now: Time) -> Self {
        Self {
            started: now,
            last: now,
            handshake: Handshake::default(),
            ending: None,
            ends: [Half::default(), Half::default()],
            first_window: FirstWindow::default(),
        }
    }

    /// Guesses the role of the sender of a connection's first captured segment: the sender of a SYN
    /// is the client; without SYN, the endpoint with the lower port is the server.
    pub fn sender(segment: &Segment<'_>) -> End {
        let (is_syn, is_ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        match (is_syn, is_ack) {
            (true, false) => End::Client,
            (true, true) => End::Server,
            _ if segment.from < segment.to => End::Server,
            _ => End::Client,
        }
    }

    /// Time of the first segment.
    pub fn started(&self) -> Time {
        self.started
    }

    /// Time of the latest segment.
    pub fn last(&self) -> Time {
        self.last
    }

    pub fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    /// Time of the first FIN.
    pub fn first_fin(&self) -> Option<Time> {
        self.ending.as_ref().and_then(|ending| ending.fin)
    }

    /// Time and sender of the first RST.
    pub fn reset(&self) -> Option<(Time, End)> {
        let from =
            [End::Client, End::Server].into_iter().find(|end| self.ends[*end as usize].gave_up);
        self.ending.as_ref().and_then(|ending| ending.reset).zip(from)
    }

    /// Number of packets of this endpoint, including RSTs.
    pub fn packets(&self, end: End) -> u64 {
        let resets = self.ending.as_ref().map_or(0, |ending| ending.resets[end as usize].packets);
        self.stream(end).map_or(0, |stream| stream.counts().segments) + u64::from(resets)
    }

    /// Payload bytes of this endpoint, including retransmissions and the payload of RSTs.
    pub fn bytes(&self, end: End) -> u64 {
        let resets = self.ending.as_ref().map_or(0, |ending| ending.resets[end as usize].bytes);
        self.stream(end).map_or(0, |stream| stream.counts().bytes) + resets
    }

    fn has_reset(&self) -> bool {
        self.ends.iter().any(|end| end.gave_up)
    }

    /// Whether both endpoints sent FIN, or one sent RST.
    pub fn is_closed(&self) -> bool {
        self.has_reset() || self.ends.iter().all(|end| end.is_done)
    }

    /// Whether the handshake is complete and there was no RST: a valid connection of the campus
    /// Wi-Fi paper (3.1).
    pub fn is_valid(&self) -> bool {
        self.handshake.done.is_some() && !self.has_reset()
    }

    /// Returns the options of this endpoint's SYN. `None` if the SYN is not in the capture.
    pub fn hello(&self, end: End) -> Option<&Hello> {
        self.ends[end as usize].hello.as_ref()
    }

    /// Returns the data of this endpoint. `None` if the capture has no segment of it.
    pub fn stream(&self, end: End) -> Option<&Stream> {
        self.ends[end as usize].stream.as_ref()
    }

    /// Returns the reaction times of this endpoint to ACKs. `None` if the endpoint never waited for
    /// an ACK.
    pub fn releases(&self, end: End) -> Option<&Releases> {
        self.ends[end as usize].releases.as_deref()
    }

    /// Minimum known time from the capture point to this endpoint and back: from the handshake,
    /// which may include a promotion of the radio, from ACKs of this endpoint, and from timestamps.
    /// Samples derived from the sender's window are excluded, because they depend on this value.
    pub fn shortest_way(&self, to: End) -> Option<Span> {
        let handshake = match to {
            End::Client => self.handshake.to_client(),
            End::Server => self.handshake.to_server(),
        };
        let acked = self.stream(to.other()).and_then(|stream| stream.near().least());
        let echoed = self.releases(to).filter(|releases| releases.by_stamp() > 0);
        let echoed = echoed.and_then(|releases| releases.far().least());
        handshake.into_iter().chain(acked).chain(echoed).min()
    }

    /// Estimates the server's initial window. `None` if the server did not respond to data.
    pub fn first_window(&self) -> Option<Estimate> {
        let server = &self.ends[End::Server as usize];
        let trip = server.releases.as_ref().and_then(|releases| releases.whole().least());
        let halves = self.handshake.to_server().zip(self.handshake.to_client());
        let trip = trip.or(halves.map(|(server, client)| server + client));
        self.first_window.estimate(self.payload(), trip)
    }

    /// Time of each sender limit of this endpoint.
    pub fn limited_by(&self, end: End) -> &LimitedBy {
        self.ends[end as usize].judge.limited_by()
    }

    /// Returns the receive windows of this endpoint. `None` if its SYN, which has the window scale,
    /// is not in the capture.
    pub fn windows(&self, end: End) -> Option<&Windows> {
        let half = &self.ends[end as usize];
        half.windows.as_ref().filter(|_| half.hello.is_some())
    }

    /// Handles a segment. Returns the offset of its first byte in its sender's stream; `None` for
    /// RST.
    pub fn handle(&mut self, now: Time, from: End, segment: &Segment<'_>) -> Option<u64> {
        // Clocks of captures may step back.
        self.last = self.last.max(now);
        self.begins(now, from, segment);
        if segment.flags.has(Flags::RST) {
            let ending = self.ending.get_or_insert_default();
            let resets = &mut ending.resets[from as usize];
            resets.packets = resets.packets.saturating_add(1);
            resets.bytes += u64::from(segment.length);
            if ending.reset.is_none() {
                ending.reset = Some(now);
                self.ends[from as usize].gave_up = true;
            }
            return None;
        }
        if segment.flags.has(Flags::FIN) {
            self.ending.get_or_insert_default().fin.get_or_insert(now);
            self.ends[from as usize].is_done = true;
        }
        let (window, mss) = (self.window(from, segment), self.mss());
        if segment.flags.has(Flags::ACK) {
            self.is_acked(now, from.other(), segment, window, mss);
        }
        let begin = self.sends(now, from, segment, mss);
        let is_syn = u64::from(segment.flags.has(Flags::SYN));
        (segment.length > 0).then_some(begin + is_syn)
    }

    /// Handles the handshake part of a segment.
    fn begins(&mut self, now: Time, from: End, segment: &Segment<'_>) {
        let handshake = &mut self.handshake;
        let (is_syn, is_ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        match (from, is_syn, is_ack) {
            (End::Client, true, false) => {
                handshake.syn = handshake.syn.or(Some(now));
                handshake.syns += 1;
            }
            (End::Server, true, true) => {
                handshake.answer = handshake.answer.or(Some(now));
                handshake.answers += 1;
            }
            (End::Client, false, true) if handshake.answer.is_some() => {
                handshake.done = handshake.done.or(Some(now));
                self.ends.iter_mut().for_each(|half| half.judge.begins(now));
            }
            _ => {}
        }
        if !is_syn {
            return;
        }
        let options = &segment.options;
        let hello = Hello {
            mss: options.mss().unwrap_or(LEAST_MSS).max(1),
            scale: options.window_scale(),
            takes_sack: options.is_sack_permitted(),
            has_stamps: options.stamps().is_some(),
        };
        self.ends[from as usize].hello.get_or_insert(hello);
        // RFC 7323, 2.2: scaling applies only if both endpoints sent the option.
        let scales = self.ends.each_ref().map(|end| end.hello.map(|hello| hello.scale));
        if let [Some(one), Some(other)] = scales
            && one.is_some() != other.is_some()
        {
            self.ends.iter_mut().filter_map(|end| end.hello.as_mut()).for_each(|h| h.scale = None);
        }
        let mss = self.mss();
        for stream in self.ends.iter_mut().filter_map(|end| end.stream.as_mut()) {
            stream.set_mss(mss);
        }
    }

    /// Returns the smaller MSS of the two endpoints.
    fn mss(&self) -> u32 {
        // Called for each segment.
        let [one, other] = self.ends.each_ref().map(|end| end.hello.as_ref().map(|h| h.mss));
        let said = match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        said.unwrap_or(USUAL_MSS).into()
    }

    /// Returns the MSS minus the length of the timestamps option, if it is in use.
    pub fn payload(&self) -> u32 {
        let has_stamps = self.ends.iter().all(|end| end.hello.is_some_and(|h| h.has_stamps));
        self.mss() - if has_stamps { 12.min(self.mss() - 1) } else { 0 }
    }

    /// Returns the window of a segment, in bytes.
    fn window(&mut self, from: End, segment: &Segment<'_>) -> u64 {
        let is_syn = segment.flags.has(Flags::SYN);
        let half = &mut self.ends[from as usize];
        // The window of a SYN is not scaled.
        let scale = half.hello.and_then(|hello| hello.scale).filter(|_| !is_syn);
        let window = u32::from(segment.window) << scale.unwrap_or(0);
        if !is_syn && segment.flags.has(Flags::ACK) {
            let fresh =
                Windows { first: window, least: window, most: window, closed: 0, is_closed: false };
            let windows = half.windows.get_or_insert(fresh);
            windows.least = windows.least.min(window);
            windows.most = windows.most.max(window);
            windows.closed += u32::from(window == 0 && !windows.is_closed);
            windows.is_closed = window == 0;
        }
        window.into()
    }

    /// Handles an ACK for bytes of endpoint `whose`.
    fn is_acked(&mut self, now: Time, whose: End, ack: &Segment<'_>, window: u64, mss: u32) {
        let is_scale_known = self.ends[whose.other() as usize].hello.is_some();
        let half = &mut self.ends[whose as usize];
        let Some(stream) = &mut half.stream else { return };
        let mut acked = stream.is_acked(now, ack, window);
        if !is_scale_known {
            acked.granted = acked.to + UNKNOWN_WINDOW;
        }
        // A sender that waits for the window has data, and can send only after it opens.
        let has_room = window > 0 && !(is_scale_known && window < mss.into());
        let had_room = std::mem::replace(&mut half.has_room, has_room);
        let is_blocked = !has_room || !had_room;
        half.was_blocked |= !has_room;
        if (acked.bytes > 0 || is_blocked) && stream.in_flight() == 0 {
            half.all_acked = Some(now);
        }
        if whose == End::Server {
            self.first_window.acked(now, &acked, ack.options.stamps());
        }
        if let Some(releases) = &mut half.releases {
            releases.acked(now, &acked, ack.options.stamps(), mss);
        }
    }

    /// Handles a segment of endpoint `from`. Returns its offset in the stream.
    fn sends(&mut self, now: Time, from: End, segment: &Segment<'_>, mss: u32) -> u64 {
        let is_asked = self.stream(from.other()).is_some_and(Stream::has_data);
        let far = self.shortest_way(from);
        let other = &self.ends[from.other() as usize];
        // A capture of one direction does not show the events that the sender waited for.
        let (is_scale_known, is_answered) = (other.hello.is_some(), other.stream.is_some());
        let half = &mut self.ends[from as usize];
        let stream = half.stream.get_or_insert_with(|| {
            let mut stream = Stream::new(segment);
            stream.set_mss(mss);
            stream
        });
        let before = stream.repairs();
        let (was_idle, is_recovering) = (stream.in_flight() == 0, stream.is_recovering());
        let mut seen = stream.sends(now, segment, far);
        let repairs = stream.repairs();
        // Near the receiver, all data may be acknowledged before the next segment passes.
        let has_more = !was_idle || !stream.is_dry();
        if half.releases.is_none() && has_more && segment.length > 0 {
            half.releases = Some(Box::default());
        }
        let mut releases = half.releases.as_deref_mut();
        let least = releases.as_ref().and_then(|releases| releases.whole().least());
        if repairs.0 > before.0 {
            let by_timer = repairs.1 > before.1;
            // The window shrinks once per recovery (RFC 6582).
            if let Some(releases) = &mut releases
                && (by_timer || !is_recovering)
            {
                releases.lost(by_timer, stream.in_flight(), mss);
            }
            half.judge.lost(releases.as_ref().and_then(|releases| releases.latest()), least);
        }
        // A sender with more data would have sent it when all was acknowledged. At a capture point
        // near the sender, the delay is that of the sender's system.
        let way = far.unwrap_or_default() + far.unwrap_or_default();
        let some = Span::from_nanos(least.unwrap_or_default().as_nanos() / 4);
        let way = way.max(some).max(WAKING);
        seen.was_dry |= was_idle && half.all_acked.is_some_and(|at| now.since(at) > way);
        if let Some(releases) = &mut releases {
            releases.sent(now, &seen, segment.options.stamps(), far, mss);
        }
        if !seen.is_new || segment.length == 0 {
            return seen.begin;
        }
        // Without the SYN of the peer, the scale of its windows is unknown.
        let granted = releases.as_ref().and_then(|releases| releases.granted(seen.end));
        let granted = granted.filter(|_| is_scale_known);
        let moment = Moment {
            was_dry: seen.was_dry,
            was_blocked: std::mem::take(&mut half.was_blocked),
            is_recovering,
            in_flight: u32::try_from(stream.in_flight()).unwrap_or(u32::MAX),
            left: granted.map(|granted| granted.saturating_sub(seen.end)),
            trip: releases.and_then(|releases| releases.latest()),
            least,
            far,
            mss,
        };
        if is_answered {
            half.judge.sent(now, moment);
        }
        match from {
            End::Client => self.first_window.asked(segment.payload),
            End::Server => {
                let stamps = segment.options.stamps();
                self.first_window.answered(now, &seen, far, stamps, is_asked);
            }
        }
        self.ends[from.other() as usize].judge.asked(now);
        seen.begin
    }
}

#[cfg(test)]
mod tests {
    use super::super::limit::Limit;
    use super::*;

    /// A TCP header with options.
    fn bytes(from: u16, numbers: [u32; 2], flags: u8, window: u16, options: &[u8]) -> Vec<u8> {
        let to = if from == 80 { 40_000_u16 } else { 80 };
        let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
        bytes.extend(numbers.map(u32::to_be_bytes).concat());
        bytes.extend([((20 + options.len()) << 2) as u8, flags]);
        bytes.extend([window.to_be_bytes(), [0; 2], [0; 2]].concat());
        bytes.extend(options);
        bytes
    }

    /// A connection driven with times in milliseconds.
    struct Passing(Connection);

    impl Passing {
        fn passes(
            &mut self,
            at: u64,
            from: End,
            numbers: [u32; 2],
            flags: u8,
            length: usize,
            options: &[u8],
        ) {
            self.passes_at(Time::from_millis(at), from, numbers, flags, length, options);
        }

        fn passes_at(
            &mut self,
            at: Time,
            from: End,
            numbers: [u32; 2],
            flags: u8,
            length: usize,
            options: &[u8],
        ) {
            let port = if from == End::Client { 40_000 } else { 80 };
            let header = bytes(port, numbers, flags, 500, options);
            let segment = Segment::read(&header, header.len() + length).unwrap();
            self.0.handle(at, from, &segment);
        }
    }

    const SYN_OPTIONS: [u8; 8] = [2, 4, 5, 180, 1, 3, 3, 7];

    fn greeted() -> Passing {
        let mut passing = Passing(Connection::new(Time::from_millis(10)));
        passing.passes(10, End::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        passing.passes(50, End::Server, [499, 100], 0x12, 0, &[2, 4, 5, 120, 1, 3, 3, 2]);
        passing.passes(57, End::Client, [100, 500], 0x10, 0, &[]);
        passing
    }

    #[test]
    fn the_halves_of_a_handshake() {
        let Passing(connection) = greeted();
        let handshake = connection.handshake();
        assert_eq!(handshake.to_server(), Some(Span::from_millis(40)));
        assert_eq!(handshake.to_client(), Some(Span::from_millis(7)));
        assert!(connection.is_valid());
        assert_eq!(connection.started(), Time::from_millis(10));
        assert_eq!(connection.last(), Time::from_millis(57));
        // A retransmitted SYN yields no round-trip time.
        let mut passing = Passing(Connection::new(Time::ZERO));
        passing.passes(0, End::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        passing.passes(1_000, End::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        passing.passes(1_040, End::Server, [499, 100], 0x12, 0, &SYN_OPTIONS);
        passing.passes(1_047, End::Client, [100, 500], 0x10, 0, &[]);
        let handshake = *passing.0.handshake();
        assert_eq!((handshake.to_server(), handshake.to_client(), handshake.syns), (None, None, 2));
        assert!(passing.0.is_valid());
        // Nor does a handshake with times out of order.
        let mut passing = Passing(Connection::new(Time::ZERO));
        passing.passes(50, End::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        passing.passes(50, End::Server, [499, 100], 0x12, 0, &SYN_OPTIONS);
        passing.passes(49, End::Client, [100, 500], 0x10, 0, &[]);
        let handshake = *passing.0.handshake();
        assert_eq!((handshake.to_server(), handshake.to_client()), (None, None));
    }

    /// A phone downloads without timestamps: its SYN waits 300 ms for the promotion, the server is
    /// 40 ms away, and bursts of merged segments arrive, each acknowledged within 100 us.
    #[test]
    fn a_phone_that_wakes_its_radio_is_as_far_away_as_its_requests_show() {
        let us = |micros: u64| Time::from_nanos(micros * 1_000);
        let mut passing = Passing(Connection::new(Time::ZERO));
        passing.passes(0, End::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        passing.passes(340, End::Server, [499, 100], 0x12, 0, &SYN_OPTIONS);
        passing.passes_at(us(340_300), End::Client, [100, 500], 0x10, 0, &[]);
        passing.passes_at(us(340_500), End::Client, [100, 500], 0x18, 300, &[]);
        passing.passes_at(us(380_700), End::Server, [500, 400], 0x10, 0, &[]);
        assert_eq!(passing.0.shortest_way(End::Server), Some(Span::from_micros(40_200)));
        let mut seq = 500;
        let mut bursts = vec![(400_000, 4), (400_040, 2), (405_000, 4)];
        for _ in 0..3 {
            for (at, segments) in &bursts {
                let length = segments * 1_460;
                passing.passes_at(us(*at), End::Server, [seq, 400], 0x10, length, &[]);
                seq += length as u32;
                // The last segments of a burst are recorded after the ACKs of the first.
                let later = us(at + 100);
                passing.passes_at(later, End::Client, [400, seq], 0x10, 0, &[]);
            }
            bursts = bursts.iter().map(|(at, n)| (at + 100 + 41_000, 2 * n)).collect();
        }
        let releases = passing.0.releases(End::Server).unwrap();
        assert_eq!(releases.far().least(), Some(Span::from_micros(41_000)), "{releases:?}");
        assert_eq!(releases.whole().least(), Some(Span::from_micros(41_100)));
        assert!(releases.far().median() < Some(Span::from_millis(47)), "{releases:?}");
        assert!(releases.far().count() >= 4, "{releases:?}");
    }

    #[test]
    fn windows_are_scaled_where_both_ends_do() {
        let Passing(connection) = greeted();
        let windows = connection.windows(End::Client).unwrap();
        assert_eq!((windows.first, windows.least, windows.most), (500 << 7, 500 << 7, 500 << 7));
        assert_eq!(connection.windows(End::Server), None, "that of a SYN is no window yet");
        let window = |flags| {
            let header = bytes(80, [0, 0], flags, 500, &[]);
            let segment = Segment::read(&header, header.len()).unwrap();
            connection.clone().window(End::Server, &segment)
        };
        assert_eq!((window(0x12), window(0x10)), (500, 500 << 2), "that of a SYN has no scale");
        let mut passing = Passing(Connection::new(Time::ZERO));
        passing.passes(0, End::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        passing.passes(1, End::Server, [499, 100], 0x12, 0, &[2, 4, 5, 120]);
        passing.passes(2, End::Client, [100, 500], 0x10, 0, &[]);
        assert_eq!(passing.0.windows(End::Client).unwrap().first, 500);
        assert_eq!(passing.0.hello(End::Server).unwrap().mss, 1_400);
    }

    #[test]
    fn both_ends_streams_and_their_halves() {
        let mut passing = greeted();
        passing.passes(60, End::Client, [100, 500], 0x18, 300, &[]);
        passing.passes(101, End::Server, [500, 400], 0x10, 1_400, &[]);
        passing.passes(101, End::Server, [1_900, 400], 0x18, 100, &[]);
        passing.passes(108, End::Client, [400, 2_000], 0x11, 0, &[]);
        let connection = &passing.0;
        let near = |end| connection.stream(end).unwrap().near().least();
        assert_eq!(near(End::Client), Some(Span::from_millis(40)));
        assert_eq!(near(End::Server), Some(Span::from_millis(7)));
        let counts = connection.stream(End::Server).unwrap().counts();
        assert_eq!((counts.bytes, counts.data_segments), (1_500, 2));
        assert_eq!(connection.first_fin(), Some(Time::from_millis(108)));
        passing.passes(120, End::Server, [2_000, 401], 0x14, 0, &[]);
        assert_eq!(passing.0.reset(), Some((Time::from_millis(120), End::Server)));
        assert!(!passing.0.is_valid());
    }

    #[test]
    fn resets_count_as_packets_of_their_sender() {
        let mut passing = greeted();
        passing.passes(60, End::Client, [100, 500], 0x18, 300, &[]);
        passing.passes(101, End::Server, [500, 400], 0x18, 1_400, &[]);
        // A closed endpoint sends an RST for each segment that is still in flight.
        passing.passes(102, End::Client, [400, 0], 0x04, 0, &[]);
        passing.passes(103, End::Client, [400, 0], 0x04, 0, &[]);
        passing.passes(140, End::Server, [1_900, 400], 0x14, 21, &[]);
        let connection = &passing.0;
        assert_eq!([connection.packets(End::Client), connection.packets(End::Server)], [5, 3]);
        assert_eq!([connection.bytes(End::Client), connection.bytes(End::Server)], [300, 1_421]);
        assert_eq!(connection.stream(End::Server).unwrap().length(), 1_400);
        // A connection without any other segment.
        let mut passing = Passing(Connection::new(Time::ZERO));
        passing.passes(0, End::Server, [7, 9], 0x14, 0, &[]);
        let connection = &passing.0;
        assert_eq!([connection.packets(End::Client), connection.packets(End::Server)], [0, 1]);
        assert_eq!(connection.reset(), Some((Time::ZERO, End::Server)));
    }

    #[test]
    fn a_connection_of_which_the_beginning_is_missing() {
        let mut passing = Passing(Connection::new(Time::ZERO));
        passing.passes(0, End::Server, [500, 400], 0x10, 1_400, &[]);
        passing.passes(5, End::Client, [400, 1_900], 0x10, 0, &[]);
        let connection = &passing.0;
        assert_eq!((connection.handshake().done, connection.is_valid()), (None, false));
        let server = connection.stream(End::Server).unwrap();
        assert_eq!(server.near().median(), Some(Span::from_millis(5)));
        assert_eq!(server.counts().unseen, 0);
    }

    #[test]
    fn who_sent_a_segment() {
        let sender = |from, flags| {
            let header = bytes(from, [0, 0], flags, 0, &[]);
            Connection::sender(&Segment::read(&header, header.len()).unwrap())
        };
        assert_eq!((sender(80, 0x02), sender(40_000, 0x12)), (End::Client, End::Server));
        assert_eq!((sender(80, 0x10), sender(40_000, 0x10)), (End::Server, End::Client));
    }

    fn with_window(window: u16) -> Vec<u8> {
        let mut header = bytes(40_000, [400, 1_900], 0x10, window, &[]);
        header.truncate(20);
        header
    }

    #[test]
    fn who_waits_for_a_closed_window_waits_for_nothing_else() {
        let mut passing = greeted();
        passing.passes(60, End::Client, [100, 500], 0x18, 300, &[]);
        passing.passes(101, End::Server, [500, 400], 0x18, 1_400, &[]);
        let mut grants = |at, window| {
            let header = with_window(window);
            let segment = Segment::read(&header, header.len()).unwrap();
            passing.0.handle(Time::from_millis(at), End::Client, &segment);
        };
        grants(102, 0);
        grants(2_000, 500);
        passing.passes(2_040, End::Server, [1_900, 400], 0x18, 1_400, &[]);
        let limited_by = passing.0.limited_by(End::Server);
        assert!(limited_by.share(Limit::ReceiverWindow) > 0.9, "{limited_by:?}");
    }

    #[test]
    fn without_a_syn_a_window_is_not_known_and_without_answers_no_limit() {
        let mut passing = Passing(Connection::new(Time::ZERO));
        for number in 0..20 {
            passing.passes(
                number * 10,
                End::Server,
                [number as u32 * 1_400, 400],
                0x10,
                1_400,
                &[],
            );
        }
        assert!(passing.0.limited_by(End::Server).all().is_zero());
        passing.passes(205, End::Client, [400, 1_400], 0x10, 0, &[]);
        assert_eq!(passing.0.windows(End::Client), None);
        passing.passes(230, End::Server, [28_000, 400], 0x10, 1_400, &[]);
        passing.passes(240, End::Server, [29_400, 400], 0x10, 1_400, &[]);
        let limited_by = passing.0.limited_by(End::Server);
        assert!(limited_by.span(Limit::ReceiverWindow).is_zero() && !limited_by.all().is_zero());
    }
}
