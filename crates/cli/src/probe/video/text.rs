//! Played films as text.

use manyways_model::qoe::film::Film;
use manyways_model::qoe::player::Session;
use manyways_net::probe::{Measurement, Report, VideoReport};
use manyways_report::number::{bytes, percent, rate, span};
use manyways_report::text::table;

use crate::probe::run::cell;

/// Columns of a session.
pub(super) const COLUMNS: [&str; 8] =
    ["STARTUP", "PLAYED", "BITRATE", "THROUGHPUT", "SWITCHES", "STALLS", "STALLED", "PAUSED"];

/// Cells of a session, in the order of [`COLUMNS`].
pub(super) fn cells(session: &Session, film: &Film) -> Vec<String> {
    let known = |is_known: bool, text: String| if is_known { text } else { "–".to_owned() };
    let has_segments = !session.segments.is_empty();
    vec![
        cell(session.startup),
        span(session.played),
        known(has_segments, rate(session.mean_bitrate(film))),
        known(has_segments, rate(session.throughput())),
        session.switches().to_string(),
        session.stalls.len().to_string(),
        format!("{} ({})", span(session.stalled()), percent(session.stall_ratio())),
        span(session.paused()),
    ]
}

pub(super) fn of_reports(reports: &[Report]) -> String {
    let videos = || {
        reports.iter().filter_map(|report| match &report.measurement {
            Some(Measurement::Video(video)) => Some((report, video)),
            _ => None,
        })
    };
    let mut text = String::new();
    let rows: Vec<Vec<String>> = videos()
        .filter_map(|(report, video)| {
            let mut row = vec![name(report, video)];
            row.extend(cells(video.session.as_ref()?, video.film()?));
            Some(row)
        })
        .collect();
    if rows.is_empty() {
        return text;
    }
    let head: Vec<&str> = ["NETWORK"].into_iter().chain(COLUMNS).collect();
    text.push_str(&table(&head, rows));
    // All of them have the same.
    if let Some(player) = videos().find_map(|(_, video)| video.player.as_ref()) {
        text.push_str(&format!("Played by {player}.\n"));
    }
    for (_, video) in videos().filter(|(_, video)| video.carried.len() > 1) {
        let all: u64 = video.carried.values().map(|one| one.bytes.as_bytes()).sum();
        let shares = video.carried.iter().map(|(name, one)| {
            let share = one.bytes.as_bytes() as f64 / all.max(1) as f64;
            format!("{name} {} ({})", bytes(one.bytes.as_bytes()), percent(share))
        });
        text.push_str(&format!("Bytes: {}.\n", shares.collect::<Vec<_>>().join(", ")));
    }
    text
}

/// The networks that carried a film.
pub(super) fn name(report: &Report, video: &VideoReport) -> String {
    match video.carried.len() {
        0 => report.context.interface.clone(),
        _ => video.carried.keys().cloned().collect::<Vec<_>>().join(" + "),
    }
}
