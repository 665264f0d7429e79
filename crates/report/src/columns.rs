//! Column charts: counts of values in a fixed order.

use super::bars::WIDTH;
use super::svg::{Anchor, Drawing, marks, number};

const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 24.0;
const PLOT: f64 = 170.0;
const FOOTER: f64 = 40.0;
/// Maximum width of a column.
const MAX_COLUMN_WIDTH: f64 = 36.0;
/// Space that the text of a mark takes.
const MARK_WIDTH: f64 = 24.0;

/// A chart of counts per value, as vertical columns.
pub struct Columns {
    pub title: String,
    pub description: String,
    /// Name of the values.
    pub x_label: String,
    /// Name of the counts.
    pub y_label: String,
    /// Each value and its count.
    pub columns: Vec<(String, u64)>,
}

impl Columns {
    pub fn draw(&self) -> Drawing {
        let mut drawing = Drawing::new(WIDTH, TOP + PLOT + FOOTER, &self.title, &self.description);
        let max = self.columns.iter().map(|column| column.1).max().unwrap_or(0);
        let (step, count) = marks(max as f64, 4);
        let (end, right) = (step * count as f64, WIDTH - RIGHT);
        let floor = TOP + PLOT;
        for index in 0..=count {
            let value = step * index as f64;
            // Counts have no fractional marks.
            if value.fract() != 0.0 {
                continue;
            }
            let y = floor - value / end * PLOT;
            drawing.line((LEFT, y), (right, y), if index == 0 { "axis" } else { "grid" });
            drawing.text((LEFT - 8.0, y + 4.0), Anchor::End, "tick", &number(value));
        }
        let room = (right - LEFT) / self.columns.len().max(1) as f64;
        let width = (room * 0.8).min(MAX_COLUMN_WIDTH);
        let every = ((MARK_WIDTH / room).ceil() as usize).max(1);
        for (index, (words, value)) in self.columns.iter().enumerate() {
            let middle = LEFT + room * (index as f64 + 0.5);
            let height = *value as f64 / end * PLOT;
            if *value > 0 {
                let at = (middle - width / 2.0, floor - height);
                drawing.rectangle(at, (width, height), 2.0, "fill-0");
            }
            let is_last = index + 1 == self.columns.len();
            if is_last || index % every == 0 && index + every < self.columns.len() {
                drawing.text((middle, floor + 16.0), Anchor::Middle, "tick", words);
            }
        }
        let middle = LEFT + (right - LEFT) / 2.0;
        drawing.text((middle, floor + 34.0), Anchor::Middle, "tick", &self.x_label);
        drawing.vertical_text((12.0, TOP + PLOT / 2.0), "tick", &self.y_label);
        drawing
    }
}
