//! Chart of the byte ranges of a file: time to the right, offset up, one colour per link.
//!
//! Lines show received bytes. The pale area above a line shows requested bytes that are not
//! received yet. The column at the right shows the complete file, in the colour of the link that
//! delivered each part first.

use super::bars::{WIDTH, legend};
use super::svg::{Anchor, Drawing, marks, number};

const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const HEAD: f64 = 30.0;
const PANEL: f64 = 190.0;
const GAP: f64 = 18.0;
const FOOTER: f64 = 40.0;
/// Width of the column that shows the complete file.
const COLUMN: f64 = 12.0;
const LINE_HEIGHT: f64 = 15.0;
/// Points at a smaller distance cannot be distinguished.
const MIN_DISTANCE: f64 = 0.5;
/// With more requests in a panel, their marks would hide the lines.
const MAX_MARKED_REQUESTS: usize = 60;

/// A chart of byte ranges of a file over time.
pub struct Ranges {
    pub title: String,
    pub description: String,
    /// Name of the horizontal axis, with its unit.
    pub time_label: String,
    /// Name of the vertical axis, with its unit.
    pub offset_label: String,
    /// Size of the file, in the unit of `place`.
    pub size: f64,
    /// Names of the colours.
    pub legend: Vec<String>,
    pub panels: Vec<Panel>,
}

/// The transfer of one contender.
pub struct Panel {
    pub label: String,
    /// Smaller text at the right end of the heading.
    pub about: String,
    /// In the order in which they were sent.
    pub requests: Vec<Request>,
    /// Text right of the panel.
    pub notes: Vec<Note>,
    /// End of the transfer, and its text.
    pub end: Option<(f64, String)>,
    pub strong: bool,
}

/// One request and the received bytes of its response.
#[derive(Clone)]
pub struct Request {
    /// Index in [`Ranges::legend`].
    pub colour: usize,
    /// Time at which the request was sent.
    pub sent: f64,
    /// Time of the end of the response.
    pub end: f64,
    /// Start and end of the requested range.
    pub from: f64,
    pub to: f64,
    /// Changes of the end of the range: time and new end.
    pub changes: Vec<(f64, f64)>,
    /// In the order of time.
    pub pieces: Vec<Piece>,
}

/// Bytes received between two times.
#[derive(Clone, Copy)]
pub struct Piece {
    pub start: f64,
    pub end: f64,
    pub from: f64,
    pub to: f64,
}

/// Text about one link.
pub struct Note {
    pub colour: usize,
    pub text: String,
    /// Smaller text below `words`.
    pub details: Vec<String>,
}

type Points = Vec<(f64, f64)>;

impl Ranges {
    pub fn draw(&self) -> Drawing {
        let row = HEAD + PANEL + GAP;
        let height = TOP + row * self.panels.len() as f64 - GAP + FOOTER;
        let mut drawing = Drawing::new(WIDTH, height, &self.title, &self.description);
        let times = self.panels.iter().flat_map(Panel::times);
        let (step, count) = marks(times.filter(|time| time.is_finite()).fold(0.0, f64::max), 8);
        let end = step * count as f64;
        let size = self.size.max(f64::MIN_POSITIVE);
        let right = WIDTH - RIGHT;
        let x = |time: f64| LEFT + (time / end).clamp(0.0, 1.0) * (right - LEFT);
        self.draw_legend(&mut drawing);
        for (index, panel) in self.panels.iter().enumerate() {
            let head = TOP + row * index as f64;
            let (top, floor) = (head + HEAD, head + HEAD + PANEL);
            let y = |place: f64| floor - (place / size).clamp(0.0, 1.0) * PANEL;
            for index in 0..=count {
                let at = x(step * index as f64);
                drawing.line((at, top), (at, floor), if index == 0 { "axis" } else { "grid" });
            }
            let (place_step, place_count) = marks(size, 4);
            let places = (0..=place_count).map(|index| place_step * index as f64);
            // The scale ends at the size of the file, not at a mark.
            for place in places.filter(|place| *place <= size * 1.001) {
                let class = if place == 0.0 { "axis" } else { "grid" };
                drawing.line((LEFT, y(place)), (right, y(place)), class);
                let at = (LEFT - 7.0, y(place) + 4.0);
                drawing.text(at, Anchor::End, "tick", &number(place));
            }
            drawing.vertical_text((16.0, f64::midpoint(top, floor)), "tick", &self.offset_label);
            panel.draw(&mut drawing, head, self.size, x, y);
        }
        let floor = height - FOOTER;
        for index in 0..=count {
            let value = step * index as f64;
            drawing.text((x(value), floor + 16.0), Anchor::Middle, "tick", &number(value));
        }
        drawing.text((x(end / 2.0), floor + 34.0), Anchor::Middle, "tick", &self.time_label);
        drawing
    }

