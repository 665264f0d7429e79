//! One TCP connection, from its first captured segment to its last.
//!
//! A capture may begin in the middle of a connection, or contain only one direction. Unknown values
//! are then `None`, not zero.

mod doubt;
mod fit;

use manyways_unit::{Span, Time};

use self::doubt::Doubts;
pub use self::doubt::HeldPacket;
pub(super) use self::doubt::Verdict;
pub(super) use self::fit::Fit;
use super::ack_clock::AckClock;
use super::initial_window::{Estimate, InitialWindow};
use super::limit::{LimitClassifier, LimitedBy, Snapshot};
use super::stream::Stream;
use manyways_wire::frame::IpPacket;
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::{Flags, Segment};

/// Assumed if no captured SYN has the option. The default of RFC 9293, 3.7.1, is 536, but systems
/// that leave out the option send larger segments.
const ASSUMED_MSS: u16 = 1_460;

/// Maximum time in which an endpoint sends available data once it is permitted to.
const MAX_SEND_DELAY: Span = Span::from_millis(1);
/// Assumed for a window with unknown scale: the largest possible one (RFC 7323, 2.3).
const UNKNOWN_WINDOW: u64 = 1 << 30;

/// State of a TCP connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Time of the first segment in the capture, which is not always the earliest one.
    first: Time,
    started: Time,
    last: Time,
    handshake: Handshake,
    /// `None` until the first FIN or RST.
    close: Option<Box<Close>>,
    /// `None` while all segments fit.
    doubts: Option<Box<Doubts>>,
    endpoints: [EndpointState; 2],
    initial_window: InitialWindow,
}

/// FIN and RST of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Close {
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
    pub syn_ack: Option<Time>,
    /// First acknowledgment of the SYN/ACK.
    pub completed: Option<Time>,
    /// Number of SYNs.
    pub syns: u32,
    /// Number of SYN/ACKs.
    pub syn_acks: u32,
}

/// Options of an endpoint's SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynOptions {
    /// Maximum segment size, in bytes. `None` without the option.
    pub mss: Option<u16>,
    /// Window scale in bits. `None` unless both endpoints sent the option.
    pub scale: Option<u8>,
    /// Whether the endpoint permits SACK.
    pub permits_sack: bool,
    /// Whether the endpoint sends timestamps.
    pub has_timestamps: bool,
}

/// Receive windows of an endpoint, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWindows {
    /// The first window after its SYN.
    pub first: u32,
    /// The smallest window after its SYN.
    pub min: u32,
    /// The largest window after its SYN.
    pub max: u32,
    /// Number of times the window closed.
    pub closed: u32,
    /// Whether the latest window was zero.
    is_closed: bool,
}

/// The data of one endpoint, and the reactions to it.
#[derive(Clone, Debug, Default)]
struct EndpointState {
    syn_options: Option<SynOptions>,
    stream: Option<Stream>,
    /// Only for endpoints that send more than one segment in a row: a single segment does not wait
    /// for ACKs.
    ack_clock: Option<Box<AckClock>>,
    windows: Option<ReceiveWindows>,
    classifier: LimitClassifier,
    /// Time at which all sent data was acknowledged and the window had space.
    all_acked_at: Option<Time>,
    /// Whether the receive window of the peer has space for a segment.
    has_window_space: bool,
    /// Whether the window had no space at some time since the last new segment.
    was_blocked: bool,
    /// Whether its FIN passed.
    has_fin: bool,
    /// Whether its RST passed, before any RST of the peer.
    sent_reset: bool,
}

impl Handshake {
    /// Time from the capture point to the server and back. `None` if a SYN or SYN/ACK passed twice,
    /// or is missing.
    pub fn server_rtt(&self) -> Option<Span> {
        let both = self.syn.zip(self.syn_ack).filter(|_| self.is_unambiguous());
        both.and_then(|(syn, answer)| elapsed(syn, answer))
    }

    /// Time from the capture point to the client and back. `None` if a SYN or SYN/ACK passed twice,
    /// or is missing.
    pub fn client_rtt(&self) -> Option<Span> {
        let both = self.syn_ack.zip(self.completed).filter(|_| self.is_unambiguous());
        both.and_then(|(answer, done)| elapsed(answer, done))
    }

    /// False if a response may belong to any of several copies.
    fn is_unambiguous(&self) -> bool {
        self.syns == 1 && self.syn_acks == 1
    }
}

/// Returns the time from a cause to its effect. `None` if not positive, because clocks of captures
/// may step back.
fn elapsed(earlier: Time, later: Time) -> Option<Span> {
    (later > earlier).then(|| later.since(earlier))
}

