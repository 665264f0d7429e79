//! Target values of the radio benchmark, and the page.

use std::collections::BTreeSet;

use manyways_rig::page::{fill, lines, table};
use manyways_rig::sample::{Quartiles, median};
use manyways_rig::target::{Bound, Figure, Target, every_figure, reported_only, rows, target};

use super::Results;
use super::emulated::{ControllerLoad, InferredRadio, Pattern};
use super::quality::{ConstantDelay, ContextComparison, Operator, Row, SweepPoint};
use super::speed::{Memory, Speed};

/// All targets with their measured values.
pub fn targets(results: &Results) -> Vec<Target> {
    let at_least =
        |what: &str, bound, figures| every_figure(what.to_owned(), Bound::AtLeast(bound), figures);
    let at_most =
        |what: &str, bound, figures| every_figure(what.to_owned(), Bound::AtMost(bound), figures);
    let figure = |place: &str, value| Figure { case: place.to_owned(), value };
    let makeidle = |which: &[usize], value: fn(&Row) -> Option<f64>| {
        let carriers = which.iter().map(|carrier| &results.operators[*carrier]);
        let row = carriers.filter_map(|carrier| {
            let row = carrier.rows.iter().find(|row| row.policy == "makeidle")?;
            Some(figure(&carrier.name, value(row)?))
        });
        row.collect::<Vec<Figure>>()
    };
    let ours = |value: fn(&ContextComparison) -> Option<f64>| {
        let carriers = results.operators.iter();
        carriers.filter_map(|one| Some(figure(&one.name, value(&one.context)?))).collect()
    };
    let constant = results.constants.iter().map(|one| {
        figure(
            &format!("{}, n = {}", one.operator, one.experts),
            one.best_switches.max(one.best_delay),
        )
    });
    let ping = results.pings.iter().max_by(|a, b| a.difference.total_cmp(&b.difference));
    let mut all = vec![
        at_least(
            "MakeIdle's saving / Oracle's, mixed days, T-Mobile 3G",
            0.80,
            makeidle(&[1], |row| row.saved_of_oracle),
        ),
        at_least(
            "the same, the other carriers",
            0.88,
            makeidle(&[0, 2, 3], |row| row.saved_of_oracle),
        ),
        at_most(
            "MakeIdle's switches / Oracle's, summed over traces",
            1.8,
            makeidle(&[0, 1, 2, 3], |row| row.switches_by_oracle),
        ),
        target(
            "pings every 5 to 60 s: largest difference from the closed form".to_owned(),
            "<= 1e-6".to_owned(),
            ping.map(|worst| {
                let words = format!(
                    "{:.0e} ({}, {} s)",
                    worst.difference, worst.operator, worst.interval_seconds
                );
                (words, worst.difference <= 1e-6)
            }),
        ),
        at_least(
            "no constant hold beats learning by > 5 % in switches and mean delay: the larger ratio of \
             the best constant, by carrier and n",
            0.95,
            constant.collect(),
        ),
        at_least(
            "our policy: share of the gap between MakeIdle and Oracle that it recovers, median of \
             traces",
            0.20,
            ours(|ours| median(ours.recovered.iter().copied())),
        ),
        at_most(
            "its switches / MakeIdle's, median of traces",
            1.0,
            ours(|ours| median(ours.switches.iter().copied())),
        ),
        at_most(
            "its energy / that of the threshold's timer, worst trace",
            1.0,
            ours(|ours| ours.by_threshold.iter().copied().reduce(f64::max)),
        ),
    ];
    for (policy, least) in [("status-quo", 20.0), ("makeidle", 5.0)] {
        let speed = results.speed.iter().filter(|speed| speed.policy == policy);
        let figures = speed.map(|speed| {
            let Quartiles { lower, median, upper } = speed.mpps;
            figure(&format!("quartiles {lower:.1} to {upper:.1}"), median)
        });
        let what = format!("million packets/s on one core, {policy}");
        all.push(at_least(&what, least, figures.collect()));
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
        if one.published_timers.is_empty() {
            continue;
        }
        let is_met = one.published_timers.iter().all(|known| match one.is_sudden {
            true => (one.onset - known).abs().max((one.completion - known).abs()) <= 0.3,
            false => (one.onset - 0.3..=one.completion + 0.3).contains(known),
        });
        let known: Vec<String> =
            one.published_timers.iter().map(|secs| format!("{secs:.1}")).collect();
        let wanted = match one.is_sudden {
            true => format!("{} s ± 0.3", known.join(", ")),
            false => format!("{} s inside ± 0.3", known.join(", ")),
        };
        let found = format!("onset {:.1} s, completion {:.1} s", one.onset, one.completion);
        let what = format!("inferred from {} probes of {}", one.probes, one.file);
        all.push(target(what, wanted, Some((found, is_met))));
    }
    let timers = max_errors(results.inferred.iter().map(|one| (&one.timers, &one.found_timers)));
    let promotions =
        max_errors(results.inferred.iter().map(|one| (&one.promotions, &one.found_promotions)));
    let found = timers.zip(promotions).map(|(timers, promotions)| {
        let words = format!(
            "timers {:.0} ms off at most, promotions {:.1} ms, in {} runs",
            timers * 1e3,
            promotions * 1e3,
            results.inferred.len()
        );
        (words, timers <= 0.1 && promotions <= 0.02)
    });
    all.push(target(
        "inferred on an emulated link whose radio is known".to_owned(),
        "timers ± 0.1 s, promotion ± 20 ms".to_owned(),
        found,
    ));
    let capture = results.control.iter().filter(|one| one.source == "capture").map(|one| {
        let place = format!("{}, {:.0} packets/s", one.policy, one.rate);
        figure(&place, one.cpu * 100.0 * 1_000.0 / one.rate)
    });
    all.push(at_most(
        "live controller: share of a core at 1,000 packets/s, %, by as many as there were",
        0.5,
        capture.collect(),
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
        all.push(reported_only(target(what, "reported".to_owned(), Some((words, true)))));
    }
    all
}

/// Maximum error, in seconds; `None` if nothing was probed.
fn max_errors<'r>(probed: impl Iterator<Item = (&'r [f64; 2], &'r Vec<f64>)>) -> Option<f64> {
    let off = |(wanted, found): (&[f64; 2], &Vec<f64>)| {
        let off = wanted.iter().zip(found).map(|(wanted, found)| (wanted - found).abs());
        let off =
            off.fold(0.0, |most, off| if off.is_nan() { f64::INFINITY } else { most.max(off) });
        // A wrong number of timers counts as an infinite error.
        if found.len() == wanted.len() { off } else { f64::INFINITY }
    };
    probed.map(off).reduce(f64::max)
}