    /// Draws the legend of colours and shapes.
    fn draw_legend(&self, drawing: &mut Drawing) {
        let x = legend(drawing, &self.legend, (LEFT, 18.0));
        drawing.rectangle((x, 8.0), (12.0, 12.0), 2.0, "open key");
        drawing.text((x + 18.0, 18.0), Anchor::Start, "tick", "requested, not received yet");
        if self.panels.iter().any(Panel::has_marks) {
            drawing.circle((x + 182.0, 14.0), 3.5, "sent key");
            drawing.text((x + 193.0, 18.0), Anchor::Start, "tick", "request sent");
        }
    }
}

impl Panel {
    fn times(&self) -> impl Iterator<Item = f64> {
        let over = self.requests.iter().map(|request| request.end);
        over.chain(self.end.as_ref().map(|end| end.0))
    }

    /// Whether each request has a mark.
    fn has_marks(&self) -> bool {
        (1..=MAX_MARKED_REQUESTS).contains(&self.requests.len())
    }

    fn draw(
        &self,
        drawing: &mut Drawing,
        head: f64,
        size: f64,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
    ) {
        let (top, floor) = (head + HEAD, head + HEAD + PANEL);
        let class = if self.strong { "label strong" } else { "label" };
        drawing.text((LEFT, top - 9.0), Anchor::Start, class, &self.label);
        // Aligned right: the width of the label depends on the reader's fonts.
        drawing.text((WIDTH - RIGHT, top - 9.0), Anchor::End, "faint", &self.about);
        let colours = self.requests.iter().map(|request| request.colour + 1).max().unwrap_or(0);
        let own = |colour: usize| self.requests.iter().filter(move |r| r.colour == colour);
        // All areas are drawn before all lines, whichever link they belong to.
        for colour in 0..colours {
            let open: Vec<Points> =
                own(colour).map(|request| request.pending_area(size, &x, &y)).collect();
            drawing.paths(&open, &format!("open fill-{colour}"));
        }
        if let Some((time, _)) = &self.end {
            drawing.line((x(*time), top), (x(*time), floor), "end");
        }
        // In the order of time, so that no link hides another one if their lines overlap.
        for run in self.requests.chunk_by(|one, next| one.colour == next.colour) {
            let came: Vec<Points> =
                run.iter().flat_map(|request| request.received_lines(&x, &y)).collect();
            drawing.paths(&came, &format!("line came stroke-{}", run[0].colour));
        }
        if self.has_marks() {
            for request in &self.requests {
                let at = (x(request.sent), y(request.from));
                drawing.circle(at, 3.5, &format!("sent stroke-{}", request.colour));
            }
        }
        let column = WIDTH - RIGHT + 8.0;
        for (colour, low, high) in self.delivered_parts(size) {
            let (above, below) = (floor - high * PANEL, floor - low * PANEL);
            let class = format!("fill-{colour}");
            drawing.rectangle((column, above), (COLUMN, below - above), 0.0, &class);
        }
        self.draw_notes(drawing, (column + COLUMN + 10.0, top + 11.0));
    }

