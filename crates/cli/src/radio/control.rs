//! `manyways radio control`: sends a radio to idle by a policy while packets pass.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use manyways_model::radio::Profile;
use manyways_model::radio::plan::{Learned, Plan};
use manyways_model::radio::policy::{NEVER, Policy};
use manyways_net::bond::hold::Hold;
use manyways_net::radio::control::{
    self, Bond, BondError, ControlError, Ended, Event, Exec, How, Listener, OpenError, Options,
    Outcome, Source, Watch,
};
use manyways_record::event::{Header, line};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_unit::{Span, Time};
use serde::Serialize;

use super::known::{self, Known};
use crate::bond::status;
use crate::failure::Failure;
use manyways_report::number::{count, digits, joules, percent, seconds};

/// Send the radio to idle by a policy while packets pass
///
/// Watches the packets of an interface, runs a policy on them, and prints when the radio should go
/// idle, or runs a command that sends it to idle. The summary compares the energy by the profile
/// with that under the network's timers alone.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio control --interface wwan0 --profile verizon-lte
  manyways radio control --interface wwan0 --profile mine.toml --policy context --json
  manyways radio control --interface wwan0 --profile att-hspa --policy makeidle:50 \\
      --actuator exec --command './ask-modem-for-dormancy'
  manyways radio control --interface wwan0 --profile lte --counters --for 10min
  manyways radio control --interface wwan0 --profile lte --hold backup,mail \\
      --policy makeidle+makeactive

Policies are those of `manyways radio simulate` that do not need the trace in advance: status-quo,
fixed:SECONDS, threshold, makeidle[:N] and context; and +makeactive[:EXPERTS] or
+makeactive-fixed:SECONDS after them. These two delay new connections of applications, through
a running `manyways bond client`: connections that match the rules of its policy which --hold
names are delayed while the radio is idle. Other connections pass at once, and a promotion releases all.

The command is run by /bin/sh, one at a time, with MANYWAYS_INTERFACE, MANYWAYS_PROFILE,
MANYWAYS_POLICY, MANYWAYS_IDLE_SECONDS and MANYWAYS_WAIT_SECONDS in its environment. The command that asks a
modem for fast dormancy depends on the modem: try it by hand first.

Exit code: 0 after --for or a signal; 1 when the run fails or the interface is removed; 2
when the arguments are invalid.")]
pub struct Args {
    /// Interface to watch
    #[arg(long, value_name = "IFACE")]
    interface: String,
    /// Radio of the interface: a built-in profile or a file
    #[arg(long, value_name = "PROFILE")]
    profile: String,
    /// Policy: status-quo, fixed:SECONDS, threshold, makeidle, makeidle:N or context; with
    /// +makeactive after it, new connections are delayed too
    #[arg(long, value_name = "POLICY", default_value = "makeidle")]
    policy: String,
    /// Rules of the bond's policy whose new connections are delay-tolerant
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    hold: Vec<String>,
    /// Name of the bond client (`bond client --name`)
    #[arg(long, value_name = "NAME", default_value = "default", requires = "hold")]
    bond: String,
    /// How to send the radio to idle
    #[arg(long, value_enum, default_value_t = Actuator::Log)]
    actuator: Actuator,
    /// Command that `exec` runs
    #[arg(long, value_name = "CMD", required_if_eq("actuator", "exec"))]
    command: Option<String>,
    /// Kill the command after this time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = at_least_a_millisecond,
          requires = "command")]
    timeout: Span,
    /// Minimum time between two fast dormancies
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    every: Span,
    /// Read the interface's counters instead of its packets: less exact, but without privileges
    #[arg(long)]
    counters: bool,
    /// Interval of reading the counters
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = at_least_a_millisecond,
          requires = "counters")]
    step: Span,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Stop after this time: 90s, 15min
    #[arg(long = "for", value_name = "DURATION", value_parser = at_least_a_millisecond)]
    duration: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Actuator {
    /// Print the decision only
    Log,
    /// Run a command
    Exec,
}

