//! The result as an HTML page.

use manyways_model::radio::burst::Period;
use manyways_model::radio::energy::Battery;
use manyways_model::radio::timeline::Phase;
use manyways_net::radio::energy::{self, Measured, total};

use super::text::{self, daily_energy_text};
use manyways_report::bars::{Bar, Bars};
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{bytes, count, joules, seconds, span};
use manyways_report::svg::Drawing;
use manyways_report::{self as report, Column, Page};

/// Seconds from the start that are drawn individually.
const CLOSE_UP_SECONDS: f64 = 120.0;
/// Shorter segments are not drawn, in seconds.
const MIN_SEGMENT_SECONDS: f64 = 5e-3;

pub fn html(measured: &[Measured], battery: &Battery, is_device: bool, top: usize) -> String {
    let lead = "Energy of the radio for a packet trace, by cause.";
    let mut page = Page::new("Energy of the radio", lead);
    // Alternative radios do not add up.
    if is_device || measured.len() == 1 {
        let switches = measured.iter().map(|one| one.energies.account.promotion_count).sum();
        let mut highlights = vec![("Energy".to_owned(), joules(total(measured)))];
        if let Some(days) = energy::a_day(measured) {
            highlights.push(("A day".to_owned(), daily_energy_text(days, battery)));
        }
        highlights.push(("Switches".to_owned(), count(switches)));
        page.highlights(&highlights);
    }
    page.heading("Causes");
    page.figure(&shares(measured), "Shares of the energy; the label after a bar is the energy.");
    for one in measured {
        page.heading(&format!("{} on {}", one.trace, one.radio.name));
        page.notes(&[
            format!(
                "{} packets in {}; {} sent, {} received.",
                count(one.trace_stats.packets),
                seconds(one.trace_stats.lasts()),
                bytes(one.energies.account.bytes[0]),
                bytes(one.energies.account.bytes[1])
            ),
            format!("The radio: {}.", one.radio.profile.title),
        ]);
        page.figure(
            &over_time(one),
            &format!("Mean power in steps of {}.", span(one.energies.steps.width())),
        );
        if let Some(drawing) = close_up(one) {
            page.figure(
                &drawing,
                "The first seconds, by the radio's states. Promotions take no time here.",
            );
        }
        owners(&mut page, one, top);
        bursts(&mut page, one);
    }
    page.html(&format!("manyways {} radio energy", env!("CARGO_PKG_VERSION")))
}

fn shares(measured: &[Measured]) -> Drawing {
    // Radios have different states; common to all are transfer, connected, released, switches.
    let legend = ["transfer", "connected, no transfer", "idle", "switches"].map(str::to_owned);
    let bars = measured.iter().map(|one| {
        let account = &one.energies.account;
        let all = account.total().max(f64::MIN_POSITIVE);
        let (awake, asleep) = account.state_energy.split_at(account.connected_states);
        let parts = [
            account.transfer_energy.iter().sum::<f64>(),
            awake.iter().sum(),
            asleep.iter().sum(),
            account.demotion_energy + account.promotion_energy,
        ];
        Bar {
            label: one.radio.name.clone(),
            about: truncate(&one.trace),
            value: Some(1.0),
            annotations: (joules(account.total()), String::new()),
            parts: parts.iter().map(|part| part / all).collect(),
            strong: false,
        }
    });
    Bars {
        title: "Energy by cause".to_owned(),
        description:
            "A bar for each radio, divided into transfers, connected time without a transfer, \
                      idle time, and switches."
                .to_owned(),
        axis: "share of the energy".to_owned(),
        mark: None,
        legend: legend.to_vec(),
        bars: bars.collect(),
    }
    .draw()
}

