//! The result as text.

use std::fmt::Write as _;

use manyways_model::radio::Share;
use manyways_unit::human::printable;

use super::measure::{By, Measured};
use super::{Battery, total};
use manyways_report::number::{bytes, count, digits, joules, percent, seconds};
use manyways_report::text::table;

pub fn text(measured: &[Measured], battery: &Battery, is_device: bool, top: usize) -> String {
    let mut text = String::new();
    for (place, one) in measured.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        text.push_str(&radio(one, battery, top));
    }
    if is_device && measured.len() > 1 {
        let _ = write!(text, "\nAll radios together: {}", joules(total(measured)));
        if let Some(days) = days(measured) {
            let _ = write!(text, "; {}", a_day(days, battery));
        }
        text.push('\n');
    }
    text
}

/// Joules a day of all radios; `None` if one trace is too short.
pub fn days(measured: &[Measured]) -> Option<f64> {
    measured.iter().map(Measured::a_day).sum()
}

/// `12.3 mAh a day at 3.85 V, 0.3 % of 4000 mAh`.
pub fn a_day(joules: f64, battery: &Battery) -> String {
    let mah = battery.mah(joules);
    let mut text = format!("{} mAh a day at {} V", digits(mah), battery.volts);
    if let (Some(share), Some(capacity)) = (battery.share(joules), battery.capacity) {
        let _ = write!(text, ", {} of {} mAh", percent(share), digits(capacity));
    }
    text
}

fn radio(one: &Measured, battery: &Battery, top: usize) -> String {
    let account = &one.account;
    let all = account.total();
    let mut text = format!(
        "{} on {}: {} packets in {}, {} sent, {} received\n",
        printable(&one.trace),
        printable(&one.known.name),
        count(one.seen.packets),
        seconds(one.lasts()),
        bytes(account.bytes[0]),
        bytes(account.bytes[1])
    );
    if one.seen.left_out > 0 {
        let _ = writeln!(text, "{} packets of other networks excluded", count(one.seen.left_out));
    }
    let _ = write!(text, "{}, {} mAh", joules(all), digits(battery.mah(all)));
    if let Some(day) = one.a_day() {
        let _ = write!(text, "; {}", a_day(day, battery));
    }
    let _ = writeln!(text, "; {} switches\n", count(account.switches));
    let head = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
    let mut rows = vec![head(["cause", "energy", "share", "time"])];
    for (name, secs, spent) in one.parts() {
        rows.push(vec![
            name,
            joules(spent),
            percent(spent / all),
            secs.map_or(String::new(), seconds),
        ]);
    }
    text.push_str(&table(&rows));
    text.push('\n');
    text.push_str(&owners(one, top));
    text.push('\n');
    let mut rows =
        vec![["bursts", "count", "bytes", "energy", "share"].map(str::to_owned).to_vec()];
    for (kind, total) in one.bursts.iter().filter(|(_, total)| total.bursts > 0) {
        rows.push(vec![
            kind.name().to_owned(),
            count(total.bursts),
            bytes(total.bytes),
            joules(total.spent),
            percent(total.spent / all),
        ]);
    }
    text.push_str(&table(&rows));
    for (name, period) in one.periods.iter().take(top) {
        let _ = writeln!(
            text,
            "periodic: {} every {}, {} bursts",
            printable(name),
            seconds(period.every),
            count(period.bursts)
        );
    }
    text
}

/// Name and share of each owner in the table.
pub fn owners_rows(one: &Measured, top: usize) -> Vec<(String, Share)> {
    let mut rows: Vec<(String, Share)> = one.owners.iter().take(top).cloned().collect();
    let rest = one.owners.iter().skip(top).map(|(_, share)| share).chain([&one.others]);
    let mut others = Share::default();
    let mut count = 0;
    for share in rest.filter(|share| share.packets > 0) {
        count += 1;
        others.packets += share.packets;
        others.bytes[0] += share.bytes[0];
        others.bytes[1] += share.bytes[1];
        others.transfer += share.transfer;
        others.tail += share.tail;
        others.promotion += share.promotion;
        others.switches += share.switches;
    }
    if count > 0 {
        rows.push((format!("{count} others"), others));
    }
    rows
}

fn owners(one: &Measured, top: usize) -> String {
    let what = match one.by {
        By::Application => "application",
        By::Flow => "flow",
    };
    let all = one.account.total();
    let mut rows = vec![
        [what, "energy", "share", "transfer", "tail", "switches", "bytes"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (name, share) in owners_rows(one, top) {
        rows.push(vec![
            name,
            joules(share.total()),
            percent(share.total() / all),
            joules(share.transfer),
            joules(share.tail),
            count(share.switches),
            bytes(share.bytes.iter().sum()),
        ]);
    }
    if one.idle > 0.0 {
        rows.push(vec!["(released)".to_owned(), joules(one.idle), percent(one.idle / all)]);
    }
    table(&rows)
}