/// The results as Markdown; page.md has the heads of the tables.
pub fn page(results: &Results) -> String {
    let left_out = results.skipped.iter().map(|what| format!("- Not measured: {what}.\n"));
    let middle = median(results.control.iter().map(|one| one.cpu * 100.0));
    let values = [
        ("cores", results.machine.cores.to_string()),
        ("kernel", results.machine.kernel.clone()),
        ("minutes", format!("{:.0}", (results.seconds / 60.0).max(1.0))),
        ("left out", left_out.collect()),
        ("targets", rows(&results.targets)),
        ("users", results.traces.to_string()),
        ("days", results.days.to_string()),
        ("packets", format!("{:.1}", results.packets as f64 / 1e6)),
        ("carriers", results.operators.iter().map(carrier).collect::<Vec<_>>().join("\n")),
        ("ours", lines(&results.operators, context_table)),
        ("constants", lines(&results.constants, constant)),
        ("apps", lines(&results.apps, |one| format!("{} | {}", one.app, shares(&one.saved[0])))),
        ("swept", lines(&results.sweep, sweep_charts)),
        ("pings", pings(results)),
        ("speed", lines(&results.speed, speed)),
        ("memory", lines(&results.memory, memory)),
        ("probed", lines(&results.inferred, probed)),
        ("control", lines(&results.control, control)),
        ("middle", format!("{:.2}", middle.unwrap_or_default())),
        ("patterns", lines(&results.patterns, pattern)),
    ];
    fill(include_str!("page.md"), &values)
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "–".to_owned() }
}

fn shares(shares: &[f64]) -> String {
    shares.iter().map(|share| percent(*share)).collect::<Vec<_>>().join(" | ")
}

