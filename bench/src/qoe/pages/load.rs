//! A load of a page, with the results of its graph.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manyways_model::qoe::page::{Change, EdgeKind, Graph};
use manyways_net::browser;
use manyways_net::fetch::Location;
use manyways_net::probe::{self, Measurement, Network, Page, PageRun, WhatIf};
use manyways_sys::interface;
use manyways_unit::{Span, Time};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use super::known::Late;

/// From one attempt to reach the server to the next, and all of them.
const RETRY: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(20);
/// The processors have nothing to do if they were busy for less of a window, in all; and the longest wait
/// for it.
const WINDOW: Duration = Duration::from_millis(150);
const BUSY: Duration = Duration::from_millis(40);
const SETTLING: Duration = Duration::from_secs(5);
/// Pages of this experiment fetch nothing after they have loaded.
const QUIET: Span = Span::from_millis(200);

/// Load a page once over the only network, and print the results of its graph as one line of JSON.
#[derive(clap::Args)]
pub struct KnownPageLoadArgs {
    #[arg(long)]
    url: String,
    /// Predict a load under other conditions.
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<WhatIf>,
    /// Predict a load with a late object of a known page.
    #[arg(long, value_name = "INDEX=TIME")]
    late: Vec<Late>,
    /// Determine the slack of each object of a known page.
    #[arg(long)]
    slack: bool,
}

/// A load. Times are in seconds, and objects are those of a known page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Measured.
    pub page_load: f64,
    /// A replay without a change.
    pub replayed: f64,
    /// Predictions in the order of the options.
    pub what_if: Vec<f64>,
    pub late: Vec<f64>,
    pub edges: Vec<Edge>,
    /// By object, if it was asked for.
    pub slack: BTreeMap<usize, f64>,
}

/// An edge of a known page: its kind and two objects.
pub type Edge = (String, usize, usize);

/// The kind of an edge that known pages have.
pub fn kind_name(kind: EdgeKind) -> Option<&'static str> {
    match kind {
        EdgeKind::Found => Some("found"),
        EdgeKind::BlocksParser => Some("blocks parser"),
        EdgeKind::StyleBeforeScript => Some("style before script"),
        EdgeKind::AfterParsing | EdgeKind::Connection => None,
    }
}

pub async fn known_page_load(args: &KnownPageLoadArgs) -> io::Result<()> {
    let location = Location::parse(&args.url).map_err(io::Error::other)?;
    reach(&location).await?;
    settle().await?;
    let run = load(location).await?;
    let loaded = explained(&run, args).ok_or_else(|| io::Error::other("the page did not load"))?;
    println!("{}", serde_json::to_string(&loaded).map_err(io::Error::other)?);
    Ok(())
}

/// Waits until the server is there.
async fn reach(location: &Location) -> io::Result<()> {
    let origin = location.origin();
    let address = (origin.host.as_str(), origin.port);
    let attempts = async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
    };
    let reached = tokio::time::timeout(PATIENCE, attempts).await;
    reached.map_err(|_| io::Error::other("the server cannot be reached"))
}

/// Waits until the start of servers and the end of the browser before take no more time of processors.
async fn settle() -> io::Result<()> {
    let end = Instant::now() + SETTLING;
    let mut before = busy()?;
    loop {
        tokio::time::sleep(WINDOW).await;
        let now = busy()?;
        if now.saturating_sub(before) < BUSY || Instant::now() >= end {
            return Ok(());
        }
        before = now;
    }
}

/// Time that all processors have worked since the start of the machine.
fn busy() -> io::Result<Duration> {
    /// Unit of the file.
    const TICK: Duration = Duration::from_millis(10);
    let text = std::fs::read_to_string("/proc/stat")?;
    let first = text.lines().next().unwrap_or_default();
    let times: Vec<u32> =
        first.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // User, nice, system; then idle and waiting.
    Ok(TICK * times.iter().take(3).sum::<u32>())
}

async fn load(location: Location) -> io::Result<Arc<PageRun>> {
    let mut usable = interface::list().map_err(io::Error::other)?;
    usable.retain(|one| one.usable.is_ok());
    let only = usable.pop().ok_or_else(|| io::Error::other("there is no usable network"))?;
    let mut page = Page::new(location);
    page.quiet = QUIET;
    page.browser = Some(browser::find(None).map_err(io::Error::other)?);
    let (never, ignore) = (std::future::pending(), Arc::new(|_: &Measurement| {}));
    let report =
        probe::measure(&page, &Network::new(only), &probe::Options::default(), never, ignore).await;
    let report = report.map_err(io::Error::other)?;
    let run = match report.measurement {
        Some(Measurement::Page(page)) => page.runs.first().cloned(),
        _ => None,
    };
    match report.ending.message() {
        Some(message) => Err(io::Error::other(message)),
        None => run.ok_or_else(|| io::Error::other("the browser told no load")),
    }
}

/// `None` if the page did not reach its load event.
fn explained(run: &PageRun, args: &KnownPageLoadArgs) -> Option<Loaded> {
    let seconds = |time: Time| time.since(Time::ZERO).as_secs_f64();
    let graph = Graph::of(&run.load);
    let objects: Vec<Option<usize>> =
        run.load.requests.iter().map(|request| object(&request.url)).collect();
    let request = |index| objects.iter().position(|object| *object == Some(index));
    let replayed = |change: &Change| seconds(graph.replay(change).page_load);
    let late = args.late.iter().map(|late| {
        let mut change = Change::default();
        change.added_delays.push((request(late.index)?, late.delay));
        Some(replayed(&change))
    });
    let edges = graph.edges().iter().filter_map(|edge| {
        Some((kind_name(edge.kind)?.to_owned(), objects[edge.from]?, objects[edge.to]?))
    });
    let page_load = run.timings.load?;
    // More than that is as good as any time.
    let limit = page_load;
    let slack =
        objects.iter().enumerate().filter(|_| args.slack).filter_map(|(index, object)| {
            Some(((*object)?, graph.slack(index, limit).as_secs_f64()))
        });
    Some(Loaded {
        page_load: page_load.as_secs_f64(),
        replayed: replayed(&Change::default()),
        what_if: args.what_if.iter().map(|what_if| replayed(&what_if.change)).collect(),
        late: late.collect::<Option<_>>()?,
        edges: edges.collect(),
        slack: slack.collect(),
    })
}

/// The object of a known page with this URL.
fn object(url: &str) -> Option<usize> {
    let (_, path) = url.split_once("/graph/")?;
    path.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_known_by_their_path() {
        assert_eq!(object("http://origin.lab:8001/graph/101/17"), Some(17));
        assert_eq!(object("http://origin.lab:8001/favicon.ico"), None);
        assert_eq!(object("http://origin.lab:8001/graph/101"), None);
    }
}