impl Connection {
    /// Creates a connection whose first segment passes at `now`.
    pub fn new(now: Time) -> Self {
        Self {
            first: now,
            started: now,
            last: now,
            handshake: Handshake::default(),
            close: None,
            doubts: None,
            endpoints: [EndpointState::default(), EndpointState::default()],
            initial_window: InitialWindow::default(),
        }
    }

    /// Guesses the role of the sender of a connection's first captured segment: the sender of a SYN
    /// is the client; without SYN, the endpoint with the lower port is the server.
    pub fn guess_sender(segment: &Segment<'_>) -> Endpoint {
        let (is_syn, is_ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        match (is_syn, is_ack) {
            (true, false) => Endpoint::Client,
            (true, true) => Endpoint::Server,
            _ if segment.source_port < segment.destination_port => Endpoint::Server,
            _ => Endpoint::Client,
        }
    }

    /// Time of the first segment in the capture: a part of the connection's identity.
    pub fn first(&self) -> Time {
        self.first
    }

    /// Time of the earliest segment.
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
        self.close.as_ref().and_then(|ending| ending.fin)
    }

    /// Time and sender of the first RST.
    pub fn reset(&self) -> Option<(Time, Endpoint)> {
        let from = [Endpoint::Client, Endpoint::Server]
            .into_iter()
            .find(|end| self.endpoints[*end as usize].sent_reset);
        self.close.as_ref().and_then(|ending| ending.reset).zip(from)
    }

    /// Number of packets of this endpoint, including RSTs.
    pub fn packets(&self, end: Endpoint) -> u64 {
        let resets = self.close.as_ref().map_or(0, |ending| ending.resets[end as usize].packets);
        self.stream(end).map_or(0, |stream| stream.counts().segments) + u64::from(resets)
    }

    /// Payload bytes of this endpoint, including retransmissions and the payload of RSTs.
    pub fn bytes(&self, end: Endpoint) -> u64 {
        let resets = self.close.as_ref().map_or(0, |ending| ending.resets[end as usize].bytes);
        self.stream(end).map_or(0, |stream| stream.counts().bytes) + resets
    }

    fn has_reset(&self) -> bool {
        self.endpoints.iter().any(|end| end.sent_reset)
    }

    /// Whether both endpoints sent FIN, or one sent RST.
    pub fn is_closed(&self) -> bool {
        self.has_reset() || self.endpoints.iter().all(|end| end.has_fin)
    }

    /// Whether the handshake is complete and there was no RST: a valid connection of the campus
    /// Wi-Fi paper (3.1).
    pub fn is_valid(&self) -> bool {
        self.handshake.completed.is_some() && !self.has_reset()
    }

    /// Returns the options of this endpoint's SYN. `None` if the SYN is not in the capture.
    pub fn syn_options(&self, end: Endpoint) -> Option<&SynOptions> {
        self.endpoints[end as usize].syn_options.as_ref()
    }

    /// Returns the data of this endpoint. `None` if the capture has no segment of it.
    pub fn stream(&self, end: Endpoint) -> Option<&Stream> {
        self.endpoints[end as usize].stream.as_ref()
    }

    /// Returns the reaction times of this endpoint to ACKs. `None` if the endpoint never waited for
    /// an ACK.
    pub fn ack_clock(&self, end: Endpoint) -> Option<&AckClock> {
        self.endpoints[end as usize].ack_clock.as_deref()
    }

    /// Minimum known time from the capture point to this endpoint and back: from the handshake,
    /// which may include a promotion of the radio, from ACKs of this endpoint, and from timestamps.
    /// Samples derived from the sender's window are excluded, because they depend on this value.
    pub fn min_rtt_to(&self, to: Endpoint) -> Option<Span> {
        // Called for each segment with data: a chain of options would take twice as long.
        let handshake = match to {
            Endpoint::Client => self.handshake.client_rtt(),
            Endpoint::Server => self.handshake.server_rtt(),
        };
        let mut min = handshake.unwrap_or(Span::MAX);
        if let Some(stream) = self.stream(to.other()) {
            min = min.min(stream.receiver_rtt().min().unwrap_or(Span::MAX));
        }
        if let Some(ack_clock) = self.ack_clock(to)
            && ack_clock.timestamp_samples() > 0
        {
            min = min.min(ack_clock.sender_rtt().min().unwrap_or(Span::MAX));
        }
        (min < Span::MAX).then_some(min)
    }

    /// Estimates the server's initial window. `None` if the server did not respond to data.
    pub fn initial_window(&self) -> Option<Estimate> {
        let server = &self.endpoints[Endpoint::Server as usize];
        let rtt = server.ack_clock.as_ref().and_then(|ack_clock| ack_clock.full_rtt().min());
        let halves = self.handshake.server_rtt().zip(self.handshake.client_rtt());
        let rtt = rtt.or(halves.map(|(server, client)| server + client));
        self.initial_window.estimate(self.max_payload(), rtt)
    }

