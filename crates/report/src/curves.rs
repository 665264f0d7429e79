//! Line charts: distributions, and values over time.

use super::bars::{WIDTH, legend};
use super::svg::{Anchor, Drawing, marks, number};

const LEFT: f64 = 78.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 40.0;
const PLOT: f64 = 210.0;
const FOOTER: f64 = 40.0;
/// Points at a smaller distance cannot be distinguished.
const MIN_DISTANCE: f64 = 0.5;
/// A logarithmic scale of at most this many decades has marks between the decades.
const MAX_SUBDIVIDED_DECADES: f64 = 2.0;

/// A chart of lines over a linear or logarithmic axis.
pub struct Curves {
    pub title: String,
    pub description: String,
    pub x_axis: Axis,
    pub y_axis: Axis,
    pub lines: Vec<Line>,
}

/// Definition of a scale.
pub struct Axis {
    /// Name of the values; with the unit, if the marks have none.
    pub name: String,
    /// Whether each mark is ten times the previous one; the scale then has no zero.
    pub is_logarithmic: bool,
    /// Minimum end of the scale.
    pub min_end: Option<f64>,
    /// Formats the text of a mark.
    pub format: fn(f64) -> String,
}

/// One line; the lines take the colours in order.
pub struct Line {
    pub name: String,
    /// Each value holds from its point to the next one.
    pub points: Vec<(f64, f64)>,
    /// Whether the area below the line is shaded.
    pub is_filled: bool,
}

impl Axis {
    /// Creates a scale from zero with plain numbers.
    pub fn linear(name: &str) -> Self {
        Self { name: name.to_owned(), is_logarithmic: false, min_end: None, format: number }
    }

    /// Creates a scale from 0 to 100 % for fractions of 1.
    pub fn percent(name: &str) -> Self {
        let words = |part: f64| format!("{} %", number(part * 100.0));
        Self { name: name.to_owned(), is_logarithmic: false, min_end: Some(1.0), format: words }
    }

    /// Creates a logarithmic scale with a mark for each power of ten.
    pub fn logarithmic(name: &str, words: fn(f64) -> String) -> Self {
        Self { name: name.to_owned(), is_logarithmic: true, min_end: None, format: words }
    }

    /// Computes the scale and its marks for these values; `about` is the approximate number of
    /// marks of a linear scale.
    fn scale(&self, values: impl Iterator<Item = f64>, about: usize) -> Scale {
        let values = values.filter(|value| value.is_finite());
        if !self.is_logarithmic {
            let (step, count) = marks(values.fold(self.min_end.unwrap_or(0.0), f64::max), about);
            let marks = (0..=count).map(|index| step * index as f64).collect();
            return Scale { from: 0.0, to: step * count as f64, is_logarithmic: false, marks };
        }
        let (mut min, mut max) = (f64::MAX, f64::MIN);
        for value in values.filter(|value| *value > 0.0) {
            (min, max) = (min.min(value), max.max(value));
        }
        if min > max {
            (min, max) = (1.0, 10.0);
        }
        // A value on a mark has a rounding error.
        let (from, to) = ((min.log10() + 1e-9).floor(), (max.log10() - 1e-9).ceil());
        let to = to.max(from + 1.0);
        let factors: &[f64] =
            if to - from <= MAX_SUBDIVIDED_DECADES { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut marks = Vec::new();
        for decade in from as i32..=to as i32 {
            marks.extend(factors.iter().map(|factor| factor * 10f64.powi(decade)));
        }
        marks.retain(|mark| mark.log10() <= to + 1e-9);
        Scale { from, to, is_logarithmic: true, marks }
    }
}

struct Scale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    marks: Vec<f64>,
}

