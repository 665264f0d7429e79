//! One UDP flow.

use manyways_unit::{Size, Span, Time};

use crate::quic;
use manyways_wire::stream::{Endpoint, Exchange};
use manyways_wire::udp::Datagram;

/// The port on which QUIC is most likely.
const HTTPS_PORT: u16 = 443;

/// State of a UDP flow.
#[derive(Debug)]
pub struct Flow {
    /// Time of the first datagram in the capture, which is not always the earliest one.
    first: Time,
    started: Time,
    last: Time,
    longest_gap: Span,
    sent: [Option<SenderStats>; 2],
    is_dns: bool,
    quic: Option<Box<quic::Flow>>,
}

/// Counters of one endpoint's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderStats {
    /// Time of the first datagram.
    pub first: Time,
    /// Time of the last datagram.
    pub last: Time,
    /// Longest time between two datagrams.
    pub longest_gap: Span,
    /// Number of datagrams.
    pub packets: u64,
    /// Bytes of payload.
    pub payload: Size,
    /// Bytes including UDP and IP headers.
    pub ip_size: Size,
    /// Packets by ECN codepoint (RFC 3168, 5): `Not-ECT`, `ECT(1)`, `ECT(0)`, `CE`.
    pub ecn: [u64; 4],
}

/// Protocol over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Quic,
    /// Looks like the middle of a QUIC connection on the port of QUIC, or began like an unknown
    /// version of QUIC.
    MaybeQuic,
    /// DNS.
    Dns,
    /// Any other protocol.
    Unknown,
}

impl Flow {
    /// Creates a flow with its first datagram.
    pub fn new(now: Time, datagram: &Datagram<'_>) -> Self {
        let first = datagram.payload.first().copied().unwrap_or_default();
        let is_likely =
            datagram.source_port == HTTPS_PORT || datagram.destination_port == HTTPS_PORT;
        // On the port of QUIC, either header form may be QUIC; a short header must have the fixed
        // bit. On other ports a single bit proves nothing: the first datagram must be as long as
        // the first datagram of a client.
        let may_be = match is_likely {
            true => first & 0xc0 != 0,
            false => first & 0x80 != 0 && datagram.length >= quic::MIN_INITIAL_DATAGRAM,
        };
        let may_be = may_be || quic::Flow::is_start(datagram.payload, datagram.length);
        let quic = may_be.then(Box::default);
        let (started, last, longest_gap) = (now, now, Span::ZERO);
        Self { first: now, started, last, longest_gap, sent: [None; 2], is_dns: false, quic }
    }

    /// Marks the flow as DNS.
    pub fn mark_dns(&mut self) {
        (self.is_dns, self.quic) = (true, None);
    }

    /// Returns the role of the sender of a flow's first datagram: the client, unless only its port
    /// is a system port (RFC 6335, 6).
    pub fn sender(datagram: &Datagram<'_>) -> Endpoint {
        const SYSTEM: u16 = 1_024;
        if datagram.source_port < SYSTEM && datagram.destination_port >= SYSTEM {
            Endpoint::Server
        } else {
            Endpoint::Client
        }
    }

    /// Handles a datagram in a packet of the given length. Returns an exchange that this datagram
    /// ends.
    pub fn handle(
        &mut self,
        now: Time,
        from: Endpoint,
        datagram: &Datagram<'_>,
        length: usize,
        ecn: u8,
    ) -> Option<Exchange> {
        self.longest_gap = self.longest_gap.max(now.since(self.last));
        // Clocks of captures may step back.
        (self.started, self.last) = (self.started.min(now), self.last.max(now));
        let sent = self.sent[from as usize].get_or_insert(SenderStats::new(now));
        sent.add(now, datagram.length, length, ecn);

        if self.is_dns {
            return None;
        }
        let (payload, length) = (datagram.payload, datagram.length);
        if self.quic.is_none() && quic::Flow::is_start(payload, length) {
            // Another protocol used the ports first.
            self.quic = Some(Box::default());
        }
        let quic = self.quic.as_mut()?;
        let over = quic.handle(now, from, payload, length);
        if quic.is_quic() == Some(false) {
            self.quic = None;
        }
        over
    }

    /// Ends the flow and returns the last exchange.
    pub fn end(&mut self) -> Option<Exchange> {
        self.quic.as_mut()?.end()
    }

    /// Whether this datagram of the client begins another flow between the same ports.
    pub fn is_new_flow(&self, datagram: &Datagram<'_>) -> bool {
        self.quic
            .as_ref()
            .is_some_and(|quic| quic.is_new_connection(datagram.payload, datagram.length))
    }

    /// Time of the first datagram in the capture: a part of the flow's identity.
    pub fn first(&self) -> Time {
        self.first
    }

    /// Time of the earliest datagram.
    pub fn started(&self) -> Time {
        self.started
    }

    /// Time of the latest datagram.
    pub fn last(&self) -> Time {
        self.last
    }

    /// The longest time without a datagram of either endpoint.
    pub fn longest_gap(&self) -> Span {
        self.longest_gap
    }

    /// `None` if the capture has no datagram of this endpoint.
    pub fn sent(&self, end: Endpoint) -> Option<&SenderStats> {
        self.sent[end as usize].as_ref()
    }

    pub fn protocol(&self) -> Protocol {
        match self.quic().map(|quic| quic.is_quic()) {
            None if self.is_dns => Protocol::Dns,
            Some(Some(true)) => Protocol::Quic,
            Some(None) => Protocol::MaybeQuic,
            Some(Some(false)) | None => Protocol::Unknown,
        }
    }

    /// Returns the state of QUIC. `None` if the flow cannot be QUIC.
    pub fn quic(&self) -> Option<&quic::Flow> {
        self.quic.as_deref()
    }
}

impl SenderStats {
    fn new(now: Time) -> Self {
        Self {
            first: now,
            last: now,
            longest_gap: Span::ZERO,
            packets: 0,
            payload: Size::ZERO,
            ip_size: Size::ZERO,
            ecn: [0; 4],
        }
    }

    fn add(&mut self, now: Time, payload: usize, whole: usize, ecn: u8) {
        self.longest_gap = self.longest_gap.max(now.since(self.last));
        (self.first, self.last) = (self.first.min(now), self.last.max(now));
        self.packets += 1;
        self.payload += Size::from_bytes(payload as u64);
        self.ip_size += Size::from_bytes(whole as u64);
        self.ecn[usize::from(ecn & 3)] += 1;
    }
}
