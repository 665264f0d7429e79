//! `manyways probe video --browser dashjs`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use manyways_net::browser;
use manyways_net::probe::DashJs;

use super::{Abandon, Args, Transport};
use crate::failure::Failure;

/// Where npm puts the script, below the working folder.
const LIBRARY: &str = "node_modules/dashjs/dist/modern/umd/dash.all.min.js";
/// Maximum length of a script; that of dash.js has 1 MB.
const MAX_LENGTH: u64 = 16 << 20;

/// Refuses options that dash.js has no counterpart for.
pub(super) fn check(args: &Args) -> Result<(), Failure> {
    let without_counterpart = [
        ("--resume-below", args.resume_below.is_some()),
        ("--start", args.start.is_some()),
        ("--restart", args.restart.is_some()),
        ("--abandon free", args.abandon == Abandon::Free),
        ("--scheduler", args.scheduler.is_some()),
        ("--transport mptcp", args.transport == Transport::Mptcp),
        ("--simulate", args.simulate.is_some()),
        // A browser trusts what its user trusts.
        ("--cacert", args.cacert.is_some()),
    ];
    if let Some((option, _)) = without_counterpart.iter().find(|(_, is_given)| *is_given) {
        let words = format!("{option} has no counterpart in dash.js");
        return Failure::refuse(words, format!("leave out {option} or --browser"));
    }
    if args.rule.iter().any(|rule| !DashJs::has_rule(*rule)) {
        let words = format!("dash.js has only the rules {}", DashJs::RULES);
        return Failure::refuse(words, "name one of them with --rule");
    }
    Ok(())
}

/// Finds the browser, and reads the script of the player. A prediction of the cost needs neither.
pub(super) fn load(args: &Args) -> Result<DashJs, Failure> {
    if args.options.cost {
        return Ok(DashJs { browser: None, script: "".into() });
    }
    let script = script(args.library.as_deref())?;
    let found = browser::find(args.chromium.as_deref()).map_err(|error| {
        let hint = error.hint().map(|hint| hint.replace("--browser", "--chromium"));
        Failure::new(error.to_string()).maybe_hint(hint)
    })?;
    Ok(DashJs { browser: Some(found), script: script.into() })
}

fn script(named: Option<&Path>) -> Result<String, Failure> {
    let file = named.map_or_else(|| PathBuf::from(LIBRARY), Path::to_owned);
    let read = || {
        let mut text = String::new();
        let length = File::open(&file)?.take(MAX_LENGTH + 1).read_to_string(&mut text)?;
        match length as u64 > MAX_LENGTH {
            true => Err(io::Error::other("it is too large")),
            false => Ok(text),
        }
    };
    let hint = "run `npm install dashjs@5`, or name its dash.all.min.js with --library";
    read().map_err(|error: io::Error| match (named, error.kind()) {
        (None, io::ErrorKind::NotFound) => {
            Failure::new("dash.js is not installed in this folder").hint(hint)
        }
        _ => Failure::new(format!("cannot read {}: {error}", file.display())).hint(hint),
    })
}
