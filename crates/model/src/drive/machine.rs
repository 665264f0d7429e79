//! The course of a driven replay.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use manyways_unit::{Size, Span, Time};

use super::outcome::{Ending, Outcome};
use super::plan::{Cancellation, Plan, Predecessor};
use super::recording::Protocol;
use super::state::{Follower, Link, Phase, Running, State, Timer};

/// An event. Numbers are those of the [`Plan`]; events of unknown numbers, and of exchanges that are
/// not running, are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The connection can carry requests.
    Opened(usize),
    /// The connection could not be opened, or has ended. At most once for each [`Action::Open`], and
    /// not after the drive has closed it. All exchanges on it fail.
    ConnectionFailed(usize),
    /// The first byte of the response to the exchange has arrived.
    ResponseStarted(usize),
    /// So many bytes of the response have arrived since its start.
    Received { exchange: usize, total: Size },
    /// The response is complete.
    Ended(usize),
    /// The response will not be complete, for example because its stream was reset. Its connection
    /// remains usable, unless [`Input::ConnectionFailed`] follows.
    Failed(usize),
}

/// An action for the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the connection, and report [`Input::Opened`] or [`Input::ConnectionFailed`].
    Open(usize),
    /// Send the request of the exchange on its connection, and report its progress.
    Send(usize),
    /// Reset the stream of the exchange; with HTTP/1, close its connection. No report is due.
    Cancel(usize),
    /// Close the connection: all its exchanges are over. No report is due.
    Close(usize),
}

/// Executes a [`Plan`].
///
/// A failure counts as the end of an exchange: those that wait for it go on. An exchange that is due
/// on a connection that has failed opens it again, once; if that fails, the exchange fails without
/// having been sent. No request is sent twice. So a drive ends if every connection and every request
/// gets an answer; time limits for them are the shell's.
///
/// Times that decrease count as the latest one before.
#[derive(Clone, Debug)]
pub struct Drive {
    plan: Plan,
    now: Time,
    actions: VecDeque<Action>,
    timers: BinaryHeap<Reverse<(Time, Timer)>>,
    exchanges: Vec<Running>,
    links: Vec<Link>,
    /// Exchanges that are not over, without those that end after all others.
    unfinished: usize,
    /// Exchanges that are not over.
    open: usize,
    /// Planned openings of which the first attempt has no result.
    openings: usize,
}

impl Drive {
    /// Starts a drive.
    pub fn new(plan: Plan, now: Time) -> Self {
        let mut drive = Self {
            now,
            actions: VecDeque::new(),
            timers: BinaryHeap::new(),
            exchanges: vec![Running::default(); plan.exchanges().len()],
            links: vec![Link::default(); plan.connections().len()],
            unfinished: 0,
            open: plan.exchanges().len(),
            openings: 0,
            plan,
        };
        for (place, exchange) in drive.plan.exchanges().iter().enumerate() {
            drive.unfinished += usize::from(!ends_last(exchange.cancellation));
            let mut conditions = 0;
            match exchange.after {
                Some(after) => {
                    let follower = (Follower::Exchange(place), exchange.gap);
                    drive.exchanges[after].followers.push(follower);
                    conditions += 1;
                }
                None => drive.exchanges[place].due = now + exchange.gap,
            }
            match exchange.predecessor {
                Some(Predecessor::Ended(previous)) => {
                    let follower = (Follower::Exchange(place), Span::ZERO);
                    drive.exchanges[previous].followers.push(follower);
                    conditions += 1;
                }
                Some(Predecessor::Sent(previous)) => {
                    drive.exchanges[previous].pipelined = Some(place);
                    conditions += 1;
                }
                None => {}
            }
            drive.exchanges[place].conditions = conditions;
            if conditions == 0 {
                drive.timers.push(Reverse((drive.exchanges[place].due, Timer::Due(place))));
            }
        }
        for (place, connection) in drive.plan.connections().iter().enumerate() {
            drive.links[place].left = connection.exchanges.len();
            let Some(opening) = connection.opening else { continue };
            drive.openings += 1;
            drive.links[place].is_planned = true;
            match opening.after {
                Some(after) => {
                    let follower = (Follower::Connection(place), opening.gap);
                    drive.exchanges[after].followers.push(follower);
                }
                None => drive.timers.push(Reverse((now + opening.gap, Timer::Open(place)))),
            }
        }
        drive
    }

