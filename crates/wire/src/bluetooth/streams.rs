//! The streams of a connection.

use std::collections::BTreeMap;

use super::control::{Address, Direction};
use super::stream::{Close, Stream, StreamId};
use super::{Event, Sink};

/// Maximum number of streams of a connection, each direction counted; the least recently used one
/// is evicted first.
pub const MAX_STREAMS: usize = 256;

/// Direction, destination channel ID and DLCI (`None` for the L2CAP channel itself).
pub(super) type Key = (Direction, u16, Option<u8>);

#[derive(Clone, Debug)]
pub(super) struct Streams {
    pub(super) adapter: u16,
    pub(super) handle: u16,
    pub(super) peer: Option<Address>,
    /// Packets that the capture lost, of this connection or of others.
    dropped: u64,
    streams: BTreeMap<Key, Stream>,
}

impl Streams {
    pub(super) fn new(adapter: u16, handle: u16, peer: Option<Address>) -> Self {
        Self { adapter, handle, peer, dropped: 0, streams: BTreeMap::new() }
    }

    pub(super) fn find(&mut self, key: Key) -> Option<&mut Stream> {
        self.streams.get_mut(&key)
    }

    /// Returns the stream, and creates it if necessary.
    pub(super) fn get_or_insert(
        &mut self,
        key: Key,
        psm: Option<u16>,
        out: &mut Sink<'_>,
    ) -> &mut Stream {
        if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&key) {
            let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.last());
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.end(oldest, Close::Evicted, out);
            }
        }
        let Self { adapter, handle, peer, dropped: missed, streams } = self;
        streams.entry(key).or_insert_with(|| {
            let (direction, cid, dlci) = key;
            let number = *out.streams;
            *out.streams += 1;
            let (adapter, handle) = (*adapter, *handle);
            let id = StreamId { number, adapter, handle, cid, dlci, direction };
            Stream::new(out.now, id, *peer, psm, *missed)
        })
    }

    pub(super) fn end(&mut self, key: Key, ending: Close, out: &mut Sink<'_>) {
        if let Some(stream) = self.streams.remove(&key) {
            let summary = stream.end(out.now, ending, self.dropped);
            out.events.push_back(Event::Stream(summary));
        }
    }

    /// Ends a channel: first the RFCOMM streams that it carries, then the channel itself.
    pub(super) fn end_channel(
        &mut self,
        direction: Direction,
        cid: u16,
        ending: Close,
        out: &mut Sink<'_>,
    ) {
        self.end_carried(direction, cid, ending, out);
        self.end((direction, cid, None), ending, out);
    }

    /// Ends all RFCOMM streams that a channel carries.
    pub(super) fn end_carried(
        &mut self,
        direction: Direction,
        cid: u16,
        ending: Close,
        out: &mut Sink<'_>,
    ) {
        let range = (direction, cid, Some(0))..=(direction, cid, Some(u8::MAX));
        let keys: Vec<Key> = self.streams.range(range).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.end(key, ending, out));
    }

    pub(super) fn end_all(mut self, ending: Close, out: &mut Sink<'_>) {
        let keys: Vec<Key> = self.streams.keys().copied().collect();
        keys.into_iter().for_each(|key| self.end(key, ending, out));
    }

    /// Records that the capture lost `count` packets of any stream.
    pub(super) fn on_dropped(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
        self.streams.values_mut().for_each(Stream::forget_credits);
    }
}
