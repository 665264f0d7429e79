//! Requests with known pauses between them.

use manyways_tests::{conclusive, needs};

use crate::testbed::{NEEDS, Testbed};

const COLUMNS: [&str; 10] = [
    "requests",
    "downloading",
    "downloaded",
    "servicing_rate",
    "wait_first",
    "wait_between",
    "wait_last",
    "response_time",
    "responses",
    "protocol",
];

/// Permitted error: 5 %, or 5 ms.
fn is_near(reported: f64, truth: f64) -> bool {
    (reported - truth).abs() <= (truth * 0.05).max(0.005)
}

// Slow: six visits of 2 to 4 s.
#[test]
fn requests_and_the_waits_between_them() {
    needs!(NEEDS);
    let visits = [
        ("0.3", "0.4", vec![(300_000, 0.2, 0.5), (100_000, 0.2, 0.25), (200_000, 0.2, 0.1)]),
        ("0.05", "0", vec![(1_000_000, 0.2, 0.3), (1_000, 0.2, 0.3), (50_000, 0.2, 0.0)]),
        ("0", "1", vec![(20_000, 0.2, 0.0), (20_000, 0.2, 0.0), (400_000, 0.2, 0.2)]),
    ];
    for (link, near, trip) in [
        ("net:down=20mbit,delay=15ms", &[][..], 0.030),
        ("net:down=30mbit,delay=20ms", &["near:delay=5ms"][..], 0.040),
    ] {
        conclusive(|| {
            let server = if near.is_empty() { "198.18.0.1" } else { "198.18.0.2" };
            let mut script = String::new();
            for (first, last, fetched) in &visits {
                let steps: String =
                    fetched.iter().map(|(b, w, p)| format!(" {b}:{w}:{p}")).collect();
                script.push_str(&format!(
                    "$PEER client --server {server} web {first} {last}{steps}\n"
                ));
            }
            let testbed = Testbed {
                links: vec![link.into()],
                client_links: near,
                tcpdump: "-s 400",
                ..Testbed::default()
            };
            let captured = testbed.run(&script);
            let tables = captured.tables("net");
            let mut wrong = Vec::new();
            for ((told, port), (_, _, fetched)) in
                captured.outputs().iter().zip(captured.ports()).zip(&visits)
            {
                let flow = tables.flow(port);
                let spans = |name: &str| -> Vec<f64> {
                    let all = told[name].as_array();
                    all.map_or(Vec::new(), |all| {
                        all.iter().filter_map(|one| one.as_f64()).collect()
                    })
                };
                // The pauses that the client reports, because a busy machine extends them.
                let (took, waited) = (spans("fetched").iter().sum::<f64>(), spans("waited"));
                let [start, between @ .., end] = &waited[..] else { panic!("{told}") };
                let bytes: u32 = fetched.iter().map(|one| one.0).sum();
                let local = if near.is_empty() { 0.0 } else { 0.010 };
                let steps = fetched.len() as f64;
                // At a capture point in the middle, requests pass later than at the client, and
                // responses earlier.
                let downloading = took - local * steps;
                let between: f64 = between.iter().sum();
                eprintln!("{link}: {}; took {took}", flow.describe(&COLUMNS));
                for (column, truth) in [
                    ("downloading", downloading),
                    ("servicing_rate", f64::from(bytes) * 8.0 / downloading),
                    ("wait_first", *start),
                    ("wait_between", between + local * (steps - 1.0)),
                    ("wait_last", end + local),
                    ("response_time", 0.2 + trip),
                ] {
                    let reported = flow.number(column).unwrap_or(f64::NAN);
                    if !is_near(reported, truth) {
                        wrong.push(format!("{link}: {column} {reported:.4}, truth {truth:.4}"));
                    }
                }
                if flow.count("requests") != fetched.len() as i64
                    || flow.text("protocol") != Some("http")
                {
                    wrong.push(flow.describe(&COLUMNS));
                }
            }
            captured.outcome(wrong)
        });
    }
}
