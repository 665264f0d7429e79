//! Protocol violations of the peer.

use manyways_unit::{Span, Time};

use super::simulation::Piece;
use crate::mux::{
    CarrierId, Config, Destination, Hello, Input, Label, Message, Mux, Output, ResetCode, Role,
    StreamId, TransportInfo, VERSION,
};
use crate::sched::{PathId, StreamPolicy};

/// An endpoint with a scripted peer, and carriers that accept all data.
pub struct ScriptedEndpoint {
    pub mux: Mux<Piece>,
    pub now: Time,
    /// All its outputs.
    pub outputs: Vec<Output<Piece>>,
}

const CARRIER: CarrierId = CarrierId(0);

impl ScriptedEndpoint {
    pub fn new(role: Role, change: impl Fn(&mut Config)) -> Self {
        let mut config = Config::new(role);
        change(&mut config);
        let mut faced = Self { mux: Mux::new(config), now: Time::ZERO, outputs: Vec::new() };
        faced
            .mux
            .handle(faced.now, Input::InitialCredit { credit: 1 << 20, stream_credit: 1 << 20 });
        faced.attach(CARRIER, 0);
        faced
    }

    pub fn attach(&mut self, carrier: CarrierId, path: u8) {
        let info = TransportInfo::initial(Span::from_millis(50));
        let path = PathId(path);
        self.mux.handle(self.now, Input::Attach { carrier, path, transport_info: info });
    }

    /// Processes an input and polls all outputs.
    pub fn handle(&mut self, input: Input<Piece>) {
        self.mux.handle(self.now, input);
        let carriers: Vec<CarrierId> = self.mux.carriers().map(|(id, _)| id).collect();
        for carrier in carriers {
            self.mux.handle(self.now, Input::Writable { carrier, bytes: 1 << 20 });
        }
        self.settle();
    }

    pub fn settle(&mut self) {
        while let Some(output) = self.mux.poll(self.now) {
            self.outputs.push(output);
        }
    }

    pub fn receive(&mut self, message: Message<Piece>) {
        self.handle(Input::Message { carrier: CARRIER, message });
    }

    /// Reported violations since the last call.
    pub fn violations(&mut self) -> Vec<&'static str> {
        let breach = |output: &Output<Piece>| match output {
            Output::ProtocolViolation { violation: what, .. } => Some(*what),
            _ => None,
        };
        let found = self.outputs.iter().filter_map(breach).collect();
        self.outputs.retain(|output| breach(output).is_none());
        found
    }

    pub fn open(&mut self, stream: u64) {
        self.receive(open(stream, 0));
    }

    /// Checks that a stream still delivers bytes.
    #[track_caller]
    fn still_serves(&mut self, stream: u64) {
        self.open(stream);
        let opened: Output<Piece> =
            Output::Open { stream: StreamId(stream), label: 0, destination: destination() };
        assert!(self.outputs.iter().any(|done| format!("{done:?}") == format!("{opened:?}")));
        let before = self.mux.counters().received;
        self.receive(data(stream, 0, 100, true));
        assert_eq!(self.mux.counters().received, before + 100);
        assert_eq!(self.violations(), Vec::<&str>::new());
        let id = StreamId(stream);
        let finished =
            |done: &Output<Piece>| matches!(done, Output::Finished { stream } if *stream == id);
        assert!(self.outputs.iter().any(finished));
        self.handle(Input::Consumed { stream: id, bytes: 100 });
    }
}

pub fn destination() -> Destination {
    Destination::Name("server.example".to_owned(), 443)
}

pub fn piece(stream: u64, at: u64, len: usize) -> Piece {
    Piece { source: (StreamId(stream), Role::Client), at, len }
}

pub fn open(stream: u64, len: usize) -> Message<Piece> {
    let label = Label { id: 0, version: 0, stream_policy: StreamPolicy::default() };
    let (data, stream) = (piece(stream, 0, len), StreamId(stream));
    Message::Open { stream, label, destination: destination(), confirm: false, data }
}

pub fn data(stream: u64, offset: u64, len: usize, fin: bool) -> Message<Piece> {
    let data = piece(stream, offset, len);
    Message::Data { stream: StreamId(stream), offset, fin, data }
}

fn reset(stream: u64, end: u64) -> Message<Piece> {
    Message::Reset { stream: StreamId(stream), code: ResetCode::Aborted, end }
}

fn gateway() -> ScriptedEndpoint {
    ScriptedEndpoint::new(Role::Gateway, |config| {
        config.credit = 40_000;
        config.stream_credit = 10_000;
        config.max_stream_credit = 10_000;
        config.streams = 100;
        config.flows = 10;
    })
}

