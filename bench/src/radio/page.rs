//! Target values of the radio benchmark, and the page.

use std::fmt::Write as _;

use super::Results;
use super::quality::CARRIERS;
use manyways_rig::page::table;
use manyways_rig::sample::{Quartiles, median};
use manyways_rig::target::{Bound, Figure, Target, each, rows, target, told_only};

fn row<'r>(results: &'r Results, carrier: usize, policy: &str) -> &'r super::quality::Row {
    let rows = &results.carriers[carrier].rows;
    rows.iter().find(|row| row.policy == policy).unwrap_or(&rows[0])
}

/// All targets with their measured values.
pub fn targets(results: &Results) -> Vec<Target> {
    let figures = |policy: &str, value: &dyn Fn(&super::quality::Row) -> f64, which: &[usize]| {
        let figure = |carrier: &usize| Figure {
            place: CARRIERS[*carrier].to_owned(),
            value: value(row(results, *carrier, policy)),
        };
        which.iter().map(figure).collect::<Vec<Figure>>()
    };
    let of_oracle = |row: &super::quality::Row| row.saved_of_oracle;
    let mut all = vec![
        each(
            "MakeIdle's saving / Oracle's, mixed days, T-Mobile 3G".to_owned(),
            Bound::AtLeast(0.80),
            figures("makeidle", &of_oracle, &[1]),
        ),
        each(
            "the same, the other carriers".to_owned(),
            Bound::AtLeast(0.88),
            figures("makeidle", &of_oracle, &[0, 2, 3]),
        ),
        each(
            "MakeIdle's switches / Oracle's, summed over traces".to_owned(),
            Bound::AtMost(1.8),
            figures("makeidle", &|row| row.switches_by_oracle, &[0, 1, 2, 3]),
        ),
        target(
            "pings every 5 to 60 s: largest difference from the closed form".to_owned(),
            "<= 1e-6".to_owned(),
            results.pings.iter().max_by(|a, b| a.difference.total_cmp(&b.difference)).map(|worst| {
                let words =
                    format!("{:.0e} ({}, {} s)", worst.difference, worst.carrier, worst.every);
                (words, worst.difference <= 1e-6)
            }),
        ),
        each(
            "no constant hold beats learning by > 5 % in switches and mean delay: the larger ratio of \
             the best constant, by carrier and n"
                .to_owned(),
            Bound::AtLeast(0.95),
            results
                .constants
                .iter()
                .map(|one| Figure {
                    place: format!("{}, n = {}", one.carrier, one.experts),
                    value: one.best_switches.max(one.best_delay),
                })
                .collect(),
        ),
    ];
    let ours = |name: &str| -> Vec<Figure> {
        let carriers = results.carriers.iter();
        let figure = |carrier: &super::quality::Carrier| {
            let quartiles = carrier.ours.quartiles();
            let value = quartiles.get(name)?.median;
            Some(Figure { place: carrier.name.clone(), value })
        };
        carriers.filter_map(figure).collect()
    };
    all.extend([
        each(
            "our policy: share of the gap between MakeIdle and Oracle that it recovers, median of \
             traces"
                .to_owned(),
            Bound::AtLeast(0.20),
            ours("recovered"),
        ),
        each(
            "its switches / MakeIdle's, median of traces".to_owned(),
            Bound::AtMost(1.0),
            ours("switches"),
        ),
        each(
            "its energy / that of the threshold's timer, worst trace".to_owned(),
            Bound::AtMost(1.0),
            results
                .carriers
                .iter()
                .map(|carrier| Figure {
                    place: carrier.name.clone(),
                    value: carrier.ours.by_threshold.iter().copied().fold(0.0, f64::max),
                })
                .collect(),
        ),
    ]);
    for (policy, least) in [("status-quo", 20.0), ("makeidle", 5.0)] {
        let figure = results.speed.iter().find(|speed| speed.policy == policy);
        let figure = figure.map(|speed| Figure {
            place: format!("quartiles {:.1} to {:.1}", speed.mpps.lower, speed.mpps.upper),
            value: speed.mpps.median,
        });
        all.push(each(
            format!("million packets/s on one core, {policy}"),
            Bound::AtLeast(least),
            figure.into_iter().collect(),
        ));
    }
    let growth = results.memory.first().zip(results.memory.last()).map(|(first, last)| {
        let words = format!(
            "{:.0} MiB for {:.2} M packets, {:.0} MiB for {:.1} M",
            first.mib,
            first.packets as f64 / 1e6,
            last.mib,
            last.packets as f64 / 1e6
        );
        (words, last.mib <= first.mib * 1.25 + 2.0)
    });
    let what = "memory independent of the trace's length".to_owned();
    all.push(target(what, "the same".to_owned(), growth));
    for one in &results.recordings {
        if one.known.is_empty() {
            continue;
        }
        let is_met = one.known.iter().all(|known| match one.is_sudden {
            true => (one.onset - known).abs().max((one.completion - known).abs()) <= 0.3,
            false => (one.onset - 0.3..=one.completion + 0.3).contains(known),
        });
        let known: Vec<String> = one.known.iter().map(|secs| format!("{secs:.1}")).collect();
        let wanted = match one.is_sudden {
            true => format!("{} s ± 0.3", known.join(", ")),
            false => format!("{} s inside ± 0.3", known.join(", ")),
        };
        let found = format!("onset {:.1} s, completion {:.1} s", one.onset, one.completion);
        let what = format!("inferred from {} probes of {}", one.probes, one.file);
        all.push(target(what, wanted, Some((found, is_met))));
    }
    let probed = worst(results);
    let found = probed.map(|(timers, promotions)| {
        let words = format!(
            "timers {:.0} ms off at most, promotions {:.1} ms, in {} runs",
            timers * 1e3,
            promotions * 1e3,
            results.probed.len()
        );
        (words, timers <= 0.1 && promotions <= 0.02)
    });
    all.push(target(
        "inferred on an emulated link whose radio is known".to_owned(),
        "timers ± 0.1 s, promotion ± 20 ms".to_owned(),
        found,
    ));
    let capture = results.control.iter().filter(|one| one.watches == "capture");
    all.push(each(
        "live controller: share of a core at 1,000 packets/s, %, by as many as there were"
            .to_owned(),
        Bound::AtMost(0.5),
        capture
            .map(|one| Figure {
                place: format!("{}, {:.0} packets/s", one.policy, one.rate),
                value: one.cpu * 100.0 * 1_000.0 / one.rate,
            })
            .collect(),
    ));
    for one in &results.patterns {
        let words = format!(
            "{:.1} % less, {} switches for {} (the thesis: {})",
            (1.0 - one.joules / one.status_quo) * 100.0,
            one.switches,
            one.status_quo_switches,
            one.thesis
        );
        let what = format!("{}, through an emulated radio, MakeIdle over 10 gaps", one.pattern);
        all.push(told_only(target(what, "reported".to_owned(), Some((words, true)))));
    }
    all
}

