//! mitmproxy as a replay: its server replay answers at the addresses of a page, from the exchanges that
//! manyways has recorded, at the distances of the live origins. It knows no think times.

use std::ffi::OsStr;
use std::path::PathBuf;

use manyways_rig::launch::DriveError;
use manyways_rig::programs::{python_with, quoted};
use manyways_unit::Span;

use super::site::Site;
use crate::replay::recorder::MITMPROXY_RELEASE;
use crate::replay::shell::Shell;

/// Home of a browser that trusts mitmproxy.
pub const HOME: &str = "mitmproxy-home";
/// Makes mitmproxy's authority, which a run would make at its start.
const MAKE_AUTHORITY: &str = "from pathlib import Path; from mitmproxy.certs import CertStore; \
    CertStore.from_store(Path('mitmproxy'), 'mitmproxy', 2048)";
/// It answers only from the recording, and never connects. Without `rawtcp=false`, a request that begins
/// with a part of a long line is none of HTTP, and fails.
const OPTIONS: [&str; 8] = [
    "rawtcp=false",
    "connection_strategy=lazy",
    "upstream_cert=false",
    "server_replay=site.har",
    "server_replay_extra=404",
    "server_replay_reuse=true",
    "server_replay_refresh=false",
    "confdir=mitmproxy",
];
const PORT: u16 = 8080;

/// Prepares mitmproxy for the recording `site.zip` in the folder.
///
/// # Errors
/// The inner one is a sentence, if it cannot be installed or prepared.
pub fn prepare(shell: &Shell<'_>, site: &Site) -> Result<Result<String, String>, DriveError> {
    let python = match python_with("mitmproxy", MITMPROXY_RELEASE) {
        Ok(python) => python,
        Err(reason) => return Ok(Err(reason)),
    };
    let script = format!(
        "\"$MANYWAYS\" record export --with-credentials site.zip -o site.har\n\
         {} -c \"{MAKE_AUTHORITY}\"\n{}",
        quoted(python.as_os_str()),
        super::home(HOME, "mitmproxy/mitmproxy-ca-cert.pem"),
    );
    let prepared = shell.run(&script, Span::from_secs(60))?;
    Ok(prepared.map(|_| options(python.with_file_name("mitmdump"), site)))
}

/// Options of `lab shell` that start it.
fn options(mitmdump: PathBuf, site: &Site) -> String {
    let set = OPTIONS.map(|option| format!(" --set {option}")).concat();
    let table = "ip mitmproxy";
    let far = format!(
        "nft add table {table} && \
         nft 'add chain {table} incoming {{ type nat hook prerouting priority dstnat; }}' && \
         nft add rule {table} incoming tcp dport '{{ 80, 443 }}' dnat to :{PORT} && \
         exec {} --quiet --mode transparent --listen-port {PORT}{set}",
        quoted(mitmdump.as_os_str())
    );
    format!("{} --far {}", site.far_hosts(), quoted(OsStr::new(&far)))
}
