//! Sender limits of flows with a known limit.

use manyways_flows::flow::SenderLimit;
use manyways_trace::scenario::{CapacitySpec, LossSpec};
use manyways_unit::{Span, Time};
use manyways_wire::stream::Endpoint;
use smoltcp::socket::tcp::Socket;

use crate::simulation::{Application, MSS, RunResult, Simulation, at, free, hop, send};

/// Asserts that `limit` has more than 60 % of the server's time.
fn assert_limited_by(result: &RunResult, limit: SenderLimit) {
    let limited_by = result.connection.limited_by(Endpoint::Server);
    let share = limited_by.share(limit);
    assert!(share > 0.6, "{limit:?} has {share:.2} of {limited_by:?}");
}

/// A server that has new data from time to time.
struct PeriodicSender {
    bytes: usize,
    interval: Span,
    next: Time,
}

impl Application for PeriodicSender {
    fn act(&mut self, now: Time, socket: &mut Socket<'static>) -> Option<Time> {
        if !socket.can_send() {
            return None;
        }
        if now >= self.next {
            assert_eq!(send(socket, self.bytes), self.bytes);
            self.next = now + self.interval;
        }
        Some(self.next)
    }
}

/// A device that sends one request.
struct Requester {
    has_asked: bool,
}

/// A server with think time.
struct ThinkingServer {
    answer: usize,
    think_time: Span,
    ready_at: Option<Time>,
}

impl Application for Requester {
    fn act(&mut self, _: Time, socket: &mut Socket<'static>) -> Option<Time> {
        if socket.can_send() && !self.has_asked {
            self.has_asked = true;
            assert_eq!(send(socket, 200), 200);
        }
        None
    }
}

impl Application for ThinkingServer {
    fn act(&mut self, now: Time, socket: &mut Socket<'static>) -> Option<Time> {
        while socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), ())).unwrap();
            self.ready_at = Some(now + self.think_time);
        }
        if self.ready_at.is_some_and(|until| until <= now) && socket.can_send() {
            self.ready_at = None;
            assert_eq!(send(socket, self.answer), self.answer);
        }
        self.ready_at
    }
}

fn no_action(_: Time, _: &mut Socket<'static>) -> Option<Time> {
    None
}

#[test]
fn an_application_that_has_little_to_send() {
    for (remote, local) in [(10, 2), (40, 10)] {
        // Also if the last segment is always full.
        for bytes in [5_000, 3 * (MSS as usize - 12)] {
            let every = Span::from_millis(300);
            let server = PeriodicSender { bytes, interval: every, next: Time::ZERO };
            let result = Simulation::new(remote, local).run(20 * bytes, server, no_action);
            assert_limited_by(&result, SenderLimit::Application);
        }
    }
}

#[test]
fn a_receiver_that_takes_little_at_a_time() {
    for (remote, local) in [(10, 2), (30, 30)] {
        for has_stamps in [true, false] {
            let simulation = Simulation {
                receive_buffer: 12_000,
                has_timestamps: has_stamps,
                ..Simulation::new(remote, local)
            };
            assert_limited_by(&simulation.download(1_000_000), SenderLimit::ReceiverWindow);
        }
    }
}

#[test]
fn a_path_that_is_full() {
    for (remote, local, mbps) in [(10, 2, 8), (30, 10, 20)] {
        let down = [at(mbps, remote), Simulation::new(remote, local).down[1].clone()];
        let simulation = Simulation { down, ..Simulation::new(remote, local) };
        assert_limited_by(&simulation.download(8_000_000), SenderLimit::Congestion);
    }
}

#[test]
fn a_path_that_loses_packets_without_a_queue() {
    for (remote, local) in [(10, 2), (25, 5)] {
        let lossy = hop(remote, CapacitySpec::Unlimited, LossSpec::Independent(0.01));
        let down = [lossy, Simulation::new(remote, local).down[1].clone()];
        let simulation = Simulation { down, ..Simulation::new(remote, local) };
        assert_limited_by(&simulation.download(3_000_000), SenderLimit::Loss);
    }
}

#[test]
fn a_window_that_is_still_growing() {
    // Segments arrive one by one; otherwise smoltcp would acknowledge all at once, and grow once
    // for that.
    let simulation = Simulation { down: [free(60), at(100, 10)], ..Simulation::new(60, 10) };
    assert_limited_by(&simulation.download(200_000), SenderLimit::SlowStart);
}

#[test]
fn a_server_that_thinks() {
    let server =
        ThinkingServer { answer: 3_000, think_time: Span::from_millis(900), ready_at: None };
    let result = Simulation::new(10, 5).run(3_000, server, Requester { has_asked: false });
    assert_limited_by(&result, SenderLimit::Think);
}
