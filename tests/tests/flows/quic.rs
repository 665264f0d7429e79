//! QUIC between real programs, captured between two links.

use manyways_tests::{Authority, Need, conclusive, folder, needs};

use crate::rows::Row;
use crate::testbed::{NEEDS, Testbed};

const COLUMNS: [&str; 12] = [
    "protocol",
    "quic_version",
    "sni",
    "alpn",
    "ja4",
    "handshake_server_rtt",
    "handshake_client_rtt",
    "spin_rtt",
    "spin_samples",
    "response_time",
    "retried",
    "early_data",
];

// Slow: two labs with downloads at 8 Mbit/s.
#[test]
fn what_is_not_secret_of_quic() {
    needs!(NEEDS, Need::Command("openssl"), Need::Command("ethtool"));
    let peer = env!("CARGO_BIN_EXE_quic-peer");
    // Round-trip times in milliseconds, near and far.
    for (near, far, retry) in [(10.0, 40.0, ""), (30.0, 20.0, "retry")] {
        conclusive(|| {
            let folder = folder();
            Authority::new(folder.path(), &["shop.example.test"]).expect("a certificate");
            let at = folder.path().display();
            let near_link = format!("near:delay={}ms", near / 2.0);
            let near_links = [near_link.as_str()];
            // Merged datagrams arrive in bursts, within which the time of an edge of the spin bit
            // is unknown.
            let before = format!(
                "ethtool -K net gso off tx-udp-segmentation off >/dev/null; \
                 {peer} serve {at} {retry} & true"
            );
            let testbed = Testbed {
                // A client that reads fast fills its window, which takes 60 ms.
                links: vec![format!("net:down=8mbit,delay={}ms", far / 2.0)],
                client_links: &near_links,
                server_setup: &before,
                tcpdump: "--snapshot-length 0",
                ..Testbed::default()
            };
            // The first connection waits for programs to be loaded from disk.
            let ask = format!("{peer} ask {at} 198.18.0.2 shop.example.test");
            let bulk = format!("{ask} 1 0 0 1200000\n");
            let captured = testbed.run(&format!(
                "eventually test -e {at}/ready\n\
                 {ask} 0 0 0 0\n{ask} 4 0.15 0.1 20000\n{bulk}{bulk}{bulk}"
            ));
            let tables = captured.tables("net");
            let [first, asking, bulk @ ..] = tables.table("udp") else { panic!("no flows") };
            assert_eq!(bulk.len(), 3, "{:?}", tables.table("udp"));
            for flow in tables.table("udp") {
                eprintln!("{near}+{far} ms {retry}: {}", flow.describe(&COLUMNS));
                let text = ["protocol", "quic_version", "sni", "alpn", "name", "name_source"];
                let name = Some("shop.example.test");
                assert_eq!(
                    text.map(|column| flow.text(column)),
                    [
                        Some("quic"),
                        Some("00000001"),
                        name,
                        Some("h3,hq-interop"),
                        name,
                        Some("tls")
                    ]
                );
                // rustls offers the three suites of TLS 1.3, in any order:
                // `printf 1301,1302,1303 | sha256sum`.
                let ja4 = flow.text("ja4").unwrap_or_default();
                assert!(ja4.starts_with("q13d03") && ja4.contains("h3_55b375c5d22e_"), "{ja4}");
                assert_eq!(flow.text("ja4"), first.text("ja4"));
                assert_eq!(flow.flag("retried"), !retry.is_empty());
                assert!(!flow.flag("early_data"));
            }
            // The lab never delivers early. Programs add delay; the minimum has little of it.
            let mut wrong = Vec::new();
            let mut check = |what: &str, said: Option<f64>, truth: f64, max: f64| {
                let reported = said.map_or(f64::NAN, |span| span * 1_000.0);
                if !(truth - 0.1..=max).contains(&reported) {
                    wrong.push(format!("{what} {reported:.3} ms, truth {truth}"));
                }
            };
            let least = |flows: &[Row], column: &str| {
                flows.iter().filter_map(|flow| flow.number(column)).min_by(f64::total_cmp)
            };
            let all = tables.table("udp");
            for (column, truth) in [("handshake_server_rtt", far), ("handshake_client_rtt", near)] {
                // The other part is at least 10 ms. A handshake without compiler optimization
                // computes for 3 to 5 ms here.
                check(column, least(all, column), truth, truth * 1.05 + 6.0);
            }
            let answered = 100.0 + far;
            check("response", asking.number("response_time"), answered, answered * 1.05 + 5.0);
            // An endpoint sets the bit at random in one of eight connections (RFC 9000, 17.4).
            let trip = near + far;
            check("spin", least(bulk, "spin_rtt"), trip, trip * 1.05 + 20.0);
            let asked = |row: &&Row| row.integer("flow") == asking.integer("flow");
            let exchanges = tables.table("exchanges").iter().filter(asked).count();
            // The packets of both endpoints after the handshake may look like one more exchange.
            if !(4..=5).contains(&exchanges) {
                wrong.push(format!("{exchanges} requests of 4"));
            }
            captured.outcome(wrong)
        });
    }
}