impl Scale {
    /// Returns the position of a value, from 0 to 1.
    fn position(&self, value: f64) -> f64 {
        let value = if self.is_logarithmic { value.log10() } else { value };
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

impl Curves {
    pub fn draw(&self) -> Drawing {
        let mut drawing = Drawing::new(WIDTH, TOP + PLOT + FOOTER, &self.title, &self.description);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = self.x_axis.scale(points().map(|point| point.0), 8);
        let up = self.y_axis.scale(points().map(|point| point.1), 4);
        let x = |value: f64| LEFT + across.position(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| TOP + PLOT - up.position(value) * PLOT;
        let names: Vec<String> = self.lines.iter().map(|line| line.name.clone()).collect();
        if names.iter().any(|name| !name.is_empty()) {
            legend(&mut drawing, &names, (LEFT, 16.0));
        }
        for mark in &across.marks {
            let class = if *mark == 0.0 { "axis" } else { "grid" };
            drawing.line((x(*mark), TOP), (x(*mark), TOP + PLOT), class);
            let at = (x(*mark), TOP + PLOT + 16.0);
            drawing.text(at, Anchor::Middle, "tick", &(self.x_axis.format)(*mark));
        }
        for mark in &up.marks {
            let class = if *mark == 0.0 { "axis" } else { "grid" };
            drawing.line((LEFT, y(*mark)), (WIDTH - RIGHT, y(*mark)), class);
            let at = (LEFT - 8.0, y(*mark) + 4.0);
            drawing.text(at, Anchor::End, "tick", &(self.y_axis.format)(*mark));
        }
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        drawing.text((middle, TOP + PLOT + 34.0), Anchor::Middle, "tick", &self.x_axis.name);
        drawing.vertical_text((12.0, TOP + PLOT / 2.0), "tick", &self.y_axis.name);
        for (colour, line) in self.lines.iter().enumerate() {
            let steps = steps(line.points.iter().map(|(a, u)| (x(*a), y(*u))));
            if line.is_filled {
                drawing.area(&steps, y(0.0), &format!("area fill-{colour}"));
            }
            drawing.path(&steps, &format!("line stroke-{colour}"));
        }
        drawing
    }
}

/// Converts points to steps: each value holds until the next point.
fn steps(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut steps: Vec<(f64, f64)> = Vec::new();
    let mut points = points.peekable();
    while let Some((x, y)) = points.next() {
        let Some((_, before)) = steps.last().copied() else {
            steps.push((x, y));
            continue;
        };
        let drawn = steps.iter().rev().nth(1).map_or(f64::MIN, |point| point.0);
        let is_last = points.peek().is_none();
        if x - drawn < MIN_DISTANCE && !is_last {
            // The step would be invisible; the value continues from here.
            if let Some(last) = steps.last_mut() {
                last.1 = y;
            }
            continue;
        }
        if (y - before).abs() < f64::EPSILON && !is_last {
            continue;
        }
        steps.extend([(x, before), (x, y)]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next_point() {
        let points = [(0.0, 1.0), (10.0, 1.0), (20.0, 3.0), (30.0, 2.0)];
        let expected = [(0.0, 1.0), (20.0, 1.0), (20.0, 3.0), (30.0, 3.0), (30.0, 2.0)];
        assert_eq!(steps(points.into_iter()), expected);
        let many = steps((0..100_000).map(|n| (f64::from(n) / 1_000.0, f64::from(n))));
        assert!(many.len() < 500, "{}", many.len());
        assert_eq!(many.last(), Some(&(99.999, 99_999.0)));
    }

    #[test]
    fn powers_of_ten_have_marks_between_them_where_they_are_few() {
        let axis = Axis::logarithmic("", number);
        let marks = |values: &[f64]| axis.scale(values.iter().copied(), 8).marks;
        let near = |one: &[f64], other: &[f64]| {
            one.len() == other.len()
                && one.iter().zip(other).all(|(a, b)| (a / b - 1.0).abs() < 1e-9)
        };
        assert!(near(&marks(&[20.0, 40.0]), &[10.0, 20.0, 50.0, 100.0]));
        assert!(near(&marks(&[1.0, 10_000.0]), &[1.0, 10.0, 100.0, 1_000.0, 10_000.0]));
        assert!(near(&marks(&[100.0]), &[100.0, 200.0, 500.0, 1_000.0]));
        assert!(near(&marks(&[0.0, f64::NAN]), &[1.0, 2.0, 5.0, 10.0]));
        let scale = axis.scale([1.0, 100.0].into_iter(), 8);
        assert_eq!(
            [0.0, 1.0, 10.0, 100.0, 1e9].map(|v| scale.position(v)),
            [0.0, 0.0, 0.5, 1.0, 1.0]
        );
    }
}
