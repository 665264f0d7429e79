//! `manyways probe exec`.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_net::probe::{Exec, Measurement, Report};
use manyways_report::number::bytes;
use manyways_report::text::table;
use manyways_unit::{Size, Span, human};

use super::run::{Options, measure};

/// Run any program as a probe
///
/// The program runs once for each network. `{interface}` and `{address}` in its arguments become
/// the interface and its first address; the environment has them as MANYWAYS_INTERFACE and
/// MANYWAYS_ADDRESS. All traffic of the interface counts as that of the program, which is killed
/// where it would exceed its limits. Its standard output is the result, as JSON if it is JSON.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe exec -- ping -c 3 -I {interface} 192.0.2.1
  manyways probe exec --via wlan0 --up 1MB --down 50MB --json -- iperf3 -c 192.0.2.1 -B {address} -R -J
  manyways probe exec --duration 1m -- sh -c 'curl --interface $MANYWAYS_INTERFACE https://example.org/'

Exit code: 0 when the program ran on at least one network, whatever its own exit code; 1 when it ran
on none; 2 when the arguments are invalid; 130 when a signal ends the probe.")]
pub struct Args {
    /// Program and arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<String>,
    /// Maximum bytes that the interface sends meanwhile
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = human::bytes)]
    up: Size,
    /// Maximum bytes that the interface receives meanwhile
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = human::bytes)]
    down: Size,
    /// Maximum duration
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = Span::from_str)]
    duration: Span,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let probe = Exec {
        command: args.command.clone(),
        up: args.up,
        down: args.down,
        duration: args.duration,
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let mut output = String::new();
    let mut rows = Vec::new();
    for report in reports {
        let Some(Measurement::Exec(exec)) = &report.measurement else { continue };
        let name = &report.context.interface;
        for line in exec.output.lines() {
            output.push_str(&format!("{name}: {line}\n"));
        }
        let end = match (exec.exit_code, exec.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "killed".to_owned(),
        };
        rows.push(vec![
            name.clone(),
            end,
            bytes(report.used.up.as_bytes()),
            bytes(report.used.down.as_bytes()),
            manyways_report::number::span(report.used.duration),
        ]);
    }
    if rows.is_empty() {
        return output;
    }
    output + &table(&["NETWORK", "END", "SENT", "RECEIVED", "DURATION"], rows)
}
