//! Segments whose numbers do not fit their connection, until they turn out to begin another one.
//!
//! A stray packet must not move a stream, so that its segment is held. It counts if later ones agree
//! with it: a SYN with the answer to it, or two consecutive segments in each captured direction. If
//! the numbers of the other endpoint still fit, only this stream continues elsewhere: segments are
//! missing in the capture, or the SYN/ACK was that of another server behind a load balancer.

use manyways_unit::Time;
use manyways_wire::frame::IpPacket;
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::{Flags, Segment, Seq};

/// Maximum number of held packets of an endpoint.
const MAX_HELD_PACKETS: usize = 8;
/// Maximum number of bytes of a held packet.
const MAX_HELD_BYTES: usize = 16 * 1024;
/// Maximum distance between the numbers of segments that agree.
const MAX_DISTANCE: u32 = 1 << 20;
/// Number of consecutive segments that agree.
const AGREEING: u32 = 2;

/// A packet that may belong to the next connection.
#[derive(Clone, Debug)]
pub struct HeldPacket {
    /// Time of its capture.
    pub at: Time,
    /// Without payload.
    packet: IpPacket<'static>,
    payload: Box<[u8]>,
}

/// Segments that do not fit a connection.
#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct Doubts {
    /// Segments of each endpoint that count nowhere.
    refused: [u32; 2],
    /// Segments of each endpoint whose acknowledgment number counts nowhere.
    refused_acks: [u32; 2],
    runs: [Run; 2],
    ack_runs: [AckRun; 2],
}

/// Consecutive segments of an endpoint that agree with each other.
#[derive(Clone, Debug, Default)]
struct Run {
    packets: Vec<HeldPacket>,
    length: u32,
    /// Sequence number after the last one.
    next: Seq,
    ack: Option<Seq>,
    /// Sequence number of a SYN.
    syn: Option<Seq>,
    /// Number of fitting segments of each endpoint before the run.
    fitting: [u64; 2],
}

/// Consecutive acknowledgment numbers of an endpoint that agree with each other.
#[derive(Clone, Copy, Debug, Default)]
struct AckRun {
    ack: Seq,
    length: u32,
    /// Number of fitting segments of the endpoint before the latest one.
    fitting: u64,
}

/// Meaning of a segment that does not fit.
#[derive(Debug)]
pub(in crate::flow) enum Verdict {
    /// Nothing yet.
    Unclear,
    /// These packets are of another connection.
    NewConnection(Vec<HeldPacket>),
    /// The stream of this endpoint continues with these packets.
    Continues(Endpoint, Vec<HeldPacket>),
}

impl HeldPacket {
    pub(in crate::flow) fn new(at: Time, packet: &IpPacket<'_>) -> Self {
        let length = packet.payload.len().min(MAX_HELD_BYTES);
        Self { at, packet: packet.without_payload(), payload: packet.payload[..length].into() }
    }

    /// Returns the packet, whose payload may be truncated.
    pub fn packet(&self) -> IpPacket<'_> {
        IpPacket { payload: &self.payload, ..self.packet }
    }
}

impl Doubts {
    pub fn refused(&self, from: Endpoint) -> u32 {
        self.refused[from as usize]
    }

    pub fn refused_acks(&self, from: Endpoint) -> u32 {
        self.refused_acks[from as usize]
    }

    pub fn has_held(&self) -> bool {
        self.runs.iter().any(|run| !run.packets.is_empty())
    }

    /// Whether a segment is the next one after a held SYN.
    pub fn follows_syn(&self, from: Endpoint, segment: &Segment<'_>) -> bool {
        let run = &self.runs[from as usize];
        run.syn.is_some_and(|syn| syn + 1 == run.next && run.next == segment.seq)
    }

    /// Drops the held packets.
    pub fn release(&mut self) {
        self.runs = Default::default();
    }

    /// Counts a segment that does not fit.
    pub fn refuse(&mut self, from: Endpoint) {
        let count = &mut self.refused[from as usize];
        *count = count.saturating_add(1);
    }

    /// Counts an acknowledgment number that does not fit.
    pub fn refuse_ack(&mut self, from: Endpoint) {
        let count = &mut self.refused_acks[from as usize];
        *count = count.saturating_add(1);
    }

