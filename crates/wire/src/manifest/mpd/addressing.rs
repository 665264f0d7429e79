//! Addresses of segments: templates, lists, and files with an index (ISO/IEC 23009-1, 5.3.9).

use std::ops::Range;

use manyways_unit::{Size, Span};

use super::super::film::{
    FilmError, Listing, MAX_SEGMENTS, Resource, Segments, resolved, span, whole,
};
use super::template::{self, Values};
use super::timeline;
use super::tree::Element;

const KINDS: [&str; 3] = ["SegmentTemplate", "SegmentList", "SegmentBase"];

/// Ticks of a segment in the presentation, and its time in the period. It has no time if it ends before
/// the period begins, and so is not played.
type Timed = (u64, Option<Range<Span>>);

/// A representation, with all that it inherits.
pub(super) struct Addressing<'e, 't> {
    /// The representation, its adaptation set and its period.
    pub levels: [&'e Element<'t>; 3],
    /// The base URL of the representation.
    pub base: String,
    pub id: &'e str,
    pub bandwidth: u64,
    /// Of the period.
    pub duration: Option<Span>,
    pub is_live: bool,
}

/// Elements of one kind at the three levels, the innermost first; an attribute or child of an inner
/// one replaces that of an outer one.
struct Inherited<'e, 't>(Vec<&'e Element<'t>>);

impl<'e, 't> Inherited<'e, 't> {
    fn attribute(&self, name: &str) -> Option<&'e str> {
        self.0.iter().find_map(|element| element.attribute(name))
    }

    fn number(&self, name: &'static str) -> Result<Option<u64>, FilmError> {
        let element = self.0.iter().find(|element| element.attribute(name).is_some());
        element.map_or(Ok(None), |element| element.number(name))
    }

    /// Returns a number that is not zero.
    fn positive(&self, name: &'static str) -> Result<Option<u64>, FilmError> {
        let number = self.number(name)?;
        match (number, self.0.first()) {
            (Some(0), Some(element)) => Err(element.invalid(name, "0")),
            _ => Ok(number),
        }
    }

    fn child(&self, name: &'e str) -> Option<&'e Element<'t>> {
        self.0.iter().find_map(|element| element.children(name).next())
    }
}

