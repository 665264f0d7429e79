use manyways_net::bond::{PathState, SessionPath, SessionStatus};

use super::*;

fn one() -> StreamStatus {
    StreamStatus {
        stream: Some(3),
        protocol: "tcp".into(),
        destination: "[2001:db8::1]:443".into(),
        domain: Some("www.example.com".into()),
        process: Some("fire\x1bfox".into()),
        user: None,
        rule: None,
        decision: "bond".into(),
        scheduler: Some("buffer-aware".into()),
        waiting_for_path: false,
        delayed: false,
        age_seconds: 130.0,
        up_bytes: 1_234,
        down_bytes: 9_876_543,
        paths: [("wifi", 900), ("lte", 100)]
            .map(|(name, received_bytes)| {
                (name.to_owned(), PathBytesStatus { sent_bytes: 0, received_bytes })
            })
            .into(),
    }
}

fn wlan() -> PathStatus {
    PathStatus {
        name: "wlp3s0".into(),
        kind: "cellular".into(),
        state: PathState::Suspect,
        carrier: Some("quic".into()),
        metered: true,
        down_bps: 123_456_789,
        up_bps: 34_100,
        capacity_bps: Some(19_250_000),
        load: None,
        rtt_seconds: Some(0.140),
        delivery_seconds: None,
        lender: None,
        loss: Some(0.012),
        queue_bytes: 999_000,
        in_flight_bytes: 0,
        received_bytes: 0,
        sent_bytes: 0,
        plan_used_bytes: 888_123,
        plan_remaining_bytes: Some(999_123_456),
    }
}

#[test]
fn a_network_says_what_carries_it_and_two_of_them_fit_eighty_columns() {
    let streams = vec![one(), StreamStatus { rule: Some("r".repeat(60)), ..one() }];
    let status = Status {
        name: "default".into(),
        version: String::new(),
        uptime_seconds: 4.0,
        policy: None,
        no_path_action: None,
        auto_goals: Vec::new(),
        ended: Vec::new(),
        paths: vec![wlan(), PathStatus { name: "wwan0".into(), carrier: None, ..wlan() }],
        stream_count: 2,
        streams,
        totals: Totals::default(),
    };
    let text = client(&status);
    // The line with the data plans may be longer.
    for line in text.lines().filter(|line| !line.starts_with("rates")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let cells = ["wlp3s0", "cellular", "suspect", "quic", "123", "0.034", "19.2", "140 ms"];
    assert_eq!(path(&wlan())[..8], cells);
    assert!(text.contains("\nwwan0   cellular  suspect  -        123 "), "{text}");
    assert_eq!(usage(&wlan()), "wlp3s0 888 KB (metered, 999 MB left)");
    let no_path_action = Some("no network leads to the gateway".to_owned());
    let text = client(&Status { no_path_action, ..status });
    assert!(text.contains("no policy\nno network leads to the gateway\n\nPATH"), "{text}");
}

#[test]
fn with_a_lender_there_are_two_more_columns() {
    let lender = LenderStatus {
        address: None,
        first_hop_rtt_seconds: Some(0.006),
        second_hop_rtt_seconds: Some(0.060),
        second_hop_bps: Some(5_000_000),
        backlog_bytes: Some(123_456),
    };
    let lent = PathStatus {
        name: "phone".into(),
        kind: "lender".into(),
        delivery_seconds: Some(0.1234),
        lender: Some(lender.clone()),
        ..wlan()
    };
    let status = Status {
        name: "default".into(),
        version: String::new(),
        uptime_seconds: 4.0,
        policy: None,
        no_path_action: None,
        auto_goals: Vec::new(),
        ended: Vec::new(),
        paths: vec![wlan(), lent],
        stream_count: 0,
        streams: Vec::new(),
        totals: Totals { recalled_bytes: 2_000, ..Totals::default() },
    };
    let text = client(&status);
    for line in text.lines().filter(|line| !line.starts_with("rates")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let lines: Vec<&str> = text.lines().skip(2).take(3).collect();
    assert!(lines[0].ends_with("QUEUE   DELIVERY  BACKLOG"), "{text}");
    assert!(lines[1].ends_with("999 KB  -         -"), "{text}");
    assert!(lines[2].ends_with("999 KB  123 ms    123 KB"), "{text}");
    assert!(text.contains("(spurious 0 B), recalled 2 KB\n"), "{text}");

    let path = |lender: Option<LenderStatus>| SessionPath {
        path: 1,
        state: PathState::Up,
        rtt_seconds: Some(0.066),
        delivery_seconds: Some(0.1234),
        lender,
        received_bytes: 1_000,
        sent_bytes: 2_000,
    };
    let of = |paths| GatewayStatus {
        version: String::new(),
        sessions: vec![SessionStatus {
            client: "laptop".into(),
            stream_count: 3,
            paths,
            totals: Totals::default(),
        }],
        ended: Default::default(),
        descriptors: 0,
        used_descriptors: 0,
        refused: Default::default(),
    };
    let lent = gateway(&of(vec![path(None), path(Some(lender))]));
    let lines: Vec<&str> = lent.lines().skip(2).collect();
    assert!(lines[0].ends_with("RTT    DELIVERY  BACKLOG"), "{lent}");
    assert!(lines[1].ends_with("66 ms  123 ms    -"), "{lent}");
    assert!(lines[2].ends_with("66 ms  123 ms    123 KB"), "{lent}");
    assert!(
        gateway(&of(vec![path(None)]))
            .ends_with("RTT\nlaptop  3        1     up     1 KB     2 KB   66 ms\n")
    );
}

#[test]
fn a_rate_has_three_digits() {
    let rates = [0, 400, 34_100, 7_080_000, 15_120_000, 999_900_000].map(megabits);
    assert_eq!(rates, ["0", "0.000", "0.034", "7.08", "15.1", "1000"]);
}

#[test]
fn a_stream_is_two_lines_and_no_escape_of_a_strange_name_gets_out() {
    let cells = stream(&one());
    assert_eq!(cells[0], "www.example.com:443");
    assert!(!cells[1].contains('\x1b'), "{:?}", cells[1]);
    assert_eq!(cells[2..], ["9.87 MB", "1.23 KB", "2 min"]);
    assert_eq!(decision(&one()), ["(default)", "buffer-aware", "lte 10 %, wifi 90 %"]);
}

#[test]
fn one_that_waits_says_so() {
    assert_eq!(decision(&StreamStatus { waiting_for_path: true, ..one() })[1], "waits for a path");
    let delayed = StreamStatus { delayed: true, waiting_for_path: true, ..one() };
    assert_eq!(decision(&delayed)[1], "delayed");
}

#[test]
fn three_digits_are_left() {
    assert_eq!([0, 7, 999, 1_234, 9_876_543].map(round_down), [0, 7, 999, 1_230, 9_870_000]);
}
