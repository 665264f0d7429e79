//! Sources of indicators: reports of radios, own traffic, a file or a command about networks.
//!
//! [`Sources`] polls each source in a task, and returns new values as [`Update`]s. A value that a
//! source no longer knows, or that it cannot have measured, is withdrawn, and [`Sources::status`]
//! explains why there is none. A source that fails is tried again, after growing waits if that costs
//! more than a system call; no source ends the others.

mod backoff;
mod command;
mod counters;
mod lab;
mod ledger;
mod modem;
mod own;
mod playback;
mod range;
mod ticker;
mod wifi;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyways_trace::signal::SignalTrace;
use manyways_unit::{Span, Time};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub use self::command::lines::{Line, Lines, MAX_LINE, WrongLine, WrongLineReason};
pub use self::lab::lab_signal;
pub use self::ledger::{LastValue, SourceId, SourceKind, SourceStatus, Update};
use self::ledger::{Ledger, Reading, Scope};
pub use self::own::OwnTraffic;
use self::playback::Playback;
pub use self::range::{Implausible, check};
use self::ticker::Ticker;

/// Shorter intervals would only cost energy.
const MIN_INTERVAL: Span = Span::from_millis(10);
/// For the last calls to ModemManager.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The sources of a host's networks.
///
/// If it is dropped, all sources end and commands are killed as soon as the runtime runs its tasks,
/// or ends.
#[derive(Debug)]
pub struct Sources {
    shared: Arc<Shared>,
    /// Its end ends a task.
    tasks: BTreeMap<SourceId, (watch::Sender<Span>, Option<JoinHandle<()>>)>,
    interval: Span,
    next: u64,
}

#[derive(Debug)]
struct Shared {
    origin: Instant,
    ledger: Mutex<Ledger>,
    /// Notified after each change of the ledger.
    changed: Notify,
}

/// The bus on which ModemManager is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Bus {
    #[default]
    System,
    /// Address of another bus, such as `unix:path=/run/bus`.
    Address(String),
}

impl Sources {
    /// Creates an empty set. Times are those since `origin`. Sources are polled in an interval, which
    /// [`Sources::set_interval`] changes.
    pub fn start(origin: Instant, interval: Span) -> Self {
        let (ledger, changed) = (Mutex::default(), Notify::new());
        Self {
            shared: Arc::new(Shared { origin, ledger, changed }),
            tasks: BTreeMap::new(),
            interval: interval.max(MIN_INTERVAL),
            next: 0,
        }
    }

    /// Changes the interval of polls. A shorter one applies to the current wait too.
    pub fn set_interval(&mut self, interval: Span) {
        self.interval = interval.max(MIN_INTERVAL);
        for (sender, _) in self.tasks.values() {
            sender.send_replace(self.interval);
        }
    }

    /// Signal strength and physical rate of a Wi-Fi client, from nl80211.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its drivers for time and I/O, like all methods that add a
    /// source.
    pub fn add_wifi(&mut self, network: &str, interface: &str) -> SourceId {
        let (network, interface) = (network.to_owned(), interface.to_owned());
        self.add(SourceKind::Wifi, Some(&network.clone()), |feed, ticker| {
            wifi::run(feed, ticker, network, interface)
        })
    }

    /// Signals of the modem to which an interface belongs, from ModemManager. Switches the modem's
    /// reports of signals on if they are off, and off again when the source ends.
    pub fn add_modem(&mut self, network: &str, interface: &str, bus: Bus) -> SourceId {
        let (network, interface) = (network.to_owned(), interface.to_owned());
        self.add(SourceKind::Modem, Some(&network.clone()), |feed, ticker| {
            modem::run(feed, ticker, network, interface, bus)
        })
    }

    /// Lines of JSON that a program prints while it runs ([`Lines`]): the program and its arguments.
    /// Lines without a network are about `network`.
    pub fn add_command(&mut self, command: &[String], network: Option<&str>) -> SourceId {
        let (command, network) = (command.to_vec(), network.map(str::to_owned));
        self.add(SourceKind::Command, None, |feed, ticker| {
            command::run(feed, ticker, command, network)
        })
    }

    /// Signals of a file, repeated from a time on.
    pub fn add_trace(&mut self, network: &str, trace: SignalTrace, start: Time) -> SourceId {
        let network = network.to_owned();
        self.add(SourceKind::Trace, Some(&network.clone()), |feed, ticker| {
            playback::run(feed, ticker, network, Playback::new(trace, start))
        })
    }

