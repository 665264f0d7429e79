//! Round-trip times and their parts, at a capture point between two links.

use manyways_tests::{conclusive, needs};

use crate::testbed::{NEEDS, Testbed};

const RTT_COLUMNS: [&str; 12] = [
    "rtt",
    "rtt_min",
    "rtt_samples",
    "local_rtt",
    "local_rtt_min",
    "remote_rtt",
    "remote_rtt_min",
    "rtt_method",
    "up_rtt",
    "up_rtt_min",
    "handshake_client_rtt",
    "handshake_server_rtt",
];

/// Permitted error: 2 %, or 0.3 ms.
fn is_near(reported: f64, truth: f64) -> bool {
    (reported - truth).abs() <= (truth * 0.02).max(0.3)
}

/// Each part has a different delay, so that the parts are distinguishable. A flow that the receive
/// window limits has no queueing delay.
// Slow: five labs with small windows.
#[test]
fn both_halves() {
    needs!(NEEDS);
    // One-way delays, near and far; with and without timestamps.
    for (near, far, stamps) in [(5, 20, 1), (20, 5, 1), (2, 50, 1), (10, 20, 0), (30, 30, 0)] {
        conclusive(|| {
            let links = vec![format!("net:delay={far}ms")];
            let near_link = format!("near:delay={near}ms");
            // Without a limiting window, slow start sends bursts; and only Reno is simulated.
            let client = "$PEER client --server 198.18.0.2 --rcvbuf 40000";
            let script = format!(
                "sysctl -qw net.ipv4.tcp_timestamps={stamps}\n\
                 {client} read bulk 1500000 reno\n{client} --cc reno put 1500000\n"
            );
            let near_links = [near_link.as_str()];
            let testbed = Testbed {
                links,
                client_links: &near_links,
                cc: "reno",
                captures_at_server: true,
                ..Testbed::default()
            };
            let captured = testbed.run(&script);
            let tables = captured.tables("net");
            let (near, far) = (f64::from(near) * 2.0, f64::from(far) * 2.0);
            // With more, the halves could be taken for each other: the result is inconclusive.
            let late = (captured.lateness().as_secs_f64() * 1_000.0).min(near.min(far) / 4.0);
            let mut wrong = Vec::new();
            let mut check = |what: &str, reported: f64, truth: f64, is_right: bool| {
                if !is_right {
                    wrong.push(format!("{what} {reported:.3} ms, truth {truth}"));
                }
            };
            let ports = captured.ports();
            let (down, up) = (tables.flow(ports[0]), tables.flow(ports[1]));
            eprintln!("{near}+{far} ms, stamps {stamps}: {}", down.describe(&RTT_COLUMNS));
            eprintln!("    up: {}", up.describe(&RTT_COLUMNS));
            // The server measures complete round-trip times, with the delays of a busy machine.
            let seen = captured.tables("net-server");
            let whole = seen.flow(ports[0]).millis("local_rtt");
            let reported = down.millis("rtt");
            eprintln!("rtt {reported:.3} ms, at the server {whole:.3}");
            check("rtt", reported, whole, is_near(reported, whole));
            let sum = down.millis("local_rtt") + down.millis("remote_rtt");
            check("both halves", sum, whole, is_near(sum, whole));
            for (flow, column, truth) in [
                (down, "rtt_min", near + far),
                (down, "local_rtt_min", near),
                (down, "remote_rtt_min", far),
                (up, "up_rtt_min", near + far),
            ] {
                // The lab never delivers early. A packet that is late by some time makes one sample
                // longer by that time, and the next one shorter.
                let reported = flow.number(column).map_or(f64::NAN, |span| span * 1_000.0);
                check(
                    column,
                    reported,
                    truth,
                    reported >= truth - 0.05 - late && reported <= truth * 1.02 + 1.0 + late,
                );
            }
            for flow in [down, up] {
                for (column, truth) in
                    [("handshake_client_rtt", near), ("handshake_server_rtt", far)]
                {
                    let reported = flow.number(column).map_or(f64::NAN, |span| span * 1_000.0);
                    check(column, reported, truth, reported >= truth - 0.05);
                }
            }
            if down.count("rtt_samples") < 20 {
                wrong.push(format!("only {}", down.describe(&RTT_COLUMNS)));
            }
            captured.outcome(wrong)
        });
    }
}
