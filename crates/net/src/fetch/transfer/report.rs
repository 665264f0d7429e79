//! Timings of a transfer, for its progress and report.

use manyways_proto::fetch::{Object, PathId};
use manyways_unit::{Rate, Size, Span, Time};

use super::Transfer;
use crate::fetch::report::{Event, PathProgress, PathReport, Progress, Report};
use crate::fetch::worker::Peer;
use crate::fetch::{Client, Job};

pub(super) struct Timings {
    paths: Vec<PathTimings>,
    first_byte: Option<Time>,
}

/// Properties of a path that the core does not know.
#[derive(Clone, Copy, Default)]
struct PathTimings {
    peer: Option<Peer>,
    first_request: Option<Time>,
    last_byte: Option<Time>,
}

impl Timings {
    pub(super) fn new(paths: usize) -> Self {
        Self { paths: vec![PathTimings::default(); paths], first_byte: None }
    }

    pub(super) fn add_path(&mut self) {
        self.paths.push(PathTimings::default());
    }

    pub(super) fn on_request(&mut self, path: PathId, now: Time) {
        if let Some(path) = self.paths.get_mut(path.0) {
            path.first_request.get_or_insert(now);
        }
    }

    pub(super) fn on_first_byte(&mut self, now: Time) {
        self.first_byte.get_or_insert(now);
    }

    pub(super) fn on_bytes(&mut self, path: PathId, now: Time) {
        self.on_first_byte(now);
        if let Some(path) = self.paths.get_mut(path.0) {
            path.last_byte = Some(now);
        }
    }

    /// Notes the server of a path. Returns whether the server has changed.
    pub(super) fn on_peer(&mut self, path: PathId, peer: Peer) -> bool {
        let path = self.paths.get_mut(path.0);
        path.is_some_and(|path| path.peer.replace(peer) != Some(peer))
    }

    /// The server of each path; `None` before its first connection.
    pub(super) fn peers(&self) -> impl Iterator<Item = Option<Peer>> + '_ {
        self.paths.iter().map(|path| path.peer)
    }
}

impl Transfer<'_> {
    pub(super) fn emit_progress(&mut self) {
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
        (self.log.on_event)(Event::Progress(&progress));
    }

    pub(super) fn length(&self) -> Option<Size> {
        self.core.object().and_then(|object| object.length).map(Size::from_bytes)
    }

    pub(super) fn report(&self, elapsed: Time) -> Report {
        let paths = self.client.paths.iter().zip(&self.timings.paths).enumerate();
        let paths: Vec<PathReport> = paths
            .map(|(id, (path, timings))| {
                let stats = self.core.stats(elapsed, PathId(id));
                let bytes = Size::from_bytes(stats.useful);
                let rate = match (timings.first_request, timings.last_byte) {
                    (Some(from), Some(to)) => Rate::of(bytes, to.since(from)),
                    _ => Rate::ZERO,
                };
                PathReport {
                    server: timings.peer.map(|peer| peer.server.ip()),
                    protocol: timings.peer.map(|peer| peer.protocol),
                    bytes,
                    requests: stats.requests,
                    rate,
                    rtt: stats.rtt,
                    limit_reached: self.core.is_limit_reached(PathId(id)),
                    overshoot: Size::from_bytes(stats.overshoot),
                    duplicate: Size::from_bytes(stats.duplicate),
                    ..empty_path(&path.name, path.metered)
                }
            })
            .collect();
        let duplicate = paths.iter().map(|path| path.duplicate.as_bytes()).sum();
        let new = self.core.done().total().saturating_sub(self.earlier_run.bytes);
        Report {
            bytes: Size::from_bytes(new),
            length: self.length(),
            elapsed: elapsed.since(Time::ZERO),
            first_byte: self.timings.first_byte.map(|at| at.since(Time::ZERO)),
            validator_kind: self.core.object().and_then(Object::validator_kind),
            changed: self.core.is_renewed(),
            validator: self.core.object().and_then(|object| {
                object.validator.as_ref().map(|validator| validator.as_str().to_owned())
            }),
            version: self.core.version_proof(),
            metered: self.core.metered_bytes(),
            duplicate: Size::from_bytes(duplicate),
            retries: self.core.retries(),
            ignores_ranges: self.core.ignores_ranges(),
            paths,
            ..empty_report(self.client, self.job)
        }
    }
}

/// The report of a job that did not begin.
pub(super) fn empty_report(client: &Client, job: &Job) -> Report {
    let paths = client.paths.iter().map(|path| empty_path(&path.name, path.metered));
    Report {
        url: job.location.to_string(),
        bytes: Size::ZERO,
        length: None,
        elapsed: Span::ZERO,
        first_byte: None,
        sha256: None,
        validator: None,
        validator_kind: None,
        changed: false,
        version: None,
        metered: Size::ZERO,
        duplicate: Size::ZERO,
        retries: 0,
        ignores_ranges: false,
        paths: paths.collect(),
    }
}

fn empty_path(name: &str, metered: bool) -> PathReport {
    PathReport {
        name: name.to_owned(),
        metered,
        limit_reached: false,
        server: None,
        protocol: None,
        bytes: Size::ZERO,
        requests: 0,
        rate: Rate::ZERO,
        rtt: None,
        overshoot: Size::ZERO,
        duplicate: Size::ZERO,
    }
}
