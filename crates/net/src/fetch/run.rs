//! One transfer: carries the core's decisions to the workers and what they report back to it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use manyways_proto::fetch::{
    Allowance, Config, Fetch, Input, Note, Output, PathId, Reason, RequestId,
};
use manyways_unit::{Rate, Size, Span, Time};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::dial::{MOST_WINDOW, Protocol};
use super::exchange::Credit;
use super::journal::Journal;
use super::location::Location;
use super::presence::{Change, Presence};
use super::report::{Cause, Event, FetchError, Kept, PathProgress, PathReport, Progress, Report};
use super::resume::Saved;
use super::sink::{Body, Files, Left, Sink, SinkError, Stream};
use super::worker::{Ask, Command, Message, Peer, What};
use super::{AHEAD, Checksum, Client, Job, PathSpec};

/// So many pieces may wait for the disk; each is at most a few hundred KiB.
const WAITING_PIECES: usize = 16;
/// How often the caller hears of progress.
const PROGRESS: Duration = Duration::from_millis(100);
/// How often what is there is made lasting, at most: the pause doubles up to this…
const CHECKPOINT: Duration = Duration::from_secs(2);
/// …from this one after the object is known, when there is little to lose but it would be all.
const FIRST_CHECKPOINT: Duration = Duration::from_millis(250);
/// A disk is not kept busy with it: the pause is so many times what it took…
const CHECKPOINT_SHARE: u32 = 10;
/// …where it was so much. The time for less is not the bytes', and all that there is to lose.
const MUCH: u64 = 16 << 20;

/// What the shell knows of a path beside the core.
#[derive(Clone, Copy, Default)]
struct Trail {
    peer: Option<Peer>,
    first_request: Option<Time>,
    last_byte: Option<Time>,
}

pub(super) struct Transfer<'a> {
    client: &'a mut Client,
    job: &'a Job,
    on_event: &'a mut (dyn FnMut(Event<'_>) + Send),
    core: Fetch,
    origin: Instant,
    home: Arc<Location>,
    /// Where a path was redirected to last.
    moved: Option<String>,
    journal: Journal,
    headers: Arc<HeaderMap>,
    reports: mpsc::Receiver<Message>,
    /// Where workers report to.
    sender: mpsc::Sender<Message>,
    presence: Presence,
    trails: Vec<Trail>,
    first_byte: Option<Time>,
    /// The piece that the core was told of last.
    piece: Bytes,
    /// Bytes of earlier runs.
    before: u64,
    /// So many bytes are to be lasting; `None` before there is a resume file of this object.
    checkpointed: Option<u64>,
    /// So many are.
    lasting: u64,
    /// The SHA-256 that the server announced for the whole object.
    announced: Option<[u8; 32]>,
    checkpoint_at: Instant,
    checkpoint_pause: Duration,
    /// What an older download left that this one replaces.
    older: Option<Saved>,
    /// No more is read of an answer than is granted.
    limited: bool,
}

/// A checkpoint that is being written.
struct Saving {
    task: JoinHandle<Result<(), SinkError>>,
    since: Instant,
    /// So many bytes are lasting then, …
    total: u64,
    /// …so many more than before.
    more: u64,
}

enum End {
    Done,
    Failed(Cause),
}

/// Where the bytes go.
pub(super) enum To {
    /// To the job's file.
    File,
    /// To whoever has the [`Body`].
    Reader(Stream),
}

impl To {
    /// To a reader.
    pub(super) fn reader() -> (Self, Body) {
        let (stream, body) = Stream::new();
        (Self::Reader(stream), body)
    }
}

