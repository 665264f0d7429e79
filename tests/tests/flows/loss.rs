//! What is lost on which side of a capture point between two links that lose packets.

use crate::world::{World, cannot, tries};

/// The columns that a reader of a failure wants.
pub const COUNTS: [&str; 11] = [
    "down_data_packets",
    "down_again_fast",
    "down_again_timeout",
    "down_again_probe",
    "down_again_spurious",
    "down_reordered",
    "down_duplicated",
    "down_lost_before",
    "down_lost_behind",
    "down_unseen",
    "up_unseen",
];

/// Exact, but for copies of what was sent again and for tails: 5 % of many, and one of few.
pub fn is_right(said: u64, truth: u64) -> bool {
    said.abs_diff(truth) as f64 <= (truth as f64 * 0.05).max(1.0)
}

#[test]
fn each_side_has_its_own() {
    if let Some(lack) = cannot() {
        eprintln!("skipped: {lack}");
        return;
    }
    let near = [
        "a:delay=5ms,down-loss=0.5%",
        "b:delay=10ms,down-loss=2%",
        "c:delay=2ms",
        "d:delay=8ms,down-loss=1%",
    ];
    tries(|| {
        let mut script = String::new();
        for index in 1..=near.len() {
            let words = format!("--server 198.18.0.2 --bind 10.64.{index}.2 read bulk 3000000");
            script
                .push_str(&format!("$PEER client {words} > $OUT/said{index} & ALL=\"$ALL $!\"\n"));
        }
        script.push_str("for one in $ALL; do wait $one; done; cat $OUT/said*\n");
        let links = vec!["net:delay=10ms,down-loss=1%".to_owned()];
        let captured = World { links, near: &near, ..World::default() }.run(&script);
        let tables = captured.tables("net");
        let mut wrong = Vec::new();
        for (port, near) in captured.ports().iter().zip(near) {
            let flow = tables.flow(*port);
            let name = near.split(':').next().unwrap_or_default();
            let filter = format!("tcp and dst port {port} and greater 100");
            let local = captured.dropped(&format!("pcap-near/{name}"), "tcp and greater 100");
            let remote = captured.dropped("pcap/net", &filter);
            for (column, truth) in [("down_lost_behind", local), ("down_lost_before", remote)] {
                let said = flow.count(column) as u64;
                eprintln!("{near}: {column} {said}, dropped {truth}; {}", flow.tell(&COUNTS));
                if !is_right(said, truth) {
                    wrong.push(format!(
                        "{near}: {column} {said}, dropped {truth}; {}",
                        flow.tell(&COUNTS)
                    ));
                }
            }
            let rates = [("local_loss", local), ("remote_loss", remote)];
            for (column, truth) in rates {
                let said = flow.number(column).unwrap_or(-1.0);
                let share = truth as f64 / flow.count("down_data_packets") as f64;
                if (said - share).abs() > 0.001 {
                    wrong.push(format!("{near}: {column} {said}, truth {share}"));
                }
            }
        }
        wrong.is_empty().then_some(()).ok_or(format!("{wrong:#?}"))
    });
}