    fn draw_notes(&self, drawing: &mut Drawing, at: (f64, f64)) {
        let (x, mut y) = at;
        if let Some((_, words)) = &self.end {
            let class = if self.strong { "label strong" } else { "label" };
            drawing.text((x, y), Anchor::Start, class, words);
            y += 1.6 * LINE_HEIGHT;
        }
        for note in &self.notes {
            let class = format!("value ink-{}", note.colour);
            drawing.text((x, y), Anchor::Start, &class, &note.text);
            for more in &note.details {
                y += LINE_HEIGHT;
                drawing.text((x, y), Anchor::Start, "faint", more);
            }
            y += 1.5 * LINE_HEIGHT;
        }
    }

    /// Returns which link delivered each part of the file first: colour, start and end as fractions
    /// of the file. The resolution is [`MIN_DISTANCE`] pixels, for any number of pieces.
    fn delivered_parts(&self, size: f64) -> Vec<(usize, f64, f64)> {
        let rows = (PANEL / MIN_DISTANCE) as usize;
        let mut first: Vec<Option<(f64, usize)>> = vec![None; rows];
        for request in &self.requests {
            for piece in &request.pieces {
                // Rows whose middle is in the piece.
                let row = |place: f64| {
                    (place / size * rows as f64 - 0.5).ceil().clamp(0.0, rows as f64) as usize
                };
                for seen in &mut first[row(piece.from)..row(piece.to).max(row(piece.from))] {
                    if seen.is_none_or(|(at, _)| piece.end < at) {
                        *seen = Some((piece.end, request.colour));
                    }
                }
            }
        }
        let mut parts: Vec<(usize, f64, f64)> = Vec::new();
        for (index, seen) in first.into_iter().enumerate() {
            let Some((_, colour)) = seen else { continue };
            let (low, high) = (index as f64 / rows as f64, (index + 1) as f64 / rows as f64);
            match parts.last_mut() {
                Some((known, _, end)) if *known == colour && *end == low => *end = high,
                _ => parts.push((colour, low, high)),
            }
        }
        parts
    }
}

impl Request {
    /// Returns the lines of received bytes: one, unless the pieces have gaps.
    fn received_lines(&self, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> Vec<Points> {
        let mut lines: Vec<Points> = Vec::new();
        let mut reached = None;
        for piece in &self.pieces {
            let start = (x(piece.start), y(piece.from));
            match lines.last_mut() {
                Some(line) if reached == Some(piece.from) => line.push(start),
                _ => lines.push(vec![start]),
            }
            if let Some(line) = lines.last_mut() {
                line.push((x(piece.end), y(piece.to)));
            }
            reached = Some(piece.to);
        }
        lines.into_iter().map(thin_out).collect()
    }

    /// Returns the area between the received bytes and the end of the requested range.
    fn pending_area(&self, size: f64, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> Points {
        let mut lower = vec![(self.sent, self.from)];
        let mut reached = self.from;
        for piece in &self.pieces {
            lower.push((piece.start, reached));
            reached = reached.max(piece.to);
            lower.push((piece.end, reached));
        }
        lower.push((self.end, reached));
        let lower = thin_out(lower.into_iter().map(|(time, place)| (x(time), y(place))).collect());
        // Never below the received bytes: a server may send past a new end.
        let mut upper = vec![(self.sent, self.to.min(size))];
        for (at, to) in &self.changes {
            if let Some((_, before)) = upper.last().copied() {
                upper.extend([(*at, before), (*at, to.min(size))]);
            }
        }
        if let Some((_, before)) = upper.last().copied() {
            upper.push((self.end, before.max(reached)));
        }
        lower
            .into_iter()
            .chain(upper.into_iter().rev().map(|(time, place)| (x(time), y(place))))
            .collect()
    }
}

/// Removes points closer than [`MIN_DISTANCE`] to their predecessor, except the first and the last.
fn thin_out(points: Points) -> Points {
    let count = points.len();
    let mut kept: Points = Vec::new();
    for (index, point) in points.into_iter().enumerate() {
        let far = |(x, y): (f64, f64)| {
            (point.0 - x).abs() >= MIN_DISTANCE || (point.1 - y).abs() >= MIN_DISTANCE
        };
        if index + 1 == count || kept.last().is_none_or(|last| far(*last)) {
            kept.push(point);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
