//! Sender limits of flows with a known limit.

use manyways_flows::flow::Limit;
use manyways_trace::scenario::{CapacitySpec, LossSpec};
use manyways_unit::{Span, Time};
use manyways_wire::stream::End;
use smoltcp::socket::tcp::Socket;

use crate::world::{Application, MSS, Seen, World, at, free, hop, send};

/// Asserts that `limit` has more than 60 % of the server's time.
fn is_limited_by(seen: &Seen, limit: Limit) {
    let limited_by = seen.connection.limited_by(End::Server);
    let share = limited_by.share(limit);
    assert!(share > 0.6, "{limit:?} has {share:.2} of {limited_by:?}");
}

/// A server that has new data from time to time.
struct NowAndThen {
    bytes: usize,
    every: Span,
    next: Time,
}

impl Application for NowAndThen {
    fn act(&mut self, now: Time, socket: &mut Socket<'static>) -> Option<Time> {
        if !socket.can_send() {
            return None;
        }
        if now >= self.next {
            assert_eq!(send(socket, self.bytes), self.bytes);
            self.next = now + self.every;
        }
        Some(self.next)
    }
}

/// A device that sends one request.
struct Asks {
    has_asked: bool,
}

/// A server with think time.
struct Thinks {
    answer: usize,
    thinking: Span,
    until: Option<Time>,
}

impl Application for Asks {
    fn act(&mut self, _: Time, socket: &mut Socket<'static>) -> Option<Time> {
        if socket.can_send() && !self.has_asked {
            self.has_asked = true;
            assert_eq!(send(socket, 200), 200);
        }
        None
    }
}

impl Application for Thinks {
    fn act(&mut self, now: Time, socket: &mut Socket<'static>) -> Option<Time> {
        while socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), ())).unwrap();
            self.until = Some(now + self.thinking);
        }
        if self.until.is_some_and(|until| until <= now) && socket.can_send() {
            self.until = None;
            assert_eq!(send(socket, self.answer), self.answer);
        }
        self.until
    }
}

fn nobody(_: Time, _: &mut Socket<'static>) -> Option<Time> {
    None
}

#[test]
fn an_application_that_has_little_to_send() {
    for (remote, local) in [(10, 2), (40, 10)] {
        // Also if the last segment is always full.
        for bytes in [5_000, 3 * (MSS as usize - 12)] {
            let every = Span::from_millis(300);
            let server = NowAndThen { bytes, every, next: Time::ZERO };
            let seen = World::new(remote, local).run(20 * bytes, server, nobody);
            is_limited_by(&seen, Limit::Application);
        }
    }
}

#[test]
fn a_receiver_that_takes_little_at_a_time() {
    for (remote, local) in [(10, 2), (30, 30)] {
        for has_stamps in [true, false] {
            let world = World { receives: 12_000, has_stamps, ..World::new(remote, local) };
            is_limited_by(&world.download(1_000_000), Limit::ReceiverWindow);
        }
    }
}

#[test]
fn a_path_that_is_full() {
    for (remote, local, mbps) in [(10, 2, 8), (30, 10, 20)] {
        let down = [at(mbps, remote), World::new(remote, local).down[1].clone()];
        let world = World { down, ..World::new(remote, local) };
        is_limited_by(&world.download(8_000_000), Limit::Congestion);
    }
}

#[test]
fn a_path_that_loses_packets_without_a_queue() {
    for (remote, local) in [(10, 2), (25, 5)] {
        let lossy = hop(remote, CapacitySpec::Unlimited, LossSpec::Independent(0.01));
        let down = [lossy, World::new(remote, local).down[1].clone()];
        let world = World { down, ..World::new(remote, local) };
        is_limited_by(&world.download(3_000_000), Limit::Loss);
    }
}

#[test]
fn a_window_that_is_still_growing() {
    // Segments arrive one by one; otherwise smoltcp would acknowledge all at once, and grow once
    // for that.
    let world = World { down: [free(60), at(100, 10)], ..World::new(60, 10) };
    is_limited_by(&world.download(200_000), Limit::StartUp);
}

#[test]
fn a_server_that_thinks() {
    let server = Thinks { answer: 3_000, thinking: Span::from_millis(900), until: None };
    let seen = World::new(10, 5).run(3_000, server, Asks { has_asked: false });
    is_limited_by(&seen, Limit::Think);
}
