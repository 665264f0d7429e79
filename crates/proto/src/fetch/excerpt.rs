//! Excerpts: a part of an object, fetched as if it were the whole object.
//!
//! The core counts offsets from the start of the excerpt. This module is the only place that knows
//! the offsets of the object itself: it shifts the ranges of requests, and describes the excerpt
//! from the response heads of the object.

use super::request::RequestKind;
use super::{
    ContentRange, Fetch, FetchFailure, Head, Output, PathError, PathErrorKind, Range, RequestId,
    UnusableResponse,
};

/// A part of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Excerpt {
    /// Offset of its first byte.
    pub start: u64,
    /// One past its last byte; `None` for the end of the object. An excerpt ends at the end of the
    /// object at the latest.
    pub end: Option<u64>,
}

impl Excerpt {
    /// The length, if the object is long enough; `None` if the excerpt has no end of its own.
    pub fn length(self) -> Option<u64> {
        Some(self.end?.saturating_sub(self.start))
    }

    /// The range of the object for a range of the excerpt; `None` is the whole excerpt.
    fn object_range(self, range: Option<Range>) -> Range {
        let end = self.end.unwrap_or(u64::MAX);
        let whole = Range::new(self.start, end);
        range.map_or(whole, |range| {
            let shift = |at: u64| self.start.saturating_add(at).min(end);
            Range::new(shift(range.start), shift(range.end))
        })
    }

    /// Length of the excerpt of an object with this length.
    fn length_of(self, object: u64) -> u64 {
        self.end.map_or(object, |end| end.min(object)).saturating_sub(self.start)
    }

    /// Describes the excerpt instead of the object. The answer to a request for the whole excerpt is
    /// its complete response (200), not a part.
    fn head(self, mut head: Head, is_whole_excerpt: bool) -> Head {
        if head.is_whole() {
            head.length = head.length.map(|length| self.length_of(length));
        }
        let Some(Some(ContentRange { range, length: total })) = head.content_range else {
            return head;
        };
        let Some(range) = range.filter(|range| range.start >= self.start) else {
            // An excerpt past the end is refused, and is not an empty object.
            let length = total.map(|total| self.length_of(total)).filter(|length| *length > 0);
            head.content_range = Some(length.map(|_| ContentRange { range: None, length }));
            return head;
        };
        let range = Range::new(range.start - self.start, range.end - self.start);
        // A server need not know the length of the object.
        let length = total.map_or_else(
            || self.length().or(is_whole_excerpt.then_some(range.end)),
            |total| Some(self.length_of(total)),
        );
        if is_whole_excerpt
            && head.status == 206
            && range.start == 0
            && Some(range.end) == length
            && head.length.is_none_or(|length| length == range.len())
        {
            return Head { status: 200, length, content_range: None, ..head };
        }
        head.content_range = Some(Some(ContentRange { range: Some(range), length }));
        head
    }
}

impl Fetch {
    /// Requests the range of the object instead of that of the excerpt.
    pub(super) fn for_object(&self, output: Output) -> Output {
        let Some(excerpt) = self.config.excerpt else { return output };
        match output {
            Output::Request { request, path, range, if_range } => {
                let range = Some(excerpt.object_range(range));
                Output::Request { request, path, range, if_range }
            }
            Output::Check { request, path, range, if_range } => {
                let range = excerpt.object_range(Some(range));
                Output::Check { request, path, range, if_range }
            }
            other => other,
        }
    }

    /// Describes the excerpt by the head of a response. `None` if the response has the whole object
    /// although a part was requested: then the path, or the fetch, has failed.
    pub(super) fn on_object_head(
        &mut self,
        now: manyways_unit::Time,
        id: RequestId,
        head: Head,
    ) -> Option<Head> {
        let Some(excerpt) = self.config.excerpt else { return Some(head) };
        let kind = self.requests.get(&id).map(|request| request.kind);
        let is_whole_object = head.is_whole();
        let is_unproved = matches!(kind, Some(RequestKind::Whole | RequestKind::Range));
        if is_whole_object && is_unproved && self.object.is_unknown() {
            self.fail(FetchFailure::RangesIgnored);
            return None;
        }
        if is_whole_object && is_unproved {
            let words = UnusableResponse::NoRanges.to_string();
            let error = PathError::permanent(PathErrorKind::UnusableResponse, words);
            self.on_request_failed(now, id, error);
            return None;
        }
        Some(excerpt.head(head, kind == Some(RequestKind::Whole)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, length: u64) -> Head {
        let content_range = Some(ContentRange::parse(text.as_bytes()));
        Head { status: 206, length: Some(length), content_range, ..Head::default() }
    }

    #[test]
    fn ranges_are_shifted_and_end_with_the_excerpt() {
        let excerpt = Excerpt { start: 100, end: Some(200) };
        assert_eq!(excerpt.object_range(None), Range::new(100, 200));
        assert_eq!(excerpt.object_range(Some(Range::new(10, 20))), Range::new(110, 120));
        assert_eq!(excerpt.object_range(Some(Range::new(0, u64::MAX))), Range::new(100, 200));
        let open = Excerpt { start: 100, end: None };
        assert_eq!(open.object_range(None), Range::new(100, u64::MAX));
        assert_eq!(open.object_range(Some(Range::new(10, u64::MAX))), Range::new(110, u64::MAX));
        assert_eq!((excerpt.length(), open.length()), (Some(100), None));
    }

    #[test]
    fn the_whole_excerpt_is_a_complete_response() {
        for (excerpt, text, length) in [
            (Excerpt { start: 100, end: Some(200) }, "bytes 100-199/1000", 100),
            (Excerpt { start: 100, end: Some(200) }, "bytes 100-199/*", 100),
            // The object is shorter.
            (Excerpt { start: 100, end: Some(200) }, "bytes 100-149/150", 50),
            (Excerpt { start: 100, end: None }, "bytes 100-149/150", 50),
            (Excerpt { start: 100, end: None }, "bytes 100-149/*", 50),
        ] {
            let head = excerpt.head(part(text, length), true);
            let found = (head.status, head.length, head.content_range);
            assert_eq!(found, (200, Some(length), None), "{text}");
        }
    }

    #[test]
    fn a_part_of_the_excerpt_remains_a_part() {
        let excerpt = Excerpt { start: 100, end: Some(200) };
        let says = |text: &str| Some(ContentRange::parse(text.as_bytes()));
        for (text, length, is_whole, shifted) in [
            ("bytes 110-119/1000", 10, false, "bytes 10-19/100"),
            ("bytes 110-119/*", 10, false, "bytes 10-19/100"),
            // Less than was requested, or another length than announced.
            ("bytes 100-149/1000", 50, true, "bytes 0-49/100"),
            ("bytes 100-199/1000", 99, true, "bytes 0-99/100"),
            // Not a part of the excerpt.
            ("bytes 10-19/1000", 10, false, "bytes */100"),
        ] {
            let head = excerpt.head(part(text, length), is_whole);
            assert_eq!((head.status, head.content_range), (206, says(shifted)), "{text}");
        }
        let refused = Head { status: 416, ..part("bytes */150", 0) };
        assert_eq!(excerpt.head(refused, true).content_range, says("bytes */50"));
        let refused = Head { status: 416, ..part("bytes */100", 0) };
        assert_eq!(excerpt.head(refused, true).content_range, Some(None));
        let whole = Head { status: 200, length: Some(150), ..Head::default() };
        assert_eq!(excerpt.head(whole, false).length, Some(50));
    }
}