    /// Time of each sender limit of this endpoint.
    pub fn limited_by(&self, end: Endpoint) -> &LimitedBy {
        self.endpoints[end as usize].classifier.limited_by()
    }

    /// Returns the receive windows of this endpoint. `None` if its SYN, which has the window scale,
    /// is not in the capture.
    pub fn windows(&self, end: Endpoint) -> Option<&ReceiveWindows> {
        let endpoint = &self.endpoints[end as usize];
        endpoint.windows.as_ref().filter(|_| endpoint.syn_options.is_some())
    }

    /// Handles a segment. Returns the offset of its first byte in its sender's stream; `None` for
    /// RST, and for a segment that does not fit the connection.
    pub fn handle(&mut self, now: Time, from: Endpoint, segment: &Segment<'_>) -> Option<u64> {
        match self.fit(now, from, segment) {
            Fit::Refused => {
                self.doubts.get_or_insert_default().refuse(from);
                None
            }
            Fit::AckRefused => {
                self.doubts.get_or_insert_default().refuse_ack(from);
                self.accept(now, from, segment, false)
            }
            Fit::Fits => self.accept(now, from, segment, true),
        }
    }

    /// Number of segments of this endpoint whose numbers do not fit the connection. They count
    /// nowhere else.
    pub fn refused(&self, from: Endpoint) -> u32 {
        self.doubts.as_ref().map_or(0, |doubts| doubts.refused(from))
    }

    /// Number of segments of this endpoint of which only the acknowledgment number does not fit.
    pub fn refused_acks(&self, from: Endpoint) -> u32 {
        self.doubts.as_ref().map_or(0, |doubts| doubts.refused_acks(from))
    }

    /// Whether packets are held that do not fit.
    pub(super) fn holds_packets(&self) -> bool {
        self.doubts.as_ref().is_some_and(|doubts| doubts.has_held())
    }

    /// Drops the held packets.
    pub(super) fn release_packets(&mut self) {
        self.doubts.as_mut().into_iter().for_each(|doubts| doubts.release());
    }

    /// Handles a segment that does not fit.
    pub(super) fn on_refused(
        &mut self,
        now: Time,
        from: Endpoint,
        packet: &IpPacket<'_>,
        segment: &Segment<'_>,
    ) -> Verdict {
        let fitting = self.fitting();
        self.doubts.get_or_insert_default().on_segment((now, from), packet, segment, fitting)
    }

    /// Handles an acknowledgment number that does not fit. Returns whether it counts all the same.
    pub(super) fn on_refused_ack(
        &mut self,
        from: Endpoint,
        segment: &Segment<'_>,
    ) -> (bool, Verdict) {
        let fitting = self.fitting()[from as usize];
        let doubts = self.doubts.get_or_insert_default();
        let (agrees, verdict) = doubts.on_ack(from, segment.ack, fitting);
        // Without the scale of the window, nothing else limits how much the capture may have missed.
        let is_window_known = self.endpoints[from as usize].syn_options.is_some();
        (agrees && !is_window_known, verdict)
    }

    /// Numbers of fitting segments of both endpoints.
    fn fitting(&self) -> [u64; 2] {
        [Endpoint::Client, Endpoint::Server]
            .map(|end| self.stream(end).map_or(0, |stream| stream.counts().segments))
    }

    /// Continues the stream of an endpoint at a segment that does not fit. Returns false if it
    /// cannot: then the segment is of another connection.
    pub(super) fn continue_at(&mut self, end: Endpoint, segment: &Segment<'_>, now: Time) -> bool {
        let endpoint = &mut self.endpoints[end as usize];
        match &mut endpoint.stream {
            Some(stream) if stream.has_data() => stream.skip_to(now, segment.seq),
            // Nothing but a SYN has passed, which was not the one that counts.
            _ => {
                *endpoint = EndpointState::default();
                let completed = self.handshake.completed;
                completed.into_iter().for_each(|at| endpoint.classifier.start(at));
                true
            }
        }
    }