/// Runs one job to its end.
pub(super) async fn run(
    client: &mut Client,
    job: &Job,
    to: To,
    on_event: &mut (dyn FnMut(Event<'_>) + Send),
    stop: impl Future<Output = ()>,
) -> Result<Report, FetchError> {
    let empty = |cause| FetchError { cause, kept: None, report: Box::new(blank(client, job)) };
    let url = job.location.to_string();
    let (mut sink, left, ahead) = match to {
        To::File => {
            let opened = Files::open(&job.output, &url, job.resume);
            let (files, left) = opened.map_err(|error| empty(error.into()))?;
            (Sink::Files(files), left, None)
        }
        To::Reader(mut stream) => {
            if job.checksum != Checksum::None {
                stream.hash();
            }
            let ahead = client.config.ahead.unwrap_or(AHEAD.as_bytes());
            (Sink::Stream(stream), Left::Nothing, Some(ahead))
        }
    };
    let (saved, older) = match left {
        Left::Continued(saved) => (Some(saved), None),
        Left::Older(older) => (None, older),
        Left::Nothing => (None, None),
    };
    if job.resume && saved.is_none() && ahead.is_none() {
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
        length: job.size.map(Size::as_bytes).or(client.config.length),
        ahead,
        ..client.config.clone()
    });
    let (sender, reports) = mpsc::channel(WAITING_PIECES);
    for worker in &client.workers {
        // A worker ends only with its client.
        let _ = worker.send(Command::Begin(sender.clone()));
    }
    let mut transfer = Transfer {
        job,
        on_event,
        core,
        origin: Instant::now(),
        home: Arc::new(job.location.clone()),
        moved: None,
        journal: Journal::new(client.records, &client.paths),
        headers: Arc::clone(&client.headers),
        reports,
        sender,
        presence: Presence::new(client.watch.clone(), client.paths.len()),
        trails: vec![Trail::default(); client.paths.len()],
        first_byte: None,
        piece: Bytes::new(),
        before: checkpointed.unwrap_or(0),
        checkpointed,
        lasting: checkpointed.unwrap_or(0),
        announced: None,
        limited: ahead.is_some(),
        checkpoint_at: Instant::now() + FIRST_CHECKPOINT,
        checkpoint_pause: FIRST_CHECKPOINT,
        older,
        client,
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
        let mut saving: Option<Saving> = None;
        let mut done = false;
        for (id, path) in self.client.paths.iter().enumerate() {
            let (path, metered, known) = (PathId(id), path.metered, path.known);
            self.core.handle(Time::ZERO, Input::PathUp { path, metered, known });
        }
        let end = loop {
            let acted = self.act(sink);
            self.journal.tell(self.on_event);
            match acted {
                Some(End::Done) => done = true,
                Some(failed) => break failed,
                None => {}
            }
            if done && sink.is_drained() {
                break End::Done;
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
                    Some(Saving { task, since, total, more }) => {
                        let outcome = task.await;
                        let share = if *more >= MUCH { CHECKPOINT_SHARE } else { 1 };
                        (outcome, since.elapsed() * share, *total)
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break End::Failed(Cause::Stopped),
                _ = tick.tick() => {
                    self.tell();
                    let changes = self.presence.links(&self.client.paths, PathSpec::has_carrier);
                    changes.into_iter().for_each(|change| self.adapt(change));
                }
                listed = self.presence.listed() => {
                    let sources = self.sources();
                    let source = |id: usize| sources.get(id).copied().flatten();
                    let changes = self.presence.compare(&self.client.paths, listed, source);
                    changes.into_iter().for_each(|change| self.adapt(change));
                }
                (outcome, least, total) = saved => {
                    saving = None;
                    if let Ok(Err(error)) = outcome {
                        break End::Failed(error.into());
                    }
                    if self.checkpointed == Some(total) {
                        self.lasting = total;
                    } else {
                        sink.forget_late();
                    }
                    self.checkpoint_at = self.checkpoint_at.max(Instant::now() + least);
                }
                () = tokio::time::sleep_until(self.checkpoint_at), if idle => {
                    self.checkpoint_at = Instant::now() + self.checkpoint_pause;
                    if let Some(saved) = self.saved()
                        && self.checkpointed.is_none_or(|before| saved.done.total() > before)
                    {
                        if let Err(error) = sink.flush() {
                            break End::Failed(error.into());
                        }
                        let total = saved.done.total();
                        let more = total.saturating_sub(self.checkpointed.replace(total).unwrap_or(0));
                        self.checkpoint_pause = CHECKPOINT.min(self.checkpoint_pause * 2);
                        let save = sink.checkpoint(&saved);
                        saving = save.map(|save| {
                            let (task, since) = (tokio::task::spawn_blocking(save), Instant::now());
                            Saving { task, since, total, more }
                        });
                    }
                }
                handed = sink.hand_on() => match handed {
                    Ok(upto) => self.core.handle(self.now(), Input::Taken { upto }),
                    Err(error) => break End::Failed(error.into()),
                },
                Some(message) = self.reports.recv() => self.hear(message, sink),
                () = sleep => {}
            }
        };
        // Two must not write the resume file at once.
        if let Some(saving) = saving {
            if let Ok(Err(error)) = saving.task.await {
                tracing::warn!("{error}");
            }
            if self.checkpointed != Some(saving.total) {
                sink.forget_late();
            }
        }
        end
    }

    /// Does what the core wants.
    fn act(&mut self, sink: &mut Sink) -> Option<End> {
        while let Some(output) = self.core.poll(self.now()) {
            match output {
                Output::Connect { path, window } => {
                    let window = u32::try_from(window).unwrap_or(MOST_WINDOW);
                    self.send(path, Command::Connect(Arc::clone(&self.home), window));
                }
                Output::Disconnect { path } => self.send(path, Command::Disconnect),
                Output::Window { path, bytes } => {
                    let bytes = u32::try_from(bytes).unwrap_or(MOST_WINDOW);
                    self.send(path, Command::Window(bytes));
                }
                Output::Ping { path } => self.send(path, Command::Ping),
                Output::Credit { request, bytes } => {
                    if let Some(path) = self.journal.path_of(request) {
                        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                        self.send(path, Command::Credit(request, bytes));
                    }
                }
                Output::RangeEnd { request, end } => {
                    self.journal.range_end(self.now(), request, end);
                }
                Output::Ended { request } => self.journal.end(self.now(), request, "finished"),
                Output::Request { request, path, range, if_range } => {
                    let now = self.now();
                    if let Some(trail) = self.trails.get_mut(path.0) {
                        trail.first_request.get_or_insert(now);
                    }
                    let expected = self.core.expected_delay(request);
                    self.journal.request(now, request, path, range, expected);
                    let ask = Ask {
                        request,
                        location: Arc::clone(&self.home),
                        headers: Arc::clone(&self.headers),
                        private: Arc::clone(&self.client.private),
                        home: Arc::clone(&self.home),
                        range,
                        if_range,
                        credit: if self.limited { Credit::counted() } else { Credit::default() },
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
                    self.lasting = 0;
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

    fn hear(&mut self, Message { path, what }: Message, sink: &mut Sink) {
        let now = self.now();
        let input = match what {
            What::Bytes(request, bytes) if !self.core.is_under_way(request) => {
                Input::Late { path, length: bytes.len() as u64 }
            }
            What::Connected(peer) => {
                self.meet(path, peer);
                Input::Connected { path, multiplexed: peer.protocol == Protocol::Http2 }
            }
            What::ConnectFailed(fault) => Input::ConnectFailed { path, fault },
            What::Moved(location) => {
                let location = location.to_string();
                if self.moved.as_ref() != Some(&location) {
                    (self.on_event)(Event::Moved(&location));
                    self.moved = Some(location);
                }
                return;
            }
            What::Pong => {
                self.core.handle(now, Input::Pong { path });
                if let Some(rtt) = self.core.last_round_trip(path) {
                    self.journal.ping(now, path, rtt, "h2");
                }
                return;
            }
            What::RoundTrip(rtt) => {
                self.core.handle(now, Input::TransportRtt { path, rtt });
                self.journal.ping(now, path, rtt, "tcp");
                return;
            }
            What::Head(request, head, announced, peer) => {
                self.meet(path, peer);
                self.journal.response(now, request, head.status);
                if head.length == Some(0) {
                    self.first_byte.get_or_insert(now);
                }
                self.count_late();
                let known = self.core.object().is_some();
                self.core.handle(now, Input::Head { request, head });
                self.hear_announced(request, announced, known, sink);
                return;
            }
            What::Bytes(request, bytes) => {
                self.first_byte.get_or_insert(now);
                if let Some(trail) = self.trails.get_mut(path.0) {
                    trail.last_byte = Some(now);
                }
                let length = bytes.len() as u64;
                self.journal.received(now, request, length);
                self.piece = bytes;
                Input::Bytes { request, length }
            }
            What::Finished(request) => Input::Finished { request },
            What::Failed(request, fault) => {
                self.journal.end(now, request, "failed");
                Input::Failed { request, fault }
            }
        };
        self.count_late();
        self.core.handle(now, input);
    }

    /// The answer that says what the object is says its hash too; of a download that goes on, any
    /// answer that was found to be of the same object.
    fn hear_announced(
        &mut self,
        request: RequestId,
        announced: Option<[u8; 32]>,
        known: bool,
        sink: &mut Sink,
    ) {
        if !self.core.is_under_way(request) || self.core.object().is_none() {
            return;
        }
        self.announced = self.announced.filter(|_| known).or(announced);
        if self.announced.is_some()
            && let Sink::Stream(stream) = sink
        {
            stream.hash();
        }
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

    fn cancel(&mut self, request: RequestId) {
        if let Some(path) = self.journal.path_of(request) {
            self.send(path, Command::Cancel(request));
        }
        self.journal.cancelled(self.now(), request);
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

    /// The addresses from which the paths talk to their servers.
    fn sources(&self) -> Vec<Option<IpAddr>> {
        let paths = self.client.paths.iter().zip(&self.trails);
        paths.map(|(path, trail)| path.source(trail.peer?.server.ip())).collect()
    }

    /// A network has come, gone or changed.
    fn adapt(&mut self, change: Change) {
        let (now, allowance) = (self.now(), self.client.metered);
        let (id, words) = match change {
            Change::Joined(spec) if spec.metered && allowance == Allowance::Nothing => return,
            Change::Joined(spec) => {
                let id = self.client.paths.len();
                self.journal.join(&spec.name);
                self.client.join(spec);
                self.trails.push(Trail::default());
                self.send(PathId(id), Command::Begin(self.sender.clone()));
                (id, Some("joined"))
            }
            Change::Back(id, spec) => {
                if let Some(spec) = spec {
                    self.renew(id, spec);
                }
                (id, Some("is back"))
            }
            Change::Renumbered(id, spec) => {
                self.core.handle(now, Input::PathDown { path: PathId(id) });
                self.renew(id, spec);
                (id, Some("has another address"))
            }
            Change::Renewed(id, spec) => {
                self.renew(id, spec);
                (id, None)
            }
            Change::Gone(id) => {
                self.core.handle(now, Input::PathDown { path: PathId(id) });
                return self.say_of(id, "is gone");
            }
        };
        let Some(spec) = self.client.paths.get(id) else { return };
        if let Some(words) = words {
            let (path, metered, known) = (PathId(id), spec.metered, spec.known);
            self.core.handle(now, Input::PathUp { path, metered, known });
            self.say_of(id, words);
        }
    }

    fn renew(&mut self, id: usize, spec: PathSpec) {
        if let Some(path) = self.client.renew(id, spec) {
            self.send(PathId(id), Command::Path(path));
        }
    }

    fn say_of(&mut self, id: usize, words: &str) {
        if let Some(path) = self.client.paths.get(id) {
            (self.on_event)(Event::Note(&format!("{} {words}", path.name)));
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
                rtt: stats.rtt,
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
                    rtt: stats.rtt,
                    tail: Size::from_bytes(stats.tail),
                    duplicate: Size::from_bytes(stats.duplicate),
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
        let done = self.core.done().total();
        // What only the server says counts only where it can be compared at all.
        let whole = self.length().is_some_and(|length| length.as_bytes() == done);
        let announced = self.announced.filter(|_| whole && sink.can_be_hashed());
        if self.job.checksum != Checksum::None || announced.is_some() {
            let hash = sink.sha256().await?;
            match (self.job.checksum, hash, announced) {
                (Checksum::Check(wanted), Some(hash), _) if wanted != hash => {
                    report.sha256 = Some(hash);
                    return Err(Cause::Checksum { wanted: hex(&wanted), found: hex(&hash) });
                }
                // Who asks for a checksum knows better than the server.
                (Checksum::Check(_), ..) => report.sha256 = hash,
                (_, Some(hash), Some(announced)) if announced != hash => {
                    return Err(Cause::Digest { announced: hex(&announced), found: hex(&hash) });
                }
                (Checksum::Report, ..) => report.sha256 = hash,
                (Checksum::None, ..) => {}
            }
        }
        sink.finish(done, self.lasting).map_err(Cause::from)
    }

    /// Leaves what a later run can go on with, and nothing else.
    fn keep(&mut self, sink: &mut Sink, cause: &Cause) -> Option<Kept> {
        let useless = matches!(cause, Cause::Checksum { .. } | Cause::Digest { .. });
        let untouched = matches!(cause, Cause::Refused(Reason::Changed, _)) && self.before > 0;
        let saved = self.saved().filter(|saved| !useless && !saved.done.is_empty());
        let Some((mut saved, part)) = saved.zip(sink.part().map(std::path::Path::to_owned)) else {
            if !untouched {
                sink.discard();
            }
            return None;
        };
        if let Err(error) = sink.flush() {
            // What a full disk did not take has to come once more.
            tracing::debug!("{error}");
            let lost = sink.unwritten();
            saved.done = saved.done.iter().flat_map(|range| lost.gaps(range)).collect();
        }
        if let Some(Err(error)) = sink.checkpoint(&saved).map(|save| save()) {
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
        rtt: None,
        tail: Size::ZERO,
        duplicate: Size::ZERO,
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
