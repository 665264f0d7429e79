use manyways_unit::{Size, Span};

use super::super::plan::{Cancellation, Opening, Plan, Predecessor};
use super::super::recording::Protocol::{Http1, Http2};
use super::super::recording::{Completion, Connection, Exchange, Recording};
use super::{at, connection, exchange};

fn plan(connections: &[Connection], exchanges: &[Exchange<'_>]) -> Plan {
    Plan::new(&Recording { connections, exchanges })
}

/// The exchange that each exchange waits for, and the gap in milliseconds.
fn conditions(plan: &Plan) -> Vec<(Option<usize>, u64)> {
    plan.exchanges().iter().map(|one| (one.after, millis(one.gap))).collect()
}

fn millis(span: Span) -> u64 {
    span.as_nanos() / 1_000_000
}

#[test]
fn exchanges_wait_for_the_response_that_ended_last() {
    let connections = [connection(Http2), connection(Http2)];
    // Not in the order of their times.
    let exchanges = [
        exchange(1, 340, 500),
        exchange(0, 100, 200),
        exchange(0, 110, 320),
        exchange(1, 230, 250),
        exchange(1, 320, 330),
    ];
    let expected = [(Some(4), 10), (None, 0), (None, 10), (Some(1), 30), (Some(2), 0)];
    assert_eq!(conditions(&plan(&connections, &exchanges)), expected);
}

#[test]
fn failures_of_the_server_count_as_ends_and_aborts_of_the_client_do_not() {
    let connections = [connection(Http2)];
    let ends = |completion| Exchange { completion, ..exchange(0, 10, 80) };
    let condition = |second| {
        let exchanges = [exchange(0, 0, 50), second, exchange(0, 100, 200)];
        conditions(&plan(&connections, &exchanges))[2]
    };
    assert_eq!(condition(ends(Completion::Complete)), (Some(1), 20));
    assert_eq!(condition(ends(Completion::AbortedByServer)), (Some(1), 20));
    assert_eq!(condition(ends(Completion::AbortedByClient)), (Some(0), 50));
    assert_eq!(condition(ends(Completion::Unfinished)), (Some(0), 50));
    assert_eq!(condition(Exchange { ended: None, ..exchange(0, 10, 80) }), (Some(0), 50));
}

#[test]
fn clocks_that_contradict_each_other_do_not_cause_a_dependency_on_the_future() {
    let connections = [connection(Http2)];
    // Ends before its start.
    let early = exchange(0, 90, 20);
    // Was wanted after it was sent.
    let late = Exchange { started: at(95), ..exchange(0, 10, 30) };
    let exchanges = [exchange(0, 0, 50), early, late, exchange(0, 100, 110)];
    let expected = [(None, 0), (Some(0), 40), (Some(1), 5), (Some(2), 5)];
    assert_eq!(conditions(&plan(&connections, &exchanges)), expected);
}

#[test]
fn exchanges_of_http1_wait_for_their_predecessor_unless_they_were_pipelined() {
    let predecessors = |connection: Connection, next: Exchange<'_>| {
        let exchanges = [exchange(0, 0, 100), next, exchange(0, 200, 300)];
        let plan = plan(&[connection], &exchanges);
        [0, 1, 2].map(|place| plan.exchanges()[place].predecessor)
    };
    let pipelined = exchange(0, 50, 150);
    let queued = Exchange { sent: None, ..pipelined };
    let [ended, sent] = [Predecessor::Ended(0), Predecessor::Sent(0)];
    let last = Some(Predecessor::Ended(1));
    assert_eq!(predecessors(connection(Http1), pipelined), [None, Some(sent), last]);
    assert_eq!(predecessors(connection(Http1), queued), [None, Some(ended), last]);
    assert_eq!(predecessors(connection(Http1), exchange(0, 100, 150)), [None, Some(ended), last]);
    assert_eq!(predecessors(connection(Http2), pipelined), [None; 3]);
    // It never ended.
    let endless = Exchange { completion: Completion::Unfinished, ..exchange(0, 120, 130) };
    let last = Some(Predecessor::Sent(1));
    assert_eq!(predecessors(connection(Http1), endless), [None, Some(ended), last]);
}

