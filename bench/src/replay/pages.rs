//! Page loads of a browser: live, and replayed by manyways, by mitmproxy and as replays without addresses
//! and think times do.

mod body;
mod live;
mod mitmproxy;
pub mod origins;
mod site;

use std::path::PathBuf;

use manyways_rig::launch::{DriveError, system};
use manyways_unit::Span;

use self::site::Site;
use super::Replay;
use super::cells::Network;
use super::mitmproxy::MITMPROXY;
use super::plan::Cell;
use super::recorder::RECORD;
use crate::figures::{Figures, Record};
use crate::shell::Shell;
use crate::traffic::Measurement;

pub const LIVE: &str = "live";
pub const REPLAY: &str = "replay";
pub const ONE_SERVER: &str = "replay, one server, no think times";
/// In seconds, until the end of the load event.
pub const LOADED: &str = "page load, s";
pub const MISSED: &str = "requests missed";

/// Time limit of a page load with the start of everything.
const TIMEOUT: Span = Span::from_secs(60);
/// The link over which the origins are recorded.
const RECORDED_OVER: &str = "wan:delay=1ms";
/// Home of a browser that trusts the live origins.
const HOME: &str = "home";

/// A page over a network.
#[derive(Clone, Debug)]
pub struct PageLoads {
    /// The HAR file without its extension.
    pub site: String,
    pub network: Network,
    pub think_seed: u64,
}

/// The live page, and the folder in which everything is.
struct Live<'a> {
    shell: Shell<'a>,
    site: Site,
    /// Options of `lab shell`.
    internet: String,
    /// The command that loads the page.
    visit: String,
}

impl<'a> Live<'a> {
    fn new(replay: &'a Replay, loads: &PageLoads) -> Result<Self, DriveError> {
        let har = std::path::absolute(replay.hars.join(format!("{}.har", loads.site)));
        let har: PathBuf = har.map_err(system("find the HAR file"))?;
        let site = origins::read(&har, loads.think_seed).map_err(DriveError::Server)?;
        let shell = Shell::new(&replay.tools)?;
        let internet = live::options(&shell, &site, &har, loads.think_seed)?;
        let prepared = shell.run(&home(HOME, "authority.pem"), TIMEOUT)?;
        prepared.map_err(DriveError::Server)?;
        let visit = visit(&site);
        Ok(Self { shell, site, internet, visit })
    }

    /// Loads the page over a link, with these servers.
    fn visited(&self, link: &str, servers: &str, home: &str) -> String {
        let visit = &self.visit;
        format!("HOME=\"$PWD/{home}\" \"$MANYWAYS\" lab shell --link {link}{servers} -- {visit}")
    }

    /// Records a load of the page over a link.
    fn recorded(&self, link: &str, archive: &str) -> String {
        let Self { internet, visit, .. } = self;
        format!(
            "\"$MANYWAYS\" lab shell --link {link}{internet} -- \
             \"$MANYWAYS\" record -o {archive} --internet --origin-ca authority.pem -- {visit}"
        )
    }
}

/// Page loads with and without the recorder.
pub fn recorded(
    replay: &Replay,
    cell: &Cell,
    loads: &PageLoads,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let live = Live::new(replay, loads)?;
    let link = loads.network.link.option(&loads.network.name);
    cell.run_rounds(&cell.contenders, replay.tools.seed, record, progress, |round, contender| {
        let script = match *contender {
            RECORD => live.recorded(&link, &format!("{round}.zip")),
            _ => live.visited(&link, &live.internet, HOME),
        };
        let outcome = live.shell.run(&script, TIMEOUT)?;
        Ok(Figures::run(outcome.and_then(|out| figures(&out))))
    })
}

pub fn measure(
    replay: &Replay,
    cell: &Cell,
    loads: &PageLoads,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let live = Live::new(replay, loads)?;
    let Live { shell, site, visit, .. } = &live;
    shell.run(&live.recorded(RECORDED_OVER, "site.zip"), TIMEOUT)?.map_err(DriveError::Server)?;
    let mut able = cell.contenders.clone();
    let mitmproxy = match mitmproxy::prepare(shell, site)? {
        Ok(options) => options,
        Err(reason) => {
            record.skipped.push(format!("{MITMPROXY}: {reason}"));
            able.retain(|contender| *contender != MITMPROXY);
            String::new()
        }
    };
    let link = loads.network.link.option(&loads.network.name);
    cell.run_rounds(&able, replay.tools.seed, record, progress, |_, contender| {
        let replayed = |options: &str| {
            format!(
                "\"$MANYWAYS\" replay site.zip --link {link} --json report.json{options} -- {visit}"
            )
        };
        let script = match *contender {
            MITMPROXY => live.visited(&link, &mitmproxy, mitmproxy::HOME),
            REPLAY => replayed(""),
            ONE_SERVER => replayed(" --one-server --think zero"),
            _ => live.visited(&link, &live.internet, HOME),
        };
        let outcome = shell.run(&script, TIMEOUT)?.and_then(|out| figures(&out));
        let outcome = outcome.and_then(|figures| match *contender {
            REPLAY | ONE_SERVER => with_misses(shell, figures),
            _ => Ok(figures),
        });
        Ok(Figures::run(outcome))
    })
}

/// The command that loads a page.
fn visit(site: &Site) -> String {
    let (url, bytes) = (site.url(), site.bytes());
    format!("\"$BENCH\" visit --url '{url}' --bytes {bytes} --browser chromium --folder .")
}

/// A script that makes a home in which Chromium trusts an authority.
fn home(name: &str, authority: &str) -> String {
    let database = format!("{name}/.pki/nssdb");
    format!(
        "mkdir -p {database}\ncertutil -N --empty-password -d sql:{database}\n\
         certutil -A -t C,, -n authority -i {authority} -d sql:{database}"
    )
}

/// The figures in what a page load printed.
fn figures(out: &str) -> Result<Figures, String> {
    let read = |line| serde_json::from_str::<Measurement>(line).ok();
    let measured = out.lines().find_map(read).ok_or("the browser told no load")?;
    Ok(Figures::of([(LOADED, measured.value)]))
}

/// Adds the number of missed requests in the report of a replay.
fn with_misses(shell: &Shell<'_>, mut figures: Figures) -> Result<Figures, String> {
    let report = std::fs::read(shell.path("report.json")).map_err(|error| error.to_string())?;
    let report: serde_json::Value =
        serde_json::from_slice(&report).map_err(|error| error.to_string())?;
    let missed = report.get("missed").and_then(serde_json::Value::as_f64);
    let missed = missed.ok_or("the report has no number of misses")?;
    figures.quantities.insert(MISSED.to_owned(), missed);
    Ok(figures)
}