fn carrier(carrier: &Operator) -> String {
    const HEAD: &str = "Policy | Saved | Of tail | Of Oracle | Switches / status quo | / Oracle | False | Missed | Mean delay | Median";
    let secs = |secs: Option<f64>| secs.map_or("–".to_owned(), |secs| format!("{secs:.2} s"));
    let row = |row: &Row| {
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        vec![
            row.policy.clone(),
            shares(&[row.saved, row.saved_of_tail, row.saved_of_oracle].map(number)),
            format!("{:.2}", number(row.switches_by_status_quo)),
            format!("{:.2}", number(row.switches_by_oracle)),
            shares(&[row.false_switches, row.missed_switches].map(number)),
            secs(row.mean_delay),
            secs(row.median_delay),
        ]
    };
    let mut out = format!("### {}\n", carrier.name);
    table(&mut out, HEAD, carrier.rows.iter().map(row));
    out
}

fn context_table(Operator { name, context: ours, .. }: &Operator) -> String {
    let spread = |values: &[f64]| match Quartiles::of(values.iter().copied()) {
        Some(Quartiles { lower, median, upper }) => format!("{median:.3} ({lower:.3}-{upper:.3})"),
        None => "–".to_owned(),
    };
    let [recovered, switches, energy] =
        [&ours.recovered, &ours.switches, &ours.by_threshold].map(|values| spread(values));
    let less = ours.recovered.iter().filter(|share| **share > 0.0).count();
    let less_than_timer = ours.by_threshold.iter().filter(|ratio| **ratio < 1.0).count();
    let all = ours.recovered.len();
    format!(
        "{name} | {recovered} | {switches} | {energy} | {less} of {all} | {less_than_timer} of {all}"
    )
}

fn constant(one: &ConstantDelay) -> String {
    let ConstantDelay {
        operator: carrier,
        experts,
        best_constant_seconds: best_hold,
        best_switches,
        best_delay,
        ..
    } = one;
    let (mean, median) = (one.learning_mean_delay, one.learning_median_delay);
    let bound = one.delay_by_fixed_bound;
    format!(
        "{carrier} | {experts} | {mean:.2} s | {median:.2} s | {bound:.3} | {best_hold:.0} s | \
         {best_switches:.3} | {best_delay:.3}"
    )
}

fn sweep_charts(one: &SweepPoint) -> String {
    let values = [one.threshold, one.makeidle, one.context, one.oracle];
    format!("{} | {} | {}", one.operator, one.parameter, shares(&values))
}

fn pings(results: &Results) -> String {
    let of = |every: &u64| {
        let pings = results.pings.iter().filter(|ping| ping.interval_seconds == *every);
        let row = pings.map(|one| shares(&[one.oracle, one.makeidle, one.context]));
        format!("{every} s | {}", row.collect::<Vec<_>>().join(" | "))
    };
    let every: BTreeSet<u64> = results.pings.iter().map(|ping| ping.interval_seconds).collect();
    lines(&every, of)
}

fn speed(one: &Speed) -> String {
    let Quartiles { lower, median, upper } = one.mpps;
    format!("{} | {median:.1} | {lower:.1} to {upper:.1}", one.policy)
}

fn memory(one: &Memory) -> String {
    format!("{} | {} | {:.1}", one.days, one.packets, one.mib)
}

fn probed(one: &InferredRadio) -> String {
    let list = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|secs| format!("{:.0}", secs * 1e3)).collect();
        values.join(", ")
    };
    let columns = [&one.timers, &*one.found_timers, &one.promotions, &one.found_promotions];
    columns.map(list).join(" | ")
}

fn control(one: &ControllerLoad) -> String {
    let ControllerLoad { policy, source: watches, rate, cpu, .. } = one;
    format!("{policy} | {watches} | {rate:.0} | {:.2} %", cpu * 100.0)
}

fn pattern(one: &Pattern) -> String {
    let Pattern { pattern, joules, status_quo, switches, status_quo_switches, .. } = one;
    let (less, promotions) = (percent(1.0 - joules / status_quo), one.promotions);
    format!(
        "{pattern} | {joules:.1} J | {status_quo:.1} J | {less} | {switches} | {status_quo_switches} | \
         {promotions} | {}",
        one.thesis
    )
}
