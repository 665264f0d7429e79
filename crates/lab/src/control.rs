//! Control socket of a running lab: one JSON object per line, over a socket in the lab's folder.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use manyways_link::schedule::{Due, Threshold};
use manyways_trace::link_text::{self, LinkError, link_index};
use manyways_trace::scenario::LinkSpec;
use manyways_trace::signal::Signal;
use manyways_unit::{Span, Time};
use serde::{Deserialize, Serialize};

use super::Lab;
use super::event::LabEvent;
use super::far_host::FarHost;
use super::radio::RadioStats;
use super::relay::{Action, LaneStats, Relay, Snapshot, WaitingChange};
use super::signal::{SignalSender, SignalState};
use super::timeline::EventSender;

/// Maximum size of a request in bytes.
const MAX_REQUEST: u64 = 64 * 1024;

/// Name of the socket in a lab's folder.
pub const SOCKET: &str = "control";

/// A request to a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Change a link.
    Set {
        /// Name of the link.
        link: String,
        /// `key=value` words; files by absolute path.
        settings: Vec<String>,
        /// A condition like `wifi.down_bytes >= 300KB`, which counts from now; `None` for a change
        /// at once.
        #[serde(default)]
        when: Option<String>,
        /// Time from now, or from the moment at which the condition holds, like `2s`.
        #[serde(default)]
        after: Option<String>,
        /// A condition that undoes the change, or prevents it if it holds first.
        #[serde(default)]
        until: Option<String>,
        /// Whether changes of this link that have not happened are removed first.
        #[serde(default)]
        cancel: bool,
    },
    /// Returns the counters of every link.
    Status,
}

/// The response to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// The change has been made or scheduled.
    Done {
        /// Number of scheduled changes that were removed; `None` if that was not asked for.
        #[serde(default)]
        cancelled: Option<usize>,
    },
    /// The request failed.
    Refused {
        /// One sentence.
        message: String,
        /// Advice for the user; `None` if there is none.
        hint: Option<String>,
    },
    /// The counters.
    Status {
        /// Seconds since the lab's start.
        seconds: f64,
        /// One entry per link.
        links: Vec<LinkStatus>,
        /// In the order in which they were specified.
        #[serde(default)]
        far_hosts: Vec<FarHostStatus>,
        /// Changes that wait to be made or undone.
        #[serde(default)]
        waiting: Vec<WaitingStatus>,
    },
}

/// The counters of one link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Name of the link.
    pub name: String,
    /// `up`, `paused`, `silent` or `no-carrier`.
    #[serde(default)]
    pub state: String,
    /// Towards the device.
    pub down: LaneStatus,
    /// From the device.
    pub up: LaneStatus,
    /// Longest time that a packet was released after it was due, since the start of the lab or of
    /// the workload.
    #[serde(default)]
    pub max_lateness_seconds: f64,
    /// State of the radio; `None` if the link has no radio.
    #[serde(default)]
    pub radio: Option<RadioStatus>,
    /// The signal now; `None` if the link has none.
    #[serde(default)]
    pub signal: Option<SignalStatus>,
}

/// A far host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FarHostStatus {
    pub address: IpAddr,
    /// Round-trip time in addition to the link's.
    pub extra_rtt_seconds: f64,
    pub names: Vec<String>,
}

impl From<&FarHost> for FarHostStatus {
    fn from(FarHost { address, extra_rtt, names }: &FarHost) -> Self {
        Self { address: *address, extra_rtt_seconds: extra_rtt.as_secs_f64(), names: names.clone() }
    }
}

/// A change that waits to be made or undone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitingStatus {
    /// Name of the link that changes.
    pub link: String,
    /// `key=value` words.
    pub set: Vec<String>,
    /// Whether it is made, and waits to be undone.
    pub made: bool,
    /// Seconds until then; `None` if it waits for a counter.
    pub in_seconds: Option<f64>,
    /// The counter, like `wifi.down_bytes`; `None` if it waits for a time.
    pub counter: Option<String>,
    /// Increase of the counter until then.
    pub remaining: Option<u64>,
}

impl WaitingStatus {
    /// Describes a change; `links` are those of the lab.
    pub fn new(at: Time, waiting: &WaitingChange, links: &[LinkSpec]) -> Self {
        let (in_seconds, counter, remaining) = match waiting.due {
            Due::At(time) => (Some(time.since(at).as_secs_f64()), None, None),
            Due::When(Threshold { link, counter, least }) => {
                (None, Some(format!("{}.{}", links[link].name, counter.name())), Some(least))
            }
        };
        Self {
            link: links[waiting.link].name.clone(),
            set: waiting.changes.iter().map(ToString::to_string).collect(),
            made: waiting.is_made,
            in_seconds,
            counter,
            remaining,
        }
    }
}

