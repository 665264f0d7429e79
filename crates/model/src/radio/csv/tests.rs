use manyways_unit::Span;
use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Vec<Packet>, CsvError> {
    let mut lines = text.lines();
    let mut reader = Reader::new(lines.next().unwrap_or_default())?;
    let mut packets = Vec::new();
    for line in lines {
        packets.extend(reader.line(line)?);
    }
    Ok(packets)
}

#[test]
fn a_trace_reads() {
    let packets = read(
        "time,bytes,direction,app\n\
         0,60,up,mail\n\
         0.1234567891,1500,down,mail\n\
         \n\
         0.5,80,up,\"a, \"\"b\"\"\"\r\n\
         2.0,80,up,mail\n",
    )
    .unwrap();
    let of = |nanos, direction, bytes, app, session| Packet {
        at: Time::from_nanos(nanos),
        direction,
        bytes,
        app,
        session,
    };
    assert_eq!(
        packets,
        [
            of(0, Direction::Up, 60, 0, 1),
            of(123_456_789, Direction::Down, 1_500, 0, 1),
            of(500_000_000, Direction::Up, 80, 1, 2),
            // A packet after 1.8 s belongs to another session.
            of(2_000_000_000, Direction::Up, 80, 0, 3),
        ]
    );
}

#[test]
fn columns_may_stand_in_any_order_and_flows_are_sessions() {
    let packets = read(
        "direction,flow,x,bytes,time,application\n\
         up,7,,60,2026-01-31T12:00:00.5Z,example.org\n\
         down,8,,60,2026-01-31T12:00:01Z,example.org\n\
         down,7,,60,2026-01-31T13:00:00Z,example.org\n",
    )
    .unwrap();
    let sessions: Vec<u32> = packets.iter().map(|packet| packet.session).collect();
    assert_eq!(sessions, [1, 2, 1]);
    assert_eq!(packets[1].at.since(packets[0].at), Span::from_millis(500));
}

#[test]
fn errors_name_their_line() {
    let head = "time,bytes,direction\n";
    for (text, line, message) in [
        ("", 1, "there is no column `time`"),
        ("time,bytes\n", 1, "there is no column `direction`"),
        ("time,bytes,direction,Time\n", 1, "the column `time` occurs twice"),
        ("time,bytes,direction,flow,flow\n", 1, "the column `flow` occurs twice"),
        (
            "time,bytes,direction,application,app\n",
            1,
            "the columns `application` and `app` have the same meaning",
        ),
        (&format!("{head}1,60,up\n0.9,60,up"), 3, "the time is earlier than in the line before"),
        (&format!("{head}-1,60,up"), 2, "`-1` is not a time"),
        (&format!("{head}NaN,60,up"), 2, "`NaN` is not a time"),
        (&format!("{head},60,up"), 2, "`` is not a time"),
        (&format!("{head}1e3,60,up"), 2, "`1e3` is not a time"),
        (&format!("{head}99999999999999,60,up"), 2, "`99999999999999` is not a time"),
        (&format!("{head}1,-60,up"), 2, "`-60` is not a number of bytes"),
        (&format!("{head}1,60,sideways"), 2, "`sideways` is not a direction"),
        (&format!("{head}1,60"), 2, "2 values for 3 columns"),
        (&format!("{head}1,60,\"up"), 2, "a quoted value has no closing quote"),
        (&format!("{head}1,60,\"up\"x"), 2, "text follows a quoted value"),
        (&format!("{head}1,60,{}", "u".repeat(MAX_LINE)), 2, "the line has more than 4096 bytes"),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!((error.line, &*error.message), (line, message));
    }
}

proptest! {
    #[test]
    fn foreign_text_never_panics(text in "\\PC{0,80}(\n\\PC{0,40}){0,4}") {
        let _ = read(&text);
        let _ = read(&format!("time,bytes,direction\n{text}"));
    }

    #[test]
    fn written_values_are_read(nanos in 0_u64..u64::MAX / 2, bytes in any::<u32>()) {
        let (secs, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let text = format!("time,bytes,direction\n{secs}.{rest:09},{bytes},down");
        let packets = read(&text).unwrap();
        prop_assert_eq!((packets[0].at.as_nanos(), packets[0].bytes), (nanos, bytes));
    }
}
