//! How many bytes flowed where: of each stream and datagram flow, path by path.

use std::collections::{BTreeMap, HashMap};

use manyways_proto::bond::path::PathBytes;
use manyways_proto::mux::{FlowId, Message, Payload, StreamId};
use manyways_proto::sched::PathId;

/// Bytes by path. Those of a stream or a flow are the application's, all copies counted.
pub(super) type BytesByPath = BTreeMap<PathId, PathBytes>;

/// What is counted of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct StreamTotals {
    /// Its number among all streams of the client, also across sessions.
    pub(super) number: u64,
    /// What the application wrote.
    pub(super) up: u64,
    /// What came for the application, each byte once.
    pub(super) down: u64,
    /// What was carried for that.
    pub(super) paths: BytesByPath,
    /// The number of bytes, both directions together, at which the policy is asked again.
    threshold: Option<u64>,
}

/// The counts of a session.
#[derive(Debug, Default)]
pub(super) struct FlowCounters {
    /// A gateway has no use for the counts of single streams and flows.
    counts_streams: bool,
    next: u64,
    streams: HashMap<StreamId, StreamTotals>,
    flows: HashMap<FlowId, BytesByPath>,
    /// What carriers brought that have ended, in bytes of their connections.
    closed_carriers: BytesByPath,
}

impl StreamTotals {
    /// Both directions together.
    pub(super) fn bytes(&self) -> u64 {
        self.up + self.down
    }

    /// Whether the threshold is reached; once.
    fn take_threshold(&mut self) -> bool {
        self.threshold.take_if(|at| self.up + self.down >= *at).is_some()
    }
}

impl FlowCounters {
    /// Counts single streams and flows from now on.
    pub(super) fn count_streams(&mut self) {
        self.counts_streams = true;
    }

    /// A stream begins. Returns its number.
    pub(super) fn begin(&mut self, stream: StreamId) -> u64 {
        let number = self.next;
        if self.counts_streams {
            self.next += 1;
            self.streams.insert(stream, StreamTotals { number, ..StreamTotals::default() });
        }
        number
    }

    /// A stream is over.
    pub(super) fn end(&mut self, stream: StreamId) -> Option<StreamTotals> {
        self.streams.remove(&stream)
    }

    /// A datagram flow is over.
    pub(super) fn end_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// The application wrote. Returns the stream's number where its threshold is reached.
    pub(super) fn on_written(&mut self, stream: StreamId, bytes: usize) -> Option<u64> {
        let totals = self.streams.get_mut(&stream)?;
        totals.up += bytes as u64;
        totals.take_threshold().then_some(totals.number)
    }

    /// Bytes came for the application. Returns the same.
    pub(super) fn on_delivered(&mut self, stream: StreamId, bytes: usize) -> Option<u64> {
        let totals = self.streams.get_mut(&stream)?;
        totals.down += bytes as u64;
        totals.take_threshold().then_some(totals.number)
    }

    /// A message goes over a path.
    pub(super) fn on_sent<P: Payload>(&mut self, path: PathId, message: &Message<P>) {
        if let Some((paths, bytes)) = self.paths_of(message) {
            paths.entry(path).or_default().sent += bytes;
        }
    }

    /// A message came over a path.
    pub(super) fn on_received<P: Payload>(&mut self, path: PathId, message: &Message<P>) {
        if let Some((paths, bytes)) = self.paths_of(message) {
            paths.entry(path).or_default().received += bytes;
        }
    }

    /// The counts that a message belongs to, and its bytes.
    fn paths_of<P: Payload>(&mut self, message: &Message<P>) -> Option<(&mut BytesByPath, u64)> {
        if !self.counts_streams {
            return None;
        }
        match message {
            Message::Open { stream, data, .. } | Message::Data { stream, data, .. } => {
                Some((&mut self.streams.get_mut(stream)?.paths, data.len() as u64))
            }
            Message::Datagram { flow, data, .. } | Message::Half { flow, data, .. } => {
                Some((self.flows.entry(*flow).or_default(), data.len() as u64))
            }
            _ => None,
        }
    }

    /// A carrier has ended whose connection brought this many bytes.
    pub(super) fn on_carrier_closed(&mut self, path: PathId, received: u64, sent: u64) {
        let bytes = self.closed_carriers.entry(path).or_default();
        bytes.received += received;
        bytes.sent += sent;
    }

    pub(super) fn closed_carriers(&self) -> &BytesByPath {
        &self.closed_carriers
    }

    pub(super) fn stream(&self, stream: StreamId) -> Option<&StreamTotals> {
        self.streams.get(&stream)
    }

    pub(super) fn flow(&self, flow: FlowId) -> Option<&BytesByPath> {
        self.flows.get(&flow)
    }

    /// The policy is to be asked again when a stream has this many bytes.
    pub(super) fn set_threshold(&mut self, stream: StreamId, bytes: Option<u64>) {
        if let Some(totals) = self.streams.get_mut(&stream) {
            totals.threshold = bytes;
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
        let mut counters = FlowCounters::default();
        counters.count_streams();
        assert_eq!(counters.begin(STREAM), 0);
        counters.set_threshold(STREAM, Some(150));
        assert_eq!(counters.on_written(STREAM, 100), None);
        counters.on_sent(PathId(0), &data(100));
        counters.on_sent(PathId(1), &data(100));
        counters.on_received(PathId(1), &data(60));
        assert_eq!(counters.on_delivered(STREAM, 60), Some(0));
        assert_eq!(counters.on_delivered(STREAM, 60), None, "once");
        let totals = counters.end(STREAM).unwrap();
        assert_eq!((totals.up, totals.down), (100, 120));
        assert_eq!(totals.paths[&PathId(0)], PathBytes { sent: 100, received: 0 });
        assert_eq!(totals.paths[&PathId(1)], PathBytes { sent: 100, received: 60 });
        assert_eq!(counters.begin(STREAM), 1, "the same number in another session");
    }

    #[test]
    fn a_gateway_keeps_no_counts_of_streams() {
        let mut counters = FlowCounters::default();
        counters.begin(STREAM);
        counters.on_sent(PathId(0), &data(100));
        assert_eq!(counters.on_written(STREAM, 100), None);
        assert_eq!(counters.stream(STREAM), None);
    }
}
