//! Packets between a client and a server, and the rows of their analysis.

use manyways_flows::analysis::{Analysis, Record, Settings, TcpFlow};
use manyways_flows::flow::{Counts, Stream};
use manyways_unit::{Span, Time};
use manyways_wire::capture::{Interface, LinkType, Packet};
use manyways_wire::stream::Endpoint;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

/// A packet that passes the capture point.
#[derive(Clone, Debug)]
pub struct Passed {
    pub millis: u64,
    pub is_up: bool,
    /// Sequence and acknowledgment number.
    pub numbers: [u32; 2],
    pub flags: u8,
    pub window: u16,
    pub payload: Vec<u8>,
}

/// Builds the packets of a connection.
pub struct Conversation {
    pub millis: u64,
    /// Next numbers of the client and of the server.
    next: [u32; 2],
    pub packets: Vec<Passed>,
}

impl Conversation {
    pub fn new(millis: u64, numbers: [u32; 2]) -> Self {
        Self { millis, next: numbers, packets: Vec::new() }
    }

    pub fn up(&mut self, flags: u8, payload: &[u8]) {
        self.pass(true, flags, payload);
    }

    pub fn down(&mut self, flags: u8, payload: &[u8]) {
        self.pass(false, flags, payload);
    }

    fn pass(&mut self, is_up: bool, flags: u8, payload: &[u8]) {
        let (own, other) = if is_up { (0, 1) } else { (1, 0) };
        let ack = if flags & ACK == 0 { 0 } else { self.next[other] };
        self.packets.push(Passed {
            millis: self.millis,
            is_up,
            numbers: [self.next[own], ack],
            flags,
            window: 65_000,
            payload: payload.to_vec(),
        });
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.next[own] = self.next[own].wrapping_add(payload.len() as u32 + controls);
    }

    pub fn handshake(&mut self) {
        self.up(SYN, b"");
        self.millis += 20;
        self.down(SYN | ACK, b"");
        self.millis += 1;
        self.up(ACK, b"");
    }

    /// A request, and a response with a body of this length.
    pub fn exchange(&mut self, path: &str, length: usize) {
        self.up(ACK | PSH, format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n").as_bytes());
        self.millis += 20;
        self.down(ACK, b"");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        self.down(ACK | PSH, &[head.as_bytes(), &vec![b'x'; length]].concat());
        self.millis += 1;
        self.up(ACK, b"");
    }

    pub fn close(&mut self) {
        self.up(ACK | FIN, b"");
        self.millis += 20;
        self.down(ACK | FIN, b"");
        self.millis += 1;
        self.up(ACK, b"");
    }
}

/// Values of a connection; arrays are of the client and of the server.
#[derive(Debug)]
pub struct FlowValues {
    pub unique: [u64; 2],
    pub uncaptured: [u64; 2],
    pub in_flight_max: [u32; 2],
    pub packets: u64,
    pub lost: u64,
    pub retransmitted: u32,
    pub refused: u32,
    pub refused_acks: u32,
    pub is_valid: bool,
    pub has_syn: bool,
}

/// Outcome of an analysis.
#[derive(Debug)]
pub struct Rows {
    pub flows: Vec<FlowValues>,
    /// Response times of the requests that were answered.
    pub requests: Vec<Span>,
    /// TCP segments.
    pub segments: u64,
}

/// An IPv4 packet.
pub fn bytes(packet: &Passed) -> Vec<u8> {
    let mut ends = [[192, 0, 2, 1], [198, 51, 100, 1]];
    let mut ports = [40_000_u16, 80];
    if !packet.is_up {
        ends.reverse();
        ports.reverse();
    }
    let mut bytes = vec![0x45, 0];
    bytes.extend((40 + packet.payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend(ends.concat());
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend(packet.numbers.map(u32::to_be_bytes).concat());
    bytes.extend([0x50, packet.flags]);
    bytes.extend(packet.window.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(&packet.payload);
    bytes
}

pub fn analyse(packets: impl IntoIterator<Item = (u64, Vec<u8>)>) -> (Vec<Record>, u64) {
    let mut analysis = Analysis::new(Settings::default());
    let interface =
        Interface { link: LinkType::RAW, snap_length: 0, name: String::new(), dropped: 0 };
    for (millis, bytes) in packets {
        let packet = Packet {
            at: Time::from_millis(millis),
            interface: 0,
            bytes: &bytes,
            length: bytes.len(),
            is_sent: None,
            dropped_before: 0,
            is_out_of_order: false,
        };
        analysis.handle_packet(&interface, &packet);
    }
    analysis.finish();
    let records = std::iter::from_fn(|| analysis.poll()).collect();
    (records, analysis.counters().tcp)
}

pub fn rows(packets: &[Passed]) -> Rows {
    let (records, segments) = analyse(packets.iter().map(|packet| (packet.millis, bytes(packet))));
    let (mut flows, mut requests) = (Vec::new(), Vec::new());
    for record in records {
        match record {
            Record::Tcp(flow) => flows.push((flow.started(), values(&flow))),
            Record::Http(row) => requests.extend(row.transaction.response_time()),
            _ => {}
        }
    }
    flows.sort_by_key(|(started, _)| *started);
    Rows { flows: flows.into_iter().map(|(_, flow)| flow).collect(), requests, segments }
}

pub fn values(flow: &TcpFlow) -> FlowValues {
    let connection = &flow.connection;
    let ends = [Endpoint::Client, Endpoint::Server];
    let stream = |end| connection.stream(end);
    let counts: [Counts; 2] = ends.map(|end| stream(end).map(Stream::counts).unwrap_or_default());
    let lost = counts.map(|counts| u64::from(counts.lost_before) + u64::from(counts.lost_after));
    FlowValues {
        unique: ends.map(|end| stream(end).map_or(0, Stream::unique_bytes)),
        uncaptured: counts.map(|counts| counts.uncaptured),
        in_flight_max: counts.map(|counts| counts.max_in_flight),
        packets: ends.map(|end| connection.packets(end)).into_iter().sum(),
        lost: lost.into_iter().sum(),
        retransmitted: counts.iter().map(|counts| counts.retransmissions.total()).sum(),
        refused: ends.map(|end| connection.refused(end)).into_iter().sum(),
        refused_acks: ends.map(|end| connection.refused_acks(end)).into_iter().sum(),
        is_valid: connection.is_valid(),
        has_syn: connection.handshake().syn.is_some(),
    }
}
