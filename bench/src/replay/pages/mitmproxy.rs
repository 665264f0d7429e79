//! mitmproxy as a replay: its server replay answers at the addresses of a page, from the exchanges that
//! manyways has recorded, at the distances of the live origins. It knows no think times.

use manyways_rig::launch::DriveError;
use manyways_unit::Span;

use super::site::Site;
use crate::replay::mitmproxy::{AUTHORITY, Mitmproxy};
use crate::shell::Shell;

/// Home of a browser that trusts mitmproxy.
pub const HOME: &str = "mitmproxy-home";
/// It answers only from the recording, and never connects. Without `rawtcp=false`, a request that begins
/// with a part of a long line is none of HTTP, and fails.
const OPTIONS: [&str; 7] = [
    "rawtcp=false",
    "connection_strategy=lazy",
    "upstream_cert=false",
    "server_replay=site.har",
    "server_replay_extra=404",
    "server_replay_reuse=true",
    "server_replay_refresh=false",
];

/// Prepares mitmproxy for the recording `site.zip` in the folder. Returns the options of `lab shell` that
/// start it.
///
/// # Errors
/// The inner one is a sentence, if it cannot be installed or prepared.
pub fn prepare(shell: &Shell<'_>, site: &Site) -> Result<Result<String, String>, DriveError> {
    let mitmproxy = match Mitmproxy::install() {
        Ok(mitmproxy) => mitmproxy,
        Err(reason) => return Ok(Err(reason)),
    };
    let script = format!(
        "\"$MANYWAYS\" record export --with-credentials site.zip -o site.har\n{}\n{}",
        mitmproxy.make_authority(),
        super::home(HOME, AUTHORITY),
    );
    let prepared = shell.run(&script, Span::from_secs(60))?;
    let options = format!("{} {}", site.far_hosts(), mitmproxy.option(&OPTIONS, ""));
    Ok(prepared.map(|_| options))
}
