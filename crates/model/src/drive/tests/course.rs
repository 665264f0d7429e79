use manyways_unit::{Size, Span, Time};

use super::super::machine::Action::{Cancel, Close, Open, Send};
use super::super::machine::{Action, Drive, Input};
use super::super::outcome::Ending;
use super::super::plan::Plan;
use super::super::recording::Protocol::{Http1, Http2};
use super::super::recording::{Completion, Connection, Exchange, Recording};
use super::network::{Fixed, START, run};
use super::{at, connection, exchange};

fn drive(
    connections: &[Connection],
    exchanges: &[Exchange<'_>],
    network: &mut Fixed,
) -> (Drive, Vec<(u64, Action)>) {
    let (drive, log) = run(Plan::new(&Recording { connections, exchanges }), network);
    (drive, log.into_iter().map(|(at, action)| (at.as_nanos() / 1_000_000, action)).collect())
}

fn endings(drive: &Drive) -> Vec<Ending> {
    drive.outcome().exchanges.iter().filter_map(|exchange| exchange.ending).collect()
}

fn after(millis: u64) -> Option<Time> {
    Some(START + Span::from_millis(millis))
}

#[test]
fn a_page_is_loaded_again_over_a_slower_network() {
    let preconnected =
        Connection { opened: Some(at(20)), ready: Some(at(60)), ..connection(Http1) };
    let opened = Connection { opened: Some(at(0)), ready: Some(at(40)), ..connection(Http2) };
    let unused = Connection { opened: Some(at(130)), ..connection(Http2) };
    let exchanges =
        [exchange(0, 40, 100), exchange(1, 110, 150), exchange(1, 155, 200), exchange(2, 120, 160)];
    let mut network = Fixed {
        handshakes: [(0, 200), (1, 150), (2, 90), (3, 500)].into(),
        exchanges: [(0, (300, 10)), (1, (80, 20)), (2, (70, 30)), (3, (10, 40))].into(),
        ..Fixed::default()
    };
    let connections = [opened, preconnected, connection(Http2), unused];
    let (drive, log) = drive(&connections, &exchanges, &mut network);
    let expected = [
        (0, Open(0)),
        (20, Open(1)),
        (200, Send(0)),
        (500, Close(0)),
        // Gaps of 10 and 20 ms; the second one waits for the handshake.
        (510, Send(1)),
        (520, Open(2)),
        (530, Open(3)),
        // 5 ms after the response to the second one.
        (595, Send(2)),
        (610, Send(3)),
        (620, Close(2)),
        (665, Close(1)),
        (1_030, Close(3)),
    ];
    assert_eq!(log, expected);
    let outcome = drive.outcome();
    let last = outcome.exchanges[3];
    assert_eq!((last.due, last.start), (after(520), after(610)));
    assert_eq!((last.first_byte, last.last_byte, last.end), (after(620), after(620), after(620)));
    assert_eq!((last.received, last.ending), (Size::from_bytes(40), Some(Ending::Complete)));
    let second = outcome.connections[1];
    assert_eq!((second.opened, second.ready), (after(20), after(170)));
    assert_eq!((second.end, second.closed, second.attempts), (after(665), after(665), 1));
    // The connection that carried nothing was ready last.
    assert_eq!(outcome.app_response_time(), Some(Span::from_millis(1_030)));
    assert_eq!(outcome.last_byte_time(), Some(Span::from_millis(665)));
    assert_eq!(outcome.failed(), 0);
}

#[test]
fn exchanges_of_http1_wait_for_each_other_and_pipelined_ones_do_not() {
    let connections = [connection(Http1)];
    let second = exchange(0, 50, 150);
    let queued = Exchange { sent: None, ..second };
    let network = || Fixed { exchanges: [(0, (400, 1)), (1, (10, 1))].into(), ..Fixed::default() };
    let log = drive(&connections, &[exchange(0, 0, 100), queued], &mut network()).1;
    assert_eq!(log, [(0, Open(0)), (0, Send(0)), (400, Send(1)), (410, Close(0))]);
    let log = drive(&connections, &[exchange(0, 0, 100), second], &mut network()).1;
    assert_eq!(log, [(0, Open(0)), (0, Send(0)), (50, Send(1)), (400, Close(0))]);
}

#[test]
fn the_client_cancels_after_the_bytes_or_the_time_of_the_recording() {
    let cut = |place, start, end, bytes| Exchange {
        completion: Completion::AbortedByClient,
        downloaded: Size::from_bytes(bytes),
        ..exchange(place, start, end)
    };
    let unfinished = Exchange { completion: Completion::Unfinished, ..cut(0, 0, 0, 0) };
    let exchanges = [
        unfinished,
        cut(0, 5, 50, 1_000),
        cut(1, 5, 65, 0),
        cut(1, 100, 110, 10),
        exchange(0, 70, 80),
    ];
    let mut network = Fixed {
        exchanges: [(0, (0, 0)), (1, (300, 1_000)), (2, (0, 0)), (3, (20, 9)), (4, (600, 1))]
            .into(),
        endless: vec![0, 1, 2],
        ..Fixed::default()
    };
    let connections = [connection(Http2), connection(Http1)];
    let (found, log) = drive(&connections, &exchanges, &mut network);
    let expected = [
        (0, Open(0)),
        (0, Send(0)),
        (5, Send(1)),
        (5, Open(1)),
        (5, Send(2)),
        // With it, its connection of HTTP/1 is closed.
        (65, Cancel(2)),
        // Nothing that was cut counts as an end before it.
        (70, Send(4)),
        (305, Cancel(1)),
        (690, Open(1)),
        (690, Send(3)),
        (710, Close(1)),
        // All others are over.
        (710, Cancel(0)),
        (710, Close(0)),
    ];
    assert_eq!(log, expected);
    use Ending::{Cancelled, Complete};
    // The response to the fourth ended before as many bytes had arrived.
    assert_eq!(endings(&found), [Cancelled, Cancelled, Cancelled, Complete, Complete]);
    assert_eq!(found.outcome().connections[1].attempts, 2);
    assert_eq!(found.outcome().app_response_time(), Some(Span::from_millis(710)));
}

#[test]
fn cancelling_is_no_activity_of_a_connection() {
    let waits = Exchange {
        completion: Completion::AbortedByClient,
        downloaded: Size::ZERO,
        ..exchange(0, 10, 5_000)
    };
    let mut network =
        Fixed { exchanges: [(0, (0, 0))].into(), endless: vec![0], ..Fixed::default() };
    let (drive, log) = drive(&[connection(Http2)], &[waits], &mut network);
    assert_eq!(log, [(0, Open(0)), (0, Send(0)), (4_990, Cancel(0)), (4_990, Close(0))]);
    assert_eq!(drive.outcome().app_response_time(), Some(Span::ZERO));
    assert_eq!(drive.outcome().last_byte_time(), None);
}

#[test]
fn exchanges_of_a_connection_that_fails_to_open_fail_and_later_ones_open_it_again() {
    let exchanges = [exchange(0, 0, 10), exchange(0, 5, 15), exchange(0, 100, 110)];
    let mut network =
        Fixed { handshakes: [(0, 1_000)].into(), broken: vec![0], ..Fixed::default() };
    let (drive, log) = drive(&[connection(Http2)], &exchanges, &mut network);
    assert_eq!(log, [(0, Open(0)), (1_085, Open(0)), (1_085, Send(2)), (1_085, Close(0))]);
    assert_eq!(endings(&drive), [Ending::Failed, Ending::Failed, Ending::Complete]);
    let outcome = drive.outcome();
    assert_eq!(outcome.exchanges[1].start, None);
    assert_eq!((outcome.connections[0].opened, outcome.connections[0].attempts), (after(0), 2));
    assert_eq!(outcome.failed(), 2);
}

/// Polls until there is no action.
fn actions(drive: &mut Drive, millis: u64) -> Vec<Action> {
    std::iter::from_fn(|| drive.poll(START + Span::from_millis(millis))).collect()
}

fn handle(drive: &mut Drive, millis: u64, input: Input) {
    drive.handle(START + Span::from_millis(millis), input);
}

#[test]
fn a_connection_that_ends_fails_its_exchanges() {
    let exchanges =
        [exchange(0, 0, 40), exchange(0, 0, 50), exchange(0, 60, 70), exchange(1, 80, 90)];
    let connections = [connection(Http2), connection(Http2)];
    let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
    let mut drive = Drive::new(plan, START);
    assert_eq!(actions(&mut drive, 0), [Open(0)]);
    handle(&mut drive, 5, Input::Opened(0));
    assert_eq!(actions(&mut drive, 5), [Send(0), Send(1)]);
    handle(&mut drive, 8, Input::Ended(0));
    handle(&mut drive, 9, Input::Received { exchange: 1, total: Size::from_bytes(6) });
    handle(&mut drive, 20, Input::ConnectionFailed(0));
    assert_eq!(endings(&drive), [Ending::Complete, Ending::Failed]);
    let failed = drive.outcome().exchanges[1];
    assert_eq!((failed.last_byte, failed.end), (after(9), after(20)));
    assert_eq!(drive.outcome().connections[0].end, after(20));
    // The third waits for the second, and the fourth for the third.
    assert_eq!(drive.next_wakeup(), after(30));
    assert_eq!(actions(&mut drive, 30), [Open(0)]);
    handle(&mut drive, 31, Input::Opened(0));
    assert_eq!(actions(&mut drive, 31), [Send(2)]);
    handle(&mut drive, 40, Input::Failed(2));
    assert_eq!(actions(&mut drive, 40), [Close(0)]);
    assert_eq!(actions(&mut drive, 50), [Open(1)]);
    handle(&mut drive, 60, Input::ConnectionFailed(1));
    assert!(drive.is_done() && drive.next_wakeup().is_none());
    assert_eq!(drive.outcome().failed(), 3);
}

#[test]
fn failures_where_the_recorded_server_aborted_are_no_failures() {
    let aborted = |bytes| Exchange {
        completion: Completion::AbortedByServer,
        downloaded: Size::from_bytes(bytes),
        ..exchange(0, 0, 40)
    };
    let connections = [connection(Http2)];
    let exchanges = [aborted(500), aborted(500), aborted(0), aborted(0), exchange(0, 0, 40)];
    let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
    let mut drive = Drive::new(plan, START);
    assert_eq!(actions(&mut drive, 0), [Open(0)]);
    handle(&mut drive, 5, Input::Opened(0));
    assert_eq!(actions(&mut drive, 5), [Send(0), Send(1), Send(2), Send(3), Send(4)]);
    for (exchange, bytes) in [(0, 500), (1, 499), (4, 1_000)] {
        handle(&mut drive, 6, Input::Received { exchange, total: Size::from_bytes(bytes) });
    }
    handle(&mut drive, 7, Input::Failed(2));
    handle(&mut drive, 8, Input::ConnectionFailed(0));
    use Ending::{Complete, Failed};
    assert_eq!(endings(&drive), [Complete, Failed, Complete, Complete, Failed]);
}

#[test]
fn a_request_is_not_sent_on_a_connection_that_has_failed_meanwhile() {
    let connections = [connection(Http1)];
    let exchanges = [exchange(0, 0, 40)];
    let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
    let mut drive = Drive::new(plan, START);
    assert_eq!(actions(&mut drive, 0), [Open(0)]);
    handle(&mut drive, 5, Input::Opened(0));
    handle(&mut drive, 5, Input::ConnectionFailed(0));
    assert_eq!(actions(&mut drive, 5), [Open(0)]);
    handle(&mut drive, 6, Input::Opened(0));
    assert_eq!(actions(&mut drive, 6), [Send(0)]);
}

#[test]
fn a_request_behind_a_pipelined_one_that_fails_goes_on() {
    let connections = [connection(Http1)];
    let exchanges = [exchange(0, 0, 40), exchange(0, 20, 50), exchange(0, 30, 60)];
    let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
    let mut drive = Drive::new(plan, START);
    assert_eq!(actions(&mut drive, 0), [Open(0)]);
    handle(&mut drive, 5, Input::ConnectionFailed(0));
    // Neither the first nor the second is sent.
    assert_eq!(actions(&mut drive, 20), [Open(0)]);
    handle(&mut drive, 25, Input::ConnectionFailed(0));
    assert_eq!(actions(&mut drive, 30), [Open(0)]);
    handle(&mut drive, 30, Input::Opened(0));
    assert_eq!(actions(&mut drive, 30), [Send(2)]);
    handle(&mut drive, 35, Input::Ended(2));
    assert_eq!(actions(&mut drive, 35), [Close(0)]);
    assert!(drive.is_done());
}

#[test]
fn events_that_cannot_be_are_ignored() {
    let connections = [connection(Http2)];
    let exchanges = [exchange(0, 0, 40), exchange(0, 50, 60)];
    let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
    let mut drive = Drive::new(plan, START);
    let all = |number| {
        let total = Size::from_bytes(3);
        [
            Input::ConnectionFailed(number),
            Input::ResponseStarted(number),
            Input::Received { exchange: number, total },
            Input::Ended(number),
            Input::Failed(number),
            Input::Opened(number),
        ]
    };
    for number in [0, 1, 7] {
        for input in all(number) {
            handle(&mut drive, 0, input);
        }
    }
    assert_eq!(actions(&mut drive, 0), [Open(0)]);
    assert!(endings(&drive).is_empty());
    handle(&mut drive, 10, Input::Opened(0));
    // Times that decrease.
    assert_eq!(actions(&mut drive, 3), [Send(0)]);
    assert_eq!(drive.outcome().exchanges[0].start, after(10));
    handle(&mut drive, 20, Input::Received { exchange: 0, total: Size::from_bytes(9) });
    handle(&mut drive, 21, Input::Received { exchange: 0, total: Size::from_bytes(4) });
    handle(&mut drive, 22, Input::Ended(0));
    let before = drive.outcome();
    assert_eq!(before.exchanges[0].received, Size::from_bytes(9));
    handle(&mut drive, 23, Input::Failed(0));
    handle(&mut drive, 23, Input::Ended(1));
    handle(&mut drive, 23, Input::Opened(0));
    assert_eq!(drive.outcome(), before);
    assert!(!drive.is_done());
}

#[test]
fn a_failure_before_the_action_to_open_belongs_to_no_attempt() {
    let connections = [connection(Http2), connection(Http2)];
    let exchanges = [exchange(0, 0, 40), exchange(1, 0, 40)];
    let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
    let mut drive = Drive::new(plan, START);
    assert_eq!(actions(&mut drive, 0), [Open(0), Open(1)]);
    handle(&mut drive, 0, Input::Opened(0));
    handle(&mut drive, 0, Input::Opened(1));
    handle(&mut drive, 0, Input::ConnectionFailed(0));
    // One action is returned, the other one follows.
    assert_eq!(drive.poll(START), Some(Send(1)));
    handle(&mut drive, 0, Input::ConnectionFailed(0));
    assert_eq!(actions(&mut drive, 0), [Open(0)]);
    assert!(endings(&drive).is_empty());
}

#[test]
fn a_connection_that_was_needed_before_its_planned_opening_is_opened_once() {
    let preconnected = Connection { opened: Some(at(112)), ..connection(Http2) };
    let exchanges =
        [exchange(0, 0, 110), exchange(0, 0, 120), exchange(1, 130, 140), exchange(0, 0, 700)];
    let mut network = Fixed {
        exchanges: [(0, (500, 1)), (1, (20, 1)), (3, (600, 1))].into(),
        ..Fixed::default()
    };
    let (_, log) = drive(&[connection(Http2), preconnected], &exchanges, &mut network);
    let expected = [
        (0, Open(0)),
        (0, Send(0)),
        (0, Send(1)),
        (0, Send(3)),
        (30, Open(1)),
        (30, Send(2)),
        (30, Close(1)),
        (600, Close(0)),
    ];
    assert_eq!(log, expected);
}

#[test]
fn a_plan_without_exchanges_is_done() {
    let mut drive = Drive::new(Plan::default(), START);
    assert!(drive.poll(START).is_none() && drive.next_wakeup().is_none() && drive.is_done());
    assert_eq!(drive.outcome().app_response_time(), None);
}

#[test]
fn ten_thousand_exchanges_are_driven() {
    let connections: Vec<Connection> =
        (0..500).map(|place| connection(if place % 2 == 0 { Http1 } else { Http2 })).collect();
    let exchanges: Vec<Exchange<'_>> =
        (0..10_000).map(|place| exchange(place % 400, place as u64, place as u64 + 350)).collect();
    let (drive, log) = drive(&connections, &exchanges, &mut Fixed::default());
    let sent = log.iter().filter(|(_, action)| matches!(action, Send(_))).count();
    assert_eq!((sent, drive.outcome().failed()), (10_000, 0));
}
