//! Target values of the benchmark, and the page.

use manyways_model::select::ProbeLimits;
use manyways_rig::page::{fill, lines};
use manyways_rig::sample::{median, quantile};
use manyways_rig::target::{Bound, Figure, Target, as_measured, every_figure, rows, target, told};

use super::Results;
use super::emulated::Emulated;
use super::evaluate::{GOALS, Outcome};
use super::lab_download::{Contender, LabDownload};
use super::moves::{Changes, DELAYS};
use super::probing::Probing;
use super::square::Square;

/// All targets with their measured values.
pub fn targets(results: &Results) -> Vec<Target> {
    let of = |rule: &str, goal: &str, value: fn(&Outcome) -> f64| -> Vec<Figure> {
        let own = results
            .outcomes
            .iter()
            .filter(|one| one.rule == rule && one.goal == goal && !one.with_both);
        own.map(|one| Figure::new(format!("set ({})", one.set), value(one))).collect()
    };
    let at_least = |what: &str, bound, figures| every_figure(what, Bound::AtLeast(bound), figures);
    let regret = |rule: &str| of(rule, GOALS[0].0, |one| one.regret);
    let better = regret("paper, tree").into_iter().zip(regret("paper, svr"));
    let ratios = regret("ours").into_iter().zip(better).map(|(ours, (tree, svr))| Figure {
        value: ours.value / tree.value.min(svr.value),
        ..ours
    });
    let mut all = vec![
        at_least(
            "unseen places, Wi-Fi or LTE, Max(S): recovered",
            0.60,
            of("ours", GOALS[0].0, |one| one.recovered),
        ),
        at_least("the same, Max(S/E)", 0.40, of("ours", GOALS[1].0, |one| one.recovered)),
        at_least(
            "there, Max(S): cases with an objective within 5 % of the oracle's",
            0.85,
            of("ours", GOALS[0].0, |one| one.near),
        ),
        at_least(
            "the shipped default model, untouched, Max(S): recovered",
            0.40,
            of("default model", GOALS[0].0, |one| one.recovered),
        ),
        every_figure(
            "mean ln regret, Max(S): ours / the better of tree and SVR",
            Bound::AtMost(0.85),
            ratios.collect(),
        ),
    ];
    for (goal, _) in GOALS {
        let own = results.seen.iter().filter(|one| one.goal == goal);
        let figures =
            own.map(|one| Figure::new(format!("set ({}), {}", one.set, one.source), one.right));
        all.push(told(&format!("seen places, {goal}: right choices"), figures.collect()));
    }
    for set in ["a", "b"] {
        let default = ProbeLimits::default().ping_threshold;
        let is_default = |one: &&Probing| one.in_stages && one.threshold == default;
        let own = results.probing.iter().filter(|one| one.set == set).find(is_default);
        let measured = own.map(|one| {
            let words = format!("{:.3}, at {:.3} × the regret", one.bytes, one.regret);
            (words, one.bytes <= 0.35 && one.regret <= 1.05)
        });
        all.push(target(
            format!("bytes of probes / probing each 5 s, at <= 1.05 × the regret, set ({set})"),
            "<= 0.35",
            measured,
        ));
    }
    let downloads = |value: fn(&super::Download) -> f64| -> Vec<Figure> {
        results.downloads.iter().map(|one| Figure::new(&one.place, value(one))).collect()
    };
    let shares = downloads(|one| one.of_oracle);
    let middle = median(shares.iter().map(|one| one.value));
    all.push(target(
        "long downloads, virtual time: bytes / the oracle's, median of the pairs",
        ">= 0.93",
        middle.map(|middle| (format!("{middle:.3}"), middle >= 0.93)),
    ));
    all.push(at_least("the same, each pair", 0.80, shares));
    all.push(every_figure(
        "there: longest time below 1 Mbit/s while the other network offers 5, s",
        Bound::AtMost(2.0),
        downloads(|one| one.slow_seconds),
    ));
    let waves = |value: fn(&Square) -> f64| -> Vec<Figure> {
        let name = |one: &Square| format!("{} s, {}", one.period_seconds, phase(one));
        results.squares.iter().map(|one| Figure::new(name(one), value(one))).collect()
    };
    all.push(every_figure(
        "both networks are square waves, 60 s: switches",
        Bound::AtMost(6.0),
        waves(|one| f64::from(one.switches)),
    ));
    all.push(at_least(
        "there: bytes / the better network's alone",
        0.90,
        waves(|one| one.of_fixed),
    ));
    let ratios = results.emulated.iter().filter_map(|one| {
        let case = format!("{}, {} s, {}", one.place, one.second, one.network);
        Some(Figure::new(case, one.ratio()?))
    });
    let ratios: Vec<Figure> = ratios.collect();
    let middle = median(ratios.iter().map(|one| one.value));
    let low = ratios.iter().map(|one| one.value).fold(f64::INFINITY, f64::min);
    let high = ratios.iter().map(|one| one.value).fold(0.0, f64::max);
    all.push(as_measured(
        "cells by emulation: median seconds / those of the table",
        middle.map(|middle| format!("median {middle:.2}, from {low:.2} to {high:.2}")),
    ));
    all.extend(lab_targets(&results.lab_downloads));
    all.extend(change_targets(&results.changes));
    for one in &results.speed {
        let most = if one.model == "svr" { 1_000.0 } else { 20.0 };
        all.push(every_figure(
            format!("one decision, µs, {}", one.model),
            Bound::AtMost(most),
            vec![Figure::new("median of rounds", one.micros)],
        ));
    }
    all
}