#[test]
fn exchanges_without_a_connection_share_those_of_their_origin() {
    let derived = |protocol, origin, start, end| Exchange {
        connection: None,
        protocol,
        origin,
        ..exchange(0, start, end)
    };
    let mut exchanges = vec![
        derived(Http1, "a", 0, 100),
        derived(Http1, "a", 10, 90),
        derived(Http2, "b", 10, 500),
        derived(Http2, "b", 20, 600),
        derived(Http1, "b", 20, 600),
        // The connection that was used last is free.
        derived(Http1, "a", 100, 130),
        derived(Http1, "a", 110, 160),
        // The connection of the recording has the first number.
        Exchange { protocol: Http1, ..exchange(0, 120, 700) },
        // There is no such connection.
        Exchange { connection: Some(9), ..derived(Http2, "b", 120, 700) },
    ];
    // Of eight at a time, the last two wait for connections: that which is free first, and the next.
    exchanges.extend([1, 2, 4, 3, 9, 9].map(|ends| derived(Http1, "c", 200, 200 + ends)));
    exchanges.extend([derived(Http1, "c", 200, 210), derived(Http1, "c", 200, 220)]);
    let plan = plan(&[connection(Http1)], &exchanges);
    let of: Vec<usize> = plan.exchanges().iter().map(|one| one.connection).collect();
    assert_eq!(of[..9], [1, 2, 3, 3, 4, 1, 2, 0, 3]);
    assert_eq!(of[9..], [5, 6, 7, 8, 9, 10, 5, 6]);
    let kinds: Vec<_> =
        plan.connections().iter().map(|one| (one.protocol, one.is_recorded)).collect();
    assert_eq!(
        kinds[..5],
        [(Http1, true), (Http1, false), (Http1, false), (Http2, false), (Http1, false)]
    );
    assert_eq!(plan.connections()[3].exchanges, [2, 3, 8]);
    // Overlaps on derived connections do not show pipelining.
    assert_eq!(plan.exchanges()[15].predecessor, Some(Predecessor::Ended(9)));
}

#[test]
fn connections_that_were_opened_before_their_use_open_after_the_last_response() {
    let opened = |millis| Connection { opened: Some(at(millis)), ..connection(Http2) };
    let connections = [
        opened(0),
        opened(160),
        opened(101),
        connection(Http2),
        opened(250),
        opened(90),
        opened(200),
    ];
    let exchanges = [
        exchange(0, 40, 100),
        exchange(1, 300, 400),
        // Sent before its connection was opened.
        exchange(2, 100, 120),
        exchange(3, 210, 260),
        // Sent when it was opened, and ended at once.
        exchange(6, 200, 200),
    ];
    let plan = plan(&connections, &exchanges);
    let opening = |after, millis| Some(Opening { after, gap: Span::from_millis(millis) });
    let found: Vec<_> = plan.connections().iter().map(|one| one.opening).collect();
    let expected = [
        opening(None, 0),
        opening(Some(2), 40),
        None,
        None,
        opening(Some(4), 50),
        opening(None, 90),
        opening(Some(2), 80),
    ];
    assert_eq!(found, expected);
    let expected = [(None, 40), (Some(3), 40), (Some(0), 0), (Some(4), 10), (Some(2), 80)];
    assert_eq!(conditions(&plan), expected);
}

#[test]
fn the_time_of_handshakes_is_not_in_the_gap() {
    // A connection that was opened at 150 ms and ready at 250 ms, after responses until 100 ms and
    // another time.
    let condition = |other_end, used: Exchange<'_>| {
        let connection_1 =
            Connection { opened: Some(at(150)), ready: Some(at(250)), ..connection(Http2) };
        let exchanges = [exchange(0, 0, 100), exchange(0, 0, other_end), used];
        let plan = plan(&[connection(Http2), connection_1], &exchanges);
        let one = plan.exchanges()[2];
        (one.after, millis(one.gap), millis(one.lag))
    };
    assert_eq!(condition(90, exchange(1, 250, 400)), (Some(0), 50, 0));
    assert_eq!(condition(90, exchange(1, 300, 400)), (Some(0), 50, 50));
    assert_eq!(condition(90, exchange(1, 301, 400)), (Some(0), 201, 0), "it did not wait");
    assert_eq!(condition(200, exchange(1, 255, 400)), (Some(1), 0, 5));
    assert_eq!(
        condition(252, exchange(1, 255, 400)),
        (Some(1), 3, 0),
        "it waited for the response"
    );
    // A request that the client wanted while its connection was opened, or before.
    let wanted = |millis| Exchange { started: at(millis), ..exchange(1, 255, 400) };
    assert_eq!(condition(90, wanted(180)), (Some(0), 80, 5));
    assert_eq!(condition(90, wanted(120)), (Some(0), 50, 5));
}

#[test]
fn the_client_ends_what_it_ended_in_the_recording() {
    let cancellation = |completion, ended: Option<u64>, bytes| {
        let downloaded = Size::from_bytes(bytes);
        let ended = ended.map(at);
        let one = Exchange { completion, ended, downloaded, ..exchange(0, 100, 0) };
        plan(&[connection(Http2)], &[one]).exchanges()[0].cancellation
    };
    use Completion::{AbortedByClient, AbortedByServer, Complete, Unfinished};
    let received = Some(Cancellation::Received(Size::from_bytes(5)));
    assert_eq!(cancellation(Complete, Some(150), 0), None);
    assert_eq!(cancellation(AbortedByServer, None, 5), None);
    assert_eq!(cancellation(AbortedByClient, Some(150), 5), received);
    let waited = Some(Cancellation::Waited(Span::from_millis(50)));
    assert_eq!(cancellation(AbortedByClient, Some(150), 0), waited);
    assert_eq!(cancellation(AbortedByClient, None, 0), Some(Cancellation::OthersOver));
    assert_eq!(cancellation(Unfinished, Some(150), 0), Some(Cancellation::OthersOver));
    assert_eq!(cancellation(Unfinished, Some(150), 5), received);
}