    /// Handles a segment whose sequence number fits.
    pub(super) fn accept(
        &mut self,
        now: Time,
        from: Endpoint,
        segment: &Segment<'_>,
        is_ack_fitting: bool,
    ) -> Option<u64> {
        if now >= self.last {
            self.last = now;
        } else {
            // Clocks of captures may step back.
            self.started = self.started.min(now);
        }
        if is_ack_fitting {
            self.on_handshake(now, from, segment);
        }
        if segment.flags.has(Flags::RST) {
            let ending = self.close.get_or_insert_default();
            let resets = &mut ending.resets[from as usize];
            resets.packets = resets.packets.saturating_add(1);
            resets.bytes += u64::from(segment.length);
            if ending.reset.is_none() {
                ending.reset = Some(now);
                self.endpoints[from as usize].sent_reset = true;
            }
            return None;
        }
        if segment.flags.has(Flags::FIN) {
            self.close.get_or_insert_default().fin.get_or_insert(now);
            self.endpoints[from as usize].has_fin = true;
        }
        let mss = self.mss();
        if is_ack_fitting {
            let window = self.update_window(from, segment);
            if segment.flags.has(Flags::ACK) {
                self.on_ack(now, from.other(), segment, window, mss);
            }
        }
        let begin = match self.on_bare(now, from, segment, mss) {
            Some(begin) => begin,
            None => self.on_data(now, from, segment, mss),
        };
        let is_syn = u64::from(segment.flags.has(Flags::SYN));
        (segment.length > 0).then_some(begin + is_syn)
    }

