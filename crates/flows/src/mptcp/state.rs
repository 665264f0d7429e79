//! State of an active MPTCP connection.

use std::collections::HashSet;

use manyways_unit::Time;

use super::connection::{Advertised, Connection, Fallback, Role, Subflow};
use super::connections::FlowSummary;
use super::key::{self, DerivedValues};
use super::ranges::Ranges;
use manyways_wire::mptcp::{AddAddress, Capable, Dss, Join, Mapping, Subtype};
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::{Flags, Segment};

/// Maximum number of stored addresses per connection.
pub const MAX_ADDRESSES: usize = 16;

/// State of an active connection. Arrays are indexed by the connection's endpoints.
#[derive(Debug, Default)]
pub(super) struct State {
    pub id: u64,
    pub last: Time,
    /// Version in the SYN, and later the negotiated one.
    version: Option<u8>,
    is_negotiated: bool,
    keys: [Option<u64>; 2],
    derived: [Option<DerivedValues>; 2],
    /// Tokens of endpoints that received joins but whose keys did not pass.
    pub join_tokens: [Option<u32>; 2],
    pub subflows: Vec<OpenSubflow>,
    /// Flows beyond the limit of subflows.
    pub ignored: HashSet<u64>,
    fallback: Option<Fallback>,
    data: [Ranges; 2],
    reinjected: [u64; 2],
    addresses: Vec<Advertised>,
    /// Number of addresses beyond [`MAX_ADDRESSES`].
    pub dropped: u64,
}

/// A subflow that is active, or is stored until its connection ends.
#[derive(Debug)]
pub(super) struct OpenSubflow {
    pub row: Subflow,
    pub has_ended: bool,
    /// Latest backup flag of each endpoint.
    backup: [bool; 2],
    /// Data sequence numbers that each endpoint mapped in this subflow.
    mapped: [Ranges; 2],
    /// Whether each endpoint sent an MPTCP option; for the initiator, after its SYN.
    sent_option: [bool; 2],
    sent_after_syn: bool,
    /// Whether options of each endpoint were not captured completely.
    truncated: [bool; 2],
    /// Token and nonce of a join's SYN.
    pub join_request: Option<(u32, u32)>,
}

impl OpenSubflow {
    pub(super) fn new(now: Time, flow: u64, is_reversed: bool) -> Self {
        let row = Subflow {
            flow,
            role: Role::Unknown,
            is_reversed,
            addresses: [None; 2],
            started: now,
            handshake: None,
            is_accepted: None,
            is_verified: None,
            is_backup: false,
            bytes: [None; 2],
            mapped: [None; 2],
            reset: None,
        };
        Self {
            row,
            has_ended: false,
            backup: [false; 2],
            mapped: Default::default(),
            sent_option: [false; 2],
            sent_after_syn: false,
            truncated: [false; 2],
            join_request: None,
        }
    }

    /// Maps an endpoint of the flow to the endpoint of the connection, and vice versa.
    pub(super) fn to_connection_end(&self, end: Endpoint) -> Endpoint {
        if self.row.is_reversed { end.other() } else { end }
    }

    /// The endpoint that initiated the subflow.
    fn initiator(&self) -> Endpoint {
        self.to_connection_end(Endpoint::Client)
    }

    /// Reverses the roles of the subflow.
    pub(super) fn reverse(&mut self) {
        self.row.is_reversed = !self.row.is_reversed;
        self.row.addresses.swap(0, 1);
        self.backup.swap(0, 1);
        self.mapped.swap(0, 1);
        self.sent_option.swap(0, 1);
        self.truncated.swap(0, 1);
    }

    /// Handles incomplete options of an endpoint of the flow.
    pub(super) fn on_truncated_options(&mut self, from: Endpoint) {
        self.truncated[self.to_connection_end(from) as usize] = true;
    }

    fn set_backup(&mut self, from: Endpoint, is_backup: bool) {
        self.backup[from as usize] = is_backup;
        self.row.is_backup = self.backup.contains(&true);
    }