    /// Returns the next action. Call it until it returns `None`, after each input and at the time of
    /// [`Drive::next_wakeup`].
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.now = self.now.max(now);
        loop {
            while let Some(action) = self.actions.pop_front() {
                if self.take(action) {
                    return Some(action);
                }
            }
            let Reverse((_, timer)) = *self.timers.peek().filter(|next| next.0.0 <= self.now)?;
            self.timers.pop();
            self.fire(timer);
        }
    }

    /// When to poll again without an input; `None` if nothing is waiting for a time.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((due, _))| *due)
    }

    /// Takes note of an event.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Opened(connection) => self.opened(connection),
            Input::ConnectionFailed(connection) => self.connection_failed(connection),
            Input::ResponseStarted(exchange) => self.received(exchange, Size::ZERO),
            Input::Received { exchange, total } => self.received(exchange, total),
            Input::Ended(exchange) => {
                self.received(exchange, Size::ZERO);
                self.end(exchange, Ending::Complete);
            }
            Input::Failed(exchange) => self.end(exchange, Ending::Failed),
        }
    }

    /// Whether all exchanges are over, all planned connections were opened, and no action is left.
    pub fn is_done(&self) -> bool {
        self.open == 0 && self.openings == 0 && self.actions.is_empty()
    }

    /// Times so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            exchanges: self.exchanges.iter().map(|exchange| exchange.times).collect(),
            connections: self.links.iter().map(|link| link.times).collect(),
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Applies an action that the shell is about to execute; false if events have made it obsolete.
    fn take(&mut self, action: Action) -> bool {
        let now = self.now;
        match action {
            Action::Open(connection) => {
                self.links[connection].phase = Phase::Opening;
                let times = &mut self.links[connection].times;
                times.opened.get_or_insert(now);
                times.attempts = times.attempts.saturating_add(1);
                true
            }
            Action::Send(place) => {
                let connection = self.plan.exchanges()[place].connection;
                let link = &mut self.links[connection];
                if !matches!(link.phase, Phase::Ready(_)) {
                    self.request(place);
                    return false;
                }
                link.in_flight.insert(place);
                link.times.end = Some(now);
                let exchange = &mut self.exchanges[place];
                exchange.state = State::Sent;
                exchange.times.start = Some(now);
                match self.plan.exchanges()[place].cancellation {
                    Some(Cancellation::Waited(wait)) => {
                        self.timers.push(Reverse((now + wait, Timer::Cancel(place))));
                    }
                    Some(Cancellation::OthersOver) if self.unfinished == 0 => self.cancel(place),
                    _ => {}
                }
                if let Some(next) = self.exchanges[place].pipelined {
                    self.release(next, now);
                }
                true
            }
            Action::Cancel(place) => {
                if self.exchanges[place].state != State::Sent {
                    return false;
                }
                let connection = self.plan.exchanges()[place].connection;
                self.end(place, Ending::Cancelled);
                if self.plan.connections()[connection].protocol == Protocol::Http1 {
                    self.lose(connection);
                }
                true
            }
            Action::Close(connection) => {
                let link = &mut self.links[connection];
                let is_open = matches!(link.phase, Phase::Ready(_));
                if is_open {
                    link.phase = Phase::Closed;
                    link.times.closed = Some(now);
                }
                is_open
            }
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Open(connection) => {
                let link = &self.links[connection];
                if link.is_planned && link.phase == Phase::Closed {
                    self.open(connection);
                }
            }
            Timer::Due(place) => {
                self.exchanges[place].times.due = Some(self.exchanges[place].due);
                self.request(place);
            }
            Timer::Lag(place) => self.request(place),
            Timer::Cancel(place) => self.cancel(place),
        }
    }

    /// Sends an exchange that is due, as soon as its connection is ready.
    fn request(&mut self, place: usize) {
        let planned = &self.plan.exchanges()[place];
        let link = &mut self.links[planned.connection];
        match link.phase {
            Phase::Ready(since) if since + planned.lag > self.now => {
                self.timers.push(Reverse((since + planned.lag, Timer::Lag(place))));
            }
            Phase::Ready(_) => self.actions.push_back(Action::Send(place)),
            Phase::Requested | Phase::Opening => link.waiting.push(place),
            Phase::Closed => {
                link.waiting.push(place);
                self.open(planned.connection);
            }
        }
    }

    fn open(&mut self, connection: usize) {
        self.links[connection].phase = Phase::Requested;
        self.actions.push_back(Action::Open(connection));
    }

    fn opened(&mut self, connection: usize) {
        let now = self.now;
        let Some(link) = self.links.get_mut(connection) else { return };
        if link.phase != Phase::Opening {
            return;
        }
        link.phase = Phase::Ready(now);
        link.times.ready.get_or_insert(now);
        link.times.end = Some(now);
        if link.left == 0 {
            self.actions.push_back(Action::Close(connection));
        }
        for place in std::mem::take(&mut link.waiting) {
            self.request(place);
        }
        self.attempted(connection);
    }

    fn connection_failed(&mut self, connection: usize) {
        let now = self.now;
        let Some(link) = self.links.get_mut(connection) else { return };
        if matches!(link.phase, Phase::Closed | Phase::Requested) {
            return;
        }
        link.times.end = Some(now);
        self.lose(connection);
        self.attempted(connection);
    }

    /// Fails all exchanges that wait for a connection or run on it.
    fn lose(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        link.phase = Phase::Closed;
        let waiting = std::mem::take(&mut link.waiting);
        for place in std::mem::take(&mut link.in_flight).into_iter().chain(waiting) {
            self.over(place, Ending::Failed);
        }
    }

    /// Notes that a connection has a result of its first attempt.
    fn attempted(&mut self, connection: usize) {
        if std::mem::take(&mut self.links[connection].is_planned) {
            self.openings -= 1;
        }
    }

    fn received(&mut self, place: usize, total: Size) {
        let now = self.now;
        let Some(exchange) = self.exchanges.get_mut(place) else { return };
        if exchange.state != State::Sent {
            return;
        }
        let times = &mut exchange.times;
        times.first_byte.get_or_insert(now);
        times.last_byte = Some(now);
        times.received = times.received.max(total);
        let received = times.received;
        let planned = &self.plan.exchanges()[place];
        self.links[planned.connection].times.end = Some(now);
        if let Some(Cancellation::Received(limit)) = planned.cancellation
            && received >= limit
        {
            self.cancel(place);
        }
    }

    fn cancel(&mut self, place: usize) {
        if self.exchanges[place].state == State::Sent {
            self.actions.push_back(Action::Cancel(place));
        }
    }

    /// Ends an exchange that was sent.
    fn end(&mut self, place: usize, ending: Ending) {
        let now = self.now;
        let Some(exchange) = self.exchanges.get(place) else { return };
        if exchange.state != State::Sent {
            return;
        }
        let link = &mut self.links[self.plan.exchanges()[place].connection];
        link.in_flight.remove(&place);
        if ending != Ending::Cancelled {
            link.times.end = Some(now);
        }
        self.over(place, ending);
    }

    fn over(&mut self, place: usize, ending: Ending) {
        let now = self.now;
        let planned = &self.plan.exchanges()[place];
        let exchange = &mut self.exchanges[place];
        let is_server_abort = exchange.state == State::Sent
            && planned.server_abort.is_some_and(|bytes| exchange.times.received >= bytes);
        let ending = match ending {
            Ending::Failed if is_server_abort => Ending::Complete,
            other => other,
        };
        exchange.state = State::Over;
        exchange.times.end = Some(now);
        exchange.times.ending = Some(ending);
        let pipelined = exchange.pipelined.filter(|_| exchange.times.start.is_none());
        for (follower, gap) in std::mem::take(&mut exchange.followers) {
            match follower {
                Follower::Exchange(next) => self.release(next, now + gap),
                Follower::Connection(next) => {
                    self.timers.push(Reverse((now + gap, Timer::Open(next))));
                }
            }
        }
        // It will not be sent: a request behind it has nothing to wait for.
        if let Some(next) = pipelined {
            self.release(next, now);
        }
        let planned = &self.plan.exchanges()[place];
        let link = &mut self.links[planned.connection];
        link.left -= 1;
        if link.left == 0 && matches!(link.phase, Phase::Ready(_)) {
            self.actions.push_back(Action::Close(planned.connection));
        }
        self.open -= 1;
        if !ends_last(planned.cancellation) {
            self.unfinished -= 1;
            if self.unfinished == 0 {
                self.cancel_rest();
            }
        }
    }

    /// Cancels the exchanges that were still waiting when the recording ended.
    fn cancel_rest(&mut self) {
        let running: Vec<usize> =
            self.links.iter().flat_map(|link| link.in_flight.iter().copied()).collect();
        for place in running {
            if ends_last(self.plan.exchanges()[place].cancellation) {
                self.cancel(place);
            }
        }
    }

    /// Notes that a condition of an exchange is met at a time.
    fn release(&mut self, place: usize, at: Time) {
        let exchange = &mut self.exchanges[place];
        exchange.due = exchange.due.max(at);
        exchange.conditions -= 1;
        if exchange.conditions == 0 {
            self.timers.push(Reverse((exchange.due, Timer::Due(place))));
        }
    }
}

fn ends_last(cancellation: Option<Cancellation>) -> bool {
    cancellation == Some(Cancellation::OthersOver)
}