    /// Handles the handshake part of a segment.
    fn on_handshake(&mut self, now: Time, from: Endpoint, segment: &Segment<'_>) {
        let handshake = &mut self.handshake;
        let (is_syn, is_ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        match (from, is_syn, is_ack) {
            (Endpoint::Client, true, false) => {
                handshake.syn = handshake.syn.or(Some(now));
                handshake.syns += 1;
            }
            (Endpoint::Server, true, true) => {
                handshake.syn_ack = handshake.syn_ack.or(Some(now));
                handshake.syn_acks += 1;
            }
            (Endpoint::Client, false, true)
                if handshake.completed.is_none() && handshake.syn_ack.is_some() =>
            {
                handshake.completed = Some(now);
                self.endpoints.iter_mut().for_each(|endpoint| endpoint.classifier.start(now));
            }
            _ => {}
        }
        if !is_syn {
            return;
        }
        let options = &segment.options;
        let hello = SynOptions {
            mss: options.mss().filter(|mss| *mss > 0),
            scale: options.window_scale(),
            permits_sack: options.is_sack_permitted(),
            has_timestamps: options.timestamps().is_some(),
        };
        self.endpoints[from as usize].syn_options.get_or_insert(hello);
        // RFC 7323, 2.2: scaling applies only if both endpoints sent the option.
        let scales = self.endpoints.each_ref().map(|end| end.syn_options.map(|hello| hello.scale));
        if let [Some(one), Some(other)] = scales
            && one.is_some() != other.is_some()
        {
            self.endpoints
                .iter_mut()
                .filter_map(|end| end.syn_options.as_mut())
                .for_each(|h| h.scale = None);
        }
        let Some(mss) = self.mss_option() else { return };
        for stream in self.endpoints.iter_mut().filter_map(|end| end.stream.as_mut()) {
            stream.set_mss(mss);
        }
    }

    /// Returns the smaller MSS option of the two endpoints.
    fn mss_option(&self) -> Option<u16> {
        // Called for each segment.
        let [one, other] =
            self.endpoints.each_ref().map(|end| end.syn_options.as_ref().and_then(|h| h.mss));
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Returns the size of full segments, with their options.
    fn mss(&self) -> u32 {
        self.mss_option().unwrap_or(ASSUMED_MSS).into()
    }

    /// Returns the MSS minus the length of the timestamps option, if it is in use.
    pub fn max_payload(&self) -> u32 {
        let has_stamps =
            self.endpoints.iter().all(|end| end.syn_options.is_some_and(|h| h.has_timestamps));
        self.mss() - if has_stamps { 12.min(self.mss() - 1) } else { 0 }
    }

    /// Returns the window of a segment, in bytes.
    fn update_window(&mut self, from: Endpoint, segment: &Segment<'_>) -> u64 {
        let is_syn = segment.flags.has(Flags::SYN);
        let endpoint = &mut self.endpoints[from as usize];
        // The window of a SYN is not scaled.
        let scale = endpoint.syn_options.and_then(|options| options.scale).filter(|_| !is_syn);
        let window = u32::from(segment.window) << scale.unwrap_or(0);
        if !is_syn && segment.flags.has(Flags::ACK) {
            let fresh = ReceiveWindows {
                first: window,
                min: window,
                max: window,
                closed: 0,
                is_closed: false,
            };
            let windows = endpoint.windows.get_or_insert(fresh);
            windows.min = windows.min.min(window);
            windows.max = windows.max.max(window);
            windows.closed += u32::from(window == 0 && !windows.is_closed);
            windows.is_closed = window == 0;
        }
        window.into()
    }

    /// Handles an ACK for bytes of endpoint `endpoint`.
    fn on_ack(&mut self, now: Time, endpoint: Endpoint, ack: &Segment<'_>, window: u64, mss: u32) {
        let is_scale_known = self.endpoints[endpoint.other() as usize].syn_options.is_some();
        let half = &mut self.endpoints[endpoint as usize];
        let Some(stream) = &mut half.stream else { return };
        let mut acked = stream.on_ack(now, ack, window);
        if !is_scale_known {
            acked.window_limit = acked.acked_to + UNKNOWN_WINDOW;
        }
        // A sender that waits for the window has data, and can send only after it opens.
        let has_room = window > 0 && !(is_scale_known && window < mss.into());
        let had_room = std::mem::replace(&mut half.has_window_space, has_room);
        let is_blocked = !has_room || !had_room;
        half.was_blocked |= !has_room;
        if (acked.bytes > 0 || is_blocked) && stream.in_flight() == 0 {
            half.all_acked_at = Some(now);
        }
        if endpoint == Endpoint::Server {
            self.initial_window.on_ack(now, &acked, ack.options.timestamps());
        }
        if let Some(ack_clock) = &mut half.ack_clock {
            ack_clock.on_ack(now, &acked, ack.options.timestamps(), mss);
        }
    }

    /// Handles a segment of endpoint `from` without data, SYN or FIN, if it is not the first one:
    /// most acknowledgments need no more than this. Returns its offset in the stream.
    fn on_bare(
        &mut self,
        now: Time,
        from: Endpoint,
        segment: &Segment<'_>,
        mss: u32,
    ) -> Option<u64> {
        if segment.length > 0 || segment.flags.has(Flags(Flags::SYN.0 | Flags::FIN.0)) {
            return None;
        }
        let endpoint = &mut self.endpoints[from as usize];
        // It neither releases nor repeats data, so that no round-trip time is needed.
        let outcome = endpoint.stream.as_mut()?.on_segment(now, segment, None);
        if let Some(ack_clock) = &mut endpoint.ack_clock {
            ack_clock.on_segment(now, &outcome, segment.options.timestamps(), None, mss);
        }
        Some(outcome.begin)
    }

    /// Handles a segment of endpoint `from`. Returns its offset in the stream.
    fn on_data(&mut self, now: Time, from: Endpoint, segment: &Segment<'_>, mss: u32) -> u64 {
        let is_first = self.stream(from).is_none();
        let mss_option = if is_first { self.mss_option() } else { None };
        let is_asked = self.stream(from.other()).is_some_and(Stream::has_data);
        let sender_rtt = self.min_rtt_to(from);
        let other = &self.endpoints[from.other() as usize];
        // A capture of one direction does not show the events that the sender waited for.
        let (is_scale_known, is_answered) = (other.syn_options.is_some(), other.stream.is_some());
        let endpoint = &mut self.endpoints[from as usize];
        let stream = endpoint.stream.get_or_insert_with(|| {
            let mut stream = Stream::new(segment);
            mss_option.into_iter().for_each(|mss| stream.set_mss(mss));
            stream
        });
        let before = stream.loss_retransmissions();
        let (was_idle, is_recovering) = (stream.in_flight() == 0, stream.is_recovering());
        let mut outcome = stream.on_segment(now, segment, sender_rtt);
        let repairs = stream.loss_retransmissions();
        // Near the receiver, all data may be acknowledged before the next segment passes.
        let has_more = !was_idle || !stream.is_app_limited();
        if endpoint.ack_clock.is_none() && has_more && segment.length > 0 {
            endpoint.ack_clock = Some(Box::default());
        }
        let mut ack_clock = endpoint.ack_clock.as_deref_mut();
        let min = ack_clock.as_ref().and_then(|ack_clock| ack_clock.full_rtt().min());
        if repairs.0 > before.0 {
            let by_timer = repairs.1 > before.1;
            // The window shrinks once per recovery (RFC 6582).
            if let Some(ack_clock) = &mut ack_clock
                && (by_timer || !is_recovering)
            {
                ack_clock.on_loss(by_timer, stream.in_flight(), mss);
            }
            endpoint
                .classifier
                .on_loss(ack_clock.as_ref().and_then(|ack_clock| ack_clock.latest_rtt()), min);
        }
        // A sender with more data would have sent it when all was acknowledged. At a capture point
        // near the sender, the delay is that of the sender's system.
        let round_trip = sender_rtt.unwrap_or_default() + sender_rtt.unwrap_or_default();
        let some = Span::from_nanos(min.unwrap_or_default().as_nanos() / 4);
        let round_trip = round_trip.max(some).max(MAX_SEND_DELAY);
        outcome.was_app_limited |=
            was_idle && endpoint.all_acked_at.is_some_and(|at| now.since(at) > round_trip);
        if let Some(ack_clock) = &mut ack_clock {
            ack_clock.on_segment(now, &outcome, segment.options.timestamps(), sender_rtt, mss);
        }
        if !outcome.is_new || segment.length == 0 {
            return outcome.begin;
        }
        // Without the SYN of the peer, the scale of its windows is unknown.
        let granted = ack_clock.as_ref().and_then(|ack_clock| ack_clock.window_limit(outcome.end));
        let granted = granted.filter(|_| is_scale_known);
        let snapshot = Snapshot {
            was_app_limited: outcome.was_app_limited,
            was_blocked: std::mem::take(&mut endpoint.was_blocked),
            is_recovering,
            in_flight: u32::try_from(stream.in_flight()).unwrap_or(u32::MAX),
            window_left: granted.map(|granted| granted.saturating_sub(outcome.end)),
            latest_rtt: ack_clock.and_then(|ack_clock| ack_clock.latest_rtt()),
            min_rtt: min,
            min_sender_rtt: sender_rtt,
            mss,
        };
        if is_answered {
            endpoint.classifier.on_segment(now, snapshot);
        }
        match from {
            Endpoint::Client => self.initial_window.on_request(segment.payload),
            Endpoint::Server => {
                let timestamps = segment.options.timestamps();
                self.initial_window.on_response(now, &outcome, sender_rtt, timestamps, is_asked);
            }
        }
        self.endpoints[from.other() as usize].classifier.on_request(now);
        outcome.begin
    }
}

#[cfg(test)]
mod tests {
    use super::super::limit::SenderLimit;
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
    struct Harness(Connection);

    impl Harness {
        fn passes(
            &mut self,
            at: u64,
            from: Endpoint,
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
            from: Endpoint,
            numbers: [u32; 2],
            flags: u8,
            length: usize,
            options: &[u8],
        ) {
            let port = if from == Endpoint::Client { 40_000 } else { 80 };
            let header = bytes(port, numbers, flags, 500, options);
            let segment = Segment::read(&header, header.len() + length).unwrap();
            self.0.handle(at, from, &segment);
        }
    }

    const SYN_OPTIONS: [u8; 8] = [2, 4, 5, 180, 1, 3, 3, 7];

    fn established() -> Harness {
        let mut harness = Harness(Connection::new(Time::from_millis(10)));
        harness.passes(10, Endpoint::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        harness.passes(50, Endpoint::Server, [499, 100], 0x12, 0, &[2, 4, 5, 120, 1, 3, 3, 2]);
        harness.passes(57, Endpoint::Client, [100, 500], 0x10, 0, &[]);
        harness
    }

    #[test]
    fn the_halves_of_a_handshake() {
        let Harness(connection) = established();
        let handshake = connection.handshake();
        assert_eq!(handshake.server_rtt(), Some(Span::from_millis(40)));
        assert_eq!(handshake.client_rtt(), Some(Span::from_millis(7)));
        assert!(connection.is_valid());
        assert_eq!(connection.started(), Time::from_millis(10));
        assert_eq!(connection.last(), Time::from_millis(57));
        // A retransmitted SYN yields no round-trip time.
        let mut harness = Harness(Connection::new(Time::ZERO));
        harness.passes(0, Endpoint::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        harness.passes(1_000, Endpoint::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        harness.passes(1_040, Endpoint::Server, [499, 100], 0x12, 0, &SYN_OPTIONS);
        harness.passes(1_047, Endpoint::Client, [100, 500], 0x10, 0, &[]);
        let handshake = *harness.0.handshake();
        assert_eq!(
            (handshake.server_rtt(), handshake.client_rtt(), handshake.syns),
            (None, None, 2)
        );
        assert!(harness.0.is_valid());
        // Nor does a handshake with times out of order.
        let mut harness = Harness(Connection::new(Time::ZERO));
        harness.passes(50, Endpoint::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        harness.passes(50, Endpoint::Server, [499, 100], 0x12, 0, &SYN_OPTIONS);
        harness.passes(49, Endpoint::Client, [100, 500], 0x10, 0, &[]);
        let handshake = *harness.0.handshake();
        assert_eq!((handshake.server_rtt(), handshake.client_rtt()), (None, None));
    }

    /// A phone downloads without timestamps: its SYN waits 300 ms for the promotion, the server is
    /// 40 ms away, and bursts of merged segments arrive, each acknowledged within 100 us.
    #[test]
    fn a_phone_that_wakes_its_radio_is_as_far_away_as_its_requests_show() {
        let us = |micros: u64| Time::from_nanos(micros * 1_000);
        let mut harness = Harness(Connection::new(Time::ZERO));
        harness.passes(0, Endpoint::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        harness.passes(340, Endpoint::Server, [499, 100], 0x12, 0, &SYN_OPTIONS);
        harness.passes_at(us(340_300), Endpoint::Client, [100, 500], 0x10, 0, &[]);
        harness.passes_at(us(340_500), Endpoint::Client, [100, 500], 0x18, 300, &[]);
        harness.passes_at(us(380_700), Endpoint::Server, [500, 400], 0x10, 0, &[]);
        assert_eq!(harness.0.min_rtt_to(Endpoint::Server), Some(Span::from_micros(40_200)));
        let mut seq = 500;
        let mut bursts = vec![(400_000, 4), (400_040, 2), (405_000, 4)];
        for _ in 0..3 {
            for (at, segments) in &bursts {
                let length = segments * 1_460;
                harness.passes_at(us(*at), Endpoint::Server, [seq, 400], 0x10, length, &[]);
                seq += length as u32;
                // The last segments of a burst are recorded after the ACKs of the first.
                let later = us(at + 100);
                harness.passes_at(later, Endpoint::Client, [400, seq], 0x10, 0, &[]);
            }
            bursts = bursts.iter().map(|(at, n)| (at + 100 + 41_000, 2 * n)).collect();
        }
        let ack_clock = harness.0.ack_clock(Endpoint::Server).unwrap();
        assert_eq!(ack_clock.sender_rtt().min(), Some(Span::from_micros(41_000)), "{ack_clock:?}");
        assert_eq!(ack_clock.full_rtt().min(), Some(Span::from_micros(41_100)));
        assert!(ack_clock.sender_rtt().median() < Some(Span::from_millis(47)), "{ack_clock:?}");
        assert!(ack_clock.sender_rtt().count() >= 4, "{ack_clock:?}");
    }

    #[test]
    fn windows_are_scaled_where_both_ends_do() {
        let Harness(connection) = established();
        let windows = connection.windows(Endpoint::Client).unwrap();
        assert_eq!((windows.first, windows.min, windows.max), (500 << 7, 500 << 7, 500 << 7));
        assert_eq!(connection.windows(Endpoint::Server), None, "that of a SYN is no window yet");
        let window = |flags| {
            let header = bytes(80, [0, 0], flags, 500, &[]);
            let segment = Segment::read(&header, header.len()).unwrap();
            connection.clone().update_window(Endpoint::Server, &segment)
        };
        assert_eq!((window(0x12), window(0x10)), (500, 500 << 2), "that of a SYN has no scale");
        let mut harness = Harness(Connection::new(Time::ZERO));
        harness.passes(0, Endpoint::Client, [99, 0], 0x02, 0, &SYN_OPTIONS);
        harness.passes(1, Endpoint::Server, [499, 100], 0x12, 0, &[2, 4, 5, 120]);
        harness.passes(2, Endpoint::Client, [100, 500], 0x10, 0, &[]);
        assert_eq!(harness.0.windows(Endpoint::Client).unwrap().first, 500);
        assert_eq!(harness.0.syn_options(Endpoint::Server).unwrap().mss, Some(1_400));
    }

    #[test]
    fn both_ends_streams_and_their_halves() {
        let mut harness = established();
        harness.passes(60, Endpoint::Client, [100, 500], 0x18, 300, &[]);
        harness.passes(101, Endpoint::Server, [500, 400], 0x10, 1_400, &[]);
        harness.passes(101, Endpoint::Server, [1_900, 400], 0x18, 100, &[]);
        harness.passes(108, Endpoint::Client, [400, 2_000], 0x11, 0, &[]);
        let connection = &harness.0;
        let near = |end| connection.stream(end).unwrap().receiver_rtt().min();
        assert_eq!(near(Endpoint::Client), Some(Span::from_millis(40)));
        assert_eq!(near(Endpoint::Server), Some(Span::from_millis(7)));
        let counts = connection.stream(Endpoint::Server).unwrap().counts();
        assert_eq!((counts.bytes, counts.data_segments), (1_500, 2));
        assert_eq!(connection.first_fin(), Some(Time::from_millis(108)));
        harness.passes(120, Endpoint::Server, [2_000, 401], 0x14, 0, &[]);
        assert_eq!(harness.0.reset(), Some((Time::from_millis(120), Endpoint::Server)));
        assert!(!harness.0.is_valid());
    }

    #[test]
    fn resets_count_as_packets_of_their_sender() {
        let mut harness = established();
        harness.passes(60, Endpoint::Client, [100, 500], 0x18, 300, &[]);
        harness.passes(101, Endpoint::Server, [500, 400], 0x18, 1_400, &[]);
        // A closed endpoint sends an RST for each segment that is still in flight.
        harness.passes(102, Endpoint::Client, [400, 0], 0x04, 0, &[]);
        harness.passes(103, Endpoint::Client, [400, 0], 0x04, 0, &[]);
        harness.passes(140, Endpoint::Server, [1_900, 400], 0x14, 21, &[]);
        let connection = &harness.0;
        assert_eq!(
            [connection.packets(Endpoint::Client), connection.packets(Endpoint::Server)],
            [5, 3]
        );
        assert_eq!(
            [connection.bytes(Endpoint::Client), connection.bytes(Endpoint::Server)],
            [300, 1_421]
        );
        assert_eq!(connection.stream(Endpoint::Server).unwrap().unique_bytes(), 1_400);
        // A connection without any other segment.
        let mut harness = Harness(Connection::new(Time::ZERO));
        harness.passes(0, Endpoint::Server, [7, 9], 0x14, 0, &[]);
        let connection = &harness.0;
        assert_eq!(
            [connection.packets(Endpoint::Client), connection.packets(Endpoint::Server)],
            [0, 1]
        );
        assert_eq!(connection.reset(), Some((Time::ZERO, Endpoint::Server)));
    }

    #[test]
    fn a_connection_of_which_the_beginning_is_missing() {
        let mut harness = Harness(Connection::new(Time::ZERO));
        harness.passes(0, Endpoint::Server, [500, 400], 0x10, 1_400, &[]);
        harness.passes(5, Endpoint::Client, [400, 1_900], 0x10, 0, &[]);
        let connection = &harness.0;
        assert_eq!((connection.handshake().completed, connection.is_valid()), (None, false));
        let server = connection.stream(Endpoint::Server).unwrap();
        assert_eq!(server.receiver_rtt().median(), Some(Span::from_millis(5)));
        assert_eq!(server.counts().uncaptured, 0);
    }

    #[test]
    fn who_sent_a_segment() {
        let sender = |from, flags| {
            let header = bytes(from, [0, 0], flags, 0, &[]);
            Connection::guess_sender(&Segment::read(&header, header.len()).unwrap())
        };
        assert_eq!((sender(80, 0x02), sender(40_000, 0x12)), (Endpoint::Client, Endpoint::Server));
        assert_eq!((sender(80, 0x10), sender(40_000, 0x10)), (Endpoint::Server, Endpoint::Client));
    }

    fn with_window(window: u16) -> Vec<u8> {
        let mut header = bytes(40_000, [400, 1_900], 0x10, window, &[]);
        header.truncate(20);
        header
    }

    #[test]
    fn who_waits_for_a_closed_window_waits_for_nothing_else() {
        let mut harness = established();
        harness.passes(60, Endpoint::Client, [100, 500], 0x18, 300, &[]);
        harness.passes(101, Endpoint::Server, [500, 400], 0x18, 1_400, &[]);
        let mut grants = |at, window| {
            let header = with_window(window);
            let segment = Segment::read(&header, header.len()).unwrap();
            harness.0.handle(Time::from_millis(at), Endpoint::Client, &segment);
        };
        grants(102, 0);
        grants(2_000, 500);
        harness.passes(2_040, Endpoint::Server, [1_900, 400], 0x18, 1_400, &[]);
        let limited_by = harness.0.limited_by(Endpoint::Server);
        assert!(limited_by.share(SenderLimit::ReceiverWindow) > 0.9, "{limited_by:?}");
    }

    #[test]
    fn without_a_syn_a_window_is_not_known_and_without_answers_no_limit() {
        let mut harness = Harness(Connection::new(Time::ZERO));
        for number in 0..20 {
            harness.passes(
                number * 10,
                Endpoint::Server,
                [number as u32 * 1_400, 400],
                0x10,
                1_400,
                &[],
            );
        }
        assert!(harness.0.limited_by(Endpoint::Server).total().is_zero());
        harness.passes(205, Endpoint::Client, [400, 1_400], 0x10, 0, &[]);
        assert_eq!(harness.0.windows(Endpoint::Client), None);
        harness.passes(230, Endpoint::Server, [28_000, 400], 0x10, 1_400, &[]);
        harness.passes(240, Endpoint::Server, [29_400, 400], 0x10, 1_400, &[]);
        let limited_by = harness.0.limited_by(Endpoint::Server);
        assert!(
            limited_by.span(SenderLimit::ReceiverWindow).is_zero() && !limited_by.total().is_zero()
        );
    }
}
