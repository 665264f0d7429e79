//! The result as text.

use std::fmt::Write as _;

use manyways_model::radio::EnergyShare;
use manyways_model::radio::burst::{Kind, Total};
use manyways_model::radio::energy::Battery;
use manyways_net::radio::energy::{self, Measured, total};
use manyways_unit::human::printable;

use manyways_report::number::{bytes, count, digits, joules, percent, seconds, span};
use manyways_report::text::table;

pub fn text(measured: &[Measured], battery: &Battery, is_device: bool, top: usize) -> String {
    let mut text = String::new();
    for (index, one) in measured.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push_str(&radio(one, battery, top));
    }
    if is_device && measured.len() > 1 {
        let _ = write!(text, "\nAll radios together: {}", joules(total(measured)));
        if let Some(days) = energy::a_day(measured) {
            let _ = write!(text, "; {}", daily_energy_text(days, battery));
        }
        text.push('\n');
    }
    text
}

/// `12.3 mAh a day at 3.85 V, 0.3 % of 4000 mAh`.
pub fn daily_energy_text(joules: f64, battery: &Battery) -> String {
    let mah = battery.mah(joules);
    let mut text = format!("{} mAh a day at {} V", digits(mah), battery.volts);
    if let (Some(share), Some(capacity)) = (battery.share(joules), battery.capacity) {
        let _ = write!(text, ", {} of {} mAh", percent(share), digits(capacity));
    }
    text
}

fn radio(one: &Measured, battery: &Battery, top: usize) -> String {
    let account = &one.energies.account;
    let all = account.total();
    let mut text = format!(
        "{} on {}: {} packets in {}, {} sent, {} received\n",
        printable(&one.trace),
        printable(&one.radio.name),
        count(one.trace_stats.packets),
        seconds(one.trace_stats.lasts()),
        bytes(account.bytes[0]),
        bytes(account.bytes[1])
    );
    if one.trace_stats.skipped > 0 {
        let _ =
            writeln!(text, "{} packets of other networks excluded", count(one.trace_stats.skipped));
    }
    let _ = write!(text, "{}, {} mAh", joules(all), digits(battery.mah(all)));
    if let Some(day) = one.daily_joules() {
        let _ = write!(text, "; {}", daily_energy_text(day, battery));
    }
    let _ = writeln!(
        text,
        "; {} switch{}\n",
        count(account.promotion_count),
        if account.promotion_count == 1 { "" } else { "es" }
    );
    let parts = one.energies.parts(&one.radio.profile).into_iter();
    let parts = parts.map(|(name, time, spent)| {
        vec![name, joules(spent), percent(spent / all), time.map_or(String::new(), span)]
    });
    text.push_str(&table(&["cause", "energy", "share", "time"], parts));
    text.push('\n');
    let what = one.energies.by.name();
    let head = [what, "energy", "share", "transfer", "tail", "switches", "bytes"];
    text.push_str(&table(&head, owners(one, top).into_iter().chain(released(one))));
    text.push('\n');
    text.push_str(&table(&["bursts", "count", "bytes", "energy", "share"], bursts(one)));
    for (name, period) in one.energies.periods.iter().take(top) {
        let (every, bursts) = (span(period.interval), count(period.bursts));
        let _ = writeln!(text, "periodic: {} every {every}, {bursts} bursts", printable(name));
    }
    text
}

/// A row for each of the `top` owners, and one for the others.
pub fn owners(one: &Measured, top: usize) -> Vec<Vec<String>> {
    let all = one.energies.account.total();
    let row = |(name, share): (String, EnergyShare)| {
        vec![
            name,
            joules(share.total()),
            percent(share.total() / all),
            joules(share.transfer),
            joules(share.tail),
            count(share.promotion_count),
            bytes(share.bytes.iter().sum()),
        ]
    };
    one.energies.top(top).into_iter().map(row).collect()
}

/// The row of the energy without an owner, if there is any.
pub fn released(one: &Measured) -> Option<Vec<String>> {
    let idle = one.energies.idle;
    let share = percent(idle / one.energies.account.total());
    (idle > 0.0).then(|| vec!["(released)".to_owned(), joules(idle), share])
}

/// A row for each kind of bursts.
pub fn bursts(one: &Measured) -> Vec<Vec<String>> {
    let all = one.energies.account.total();
    let kinds = one.energies.bursts.iter().filter(|(_, total)| total.bursts > 0);
    let row = |(kind, total): &(Kind, Total)| {
        vec![
            kind.name().to_owned(),
            count(total.bursts),
            bytes(total.bytes),
            joules(total.cost),
            percent(total.cost / all),
        ]
    };
    kinds.map(row).collect()
}
