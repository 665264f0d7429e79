//! Losses on either side of a capture point, between two links that lose packets.

use manyways_tests::{conclusive, needs};

use crate::testbed::{NEEDS, Testbed};

/// Columns for the message of a failed assertion.
pub const COUNTS: [&str; 11] = [
    "down_data_segments",
    "down_retransmitted_fast",
    "down_retransmitted_timeout",
    "down_retransmitted_probe",
    "down_retransmitted_spurious",
    "down_reordered",
    "down_duplicated",
    "down_lost_before",
    "down_lost_after",
    "down_unseen",
    "up_unseen",
];

/// Each offset with a lost copy counts. An offset that was lost twice before the capture point is
/// not distinguishable from one lost once. Of tail losses and lost retransmissions, 5 % may be
/// missed, or one: a copy that a probe sends together with new data has the timestamp of the new
/// data, and looks reordered.
pub fn is_right(said: u64, (places, copies): (u64, u64)) -> bool {
    (places - (places / 20).max(1).min(places)..=copies).contains(&said)
}

// Slow: four downloads with losses.
#[test]
fn each_side_has_its_own() {
    needs!(NEEDS);
    let near = [
        "a:delay=5ms,down-loss=0.5%",
        "b:delay=10ms,down-loss=2%",
        "c:delay=2ms",
        "d:delay=8ms,down-loss=1%",
    ];
    conclusive(|| {
        let mut script = String::new();
        for index in 1..=near.len() {
            let words = format!("--server 198.18.0.2 --bind 10.64.{index}.2 read bulk 3000000");
            script
                .push_str(&format!("$PEER client {words} > $OUT/said{index} & ALL=\"$ALL $!\"\n"));
        }
        script.push_str("for one in $ALL; do wait $one; done; cat $OUT/said*\n");
        let links = vec!["net:delay=10ms,down-loss=1%".to_owned()];
        let captured = Testbed { links, client_links: &near, ..Testbed::default() }.run(&script);
        let tables = captured.tables("net");
        let (mut wrong, mut sums) = (Vec::new(), [0_u64; 2]);
        for (port, near) in captured.ports().iter().zip(near) {
            let flow = tables.flow(*port);
            let name = near.split(':').next().unwrap_or_default();
            let local = captured.dropped(&format!("pcap-near/{name}"), None);
            let remote = captured.dropped("pcap/net", Some(*port));
            // An offset lost on both sides passed once more than it was lost after the capture
            // point.
            let only = remote.0.difference(&local.0).count() as u64;
            let (local, remote) = ((local.0.len() as u64, local.1), (only, remote.1));
            for (column, truth) in [("down_lost_after", local), ("down_lost_before", remote)] {
                let said = flow.count(column) as u64;
                eprintln!("{near}: {column} {said}, dropped {truth:?}; {}", flow.describe(&COUNTS));
                sums = [sums[0] + said, sums[1] + truth.1];
                if !is_right(said, truth) {
                    wrong.push(format!(
                        "{near}: {column} {said}, dropped {truth:?}; {}",
                        flow.describe(&COUNTS)
                    ));
                }
            }
            let rates = [("local_loss", local), ("remote_loss", remote)];
            for (column, truth) in rates {
                let reported = flow.number(column).unwrap_or(-1.0);
                let share = truth.1 as f64 / flow.count("down_data_segments") as f64;
                if (reported - share).abs() > 0.0015 {
                    wrong.push(format!("{near}: {column} {reported}, truth {share}"));
                }
            }
        }
        eprintln!("{} of {} losses", sums[0], sums[1]);
        if sums[0].abs_diff(sums[1]) * 20 > sums[1] {
            wrong.push(format!("{} of {} losses", sums[0], sums[1]));
        }
        captured.outcome(wrong)
    });
}