#[test]
fn more_than_a_stream_may_is_a_breach_and_hurts_no_other_stream() {
    let mut gateway = gateway();
    gateway.open(0);
    gateway.receive(data(0, 0, 10_000, false));
    assert_eq!(gateway.violations(), Vec::<&str>::new());
    for message in [data(0, 10_000, 1, false), data(0, 9_999, 2, false), data(0, 20_000, 0, true)] {
        gateway.receive(message);
        assert_eq!(gateway.violations(), ["it sent more on a stream than it may"]);
    }
    assert_eq!(gateway.mux.unconsumed_bytes(), 10_000);
    gateway.still_serves(1);
}

#[test]
fn more_than_the_session_may_is_a_breach_and_is_not_kept() {
    let mut gateway = gateway();
    for stream in 0..5 {
        gateway.open(stream);
    }
    for stream in 0..4 {
        gateway.receive(data(stream, 0, 10_000, false));
    }
    assert_eq!(gateway.violations(), Vec::<&str>::new());
    // Repeatedly, as over one carrier after the other.
    for stream in 4..60 {
        gateway.receive(data(stream, 0, 10_000, false));
        assert_eq!(gateway.violations(), ["it sent more in all than it may"]);
        assert_eq!(gateway.mux.unconsumed_bytes(), 40_000);
    }
    gateway.receive(reset(60, 10_000));
    assert_eq!(gateway.violations(), ["it sent more in all than it may"]);
    // Permitted data is still delivered and consumed; then credit is granted again.
    for stream in 0..60 {
        gateway.handle(Input::Reset { stream: StreamId(stream), code: ResetCode::Aborted });
    }
    assert_eq!(gateway.mux.unconsumed_bytes(), 0);
    gateway.still_serves(61);
}

#[test]
fn an_end_that_moves_is_a_breach() {
    let ends = [
        vec![data(0, 0, 100, true), data(0, 0, 101, true)],
        vec![data(0, 0, 100, true), data(0, 0, 99, true)],
        vec![data(0, 0, 100, true), data(0, 100, 1, false)],
        vec![data(0, 50, 50, false), data(0, 0, 60, true)],
    ];
    for messages in ends {
        let mut gateway = gateway();
        gateway.open(0);
        let story = format!("{messages:?}");
        for message in messages {
            assert_eq!(gateway.violations(), Vec::<&str>::new(), "{story}");
            gateway.receive(message);
        }
        assert_eq!(gateway.violations(), ["it sent bytes past the end of a stream"], "{story}");
        gateway.still_serves(1);
    }
    let mut gateway = gateway();
    gateway.receive(open(0, 100));
    gateway.receive(reset(0, 99));
    assert_eq!(gateway.violations(), ["its reset does not fit its bytes"]);
    gateway.receive(reset(0, 10_001));
    assert_eq!(gateway.violations(), ["its reset does not fit its bytes"]);
    gateway.still_serves(1);
}

