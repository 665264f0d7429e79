//! What limits a flow whose only limit is known.

use crate::world::{World, cannot};

/// The columns that a reader of a failure wants.
const SHARES: [&str; 14] = [
    "down_limited_by",
    "down_limited_application",
    "down_limited_think",
    "down_limited_receiver_window",
    "down_limited_congestion",
    "down_limited_loss",
    "down_limited_start_up",
    "rtt",
    "rtt_min",
    "rtt_samples",
    "down_in_flight_max",
    "client_window_max",
    "down_data_packets",
    "down_lost_behind",
];

/// Runs the same client over several links at the same time, and says by what each flow is limited.
#[track_caller]
fn limited_by(links: &[&str], cc: &str, client: &str, truth: &str) {
    if let Some(lack) = cannot() {
        eprintln!("skipped: {lack}");
        return;
    }
    let links: Vec<String> =
        links.iter().enumerate().map(|(index, link)| format!("l{index}:{link}")).collect();
    let mut script = String::new();
    for index in 1..=links.len() {
        script.push_str(&format!("$PEER client --bind 10.64.{index}.2 {client} &\n"));
    }
    script.push_str("wait\n");
    let captured = World { links: links.clone(), cc, ..World::default() }.run(&script);
    let mut wrong = Vec::new();
    for link in &links {
        let name = link.split(':').next().unwrap_or_default();
        let tables = captured.tables(name);
        let flow = &tables.table("tcp")[0];
        eprintln!("{truth}: {link}: {}", flow.tell(&SHARES));
        if flow.text("down_limited_by") != Some(truth) {
            wrong.push(format!("{link}: {}", flow.tell(&SHARES)));
        }
    }
    assert!(wrong.is_empty(), "{} of {} are not {truth}: {wrong:#?}", wrong.len(), links.len());
}

#[test]
fn an_application_that_has_little_to_send() {
    let links = ["delay=5ms", "delay=25ms", "delay=50ms", "delay=100ms", "down=20mbit,delay=10ms"];
    limited_by(&links, "cubic", "read every 0.1 30 20000", "application");
}

#[test]
fn a_receiver_with_a_small_window() {
    let links = ["delay=5ms", "delay=10ms", "delay=25ms", "delay=50ms", "down=50mbit,delay=20ms"];
    limited_by(&links, "cubic", "--rcvbuf 20000 read bulk 2000000", "receiver_window");
    limited_by(&links, "reno", "--rcvbuf 50000 read bulk 3000000", "receiver_window");
}

#[test]
fn a_path_that_is_full() {
    let links = [
        "down=10mbit,delay=5ms,queue=100ms",
        "down=10mbit,delay=20ms,queue=150ms",
        "down=5mbit,delay=30ms,queue=64KB",
        "down=20mbit,delay=10ms,queue=100ms",
        "down=10mbit,delay=40ms,queue=50p",
    ];
    limited_by(&links, "cubic", "read bulk 6000000", "congestion");
    limited_by(&links, "reno", "read bulk 6000000", "congestion");
}

#[test]
fn losses_without_a_queue() {
    let links = [
        "down-loss=2%,delay=10ms",
        "down-loss=2%,delay=20ms",
        "down-loss=1%,delay=30ms",
        "down-loss=3%,delay=10ms",
        "down-loss=2%,delay=40ms",
    ];
    limited_by(&links, "cubic", "read bulk 2500000", "loss");
    limited_by(&links, "reno", "read bulk 2500000", "loss");
}

#[test]
fn a_window_that_still_grows() {
    let links = ["delay=20ms", "delay=50ms", "delay=100ms", "down=100mbit,delay=50ms", "delay=35ms"];
    limited_by(&links, "cubic", "read bulk 60000", "start_up");
    limited_by(&links, "reno", "read bulk 200000", "start_up");
}

#[test]
fn a_server_that_thinks() {
    let links = ["delay=5ms", "delay=10ms", "delay=25ms", "delay=50ms", "down=20mbit,delay=10ms"];
    limited_by(&links, "cubic", "ask 8 0.05 0.3 5000", "think");
}
