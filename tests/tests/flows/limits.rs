//! Sender limits of flows with exactly one known limit.

use manyways_tests::{conclusive, needs};

use crate::testbed::{Captured, NEEDS, Testbed};

/// Columns for the message of a failed assertion.
const SHARES: [&str; 14] = [
    "down_limited_by",
    "down_limited_application",
    "down_limited_think",
    "down_limited_receiver_window",
    "down_limited_congestion",
    "down_limited_loss",
    "down_limited_slow_start",
    "rtt",
    "rtt_min",
    "rtt_samples",
    "down_in_flight_max",
    "client_window_max",
    "down_data_segments",
    "down_lost_after",
];

/// Runs the same client over several links at the same time. Returns the limits of each flow, as
/// seen at the client and at the server.
fn limited_by(links: &[&str], client: &str, truth: &str) {
    needs!(NEEDS);
    conclusive(|| {
        let (captured, wrong) = wrong(links, client, truth);
        captured.outcome(wrong)
    });
}

fn wrong(links: &[&str], client: &str, truth: &str) -> (Captured, Vec<String>) {
    let links: Vec<String> =
        links.iter().enumerate().map(|(index, link)| format!("l{index}:{link}")).collect();
    let mut script = String::new();
    for index in 1..=links.len() {
        let words = format!("$PEER client --bind 10.64.{index}.2 {client}");
        script.push_str(&format!("{words} & ALL=\"$ALL $!\"\n"));
    }
    script.push_str("for one in $ALL; do wait $one; done\n");
    let captured = Testbed { links: links.clone(), captures_at_server: true, ..Testbed::default() }
        .run(&script);
    let mut wrong = Vec::new();
    for link in &links {
        let name = link.split(':').next().unwrap_or_default();
        for file in [name.to_owned(), format!("{name}-server")] {
            let tables = captured.tables(&file);
            let flow = &tables.table("tcp")[0];
            eprintln!("{truth}: {file} {link}: {}", flow.describe(&SHARES));
            if flow.text("down_limited_by") != Some(truth) {
                wrong.push(format!("{file}: {link}: {}", flow.describe(&SHARES)));
            }
        }
    }
    (captured, wrong)
}

// Slow: five flows that send for 2.5 s.
#[test]
fn an_application_that_has_little_to_send() {
    let links = ["delay=5ms", "delay=25ms", "delay=50ms", "delay=100ms", "down=20mbit,delay=10ms"];
    limited_by(&links, "read every 0.1 25 20000", "application");
}

// Slow: ten downloads with small windows.
#[test]
fn a_receiver_with_a_small_window() {
    let links = ["delay=5ms", "delay=10ms", "delay=25ms", "delay=50ms", "down=50mbit,delay=20ms"];
    limited_by(&links, "--rcvbuf 20000 read bulk 800000", "receiver_window");
    limited_by(&links, "--rcvbuf 50000 read bulk 2000000 reno", "receiver_window");
}

// Slow: two downloads of 4 MB at 5 to 20 Mbit/s.
#[test]
fn a_path_that_is_full() {
    let links = [
        "down=10mbit,delay=5ms,queue=100ms",
        "down=10mbit,delay=20ms,queue=150ms",
        "down=5mbit,delay=30ms,queue=64KB",
        "down=20mbit,delay=10ms,queue=100ms",
        "down=10mbit,delay=40ms,queue=50p",
    ];
    limited_by(&links, "read bulk 4000000", "congestion");
    limited_by(&links, "read bulk 4000000 reno", "congestion");
}

/// The number of lost packets is known from the captures of dropped packets of the lab.
// Slow: two downloads of 2.5 MB with losses.
#[test]
fn losses_without_a_queue() {
    needs!(NEEDS);
    let links = [
        "down-loss=2%,delay=10ms",
        "down-loss=2%,delay=20ms",
        "down-loss=1%,delay=30ms",
        "down-loss=3%,delay=10ms",
        "down-loss=2%,delay=40ms",
    ];
    for client in ["read bulk 2500000", "read bulk 2500000 reno"] {
        conclusive(|| {
            let (captured, mut wrong) = wrong(&links, client, "loss");
            for index in 0..links.len() {
                let truth = captured.dropped(&format!("pcap/l{index}"), None);
                let truth = (truth.0.len() as u64, truth.1);
                for (file, column, none) in [
                    (format!("l{index}"), "down_lost_before", "down_lost_after"),
                    (format!("l{index}-server"), "down_lost_after", "down_lost_before"),
                ] {
                    let tables = captured.tables(&file);
                    let flow = &tables.table("tcp")[0];
                    let said = flow.count(column) as u64;
                    let told = flow.describe(&crate::loss::COUNTS);
                    eprintln!("{file}: {column} {said}, dropped {truth:?}; {told}");
                    if !crate::loss::is_right(said, truth) || flow.count(none) > 0 {
                        wrong.push(format!("{file}: {column} {said}, dropped {truth:?}; {told}"));
                    }
                }
            }
            captured.outcome(wrong)
        });
    }
}

#[test]
fn a_window_that_still_grows() {
    let links =
        ["delay=20ms", "delay=50ms", "delay=100ms", "down=100mbit,delay=50ms", "delay=35ms"];
    limited_by(&links, "read bulk 60000", "slow_start");
    limited_by(&links, "read bulk 200000 reno", "slow_start");
}

#[test]
fn a_server_that_thinks() {
    let links = ["delay=5ms", "delay=10ms", "delay=25ms", "delay=50ms", "down=20mbit,delay=10ms"];
    limited_by(&links, "ask 8 0.05 0.3 5000", "think");
}
