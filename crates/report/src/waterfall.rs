//! Chart of the requests of page loads: one row per request, time to the right.

use super::bars::{WIDTH, legend};
use super::svg::{Anchor, Drawing, marks, number};

const LEFT: f64 = 250.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 34.0;
const HEAD: f64 = 30.0;
const ROW: f64 = 13.0;
const BAR: f64 = 9.0;
const GAP: f64 = 18.0;
const FOOTER: f64 = 40.0;
/// With more rows in a panel, no reader finds one.
const MAX_ROWS: usize = 150;
/// Characters of a label that fit left of the plot.
const MAX_LABEL: usize = 36;

/// A chart of several loads with a common time axis.
pub struct Waterfall {
    pub title: String,
    pub description: String,
    /// Name of the horizontal axis, with its unit.
    pub time_label: String,
    /// Names of the colours.
    pub legend: Vec<String>,
    pub panels: Vec<Panel>,
}

/// One load.
pub struct Panel {
    pub label: String,
    /// Smaller text at the right end of the heading.
    pub about: String,
    pub rows: Vec<Row>,
}

/// One request and its response. The pale part of the bar is the wait.
pub struct Row {
    pub label: String,
    /// Index in [`Waterfall::legend`].
    pub colour: usize,
    pub start: f64,
    /// First byte of the response. `None` if none came.
    pub first_byte: Option<f64>,
    pub end: f64,
}

impl Waterfall {
    pub fn draw(&self) -> Drawing {
        let heights: Vec<f64> =
            self.panels.iter().map(|panel| HEAD + panel.shown() as f64 * ROW + GAP).collect();
        let height = TOP + heights.iter().sum::<f64>() + FOOTER;
        let mut drawing = Drawing::new(WIDTH, height, &self.title, &self.description);
        let ends = self.panels.iter().flat_map(|panel| &panel.rows).map(|row| row.end);
        let (step, count) = marks(ends.filter(|end| end.is_finite()).fold(0.0, f64::max), 7);
        let end = step * count as f64;
        let right = WIDTH - RIGHT;
        let x = |time: f64| LEFT + (time / end).clamp(0.0, 1.0) * (right - LEFT);
        let next = legend(&mut drawing, &self.legend, (LEFT, 18.0));
        drawing.rectangle((next, 8.0), (12.0, 12.0), 2.0, "open key");
        drawing.text((next + 18.0, 18.0), Anchor::Start, "tick", "waiting for the response");
        let mut top = TOP;
        for (panel, height) in self.panels.iter().zip(heights) {
            let floor = top + height - GAP;
            for index in 0..=count {
                let at = x(step * index as f64);
                let class = if index == 0 { "axis" } else { "grid" };
                drawing.line((at, top + HEAD - 4.0), (at, floor), class);
            }
            panel.draw(&mut drawing, top, x);
            top += height;
        }
        for index in 0..=count {
            let value = step * index as f64;
            drawing.text((x(value), top + 2.0), Anchor::Middle, "tick", &number(value));
        }
        drawing.text((x(end / 2.0), top + 20.0), Anchor::Middle, "tick", &self.time_label);
        drawing
    }
}

impl Panel {
    fn shown(&self) -> usize {
        self.rows.len().min(MAX_ROWS)
    }

    fn draw(&self, drawing: &mut Drawing, top: f64, x: impl Fn(f64) -> f64) {
        drawing.text((14.0, top + HEAD - 12.0), Anchor::Start, "label strong", &self.label);
        let rest = self.rows.len() - self.shown();
        let about = match rest {
            0 => self.about.clone(),
            rest => format!("{}; {rest} more requests are not shown", self.about),
        };
        drawing.text((WIDTH - RIGHT, top + HEAD - 12.0), Anchor::End, "faint", &about);
        for (index, row) in self.rows.iter().take(MAX_ROWS).enumerate() {
            let y = top + HEAD + index as f64 * ROW;
            drawing.text((LEFT - 8.0, y + BAR), Anchor::End, "faint", &shortened(&row.label));
            let fill = format!("fill-{}", row.colour);
            let first = row.first_byte.unwrap_or(row.end).clamp(row.start, row.end.max(row.start));
            // Half a unit is the least that can be seen.
            let width = |from: f64, to: f64| (x(to) - x(from)).max(0.5);
            drawing.rectangle(
                (x(row.start), y),
                (width(row.start, row.end), BAR),
                1.0,
                &format!("open {fill}"),
            );
            if row.first_byte.is_some() {
                drawing.rectangle((x(first), y), (width(first, row.end), BAR), 1.0, &fill);
            }
        }
    }
}

/// The end of a URL distinguishes it better than its middle.
fn shortened(label: &str) -> String {
    let count = label.chars().count();
    if count <= MAX_LABEL {
        return label.to_owned();
    }
    let head: String = label.chars().take(MAX_LABEL / 2 - 1).collect();
    let tail: String = label.chars().skip(count - MAX_LABEL / 2).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(start: f64, first_byte: Option<f64>, end: f64) -> Row {
        Row { label: "/<a>".to_owned(), colour: 0, start, first_byte, end }
    }

    fn chart(rows: Vec<Row>) -> String {
        let chart = Waterfall {
            title: "Loads".to_owned(),
            description: String::new(),
            time_label: "s".to_owned(),
            legend: vec!["answered".to_owned()],
            panels: vec![Panel { label: "one".to_owned(), about: "fast".to_owned(), rows }],
        };
        chart.draw().standalone()
    }

    #[test]
    fn a_request_waits_and_receives() {
        let svg = chart(vec![row(0.0, Some(1.0), 4.0), row(1.0, None, 2.0)]);
        // Each waits; one response came.
        assert_eq!(svg.matches("class=\"open fill-0\"").count(), 2);
        assert_eq!(svg.matches("class=\"fill-0\"").count(), 2, "one is the legend's");
        assert!(svg.contains("/&lt;a&gt;"), "{svg}");
    }

    #[test]
    fn long_loads_and_labels_are_cut() {
        let svg = chart((0..200).map(|_| row(0.0, Some(f64::NAN), f64::INFINITY)).collect());
        assert!(svg.contains("50 more requests are not shown"));
        assert!(chart(Vec::new()).contains("<svg"));
        let long = "a".repeat(30) + &"b".repeat(30);
        assert_eq!(shortened(&long).chars().count(), MAX_LABEL);
    }
}