#[test]
fn the_same_end_twice_is_no_breach() {
    let mut gateway = gateway();
    gateway.receive(open(0, 10));
    gateway.receive(data(0, 10, 90, true));
    gateway.receive(data(0, 50, 50, true));
    gateway.receive(data(0, 100, 0, true));
    assert_eq!(gateway.violations(), Vec::<&str>::new());
    let ends = gateway.outputs.iter().filter(|done| matches!(done, Output::Finished { .. }));
    assert_eq!(ends.count(), 1);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_a_breach() {
    let mut client = client();
    client.handle(Input::Open {
        stream: StreamId(0),
        label: 0,
        destination: destination(),
        confirm: false,
    });
    client.receive(Message::Ack { count: 2 });
    assert_eq!(client.violations(), ["it acknowledged data that was never sent"]);
    client.receive(Message::Ack { count: 1 });
    client.receive(Message::Ack { count: 1 });
    assert_eq!(client.violations(), Vec::<&str>::new());
    for count in [0, 2, (1 << 62) - 1] {
        client.receive(Message::Ack { count });
        assert_eq!(client.violations(), ["it acknowledged data that was never sent"]);
    }
}

fn client() -> ScriptedEndpoint {
    ScriptedEndpoint::new(Role::Client, |_| {})
}

#[test]
fn a_gateway_opens_nothing_and_gives_no_labels() {
    let label = Label { id: 1, version: 1, stream_policy: StreamPolicy::default() };
    let never_opened = "it spoke of a stream that was never opened";
    for (message, what) in [
        (data(0, 0, 1, false), never_opened),
        (data((1 << 62) - 1, 0, 1, false), never_opened),
        (reset(0, 0), never_opened),
        (Message::Opened { stream: StreamId(0) }, never_opened),
        (open(0, 0), "it opened a stream to the client"),
        (Message::Relabel(label), "it gave the client a label"),
        (
            Message::Assign { stream: StreamId(0), label: 1, revision: 1 },
            "it gave the client a label",
        ),
    ] {
        let mut client = client();
        client.receive(message);
        assert_eq!(client.violations(), [what]);
        assert_eq!((client.mux.stream_count(), client.mux.unconsumed_bytes()), (0, 0));
    }
}

#[test]
fn a_client_confirms_nothing() {
    let mut gateway = gateway();
    gateway.receive(Message::Opened { stream: StreamId(0) });
    assert_eq!(gateway.violations(), ["it confirmed a stream to the gateway"]);
    assert_eq!(gateway.mux.stream_count(), 0);
}

#[test]
fn a_second_greeting_is_a_breach() {
    let hello = Hello {
        version: VERSION,
        session: [0; 16],
        path: PathId(0),
        resumes: false,
        credit: 1 << 60,
        stream_credit: 1 << 60,
    };
    let mut gateway = gateway();
    gateway.receive(Message::Hello(hello));
    assert_eq!(gateway.violations(), ["it greeted twice"]);
}

#[test]
fn a_stream_that_is_over_is_heard_no_more() {
    let mut gateway = gateway();
    gateway.receive(open(0, 10));
    gateway.receive(reset(0, 10));
    gateway.receive(Message::Ack { count: 1 });
    assert_eq!((gateway.mux.stream_count(), gateway.mux.unconsumed_bytes()), (0, 0));
    gateway.outputs.clear();
    // Messages in flight on slower carriers.
    for message in [open(0, 10), data(0, 0, 10, false), reset(0, 10)] {
        gateway.receive(message);
    }
    assert_eq!((gateway.mux.stream_count(), gateway.mux.unconsumed_bytes()), (0, 0));
    assert!(gateway.outputs.iter().all(|done| matches!(done, Output::Send { .. })));
}

#[test]
fn streams_beyond_the_limit_are_refused_and_a_peer_that_goes_on_breaks_a_rule() {
    let mut gateway = gateway();
    let refused = |gateway: &ScriptedEndpoint| {
        let limit = |done: &&Output<Piece>| {
            matches!(
                done,
                Output::Send { message: Message::Reset { code: ResetCode::Limit, .. }, .. }
            )
        };
        gateway.outputs.iter().filter(limit).count()
    };
    // Bytes that arrive before the `Open` message of their stream are permitted.
    gateway.receive(data(99, 0, 1, false));
    (0..100).for_each(|stream| gateway.open(stream));
    assert_eq!(refused(&gateway), 0);
    // A client may open this many streams before it receives the first refusal.
    (100..356).for_each(|stream| gateway.open(stream));
    assert_eq!(refused(&gateway), 256);
    assert_eq!(gateway.violations(), Vec::<&str>::new());
    gateway.open(356);
    assert_eq!(gateway.violations(), ["it opened far more streams than allowed"]);
    assert_eq!(gateway.mux.stream_count(), 356);
}

#[test]
fn numbers_far_ahead_are_a_breach() {
    let mut gateway = gateway();
    gateway.open(5_000_000);
    assert_eq!(gateway.violations(), ["its stream numbers are not in order"]);
    gateway.still_serves(0);
}

#[test]
fn numbers_with_gaps_between_them_take_no_more_room_than_a_limit() {
    let mut gateway = gateway();
    // In any order, each closed at once.
    let mut count = 0;
    for number in (1..34_000).rev().chain(34_000..40_000) {
        gateway.receive(reset(number * 2, 0));
        // The endpoint responds, unless it counts the stream as closed.
        let answers = gateway.outputs.iter().filter(|done| match done {
            Output::Send { message, .. } => message.is_ack_eliciting(),
            _ => false,
        });
        count += answers.count() as u64;
        gateway.receive(Message::Ack { count });
        assert_eq!(gateway.violations(), Vec::<&str>::new());
        assert_eq!(gateway.mux.stream_count(), 0);
        gateway.outputs.clear();
        assert!(gateway.mux.opened_streams.count() <= 32_768);
    }
    gateway.still_serves(200_000);
}

#[test]
fn bytes_with_gaps_between_them_are_refused_before_they_cost_more_than_credit() {
    let mut gateway = ScriptedEndpoint::new(Role::Gateway, |config| config.credit = 1 << 20);
    gateway.open(0);
    let pieces = (0..1 << 19).take_while(|piece| {
        gateway.receive(data(0, piece * 2 + 1, 1, false));
        gateway.outputs.iter().all(|done| !matches!(done, Output::ProtocolViolation { .. }))
    });
    assert_eq!(pieces.count(), 8_192 + (1 << 20) / 128 + 1);
    let what = "it sent bytes in too many pieces without those before them";
    assert_eq!(gateway.violations(), [what]);
    // The notices of a closed stream are removed.
    gateway.handle(Input::Reset { stream: StreamId(0), code: ResetCode::Aborted });
    assert_eq!(gateway.mux.pieces, 0);
    gateway.still_serves(1);
}

#[test]
fn a_peer_that_acknowledges_nothing_makes_no_end_keep_more_than_a_limit() {
    let mut gateway = ScriptedEndpoint::new(Role::Gateway, |config| config.max_unacked = 10 << 20);
    gateway.receive(Message::Credit { max_total: 1 << 60 });
    let mut kept = 0;
    for stream in 0..100 {
        gateway.open(stream);
        gateway.receive(Message::StreamCredit { stream: StreamId(stream), max_offset: 1 << 60 });
        loop {
            let appetite = gateway.mux.writable_bytes(StreamId(stream));
            if appetite == 0 {
                break;
            }
            let data = Piece { source: (StreamId(stream), Role::Gateway), at: 0, len: appetite };
            kept += appetite;
            gateway.handle(Input::Write { stream: StreamId(stream), data });
        }
    }
    assert!(((5 << 20)..(12 << 20)).contains(&kept), "{kept}");
    // Acknowledged bytes free the buffer, and waiting writers are informed.
    gateway.outputs.clear();
    let count = gateway.mux.carriers[0].sent.len() as u64;
    gateway.receive(Message::Ack { count });
    let hungry = gateway.outputs.iter().filter(|done| matches!(done, Output::Writable { .. }));
    assert_eq!(hungry.count(), 100);
    assert_eq!(gateway.mux.unacked_bytes, 0);
}

#[test]
fn credit_in_crumbs_wakes_few_streams_and_leaves_nothing_behind() {
    let mut gateway = ScriptedEndpoint::new(Role::Gateway, |_| {});
    for stream in 0..500 {
        gateway.open(stream);
        let data = Piece { source: (StreamId(stream), Role::Gateway), at: 0, len: 10_000 };
        gateway.handle(Input::Write { stream: StreamId(stream), data });
    }
    // The 1 MB of session credit is used.
    assert_eq!(gateway.mux.send_credit_used, 1 << 20);
    assert!(gateway.mux.ready.is_empty() && !gateway.mux.blocked.is_empty());
    gateway.outputs.clear();
    for more in 1..=1_000 {
        gateway.receive(Message::Credit { max_total: (1 << 20) + more });
        for stream in [1, 499] {
            gateway
                .receive(Message::StreamCredit { stream: StreamId(stream), max_offset: 1 << 30 });
        }
    }
    assert_eq!(gateway.mux.send_credit_used, (1 << 20) + 1_000);
    for stream in 0..500 {
        gateway.handle(Input::Reset { stream: StreamId(stream), code: ResetCode::Aborted });
    }
    assert!(gateway.mux.blocked.is_empty() && gateway.mux.ready.is_empty());
}

#[test]
fn notices_for_a_path_that_takes_nothing_are_said_once_when_it_does() {
    let mut gateway = ScriptedEndpoint::new(Role::Gateway, |_| {});
    let only = StreamPolicy { paths: [PathId(1)].into_iter().collect(), ..StreamPolicy::default() };
    let label = Label { id: 0, version: 1, stream_policy: only };
    gateway.receive(Message::Relabel(label));
    for stream in 0..1_000 {
        let data = piece(stream, 0, 0);
        let stream = StreamId(stream);
        gateway.receive(Message::Open {
            stream,
            label,
            destination: destination(),
            confirm: false,
            data,
        });
        for _ in 0..3 {
            gateway.handle(Input::Reset { stream, code: ResetCode::Aborted });
        }
    }
    let resets = |faced: &ScriptedEndpoint| {
        let reset = |done: &&Output<Piece>| {
            matches!(done, Output::Send { message: Message::Reset { .. }, .. })
        };
        faced.outputs.iter().filter(reset).count()
    };
    assert_eq!(resets(&gateway), 0);
    gateway.attach(CarrierId(1), 1);
    gateway.handle(Input::Writable { carrier: CARRIER, bytes: 0 });
    assert_eq!(resets(&gateway), 1_000);
    assert!(gateway.mux.control_keys.is_empty());
}

#[test]
fn a_stream_that_was_never_asked_for_is_told_of_its_reset_before_it_is_closed() {
    let mut client = client();
    client.mux.handle(client.now, Input::Writable { carrier: CARRIER, bytes: 0 });
    client.mux.handle(
        client.now,
        Input::Open { stream: StreamId(0), label: 0, destination: destination(), confirm: false },
    );
    client.mux.handle(client.now, Input::Message { carrier: CARRIER, message: reset(0, 0) });
    client.settle();
    let told = format!("{:?}", client.outputs);
    assert!(told.find("Reset") < told.find("Closed") && told.contains("Reset"), "{told}");
}
