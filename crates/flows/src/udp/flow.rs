//! What passes between two ends by UDP.

use manyways_unit::{Size, Span, Time};

use crate::quic;
use manyways_wire::stream::{End, Exchange};
use manyways_wire::udp::Datagram;

/// Where QUIC is most likely.
const HTTPS: u16 = 443;

/// What passed between two ends, from the first datagram to the last.
#[derive(Debug)]
pub struct Flow {
    started: Time,
    last: Time,
    longest_gap: Span,
    sent: [Option<Sent>; 2],
    is_dns: bool,
    quic: Option<Box<quic::Flow>>,
}

/// What an end sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The first datagram.
    pub first: Time,
    /// The last one.
    pub last: Time,
    /// The longest time between two.
    pub longest_gap: Span,
    /// How many there were.
    pub packets: u64,
    /// What they carried.
    pub payload: Size,
    /// With UDP's and IP's headers.
    pub whole: Size,
    /// How many had each value of the two bits that tell of congestion: none, `ECT(1)`, `ECT(0)`,
    /// and the mark.
    pub ecn: [u64; 4],
}

/// What speaks over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// QUIC.
    Quic,
    /// It looks like QUIC in the middle of a connection, and is where QUIC would be; or it began like
    /// a version of QUIC that nobody knows.
    MaybeQuic,
    /// Questions to a name server.
    Dns,
    /// Anything else.
    Unknown,
}

impl Flow {
    /// One of which this datagram passes first.
    pub fn new(now: Time, datagram: &Datagram<'_>) -> Self {
        let first = datagram.payload.first().copied().unwrap_or_default();
        let is_likely = datagram.from == HTTPS || datagram.to == HTTPS;
        // Where QUIC is likely, either form of a header; without the fixed bit the short one is none.
        // Elsewhere a bit says nothing: the first datagram has to be as long as the first one of a
        // client.
        let may_be = match is_likely {
            true => first & 0xc0 != 0,
            false => first & 0x80 != 0 && datagram.length >= quic::FULL,
        };
        let quic = may_be.then(Box::default);
        let (started, last, longest_gap) = (now, now, Span::ZERO);
        Self { started, last, longest_gap, sent: [None; 2], is_dns: false, quic }
    }

    /// A datagram of it is a question to a name server, or an answer to one.
    pub fn speaks_dns(&mut self) {
        (self.is_dns, self.quic) = (true, None);
    }

    /// Which end the sender of a flow's first datagram is: the one that begins, unless only its
    /// port is one of a system's services (RFC 6335, 6).
    pub fn sender(datagram: &Datagram<'_>) -> End {
        const SYSTEM: u16 = 1_024;
        if datagram.from < SYSTEM && datagram.to >= SYSTEM { End::Server } else { End::Client }
    }

    /// A datagram passes, in a packet of that length. What comes back is an exchange that is over
    /// with it.
    pub fn handle(
        &mut self,
        now: Time,
        from: End,
        datagram: &Datagram<'_>,
        length: usize,
        ecn: u8,
    ) -> Option<Exchange> {
        self.longest_gap = self.longest_gap.max(now.since(self.last));
        // Clocks of captures step back.
        self.last = self.last.max(now);
        let sent = self.sent[from as usize].get_or_insert(Sent::nothing(now));
        sent.one(now, datagram.length, length, ecn);

        if self.is_dns {
            return None;
        }
        let (payload, length) = (datagram.payload, datagram.length);
        if self.quic.is_none() && quic::Flow::begins_with(payload, length) {
            // It shares its ports with what opened them.
            self.quic = Some(Box::default());
        }
        let quic = self.quic.as_mut()?;
        let over = quic.handle(now, from, payload, length);
        if quic.is_quic() == Some(false) {
            self.quic = None;
        }
        over
    }

    /// Nothing passes any more: the last exchange is over.
    pub fn end(&mut self) -> Option<Exchange> {
        self.quic.as_mut()?.end()
    }

    /// Whether this datagram of the client begins another flow between the same ports.
    pub fn is_another(&self, datagram: &Datagram<'_>) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.is_another(datagram.payload, datagram.length))
    }

    /// When its first datagram passed.
    pub fn started(&self) -> Time {
        self.started
    }

    /// When its last one did.
    pub fn last(&self) -> Time {
        self.last
    }

    /// The longest time in which nothing passed, from either end.
    pub fn longest_gap(&self) -> Span {
        self.longest_gap
    }

    /// What this end sent; none where none of its datagrams passed.
    pub fn sent(&self, end: End) -> Option<&Sent> {
        self.sent[end as usize].as_ref()
    }

    /// What it speaks.
    pub fn protocol(&self) -> Protocol {
        match self.quic().map(|quic| quic.is_quic()) {
            None if self.is_dns => Protocol::Dns,
            Some(Some(true)) => Protocol::Quic,
            Some(None) => Protocol::MaybeQuic,
            Some(Some(false)) | None => Protocol::Unknown,
        }
    }

    /// What is known where it is QUIC or may be.
    pub fn quic(&self) -> Option<&quic::Flow> {
        self.quic.as_deref()
    }
}

impl Sent {
    fn nothing(now: Time) -> Self {
        Self {
            first: now,
            last: now,
            longest_gap: Span::ZERO,
            packets: 0,
            payload: Size::ZERO,
            whole: Size::ZERO,
            ecn: [0; 4],
        }
    }

    fn one(&mut self, now: Time, payload: usize, whole: usize, ecn: u8) {
        self.longest_gap = self.longest_gap.max(now.since(self.last));
        self.last = self.last.max(now);
        self.packets += 1;
        self.payload += Size::from_bytes(payload as u64);
        self.whole += Size::from_bytes(whole as u64);
        self.ecn[usize::from(ecn & 3)] += 1;
    }
}
