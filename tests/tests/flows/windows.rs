//! Initial windows of servers, and receive windows.

use std::time::Duration;

use manyways_tests::{Outcome, conclusive, needs};

use crate::rows::Row;
use crate::testbed::{Captured, NEEDS, Testbed};

const INITIAL_WINDOW_COLUMNS: [&str; 6] = [
    "icwnd",
    "icwnd_bytes",
    "icwnd_is_valid",
    "down_data_segments",
    "rtt_min",
    "handshake_server_rtt",
];

/// A server with this initial window responds with each congestion control, captured at the client,
/// at the server and in the middle.
fn initial_windows(window: u32) -> (Vec<(String, String, Row)>, Duration) {
    let mut all = Vec::new();
    let change = |from: &str, dev: &str| {
        format!("ip route change 10.64.1.0/24 dev {dev} scope link src {from} initcwnd {window}")
    };
    let answers = |server: &str| -> String {
        ["cubic", "reno", "bbr"]
            .map(|cc| format!("$PEER client --server {server} read bulk 200000 {cc}\n"))
            .concat()
    };
    let mut look = |captured: &Captured, file: &str| {
        let tables = captured.tables(file);
        for (port, cc) in captured.ports().iter().zip(["cubic", "reno", "bbr"]) {
            all.push((file.to_owned(), cc.to_owned(), tables.flow(*port).clone()));
        }
    };
    let links = vec!["net:delay=20ms".to_owned()];
    let before = change("198.18.0.1", "net");
    let testbed = Testbed {
        links: links.clone(),
        server_setup: &before,
        captures_at_server: true,
        ..Testbed::default()
    };
    let captured = testbed.run(&answers("198.18.0.1"));
    look(&captured, "net");
    look(&captured, "net-server");
    let before = change("198.18.0.2", "net");
    let testbed = Testbed {
        links,
        client_links: &["near:delay=10ms"],
        server_setup: &before,
        ..Testbed::default()
    };
    let middle = testbed.run(&answers("198.18.0.2"));
    look(&middle, "net");
    (all, captured.lateness().max(middle.lateness()))
}

// Slow: six labs.
#[test]
fn the_first_window_of_a_server() {
    needs!(NEEDS);
    for window in [10, 32, 4] {
        conclusive(|| {
            let mut wrong = Vec::new();
            let (windows, lateness) = initial_windows(window);
            for (file, cc, flow) in windows {
                eprintln!("{window} {file} {cc}: {}", flow.describe(&INITIAL_WINDOW_COLUMNS));
                let is_exact =
                    flow.flag("icwnd_is_valid") && flow.count("icwnd") == i64::from(window);
                // Linux paces with BBR, except for the first ten segments: a valid estimate must
                // still be right.
                let is_right = is_exact || cc == "bbr" && !flow.flag("icwnd_is_valid");
                if !is_right {
                    wrong.push(format!(
                        "{window} {file} {cc}: {}",
                        flow.describe(&INITIAL_WINDOW_COLUMNS)
                    ));
                }
            }
            Outcome { wrong, lateness }
        });
    }
}

const RECEIVE_WINDOW_COLUMNS: [&str; 10] = [
    "client_scale",
    "client_window_first",
    "client_window_min",
    "client_window_max",
    "client_window_closed",
    "client_window_limited",
    "down_limited_by",
    "down_window_probes",
    "up_keep_alives",
    "down_keep_alives",
];

/// The kernel doubles the requested buffer, and announces no larger window.
#[test]
fn what_a_receiver_grants() {
    needs!(NEEDS);
    let script = "$PEER client --rcvbuf 16000 read bulk 600000\n\
                  $PEER client --rcvbuf 8000 --stall 2.5 read bulk 300000\n\
                  $PEER client --keepalive 1 rest 3.6\n";
    conclusive(|| {
        let links = vec!["net:delay=10ms".to_owned()];
        let captured = Testbed { links, ..Testbed::default() }.run(script);
        let tables = captured.tables("net");
        let flows: Vec<&Row> = captured.ports().iter().map(|port| tables.flow(*port)).collect();
        flows.iter().for_each(|flow| eprintln!("{}", flow.describe(&RECEIVE_WINDOW_COLUMNS)));
        let [small, stalled, idle] = flows[..] else { panic!("three flows") };
        let mut wrong = Vec::new();
        for (flow, max) in [(small, 32_000), (stalled, 16_000)] {
            let windows = ["client_window_min", "client_window_first", "client_window_max"]
                .map(|column| flow.count(column));
            assert!(windows.is_sorted() && windows[2] <= max && windows[1] > 0, "{windows:?}");
            assert!(flow.integer("client_scale").is_some() && flow.flag("client_window_limited"));
            // A sender that waits for a processor limits the flow itself.
            if flow.text("down_limited_by") != Some("receiver_window") {
                wrong.push(flow.describe(&RECEIVE_WINDOW_COLUMNS));
            }
        }
        let [closed, probes] = ["client_window_closed", "down_window_probes"]
            .map(|column| [small.count(column), stalled.count(column)]);
        assert_eq!((closed[0], probes[0]), (0, 0));
        assert!(closed[1] >= 1 && stalled.count("client_window_min") == 0, "{closed:?}");
        assert!(probes[1] >= 2, "{probes:?}");
        assert_eq!(stalled.count("down_lost_before") + stalled.count("down_lost_after"), 0);
        // One a second, and the program may rest for longer than it intends.
        let rested = captured.outputs()[2]["seconds"].as_f64().expect("a number");
        assert!(
            (2..=rested as i64 + 1).contains(&idle.count("up_keep_alives")),
            "{}",
            idle.describe(&RECEIVE_WINDOW_COLUMNS)
        );
        assert_eq!(idle.count("up_lost_after") + idle.count("up_retransmitted_spurious"), 0);
        captured.outcome(wrong)
    });
}
