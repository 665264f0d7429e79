//! SVG drawings with the few shapes that charts need.

use std::fmt::Write as _;

use crate::page::{CHART_STYLE, escape};

/// Position of the anchor in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture to which shapes are appended; later shapes cover earlier ones. Styles are classes of
/// `chart.css`, so that a drawing follows the reader's light or dark theme.
pub struct Drawing {
    pub width: f64,
    pub height: f64,
    title: String,
    description: String,
    body: String,
}

impl Drawing {
    /// Creates an empty drawing. Screen readers use the title and the description.
    pub fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        Self {
            width,
            height,
            title: title.to_owned(),
            description: description.to_owned(),
            body: String::new(),
        }
    }

    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// Draws text upwards, centred at a point.
    pub fn vertical_text(&mut self, at: (f64, f64), class: &str, text: &str) {
        let (x, y) = at;
        let _ = writeln!(
            self.body,
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" \
             class=\"{class}\">{}</text>",
            escape(text)
        );
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), radius: f64, class: &str) {
        let ((x, y), (width, height)) = (at, size);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"{radius}\" class=\"{class}\"/>"
        );
    }

    pub fn circle(&mut self, at: (f64, f64), radius: f64, class: &str) {
        let (x, y) = at;
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"/>"
        );
    }

    /// Draws a line through points.
    pub fn path(&mut self, points: &[(f64, f64)], class: &str) {
        self.paths(&[points], class);
    }

    /// Draws several lines as one shape, which is far smaller than one shape per line. With a fill,
    /// the lines are areas.
    pub fn paths(&mut self, lines: &[impl AsRef<[(f64, f64)]>], class: &str) {
        let mut data = String::new();
        for line in lines {
            for (index, (x, y)) in line.as_ref().iter().enumerate() {
                let letter = if index == 0 { 'M' } else { 'L' };
                let _ = write!(data, "{letter}{x:.1} {y:.1}");
            }
        }
        let _ = writeln!(self.body, "<path d=\"{data}\" class=\"{class}\"/>");
    }

    /// Draws the area between points and a height.
    pub fn area(&mut self, points: &[(f64, f64)], floor: f64, class: &str) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut outline = points.to_vec();
        outline.extend([(last.0, floor), (first.0, floor)]);
        self.path(&outline, class);
    }

    /// Inserts another drawing with its upper left corner at a point.
    pub fn embed(&mut self, other: &Self, at: (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<g transform=\"translate({:.1} {:.1})\">\n{}</g>",
            at.0, at.1, other.body
        );
    }

    /// Returns the markup for a page; `number` is the number of the figure on the page.
    pub fn inline(&self, number: usize) -> String {
        self.markup(&format!("figure-{number}"), "", "")
    }

    /// Returns a stand-alone SVG file with style sheet and background.
    pub fn standalone(&self) -> String {
        let style = format!("<style>\n{CHART_STYLE}</style>\n");
        let ground = "<rect width=\"100%\" height=\"100%\" rx=\"12\" class=\"ground\"/>\n";
        let more = " xmlns=\"http://www.w3.org/2000/svg\"";
        self.markup("picture", more, &format!("{style}{ground}"))
    }

    fn markup(&self, id: &str, more: &str, before: &str) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg{more} viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" class=\"chart\" \
             aria-labelledby=\"{id}-title {id}-desc\">\n\
             <title id=\"{id}-title\">{}</title>\n<desc id=\"{id}-desc\">{}</desc>\n{before}{}\
             </svg>\n",
            escape(&self.title),
            escape(&self.description),
            self.body
        )
    }
}

/// Returns a scale from 0 to at least `max` with round marks: the distance of the marks and their
/// number without 0.
pub fn marks(max: f64, about: usize) -> (f64, usize) {
    if !max.is_finite() || max <= 0.0 {
        return (1.0, 1);
    }
    let rough = max / about.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 4.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    // A value less than a thousandth of a step beyond a mark is a rounding error.
    (step, ((max / step - 0.001).ceil() as usize).max(1))
}

/// Formats the number of a mark with at most two decimals and no trailing zeros.
pub fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_reach_the_greatest_value() {
        assert_eq!(marks(13.7, 7), (2.0, 7));
        assert_eq!(marks(8.0, 2), (4.0, 2));
        assert_eq!(marks(8.6, 3), (4.0, 3));
        assert_eq!(marks(8.0, 4), (2.0, 4));
        assert_eq!(marks(0.3, 3), (0.1, 3));
        assert_eq!(marks(0.0, 3), (1.0, 1));
        assert_eq!(marks(f64::NAN, 3), (1.0, 1));
        assert_eq!([number(2.0), number(0.25), number(10.0)], ["2", "0.25", "10"]);
    }

    #[test]
    fn a_drawing_stands_alone() {
        let mut drawing = Drawing::new(20.0, 10.0, "a & b", "c");
        drawing.text((1.0, 2.0), Anchor::End, "label", "<");
        let picture = drawing.standalone();
        assert!(picture.starts_with("<svg xmlns="), "{picture}");
        assert!(picture.contains("<style>") && picture.contains("a &amp; b"), "{picture}");
        assert!(picture.contains(">&lt;</text>"), "{picture}");
    }
}
