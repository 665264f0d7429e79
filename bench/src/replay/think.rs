//! Think times: an origin that answers after a scripted time, live and replayed.

use manyways_rig::cell::Run;
use manyways_rig::launch::DriveError;
use manyways_rig::programs::quoted;
use manyways_unit::Span;
use manyways_unit::quantile::interpolated;

use super::Replay;
use super::cells::Think;
use super::internet::{Internet, address, name};
use super::plan::Cell;
use crate::figures::{Figures, Record};
use crate::shell::Shell;

pub const LIVE: &str = "live";
pub const REPLAY: &str = "replay";
/// Of the absolute errors.
pub const MEDIAN: &str = "median error, ms";
pub const MOST: &str = "95 % of the errors, ms";

/// Round-trip time that all servers have in common.
const SHORTEST: Span = Span::from_millis(10);
const TIMEOUT: Span = Span::from_secs(120);

/// One run has both: the replay is one of the live recording.
pub fn measure(
    replay: &Replay,
    cell: &Cell,
    think: &Think,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let mut replayed = None;
    cell.run_rounds(&[LIVE], replay.tools.seed, record, progress, |_, _| {
        let [live, again] = both(replay, think)?;
        replayed = Some(again);
        Ok(live)
    })?;
    let again = replayed.map(|run| Run { contender: REPLAY.to_owned(), ..run });
    record.runs.extend(again);
    Ok(())
}

fn both(replay: &Replay, think: &Think) -> Result<[Run<Figures>; 2], DriveError> {
    let parse = |rtt: &String| {
        let rtt: Option<Span> = rtt.parse().ok();
        rtt.ok_or_else(|| DriveError::Server(format!("{rtt:?} is not a time")))
    };
    let rtts: Vec<Span> = think.rtts.iter().map(parse).collect::<Result<_, _>>()?;
    let extra: Vec<Span> = rtts.iter().map(|rtt| rtt.saturating_sub(SHORTEST)).collect();
    let shell = Shell::new(&replay.tools)?;
    let internet = Internet::new(&shell, "wan:delay=5ms", &extra)?;
    let listen: String =
        (0..rtts.len()).map(|index| format!(" --listen {}:443", address(index))).collect();
    let [certificate, key] = [internet.authority.certificate(), internet.authority.key()];
    let [certificate, key] = [quoted(certificate.as_os_str()), quoted(key.as_os_str())];
    let origin = format!("exec $BENCH origin{listen} --certificate {certificate} --key {key}");
    let internet = internet.with_server(origin);
    // All at the same time, each on a connection of its own: they wait most of the time.
    let mut clients = String::new();
    for (server, _) in rtts.iter().enumerate() {
        for millis in &think.milliseconds {
            let url = format!("https://{}/{millis}/[1-{}]", name(server), think.requests);
            let print = r"%{time_pretransfer} %{time_starttransfer}\n";
            clients += &format!(
                "curl -sS --http1.1 -o /dev/null -w '{print}' '{url}' >$1/{server}-{millis} &\n"
            );
        }
    }
    shell.write("clients", clients + "wait\n")?;
    let live = internet.run("mkdir live; $RECORD -o a.zip -- sh clients live", TIMEOUT)?;
    let live = live.and_then(|_| errors(&shell, LIVE, &rtts, think));
    let script = "mkdir replay; $MANYWAYS replay a.zip -- sh clients replay";
    let again = shell.run(script, TIMEOUT)?;
    let again = again.and_then(|_| errors(&shell, REPLAY, &rtts, think));
    Ok([live, again].map(|errors| Figures::run(errors.map(figures))))
}

/// Absolute errors in milliseconds, of the time from a request to the first byte of its response.
fn errors(shell: &Shell<'_>, run: &str, rtts: &[Span], think: &Think) -> Result<Vec<f64>, String> {
    let mut errors = Vec::new();
    for (server, rtt) in rtts.iter().enumerate() {
        for millis in &think.milliseconds {
            let file = shell.path(run).join(format!("{server}-{millis}"));
            let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
            let right = *millis as f64 + rtt.as_secs_f64() * 1e3;
            let before = errors.len();
            errors.extend(text.lines().filter_map(wait).map(|wait| (wait - right).abs()));
            let count = errors.len() - before;
            if count != think.requests {
                return Err(format!("{count} of {} requests of {millis} ms", think.requests));
            }
        }
    }
    Ok(errors)
}

/// Milliseconds between the two times of curl: when it begins to send, and the first byte.
fn wait(line: &str) -> Option<f64> {
    let (begun, answered) = line.split_once(' ')?;
    let (begun, answered): (f64, f64) = (begun.parse().ok()?, answered.parse().ok()?);
    Some((answered - begun) * 1e3)
}

fn figures(mut errors: Vec<f64>) -> Figures {
    errors.sort_by(f64::total_cmp);
    let count = errors.len() as f64;
    let of = |share: f64| interpolated(&errors, share).unwrap_or(f64::NAN);
    Figures::of([("requests", count), (MEDIAN, of(0.5)), (MOST, of(0.95))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_with_the_request() {
        assert!(wait("0.100000 0.350000").is_some_and(|wait| (wait - 250.0).abs() < 1e-6));
        assert_eq!(wait("curl: (7)"), None);
    }
}
