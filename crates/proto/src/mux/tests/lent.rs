//! An emulated carrier over a lender: two links with the lender's buffer between them.

use std::collections::HashMap;

use manyways_unit::{Size, Span, Time};

use super::lane::Lane;
use super::simulation::{CLIENT, GATEWAY, Link, Piece};
use crate::mux::{CarrierId, Input, Message, TransportInfo};
use crate::relay::{self, Class, Frame};

/// Bytes of a frame without its sealed message, and of the seal.
const OVERHEAD: usize = 11 + 16;
/// Time since the last frame of the gateway for which it counts as sending.
const SENDING_TIME: Span = Span::from_millis(100);

type Sealed = Frame<Vec<u8>>;

pub struct LentCarrier {
    pub id: CarrierId,
    /// Between the client and the lender, and between the lender and the gateway.
    pub pipe: Link,
    pub path: Link,
    /// The way up between the lender and the gateway, if it is another one than the way down.
    pub path_up: Option<Link>,
    /// Messages that the lender keeps for itself: their sender and class.
    pub withheld: Vec<(usize, Class)>,
    /// Whether the lender passes on ACKs of the client only while the gateway sends.
    pub holds_acks: bool,
    /// When a frame of the gateway last came.
    gateway_sent: Time,
    /// Whether all data on the pipe, and between lender and gateway, is lost.
    is_silent: [bool; 2],
    /// From the client, from the gateway.
    ways: [Way; 2],
}

/// One direction.
struct Way {
    first: Lane<Sealed>,
    buffer: relay::Lane<Vec<u8>>,
    second: Lane<Sealed>,
    /// The next number of each class.
    numbers: [u64; 3],
    messages: HashMap<(Class, u64), Message<Piece>>,
    /// Bytes that the lender has passed on.
    passed_on: u64,
}

impl LentCarrier {
    pub fn new(id: CarrierId, pipe: Link, path: Link, buffer: Size) -> Self {
        let way = || Way {
            first: Lane::default(),
            buffer: relay::Lane::new(buffer),
            second: Lane::default(),
            numbers: [0; 3],
            messages: HashMap::new(),
            passed_on: 0,
        };
        Self {
            id,
            pipe,
            path,
            path_up: None,
            withheld: Vec::new(),
            holds_acks: false,
            gateway_sent: Time::ZERO,
            is_silent: [false; 2],
            ways: [way(), way()],
        }
    }

    /// The links of the way from `end`.
    fn links(&self, end: usize) -> [Link; 2] {
        match end {
            CLIENT => [self.pipe, self.path_up.unwrap_or(self.path)],
            _ => [self.path, self.pipe],
        }
    }

    /// Whether the first and the second link of the way from `end` are silent.
    fn silence(&self, end: usize) -> [bool; 2] {
        let [pipe, path] = self.is_silent;
        if end == CLIENT { [pipe, path] } else { [path, pipe] }
    }

    pub fn submit(&mut self, now: Time, end: usize, size: usize, message: Message<Piece>) {
        let [first, _] = self.links(end);
        let way = &mut self.ways[end];
        let class = Class::of(&message);
        let next = &mut way.numbers[usize::from(class.code())];
        let number = *next;
        *next += 1;
        way.messages.insert((class, number), message);
        let frame = Frame::Sealed { class, number, sealed: vec![0; size] };
        way.first.submit(now, &first, size + OVERHEAD, frame);
    }

    pub fn recall(&mut self, now: Time, end: usize, first: u64, last: u64) {
        let [link, _] = self.links(end);
        self.ways[end].first.submit(now, &link, 17, Frame::Recall { first, last });
    }

    /// Moves the frames that have arrived, and returns those for the endpoints.
    pub fn run(&mut self, now: Time) -> Vec<(usize, Input<Piece>)> {
        let mut arrived = Vec::new();
        for end in [CLIENT, GATEWAY] {
            let [_, link] = self.links(end);
            let [is_first_silent, is_second_silent] = self.silence(end);
            let carrier = self.id;
            let is_sending =
                now.since(self.gateway_sent) < SENDING_TIME || self.ways[GATEWAY].buffer.is_empty();
            let holds_control = self.holds_acks && end == CLIENT && !is_sending;
            let way = &mut self.ways[end];
            while !is_first_silent && way.buffer.has_room() {
                let Some((_, frame)) = way.first.take_arrived(now) else { break };
                way.buffer.receive(now, frame).expect("a frame in order");
                if end == GATEWAY {
                    self.gateway_sent = now;
                }
            }
            while way.second.report(now, &link, is_second_silent, false, None).1 > 0 {
                let Some(frame) = way.buffer.poll(now, holds_control) else { break };
                let class = match &frame {
                    Frame::Sealed { class, .. } => *class,
                    _ => Class::Bulk,
                };
                if self.withheld.contains(&(end, class)) {
                    continue;
                }
                let size = match &frame {
                    Frame::Sealed { sealed, .. } => sealed.len() + OVERHEAD,
                    _ => 9,
                };
                way.passed_on += size as u64;
                way.second.submit(now, &link, size, frame);
            }
            if is_second_silent {
                continue;
            }
            while let Some((_, frame)) = way.second.take_arrived(now) {
                let input = match frame {
                    Frame::Sealed { class, number, .. } => {
                        let message = way.messages.remove(&(class, number));
                        Input::Message { carrier, message: message.expect("not passed on twice") }
                    }
                    Frame::Dropped { .. } => Input::Dropped { carrier },
                    Frame::Recall { .. } | Frame::Leave => panic!("passed on"),
                };
                arrived.push((1 - end, input));
            }
        }
        arrived
    }

    pub fn set_pipe_silent(&mut self, now: Time, silent: bool) {
        if std::mem::replace(&mut self.is_silent[0], silent) && !silent {
            let pipe = self.pipe;
            self.ways[CLIENT].first.resend(now, &pipe);
            self.ways[GATEWAY].second.resend(now, &pipe);
        }
    }

    pub fn set_path_silent(&mut self, now: Time, silent: bool) {
        if std::mem::replace(&mut self.is_silent[1], silent) && !silent {
            let path = self.path;
            self.ways[CLIENT].second.resend(now, &path);
            self.ways[GATEWAY].first.resend(now, &path);
        }
    }

    pub fn next_event(&self, now: Time) -> Option<Time> {
        let lanes = [CLIENT, GATEWAY].into_iter().flat_map(|end| {
            let way = &self.ways[end];
            let silence = self.silence(end);
            let full = !way.buffer.has_room();
            let first = way.first.next_events(now).map(|at| at.filter(|_| !silence[0] && !full));
            let second = way.second.next_events(now).map(|at| at.filter(|_| !silence[1]));
            [first, second].into_iter().flatten()
        });
        lanes.flatten().min()
    }

    /// The state of the transport at an endpoint, and the bytes that it accepts.
    pub fn report(&self, now: Time, end: usize) -> (TransportInfo, usize) {
        let [link, _] = self.links(end);
        self.ways[end].first.report(now, &link, self.silence(end)[0], false, None)
    }

    /// Bytes that the lender has passed on from `end`.
    pub fn passed_on(&self, end: usize) -> u64 {
        self.ways[end].passed_on
    }

    /// Bytes that wait at the lender for the other end.
    pub fn backlog(&self, end: usize) -> u64 {
        self.ways[end].buffer.status().backlog.as_bytes()
    }
}