fn emulated(one: &Emulated) -> String {
    let Emulated { place, second, network, bytes, table, rounds, failures } = one;
    let middle = median(rounds.iter().copied());
    let all: Vec<String> = rounds.iter().map(|seconds| format!("{seconds:.2}")).collect();
    let ratio = one.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let middle = middle.map_or_else(|| failures.join("; "), |middle| format!("{middle:.2}"));
    let kb = bytes / 1_000;
    let all = all.join(", ");
    format!("{place} | {second} | {network} | {kb} | {table:.2} | {middle} | {all} | {ratio}")
}

fn phase(one: &Square) -> &'static str {
    if one.is_in_phase { "in phase" } else { "antiphase" }
}

/// Targets of the downloads in a lab.
fn lab_targets(downloads: &[LabDownload]) -> Vec<Target> {
    let of = |contender: Contender, value: fn(&LabDownload) -> Option<f64>| -> Vec<Figure> {
        let own = downloads.iter().filter(|one| one.contender == contender);
        own.filter_map(|one| Some(Figure::new(&one.place, value(one)?))).collect()
    };
    let share: fn(&LabDownload) -> Option<f64> = |one| one.of_oracle;
    let slow: fn(&LabDownload) -> Option<f64> = |one| one.of_oracle.and(Some(one.slow_seconds));
    let own = of(Contender::OneNetwork, share);
    let middle = median(own.iter().map(|one| one.value));
    let bytes = |of: &str| format!("three downloads in a lab, {of}: bytes / the oracle's");
    let [one, backup, both] = Contender::ALL.map(Contender::name);
    let slow_time =
        |of: &str| format!("{of}: longest time below 1 Mbit/s while a network offers 5, s");
    vec![
        target(
            format!("{}, median", bytes(one)),
            ">= 0.93",
            middle.map(|middle| (format!("{middle:.3}"), middle >= 0.93)),
        ),
        every_figure(format!("{}, each", bytes(one)), Bound::AtLeast(0.80), own),
        every_figure(bytes(both), Bound::Higher, of(Contender::BothAllowed, share)),
        every_figure(bytes(backup), Bound::Higher, of(Contender::MptcpBackup, share)),
        every_figure(slow_time(one), Bound::AtMost(2.0), of(Contender::OneNetwork, slow)),
        every_figure(slow_time(both), Bound::AtMost(2.0), of(Contender::BothAllowed, slow)),
        every_figure(slow_time(backup), Bound::Lower, of(Contender::MptcpBackup, slow)),
    ]
}

/// The milliseconds of moves with these delays, and to this network if there is one. A move without
/// a packet counts as infinite.
fn millis(changes: &Changes, delays: [u64; 2], to: Option<&str>) -> Vec<f64> {
    let own = changes.moves.iter().filter(|one| one.delays == delays);
    let own = own.filter(|one| to.is_none_or(|to| one.to == to));
    own.map(|one| one.millis.unwrap_or(f64::INFINITY)).collect()
}

fn change_targets(changes: &Changes) -> Vec<Target> {
    let p95 = |case: String, all: &[f64]| -> Vec<Figure> {
        quantile(all, 0.95).into_iter().map(|value| Figure::new(&case, value)).collect()
    };
    let what = "decision to the first packet of a stream on the new path, bond, p95, ms";
    let mut all = Vec::new();
    for (delays, bound) in DELAYS.into_iter().zip([Bound::AtMost(20.0), Bound::Lower]) {
        let millis = millis(changes, delays, None);
        let [wifi, lte] = delays;
        let case = format!("{} moves", millis.len());
        let what = format!("{what}; paths of {wifi} and {lte} ms one way");
        all.push(every_figure(what, bound, p95(case, &millis)));
    }
    let new_flows = p95(format!("{} changes", changes.new_flows.len()), &changes.new_flows);
    let what = "decision to its use for new connections, p95, ms";
    all.push(every_figure(what, Bound::Lower, new_flows));
    all
}