/// Maximum error of timers and promotions, in seconds.
fn worst(results: &Results) -> Option<(f64, f64)> {
    let mut all: Option<(f64, f64)> = None;
    for one in &results.probed {
        let off = |wanted: &[f64; 2], found: &[f64]| match found {
            [_, _] => {
                let off = wanted.iter().zip(found).map(|(a, b)| (a - b).abs());
                off.fold(0.0, |most, off| if off.is_nan() { f64::INFINITY } else { most.max(off) })
            }
            // A wrong number of timers counts as an infinite error.
            _ => f64::INFINITY,
        };
        let timers = off(&one.timers, &one.found_timers);
        let promotions = off(&one.promotions, &one.found_promotions);
        let (a, b) = all.unwrap_or_default();
        all = Some((timers.max(a), promotions.max(b)));
    }
    all
}

/// The results as Markdown.
pub fn page(results: &Results) -> String {
    let mut page = String::from("# `manyways radio`\n");
    let _ = writeln!(
        page,
        "Written by `manyways-bench radio` ({} cores, Linux {}), in {:.0} minutes. Traces are made \
         from seeds that are held back: nothing was developed with them, and the parameters of the \
         generator were fixed before any policy was run on what it makes. All but speed and what is \
         emulated comes out the same in every run.\n",
        results.machine.cores,
        results.machine.kernel,
        (results.seconds / 60.0).max(1.0)
    );
    for what in &results.left_out {
        let _ = writeln!(page, "- Not measured: {what}.");
    }
    let _ = writeln!(page, "\n## Targets\n{}", rows(&results.targets));
    carriers(&mut page, results);
    ours(&mut page, results);
    constants(&mut page, results);
    apps(&mut page, results);
    swept(&mut page, results);
    pings(&mut page, results);
    speed(&mut page, results);
    emulated(&mut page, results);
    page
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "–".to_owned() }
}

