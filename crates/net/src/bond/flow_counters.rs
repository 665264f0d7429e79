//! Byte counters of streams and datagram flows, by path.

use std::collections::{BTreeMap, HashMap};

use manyways_proto::bond::path::PathBytes;
use manyways_proto::mux::{FlowId, Message, Payload, StreamId};
use manyways_proto::sched::PathId;

/// Bytes by path. The counts of a stream or flow are payload bytes, with all copies.
pub(super) type BytesByPath = BTreeMap<PathId, PathBytes>;

/// Byte counters of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct StreamTotals {
    /// Number among all streams of the client, across sessions.
    pub(super) number: u64,
    /// Bytes that the application wrote.
    pub(super) up: u64,
    /// Bytes that were delivered to the application, each counted once.
    pub(super) down: u64,
    /// Payload bytes that each path carried, with all copies.
    pub(super) paths: BytesByPath,
    /// Bytes, both directions together, at which the policy decides again.
    threshold: Option<u64>,
}

/// The byte counters of a session.
#[derive(Debug, Default)]
pub(super) struct FlowCounters {
    /// False at a gateway, which does not use the counters of single streams and flows.
    counts_streams: bool,
    next_number: u64,
    streams: HashMap<StreamId, StreamTotals>,
    flows: HashMap<FlowId, BytesByPath>,
    /// Encrypted bytes of the connections of closed carriers.
    closed_carriers: BytesByPath,
}

impl StreamTotals {
    /// Returns the bytes of both directions together.
    pub(super) fn bytes(&self) -> u64 {
        self.up + self.down
    }

    /// Returns true once, when the threshold is reached.
    fn take_threshold(&mut self) -> bool {
        self.threshold.take_if(|at| self.up + self.down >= *at).is_some()
    }
}

impl FlowCounters {
    /// Enables the counters of single streams and flows.
    pub(super) fn count_streams(&mut self) {
        self.counts_streams = true;
    }

    /// Adds a stream and returns its number.
    pub(super) fn begin(&mut self, stream: StreamId) -> u64 {
        let number = self.next_number;
        if self.counts_streams {
            self.next_number += 1;
            self.streams.insert(stream, StreamTotals { number, ..StreamTotals::default() });
        }
        number
    }

    /// Removes a stream and returns its counters.
    pub(super) fn end(&mut self, stream: StreamId) -> Option<StreamTotals> {
        self.streams.remove(&stream)
    }

    pub(super) fn end_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// Counts bytes that the application wrote. Returns the stream's number if its threshold is
    /// reached.
    pub(super) fn on_written(&mut self, stream: StreamId, bytes: usize) -> Option<u64> {
        let totals = self.streams.get_mut(&stream)?;
        totals.up += bytes as u64;
        totals.take_threshold().then_some(totals.number)
    }

    /// Counts bytes delivered to the application. Returns the stream's number if its threshold is
    /// reached.
    pub(super) fn on_delivered(&mut self, stream: StreamId, bytes: usize) -> Option<u64> {
        let totals = self.streams.get_mut(&stream)?;
        totals.down += bytes as u64;
        totals.take_threshold().then_some(totals.number)
    }

    /// Counts a message sent over a path.
    pub(super) fn on_sent<P: Payload>(&mut self, path: PathId, message: &Message<P>) {
        if let Some((paths, bytes)) = self.paths_of(message) {
            paths.entry(path).or_default().sent += bytes;
        }
    }

    /// Counts a message received over a path.
    pub(super) fn on_received<P: Payload>(&mut self, path: PathId, message: &Message<P>) {
        if let Some((paths, bytes)) = self.paths_of(message) {
            paths.entry(path).or_default().received += bytes;
        }
    }

    /// Returns the counters for a message, and its payload bytes.
    fn paths_of<P: Payload>(&mut self, message: &Message<P>) -> Option<(&mut BytesByPath, u64)> {
        if !self.counts_streams {
            return None;
        }
        match message {
            Message::Open { stream, data, .. } | Message::Data { stream, data, .. } => {
                Some((&mut self.streams.get_mut(stream)?.paths, data.len() as u64))
            }
            Message::Datagram { flow, data, .. } | Message::Part { flow, data, .. } => {
                Some((self.flows.entry(*flow).or_default(), data.len() as u64))
            }
            _ => None,
        }
    }

    /// Adds the encrypted bytes of a closed carrier.
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

    /// Sets the bytes of a stream at which the policy decides again; `None` disables the threshold.
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
