//! The recorder beside mitmproxy: new connections over HTTPS.

use std::fs;

use manyways_rig::launch::{DriveError, system};
use manyways_unit::Span;

use super::Replay;
use super::internet::{Internet, NAME, address};
use super::mitmproxy::{self, MITMPROXY, Mitmproxy};
use super::plan::Cell;
use crate::figures::{Figures, Record};
use crate::shell::Shell;

pub const RECORD: &str = "record";
/// Neither of them.
pub const DIRECT: &str = "direct";
pub const CONNECTIONS: &str = "connections/s";
/// Of the recorder or of mitmproxy.
pub const OF_PROCESSOR: &str = "connections per second of processor time";

const TIMEOUT: Span = Span::from_secs(120);
/// Connections at a time.
const JOBS: usize = 16;
/// Clock ticks in a second, as in `/proc/PID/stat`.
const TICKS: f64 = 100.0;

pub fn connections(
    replay: &Replay,
    cell: &Cell,
    seconds: u64,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(&replay.tools)?;
    fs::create_dir_all(shell.path("root")).map_err(system("make a folder"))?;
    shell.write("root/1", "yes\n")?;
    let link = "wan:delay=100us";
    let internet = Internet::new(&shell, link, &[Span::ZERO])?.with_nginx("access_log off;", 1)?;
    let mut able = cell.contenders.clone();
    let mitmproxy = match Mitmproxy::install() {
        Ok(mitmproxy) => {
            shell.run(&mitmproxy.make_authority(), TIMEOUT)?.map_err(DriveError::Server)?;
            let authority = internet.authority.authority();
            let verify = format!("ssl_verify_upstream_trusted_ca={}", authority.display());
            mitmproxy.option(&["connection_strategy=lazy", &verify], "-w flows")
        }
        Err(reason) => {
            record.skipped.push(format!("{MITMPROXY}: {reason}"));
            able.retain(|contender| *contender != MITMPROXY);
            String::new()
        }
    };
    let server = address(0);
    let client = |trusted: &str| {
        format!(
            "tries=0
             until curl -s --cacert {trusted} -o /dev/null https://{NAME}/1; do
                 tries=$((tries + 1)); [ $tries -lt 400 ]; sleep 0.05
             done
             ticks() {{ awk '{{ all += $14 + $15 }} END {{ print all + 0 }}' /dev/null $(
                 pidof -x mitmdump | sed 's|.*|/proc/&/stat|'); }}
             before=$(ticks)
             $BENCH connect --name {NAME} --server {server}:443 --length {seconds}s --jobs {JOBS} --trust {trusted}
             echo $(($(ticks) - before))"
        )
    };
    cell.run_rounds(&able, replay.tools.seed, record, progress, |_, contender| {
        let trusted = internet.authority.authority();
        let printed = match *contender {
            RECORD => internet.record(&client("$SSL_CERT_FILE"), TIMEOUT)?,
            DIRECT => internet.run(&client(&trusted.display().to_string()), TIMEOUT)?,
            _ => internet.run_with(&mitmproxy, &client(mitmproxy::AUTHORITY), TIMEOUT)?,
        };
        let figures = printed.and_then(|printed| {
            figures(&printed).ok_or_else(|| format!("the client printed {printed:?}"))
        });
        Ok(Figures::run(figures))
    })
}

/// Reads connections and seconds, and from the last line ticks of the processor.
fn figures(printed: &str) -> Option<Figures> {
    let (count, seconds) = printed.lines().find_map(|line| line.split_once(' '))?;
    let (count, seconds): (f64, f64) = (count.parse().ok()?, seconds.parse().ok()?);
    let ticks: f64 = printed.lines().last()?.parse().ok()?;
    let of_processor = (ticks > 0.0).then_some((OF_PROCESSOR, count / (ticks / TICKS)));
    Some(Figures::of([(CONNECTIONS, count / seconds)].into_iter().chain(of_processor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_the_processor_time() {
        let read = figures("3000 3.0\n0\n150\n").unwrap().quantities;
        assert_eq!((read[CONNECTIONS], read[OF_PROCESSOR]), (1_000.0, 2_000.0));
        assert_eq!(figures("3000 3.0\n0").unwrap().quantities.len(), 1);
        assert_eq!(figures("error"), None);
    }
}