/// State and counters of a link's radio.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RadioStatus {
    /// Name of the profile, as the user wrote it.
    pub profile: String,
    /// Current state, as named in the profile.
    pub state: String,
    /// Whether packets wait for a promotion.
    pub waking: bool,
    /// Promotions to the first state.
    pub promotions: u64,
    /// Promotions by the state before; all states except the first one.
    pub promotions_from: Vec<PromotionsFrom>,
    /// Number of `rrc=dormant` requests that sent the radio to sleep.
    pub sleeps: u64,
}

/// Promotions of a radio from one state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PromotionsFrom {
    /// Name of the state in the profile.
    pub state: String,
    pub count: u64,
}

impl RadioStatus {
    fn new(profile: &str, stats: RadioStats) -> Self {
        Self {
            profile: profile.to_owned(),
            promotions: stats.total_promotions(),
            state: stats.state,
            waking: stats.is_promoting,
            promotions_from: stats
                .promotions
                .into_iter()
                .map(|(state, count)| PromotionsFrom { state, count })
                .collect(),
            sleeps: stats.dormancies,
        }
    }
}

/// The radio signal of a link now; an unknown value is `None`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SignalStatus {
    /// The file, as the user wrote it.
    pub source: String,
    /// Time since the start of the current repetition.
    pub position_seconds: f64,
    /// In dBm.
    pub rssi: Option<f64>,
    /// In dBm.
    pub rsrp: Option<f64>,
    /// In dB.
    pub rsrq: Option<f64>,
    /// In dB.
    pub snr: Option<f64>,
    /// From 0 to 15.
    pub cqi: Option<f64>,
}

