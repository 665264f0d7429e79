//! Events and the summary as text.

use manyways_net::radio::control::Summary;
use manyways_net::radio::event::{CommandEnd, RadioEvent};
use manyways_report::number::{count, digits, joules, percent, seconds};

/// An event as one line; `None` for events that are not printed as text.
pub fn event(event: &RadioEvent) -> Option<String> {
    Some(match event {
        RadioEvent::RadioSleep { idle_seconds, wait_seconds } => format!(
            "idle       no packet for {} (wait {})",
            seconds(*idle_seconds),
            seconds(*wait_seconds)
        ),
        RadioEvent::RadioWake { slept_seconds, is_false } => format!(
            "connected  after {}{}",
            seconds(*slept_seconds),
            if *is_false { ": dormancy saved no energy" } else { "" }
        ),
        RadioEvent::RadioCommand { ended, exit, signal, seconds: lasts, reason } => {
            let after = seconds(*lasts);
            let number = exit.or(*signal).unwrap_or_default();
            let words = match ended {
                CommandEnd::Exit if number == 0 => format!("done after {after}"),
                CommandEnd::Exit => format!("failed with exit code {number} after {after}"),
                CommandEnd::Signal => format!("ended by signal {number} after {after}"),
                CommandEnd::TimedOut => format!("killed: timeout after {after}"),
                CommandEnd::Stopped => format!("killed at the end, after {after}"),
                CommandEnd::NotStarted => {
                    format!("not started: {}", reason.as_deref().unwrap_or_default())
                }
            };
            format!("command    {words}")
        }
        RadioEvent::RadioDown => "down       the interface is down".to_owned(),
        RadioEvent::RadioHold { seconds: longest } => {
            format!("hold       connections are delayed for at most {}", seconds(*longest))
        }
        RadioEvent::RadioPass { waited_seconds } => {
            format!("pass       waited {}", seconds(*waited_seconds))
        }
        RadioEvent::RadioBond { up: true } => "bond       connected again".to_owned(),
        RadioEvent::RadioBond { up: false } => {
            "bond       connection lost: connections are not delayed".to_owned()
        }
        _ => return None,
    })
}

pub fn summary(run: &Summary) -> String {
    let packets = match run.missed_packets {
        0 => format!("{} packets", count(run.packets)),
        missed => format!("{} packets, {} missed", count(run.packets), count(missed)),
    };
    let mut lines = vec![("Watched", format!("{}, {packets}", seconds(run.seconds)))];
    lines.push((
        "Dormancy",
        match run.mean_wait_seconds {
            None => "none".to_owned(),
            Some(wait) => format!(
                "{}, after {} on average; {} of them saved no energy",
                count(run.sleeps),
                seconds(wait),
                count(run.false_sleeps)
            ),
        },
    ));
    lines.push((
        "Switches",
        format!(
            "{}, with the network's timers {}",
            count(run.switches),
            count(run.status_quo_switches)
        ),
    ));
    let shares = run.saved_share.zip(run.saved_tail_share);
    let saved = shares.map_or(String::new(), |(all, tail)| {
        format!("; saved {}, of the tails {}", percent(all), percent(tail))
    });
    let (now, before) = (joules(run.joules), joules(run.status_quo_joules));
    lines.push(("Energy", format!("{now}, with the network's timers {before}{saved}")));
    if run.commands > 0 {
        let (all, failed) = (count(run.commands), count(run.failed_commands));
        lines.push(("Commands", format!("{all}, {failed} failed")));
    }
    if run.connections > 0 {
        let (held, all) = (count(run.held_connections), count(run.connections));
        let mut text = format!("{held} of {all} connections");
        let delays = run.mean_hold_seconds.zip(run.median_hold_seconds);
        if let Some(((mean, median), most)) = delays.zip(run.p95_hold_seconds) {
            let [mean, median, most] = [mean, median, most].map(seconds);
            text += &format!(", for {mean} on average (median {median}, 95 % {most})");
        }
        if run.given_up_connections > 0 {
            text += &format!(", {} given up", count(run.given_up_connections));
        }
        lines.push(("Delayed", text));
    }
    let often = if run.seconds > 0.0 { run.wakeups as f64 / run.seconds } else { 0.0 };
    lines.push((
        "Processor",
        format!("{:.2} % of a core, {} wakeups/s", run.cpu_share * 100.0, digits(often)),
    ));
    lines.into_iter().map(|(name, what)| format!("{name:<10} {what}\n")).collect()
}
