//! The server of a replay beside nginx, each on one processor, under the load of `h2load` on the other.

use std::fs;

use manyways_rig::launch::{DriveError, system};
use manyways_unit::{Size, Span};

use super::Replay;
use super::internet::{Internet, NAME, address};
use super::plan::Cell;
use crate::figures::{Figures, Record};
use crate::shell::Shell;

pub const REPLAY: &str = "replay";
pub const NGINX: &str = "nginx";
pub const REQUESTS: &str = "requests/s";

const TIMEOUT: Span = Span::from_secs(120);
/// Connections of HTTP/2, and streams of each.
const CONNECTIONS: usize = 10;
const STREAMS: usize = 10;
/// The page of one body.
const FILE: &str = "1";

pub fn measure(
    replay: &Replay,
    cell: &Cell,
    (size, seconds): (Size, u64),
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(&replay.tools)?;
    fs::create_dir_all(shell.path("root")).map_err(system("make a folder"))?;
    let bytes: Vec<u8> = (0..size.as_bytes()).map(|index| (index % 251) as u8).collect();
    shell.write(&format!("root/{FILE}"), bytes)?;
    let config = "access_log off; keepalive_requests 1000000000;";
    let internet = Internet::new(&shell, "wan:delay=1ms", &[Span::ZERO])?.with_nginx(config, 1)?;
    let script = format!("$RECORD -o a.zip -- curl -sS --http2 -o /dev/null https://{NAME}/{FILE}");
    internet.run(&script, TIMEOUT)?.map_err(DriveError::Server)?;
    let nginx = format!(
        "nginx -p nginx -e nginx/error.log -c {}",
        shell.path("nginx/nginx.conf").display()
    );
    cell.run_rounds(&cell.contenders, replay.tools.seed, record, progress, |_, contender| {
        let server = match *contender {
            NGINX => nginx.clone(),
            _ => "$BENCH replayed a.zip --folder state".to_owned(),
        };
        let said = shell.run(&script_of(&server, seconds), TIMEOUT)?;
        let rate = said.and_then(|said| {
            rate(&said).ok_or_else(|| format!("h2load said: {}", said.replace('\n', "; ")))
        });
        Ok(Figures::run(rate.map(|rate| Figures::of([(REQUESTS, rate)]))))
    })
}

/// The server alone on the first processor and in a network namespace of its own.
fn script_of(server: &str, seconds: u64) -> String {
    let address = address(0);
    let inner = format!(
        "ip link set lo up; ip address add {address}/32 dev lo
         taskset -c 0 {server} & server=$!
         trap 'kill $server' EXIT
         tries=0
         until curl -sk -o /dev/null --resolve {NAME}:443:{address} https://{NAME}/{FILE}; do
             tries=$((tries + 1)); [ $tries -lt 200 ]; sleep 0.05
         done
         taskset -c 1 h2load -D {seconds} --warm-up-time 1 -c {CONNECTIONS} -m {STREAMS} -t 1 \
             --connect-to={address}:443 https://{NAME}/{FILE}"
    );
    format!("unshare -n sh -euc {}", manyways_rig::programs::quoted(inner.as_ref()))
}

/// Requests a second, if none failed.
fn rate(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let rate = line.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok()?;
    let requests = said.lines().find(|line| line.starts_with("requests: "))?;
    let is_clean =
        [" 0 failed", " 0 errored", " 0 timeout"].iter().all(|part| requests.contains(part));
    let codes = said.lines().find(|line| line.starts_with("status codes: "))?;
    (is_clean && codes.contains(" 0 4xx, 0 5xx")).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_without_failures_has_a_rate() {
        let said = |failed: u32, codes: &str| {
            format!(
                "starting benchmark...\nfinished in 5.00s, 1234.50 req/s, 12.20MB/s\nrequests: 9 total, 9 started, 9 \
                 done, 9 succeeded, {failed} failed, 0 errored, 0 timeout\nstatus codes: 9 2xx, 0 3xx, {codes}\n"
            )
        };
        assert_eq!(rate(&said(0, "0 4xx, 0 5xx")), Some(1234.5));
        assert_eq!(rate(&said(1, "0 4xx, 0 5xx")), None);
        assert_eq!(rate(&said(0, "3 4xx, 0 5xx")), None);
        assert_eq!(rate(""), None);
    }
}
