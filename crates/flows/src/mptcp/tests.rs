mod fallback;
mod joins;
mod limits;
mod options;

use manyways_unit::{Span, Time};
use proptest::prelude::*;

use super::key::{derive_values, syn_ack_hmac};
use super::*;
use crate::flow::Handshake;
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::Segment;

const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const RST: u8 = 0x14;
const KEYS: [u64; 2] = [0x0102_0304_0506_0708, 0xa1b2_c3d4_e5f6_0718];
const NONCES: [u32; 2] = [0x1111_1111, 0x2222_2222];

fn option(first: u8, rest: &[&[u8]]) -> Vec<u8> {
    let rest = rest.concat();
    [&[30, rest.len() as u8 + 3, first], &rest[..]].concat()
}

fn capable(version: u8, keys: &[u64], length: Option<u16>) -> Vec<u8> {
    let keys: Vec<u8> = keys.iter().flat_map(|key| key.to_be_bytes()).collect();
    let length: Vec<u8> = length.iter().flat_map(|length| length.to_be_bytes()).collect();
    option(version, &[&[0x01], &keys, &length])
}

fn join_syn(token: u32) -> Vec<u8> {
    option(0x10, &[&[7], &token.to_be_bytes(), &NONCES[0].to_be_bytes()])
}

/// The SYN/ACK option of a join; `keys` are those of the client and of the server.
fn join_syn_ack(version: u8, [asker, own]: [u64; 2]) -> Vec<u8> {
    let hash = syn_ack_hmac(version, [own, asker], [NONCES[1], NONCES[0]]);
    option(0x10, &[&[9], &hash.to_be_bytes(), &NONCES[1].to_be_bytes()])
}

/// A mapping with data sequence numbers of 8 bytes.
fn mapping(data: u64, subflow: u32, length: u16) -> Vec<u8> {
    let numbers = [&data.to_be_bytes()[..], &subflow.to_be_bytes(), &length.to_be_bytes()];
    option(0x20, &[&[0x0c], &numbers.concat()])
}

fn segment_bytes(flags: u8, options: &[Vec<u8>]) -> Vec<u8> {
    let mut options = options.concat();
    options.resize(options.len().next_multiple_of(4), 1);
    let header = ((20 + options.len()) << 2) as u8;
    [&[0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, header, flags, 1, 0, 0, 0, 0, 0], &options[..]].concat()
}

/// Connections with a virtual clock.
struct Harness {
    connections: Connections,
    millis: u64,
}

impl Harness {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self { connections: Connections::new(limits), millis: 1_000 }
    }

    fn now(&self) -> Time {
        Time::from_millis(self.millis)
    }

    /// Passes a segment, 10 ms after the previous one.
    fn pass(&mut self, flow: u64, from: Endpoint, flags: u8, options: &[Vec<u8>]) {
        self.pass_cut(flow, from, flags, options, 0);
    }

    fn pass_cut(&mut self, flow: u64, from: Endpoint, flags: u8, options: &[Vec<u8>], cut: usize) {
        let bytes = segment_bytes(flags, options);
        let segment = Segment::read(&bytes[..bytes.len() - cut], bytes.len()).unwrap();
        self.millis += 10;
        self.connections.handle(self.now(), flow, from, &segment);
    }

    /// Passes the complete handshake of a connection's primary subflow.
    fn begins(&mut self, flow: u64, version: u8, keys: [u64; 2]) {
        let first: &[u64] = if version == 0 { &keys[..1] } else { &[] };
        self.pass(flow, Endpoint::Client, SYN, &[capable(version, first, None)]);
        self.pass(flow, Endpoint::Server, SYN_ACK, &[capable(version, &keys[1..], None)]);
        self.pass(flow, Endpoint::Client, ACK, &[capable(version, &keys, None)]);
    }

    /// Passes the complete handshake of a joined subflow between the owners of these keys.
    fn joins(&mut self, flow: u64, version: u8, keys: [u64; 2]) {
        self.pass(flow, Endpoint::Client, SYN, &[join_syn(derive_values(version, keys[1]).token)]);
        self.pass(flow, Endpoint::Server, SYN_ACK, &[join_syn_ack(version, keys)]);
        self.pass(flow, Endpoint::Client, ACK, &[option(0x10, &[&[0], &[5; 20]])]);
    }

    /// Ends a flow with a SYN at `syn`, the SYN/ACK 20 ms later and the third ACK after 50 ms.
    fn ended(&mut self, flow: u64, syn: u64, bytes: [u64; 2]) {
        let at = |after| Some(Time::from_millis(syn + after));
        let handshake =
            Handshake { syn: at(0), syn_ack: at(20), completed: at(50), syns: 1, syn_acks: 1 };
        let summary =
            FlowSummary { started: Time::from_millis(syn), handshake, bytes: bytes.map(Some) };
        self.connections.on_flow_end(flow, &summary);
    }

    fn rows(&mut self) -> Vec<Connection> {
        std::iter::from_fn(|| self.connections.poll()).collect()
    }

    fn row(&mut self) -> Connection {
        let mut rows = self.rows();
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }
}