fn change_rows(changes: &Changes) -> String {
    let row = |what: &str, delays: String, floor: String, all: &[f64]| {
        let (middle, high) = (median(all.iter().copied())?, quantile(all, 0.95)?);
        let count = all.len();
        Some(format!("{what} | {delays} | {floor} | {count} | {middle:.1} | {high:.1}"))
    };
    let mut rows = Vec::new();
    for delays in DELAYS {
        let both = format!("{}, {} ms", delays[0], delays[1]);
        for (name, delay) in ["wifi", "lte"].into_iter().zip(delays) {
            let all = millis(changes, delays, Some(name));
            rows.extend(row(
                &format!("stream to {name}"),
                both.clone(),
                format!("{} ms", 2 * delay),
                &all,
            ));
        }
    }
    rows.extend(row("new connections", "–".to_owned(), "–".to_owned(), &changes.new_flows));
    lines(&rows, Clone::clone)
}

fn lab_row(one: &LabDownload) -> String {
    let LabDownload { place, contender, of_oracle, slow_seconds, switches, both, .. } = one;
    let name = contender.name();
    match (of_oracle, &one.failure) {
        (Some(share), _) if *contender == Contender::MptcpBackup => {
            format!("{place} | {name} | {share:.3} |  |  | {slow_seconds:.1}")
        }
        (Some(share), _) => {
            format!("{place} | {name} | {share:.3} | {switches} | {both:.2} | {slow_seconds:.1}")
        }
        (None, reason) => {
            format!("{place} | {name} | {} |  |  | ", reason.as_deref().unwrap_or("–"))
        }
    }
}

/// The results as Markdown.
pub fn page(results: &Results) -> String {
    let outcomes = |goal: &str, with_both: bool| {
        let own = results
            .outcomes
            .iter()
            .filter(|one| one.goal == goal && one.with_both == with_both && one.rule != "oracle");
        lines(own, |one| {
            let Outcome { set, rule, recovered, near, right, regret, .. } = one;
            format!("({set}) | {rule} | {recovered:.2} | {near:.2} | {right:.2} | {regret:.3}")
        })
    };
    let machine = &results.machine;
    let skipped = lines(&results.skipped, Clone::clone);
    let values = [
        ("machine", format!("{} cores, Linux {}", machine.cores, machine.kernel)),
        ("minutes", format!("{:.0}", results.seconds / 60.0)),
        ("targets", rows(&results.targets)),
        ("s", outcomes(GOALS[0].0, false)),
        ("se", outcomes(GOALS[1].0, false)),
        ("s-both", outcomes(GOALS[0].0, true)),
        ("se-both", outcomes(GOALS[1].0, true)),
        (
            "seen",
            lines(&results.seen, |one| {
                let super::Seen { set, goal, source, right, recovered, error } = one;
                format!("({set}) | {goal} | {source} | {right:.2} | {recovered:.2} | {error:.2}")
            }),
        ),
        (
            "probing",
            lines(&results.probing, |one| {
                let Probing { set, in_stages, threshold, bytes, regret } = one;
                let kind = if *in_stages { "pings, then a burst" } else { "whole probes" };
                format!("({set}) | {kind} | {threshold} | {bytes:.2} | {regret:.2}")
            }),
        ),
        (
            "downloads",
            lines(&results.downloads, |one| {
                format!(
                    "{} | {:.2} | {:.2} | {:.2} | {} | {:.0} | {} | {:.2}",
                    one.place,
                    one.of_oracle,
                    one.wifi_alone,
                    one.lte_alone,
                    one.switches,
                    one.slow_seconds,
                    one.bursts,
                    one.probe_bytes * 100.0
                )
            }),
        ),
        ("lab-downloads", lines(&results.lab_downloads, lab_row)),
        ("changes", change_rows(&results.changes)),
        (
            "squares",
            lines(&results.squares, |one| {
                let Square { period_seconds, switches, of_fixed, .. } = one;
                format!("{period_seconds} | {} | {switches} | {of_fixed:.2}", phase(one))
            }),
        ),
        ("emulated", lines(&results.emulated, emulated)),
        (
            "skipped",
            if skipped.is_empty() { String::new() } else { format!("|  |\n|---|\n{skipped}") },
        ),
    ];
    fill(include_str!("page.md"), &values)
}
