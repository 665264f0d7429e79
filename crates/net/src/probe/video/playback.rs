//! The shell of the player: fetches the segments that it selects, and reports their progress to it.

use std::pin::pin;

use manyways_model::qoe::player::{Config, Ending, Input, Output, Player};
use manyways_unit::{Rate, Size, Span};
use manyways_wire::manifest::Resource;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::super::contract::{ProbeError, Run};
use super::super::report::Measurement;
use super::report::VideoReport;
use super::source::Source;
use crate::fetch::learned::Learned;
use crate::fetch::{Client, Event, Excerpt, Job, Report};

/// Bytes of a request, with its packets.
const REQUEST: Size = Size::from_bytes(2_000);
/// How often a download that runs is reported.
const REPORT_INTERVAL: Span = Span::from_millis(500);

/// Bytes of a body with the headers of its packets.
pub(super) fn packets(body: Size) -> Size {
    Size::from_bytes(body.as_bytes() + (body.as_bytes() / 1_200 + 1) * 72)
}

/// The client that fetches the film.
pub(super) struct Downloads {
    client: Client,
    /// For the next download over several networks.
    learned: Option<Learned>,
}

impl Downloads {
    pub(super) fn new(client: Client, is_together: bool) -> Self {
        let learned = is_together.then(|| Learned::of(&client));
        Self { client, learned }
    }
}

/// Returns the bytes of a resource.
///
/// # Errors
/// It cannot be fetched, or is larger than `limit` bytes.
pub(super) async fn fetch_all(
    run: &mut Run,
    downloads: &mut Downloads,
    resource: &Resource,
    limit: usize,
    report: &mut VideoReport,
) -> Result<Vec<u8>, ProbeError> {
    let mut bytes = Vec::new();
    let stop = Notify::new();
    let mut is_too_large = false;
    let ended = transfer(run, downloads, resource, None, report, &stop, |_, piece, _, _| {
        is_too_large |= bytes.len() + piece.len() > limit;
        match is_too_large {
            true => stop.notify_one(),
            false => bytes.extend_from_slice(piece),
        }
    });
    match ended.await? {
        _ if is_too_large => {
            let size = Size::from_bytes(limit as u64);
            Err(ProbeError::Video(format!("{} is larger than {size}", resource.url)))
        }
        Ok(()) => Ok(bytes),
        Err(reason) => {
            Err(ProbeError::Video(format!("{} cannot be fetched: {reason}", resource.url)))
        }
    }
}

/// Fetches a resource, and passes each piece to `on_piece`. The inner result is that of the download.
async fn transfer(
    run: &mut Run,
    downloads: &mut Downloads,
    resource: &Resource,
    size: Option<Size>,
    report: &mut VideoReport,
    stop: &Notify,
    mut on_piece: impl FnMut(&mut Run, &[u8], Option<Size>, &mut VideoReport),
) -> Result<Result<(), String>, ProbeError> {
    let job = Job::new(&resource.url, "").map_err(|error| ProbeError::Video(error.to_string()))?;
    let range = resource.range.as_ref();
    let excerpt = range.map(|range| Excerpt { start: range.start, end: Some(range.end) });
    let length = range.map(|range| Size::from_bytes(range.end - range.start));
    let job = job.size(length.or(size)).excerpt(excerpt).foreign(true);
    run.spend(REQUEST, REQUEST)?;
    let (mut protocol, mut redirected_to) = (None, None);
    let mut length = size;
    let mut rates: Vec<(String, Rate)> = Vec::new();
    if let Some(learned) = &downloads.learned {
        learned.prepare(&mut downloads.client);
    }
    let mut on_event = |event: Event<'_>| match event {
        Event::Progress(progress) => {
            let paths = progress.paths.iter();
            rates = paths.filter_map(|path| Some((path.name.clone(), path.rate?))).collect();
        }
        Event::Redirected(url) => redirected_to = Some(url.to_owned()),
        Event::Connected { protocol: used, .. } => protocol = Some(used.name()),
        _ => {}
    };
    let mut ended = None;
    {
        let (mut body, transfer) = downloads.client.stream(&job, &mut on_event, stop.notified());
        let mut transfer = pin!(transfer);
        let mut is_read = false;
        while !is_read || ended.is_none() {
            tokio::select! {
                biased;
                piece = body.next(), if !is_read => match piece {
                    Some(piece) => {
                        let bytes = Size::from_bytes(piece.len() as u64);
                        run.spend(Size::from_bytes(piece.len() as u64 / 20), packets(bytes))?;
                        on_piece(run, &piece, length.take(), report);
                    }
                    None => is_read = true,
                },
                outcome = &mut transfer, if ended.is_none() => ended = Some(outcome),
            }
        }
    }
    report.protocol = protocol.or(report.protocol);
    report.redirected_to = redirected_to.or(report.redirected_to.take());
    let ended = ended.unwrap_or_else(|| unreachable!("the loop waits for the outcome"));
    let (done, result) = match ended {
        Ok(done) => (done, Ok(())),
        Err(error) => (*error.report.clone(), Err(error.to_string())),
    };
    if let Some(learned) = &mut downloads.learned {
        learned.observe(&done, &rates);
    }
    note_paths(report, &done);
    Ok(result)
}