    /// Stores the properties of the flow at its end.
    fn on_end(&mut self, summary: &FlowSummary) {
        let handshake = summary.handshake;
        self.has_ended = true;
        self.row.started = self.row.started.min(summary.started);
        self.row.handshake = Some(handshake);
        let answerer = self.initiator().other() as usize;
        self.row.is_accepted = match self.sent_option[answerer] {
            false if self.truncated[answerer] => None,
            spoke => handshake.syn_ack.map(|_| spoke),
        };
        for end in [Endpoint::Client, Endpoint::Server] {
            self.row.bytes[self.to_connection_end(end) as usize] = summary.bytes[end as usize];
        }
        // If only a SYN passed, both endpoints sent 0 bytes; otherwise the server's bytes of an
        // unanswered join would be unknown, and with them each share.
        let [asked, answered] = summary.bytes;
        let is_bare =
            handshake.syn.is_some() && handshake.syn_ack.is_none() && !self.sent_after_syn;
        if is_bare && asked.unwrap_or(0) == 0 && answered.is_none() {
            self.row.bytes = [Some(0); 2];
        }
    }
}

impl State {
    pub(super) fn new(id: u64, now: Time) -> Self {
        Self { id, last: now, ..Self::default() }
    }

    pub(super) fn open_subflow(&mut self, flow: u64) -> Option<&mut OpenSubflow> {
        self.subflows.iter_mut().find(|open| open.row.flow == flow)
    }

    /// Returns the tokens of the endpoints whose keys passed.
    pub(super) fn tokens(&self) -> [Option<u32>; 2] {
        self.derived.map(|hashed| hashed.map(|hashed| hashed.token))
    }

    /// Whether `hmac` is the correct response to a join by `asker`. `None` if a key is unknown.
    pub(super) fn verify_join(&self, asker: Endpoint, nonces: [u32; 2], hmac: u64) -> Option<bool> {
        let version = self.version.filter(|_| self.is_negotiated)?;
        let [own, others] = [asker.other(), asker].map(|end| self.keys[end as usize]);
        Some(key::syn_ack_hmac(version, [own?, others?], nonces) == hmac)
    }

    /// Handles an option in a subflow of this connection.
    pub(super) fn handle(
        &mut self,
        flow: u64,
        from: Endpoint,
        segment: &Segment<'_>,
        option: &Subtype<'_>,
    ) {
        let is_syn = segment.flags.has(Flags::SYN);
        let Some(open) = self.open_subflow(flow) else { return };
        let from = open.to_connection_end(from);
        open.sent_option[from as usize] = true;
        open.sent_after_syn |= !is_syn && from == open.initiator();
        match option {
            Subtype::Capable(said) => self.on_capable(flow, from, is_syn, said),
            Subtype::Join(join) => self.on_join(flow, from, join),
            Subtype::Dss(sequence) => self.on_mapping(flow, from, sequence),
            Subtype::AddAddress(added) => self.on_add_address(from, added),
            Subtype::RemoveAddress(ids) => {
                let gone = |known: &&mut Advertised| known.end == from && ids.contains(&known.id);
                self.addresses.iter_mut().filter(gone).for_each(|known| known.is_withdrawn = true);
            }
            Subtype::Priority { is_backup, address } => {
                for open in &mut self.subflows {
                    let own = open.row.addresses[from as usize];
                    if address.map_or(open.row.flow == flow, |address| own == Some(address)) {
                        open.set_backup(from, *is_backup);
                    }
                }
            }
            // With a reset, it ends only this subflow (RFC 8684, 3.7).
            Subtype::Fail(_) if !segment.flags.has(Flags::RST) => self.fall_back(Fallback::Fail),
            Subtype::Reset { reason, .. } => open.row.reset = open.row.reset.or(Some(*reason)),
            Subtype::Fail(_) | Subtype::FastClose(_) | Subtype::Other(_) => {}
        }
    }

    /// Handles the end of a subflow. Returns whether all have ended.
    pub(super) fn on_flow_end(&mut self, flow: u64, summary: &FlowSummary) -> bool {
        if let Some(open) = self.open_subflow(flow) {
            open.on_end(summary);
            let row = &open.row;
            let fallback = match (row.role, row.is_accepted, summary.handshake.completed) {
                (Role::Primary, Some(false), _) => Some(Fallback::Refused),
                (Role::Primary, Some(true), Some(_))
                    if !open.sent_after_syn && !open.truncated[open.initiator() as usize] =>
                {
                    Some(Fallback::Unconfirmed)
                }
                _ => None,
            };
            fallback.into_iter().for_each(|fallback| self.fall_back(fallback));
        }
        self.subflows.iter().all(|open| open.has_ended)
    }

