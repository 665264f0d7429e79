//! mitmproxy on the far side of a lab, in front of all addresses.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use manyways_rig::programs::{python_with, quoted};

/// Its name as a contender.
pub const MITMPROXY: &str = "mitmproxy";
/// Certificate of its authority, in the folder of a script.
pub const AUTHORITY: &str = "mitmproxy/mitmproxy-ca-cert.pem";
const RELEASE: &str = "11.0.2";
/// Makes its authority, which a run would make at its start.
const MAKE_AUTHORITY: &str = "from pathlib import Path; from mitmproxy.certs import CertStore; \
    CertStore.from_store(Path('mitmproxy'), 'mitmproxy', 2048)";
const PORT: u16 = 8080;

/// An installed mitmproxy.
#[derive(Debug)]
pub struct Mitmproxy {
    python: PathBuf,
}

impl Mitmproxy {
    /// Installs it if necessary.
    ///
    /// # Errors
    /// One sentence.
    pub fn install() -> Result<Self, String> {
        python_with("mitmproxy", RELEASE).map(|python| Self { python })
    }

    /// A script that makes its authority.
    pub fn make_authority(&self) -> String {
        format!("{} -c \"{MAKE_AUTHORITY}\"", quoted(self.python.as_os_str()))
    }

    /// An option of `manyways lab shell` that starts it as a transparent proxy, with values of `--set`
    /// and other options.
    pub fn option(&self, set: &[&str], more: &str) -> String {
        let program: &Path = &self.python.with_file_name("mitmdump");
        let set: String = set.iter().map(|option| format!(" --set {option}")).collect();
        let table = "ip mitmproxy";
        let far = format!(
            "nft add table {table} && \
             nft 'add chain {table} incoming {{ type nat hook prerouting priority dstnat; }}' && \
             nft add rule {table} incoming tcp dport '{{ 80, 443 }}' dnat to :{PORT} && \
             exec {} --quiet --mode transparent --listen-port {PORT} --set confdir=mitmproxy{set} {more}",
            quoted(program.as_os_str())
        );
        format!("--far {}", quoted(OsStr::new(&far)))
    }
}
