//! The recorder beside mitmproxy: new connections over HTTPS.

use std::fs;

use manyways_rig::launch::{DriveError, system};
use manyways_rig::programs::{python_with, quoted};
use manyways_unit::Span;

use super::Replay;
use super::internet::{Internet, NAME, address};
use super::plan::Cell;
use super::record::{Figures, Record};
use super::shell::Shell;

pub const RECORD: &str = "record";
pub const MITMPROXY: &str = "mitmproxy";
/// Neither of them.
pub const DIRECT: &str = "direct";
pub const CONNECTIONS: &str = "connections/s";

/// The release of mitmproxy to compare with.
pub const MITMPROXY_RELEASE: &str = "11.0.2";
const TIMEOUT: Span = Span::from_secs(120);
/// Connections at a time.
const JOBS: usize = 16;

pub fn connections(
    replay: &Replay,
    cell: &Cell,
    seconds: u64,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(replay)?;
    fs::create_dir_all(shell.path("root")).map_err(system("make a folder"))?;
    shell.write("root/1", "yes\n")?;
    let config = "access_log off;";
    let internet =
        Internet::new(&shell, "wan:delay=100us", &[Span::ZERO])?.with_nginx(config, 1)?;
    let python = python_with("mitmproxy", MITMPROXY_RELEASE);
    let mitmdump = python.map(|python| python.with_file_name("mitmdump"));
    let mut able = cell.contenders.clone();
    if let Err(reason) = &mitmdump {
        record.skipped.push(reason.clone());
        able.retain(|contender| *contender != MITMPROXY);
    }
    let mitmdump = mitmdump.unwrap_or_default();
    let client = format!(
        "$BENCH connect --name {NAME} --server {}:443 --length {seconds}s --jobs {JOBS}",
        address(0)
    );
    let authority = internet.authority.authority();
    let authority = quoted(authority.as_os_str());
    cell.run_rounds(&able, replay.seed, record, progress, |_, contender| {
        let script = match *contender {
            RECORD => format!(
                "rm -f a.zip; $RECORD -o a.zip -- sh -c '{client} --trust $SSL_CERT_FILE >rate' >said; cat rate"
            ),
            DIRECT => format!("{client} --trust {authority}"),
            _ => format!(
                "{} -q -p 8080 --listen-host 127.0.0.1 --set confdir=mitmproxy \
                 --set ssl_verify_upstream_trusted_ca={authority} --set connection_strategy=lazy -w flows & proxy=$!
                 trap 'kill $proxy' EXIT
                 tries=0
                 until [ -e mitmproxy/mitmproxy-ca-cert.pem ] && curl -s -o /dev/null http://127.0.0.1:8080/; do
                     tries=$((tries + 1)); [ $tries -lt 400 ]; sleep 0.05
                 done
                 {client} --proxy 127.0.0.1:8080 --trust mitmproxy/mitmproxy-ca-cert.pem",
                quoted(mitmdump.as_os_str())
            ),
        };
        let said = internet.run(&script, TIMEOUT)?;
        let rate = said.and_then(|said| {
            let rate: Option<f64> = said.trim().parse().ok();
            rate.ok_or_else(|| format!("the client said {said:?}"))
        });
        Ok(Figures::run(rate.map(|rate| Figures::of([(CONNECTIONS, rate)]))))
    })
}