    pub(super) fn into_row(self) -> Connection {
        let is_complete = self.subflows.iter().all(|open| open.has_ended);
        let tokens = self.tokens();
        let subflows = self.subflows.into_iter().map(|open| {
            let mapped = open.mapped.map(|ranges| ranges.count());
            Subflow { mapped, ..open.row }
        });
        Connection {
            id: self.id,
            version: self.version,
            tokens: [0, 1].map(|end: usize| tokens[end].or(self.join_tokens[end])),
            subflows: subflows.collect(),
            fallback: self.fallback,
            reinjected: [0, 1]
                .map(|end: usize| self.data[end].count().map(|_| self.reinjected[end])),
            data: self.data.map(|ranges| ranges.count()),
            addresses: self.addresses,
            is_complete,
        }
    }

    fn on_capable(&mut self, flow: u64, from: Endpoint, is_syn: bool, said: &Capable) {
        if let Some(open) = self.open_subflow(flow).filter(|open| open.row.role == Role::Unknown) {
            open.row.role = Role::Primary;
        }
        // The server may select a lower version than that of the SYN.
        if !self.is_negotiated {
            self.version = Some(said.version);
            self.is_negotiated = from == Endpoint::Server || said.peer_key.is_some();
        }
        for (end, key) in [(from, said.key), (from.other(), said.peer_key)] {
            let known = &mut self.keys[end as usize];
            *known = known.or(key);
        }
        if let Some(version) = self.version.filter(|_| self.is_negotiated) {
            for (hashed, key) in self.derived.iter_mut().zip(self.keys) {
                *hashed = hashed.or_else(|| key.map(|key| key::derive_values(version, key)));
            }
        }
        // The first bytes of a client of version 1 have no other mapping (RFC 8684, 3.1).
        let first = self.derived[from as usize].map(|hashed| hashed.idsn as u32);
        if let Some((first, length)) = first.zip(said.length).filter(|_| !is_syn) {
            self.add_mapping(flow, from, first, length.into());
        }
    }

    fn on_join(&mut self, flow: u64, from: Endpoint, join: &Join) {
        let Some(open) = self.open_subflow(flow) else { return };
        if open.row.role == Role::Unknown {
            open.row.role = Role::Joined;
        }
        let (Join::Syn { is_backup, address, .. } | Join::SynAck { is_backup, address, .. }) = join
        else {
            return;
        };
        open.row.addresses[from as usize] = Some(*address);
        open.set_backup(from, *is_backup);
    }

    fn on_mapping(&mut self, flow: u64, from: Endpoint, said: &Dss) {
        let Some(Mapping { data, length, .. }) = said.mapping else { return };
        if length == 0 {
            self.fall_back(Fallback::InfiniteMapping);
            return;
        }
        // DATA_FIN occupies a number, too.
        let length = u64::from(length) - u64::from(said.is_data_fin);
        self.add_mapping(flow, from, data.low(), length);
    }

    fn add_mapping(&mut self, flow: u64, from: Endpoint, data: u32, length: u64) {
        let Some(open) = self.open_subflow(flow) else { return };
        let in_subflow = open.mapped[from as usize].add(data, length);
        let in_connection = self.data[from as usize].add(data, length);
        // Bytes that are new only in this subflow were mapped in another one.
        if let Some((here, anywhere)) = in_subflow.zip(in_connection) {
            self.reinjected[from as usize] += here.saturating_sub(anywhere);
        }
    }

    fn on_add_address(&mut self, from: Endpoint, added: &AddAddress<'_>) {
        let AddAddress { is_echo, id, address, port, .. } = *added;
        if is_echo {
            return;
        }
        let is_same = |known: &&mut Advertised| {
            known.end == from && (known.id, known.address) == (id, address)
        };
        if let Some(known) = self.addresses.iter_mut().find(is_same) {
            (known.port, known.is_withdrawn) = (port, false);
        } else if self.addresses.len() < MAX_ADDRESSES {
            self.addresses.push(Advertised { end: from, id, address, port, is_withdrawn: false });
        } else {
            self.dropped += 1;
        }
    }

    /// Records the reason of a fallback; the first reason stays.
    fn fall_back(&mut self, why: Fallback) {
        self.fallback = self.fallback.or(Some(why));
    }
}
