//! The report as Markdown that is readable on a terminal too.

use std::fmt::Write;

use manyways_rig::page::{spread, table};
use manyways_rig::sample::Quartiles;
use manyways_unit::Rate;

use super::compare::{DelayCase, DelaySummary, RateCase, Report, WIDE_BUFFER};

pub fn markdown(report: &Report) -> String {
    let mut out = String::from("# manyways beside Rattan\n\n");
    if let Some(reason) = &report.unavailable {
        let _ = writeln!(out, "Rattan: {reason}\n\nNothing was measured.");
        return out;
    }
    let _ = writeln!(
        out,
        "{} cores, kernel {}. Rattan {} as `cargo install rattan` builds it: AF_PACKET, worker \
         threads: {}. Both emulate one link with 5 ms each way and a 100 ms drop-tail queue; the \
         sender, the receiver and the TCP settings (cubic, large buffers) are the same. {} rounds \
         in one run; in each, one measurement after the other, and who begins changes. Figures: \
         median (quartiles).\n",
        report.cores, report.kernel, report.rattan_version, report.rattan_workers, report.rounds
    );
    rates(&mut out, &report.rates, report.length_seconds);
    if let Some(delay) = &report.delay {
        delays(&mut out, delay);
    }
    if !report.failures.is_empty() {
        let _ = writeln!(out, "\nMeasurements that failed and are left out:\n");
        for failure in &report.failures {
            let _ = writeln!(out, "- {failure}");
        }
    }
    out
}

fn rates(out: &mut String, cases: &[RateCase], seconds: f64) {
    let _ = writeln!(
        out,
        "One TCP connection, {seconds} s after 2 s of warm-up. The share of the set rate counts \
         the IP bytes of what the receiver read; CPU is of one core, as the kernel charges the \
         emulator's threads; sent again are the sender's segments, warm-up included. Rattan's \
         AF_PACKET sockets have the host's default receive buffer and lose what does not fit, \
         which the sender takes for a full queue. \"Larger buffers\" is the same Rattan, to whose \
         sockets the benchmark has given {WIDE_BUFFER} from outside.\n"
    );
    let rows = cases.iter().flat_map(|case| {
        let rate = Rate::from_bps(case.set_bps);
        let all = [
            ("manyways", &case.manyways, None),
            ("Rattan", &case.rattan, case.ratio),
            ("Rattan, larger buffers", &case.rattan_wide, case.ratio_wide),
        ];
        all.map(|(name, summary, ratio)| {
            let summary = summary.as_ref();
            vec![
                rate.to_string(),
                name.to_owned(),
                percent(summary.map(|summary| summary.share), 1),
                spread(ratio, 2),
                percent(summary.map(|summary| summary.cpu), 0),
                spread(summary.map(|summary| summary.retransmitted), 0),
            ]
        })
    });
    table(out, "Rate set | over | share | manyways / this | CPU | sent again", rows);
}

fn delays(out: &mut String, case: &DelayCase) {
    let _ = writeln!(
        out,
        "\nOne datagram every 100 µs for 3 s: what is over the configured 5 ms, in µs, for each \
         round's smallest, median, 90th and 99th percentile. The bare relay emulates nothing: it \
         is the machine's own floor.\n"
    );
    let row = |(name, summary): (&str, &Option<DelaySummary>)| {
        let figures = match summary {
            None => vec!["–".to_owned(); 5],
            Some(all) => {
                let spreads = [all.min_us, all.p50_us, all.p90_us, all.p99_us];
                let spreads = spreads.map(|quartiles| spread(Some(quartiles), 0));
                spreads.into_iter().chain([format!("{} of {}", all.lost, all.sent)]).collect()
            }
        };
        [vec![name.to_owned()], figures].concat()
    };
    let all = [("manyways", &case.manyways), ("Rattan", &case.rattan), ("bare relay", &case.bare)];
    table(out, " | smallest | median | 90 % | 99 % | lost", all.map(row));
    let _ = writeln!(
        out,
        "\nWhat Rattan adds over what manyways adds, medians, pair by pair: {}.",
        spread(case.ratio, 2)
    );
}

fn percent(quartiles: Option<Quartiles>, decimals: usize) -> String {
    let Some(Quartiles { lower, median, upper }) = quartiles else { return "–".into() };
    let [lower, median, upper] = [lower, median, upper].map(|share| share * 100.0);
    format!("{median:.decimals$} % ({lower:.decimals$}–{upper:.decimals$})")
}
