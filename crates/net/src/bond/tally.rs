//! What flows where: the bytes of each stream and flow, path by path.

use std::collections::{BTreeMap, HashMap};

use manyways_proto::mux::{FlowId, Message, Payload, StreamId};
use manyways_proto::sched::PathId;

/// What one path carried: for a stream or a flow its own bytes, all copies counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Bytes that went.
    pub sent: u64,
    /// Bytes that came.
    pub received: u64,
}

/// Shares by path.
pub type Shares = BTreeMap<PathId, Share>;

/// What is counted of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// The streams of a client are numbered, also across sessions.
    pub number: u64,
    /// What the application wrote…
    pub up: u64,
    /// …and what came for it, each byte once.
    pub down: u64,
    /// What was carried for that, by path.
    pub shares: Shares,
    /// When both directions together have so many bytes, somebody wants to know.
    pub(super) ask_at: Option<u64>,
}

/// The counts of a session.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// A gateway has no use for the counts of single streams.
    single: bool,
    next: u64,
    streams: HashMap<StreamId, Counted>,
    flows: HashMap<FlowId, Shares>,
    /// What carriers brought that have ended, in bytes of the connection.
    ended: Shares,
}

impl Counted {
    /// Both directions together.
    pub fn bytes(&self) -> u64 {
        self.up + self.down
    }

    /// Whether somebody wanted to know that there are so many bytes; once.
    fn is_due(&mut self) -> bool {
        self.ask_at.take_if(|at| self.up + self.down >= *at).is_some()
    }
}

impl Tally {
    /// Counts single streams and flows from now on.
    pub(super) fn count_single(&mut self) {
        self.single = true;
    }

    /// A stream begins; its number.
    pub(super) fn begin(&mut self, stream: StreamId) -> u64 {
        let number = self.next;
        if self.single {
            self.next += 1;
            self.streams.insert(stream, Counted { number, ..Counted::default() });
        }
        number
    }

    /// A stream is over.
    pub(super) fn end(&mut self, stream: StreamId) -> Option<Counted> {
        self.streams.remove(&stream)
    }

    pub(super) fn end_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// The application wrote; the stream's number where somebody wants to know.
    pub(super) fn wrote(&mut self, stream: StreamId, bytes: usize) -> Option<u64> {
        let counted = self.streams.get_mut(&stream)?;
        counted.up += bytes as u64;
        counted.is_due().then_some(counted.number)
    }

    /// Bytes came for the application; as above.
    pub(super) fn brought(&mut self, stream: StreamId, bytes: usize) -> Option<u64> {
        let counted = self.streams.get_mut(&stream)?;
        counted.down += bytes as u64;
        counted.is_due().then_some(counted.number)
    }

    /// A message goes.
    pub(super) fn sent<P: Payload>(&mut self, path: PathId, message: &Message<P>) {
        if let Some((shares, bytes)) = self.shares(message) {
            shares.entry(path).or_default().sent += bytes;
        }
    }

    /// A message came.
    pub(super) fn received<P: Payload>(&mut self, path: PathId, message: &Message<P>) {
        if let Some((shares, bytes)) = self.shares(message) {
            shares.entry(path).or_default().received += bytes;
        }
    }

    fn shares<P: Payload>(&mut self, message: &Message<P>) -> Option<(&mut Shares, u64)> {
        if !self.single {
            return None;
        }
        match message {
            Message::Open { stream, data, .. } | Message::Data { stream, data, .. } => {
                Some((&mut self.streams.get_mut(stream)?.shares, data.len() as u64))
            }
            Message::Datagram { flow, data, .. } | Message::Half { flow, data, .. } => {
                Some((self.flows.entry(*flow).or_default(), data.len() as u64))
            }
            _ => None,
        }
    }

    /// A carrier has ended that brought so much.
    pub(super) fn carrier_ended(&mut self, path: PathId, received: u64, sent: u64) {
        let share = self.ended.entry(path).or_default();
        share.received += received;
        share.sent += sent;
    }

    pub(super) fn ended(&self) -> &Shares {
        &self.ended
    }

    pub(super) fn stream(&self, stream: StreamId) -> Option<&Counted> {
        self.streams.get(&stream)
    }

    pub(super) fn flow(&self, flow: FlowId) -> Option<&Shares> {
        self.flows.get(&flow)
    }

    /// Somebody wants to know when a stream has so many bytes.
    pub(super) fn ask_at(&mut self, stream: StreamId, bytes: Option<u64>) {
        if let Some(counted) = self.streams.get_mut(&stream) {
            counted.ask_at = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::carrier::Chunk;
    use super::*;

    const STREAM: StreamId = StreamId(0);

    fn data(bytes: usize) -> Message<Chunk> {
        let data = Chunk(Bytes::from(vec![0; bytes]));
        Message::Data { stream: STREAM, offset: 0, fin: false, data }
    }

    #[test]
    fn copies_count_for_their_paths_and_bytes_once() {
        let mut tally = Tally::default();
        tally.count_single();
        assert_eq!(tally.begin(STREAM), 0);
        tally.ask_at(STREAM, Some(150));
        assert_eq!(tally.wrote(STREAM, 100), None);
        tally.sent(PathId(0), &data(100));
        tally.sent(PathId(1), &data(100));
        tally.received(PathId(1), &data(60));
        assert_eq!(tally.brought(STREAM, 60), Some(0));
        assert_eq!(tally.brought(STREAM, 60), None, "once");
        let counted = tally.end(STREAM).unwrap();
        assert_eq!((counted.up, counted.down), (100, 120));
        assert_eq!(counted.shares[&PathId(0)], Share { sent: 100, received: 0 });
        assert_eq!(counted.shares[&PathId(1)], Share { sent: 100, received: 60 });
        assert_eq!(tally.begin(STREAM), 1, "the same stream of another session is another one");
    }

    #[test]
    fn whoever_has_no_use_for_it_keeps_nothing() {
        let mut tally = Tally::default();
        tally.begin(STREAM);
        tally.sent(PathId(0), &data(100));
        assert_eq!(tally.wrote(STREAM, 100), None);
        assert_eq!(tally.stream(STREAM), None);
    }
}
