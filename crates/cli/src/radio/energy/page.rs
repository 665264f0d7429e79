//! The result as an HTML page.

use manyways_model::radio::timeline::Phase;

use super::measure::{Measured, phase};
use super::text::{a_day, days, owners_rows};
use super::{Battery, total};
use manyways_report::bars::{Bar, Bars};
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{bytes, count, joules, percent, seconds};
use manyways_report::svg::Drawing;
use manyways_report::{self as report, Column, Page};

/// Seconds from the start that are drawn individually.
const CLOSE: f64 = 120.0;
/// Shorter segments are not drawn, in seconds.
const SHORT: f64 = 5e-3;

pub fn html(measured: &[Measured], battery: &Battery, is_device: bool, top: usize) -> String {
    let lead = "Energy of the radio for a packet trace, by cause.";
    let mut page = Page::new("Energy of the radio", lead);
    // Alternative radios do not add up.
    if is_device || measured.len() == 1 {
        let switches = measured.iter().map(|one| one.account.switches).sum();
        let mut highlights = vec![("Energy".to_owned(), joules(total(measured)))];
        if let Some(days) = days(measured) {
            highlights.push(("A day".to_owned(), a_day(days, battery)));
        }
        highlights.push(("Switches".to_owned(), count(switches)));
        page.highlights(&highlights);
    }
    page.heading("Causes");
    page.figure(&shares(measured), "Shares of the energy; the label after a bar is the energy.");
    for one in measured {
        page.heading(&format!("{} on {}", one.trace, one.known.name));
        page.notes(&[
            format!(
                "{} packets in {}; {} sent, {} received.",
                count(one.seen.packets),
                seconds(one.lasts()),
                bytes(one.account.bytes[0]),
                bytes(one.account.bytes[1])
            ),
            format!("The radio: {}.", one.known.profile.title),
        ]);
        page.figure(
            &over_time(one),
            &format!("Mean power in steps of {}.", seconds(one.steps.width())),
        );
        if let Some(drawing) = beginning(one) {
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
    let legend = ["transfer", "connected, no transfer", "released", "switches"].map(str::to_owned);
    let bars = measured.iter().map(|one| {
        let account = &one.account;
        let all = account.total().max(f64::MIN_POSITIVE);
        let (awake, asleep) = account.states.split_at(account.awake);
        let parts = [
            account.transfer.iter().sum::<f64>(),
            awake.iter().sum(),
            asleep.iter().sum(),
            account.demotions + account.promotions,
        ];
        Bar {
            label: one.known.name.clone(),
            about: cut(&one.trace),
            value: Some(1.0),
            words: (joules(account.total()), String::new()),
            parts: parts.iter().map(|part| part / all).collect(),
            strong: false,
        }
    });
    Bars {
        title: "Energy by cause".to_owned(),
        description:
            "A bar for each radio, divided into transfers, connected time without a transfer, \
                      released time, and switches."
                .to_owned(),
        axis: "share of the energy".to_owned(),
        mark: None,
        legend: legend.to_vec(),
        bars: bars.collect(),
    }
    .draw()
}

fn cut(text: &str) -> String {
    let name = text.rsplit('/').next().unwrap_or(text);
    match name.chars().count() > 24 {
        true => name.chars().take(23).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

fn over_time(one: &Measured) -> Drawing {
    let (unit, words) = match one.lasts() {
        ..600.0 => (1.0, "seconds"),
        ..36_000.0 => (60.0, "minutes"),
        ..432_000.0 => (3_600.0, "hours"),
        _ => (86_400.0, "days"),
    };
    let points = one.steps.power().map(|(at, watts)| (at / unit, watts)).collect();
    Curves {
        title: "Power over time".to_owned(),
        description: "Mean power of the radio in each step.".to_owned(),
        across: Axis::linear(&format!("{words} since the first packet")),
        up: Axis::linear("W"),
        lines: vec![Line { name: String::new(), points, is_filled: true }],
    }
    .draw()
}

/// Power by state, until the end of the stored segments.
fn beginning(one: &Measured) -> Option<Drawing> {
    let first = one.head.first()?.begins;
    let since = |time: manyways_unit::Time| time.since(first).as_secs_f64();
    let end = since(one.head.last()?.ends).min(CLOSE);
    if one.lasts() <= 0.0 || end <= 0.0 {
        return None;
    }
    let states = one.states();
    let mut phases: Vec<Phase> = Vec::new();
    for segment in &one.head {
        if segment.ends > segment.begins && !phases.contains(&segment.phase) {
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
        for segment in &one.head {
            let (from, to) = (since(segment.begins), since(segment.ends));
            // A packet with energy but hardly any time would be a spike.
            if segment.phase != *wanted || to - from < SHORT || from > end {
                continue;
            }
            // A segment that continues the previous one has no gap.
            points.pop_if(|last| *last == (from, 0.0) && from > 0.0);
            points.push((from, segment.joules / (to - from)));
            points.push((to.min(end), 0.0));
        }
        points.push((end, 0.0));
        Line { name: phase(*wanted, &states), points, is_filled: true }
    };
    Some(
        Curves {
            title: "The radio's states".to_owned(),
            description: "Power over the first seconds, in the colours of the states.".to_owned(),
            across: Axis::linear("seconds since the first packet"),
            up: Axis::linear("W"),
            lines: phases.iter().map(line).collect(),
        }
        .draw(),
    )
}

fn owners(page: &mut Page, one: &Measured, top: usize) {
    let columns = [
        ("Owner", Column::Words),
        ("Energy", Column::Figures),
        ("Share", Column::Figures),
        ("Transfer", Column::Figures),
        ("Tail", Column::Figures),
        ("Switches", Column::Figures),
        ("Bytes", Column::Figures),
    ];
    let all = one.account.total();
    let lines: Vec<report::Line> = owners_rows(one, top)
        .into_iter()
        .map(|(name, share)| report::Line {
            cells: vec![
                name,
                joules(share.total()),
                percent(share.total() / all),
                joules(share.transfer),
                joules(share.tail),
                count(share.switches),
                bytes(share.bytes.iter().sum()),
            ],
            strong: false,
            faint: false,
        })
        .chain((one.idle > 0.0).then(|| report::Line {
            cells: vec![
                "(released)".to_owned(),
                joules(one.idle),
                percent(one.idle / all),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
            ],
            strong: false,
            faint: true,
        }))
        .collect();
    page.table("Energy by owner: a tail belongs to the packet before it", &columns, &lines);
}

fn bursts(page: &mut Page, one: &Measured) {
    let columns = [
        ("Bursts", Column::Words),
        ("Count", Column::Figures),
        ("Bytes", Column::Figures),
        ("Energy", Column::Figures),
        ("Share", Column::Figures),
    ];
    let all = one.account.total();
    let lines: Vec<report::Line> = one
        .bursts
        .iter()
        .filter(|(_, total)| total.bursts > 0)
        .map(|(kind, total)| report::Line {
            cells: vec![
                kind.name().to_owned(),
                count(total.bursts),
                bytes(total.bytes),
                joules(total.spent),
                percent(total.spent / all),
            ],
            strong: false,
            faint: false,
        })
        .collect();
    page.table("Bursts by kind (the rules of Video Optimizer)", &columns, &lines);
    let notes: Vec<String> = one
        .periods
        .iter()
        .take(10)
        .map(|(name, period)| {
            format!("{name}: every {}, {} bursts.", seconds(period.every), count(period.bursts))
        })
        .collect();
    if !notes.is_empty() {
        page.notes(&notes);
    }
}