fn carriers(page: &mut String, results: &Results) {
    let _ = writeln!(
        page,
        "## Mixed days\n{} users, {} days each, {:.1} million packets. Sums over traces are divided. \
         *Saved* is of all energy under the network's timers, *of tail* of what is no transfer, *of \
         Oracle* of what who knows what comes saves; switches are packets that find the radio \
         released. What applications do in the background may be held back. The thesis has 51-66 % \
         saved by MakeIdle on its 3G traces and 67 % on LTE, on its users' own traces, which are not \
         public.\n",
        results.traces,
        results.days,
        results.packets as f64 / 1e6
    );
    let head = "Policy | Saved | Of tail | Of Oracle | Switches / status quo | / Oracle | False | Missed | Mean delay | Median";
    for carrier in &results.carriers {
        let _ = writeln!(page, "### {}", carrier.name);
        let secs = |secs: Option<f64>| secs.map_or("–".to_owned(), |secs| format!("{secs:.2} s"));
        let row = |row: &super::quality::Row| {
            vec![
                row.policy.clone(),
                percent(row.saved),
                percent(row.saved_of_tail),
                percent(row.saved_of_oracle),
                format!("{:.2}", row.switches_by_status_quo),
                format!("{:.2}", row.switches_by_oracle),
                percent(row.false_switches),
                percent(row.missed_switches),
                secs(row.mean_delay),
                secs(row.median_delay),
            ]
        };
        table(page, head, carrier.rows.iter().map(row));
        page.push('\n');
    }
}

fn ours(page: &mut String, results: &Results) {
    let _ = writeln!(
        page,
        "## Our policy, trace by trace\nMedian and quartiles over traces: the share of the gap between \
         MakeIdle's and the Oracle's energy that `context` recovers, its switches by MakeIdle's, its \
         energy by that of the threshold's timer, and on how many traces it takes less than either.\n"
    );
    let row = |carrier: &super::quality::Carrier| {
        let quartiles = carrier.ours.quartiles();
        let show = |name: &str| match quartiles.get(name) {
            Some(Quartiles { lower, median, upper }) => {
                format!("{median:.3} ({lower:.3}-{upper:.3})")
            }
            None => "–".to_owned(),
        };
        let count = |values: &[f64], is_less: &dyn Fn(f64) -> bool| {
            let less = values.iter().filter(|value| is_less(**value)).count();
            format!("{less} of {}", values.len())
        };
        vec![
            carrier.name.clone(),
            show("recovered"),
            show("switches"),
            show("by_threshold"),
            count(&carrier.ours.recovered, &|share| share > 0.0),
            count(&carrier.ours.by_threshold, &|ratio| ratio < 1.0),
        ]
    };
    let head = "Carrier | Recovered | Switches / MakeIdle | Energy / threshold | Less than MakeIdle | Less than the timer";
    table(page, head, results.carriers.iter().map(row));
    page.push('\n');
}

fn constants(page: &mut String, results: &Results) {
    let _ = writeln!(
        page,
        "## MakeActive: learning beside constant holds\nWith MakeIdle, n experts of 1 to n seconds. The \
         best constant is that of 1 to n s whose larger ratio to learning, of switches and of mean \
         delay, is the least: below 0.95 it would beat learning by more than 5 % in both.\n"
    );
    let row = |one: &super::quality::Constant| {
        vec![
            one.carrier.clone(),
            one.experts.to_string(),
            format!("{:.2} s", one.learning_mean_delay),
            format!("{:.2} s", one.learning_median_delay),
            format!("{:.3}", one.delay_by_fixed_bound),
            format!("{:.0} s", one.best_hold),
            format!("{:.3}", one.best_switches),
            format!("{:.3}", one.best_delay),
        ]
    };
    let head = "Carrier | n | Mean delay | Median | / fixed bound | Best constant | Its switches / learning | Its mean delay / learning";
    table(page, head, results.constants.iter().map(row));
    page.push('\n');
}

fn apps(page: &mut String, results: &Results) {
    let Some(first) = results.apps.first() else { return };
    let _ = writeln!(
        page,
        "## Single applications\nTwo hours each, alone; energy saved over the network's timers, at {} \
         (as figure 4-9 of the thesis).\n",
        CARRIERS[0]
    );
    let head = &format!("Application | {}", first.policies.join(" | "));
    let row = |app: &super::quality::OfApps| {
        let saved = app.saved[0].iter().map(|share| percent(*share));
        [app.app.clone()].into_iter().chain(saved).collect::<Vec<String>>()
    };
    table(page, head, results.apps.iter().map(row));
    page.push('\n');
}

fn swept(page: &mut String, results: &Results) {
    let _ = writeln!(
        page,
        "## Another energy of a switch\nEnergy saved, where E_switch is another, and where to turn off \
         takes another share of what turning the data connection off does (a half in the profiles).\n"
    );
    let row = |one: &super::quality::Swept| {
        let shares = [one.threshold, one.makeidle, one.context, one.oracle].map(percent);
        [vec![one.carrier.clone(), one.what.clone()], shares.to_vec()].concat()
    };
    let head = "Carrier |  | Threshold | MakeIdle | context | Oracle";
    table(page, head, results.swept.iter().map(row));
    page.push('\n');
}

