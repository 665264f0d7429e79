//! `manyways radio control`: sends a radio to idle by a policy while packets pass.

mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use manyways_model::radio::profiles::Known;
use manyways_model::radio::{PolicySpec, Priors};
use manyways_net::bond::control::BondRole;
use manyways_net::radio::control::{
    self, Bond, BondError, ControlError, Exec, Listener, Options, Source, SourceKind, Summary,
};
use manyways_net::radio::event::{RadioBegin, RadioEvent};
use manyways_record::event::{Header, Record, line};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_unit::human::printable;
use manyways_unit::{Span, Time};

use super::named_profile;
use super::options::check_combinations;
use crate::bond::status;
use crate::failure::Failure;

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
    /// +makeactive appended, new connections are delayed too
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
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_span,
          requires = "command")]
    timeout: Span,
    /// Minimum time between two fast dormancies [default: 1s]
    #[arg(long, value_name = "DURATION")]
    min_interval: Option<Span>,
    /// Read the interface's counters instead of its packets: less exact, but without privileges
    #[arg(long)]
    counters: bool,
    /// Interval of reading the counters
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = parse_span,
          requires = "counters")]
    step: Span,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Stop after this time: 90s, 15min
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_span)]
    duration: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Actuator {
    /// Print the decision only
    Log,
    /// Run a command
    Exec,
}

fn parse_span(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if span < Span::from_millis(1) { Err("at least 1ms".to_owned()) } else { Ok(span) }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.command.is_some() && args.actuator != Actuator::Exec {
        let hint = "add --actuator exec";
        return Failure::refuse("--command has no effect without --actuator exec", hint);
    }
    let Known { name: profile_name, profile } = named_profile::find(&args.profile)?;
    let plan = PolicySpec::parse_live(&args.policy)
        .map_err(|error| Failure::usage(error.message).hint(error.hint))?;
    if plan.is_status_quo() {
        let hint = "the policy never sends the radio to idle: choose one like makeidle";
        check_combinations(&[
            (args.command.is_some(), "--command has no effect with this policy", hint),
            (args.min_interval.is_some(), "--min-interval has no effect with this policy", hint),
        ])?;
    }
    let min_interval = args.min_interval.unwrap_or(Span::from_secs(1));
    let rules: Vec<String> = args.hold.iter().map(|rule| rule.trim().to_owned()).collect();
    let delay = delay(&rules, plan.max_session_delay())?;
    if delay.is_some() && args.counters && args.step > MAX_STEP {
        let hint = "released connections must be seen before others are delayed";
        return Failure::refuse("with --hold, --step is at most 250ms", hint);
    }
    // Signals must be blocked before any thread is started.
    let termination = Termination::take().context("cannot watch for signals")?;
    let watch = if args.counters { SourceKind::Counters(args.step) } else { SourceKind::Capture };
    let source = Source::open(&args.interface, watch)
        .map_err(|error| Failure::new(error.to_string()).maybe_hint(error.hint()))?;
    let exec = args.command.as_ref().map(|command| {
        let variables = vec![
            ("MANYWAYS_INTERFACE", args.interface.clone()),
            ("MANYWAYS_PROFILE", profile_name.clone()),
            ("MANYWAYS_POLICY", args.policy.clone()),
        ];
        Exec::new(command.clone(), args.timeout, variables)
    });
    let bond = delay.map(|(rules, longest)| Bond::open(&args.bond, rules, longest));
    let bond = bond.transpose().map_err(bond_failure)?;
    for rule in bond.iter().flat_map(Bond::direct_rules) {
        eprintln!(
            "manyways: the rule {} bypasses the bond: its connections are delayed, too, although \
             they may not use {}",
            printable(rule),
            args.interface
        );
        eprintln!("hint: leave it out of --hold, or replace `direct` by `paths` in the rule");
    }
    let options = Options { exec, bond, min_interval, duration: args.duration };
    let policy = plan.policy(&profile, Priors::NOTHING);
    let mut writer = Writer { json: args.json };
    let begun = writer.begin(args.begin(profile_name)).map_err(ControlError::Listener);
    let run = || control::run(source, &profile, policy, options, &termination, &mut writer);
    let outcome = match begun.and_then(|()| run()) {
        // The reader of standard output has closed it.
        Err(ControlError::Listener(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(ExitCode::SUCCESS);
        }
        outcome => outcome.map_err(|error| Failure::new(error.to_string()))?,
    };
    let summary = Summary::of(&outcome);
    super::print(&if args.json {
        let event = RadioEvent::RadioSummary(Box::new(summary));
        line(&Record { time: Time::ZERO + outcome.duration, event })
    } else {
        text::summary(&summary)
    })?;
    match &outcome.error {
        Some(fault) => Err(Failure::new(format!("{}: {fault}", args.interface)).into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

impl Args {
    fn begin(&self, profile: String) -> RadioBegin {
        RadioBegin {
            interface: self.interface.clone(),
            profile,
            policy: self.policy.clone(),
            actuator: if self.command.is_some() { "exec" } else { "log" }.to_owned(),
            source: if self.counters { "counters" } else { "capture" }.to_owned(),
            hold: self.hold.clone(),
            bond: (!self.hold.is_empty()).then(|| self.bond.clone()),
        }
    }
}

fn bond_failure(error: BondError) -> Failure {
    match error {
        BondError::Control(error) => status::failure(BondRole::Client, error),
        BondError::UnexpectedResponse(answer) => status::unexpected(answer),
        error => Failure::new(error.to_string()),
    }
}

/// Maximum step of reads, because the gate is open for only 1 s after a release.
const MAX_STEP: Span = Span::from_millis(250);

/// The rules whose connections the bond delays, and the maximum delay of the policy in seconds.
fn delay(rules: &[String], longest: Option<Span>) -> Result<Option<(Vec<String>, Span)>, Failure> {
    match (longest, rules) {
        (None, []) => Ok(None),
        (Some(longest), [_, ..]) => Ok(Some((rules.to_vec(), longest))),
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
struct Writer {
    json: bool,
}

impl Writer {
    fn begin(&mut self, begin: RadioBegin) -> io::Result<()> {
        if !self.json {
            let RadioBegin { interface, source, policy, profile, hold, bond, .. } = begin;
            eprintln!("manyways: watching {interface} by its {source}, {policy} on {profile}");
            if let Some(bond) = bond {
                eprintln!("manyways: delaying {} of the bond {bond}", hold.join(", "));
            }
            return Ok(());
        }
        let version = env!("CARGO_PKG_VERSION");
        let header = Header::new("radio control", version, Clock::start().epoch());
        let header = Header { subject: Some(begin.interface.clone()), ..header };
        let begin = Record { time: Time::ZERO, event: RadioEvent::RadioBegin(begin) };
        write(&(header.line() + &line(&begin)))
    }
}

impl Listener for Writer {
    fn event(&mut self, time: Time, event: RadioEvent) -> io::Result<()> {
        let text = match self.json {
            true => Some(line(&Record { time, event })),
            false => {
                text::event(&event).map(|words| format!("{:10.3} s  {words}\n", time.as_secs_f64()))
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delaying_policies_name_their_rules() {
        const SECOND: Span = Span::from_secs(1);
        let rules = ["mail".to_owned()];
        assert!(delay(&[], None).unwrap().is_none());
        assert_eq!(delay(&rules, Some(SECOND)).unwrap(), Some((rules.to_vec(), SECOND)));
        for failure in [delay(&rules, None).unwrap_err(), delay(&[], Some(SECOND)).unwrap_err()] {
            assert!(failure.is_usage() && failure.hint_text().is_some());
        }
    }
}
