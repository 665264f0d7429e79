//! Networks in virtual time.

use std::collections::BTreeMap;

use manyways_unit::{Size, Span, Time};

use super::super::machine::{Action, Drive, Input};
use super::super::plan::Plan;
use super::super::recording::Protocol;

/// Time at which drives start.
pub(super) const START: Time = Time::from_millis(7_000);

/// Events after actions.
pub(super) trait Network {
    /// Events after a connection begins to open, with the attempt, counted from 1.
    fn open(&mut self, connection: usize, attempt: u32) -> Vec<(Span, Input)>;
    /// Events after a request is sent.
    fn send(&mut self, exchange: usize) -> Vec<(Span, Input)>;
}

/// Drives a plan to its end. Returns the drive with the actions and their times since the start.
pub(super) fn run(plan: Plan, network: &mut impl Network) -> (Drive, Vec<(Span, Action)>) {
    let mut drive = Drive::new(plan, START);
    let mut events: BTreeMap<(Time, usize), Input> = BTreeMap::new();
    let mut log = Vec::new();
    let mut attempts = BTreeMap::new();
    let mut number = 0;
    let mut now = START;
    let mut shell = Shell::default();
    loop {
        while let Some(action) = drive.poll(now) {
            shell.check(drive.plan(), action);
            log.push((now.since(START), action));
            let follow = match action {
                Action::Open(connection) => {
                    let attempt = attempts.entry(connection).or_insert(0);
                    *attempt += 1;
                    network.open(connection, *attempt)
                }
                Action::Send(exchange) => network.send(exchange),
                Action::Cancel(_) | Action::Close(_) => Vec::new(),
            };
            for (after, input) in follow {
                number += 1;
                events.insert((now + after, number), input);
            }
        }
        if drive.is_done() {
            return (drive, log);
        }
        let event = events.first_key_value().map(|((at, _), _)| *at);
        let next = event.into_iter().chain(drive.next_wakeup()).min();
        now = next.expect("the drive waits for nothing, and is not done").max(now);
        if let Some(entry) = events.first_entry().filter(|entry| entry.key().0 <= now) {
            let input = entry.remove();
            if shell.passes(input) {
                drive.handle(now, input);
            }
        }
    }
}

/// The open connections of a shell, with the running exchanges.
#[derive(Default)]
struct Shell {
    connections: BTreeMap<usize, Vec<usize>>,
}

impl Shell {
    fn check(&mut self, plan: &Plan, action: Action) {
        match action {
            Action::Open(connection) => {
                let before = self.connections.insert(connection, Vec::new());
                assert_eq!(before, None, "connection {connection} is open");
            }
            Action::Send(exchange) => {
                let connection = plan.exchanges()[exchange].connection;
                self.connections.get_mut(&connection).expect("it is open").push(exchange);
            }
            Action::Cancel(exchange) => {
                let connection = plan.exchanges()[exchange].connection;
                let running = self.connections.get_mut(&connection).expect("it is open");
                assert!(running.contains(&exchange), "it runs");
                running.retain(|other| *other != exchange);
                if plan.connections()[connection].protocol == Protocol::Http1 {
                    self.connections.remove(&connection);
                }
            }
            Action::Close(connection) => {
                let running = self.connections.remove(&connection).expect("it is open");
                assert!(running.is_empty(), "{running:?} run");
            }
        }
    }

    /// Whether an event can still happen.
    fn passes(&mut self, input: Input) -> bool {
        let running = |shell: &Self, exchange| {
            shell.connections.values().any(|running| running.contains(&exchange))
        };
        match input {
            Input::Opened(connection) => self.connections.contains_key(&connection),
            Input::ConnectionFailed(connection) => self.connections.remove(&connection).is_some(),
            Input::ResponseStarted(exchange) | Input::Received { exchange, .. } => {
                running(self, exchange)
            }
            Input::Ended(exchange) | Input::Failed(exchange) => {
                let was_running = running(self, exchange);
                for running in self.connections.values_mut() {
                    running.retain(|other| *other != exchange);
                }
                was_running
            }
        }
    }
}

/// A network of which every handshake and every exchange takes its own time. Attempts after the first
/// one succeed at once.
#[derive(Default)]
pub(super) struct Fixed {
    /// In milliseconds, by connection; others take no time.
    pub(super) handshakes: BTreeMap<usize, u64>,
    /// In milliseconds and bytes, by exchange; others take no time and have one byte.
    pub(super) exchanges: BTreeMap<usize, (u64, u64)>,
    /// Exchanges without an end.
    pub(super) endless: Vec<usize>,
    /// Connections of which the first attempt fails after its time.
    pub(super) broken: Vec<usize>,
}

impl Network for Fixed {
    fn open(&mut self, connection: usize, attempt: u32) -> Vec<(Span, Input)> {
        let takes = self.handshakes.get(&connection).copied().filter(|_| attempt == 1);
        let input = match attempt == 1 && self.broken.contains(&connection) {
            true => Input::ConnectionFailed(connection),
            false => Input::Opened(connection),
        };
        vec![(Span::from_millis(takes.unwrap_or(0)), input)]
    }

    fn send(&mut self, exchange: usize) -> Vec<(Span, Input)> {
        let (takes, bytes) = self.exchanges.get(&exchange).copied().unwrap_or((0, 1));
        let takes = Span::from_millis(takes);
        let mut events = Vec::new();
        if bytes > 0 {
            let total = Size::from_bytes(bytes);
            events.push((takes, Input::Received { exchange, total }));
        }
        if !self.endless.contains(&exchange) {
            events.push((takes, Input::Ended(exchange)));
        }
        events
    }
}
