//! A played film as JSON. Times are in seconds since the start of the player, sizes in bytes, rates in
//! bits a second; rungs count from 0, segments from 1.

use std::collections::BTreeMap;

use manyways_model::qoe::film::Film;
use manyways_model::qoe::player::{Ending, Session};
use manyways_unit::{Rate, Size, Span, Time};
use serde::Serialize;

use super::report::VideoReport;
use super::source::RungFacts;

/// The result of `probe video`.
#[derive(Debug, Serialize)]
pub(in crate::probe) struct VideoDocument {
    /// `manyways`, or `dash.js` with its version.
    player: String,
    format: &'static str,
    protocol: Option<&'static str>,
    rungs: Vec<RungDocument>,
    /// Bytes and requests over each path.
    paths: BTreeMap<String, PathDocument>,
    #[serde(flatten)]
    session: Option<SessionDocument>,
}

/// A session of a player, also of one in virtual time.
#[derive(Debug, Serialize)]
pub struct SessionDocument {
    /// Whether the whole film was played.
    complete: bool,
    /// Until the first picture; null if there was none.
    startup: Option<f64>,
    /// Of the film.
    played: f64,
    /// Mean nominal bitrate of the segments; null without a segment.
    bitrate: Option<u64>,
    /// Mean rate of the downloads, from request to end.
    throughput: Option<u64>,
    switches: usize,
    stalled: f64,
    stall_ratio: f64,
    paused: f64,
    failures: u32,
    /// Bytes of downloads that were abandoned or failed.
    wasted: u64,
    stalls: Vec<StallDocument>,
    pauses: Vec<PauseDocument>,
    abandoned: Vec<AbandonedDocument>,
    segments: Vec<SegmentDocument>,
}

#[derive(Debug, Serialize)]
struct RungDocument {
    bitrate: u64,
    width: Option<u32>,
    height: Option<u32>,
    codecs: Option<String>,
}

#[derive(Debug, Serialize)]
struct PathDocument {
    bytes: u64,
    requests: u64,
}

#[derive(Debug, Serialize)]
struct StallDocument {
    at: f64,
    /// Of the film.
    position: f64,
    duration: f64,
}

#[derive(Debug, Serialize)]
struct PauseDocument {
    at: f64,
    duration: f64,
}

#[derive(Debug, Serialize)]
struct AbandonedDocument {
    at: f64,
    segment: usize,
    rung: usize,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct SegmentDocument {
    rung: usize,
    bitrate: u64,
    duration: f64,
    bytes: u64,
    requested: f64,
    first_byte: f64,
    complete: f64,
    /// Level of the buffer at the request.
    buffer: f64,
    attempts: u32,
}

impl VideoDocument {
    pub(in crate::probe) fn of(video: &VideoReport) -> Self {
        let rung = |rung: &RungFacts| RungDocument {
            bitrate: rung.bitrate.as_bps(),
            width: rung.resolution.map(|(width, _)| width),
            height: rung.resolution.map(|(_, height)| height),
            codecs: rung.codecs.clone(),
        };
        let path = |(name, path): (&String, &super::Carried)| {
            let carried = PathDocument { bytes: path.bytes.as_bytes(), requests: path.requests };
            (name.clone(), carried)
        };
        let session = video.session.as_ref().zip(video.film());
        Self {
            player: video.player.clone().unwrap_or_else(|| "manyways".to_owned()),
            format: video.facts.format,
            protocol: video.protocol,
            rungs: video.facts.rungs.iter().map(rung).collect(),
            paths: video.carried.iter().map(path).collect(),
            session: session
                .map(|(session, film)| SessionDocument::of(session, film, video.ending)),
        }
    }
}

impl SessionDocument {
    pub fn of(session: &Session, film: &Film, ending: Option<Ending>) -> Self {
        let at = |time: Time| time.since(session.started).as_secs_f64();
        let known = |rate: Rate| Some(rate.as_bps()).filter(|rate| *rate > 0);
        let bytes = |size: Size| size.as_bytes();
        Self {
            complete: ending == Some(Ending::Played),
            startup: session.startup.map(Span::as_secs_f64),
            played: session.played.as_secs_f64(),
            bitrate: known(session.mean_bitrate(film)),
            throughput: known(session.throughput()),
            switches: session.switches(),
            stalled: session.stalled().as_secs_f64(),
            stall_ratio: session.stall_ratio(),
            paused: session.paused().as_secs_f64(),
            failures: session.failures,
            wasted: bytes(session.wasted()),
            stalls: session
                .stalls
                .iter()
                .map(|stall| StallDocument {
                    at: at(stall.at),
                    position: stall.position.as_secs_f64(),
                    duration: stall.duration.as_secs_f64(),
                })
                .collect(),
            pauses: session
                .pauses
                .iter()
                .map(|pause| PauseDocument {
                    at: at(pause.at),
                    duration: pause.duration.as_secs_f64(),
                })
                .collect(),
            abandoned: session
                .abandoned
                .iter()
                .map(|one| AbandonedDocument {
                    at: at(one.at),
                    segment: one.segment + 1,
                    rung: one.rung,
                    bytes: bytes(one.received),
                })
                .collect(),
            segments: session
                .segments
                .iter()
                .map(|one| SegmentDocument {
                    rung: one.rung,
                    bitrate: film.rungs().get(one.rung).map_or(0, |rate| rate.as_bps()),
                    duration: one.duration.as_secs_f64(),
                    bytes: bytes(one.size),
                    requested: at(one.requested),
                    first_byte: at(one.first_byte),
                    complete: at(one.complete),
                    buffer: one.level.as_secs_f64(),
                    attempts: one.attempts,
                })
                .collect(),
        }
    }
}
