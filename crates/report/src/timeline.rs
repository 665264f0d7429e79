//! Charts over time: one panel per contender, one line per link, the same scales in all panels.

use super::bars::{LEFT, RIGHT, WIDTH, label, legend};
use super::svg::{Anchor, Drawing, marks, number};

const TOP: f64 = 34.0;
const PANEL: f64 = 92.0;
const GAP: f64 = 20.0;
const FOOTER: f64 = 40.0;
/// Distance between the texts after lines.
const LINE_HEIGHT: f64 = 14.0;

/// A chart of values over time, in panels with a common time axis.
pub struct Timeline {
    pub title: String,
    pub description: String,
    /// Name of the horizontal axis, with its unit.
    pub time_label: String,
    /// The unit of the values.
    pub unit: String,
    /// Names of the colours.
    pub legend: Vec<String>,
    pub panels: Vec<Panel>,
}

/// The lines of one contender.
pub struct Panel {
    pub label: String,
    pub about: String,
    /// Points of each line, by colour; a line without points is not drawn.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// The sum of all lines; empty if there is only one.
    pub sum: Vec<(f64, f64)>,
    /// End of the transfer, and its text.
    pub end: Option<(f64, String)>,
    pub strong: bool,
}

impl Timeline {
    pub fn draw(&self) -> Drawing {
        let height = TOP + (PANEL + GAP) * self.panels.len() as f64 - GAP + FOOTER;
        let mut drawing = Drawing::new(WIDTH, height, &self.title, &self.description);
        let points = || {
            let panels = self.panels.iter();
            panels.flat_map(|panel| panel.lines.iter().flatten().chain(&panel.sum))
        };
        let ends = self.panels.iter().filter_map(|panel| panel.end.as_ref()).map(|end| end.0);
        let latest = points().map(|point| point.0).chain(ends).fold(0.0, f64::max);
        let greatest = points().map(|point| point.1).fold(0.0, f64::max);
        let (step, count) = marks(latest, 7);
        let end = step * count as f64;
        let (value_step, _) = marks(greatest, 3);
        // A little space above the greatest value, not the whole distance to the next mark.
        let ceiling = (greatest * 1.08).max(f64::MIN_POSITIVE);
        let x = |time: f64| LEFT + time / end * (WIDTH - LEFT - RIGHT);
        legend(&mut drawing, &self.legend, (0.0, 18.0));
        for (index, panel) in self.panels.iter().enumerate() {
            let top = TOP + (PANEL + GAP) * index as f64;
            let y = |value: f64| top + PANEL - value / ceiling * PANEL;
            for index in 0..=count {
                let at = x(step * index as f64);
                drawing.line((at, top), (at, top + PANEL), "grid");
            }
            let mut value = 0.0;
            while value <= ceiling {
                let class = if value == 0.0 { "axis" } else { "grid" };
                drawing.line((x(0.0), y(value)), (x(end), y(value)), class);
                let words = match value {
                    0.0 => "0".to_owned(),
                    _ => format!("{} {}", number(value), self.unit),
                };
                drawing.text((x(0.0) - 6.0, y(value) + 4.0), Anchor::End, "tick", &words);
                value += value_step;
            }
            panel.draw(&mut drawing, top, &self.unit, x, y);
        }
        let floor = height - FOOTER;
        for index in 0..=count {
            let value = step * index as f64;
            drawing.text((x(value), floor + 16.0), Anchor::Middle, "tick", &number(value));
        }
        drawing.text((x(end / 2.0), floor + 34.0), Anchor::Middle, "tick", &self.time_label);
        drawing
    }
}

impl Panel {
    fn draw(
        &self,
        drawing: &mut Drawing,
        top: f64,
        unit: &str,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
    ) {
        // Left of the numbers of the marks.
        let mut name = Drawing::new(0.0, 0.0, "", "");
        label(&mut name, &self.label, &self.about, top + PANEL / 2.0, self.strong);
        drawing.embed(&name, (-40.0, 0.0));
        let scaled = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
            points.iter().map(|(time, value)| (x(*time), y(*value))).collect()
        };
        if let Some((time, _)) = &self.end {
            drawing.line((x(*time), top), (x(*time), top + PANEL), "end");
        }
        let mut words: Vec<(f64, String, String)> = Vec::new();
        let mut behind = x(0.0);
        if !self.sum.is_empty() {
            drawing.path(&scaled(&self.sum), "line sum");
        }
        for (colour, points) in self.lines.iter().enumerate() {
            let scaled = scaled(points);
            drawing.area(&scaled, y(0.0), &format!("area fill-{colour}"));
            drawing.path(&scaled, &format!("line stroke-{colour}"));
            if let (Some(end), Some(value)) = (scaled.last(), points.last()) {
                drawing.circle(*end, 3.0, &format!("fill-{colour}"));
                let class = format!("value ink-{colour}");
                words.push((end.1 + 4.0, format!("{:.1} {unit}", value.1), class));
                behind = behind.max(end.0);
            }
        }
        if let Some((time, text)) = &self.end {
            words.push((top + 8.0, text.clone(), "value".to_owned()));
            behind = behind.max(x(*time));
        }
        words.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut lowest = f64::MIN;
        for (height, text, class) in words {
            let height = height.max(lowest);
            drawing.text((behind + 8.0, height), Anchor::Start, &class, &text);
            lowest = height + LINE_HEIGHT;
        }
    }
}
