//! `manyways steer why`.

use std::process::ExitCode;

use anyhow::Result;
use manyways_net::steer::protocol::{SteerRequest, SteerResponse, TransferQuery};
use manyways_record::document;
use manyways_unit::{Size, human};

use super::{ask, named_goal, text, unexpected};
use crate::output;

/// Explain which network a transfer would use now, and why
///
/// The running `steer run` answers: the size that it expects, the indicators of each network with their
/// age, the predicted time of each choice, the terms of the objective, and the second best choice.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways steer why www.example.com
  manyways steer why www.example.com --size 10MB --both
  manyways steer why --app zoom --up --goal thrifty --json
  manyways steer why www.example.com --goal goal.toml

Exit code: 0; 1 when no `steer run` of this user runs here; 2 when the arguments are invalid.
A file of a goal is documented in docs/steer.md.")]
pub struct Args {
    /// Host of the transfer
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// Application
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// Bytes of the transfer [default: those of earlier transfers]
    #[arg(long, value_name = "BYTES", value_parser = human::bytes)]
    size: Option<Size>,
    /// To the host, not from it
    #[arg(long)]
    up: bool,
    /// Another goal than that of the run: fast, balanced, thrifty, or a file of docs/steer.md
    #[arg(long, value_name = "GOAL")]
    goal: Option<String>,
    /// Two networks at once can carry the transfer, as in `get` and a bond
    #[arg(long)]
    both: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let goal_file = match &args.goal {
        Some(name) => named_goal(name)?.1,
        None => None,
    };
    let query = TransferQuery {
        host: args.host.as_deref().map(host_of),
        app: args.app,
        size: args.size.map(Size::as_bytes),
        up: args.up,
        goal: args.goal.filter(|_| goal_file.is_none()),
        goal_file,
        both: args.both,
        followed: Vec::new(),
    };
    let why = match ask(&SteerRequest::Why(query))? {
        SteerResponse::Why(why) => why,
        response => return Err(unexpected(response).into()),
    };
    output::text(&if args.json { document::to_json(&*why)? } else { text::why(&why) });
    Ok(ExitCode::SUCCESS)
}

/// The host of a URL, of a host with a port, or the word as it is.
fn host_of(word: &str) -> String {
    let rest = word.split_once("://").map_or(word, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        // An IPv6 address contains more colons than one.
        None if host.matches(':').count() == 1 => host.split(':').next().unwrap_or_default(),
        None => host,
    };
    if host.is_empty() { word.to_owned() } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_be_in_a_url() {
        for (word, host) in [
            ("www.example.org", "www.example.org"),
            ("https://user@www.example.org:8443/a?b", "www.example.org"),
            ("192.0.2.1:443", "192.0.2.1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("://", "://"),
        ] {
            assert_eq!(host_of(word), host);
        }
    }
}