impl Addressing<'_, '_> {
    /// Returns the initialization and the segments, or the place of their index.
    pub fn read(&self) -> Result<(Option<Resource>, Listing), FilmError> {
        let of_level = |level: &Element<'_>| {
            KINDS.into_iter().find(|kind| level.children(kind).next().is_some())
        };
        let kind = self.levels.into_iter().find_map(of_level);
        let elements = |kind| {
            let all = self.levels.into_iter().filter_map(|level| level.children(kind).next());
            Inherited(all.collect())
        };
        match kind {
            Some(kind @ "SegmentTemplate") => self.template(&elements(kind)),
            Some(kind @ "SegmentList") => self.list(&elements(kind)),
            Some(kind) => self.file(&elements(kind)),
            None => self.file(&Inherited(Vec::new())),
        }
    }

    fn template(
        &self,
        elements: &Inherited<'_, '_>,
    ) -> Result<(Option<Resource>, Listing), FilmError> {
        let initialization = match elements.attribute("initialization") {
            Some(template) => {
                let url = template::fill(template, self.values(None))?;
                Some(Resource { url: self.resolved(&url)?, range: None })
            }
            None => self.initialization(elements)?,
        };
        let missing = FilmError::Missing { element: "SegmentTemplate", attribute: "media" };
        let media = elements.attribute("media").ok_or(missing)?;
        let first = elements.number("startNumber")?.unwrap_or(1);
        let timescale = elements.positive("timescale")?.unwrap_or(1);
        let mut segments = Segments::new(self.id);
        let mut push = |number: u64, ticks: u64, time: Range<Span>| {
            let url = template::fill(media, self.values(Some((number, ticks))))?;
            segments.push(Resource { url: self.resolved(&url)?, range: None }, time).map(|_| ())
        };
        if let Some(times) = self.timeline(elements, timescale)? {
            for (number, (ticks, time)) in (first..=u64::MAX).zip(times) {
                if let Some(time) = time {
                    push(number, ticks, time)?;
                }
            }
        } else if !self.is_live {
            let missing = FilmError::Missing { element: "SegmentTemplate", attribute: "duration" };
            let duration = elements.positive("duration")?.ok_or(missing)?;
            let period = self.duration.ok_or(FilmError::NoDuration);
            let last = elements.number("endNumber")?;
            let limit = last.map(|last| (last.saturating_add(1)).saturating_sub(first));
            let count = match (limit, period) {
                (Some(limit), Err(_)) => limit,
                (limit, period) => {
                    timeline::count(duration, timescale, period?).min(limit.unwrap_or(u64::MAX))
                }
            };
            if count > MAX_SEGMENTS as u64 {
                return Err(FilmError::TooManySegments { rendition: self.id.to_owned() });
            }
            for index in 0..count {
                let ticks = index.saturating_mul(duration);
                push(
                    first.saturating_add(index),
                    ticks,
                    self.constant(index, duration, timescale),
                )?;
            }
        }
        Ok((initialization, Listing::Segments(segments.finish(self.is_live)?)))
    }

    fn list(&self, elements: &Inherited<'_, '_>) -> Result<(Option<Resource>, Listing), FilmError> {
        let timescale = elements.positive("timescale")?.unwrap_or(1);
        let lists = elements.0.iter().find(|list| list.children("SegmentURL").next().is_some());
        let urls = lists.into_iter().flat_map(|list| list.children("SegmentURL"));
        let duration = elements.positive("duration")?;
        let mut times = self.timeline(elements, timescale)?.map(IntoIterator::into_iter);
        let mut segments = Segments::new(self.id);
        for (index, element) in (0u64..).zip(urls) {
            let time = match (&mut times, duration, self.duration) {
                (Some(times), _, _) => match times.next() {
                    Some((_, Some(time))) => time,
                    Some((_, None)) => continue,
                    None => return Err(FilmError::NoDuration),
                },
                (None, Some(duration), _) => self.constant(index, duration, timescale),
                (None, None, Some(period)) if index == 0 => Span::ZERO..period,
                (None, None, _) => return Err(FilmError::NoDuration),
            };
            let resource = self.resource(element, "media", "mediaRange")?;
            let segment = segments.push(resource, time)?;
            // An attribute of another namespace may have the same name and any value.
            segment.file_size = element
                .attribute("size")
                .and_then(|text| whole(text.trim_ascii()))
                .map(Size::from_bytes);
        }
        let listing = Listing::Segments(segments.finish(self.is_live)?);
        Ok((self.initialization(elements)?, listing))
    }

    /// Reads `SegmentBase`: a file with an index, or without one, as one segment.
    fn file(&self, elements: &Inherited<'_, '_>) -> Result<(Option<Resource>, Listing), FilmError> {
        let initialization = self.initialization(elements)?;
        let index = match (elements.child("RepresentationIndex"), elements.attribute("indexRange"))
        {
            (Some(index), _) => Some(self.resource(index, "sourceURL", "range")?),
            (None, Some(text)) => {
                let range = byte_range(text).ok_or_else(|| FilmError::Invalid {
                    element: "SegmentBase",
                    attribute: "indexRange",
                    value: text.to_owned(),
                })?;
                Some(Resource { url: self.base.clone(), range: Some(range) })
            }
            (None, None) => None,
        };
        let Some(index) = index else {
            let period = self.duration.ok_or(FilmError::NoDuration)?;
            let mut segments = Segments::new(self.id);
            let file = Resource { url: self.base.clone(), range: None };
            segments.push(file, Span::ZERO..period)?;
            return Ok((initialization, Listing::Segments(segments.finish(self.is_live)?)));
        };
        // Without an element, the initialization is everything before the index.
        let before = index.range.as_ref().map(|range| 0..range.start).filter(|it| !it.is_empty());
        let implied = before.map(|range| Resource { url: index.url.clone(), range: Some(range) });
        Ok((initialization.or(implied), Listing::Index(index)))
    }

    /// Returns the segments of the timeline, if there is one.
    fn timeline(
        &self,
        elements: &Inherited<'_, '_>,
        timescale: u64,
    ) -> Result<Option<Vec<Timed>>, FilmError> {
        let Some(timeline) = elements.child("SegmentTimeline") else { return Ok(None) };
        let offset = elements.number("presentationTimeOffset")?.unwrap_or(0);
        let end = self.duration.map(|period| {
            let ticks = u128::from(period.as_nanos()) * u128::from(timescale) / 1_000_000_000;
            u64::try_from(ticks).unwrap_or(u64::MAX).saturating_add(offset)
        });
        let times = timeline::of_timeline(timeline, end, self.is_live, self.id)?;
        let at = |ticks: u64| span(ticks.saturating_sub(offset), timescale);
        let times = times.into_iter().map(|ticks| {
            let is_played = ticks.end > offset;
            (ticks.start, is_played.then(|| at(ticks.start)..at(ticks.end)))
        });
        Ok(Some(times.collect()))
    }

    /// Returns the time of a segment of constant duration. The last one ends with the period.
    fn constant(&self, index: u64, duration: u64, timescale: u64) -> Range<Span> {
        let at = |index: u64| span(index.saturating_mul(duration), timescale);
        let end = at(index.saturating_add(1));
        at(index)..self.duration.map_or(end, |period| period.min(end))
    }

    fn initialization(&self, elements: &Inherited<'_, '_>) -> Result<Option<Resource>, FilmError> {
        let element = elements.child("Initialization");
        element.map(|element| self.resource(element, "sourceURL", "range")).transpose()
    }

    /// Returns the resource that two attributes name; without a URL it is that of the representation.
    fn resource(
        &self,
        element: &Element<'_>,
        url: &'static str,
        range: &'static str,
    ) -> Result<Resource, FilmError> {
        let url = self.resolved(element.attribute(url).unwrap_or_default())?;
        let range = match element.attribute(range) {
            None => None,
            Some(text) => Some(byte_range(text).ok_or_else(|| element.invalid(range, text))?),
        };
        Ok(Resource { url, range })
    }

    fn resolved(&self, written: &str) -> Result<String, FilmError> {
        resolved(&self.base, written)
    }

    fn values(&self, number_and_time: Option<(u64, u64)>) -> Values<'_> {
        Values { id: self.id, bandwidth: self.bandwidth, number_and_time }
    }
}

/// Reads `FIRST-LAST`, both included.
fn byte_range(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.trim_ascii().split_once('-')?;
    let (first, last) = (whole(first)?, whole(last)?);
    (first <= last).then_some(first..last.checked_add(1)?)
}
