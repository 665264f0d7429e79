//! One transfer: executes the outputs of the cores with the workers, and returns the results as
//! inputs.
//!
//! The cores are `Fetch` (requests), `Checkpoints` (durability), `InterfaceWatch` (existing paths)
//! and `Pacer` (progress). This module owns their inputs and outputs; [`Transfer::pump`] is the
//! only place that waits.

mod checkpoint;
mod finish;
mod input;
mod interfaces;
mod output;
mod report;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use manyways_proto::fetch::{
    Config, Fetch, FetchFailure, Input, MeteredUse, Pacer, PathId, PathUse,
};
use manyways_unit::{Size, Span, Time};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::checkpoint::CheckpointWriter;
#[cfg(any(test, feature = "gateway"))]
pub(super) use self::finish::hex;
use self::report::{Timings, empty_report};
use super::advice::Advice;
use super::interface_watch::Interfaces;
use super::journal::Journal;
use super::location::Location;
use super::report::{Cause, Event, FetchError, Report};
use super::resume::ResumeState;
use super::sink::{Body, Files, Leftover, Sink, Stream};
use super::worker::{Command, Message};
use super::{Checksum, Client, Job, READ_AHEAD};

/// Maximum number of pieces that wait for the disk; each has at most a few hundred KiB.
const MAX_PENDING_PIECES: usize = 16;

/// Destination of the bytes.
pub(super) enum Destination {
    /// The job's file.
    File,
    /// The reader of the [`Body`].
    Reader(Stream),
}

impl Destination {
    /// Creates a destination for a reader.
    pub(super) fn reader() -> (Self, Body) {
        let (stream, body) = Stream::new();
        (Self::Reader(stream), body)
    }
}

pub(super) struct Transfer<'a> {
    client: &'a mut Client,
    job: &'a Job,
    origin: Instant,
    core: Fetch,
    interfaces: Interfaces,
    advice: Advice,
    checkpoints: CheckpointWriter,
    progress: Pacer,
    log: Log<'a>,
    timings: Timings,
    mailbox: Mailbox,
    requests: RequestTemplate,
    /// Bytes of the latest [`Input::Bytes`].
    piece: Bytes,
    earlier_run: EarlierRun,
    /// SHA-256 of the whole object in a `Repr-Digest` header.
    announced_digest: Option<[u8; 32]>,
}

/// Events for the caller.
struct Log<'a> {
    on_event: &'a mut (dyn FnMut(Event<'_>) + Send),
    journal: Journal,
    /// Latest redirect target of any path.
    redirected_to: Option<String>,
}

/// Channel of the workers' messages.
struct Mailbox {
    messages: mpsc::Receiver<Message>,
    sender: mpsc::Sender<Message>,
}

/// Properties that all requests of a transfer share.
struct RequestTemplate {
    original: Arc<Location>,
    headers: Arc<HeaderMap>,
    /// Whether a body is read only up to its credit.
    is_read_limited: bool,
}

/// Result of earlier runs.
struct EarlierRun {
    /// Number of bytes that this run continues.
    bytes: u64,
    /// Older download that this one replaces.
    replaced: Option<ResumeState>,
}

/// How [`Transfer::pump`] ended.
enum TransferEnd {
    Done,
    Failed(Cause),
}

