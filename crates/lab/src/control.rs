//! Talking to a running lab: one JSON object a line, over a socket in the lab's folder.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use manyways_trace::link_text;
use manyways_trace::scenario::{Change, LinkSpec};
use serde::{Deserialize, Serialize};

use super::Lab;
use super::event::LabEvent;
use super::radio::RadioStats;
use super::relay::{LaneStats, Relay, Snapshot};
use super::timeline::Marks;

/// The longest request, in bytes.
const MAX_REQUEST: u64 = 64 * 1024;

/// The socket's name in a lab's folder.
pub const SOCKET: &str = "control";

/// What can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Change a link.
    Set {
        /// Its name.
        link: String,
        /// `key=value` words; files by absolute path.
        settings: Vec<String>,
    },
    /// Counters of every link.
    Status,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// It is not, and why.
    Refused {
        /// One sentence.
        sentence: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The counters.
    Status {
        /// Seconds since the lab's start.
        seconds: f64,
        /// By link.
        links: Vec<LinkStatus>,
    },
}

/// The counters of one link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Towards the device.
    pub down: LaneStatus,
    /// From the device.
    pub up: LaneStatus,
    /// What its radio does; none where it has no radio.
    #[serde(default)]
    pub radio: Option<RadioStatus>,
}

/// What the radio of a link does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RadioStatus {
    /// Its profile, as it was named.
    pub profile: String,
    /// The state that it is in, as the profile calls it.
    pub state: String,
    /// Whether packets wait until it is awake.
    pub waking: bool,
    /// How often packets brought it back to its first state.
    pub promotions: u64,
    /// The same by the state in which they found it: all but the first one.
    pub promotions_from: Vec<PromotionsFrom>,
    /// How often `rrc=dormant` sent it to sleep.
    pub sleeps: u64,
}

/// How often packets found a radio in a state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PromotionsFrom {
    /// As the profile calls it.
    pub state: String,
    /// How often.
    pub count: u64,
}

impl RadioStatus {
    fn new(profile: &str, stats: RadioStats) -> Self {
        Self {
            profile: profile.to_owned(),
            promotions: stats.all_promotions(),
            state: stats.state,
            waking: stats.is_waking,
            promotions_from: stats
                .promotions
                .into_iter()
                .map(|(state, count)| PromotionsFrom { state, count })
                .collect(),
            sleeps: stats.sleeps,
        }
    }
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LaneStatus {
    /// IP bytes that came out.
    pub delivered_bytes: u64,
    /// Packets that came out.
    pub delivered_packets: u64,
    /// Packets that were dropped, for whatever cause.
    pub dropped_packets: u64,
    /// IP bytes that wait.
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

/// Asks a running lab.
pub fn ask(folder: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket(folder))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Answers requests until it is dropped.
pub struct Control {
    folder: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts answering for a lab; `marks` hears of changes.
    pub fn start(lab: &Lab, marks: Option<Marks>) -> io::Result<Self> {
        let folder = lab.folder();
        let listener = UnixListener::bind(socket(&folder))?;
        let links: Vec<_> = lab.links().iter().map(Named::of).collect();
        let relay = Arc::clone(lab.relay());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("lab-control".into()).spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) =
                    stream.and_then(|stream| serve(&stream, &links, &relay, marks.as_ref()))
                {
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
        // Wakes the thread out of `accept`.
        let woken = UnixStream::connect(socket(&self.folder)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// A link's name, and that of its radio's profile.
struct Named {
    link: String,
    radio: Option<String>,
}

impl Named {
    fn of(link: &LinkSpec) -> Self {
        let radio = link.radio.as_ref().map(|radio| radio.source.clone());
        Self { link: link.name.clone(), radio }
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

fn serve(
    stream: &UnixStream,
    links: &[Named],
    relay: &Relay,
    marks: Option<&Marks>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request, links, relay, marks)?,
        Err(error) => Answer::Refused { sentence: format!("no request: {error}"), hint: None },
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    (&*stream).write_all(&text)
}

fn answer(
    request: Request,
    known: &[Named],
    relay: &Relay,
    marks: Option<&Marks>,
) -> io::Result<Answer> {
    Ok(match request {
        Request::Set { link, settings } => {
            let Some(index) = known.iter().position(|one| one.link == link) else {
                let names: Vec<&str> = known.iter().map(|one| one.link.as_str()).collect();
                return Ok(Answer::Refused {
                    sentence: format!("there is no link `{link}`"),
                    hint: Some(format!("the links are {}", names.join(", "))),
                });
            };
            let mut read = |file: &str| std::fs::read(file).map_err(|error| error.to_string());
            match link_text::changes(settings.iter().map(String::as_str), &mut read) {
                Ok(changes)
                    if known[index].radio.is_none() && changes.contains(&Change::Dormant) =>
                {
                    Answer::Refused {
                        sentence: format!("link `{link}` has no radio"),
                        hint: Some(
                            "a lab gives it one when it starts, with rrc=PROFILE".to_owned(),
                        ),
                    }
                }
                Ok(changes) => {
                    relay.change(index, changes);
                    // Commands are taken in order: once this is answered, the change is made.
                    relay.snapshot()?;
                    if let Some(marks) = marks {
                        marks.mark(LabEvent::LinkChange { link, set: settings });
                    }
                    Answer::Done
                }
                Err(error) => Answer::Refused { sentence: error.to_string(), hint: error.hint() },
            }
        }
        Request::Status => {
            let Snapshot { at, links, .. } = relay.snapshot()?;
            Answer::Status {
                seconds: at.as_secs_f64(),
                links: known
                    .iter()
                    .zip(links)
                    .map(|(named, link)| LinkStatus {
                        name: named.link.clone(),
                        radio: named
                            .radio
                            .as_deref()
                            .zip(link.radio)
                            .map(|(profile, stats)| RadioStatus::new(profile, stats)),
                        down: link.down.into(),
                        up: link.up.into(),
                    })
                    .collect(),
            }
        }
    })
}