fn pings(page: &mut String, results: &Results) {
    let _ = writeln!(
        page,
        "## Pings\nShare of the tail's energy that is saved; of the Oracle by the closed form.\n"
    );
    let mut every: Vec<u64> = results.pings.iter().map(|ping| ping.every).collect();
    every.sort_unstable();
    every.dedup();
    let row = |every: &u64| {
        let find = |carrier: &&str| {
            results.pings.iter().find(|ping| ping.carrier == *carrier && ping.every == *every)
        };
        let pings = CARRIERS.iter().filter_map(find);
        let shares = pings.flat_map(|p| [p.oracle, p.makeidle, p.context].map(percent));
        [format!("{every} s")].into_iter().chain(shares).collect::<Vec<String>>()
    };
    let carriers = CARRIERS.map(|name| format!("{name}: Oracle | MakeIdle | context"));
    let head = &format!("Every | {}", carriers.join(" | "));
    table(page, head, every.iter().map(row));
    page.push('\n');
}

fn speed(page: &mut String, results: &Results) {
    let _ = writeln!(
        page,
        "## Speed and memory\nPackets that are in memory, through one policy on one core, in millions a \
         second; rounds in an order by chance.\n"
    );
    let row = |one: &super::speed::Speed| {
        let Quartiles { lower, median, upper } = one.mpps;
        vec![one.policy.clone(), format!("{median:.1}"), format!("{lower:.1} to {upper:.1}")]
    };
    table(page, "Policy | Median | Quartiles", results.speed.iter().map(row));
    let _ = writeln!(
        page,
        "\n`manyways radio simulate` with MakeIdle, `context` and MakeIdle with MakeActive on a made \
         trace, the most that was resident:\n"
    );
    let row = |one: &super::speed::Memory| {
        vec![one.days.to_string(), one.packets.to_string(), format!("{:.1}", one.mib)]
    };
    table(page, "Days | Packets | MiB", results.memory.iter().map(row));
    page.push('\n');
}

fn emulated(page: &mut String, results: &Results) {
    if results.probed.is_empty() && results.control.is_empty() {
        return;
    }
    let list = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|secs| format!("{:.0}", secs * 1e3)).collect();
        values.join(", ")
    };
    let _ = writeln!(
        page,
        "## Emulated radios\n`manyways radio probe` on a link of the lab with a radio (15 ms ± 5 ms), \
         steps of 50 ms, two rounds; milliseconds.\n"
    );
    let row = |one: &super::emulated::Probed| {
        let promotions = [list(&one.promotions), list(&one.found_promotions)];
        [vec![list(&one.timers), list(&one.found_timers)], promotions.to_vec()].concat()
    };
    let head = "Timers | Found | Promotions | Found";
    table(page, head, results.probed.iter().map(row));
    let _ = writeln!(
        page,
        "\n`manyways radio control` on a link of the lab; user and system time of the process.\n"
    );
    let row = |one: &super::emulated::Control| {
        let (rate, cpu) = (format!("{:.0}", one.rate), format!("{:.2} %", one.cpu * 100.0));
        vec![one.policy.clone(), one.watches.clone(), rate, cpu]
    };
    let head = "Policy | Watches | Packets/s | Share of a core";
    table(page, head, results.control.iter().map(row));
    let middle = median(results.control.iter().map(|one| one.cpu * 100.0)).unwrap_or_default();
    let _ = writeln!(page, "\nMedian of these: {middle:.2} %.\n");
    if !results.patterns.is_empty() {
        let _ = writeln!(
            page,
            "The patterns of the thesis (§4.6.7), live: a link of the lab whose radio is that of AT&T, \
             MakeIdle over the last 10 gaps, and `manyways lab set` for the modem's dormancy. Energy by \
             the profile, beside that of the network's timers with the same packets; the radio's \
             promotions are those that the lab saw.\n"
        );
        let row = |one: &super::emulated::Pattern| {
            vec![
                one.pattern.clone(),
                format!("{:.1} J", one.joules),
                format!("{:.1} J", one.status_quo),
                percent(1.0 - one.joules / one.status_quo),
                one.switches.to_string(),
                one.status_quo_switches.to_string(),
                one.promotions.to_string(),
                one.thesis.clone(),
            ]
        };
        let head = "Pattern | Energy | With the timers | Less | Switches | With the timers | Promotions of the lab's radio | The thesis";
        table(page, head, results.patterns.iter().map(row));
    }
}