impl<E: Into<Cause>> From<E> for TransferEnd {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs one job to its end.
pub(super) async fn run(
    client: &mut Client,
    job: &Job,
    destination: Destination,
    on_event: &mut (dyn FnMut(Event<'_>) + Send),
    stop: impl Future<Output = ()>,
) -> Result<Report, FetchError> {
    let empty = |cause| {
        let report = Box::new(empty_report(client, job));
        FetchError { cause, part_file: None, report }
    };
    let (mut sink, leftover, ahead) = match destination {
        Destination::File => {
            let opened = Files::open(&job.output, &job.location, job.resume);
            let (files, leftover) = opened.map_err(|error| empty(error.into()))?;
            (Sink::Files(files), leftover, None)
        }
        Destination::Reader(mut stream) => {
            if job.checksum != Checksum::None {
                stream.enable_hash();
            }
            let ahead = client.config.read_ahead.unwrap_or(READ_AHEAD.as_bytes());
            (Sink::Stream(stream), Leftover::Nothing, Some(ahead))
        }
    };
    let (saved, replaced) = match leftover {
        Leftover::Resumed(saved) => (Some(saved), None),
        Leftover::Replaced(older) => (None, older),
        Leftover::Nothing => (None, None),
    };
    if job.resume && saved.is_none() && ahead.is_none() {
        on_event(Event::Note(
            "no unfinished download exists, so the download starts from the beginning",
        ));
    }
    if saved.as_ref().is_some_and(|saved| saved.url != job.location.to_string()) {
        on_event(Event::Note(
            "the unfinished download is of this URL with another query; it is continued if the \
             server has the same file there",
        ));
    }
    if client.paths.is_empty() {
        return Err(empty(Cause::NoPath));
    }
    let remaining = match &saved {
        Some(saved) => Some(saved.length.saturating_sub(saved.done.total())),
        None => job.size.map(Size::as_bytes).or(client.config.length),
    };
    let (advisor, host) = (client.path_advisor.clone(), &job.location.origin().host);
    let (advice, note) = Advice::begin(advisor, &client.paths, host, remaining).await;
    if let Some(note) = note {
        on_event(Event::Note(&note));
    }
    let mut transfer = Transfer::new(client, job, on_event, saved, replaced, ahead, advice);
    let mut stop = std::pin::pin!(stop);
    let mut wrong_file = None;
    let (end, mut report) = loop {
        let end = transfer.pump(&mut sink, stop.as_mut()).await;
        let elapsed = transfer.now();
        transfer.abort_requests().await;
        let mut report = transfer.report(elapsed);
        let end = match end {
            TransferEnd::Done => transfer.finish_file(&mut sink, &mut report).await,
            TransferEnd::Failed(cause) => Err(cause),
        };
        match (end, wrong_file.take()) {
            (Err(cause @ Cause::Checksum { .. }), _) if transfer.fetch_elsewhere(&sink) => {
                wrong_file = Some((cause, report.sha256));
            }
            // No other network has another file.
            (Err(Cause::Refused(..)), Some((cause, sha256))) => {
                break (Err(cause), Report { sha256, ..report });
            }
            (end, _) => break (end, report),
        }
    };
    match end {
        Ok(()) => Ok(report),
        Err(cause) => {
            let kept = transfer.keep_part_file(&mut sink, &cause);
            report.changed |= matches!(cause, Cause::Refused(FetchFailure::Changed, _));
            Err(FetchError { cause, part_file: kept, report: Box::new(report) })
        }
    }
}

impl<'a> Transfer<'a> {
    fn new(
        client: &'a mut Client,
        job: &'a Job,
        on_event: &'a mut (dyn FnMut(Event<'_>) + Send),
        saved: Option<ResumeState>,
        replaced: Option<ResumeState>,
        ahead: Option<u64>,
        mut advice: Advice,
    ) -> Self {
        let continued = saved.as_ref().map(|saved| saved.done.total());
        let metered = match client.metered {
            MeteredUse::Limit(limit) => {
                MeteredUse::Limit(limit.saturating_sub(client.metered_used))
            }
            other => other,
        };
        let mut core = Fetch::new(Config {
            metered,
            resume: saved.map(|saved| (saved.object(), saved.done)),
            length: job.size.map(Size::as_bytes).or(client.config.length),
            excerpt: job.excerpt.filter(|_| ahead.is_some()),
            is_authenticated: job.location.origin().secure && client.verifies_servers,
            checks_file: ahead.is_none() && matches!(job.checksum, Checksum::Check(_)),
            read_ahead: ahead,
            ..client.config.clone()
        });
        let mut journal = Journal::new(client.records, &client.paths);
        while let Some(PathUse::Begins { path }) = advice.poll(|_| 0) {
            let Some(spec) = client.paths.get(path) else { continue };
            let (id, metered, known) = (PathId(path), spec.metered, spec.estimate);
            core.handle(Time::ZERO, Input::PathUp { path: id, metered, known });
            if advice.is_asked() {
                journal.on_use(Time::ZERO, id, true);
            }
        }
        let (sender, messages) = mpsc::channel(MAX_PENDING_PIECES);
        let transfer = Self {
            job,
            origin: Instant::now(),
            core,
            interfaces: Interfaces::new(Time::ZERO, client.path_lister.clone()),
            advice,
            checkpoints: CheckpointWriter::new(Time::ZERO, continued),
            progress: Pacer::new(Time::ZERO, client.config.progress_interval),
            log: Log { on_event, journal, redirected_to: None },
            timings: Timings::new(client.paths.len()),
            mailbox: Mailbox { messages, sender },
            requests: RequestTemplate {
                original: Arc::new(job.location.clone()),
                headers: Arc::clone(&client.headers),
                is_read_limited: ahead.is_some(),
            },
            piece: Bytes::new(),
            earlier_run: EarlierRun { bytes: continued.unwrap_or(0), replaced },
            announced_digest: None,
            client,
        };
        transfer.begin_workers();
        transfer
    }

    fn begin_workers(&self) {
        for worker in &self.client.workers {
            // A worker ends only with its client.
            let _ = worker.send(Command::Begin(self.mailbox.sender.clone()));
        }
    }

    /// Begins again after the end of all requests, because the complete file has the wrong
    /// checksum. Returns whether another network may have another file.
    fn fetch_elsewhere(&mut self, sink: &Sink) -> bool {
        let begins = sink.part().is_some() && self.core.fetch_elsewhere(self.now());
        if begins {
            self.begin_workers();
        }
        begins
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.origin.elapsed())
    }

