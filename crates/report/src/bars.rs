//! Bar charts: one bar per contender, divided into coloured parts.

use super::svg::{Anchor, Drawing, marks, number};

/// Left edge of the plot; names are left of it. Timelines use the same edge, so that charts align.
pub const LEFT: f64 = 176.0;
/// Space right of the plot, for the text after a bar or a line.
pub const RIGHT: f64 = 118.0;
/// Width of every chart.
pub const WIDTH: f64 = 860.0;

const TOP: f64 = 34.0;
const ROW: f64 = 46.0;
const BAR_HEIGHT: f64 = 22.0;
const FOOTER: f64 = 40.0;
/// Minimum width of a part that contains its percentage.
const MIN_LABEL_WIDTH: f64 = 44.0;

/// A chart of horizontal bars, each divided into coloured parts.
pub struct Bars {
    pub title: String,
    pub description: String,
    /// Name of the values, with their unit.
    pub axis: String,
    /// A reference value and its name.
    pub mark: Option<(f64, String)>,
    /// Names of the colours.
    pub legend: Vec<String>,
    pub bars: Vec<Bar>,
}

/// One bar of a [`Bars`] chart.
pub struct Bar {
    pub label: String,
    /// Smaller text below the label.
    pub about: String,
    /// `None` if there is no value; `words` then gives the reason.
    pub value: Option<f64>,
    /// Text after the bar, and further text in a fainter colour.
    pub annotations: (String, String),
    /// Parts of the value, one for each colour; their sum is 1.
    pub parts: Vec<f64>,
    /// Whether the bar is emphasized.
    pub strong: bool,
}

impl Bars {
    pub fn draw(&self) -> Drawing {
        let height = TOP + ROW * self.bars.len() as f64 + FOOTER;
        let mut drawing = Drawing::new(WIDTH, height, &self.title, &self.description);
        let greatest = self.bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
        let (step, count) = marks(greatest, 7);
        let end = step * count as f64;
        let x = |value: f64| LEFT + value / end * (WIDTH - LEFT - RIGHT);
        let floor = TOP + ROW * self.bars.len() as f64;
        for index in 0..=count {
            let value = step * index as f64;
            let class = if index == 0 { "axis" } else { "grid" };
            drawing.line((x(value), TOP), (x(value), floor), class);
            drawing.text((x(value), floor + 16.0), Anchor::Middle, "tick", &number(value));
        }
        drawing.text((x(end / 2.0), floor + 34.0), Anchor::Middle, "tick", &self.axis);
        legend(&mut drawing, &self.legend, (0.0, 18.0));
        // Drawn before the bars, because the line would cross their text.
        if let Some((value, name)) = &self.mark {
            drawing.line((x(*value), TOP - 8.0), (x(*value), floor), "mark");
            drawing.text((x(*value), TOP - 14.0), Anchor::Middle, "mark-label", name);
        }
        for (index, bar) in self.bars.iter().enumerate() {
            bar.draw(&mut drawing, TOP + ROW * index as f64, x);
        }
        drawing
    }
}

impl Bar {
    fn draw(&self, drawing: &mut Drawing, top: f64, x: impl Fn(f64) -> f64) {
        let middle = top + ROW / 2.0;
        label(drawing, &self.label, &self.about, middle, self.strong);
        let (Some(value), (words, fainter)) = (self.value, &self.annotations) else {
            let y = middle + 4.0;
            drawing.text((LEFT + 10.0, y), Anchor::Start, "faint", &self.annotations.0);
            return;
        };
        let above = middle - BAR_HEIGHT / 2.0;
        let mut from = x(0.0);
        for (colour, part) in self.parts.iter().enumerate().filter(|(_, part)| **part > 0.0) {
            let width = (x(value) - x(0.0)) * part;
            drawing.rectangle((from, above), (width, BAR_HEIGHT), 2.0, &format!("fill-{colour}"));
            // A part that fills the whole bar needs no percentage.
            if width > MIN_LABEL_WIDTH && *part < 1.0 {
                let at = (from + width / 2.0, middle + 4.0);
                drawing.text(at, Anchor::Middle, "on", &format!("{:.0} %", part * 100.0));
            }
            from += width;
        }
        let class = if self.strong { "value strong" } else { "value" };
        drawing.text((x(value) + 8.0, middle - 1.0), Anchor::Start, class, words);
        drawing.text((x(value) + 8.0, middle + 12.0), Anchor::Start, "faint", fainter);
    }
}

/// Draws the name of a row, left of the plot.
pub fn label(drawing: &mut Drawing, name: &str, about: &str, middle: f64, strong: bool) {
    let class = if strong { "label strong" } else { "label" };
    let x = LEFT - 14.0;
    drawing.text((x, middle - 2.0), Anchor::End, class, name);
    drawing.text((x, middle + 12.0), Anchor::End, "faint", about);
}

/// Draws the legend of the colours. Returns the horizontal position of the next entry.
pub fn legend(drawing: &mut Drawing, names: &[String], at: (f64, f64)) -> f64 {
    let (mut x, y) = at;
    for (colour, name) in names.iter().enumerate() {
        drawing.rectangle((x, y - 10.0), (12.0, 12.0), 2.0, &format!("fill-{colour}"));
        drawing.text((x + 18.0, y), Anchor::Start, "tick", name);
        x += 34.0 + 7.5 * name.chars().count() as f64;
    }
    x
}