fn at_least_a_millisecond(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if span < Span::from_millis(1) { Err("at least 1ms".to_owned()) } else { Ok(span) }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.command.is_some() && args.actuator != Actuator::Exec {
        let failure = Failure::usage("--command has no effect without --actuator exec");
        return Err(failure.hint("add --actuator exec").into());
    }
    let Known { name: profile_name, profile } = known::profile(&args.profile)?;
    let (policy, longest) = policy(&args.policy, &profile)?;
    let rules: Vec<String> = args.hold.iter().map(|rule| rule.trim().to_owned()).collect();
    let hold = hold(&rules, longest)?;
    if hold.is_some() && args.counters && args.step > LONGEST_STEP {
        let failure = Failure::usage("with --hold, --step is at most 250ms");
        return Err(failure
            .hint("released connections must be seen before others are delayed")
            .into());
    }
    // Signals must be blocked before any thread is started.
    let termination = Termination::take().context("cannot watch for signals")?;
    let watch = if args.counters { Watch::Counters(args.step) } else { Watch::Capture };
    let source = Source::open(&args.interface, watch).map_err(|error| failure(&error))?;
    let exec = args.command.as_ref().map(|command| {
        let variables = vec![
            ("MANYWAYS_INTERFACE", args.interface.clone()),
            ("MANYWAYS_PROFILE", profile_name.clone()),
            ("MANYWAYS_POLICY", args.policy.clone()),
        ];
        Exec::new(command.clone(), args.timeout, variables)
    });
    let bond = hold.map(|hold| Bond::open(&args.bond, hold)).transpose().map_err(no_bond)?;
    let options = Options { exec, bond, every: args.every, duration: args.duration };
    let mut teller = Teller { json: args.json };
    let told = teller.begin(args, &profile_name).map_err(ControlError::Listener);
    let run = || control::run(source, &profile, policy, options, &termination, &mut teller);
    let outcome = match told.and_then(|()| run()) {
        // The reader of standard output has closed it.
        Err(ControlError::Listener(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(ExitCode::SUCCESS);
        }
        outcome => outcome.map_err(|error| Failure::new(error.to_string()))?,
    };
    let summary = Summary::of(&outcome);
    super::print(&if args.json {
        line(&Line { time: outcome.lasts.as_secs_f64(), what: What::Summary(&summary) })
    } else {
        summary.text()
    })?;
    match &outcome.fault {
        Some(fault) => Err(Failure::new(format!("{}: {fault}", args.interface)).into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn failure(error: &OpenError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn no_bond(error: BondError) -> Failure {
    match error {
        BondError::Control(error) => status::failure(error),
        BondError::Answer(answer) => status::unexpected(answer),
        error => Failure::new(error.to_string()),
    }
}

/// Seconds after the maximum delay at which the bond itself releases a connection that was not
/// released.
const SLACK: f64 = 5.0;
/// Maximum step of reads, because the gate is open for only 1 s after a release.
const LONGEST_STEP: Span = Span::from_millis(250);

/// The bond's delayed connections for a policy with this maximum delay.
fn hold(rules: &[String], longest: Option<f64>) -> Result<Option<Hold>, Failure> {
    match (longest, rules) {
        (None, []) => Ok(None),
        (Some(longest), [_, ..]) => {
            Ok(Some(Hold { rules: rules.to_vec(), longest_seconds: longest + SLACK }))
        }
        (None, _) => {
            Err(Failure::usage("--hold has no effect: the policy does not delay connections")
                .hint("add +makeactive to the --policy"))
        }
        (Some(_), []) => {
            Err(Failure::usage("the policy delays connections, but --hold names no rules")
                .hint("--hold RULE names rules of the policy of `manyways bond client`"))
        }
    }
}

/// Writes events to standard output.
struct Teller {
    json: bool,
}

/// A line after the header of an event log.
#[derive(Serialize)]
struct Line<'a> {
    time: f64,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event")]
enum What<'a> {
    #[serde(rename = "radio-begin")]
    Begin {
        interface: &'a str,
        profile: &'a str,
        policy: &'a str,
        actuator: &'static str,
        source: &'static str,
        hold: &'a [String],
        bond: Option<&'a str>,
    },
    #[serde(rename = "radio-sleep")]
    Sleep { idle_seconds: f64, wait_seconds: f64 },
    #[serde(rename = "radio-wake")]
    Wake {
        slept_seconds: f64,
        #[serde(rename = "false")]
        is_false: bool,
    },
    #[serde(rename = "radio-command")]
    Command { ended: &'static str, exit: Option<i32>, signal: Option<i32>, seconds: f64 },
    #[serde(rename = "radio-down")]
    Down,
    #[serde(rename = "radio-hold")]
    Hold { seconds: f64 },
    #[serde(rename = "radio-pass")]
    Pass { waited_seconds: f64 },
    #[serde(rename = "radio-bond")]
    Bond { up: bool },
    #[serde(rename = "radio-summary")]
    Summary(&'a Summary),
}

impl Teller {
    fn begin(&mut self, args: &Args, profile: &str) -> io::Result<()> {
        let source = if args.counters { "counters" } else { "capture" };
        let actuator = if args.command.is_some() { "exec" } else { "log" };
        let (interface, policy) = (args.interface.as_str(), args.policy.as_str());
        if !self.json {
            let what = format!("{interface} by its {source}, {policy} on {profile}");
            eprintln!("manyways: watching {what}");
            if !args.hold.is_empty() {
                let rules = args.hold.join(", ");
                eprintln!("manyways: delaying {rules} of the bond {}", args.bond);
            }
            return Ok(());
        }
        let version = env!("CARGO_PKG_VERSION");
        let header = Header::new("radio control", version, Clock::start().epoch());
        let header = Header { subject: Some(interface.to_owned()), ..header };
        let hold = args.hold.as_slice();
        let bond = (!hold.is_empty()).then_some(args.bond.as_str());
        let what = What::Begin { interface, profile, policy, actuator, source, hold, bond };
        write(&(line(&header) + &line(&Line { time: 0.0, what })))
    }
}

impl Listener for Teller {
    fn event(&mut self, at: Time, event: &Event) -> io::Result<()> {
        let time = at.as_secs_f64();
        let text = match self.json {
            true => what(event).map(|what| line(&Line { time, what })),
            false => words(event).map(|words| format!("{time:10.3} s  {words}\n")),
        };
        text.map_or(Ok(()), |text| write(&text))
    }
}

/// Flushes at once, because a reader may wait for the line.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn what(event: &Event) -> Option<What<'static>> {
    Some(match event {
        Event::Sleep(sleep) => {
            What::Sleep { idle_seconds: sleep.idle.as_secs_f64(), wait_seconds: sleep.wait }
        }
        Event::Wake(wake) => {
            What::Wake { slept_seconds: wake.slept.as_secs_f64(), is_false: wake.is_false }
        }
        Event::Command(Ended { how, lasts }) => {
            let (ended, exit, signal) = match how {
                How::Exit(code) => ("exit", Some(*code), None),
                How::Signal(signal) => ("signal", None, Some(*signal)),
                How::TimedOut => ("timed-out", None, None),
                How::Stopped => ("stopped", None, None),
                How::NotStarted(_) => ("not-started", None, None),
            };
            What::Command { ended, exit, signal, seconds: lasts.as_secs_f64() }
        }
        Event::Down => What::Down,
        Event::Hold(hold) => What::Hold { seconds: hold.as_secs_f64() },
        Event::Pass(waited) => What::Pass { waited_seconds: waited.as_secs_f64() },
        Event::Bond { is_there } => What::Bond { up: *is_there },
        _ => return None,
    })
}

fn words(event: &Event) -> Option<String> {
    Some(match event {
        Event::Sleep(sleep) => format!(
            "idle       no packet for {} (wait {})",
            seconds(sleep.idle.as_secs_f64()),
            seconds(sleep.wait)
        ),
        Event::Wake(wake) => format!(
            "connected  after {}{}",
            seconds(wake.slept.as_secs_f64()),
            if wake.is_false { ": dormancy saved no energy" } else { "" }
        ),
        Event::Command(Ended { how, lasts }) => {
            let after = seconds(lasts.as_secs_f64());
            match how {
                How::Exit(0) => format!("command    done after {after}"),
                How::Exit(code) => format!("command    failed with exit code {code} after {after}"),
                How::Signal(signal) => format!("command    ended by signal {signal} after {after}"),
                How::TimedOut => format!("command    killed: timeout after {after}"),
                How::Stopped => format!("command    killed at the end, after {after}"),
                How::NotStarted(number) => {
                    format!("command    not started: {}", io::Error::from_raw_os_error(*number))
                }
            }
        }
        Event::Down => "down       the interface is down".to_owned(),
        Event::Hold(hold) => {
            format!(
                "hold       connections are delayed for at most {}",
                seconds(hold.as_secs_f64())
            )
        }
        Event::Pass(waited) => format!("pass       waited {}", seconds(waited.as_secs_f64())),
        Event::Bond { is_there: true } => "bond       connected again".to_owned(),
        Event::Bond { is_there: false } => {
            "bond       connection lost: connections are not delayed".to_owned()
        }
        _ => return None,
    })
}

/// Summary of a run.
#[derive(Serialize)]
struct Summary {
    seconds: f64,
    packets: u64,
    sent_bytes: u64,
    received_bytes: u64,
    missed_packets: u64,
    late_packets: u64,
    sleeps: u64,
    false_sleeps: u64,
    /// `None` without dormancies.
    mean_wait_seconds: Option<f64>,
    switches: u64,
    status_quo_switches: u64,
    joules: f64,
    status_quo_joules: f64,
    /// Share of all energy, and of the energy of tails. `None` if there was none.
    saved_share: Option<f64>,
    saved_tail_share: Option<f64>,
    commands: u64,
    failed_commands: u64,
    /// Delay-tolerant connections, delayed ones, and delayed ones that were given up.
    connections: u64,
    held_connections: u64,
    given_up_connections: u64,
    /// Of the delayed connections that have passed. `None` if there are none.
    mean_hold_seconds: Option<f64>,
    median_hold_seconds: Option<f64>,
    p95_hold_seconds: Option<f64>,
    cpu_seconds: f64,
    cpu_share: f64,
    wakeups: u64,
    fault: Option<String>,
}

impl Summary {
    fn of(outcome: &Outcome) -> Self {
        let control = &outcome.control;
        let (account, status_quo) = (&control.account, &control.status_quo);
        let [sent_bytes, received_bytes] = account.bytes;
        let saved = |now: f64, before: f64| (before > 0.0).then(|| 1.0 - now / before);
        let delays = &outcome.delays;
        let (lasts, cpu) = (outcome.lasts.as_secs_f64(), outcome.cpu.as_secs_f64());
        Self {
            seconds: lasts,
            packets: account.packets,
            sent_bytes,
            received_bytes,
            missed_packets: outcome.missed,
            late_packets: control.overtaken,
            sleeps: account.sleeps,
            false_sleeps: control.false_sleeps,
            mean_wait_seconds: (account.sleeps > 0).then(|| account.waits / account.sleeps as f64),
            switches: account.switches,
            status_quo_switches: status_quo.switches,
            joules: account.total(),
            status_quo_joules: status_quo.total(),
            saved_share: saved(account.total(), status_quo.total()),
            saved_tail_share: saved(account.tail(), status_quo.tail()),
            commands: outcome.commands,
            failed_commands: outcome.failed,
            connections: delays.count + outcome.given_up,
            held_connections: delays.held + outcome.given_up,
            given_up_connections: outcome.given_up,
            mean_hold_seconds: delays.mean(),
            median_hold_seconds: delays.quantile(0.5),
            p95_hold_seconds: delays.quantile(0.95),
            cpu_seconds: cpu,
            cpu_share: if lasts > 0.0 { cpu / lasts } else { 0.0 },
            wakeups: outcome.wakeups,
            fault: outcome.fault.clone(),
        }
    }

    fn text(&self) -> String {
        let packets = match self.missed_packets {
            0 => format!("{} packets", count(self.packets)),
            missed => format!("{} packets, {} missed", count(self.packets), count(missed)),
        };
        let mut lines = vec![("Watched", format!("{}, {packets}", seconds(self.seconds)))];
        lines.push((
            "Dormancy",
            match self.mean_wait_seconds {
                None => "none".to_owned(),
                Some(wait) => format!(
                    "{}, after {} on average; {} of them saved no energy",
                    count(self.sleeps),
                    seconds(wait),
                    count(self.false_sleeps)
                ),
            },
        ));
        lines.push((
            "Switches",
            format!(
                "{}, with the network's timers {}",
                count(self.switches),
                count(self.status_quo_switches)
            ),
        ));
        let shares = self.saved_share.zip(self.saved_tail_share);
        let saved = shares.map_or(String::new(), |(all, tail)| {
            format!("; saved {}, of the tails {}", percent(all), percent(tail))
        });
        let (now, before) = (joules(self.joules), joules(self.status_quo_joules));
        lines.push(("Energy", format!("{now}, with the network's timers {before}{saved}")));
        if self.commands > 0 {
            let (all, failed) = (count(self.commands), count(self.failed_commands));
            lines.push(("Commands", format!("{all}, {failed} failed")));
        }
        if self.connections > 0 {
            let (held, all) = (count(self.held_connections), count(self.connections));
            let mut text = format!("{held} of {all} connections");
            let delays = self.mean_hold_seconds.zip(self.median_hold_seconds);
            if let Some(((mean, median), most)) = delays.zip(self.p95_hold_seconds) {
                let [mean, median, most] = [mean, median, most].map(seconds);
                text += &format!(", for {mean} on average (median {median}, 95 % {most})");
            }
            if self.given_up_connections > 0 {
                text += &format!(", {} given up", count(self.given_up_connections));
            }
            lines.push(("Delayed", text));
        }
        let often = if self.seconds > 0.0 { self.wakeups as f64 / self.seconds } else { 0.0 };
        lines.push((
            "Processor",
            format!("{:.2} % of a core, {} wakeups/s", self.cpu_share * 100.0, digits(often)),
        ));
        lines.into_iter().map(|(name, what)| format!("{name:<10} {what}\n")).collect()
    }
}

/// Creates a policy that works on live traffic, and returns its maximum delay in seconds.
fn policy(text: &str, profile: &Profile) -> Result<(Box<dyn Policy + Send>, Option<f64>), Failure> {
    let plan =
        Plan::parse(text).map_err(|error| Failure::usage(error.to_string()).hint(error.hint))?;
    let longest = plan.longest_hold();
    let hint = match () {
        () if plan.is_oracle() || plan.quantile().is_some() => {
            "use makeidle, context, threshold or fixed:SECONDS"
        }
        () if plan.holds() && longest.is_none() => "give the delay: makeactive-fixed:SECONDS",
        () => {
            // This policy does not use trace properties.
            return Ok((plan.policy(profile, Learned { gap: NEVER, bursts: 0.0 }), longest));
        }
    };
    Err(Failure::usage(format!("{text} needs the whole trace in advance")).hint(hint))
}

#[cfg(test)]
mod tests {
    use manyways_model::radio::{Choice, Direction, Packet, profiles};

    use super::*;

    #[test]
    fn policies_without_advance_knowledge_can_run() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let packet =
            Packet { at: Time::ZERO, direction: Direction::Up, bytes: 60, app: 0, session: 0 };
        let wait =
            |text: &str| policy(text, &profile).map(|(mut one, _)| one.observe(&packet, None));
        for text in ["status-quo", "makeidle", "makeidle:50", "context", "makeactive"] {
            assert_eq!(wait(text).unwrap(), f64::INFINITY, "{text}");
        }
        let threshold = Choice::of(&profile).threshold();
        let waits = ["fixed", "fixed:0.5", "threshold"].map(wait);
        assert_eq!(waits.map(Result::unwrap), [4.5, 0.5, threshold]);
        for text in ["oracle", "iat", "makeactive-fixed", "iat+makeactive", "nothing"] {
            let failure = wait(text).unwrap_err();
            assert!(failure.is_usage() && failure.hinted().is_some(), "{text}");
        }
        let longest = |text: &str| policy(text, &profile).map(|(_, longest)| longest).unwrap();
        assert_eq!(longest("makeidle+makeactive:20"), Some(20.0));
        assert_eq!(longest("makeactive-fixed:7"), Some(7.0));
        assert_eq!(longest("makeidle"), None);
    }

    #[test]
    fn delaying_policies_name_their_rules() {
        let rules = ["mail".to_owned()];
        assert!(hold(&[], None).unwrap().is_none());
        let wished = hold(&rules, Some(10.0)).unwrap().unwrap();
        assert!(wished.rules == rules && wished.longest_seconds > 10.0);
        // The maximum delay of any policy.
        assert_eq!(hold(&rules, Some(86_400.0)).unwrap().unwrap().longest_seconds, 86_405.0);
        for failure in [hold(&rules, None).unwrap_err(), hold(&[], Some(1.0)).unwrap_err()] {
            assert!(failure.is_usage() && failure.hinted().is_some());
        }
    }
}