impl From<SignalState> for SignalStatus {
    fn from(state: SignalState) -> Self {
        let value = |signal| state.sample.get(signal);
        Self {
            position_seconds: state.position.as_secs_f64(),
            rssi: value(Signal::Rssi),
            rsrp: value(Signal::Rsrp),
            rsrq: value(Signal::Rsrq),
            snr: value(Signal::Snr),
            cqi: value(Signal::Cqi),
            source: state.source,
        }
    }
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LaneStatus {
    /// IP bytes delivered.
    pub delivered_bytes: u64,
    /// Packets delivered.
    pub delivered_packets: u64,
    /// Packets dropped, for all causes.
    pub dropped_packets: u64,
    /// IP bytes in the queue.
    pub queue_bytes: u64,
}

impl From<LaneStats> for LaneStatus {
    fn from(stats: LaneStats) -> Self {
        Self {
            delivered_bytes: stats.delivered.size.as_bytes(),
            delivered_packets: stats.delivered.packets,
            dropped_packets: stats.dropped_packets(),
            queue_bytes: stats.backlog.size.as_bytes(),
        }
    }
}

/// Sends a request to a running lab.
pub fn ask(folder: &Path, request: &Request) -> io::Result<Response> {
    let mut stream = UnixStream::connect(socket(folder))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Answers requests until dropped.
pub struct Control {
    folder: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts the control socket of a lab; `marks` receives the changes.
    pub fn start(lab: &Lab, marks: Option<EventSender>) -> io::Result<Self> {
        let folder = lab.folder();
        let listener = UnixListener::bind(socket(&folder))?;
        let (links, far_hosts) = (lab.links().to_vec(), lab.far_hosts().to_vec());
        let (relay, signals) = (Arc::clone(lab.relay()), lab.signals());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("lab-control".into()).spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = stream.and_then(|stream| {
                    serve(&stream, &links, &far_hosts, &relay, &signals, marks.as_ref())
                }) {
                    tracing::debug!(%error, "a request to the lab failed");
                }
            }
        })?;
        Ok(Self { folder, stop, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread from `accept`.
        let woken = UnixStream::connect(socket(&self.folder)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

fn serve(
    stream: &UnixStream,
    links: &[LinkSpec],
    far_hosts: &[FarHost],
    relay: &Relay,
    signals: &SignalSender,
    marks: Option<&EventSender>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => handle_request(request, links, far_hosts, relay, signals, marks)?,
        Err(error) => Response::Refused { message: format!("no request: {error}"), hint: None },
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    (&*stream).write_all(&text)
}

fn handle_request(
    request: Request,
    known: &[LinkSpec],
    far_hosts: &[FarHost],
    relay: &Relay,
    signals: &SignalSender,
    marks: Option<&EventSender>,
) -> io::Result<Response> {
    Ok(match request {
        Request::Set { link, settings, when, after, until, cancel } => {
            let words = settings.iter().map(String::as_str);
            let schedule = [when, after, until];
            if settings.is_empty() && schedule.iter().any(Option::is_some) {
                return Ok(Response::Refused {
                    message: format!("nothing is to be changed on {link}"),
                    hint: Some("write what, like state=paused or down=1mbit".to_owned()),
                });
            }
            match action(known, &link, words, schedule.each_ref().map(Option::as_deref)) {
                Ok(action) => {
                    let cancelled = cancel.then(|| relay.cancel(action.link)).transpose()?;
                    if action.changes.is_empty() {
                        return Ok(Response::Done { cancelled });
                    }
                    let is_now = action.when.is_none()
                        && action.until.is_none()
                        && action.after == Span::ZERO;
                    if is_now {
                        relay.change(action.link, action.changes);
                    } else {
                        relay.schedule(action);
                    }
                    // Commands run in order: after the snapshot, the change has been made.
                    relay.snapshot()?;
                    if let Err(error) = signals.flush() {
                        return Ok(Response::Refused {
                            message: format!("the signal of {link} cannot be published: {error}"),
                            hint: Some(
                                "the folder of the lab needs room for a copy of it".to_owned(),
                            ),
                        });
                    }
                    if let Some(marks) = marks.filter(|_| is_now) {
                        marks.record(LabEvent::LinkChange { link, set: settings });
                    }
                    Response::Done { cancelled }
                }
                Err((message, hint)) => Response::Refused { message, hint },
            }
        }
        Request::Status => {
            let Snapshot { at, links, waiting, .. } = relay.snapshot()?;
            let waiting = waiting.iter().map(|change| WaitingStatus::new(at, change, known));
            Response::Status {
                seconds: at.as_secs_f64(),
                far_hosts: far_hosts.iter().map(FarHostStatus::from).collect(),
                waiting: waiting.collect(),
                links: known
                    .iter()
                    .zip(links)
                    .map(|(spec, link)| LinkStatus {
                        name: spec.name.clone(),
                        state: link.state.to_string(),
                        radio: spec
                            .radio
                            .as_ref()
                            .zip(link.radio)
                            .map(|(radio, stats)| RadioStatus::new(&radio.source, stats)),
                        signal: link.signal.map(SignalStatus::from),
                        down: link.down.into(),
                        up: link.up.into(),
                        max_lateness_seconds: link.max_lateness.as_secs_f64(),
                    })
                    .collect(),
            }
        }
    })
}

/// Parses a change of a link, now or later, with the texts of `--when`, `--after` and `--until`; the
/// error is a message and a hint.
fn action<'t>(
    known: &[LinkSpec],
    link: &str,
    settings: impl Iterator<Item = &'t str>,
    [when, after, until]: [Option<&str>; 3],
) -> Result<Action, (String, Option<String>)> {
    let refuse = |error: LinkError| (error.to_string(), error.hint());
    let index = link_index(link, known).map_err(refuse)?;
    let mut read = |file: &str| std::fs::read(file).map_err(|error| error.to_string());
    let changes = link_text::changes(settings, &mut read).map_err(refuse)?;
    for change in &changes {
        known[index].check_change(change).map_err(refuse)?;
        if until.is_some() {
            known[index].check_inverse(change).map_err(refuse)?;
        }
    }
    let threshold = |option: &str, text: Option<&str>| -> Result<_, (String, Option<String>)> {
        let Some(text) = text else { return Ok(None) };
        let condition =
            link_text::condition(text).map_err(|error| (format!("{option}: {error}"), None))?;
        let link = condition.index(known).map_err(refuse)?;
        Ok(Some(Threshold { link, counter: condition.counter, least: condition.least }))
    };
    let (when, until) = (threshold("--when", when)?, threshold("--until", until)?);
    let after = match after {
        None => Span::ZERO,
        Some(text) => text.parse().map_err(|error| (format!("--after: {error}"), None))?,
    };
    Ok(Action { when, after, until, link: index, changes })
}