fn truncate(text: &str) -> String {
    let name = text.rsplit('/').next().unwrap_or(text);
    match name.chars().count() > 24 {
        true => name.chars().take(23).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

fn over_time(one: &Measured) -> Drawing {
    let (unit, words) = match one.trace_stats.lasts() {
        ..600.0 => (1.0, "seconds"),
        ..36_000.0 => (60.0, "minutes"),
        ..432_000.0 => (3_600.0, "hours"),
        _ => (86_400.0, "days"),
    };
    let points = one
        .energies
        .steps
        .power()
        .map(|(at, power)| (at.as_secs_f64() / unit, power.as_watts()))
        .collect();
    Curves {
        title: "Power over time".to_owned(),
        description: "Mean power of the radio in each step.".to_owned(),
        x_axis: Axis::linear(&format!("{words} since the first packet")),
        y_axis: Axis::linear("W"),
        lines: vec![Line { name: String::new(), points, is_filled: true }],
    }
    .draw()
}

/// Power by state, until the end of the stored segments.
fn close_up(one: &Measured) -> Option<Drawing> {
    let first = one.energies.head.first()?.start;
    let since = |time: manyways_unit::Time| time.since(first).as_secs_f64();
    let end = since(one.energies.head.last()?.end).min(CLOSE_UP_SECONDS);
    if one.trace_stats.lasts() <= 0.0 || end <= 0.0 {
        return None;
    }
    let mut phases: Vec<Phase> = Vec::new();
    for segment in &one.energies.head {
        if segment.end > segment.start && !phases.contains(&segment.phase) {
            phases.push(segment.phase);
        }
    }
    phases.sort_by_key(|one| match one {
        Phase::Transfer(direction) => (0, *direction as usize),
        Phase::State(place) => (1, *place),
        Phase::Promotion(_) | Phase::Demotion(_) => (2, 0),
    });
    let line = |wanted: &Phase| {
        let mut points = vec![(0.0, 0.0)];
        for segment in &one.energies.head {
            let (from, to) = (since(segment.start), since(segment.end));
            // A packet with energy but hardly any time would be a spike.
            if segment.phase != *wanted || to - from < MIN_SEGMENT_SECONDS || from > end {
                continue;
            }
            // A segment that continues the previous one has no gap.
            points.pop_if(|last| *last == (from, 0.0) && from > 0.0);
            points.push((from, segment.joules / (to - from)));
            points.push((to.min(end), 0.0));
        }
        points.push((end, 0.0));
        Line { name: wanted.name(&one.radio.profile).to_owned(), points, is_filled: true }
    };
    Some(
        Curves {
            title: "The radio's states".to_owned(),
            description: "Power over the first seconds, in the colours of the states.".to_owned(),
            x_axis: Axis::linear("seconds since the first packet"),
            y_axis: Axis::linear("W"),
            lines: phases.iter().map(line).collect(),
        }
        .draw(),
    )
}

fn owners(page: &mut Page, one: &Measured, top: usize) {
    let headings = ["Owner", "Energy", "Share", "Transfer", "Tail", "Switches", "Bytes"];
    let lines = text::owners(one, top).into_iter().map(report::TableRow::plain);
    let released = text::released(one).map(|mut cells| {
        cells.resize(headings.len(), String::new());
        report::TableRow { cells, strong: false, faint: true }
    });
    page.table(
        "Energy by owner: a tail belongs to the packet before it",
        &Column::of(headings, &[0]),
        &lines.chain(released).collect::<Vec<_>>(),
    );
}

fn bursts(page: &mut Page, one: &Measured) {
    let columns = Column::of(["Bursts", "Count", "Bytes", "Energy", "Share"], &[0]);
    let lines: Vec<report::TableRow> =
        text::bursts(one).into_iter().map(report::TableRow::plain).collect();
    page.table("Bursts by kind (the rules of Video Optimizer)", &columns, &lines);
    let note = |(name, period): &(String, Period)| {
        format!("{name}: every {}, {} bursts.", span(period.interval), count(period.bursts))
    };
    let notes: Vec<String> = one.energies.periods.iter().take(10).map(note).collect();
    if !notes.is_empty() {
        page.notes(&notes);
    }
}