fn note_paths(report: &mut VideoReport, done: &Report) {
    for path in done.paths.iter().filter(|path| path.requests > 0) {
        let carried = report.carried.entry(path.name.clone()).or_default();
        carried.bytes += path.bytes;
        carried.requests += path.requests;
    }
}

/// Plays a film.
pub(super) struct Playback<'a> {
    run: &'a mut Run,
    downloads: Downloads,
    source: &'a Source,
    player: Player,
    report: VideoReport,
    /// For each rung, whether its initialization was fetched.
    is_initialized: Vec<bool>,
    /// Why the latest download failed.
    failure: Option<String>,
}

impl<'a> Playback<'a> {
    pub(super) fn new(
        run: &'a mut Run,
        downloads: Downloads,
        source: &'a Source,
        config: &Config,
        report: VideoReport,
    ) -> Self {
        let player = Player::new(run.now(), source.film.clone(), config.clone());
        let is_initialized = vec![false; source.renditions.len()];
        Self { run, downloads, source, player, report, is_initialized, failure: None }
    }

    pub(super) async fn play(mut self) -> Result<(), ProbeError> {
        let mut now = self.run.now();
        loop {
            match self.player.poll(now) {
                Some(Output::Fetch { segment, rung }) => {
                    self.fetch(segment, rung).await?;
                    publish(self.run, &mut self.player, &mut self.report);
                }
                // A download is stopped where it runs.
                Some(Output::Cancel) => {}
                Some(Output::Finished(ending)) => return self.finish(ending),
                None => {
                    // The rest needs no network, so that its course is known.
                    if let Some(end) = self.player.plays_without_network_until() {
                        now = end;
                        continue;
                    }
                    let wakeup = self.player.next_wakeup().unwrap_or(now);
                    sleep(wakeup.since(now).into()).await;
                }
            }
            now = self.run.now();
        }
    }

    fn finish(mut self, ending: Ending) -> Result<(), ProbeError> {
        self.report.ending = Some(ending);
        publish(self.run, &mut self.player, &mut self.report);
        match ending {
            Ending::Played => Ok(()),
            Ending::Failed { segment } => {
                let reason = self.failure.unwrap_or_else(|| "it did not arrive".to_owned());
                let number = segment + 1;
                Err(ProbeError::Video(format!("segment {number} of the film failed: {reason}")))
            }
        }
    }

    /// Fetches a segment, and before the first one of a rung its initialization.
    async fn fetch(&mut self, segment: usize, rung: usize) -> Result<(), ProbeError> {
        let rendition = &self.source.renditions[rung];
        let Some(segment) = rendition.segments().get(segment) else { return Ok(()) };
        let header = segment.new_initialization.as_deref();
        let first = rendition.initialization.as_ref().filter(|_| !self.is_initialized[rung]);
        let header = header.or(first);
        let mut received = Size::ZERO;
        let mut last = self.run.now();
        for (resource, size) in header
            .map(|header| (header, None))
            .into_iter()
            .chain([(&segment.resource, segment.size())])
        {
            let stop = Notify::new();
            let player = &mut self.player;
            let mut is_abandoned = false;
            let mut published = last;
            let ended = transfer(
                self.run,
                &mut self.downloads,
                resource,
                size,
                &mut self.report,
                &stop,
                |run, piece, size, report| {
                    last = run.now();
                    if received.is_zero() {
                        player.handle(last, Input::FirstByte { size });
                    }
                    received += Size::from_bytes(piece.len() as u64);
                    if !is_abandoned {
                        player.handle(last, Input::Received(received));
                        is_abandoned = player.poll(last) == Some(Output::Cancel);
                        if is_abandoned {
                            stop.notify_one();
                        }
                    }
                    if last.since(published) >= REPORT_INTERVAL {
                        published = last;
                        publish(run, player, report);
                    }
                },
            );
            match ended.await? {
                _ if is_abandoned => return Ok(()),
                Ok(()) => {}
                Err(reason) => {
                    self.failure = Some(reason);
                    self.player.handle(self.run.now(), Input::Failed);
                    return Ok(());
                }
            }
        }
        self.is_initialized[rung] = true;
        // A browser has the segment when its last byte arrives.
        self.player.handle(last, Input::Complete(received));
        Ok(())
    }
}

/// Reports the session so far.
fn publish(run: &mut Run, player: &mut Player, report: &mut VideoReport) {
    report.session = Some(player.session(run.now()));
    run.report(Measurement::Video(report.clone()));
}
