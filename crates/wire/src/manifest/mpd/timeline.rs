//! Times of segments in ticks, from a timeline or a constant duration.

use std::ops::Range;

use manyways_unit::Span;

use super::super::film::{FilmError, MAX_SEGMENTS};
use super::tree::Element;

/// Returns the times of the segments of a `SegmentTimeline` (5.3.9.6), in ticks of the presentation.
///
/// `end` is that of the period, which a repetition without a limit (`r="-1"`) needs if no time
/// follows. In a live film such a repetition counts as one segment.
pub(super) fn of_timeline(
    timeline: &Element<'_>,
    end: Option<u64>,
    is_live: bool,
    rendition: &str,
) -> Result<Vec<Range<u64>>, FilmError> {
    let mut times = Vec::new();
    let mut next = 0u64;
    let mut entries = timeline.children("S").peekable();
    while let Some(entry) = entries.next() {
        let start = entry.number("t")?.unwrap_or(next);
        let duration = entry.required_number("d")?;
        let too_late = || entry.invalid("d", &duration.to_string());
        if duration == 0 {
            let (number, rendition) = (times.len() + 1, rendition.to_owned());
            return Err(FilmError::NoSegmentDuration { number, rendition });
        }
        let repetitions = match entry.attribute("r").map(str::trim_ascii) {
            None => Some(0),
            Some(text) if text.starts_with('-') => None,
            Some(_) => entry.number("r")?,
        };
        let count = match repetitions {
            Some(repetitions) => repetitions.saturating_add(1),
            None => {
                let following = match entries.peek() {
                    Some(following) => following.number("t")?,
                    None => end,
                };
                match following {
                    Some(end) => end.saturating_sub(start).div_ceil(duration).max(1),
                    None if is_live => 1,
                    None => return Err(FilmError::NoDuration),
                }
            }
        };
        if count > (MAX_SEGMENTS - times.len()) as u64 {
            return Err(FilmError::TooManySegments { rendition: rendition.to_owned() });
        }
        next = start;
        for _ in 0..count {
            let end = next.checked_add(duration).ok_or_else(too_late)?;
            times.push(next..end);
            next = end;
        }
    }
    Ok(times)
}

/// Returns the number of segments of a constant duration in a period; the last one may be shorter.
pub(super) fn count(duration: u64, timescale: u64, period: Span) -> u64 {
    let ticks = u128::from(period.as_nanos()) * u128::from(timescale);
    let count = ticks.div_ceil(u128::from(duration.max(1)) * 1_000_000_000);
    u64::try_from(count).unwrap_or(u64::MAX)
}
