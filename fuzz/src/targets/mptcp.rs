//! Segments with MPTCP options, and the connections that they form.

use manyways_flows::flow::Handshake;
use manyways_flows::mptcp::{Connections, FlowSummary, Limits, MAX_ADDRESSES};
use manyways_unit::{Span, Time};
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::Segment;

pub(super) const WORDS: &[&str] = &[
    "\u{1e}\u{4}\u{1}\u{1}",
    "\u{1e}\u{c}\u{1}\u{1}keykey01",
    "\u{1e}\u{14}\u{1}\u{1}keykey00keykey01",
    "\u{1e}\u{c}\u{10}\u{1}tokenonc",
    "\u{1e}\u{10}\u{10}\u{1}hashhashnonc",
    "\u{1e}\u{12}\u{20}\u{4}data\0\0\0\u{1}\0\u{8}",
    "\u{1e}\u{8}\u{30}\u{1}addr",
];

const LIMITS: Limits =
    Limits { connections: 4, subflows: 8, subflows_per_connection: 3, idle: Span::from_secs(9) };

/// Each segment has a byte with its flow and direction, one with its flags, one with the length of
/// its options, and the options. Flags of 0xff end the flow.
pub(super) fn mptcp(bytes: &[u8]) {
    let (mut connections, mut rest, mut now) = (Connections::new(LIMITS), bytes, Time::ZERO);
    let mut told = 0;
    while let [which, flags, length, more @ ..] = rest {
        let options = &more[..usize::from(length % 41).min(more.len())];
        rest = &more[options.len()..];
        now += Span::from_millis(u64::from(*which));
        let flow = u64::from(which >> 1 & 0xf);
        if *flags == 0xff {
            let handshake =
                Handshake { syn: Some(now), completed: Some(now), ..Handshake::default() };
            let bytes = [Some(u64::from(*length)), None];
            connections.on_flow_end(flow, &FlowSummary { started: now, handshake, bytes });
        } else {
            let from = if which & 1 == 0 { Endpoint::Client } else { Endpoint::Server };
            let header = ((20 + options.len()).next_multiple_of(4) << 2) as u8;
            let fixed = [0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, header, *flags, 1, 0, 0, 0, 0, 0];
            // Missing bytes of the last four count as truncated.
            let segment = [&fixed[..], options].concat();
            let segment = Segment::read(&segment, 60).expect("the header is there");
            connections.handle(now, flow, from, &segment);
        }
        assert!(connections.len() <= LIMITS.connections + 1);
        told += check_finished(&mut connections);
    }
    connections.finish();
    told += check_finished(&mut connections);
    let dropped = connections.dropped();
    assert!(connections.is_empty() && dropped.evicted + dropped.idle <= told);
}

/// Checks all finished connections and returns their number.
fn check_finished(connections: &mut Connections) -> u64 {
    let mut told = 0;
    while let Some(row) = connections.poll() {
        assert!(
            row.subflows.len() <= LIMITS.subflows_per_connection
                && row.addresses.len() <= MAX_ADDRESSES
        );
        let share = row.share_of_primary(Endpoint::Client);
        assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        for subflow in &row.subflows {
            let _ = (row.join_delay(subflow), subflow.handshake_delay());
        }
        let mapped: u64 = row.subflows.iter().filter_map(|subflow| subflow.mapped[0]).sum();
        assert!(row.reinjected[0].is_none_or(|again| again <= mapped));
        told += 1;
    }
    told
}