    /// Handles a segment that does not fit. `fitting` are the numbers of fitting segments of both
    /// endpoints so far: an endpoint without any is not captured.
    pub fn on_segment(
        &mut self,
        (now, from): (Time, Endpoint),
        packet: &IpPacket<'_>,
        segment: &Segment<'_>,
        fitting: [u64; 2],
    ) -> Verdict {
        let (held, other) = (HeldPacket::new(now, packet), from.other());
        if self.runs[other as usize].is_answered_by(segment) {
            let mut packets = self.take(other);
            packets.push(held);
            return self.new_connection(packets);
        }
        self.refuse(from);
        if segment.flags.has(Flags::RST) {
            return Verdict::Unclear;
        }
        self.runs[from as usize].add(from, held, segment, fitting);
        let [run, others] = [from, other].map(|end| &self.runs[end as usize]);
        if run.length < AGREEING {
            return Verdict::Unclear;
        }
        let is_captured = fitting[other as usize] > 0;
        if !is_captured || others.length >= AGREEING && run.crosses(others) {
            let packets = [self.take(from), self.take(other)].concat();
            return self.new_connection(packets);
        }
        let acks = self.ack_runs[other as usize];
        match acks.length > 0 && run.is_acked(other, acks.ack, acks.fitting + 1) {
            true => self.continue_stream(from),
            false => Verdict::Unclear,
        }
    }

    /// Handles an acknowledgment number that does not fit, in a segment whose sequence number fits
    /// after `fitting` others. Returns whether the number before agrees with it, and what the held
    /// segments of the other endpoint mean.
    pub fn on_ack(&mut self, from: Endpoint, ack: Seq, fitting: u64) -> (bool, Verdict) {
        let acks = &mut self.ack_runs[from as usize];
        let is_next = acks.length > 0 && acks.fitting + 1 == fitting && is_near(acks.ack, ack);
        *acks = AckRun { ack, length: if is_next { acks.length + 1 } else { 1 }, fitting };
        let (agrees, of) = (acks.length >= AGREEING, from.other());
        let run = &self.runs[of as usize];
        match run.length >= AGREEING && run.is_acked(from, ack, fitting + 1) {
            true => (agrees, self.continue_stream(of)),
            false => {
                self.refuse_ack(from);
                (agrees, Verdict::Unclear)
            }
        }
    }

    fn continue_stream(&mut self, of: Endpoint) -> Verdict {
        let packets = self.take(of);
        self.release();
        Verdict::Continues(of, packets)
    }

    fn new_connection(&mut self, mut packets: Vec<HeldPacket>) -> Verdict {
        packets.sort_by_key(|held| held.at);
        self.release();
        Verdict::NewConnection(packets)
    }

    /// Takes the held packets of an endpoint, which no longer count as refused.
    fn take(&mut self, end: Endpoint) -> Vec<HeldPacket> {
        let packets = std::mem::take(&mut self.runs[end as usize].packets);
        let count = &mut self.refused[end as usize];
        *count = count.saturating_sub(packets.len() as u32);
        packets
    }
}

impl Run {
    /// Adds a segment, or begins again with it.
    fn add(&mut self, from: Endpoint, held: HeldPacket, segment: &Segment<'_>, fitting: [u64; 2]) {
        let ack = segment.flags.has(Flags::ACK).then_some(segment.ack);
        let agrees = self.length > 0
            && self.fitting[from as usize] == fitting[from as usize]
            && is_near(self.next, segment.seq)
            && self.ack.zip(ack).is_none_or(|(before, ack)| is_near(before, ack));
        if !agrees {
            *self = Self { fitting, ..Self::default() };
        }
        self.length = self.length.saturating_add(1);
        (self.next, self.ack) = (segment.end(), ack.or(self.ack));
        if segment.flags.has(Flags::SYN) {
            self.syn = Some(segment.seq);
        }
        if self.packets.len() < MAX_HELD_PACKETS {
            self.packets.push(held);
        }
    }

    /// Whether a segment is the answer of the other endpoint to a SYN.
    fn is_answered_by(&self, segment: &Segment<'_>) -> bool {
        segment.flags.has(Flags::ACK)
            && segment.flags.has(Flags(Flags::SYN.0 | Flags::RST.0))
            && self.ack.is_none()
            && self.syn.is_some_and(|syn| syn + 1 == segment.ack)
    }

    /// Whether the acknowledgment numbers of two runs are those of each other.
    fn crosses(&self, other: &Self) -> bool {
        let acks = |one: &Self, other: &Self| one.ack.is_none_or(|ack| is_near(ack, other.next));
        acks(self, other) && acks(other, self)
    }

    /// Whether a number with which the other endpoint acknowledges belongs to this run, and passed
    /// after it began: `fitting` is the number of its fitting segments, with this one.
    fn is_acked(&self, other: Endpoint, ack: Seq, fitting: u64) -> bool {
        fitting > self.fitting[other as usize] && is_near(ack, self.next)
    }
}

fn is_near(one: Seq, other: Seq) -> bool {
    one.distance_from(other).unsigned_abs() <= MAX_DISTANCE
}