    /// Runs until the core ends, the destination fails, or the caller stops the transfer.
    async fn pump(
        &mut self,
        sink: &mut Sink,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> TransferEnd {
        let mut is_done = false;
        let end = loop {
            self.on_timers();
            self.apply_path_use("joined as advised");
            let acted = self.execute(sink);
            self.log.journal.emit(self.log.on_event);
            match acted {
                Ok(done) => is_done |= done,
                Err(end) => break end,
            }
            if is_done && sink.is_drained() {
                break TransferEnd::Done;
            }
            // The core counts bytes as received before their write is executed. An earlier
            // checkpoint could contain bytes that the file does not have.
            if let Err(error) = self.begin_checkpoint(self.now(), sink) {
                break error.into();
            }
            let wakeup = self.origin + self.next_wakeup().since(Time::ZERO).into();
            tokio::select! {
                biased;
                () = stop.as_mut() => break TransferEnd::Failed(Cause::Stopped),
                listed = self.interfaces.next_list() => self.on_list(listed),
                answer = self.advice.next_answer() => self.advice.on_answer(self.now(), answer),
                written = self.checkpoints.wait_written() => {
                    if let Err(error) = self.on_checkpoint(written, sink) {
                        break error.into();
                    }
                }
                delivered = sink.deliver(), if !self.core.is_doubtful() => match delivered {
                    Ok(upto) => self.core.handle(self.now(), Input::Consumed { end: upto }),
                    Err(error) => break error.into(),
                },
                Some(message) = self.mailbox.messages.recv() => self.on_message(message, sink),
                () = sleep_until(wakeup) => {}
            }
        };
        let origin = self.origin;
        let now = || Time::ZERO + Span::from(origin.elapsed());
        self.checkpoints.finish(sink, now).await;
        end
    }

    /// When to call [`Transfer::on_timers`] and poll the core without an input.
    fn next_wakeup(&self) -> Time {
        let others = [self.core.next_wakeup(), self.checkpoints.core.next_wakeup()];
        let others = others.into_iter().chain([self.advice.next_wakeup()]).flatten();
        let others = others.chain([self.interfaces.next_wakeup()]);
        others.fold(self.progress.next_wakeup(), Time::min)
    }

    /// Reports progress, reads the carriers of the paths and asks for advice, if due.
    fn on_timers(&mut self) {
        let now = self.now();
        if self.progress.take_due(now) {
            self.emit_progress();
        }
        for change in self.interfaces.poll(now, &self.client.paths) {
            self.on_path_change(change, &[]);
        }
        self.advice.poll_question(now, self.remaining());
    }

    /// Missing bytes; `None` while the length is unknown.
    fn remaining(&self) -> Option<u64> {
        let length = self.core.object()?.length?;
        Some(length.saturating_sub(self.core.done().total()))
    }
}