#[test]
fn what_follows_from_a_key() {
    // Computed with Python's hashlib and hmac.
    let expected = [
        (0, KEYS[0], 0xdd57_83bc, 0x3a95_ed6e_4ebb_4ad6),
        (0, KEYS[1], 0xfaaf_6fe3, 0xbfb5_1134_cb95_240c),
        (1, KEYS[0], 0x6684_0dda, 0xf5a1_01d3_d29d_6f73),
        (1, KEYS[1], 0xaf77_ffda, 0x8912_213b_f1cb_d03d),
    ];
    for (version, key, token, first) in expected {
        let said = derive_values(version, key);
        assert_eq!((said.token, said.idsn), (token, first));
    }
    let [client, server] = KEYS;
    let nonces = [NONCES[1], NONCES[0]];
    assert_eq!(syn_ack_hmac(0, [server, client], nonces), 0xf57e_8bd1_3496_736c);
    assert_eq!(syn_ack_hmac(1, [server, client], nonces), 0xc608_9347_4351_0a84);
}

proptest! {
    #[test]
    fn anything_may_pass(
        steps in prop::collection::vec(
            (0_u64..6, any::<bool>(), any::<u8>(), prop::collection::vec(
                (0_u8..9, any::<u8>(), prop::collection::vec(0_u8..3, 0..24)), 0..3), 0_usize..9),
            0..80),
    ) {
        let limits = Limits { connections: 3, subflows: 5, subflows_per_connection: 2, idle: Span::from_secs(1) };
        let mut harness = Harness::with(limits);
        let mut told = 0;
        for (flow, is_client, flags, options, cut) in steps {
            let options: Vec<Vec<u8>> = options
                .iter()
                .map(|(subtype, low, rest)| option(subtype << 4 | low & 3, &[rest]))
                .collect();
            let options = if options.concat().len() > 40 { &options[..1] } else { &options[..] };
            let from = if is_client { Endpoint::Client } else { Endpoint::Server };
            if flags % 16 == 15 {
                harness.ended(flow, harness.millis, [3, 4]);
            } else {
                let cut = cut.min(options.concat().len());
                harness.pass_cut(flow, from, flags, options, cut);
            }
            prop_assert!(harness.connections.len() <= 4);
            told += harness.rows().len() as u64;
        }
        harness.connections.finish();
        let rows = harness.rows();
        prop_assert!(harness.connections.is_drained());
        for row in &rows {
            prop_assert!(row.subflows.len() <= 2 && row.addresses.len() <= MAX_ADDRESSES);
        }
        let dropped = harness.connections.dropped();
        prop_assert!(dropped.evicted + dropped.idle <= told + rows.len() as u64);
    }
}
