//! One transfer: carries the core's decisions to the workers and what they report back to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use manyways_proto::fetch::{
    Allowance, Config, Fetch, Input, Note, Output, PathId, Reason, RequestId,
};
use manyways_trace::{Rate, Size, Span, Time};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::location::Location;
use super::report::{Cause, Event, FetchError, Kept, PathProgress, PathReport, Progress, Report};
use super::resume::Saved;
use super::sink::{Left, Sink, SinkError};
use super::worker::{Ask, Command, Message, Peer, What};
use super::{Checksum, Client, Job};

/// So many pieces may wait for the disk; each is at most a few hundred KiB.
const WAITING_PIECES: usize = 16;
/// How often the caller hears of progress.
const PROGRESS: Duration = Duration::from_millis(100);
/// How often what is there is made lasting, at most: the pause doubles up to this…
const CHECKPOINT: Duration = Duration::from_secs(2);
/// …from this one after the object is known, when there is little to lose but it would be all.
const FIRST_CHECKPOINT: Duration = Duration::from_millis(250);

/// What the shell knows of a path beside the core.
#[derive(Clone, Copy, Default)]
struct Trail {
    /// Its link was down when it was looked at last.
    down: bool,
    peer: Option<Peer>,
    first_request: Option<Time>,
    last_byte: Option<Time>,
}

pub(super) struct Transfer<'a> {
    client: &'a Client,
    job: &'a Job,
    on_event: &'a mut (dyn FnMut(Event<'_>) + Send),
    core: Fetch,
    origin: Instant,
    location: Arc<Location>,
    home: Arc<Location>,
    headers: Arc<HeaderMap>,
    reports: mpsc::Receiver<Message>,
    trails: Vec<Trail>,
    first_byte: Option<Time>,
    /// The piece that the core was told of last.
    piece: Bytes,
    /// Bytes of earlier runs.
    before: u64,
    /// So many bytes are lasting; `None` before there is a resume file of this object.
    checkpointed: Option<u64>,
    checkpoint_at: Instant,
    checkpoint_pause: Duration,
    /// What an older download left that this one replaces.
    older: Option<Saved>,
}

enum End {
    Done,
    Failed(Cause),
}