    /// The signal of an emulated interface, which its lab publishes ([`lab_signal`]), also if the lab
    /// began before this program. Follows changes of the signal; while the link has none, and outside
    /// of a lab, the source is silent.
    pub fn add_lab_signal(&mut self, network: &str, interface: &str) -> SourceId {
        self.add_signal_in(network, interface, lab::folder())
    }

    fn add_signal_in(
        &mut self,
        network: &str,
        interface: &str,
        folder: Option<PathBuf>,
    ) -> SourceId {
        let (network, interface) = (network.to_owned(), interface.to_owned());
        self.add(SourceKind::Lab, Some(&network.clone()), |feed, ticker| {
            lab::run(feed, ticker, network, interface, folder)
        })
    }

    /// The rate of an interface while it is busy, from its counters: a lower bound of its capacity.
    pub fn add_counters(&mut self, network: &str, interface: &str) -> SourceId {
        let (network, interface) = (network.to_owned(), interface.to_owned());
        self.add(SourceKind::Counters, Some(&network.clone()), |feed, ticker| {
            counters::run(feed, ticker, network, interface)
        })
    }

    /// Returns a handle for measurements of own connections.
    pub fn add_own_traffic(&mut self, network: &str) -> OwnTraffic {
        let (feed, _) = self.register(SourceKind::Own, Some(network));
        OwnTraffic::new(feed, network)
    }

    /// Ends a source. Its values are withdrawn.
    pub fn remove(&mut self, id: SourceId) {
        self.tasks.remove(&id);
        let now = self.shared.now();
        self.shared.ledger().remove(now, id);
        self.shared.changed.notify_one();
    }

    /// Returns the next update, waiting for it. If the caller is slow, it gets the newest values only.
    /// Can be cancelled without a loss.
    pub async fn next(&mut self) -> Update {
        loop {
            if let Some(update) = self.shared.ledger().take() {
                return update;
            }
            // A change since then has left a permit.
            self.shared.changed.notified().await;
        }
    }

    /// Returns the last values from the sources of a network, or why they are silent.
    pub fn status(&self, network: &str) -> Vec<SourceStatus> {
        self.shared.ledger().status(network)
    }

    /// Ends all sources, and waits until commands are killed and modems are as before.
    pub async fn stop(mut self) {
        let tasks = std::mem::take(&mut self.tasks).into_values();
        let tasks: Vec<_> = tasks.filter_map(|(_, task)| task).collect();
        let all = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        let _ = timeout(STOP_TIMEOUT, all).await;
    }

    fn add<T: Future<Output = ()> + Send + 'static>(
        &mut self,
        kind: SourceKind,
        network: Option<&str>,
        task: impl FnOnce(Feed, Ticker) -> T,
    ) -> SourceId {
        let (feed, ticker) = self.register(kind, network);
        let id = feed.id;
        let running = tokio::spawn(task(feed, ticker));
        if let Some((_, task)) = self.tasks.get_mut(&id) {
            *task = Some(running);
        }
        id
    }

    fn register(&mut self, kind: SourceKind, network: Option<&str>) -> (Feed, Ticker) {
        let id = SourceId(self.next);
        self.next += 1;
        let (sender, receiver) = watch::channel(self.interval);
        self.tasks.insert(id, (sender, None));
        self.shared.ledger().add(id, kind, network);
        (Feed { id, shared: self.shared.clone() }, Ticker::new(receiver))
    }
}

impl Shared {
    fn now(&self) -> Time {
        Time::ZERO + Span::from(Instant::now().saturating_duration_since(self.origin))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiver of reports of one source.
#[derive(Clone, Debug)]
struct Feed {
    id: SourceId,
    shared: Arc<Shared>,
}

impl Feed {
    fn now(&self) -> Time {
        self.shared.now()
    }

    fn report(&self, at: Time, network: &str, readings: &[Reading], scope: Scope) {
        self.shared.ledger().on_reading(at, self.id, network, readings, scope);
        self.shared.changed.notify_one();
    }

    /// `reason` is one sentence.
    fn fail(&self, reason: &str) {
        let now = self.now();
        self.shared.ledger().on_failure(now, self.id, reason);
        self.shared.changed.notify_one();
    }

    /// Notes a line or value that is not used.
    fn drop_one(&self, reason: &str) {
        self.shared.ledger().on_drop(self.id, reason);
    }
}

#[cfg(test)]
mod tests;
