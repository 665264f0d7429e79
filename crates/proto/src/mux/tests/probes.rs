//! Pings of a client that waits over a carrier that has received little.

use manyways_unit::{Size, Span, Time};

use super::simulation::Piece;
use crate::mux::{
    CarrierId, Config, Destination, Direction, Input, Message, Mux, Output, Payload, Role,
    StreamId, TransportInfo,
};
use crate::sched::PathId;

const CARRIER: CarrierId = CarrierId(7);
const STREAM: StreamId = StreamId(0);

/// A client with one carrier, whose transport has delivered everything.
struct Client {
    mux: Mux<Piece>,
    info: TransportInfo,
    outputs: Vec<(u64, Output<Piece>)>,
}

impl Client {
    fn new() -> Self {
        let mut mux = Mux::new(Config::new(Role::Client));
        mux.handle(Time::ZERO, Input::InitialCredit { credit: 1 << 20, stream_credit: 1 << 20 });
        let info = TransportInfo::initial(Span::from_millis(20));
        let path = PathId(0);
        mux.handle(Time::ZERO, Input::Attach { carrier: CARRIER, path, transport_info: info });
        mux.handle(Time::ZERO, Input::Writable { carrier: CARRIER, bytes: 1 << 20 });
        Self { mux, info, outputs: Vec::new() }
    }

    /// Opens a stream at 0 ms. Its opening is acknowledged.
    fn open(&mut self) {
        let destination = Destination::Name("server".to_owned(), 80);
        self.mux.handle(
            Time::ZERO,
            Input::Open { stream: STREAM, label: 0, destination, confirm: false },
        );
        self.poll(0);
        self.deliver(0);
        self.receive(0, Message::Ack { count: 1 });
        self.outputs.clear();
    }

    fn receive(&mut self, at: u64, message: Message<Piece>) {
        self.mux.handle(Time::from_millis(at), Input::Message { carrier: CARRIER, message });
        self.poll(at);
    }

    /// The peer's transport has acknowledged everything.
    fn deliver(&mut self, at: u64) {
        self.info.acknowledged += 100;
        (self.info.in_flight, self.info.unsent) = (Some(Size::ZERO), Size::ZERO);
        let transport_info = self.info;
        self.mux.handle(
            Time::from_millis(at),
            Input::TransportInfo { carrier: CARRIER, transport_info },
        );
        self.poll(at);
    }

    fn poll(&mut self, at: u64) {
        while let Some(output) = self.mux.poll(Time::from_millis(at)) {
            self.outputs.push((at, output));
        }
    }

    /// Polls at each wakeup until `end`, with a transport that delivers at once.
    fn run_until(&mut self, end: u64) {
        while let Some(next) = self.mux.next_wakeup() {
            let next = next.as_nanos().div_ceil(1_000_000);
            if next > end {
                break;
            }
            let before = self.outputs.len();
            self.poll(next);
            if self.outputs.len() > before {
                self.deliver(next);
            }
        }
    }

    fn pings(&self) -> Vec<u64> {
        let is_ping = |output: &Output<Piece>| {
            matches!(output, Output::Send { message: Message::Ping { .. }, .. })
        };
        self.outputs.iter().filter(|(_, output)| is_ping(output)).map(|(at, _)| *at).collect()
    }

    fn suspects(&self) -> Vec<(u64, Direction)> {
        let suspect = |(at, output): &(u64, Output<Piece>)| match output {
            Output::Suspect { direction, .. } => Some((*at, *direction)),
            _ => None,
        };
        self.outputs.iter().filter_map(suspect).collect()
    }

    fn recoveries(&self) -> usize {
        let is_recovery = |output: &Output<Piece>| matches!(output, Output::Recovered { .. });
        self.outputs.iter().filter(|(_, output)| is_recovery(output)).count()
    }
}

#[test]
fn a_client_that_waits_asks_and_suspects_a_carrier_that_does_not_answer() {
    let mut client = Client::new();
    client.open();
    client.run_until(10_000);
    assert_eq!(client.pings(), [500], "one is enough");
    let suspects = client.suspects();
    let [(at, Direction::Receive)] = suspects[..] else { panic!("{suspects:?}") };
    assert!((560..700).contains(&at), "{at} ms");
    // Its transport still delivers: this does not show that large packets come back.
    client.deliver(11_000);
    assert_eq!(client.recoveries(), 0);
    client.receive(12_000, Message::Pong { number: 0 });
    assert_eq!(client.recoveries(), 1);
}

#[test]
fn a_server_that_thinks_long_costs_few_pings() {
    let mut client = Client::new();
    client.open();
    for _ in 0..8 {
        let due = client.mux.next_wakeup().expect("a ping is due").as_nanos() / 1_000_000;
        client.run_until(due);
        client.receive(due + 20, Message::Pong { number: 0 });
    }
    assert_eq!(client.pings(), [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]);
    assert_eq!(client.suspects(), []);
}

#[test]
fn a_carrier_that_has_received_much_or_is_not_in_use_is_not_asked() {
    let mut unused = Client::new();
    unused.run_until(100_000);
    assert_eq!(unused.pings(), []);
    let mut client = Client::new();
    client.open();
    let data = Piece { source: (STREAM, Role::Gateway), at: 0, len: 4_000 };
    assert_eq!(data.len(), 4_000);
    client.receive(10, Message::Data { stream: STREAM, offset: 0, fin: false, data });
    client.run_until(100_000);
    assert_eq!(client.pings(), []);
    // Its successor has not shown that it carries much, a path that is spared needs not to.
    for (carrier, path) in [(8, PathId(0)), (9, PathId(1))] {
        let (carrier, transport_info) = (CarrierId(carrier), client.info);
        let now = Time::from_millis(100_000);
        client.mux.handle(now, Input::Attach { carrier, path, transport_info });
        client.mux.handle(now, Input::Writable { carrier, bytes: 1 << 20 });
    }
    client.run_until(200_000);
    assert_eq!(client.pings(), [100_500]);
}
