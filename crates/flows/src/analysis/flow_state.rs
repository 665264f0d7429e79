//! State of a TCP connection for the analysis, in addition to its counters.

use std::num::NonZeroU64;

use manyways_unit::Time;

use super::FlowId;
use super::app_reader::AppReader;
use super::application::AppProperties;
use manyways_wire::stream::Endpoint;

/// Traffic of a connection, independent of its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    ip_bytes: [u64; 2],
    /// Of most connections no packet can be marked.
    ecn: Option<Box<EcnCounts>>,
}

/// How many packets of each end were marked, and could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EcnCounts {
    marked: [u32; 2],
    capable: [u32; 2],
}

/// The bytes of a connection in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Second {
    pub(super) begins: Time,
    pub(super) bytes: [u64; 2],
}

/// State of one connection.
#[derive(Debug, Default)]
pub(super) struct FlowState {
    id: Option<NonZeroU64>,
    pub(super) traffic: Traffic,
    pub(super) second: Option<Second>,
    pub(super) reader: AppReader,
    /// Once there is something to say.
    pub(super) properties: Option<Box<AppProperties>>,
}

impl Traffic {
    /// Bytes of the IP packets that this end sent.
    pub fn ip_bytes(&self, end: Endpoint) -> u64 {
        self.ip_bytes[end as usize]
    }

    /// How many of its packets had a mark of congestion (RFC 3168, 5).
    pub fn marked(&self, end: Endpoint) -> u32 {
        self.ecn.as_ref().map_or(0, |marks| marks.marked[end as usize])
    }

    /// How many could be marked.
    pub fn ecn_capable(&self, end: Endpoint) -> u32 {
        self.ecn.as_ref().map_or(0, |marks| marks.capable[end as usize])
    }

    pub(super) fn add(&mut self, from: Endpoint, bytes: usize, ecn: u8) {
        self.ip_bytes[from as usize] += bytes as u64;
        if ecn != 0 {
            let marks = self.ecn.get_or_insert_default();
            marks.marked[from as usize] += u32::from(ecn == 3);
            marks.capable[from as usize] += 1;
        }
    }
}

const SECOND: u64 = 1_000_000_000;

impl FlowState {
    /// Its number, once it was made.
    pub(super) fn id(&self) -> Option<FlowId> {
        self.id.map(|id| FlowId(id.get()))
    }

    /// Its number, which is made of its ends and its beginning at first.
    pub(super) fn id_or_insert(&mut self, make: impl FnOnce() -> FlowId) -> FlowId {
        if let Some(id) = self.id() {
            return id;
        }
        let id = make();
        self.id = NonZeroU64::new(id.0);
        id
    }

    /// Counts payload. Returns the previous second once it is over, or if
    /// the clock has stepped back before it.
    pub(super) fn count_payload(
        &mut self,
        now: Time,
        from: Endpoint,
        bytes: u32,
    ) -> Option<Second> {
        // The difference wraps if the clock has stepped back.
        if let Some(second) = &mut self.second
            && now.as_nanos().wrapping_sub(second.begins.as_nanos()) < SECOND
        {
            second.bytes[from as usize] += u64::from(bytes);
            return None;
        }
        let start = Time::from_nanos(now.as_nanos() / SECOND * SECOND);
        let fresh = Second { begins: start, bytes: [0; 2] };
        let over = self.second.take();
        self.second.get_or_insert(fresh).bytes[from as usize] += u64::from(bytes);
        over
    }
}