/// Runs one job to its end.
pub(super) async fn run(
    client: &Client,
    job: &Job,
    on_event: &mut (dyn FnMut(Event<'_>) + Send),
    stop: impl Future<Output = ()>,
) -> Result<Report, FetchError> {
    let empty = |cause| FetchError { cause, kept: None, report: Box::new(blank(client, job)) };
    let url = job.location.to_string();
    let (mut sink, left) =
        Sink::open(&job.output, &url, job.resume).map_err(|error| empty(error.into()))?;
    let (saved, older) = match left {
        Left::Continued(saved) => (Some(saved), None),
        Left::Older(older) => (None, older),
        Left::Nothing => (None, None),
    };
    if job.resume && saved.is_none() {
        on_event(Event::Note("there is no unfinished download to continue, so it begins anew"));
    }
    if client.paths.is_empty() {
        return Err(empty(Cause::NoPath));
    }
    let checkpointed = saved.as_ref().map(|saved| saved.done.total());
    let metered = match client.metered {
        Allowance::Limit(limit) => Allowance::Limit(limit.saturating_sub(client.metered_spent)),
        other => other,
    };
    let core = Fetch::new(Config {
        metered,
        resume: saved.map(|saved| (saved.object(), saved.done)),
        ..client.config.clone()
    });
    let (sender, reports) = mpsc::channel(WAITING_PIECES);
    for worker in &client.workers {
        // A worker ends only with its client.
        let _ = worker.send(Command::Begin(sender.clone()));
    }
    drop(sender);
    let location = Arc::new(job.location.clone());
    let mut transfer = Transfer {
        client,
        job,
        on_event,
        core,
        origin: Instant::now(),
        home: Arc::clone(&location),
        location,
        headers: Arc::clone(&client.headers),
        reports,
        trails: vec![Trail::default(); client.paths.len()],
        first_byte: None,
        piece: Bytes::new(),
        before: checkpointed.unwrap_or(0),
        checkpointed,
        checkpoint_at: Instant::now() + FIRST_CHECKPOINT,
        checkpoint_pause: FIRST_CHECKPOINT,
        older,
    };
    let end = transfer.pump(&mut sink, stop).await;
    let elapsed = transfer.now();
    transfer.settle().await;
    let mut report = transfer.report(elapsed);
    let end = match end {
        End::Done => transfer.conclude(&mut sink, &mut report).await,
        End::Failed(cause) => Err(cause),
    };
    match end {
        Ok(()) => Ok(report),
        Err(cause) => {
            let kept = transfer.keep(&mut sink, &cause);
            Err(FetchError { cause, kept, report: Box::new(report) })
        }
    }
}

impl Transfer<'_> {
    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.origin.elapsed())
    }

    /// Until the core is done, the disk fails, or the caller stops it.
    async fn pump(&mut self, sink: &mut Sink, stop: impl Future<Output = ()>) -> End {
        let mut stop = std::pin::pin!(stop);
        let mut tick = tokio::time::interval(PROGRESS);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut saving: Option<JoinHandle<Result<(), SinkError>>> = None;
        for (id, path) in self.client.paths.iter().enumerate() {
            let input = Input::PathUp { path: PathId(id), metered: path.metered };
            self.core.handle(Time::ZERO, input);
        }
        let end = loop {
            if let Some(end) = self.act(sink) {
                break end;
            }
            let wakeup = self
                .core
                .next_wakeup()
                .map(|at| self.origin + Duration::from(at.since(Time::ZERO)));
            let sleep = async {
                match wakeup {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let idle = saving.is_none();
            let saved = async {
                match &mut saving {
                    Some(saving) => saving.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break End::Failed(Cause::Stopped),
                _ = tick.tick() => {
                    self.tell();
                    self.look_at_carriers();
                }
                outcome = saved => {
                    saving = None;
                    if let Ok(Err(error)) = outcome {
                        break End::Failed(error.into());
                    }
                }
                () = tokio::time::sleep_until(self.checkpoint_at), if idle => {
                    self.checkpoint_at = Instant::now() + self.checkpoint_pause;
                    if let Some(saved) = self.saved()
                        && self.checkpointed.is_none_or(|before| saved.done.total() > before)
                    {
                        self.checkpointed = Some(saved.done.total());
                        self.checkpoint_pause = CHECKPOINT.min(self.checkpoint_pause * 2);
                        saving = Some(tokio::task::spawn_blocking(sink.checkpoint(&saved)));
                    }
                }
                Some(message) = self.reports.recv() => self.hear(message),
                () = sleep => {}
            }
        };
        // Two must not write the resume file at once.
        if let Some(saving) = saving
            && let Ok(Err(error)) = saving.await
        {
            tracing::warn!("{error}");
        }
        end
    }

    /// Does what the core wants.
    fn act(&mut self, sink: &mut Sink) -> Option<End> {
        while let Some(output) = self.core.poll(self.now()) {
            match output {
                Output::Connect { path } => {
                    self.send(path, Command::Connect(Arc::clone(&self.location)));
                }
                Output::Disconnect { path } => self.send(path, Command::Disconnect),
                Output::Request { request, path, range, if_range } => {
                    let now = self.now();
                    if let Some(trail) = self.trails.get_mut(path.0) {
                        trail.first_request.get_or_insert(now);
                    }
                    let ask = Ask {
                        request,
                        location: Arc::clone(&self.location),
                        headers: Arc::clone(&self.headers),
                        private: Arc::clone(&self.client.private),
                        home: Arc::clone(&self.home),
                        range,
                        if_range,
                        follow: self.core.object().is_none() || self.first_byte.is_none(),
                    };
                    self.send(path, Command::Ask(ask));
                }
                Output::Cancel { request } => self.cancel(request),
                Output::Write { at, skip, length, .. } => {
                    let from = usize::try_from(skip).unwrap_or(usize::MAX);
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    let bytes = self.piece.get(from..from.saturating_add(length));
                    if let Err(error) = sink.write(at, bytes.unwrap_or_default()) {
                        return Some(End::Failed(error.into()));
                    }
                }
                Output::Restart => {
                    if let Err(error) = sink.restart() {
                        return Some(End::Failed(error.into()));
                    }
                    self.before = 0;
                    self.checkpointed = None;
                }
                Output::Sized(_) => {
                    match sink.begin() {
                        Ok(true) => self.say_what_is_lost(),
                        Ok(false) => {}
                        Err(error) => return Some(End::Failed(error.into())),
                    }
                    // From here on a kill leaves something to go on with.
                    self.checkpoint_at = Instant::now();
                    self.checkpoint_pause = FIRST_CHECKPOINT;
                }
                Output::Note(note) => self.note(&note),
                Output::Done => return Some(End::Done),
                Output::Failed(reason) => {
                    return Some(End::Failed(Cause::Refused(reason, self.names())));
                }
            }
        }
        None
    }

    fn hear(&mut self, Message { path, what }: Message) {
        let now = self.now();
        let input = match what {
            What::Bytes(request, bytes) if !self.core.is_under_way(request) => {
                Input::Late { path, length: bytes.len() as u64 }
            }
            What::Connected(peer) => {
                self.meet(path, peer);
                Input::Connected { path }
            }
            What::ConnectFailed(fault) => Input::ConnectFailed { path, fault },
            What::Moved(location) => {
                (self.on_event)(Event::Moved(&location.to_string()));
                self.location = Arc::new(location);
                return;
            }
            What::Head(request, head, peer) => {
                self.meet(path, peer);
                if head.length == Some(0) {
                    self.first_byte.get_or_insert(now);
                }
                Input::Head { request, head }
            }
            What::Bytes(request, bytes) => {
                self.first_byte.get_or_insert(now);
                if let Some(trail) = self.trails.get_mut(path.0) {
                    trail.last_byte = Some(now);
                }
                let length = bytes.len() as u64;
                self.piece = bytes;
                Input::Bytes { request, length }
            }
            What::Finished(request) => Input::Finished { request },
            What::Failed(request, fault) => Input::Failed { request, fault },
        };
        self.count_late();
        self.core.handle(now, input);
    }

    /// Tells the core of the bytes that came for nothing.
    fn count_late(&mut self) {
        let now = self.now();
        for (id, late) in self.client.late.iter().enumerate() {
            if let length @ 1.. = late.take() {
                self.core.handle(now, Input::Late { path: PathId(id), length });
            }
        }
    }

    /// Breaks off what is still under way, and counts what of it had come already.
    async fn settle(&mut self) {
        for worker in &self.client.workers {
            let (sender, ended) = oneshot::channel();
            // A worker ends only with its client.
            if worker.send(Command::End(sender)).is_ok() {
                let _ = ended.await;
            }
        }
        // A connection that is closed is dropped by a task of its own.
        tokio::task::yield_now().await;
        while let Ok(Message { path, what }) = self.reports.try_recv() {
            if let What::Bytes(_, bytes) = what {
                let length = bytes.len() as u64;
                self.core.handle(self.now(), Input::Late { path, length });
            }
        }
        self.count_late();
    }

    fn meet(&mut self, path: PathId, peer: Peer) {
        let Some(trail) = self.trails.get_mut(path.0) else { return };
        if trail.peer.replace(peer) != Some(peer)
            && let Some(spec) = self.client.paths.get(path.0)
        {
            (self.on_event)(Event::Connected {
                path: &spec.name,
                server: peer.server.ip(),
                protocol: peer.protocol,
            });
        }
    }

    fn send(&self, path: PathId, command: Command) {
        if let Some(worker) = self.client.workers.get(path.0) {
            // A worker ends only with its client.
            let _ = worker.send(command);
        }
    }

    /// Only the worker that has the request minds.
    fn cancel(&self, request: RequestId) {
        for worker in &self.client.workers {
            let _ = worker.send(Command::Cancel(request));
        }
    }

    fn names(&self) -> Vec<String> {
        self.client.paths.iter().map(|path| path.name.clone()).collect()
    }

    fn note(&mut self, note: &Note) {
        let text = match note {
            Note::Dropped { path, fault } => match self.client.paths.get(path.0) {
                Some(spec) => format!("{} is not used any more: {fault}", spec.name),
                None => note.to_string(),
            },
            _ => note.to_string(),
        };
        (self.on_event)(Event::Note(&text));
    }

    /// A network that was given up is used again when its link comes back.
    fn look_at_carriers(&mut self) {
        let now = self.now();
        for (id, (path, trail)) in self.client.paths.iter().zip(&mut self.trails).enumerate() {
            let down = !path.has_carrier();
            if std::mem::replace(&mut trail.down, down) && !down {
                let input = Input::PathUp { path: PathId(id), metered: path.metered };
                self.core.handle(now, input);
            }
        }
    }

    fn say_what_is_lost(&mut self) {
        let target = self.job.output.display();
        let text = match &self.older {
            Some(older) if older.url == self.job.location.to_string() => format!(
                "an unfinished download of {target} ({} of {}) is thrown away; \
                 -c would have continued it",
                Size::from_bytes(older.done.total()),
                Size::from_bytes(older.length)
            ),
            Some(older) => {
                format!("an unfinished download of {} to {target} is thrown away", older.url)
            }
            None => format!("an unfinished download of {target} is thrown away"),
        };
        (self.on_event)(Event::Note(&text));
    }

    fn tell(&mut self) {
        let now = self.now();
        let paths = self.client.paths.iter().enumerate().map(|(id, path)| {
            let stats = self.core.stats(now, PathId(id));
            PathProgress {
                name: path.name.clone(),
                bytes: Size::from_bytes(stats.useful),
                rate: stats.rate,
            }
        });
        let progress = Progress {
            elapsed: now.since(Time::ZERO),
            length: self.length(),
            done: Size::from_bytes(self.core.done().total()),
            paths: paths.collect(),
        };
        (self.on_event)(Event::Progress(&progress));
    }

    fn length(&self) -> Option<Size> {
        self.core.object().and_then(|object| object.length).map(Size::from_bytes)
    }

    /// What a later run would need, if it could go on.
    fn saved(&self) -> Option<Saved> {
        if !self.core.resumable() {
            return None;
        }
        let object = self.core.object()?;
        Some(Saved {
            url: self.job.location.to_string(),
            length: object.length?,
            validator: object.validator.clone()?,
            done: self.core.done().clone(),
        })
    }

    fn report(&self, elapsed: Time) -> Report {
        let mut duplicate = 0;
        let paths = self.client.paths.iter().zip(&self.trails).enumerate();
        let paths: Vec<PathReport> = paths
            .map(|(id, (path, trail))| {
                let stats = self.core.stats(elapsed, PathId(id));
                duplicate += stats.duplicate;
                let bytes = Size::from_bytes(stats.useful);
                let rate = match (trail.first_request, trail.last_byte) {
                    (Some(from), Some(to)) => Rate::of(bytes, to.since(from)),
                    _ => Rate::ZERO,
                };
                PathReport {
                    name: path.name.clone(),
                    metered: path.metered,
                    server: trail.peer.map(|peer| peer.server.ip()),
                    protocol: trail.peer.map(|peer| peer.protocol),
                    bytes,
                    requests: stats.requests,
                    rate,
                }
            })
            .collect();
        Report {
            url: self.job.location.to_string(),
            bytes: Size::from_bytes(self.core.done().total().saturating_sub(self.before)),
            length: self.length(),
            elapsed: elapsed.since(Time::ZERO),
            first_byte: self.first_byte.map(|at| at.since(Time::ZERO)),
            sha256: None,
            metered: self.core.metered_bytes(),
            duplicate: Size::from_bytes(duplicate),
            paths,
        }
    }

    /// The hash, if one is wanted, and the file's proper name.
    async fn conclude(&mut self, sink: &mut Sink, report: &mut Report) -> Result<(), Cause> {
        self.tell();
        if self.job.checksum != Checksum::None {
            let hash = tokio::task::spawn_blocking(sink.sha256()).await;
            let hash = hash.map_err(|_| Cause::Stopped)??;
            report.sha256 = Some(hash);
            if let Checksum::Check(wanted) = self.job.checksum
                && wanted != hash
            {
                return Err(Cause::Checksum { wanted: hex(&wanted), found: hex(&hash) });
            }
        }
        let length = self.core.done().total();
        sink.finish(length).map_err(Cause::from)
    }

    /// Leaves what a later run can go on with, and nothing else.
    fn keep(&mut self, sink: &mut Sink, cause: &Cause) -> Option<Kept> {
        let useless = matches!(cause, Cause::Checksum { .. });
        let untouched = matches!(cause, Cause::Refused(Reason::Changed, _)) && self.before > 0;
        let saved = self.saved().filter(|saved| !useless && !saved.done.is_empty());
        let Some((saved, part)) = saved.zip(sink.part().map(std::path::Path::to_owned)) else {
            if !untouched {
                sink.discard();
            }
            return None;
        };
        if let Err(error) = sink.checkpoint(&saved)() {
            tracing::warn!("the resume file could not be written: {error}");
            return None;
        }
        // A changed object cannot be continued; its bytes stay until the user says so.
        (!untouched && !matches!(cause, Cause::Refused(Reason::Changed, _))).then(|| Kept {
            part,
            done: Size::from_bytes(saved.done.total()),
            length: Size::from_bytes(saved.length),
        })
    }
}

/// The report of a job that did not begin.
fn blank(client: &Client, job: &Job) -> Report {
    let paths = client.paths.iter().map(|path| PathReport {
        name: path.name.clone(),
        metered: path.metered,
        server: None,
        protocol: None,
        bytes: Size::ZERO,
        requests: 0,
        rate: Rate::ZERO,
    });
    Report {
        url: job.location.to_string(),
        bytes: Size::ZERO,
        length: None,
        elapsed: Span::ZERO,
        first_byte: None,
        sha256: None,
        metered: Size::ZERO,
        duplicate: Size::ZERO,
        paths: paths.collect(),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
