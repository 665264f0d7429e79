//! `manyways steer prefer`.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_net::steer::document::SteerPreference;
use manyways_net::steer::protocol::{PreferRequest, SteerRequest, SteerResponse};
use manyways_record::document;
use manyways_report::number::seconds;
use manyways_unit::Span;
use manyways_unit::human::printable;

use super::{ask, unexpected};
use crate::failure::Failure;
use crate::output;

/// Prefer a network for a while, whatever the model predicts
///
/// The preference survives a restart of `steer run`. While the network cannot be used, another one is.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways steer prefer wwan0 --for 10m
  manyways steer prefer lte --for 2h --app zoom
  manyways steer prefer --end

A network is named by its interface, or by its kind if it is the only one of it: wifi, lte, cellular,
ethernet. A preference with --app is for decisions about transfers of this application: `steer why --app`,
and programs that ask; new connections of programs that do not ask have no application.

Exit code: 0; 1 when no `steer run` of this user runs here, or it refuses; 2 when the arguments are invalid.")]
pub struct Args {
    /// Interface or kind of the network
    #[arg(value_name = "NETWORK", required_unless_present = "end")]
    network: Option<String>,
    /// Duration: 90s, 10m, 2h
    #[arg(long = "for", value_name = "DURATION", value_parser = Span::from_str,
          required_unless_present = "end")]
    duration: Option<Span>,
    /// Only for this application
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// End the preference for all applications, or for that of --app
    #[arg(long, conflicts_with_all = ["network", "duration"])]
    end: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let duration = args.duration.unwrap_or(Span::ZERO);
    if !args.end && duration.is_zero() {
        return Failure::refuse("a preference of no time has no effect", "write --for 10m");
    }
    let request =
        PreferRequest { network: args.network, seconds: duration.as_secs_f64(), app: args.app };
    let preference = match ask(&SteerRequest::Prefer(request))? {
        SteerResponse::Preferred(preference) => preference,
        response => return Err(unexpected(response).into()),
    };
    if let Some(warning) = &preference.warning {
        eprintln!("warning: {}", printable(warning));
    }
    let text = if args.json { document::to_json(&preference)? } else { text(&preference) };
    output::text(&text);
    Ok(ExitCode::SUCCESS)
}

fn text(preference: &SteerPreference) -> String {
    let app = preference.app.as_ref().map(|app| format!(" for {app}")).unwrap_or_default();
    let words = match &preference.network {
        Some(network) => {
            format!("{network} is preferred{app} for {}.", seconds(preference.seconds))
        }
        None => format!("No network is preferred{app} from now on."),
    };
    format!("{}\n", printable(&words))
}
