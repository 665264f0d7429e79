//! The text of a progress display; each line fits a terminal of at least 40 columns.

use manyways_unit::{Rate, Size, Span};

/// Longer names are shortened to this number of characters.
const MAX_NAME_LENGTH: usize = 10;
/// Maximum length of a bar; a longer one shows no more detail.
const MAX_BAR_LENGTH: usize = 40;
/// Width of all numbers after a bar.
const NUMBERS_WIDTH: usize = 51;
/// Minimum length of a bar with all numbers after it. With less room, some numbers are omitted.
const MIN_BAR_LENGTH: usize = 8;

/// Layout of the lines of a display.
#[derive(Clone, Copy)]
pub struct Layout {
    width: usize,
    name: usize,
    /// Length of all bars, with all numbers after them; `None` if there is no room for these.
    bar: Option<usize>,
}

/// Progress of one path.
pub struct PathLine<'a> {
    pub name: &'a str,
    pub bytes: Size,
    /// Length of the object; `None` if it is unknown.
    pub length: Option<Size>,
    /// `None` while no bytes arrive.
    pub rate: Option<Rate>,
    pub rtt: Option<Span>,
}

/// Progress of the whole transfer.
pub struct TotalLine {
    pub done: Size,
    pub length: Option<Size>,
    pub rate: Rate,
}

impl Layout {
    /// Creates the layout for paths with these names and lines of at most `width` characters.
    pub fn new<'a>(width: usize, names: impl Iterator<Item = &'a str>) -> Self {
        let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let name = longest.clamp(3, MAX_NAME_LENGTH);
        let bar = width.checked_sub(name + 4 + NUMBERS_WIDTH).filter(|bar| *bar >= MIN_BAR_LENGTH);
        Self { width, name, bar: bar.map(|bar| bar.min(MAX_BAR_LENGTH)) }
    }

    /// Right-aligned, and shortened if too long.
    fn name(self, name: &str) -> String {
        format!("{:>width$}", truncate(name, self.name), width = self.name)
    }

    fn trim_end(self, line: &str) -> String {
        truncate(line.trim_end(), self.width)
    }
}

impl PathLine<'_> {
    pub fn render(&self, layout: Layout) -> String {
        let name = layout.name(self.name);
        let part = fraction(self.bytes, self.length);
        let rate = self.rate.map_or_else(|| "waiting".to_owned(), short_rate);
        let rtt = self.rtt.map_or_else(String::new, |rtt| short_span(rtt, "ms"));
        layout.trim_end(&match layout.bar {
            Some(width) => {
                let share = share(self.bytes, self.length.unwrap_or(Size::ZERO));
                let bytes = short_size(self.bytes);
                let bar = bar(part, width);
                format!("{name} [{bar}] {share:>5}  {bytes:<18}  {rate:<11}  {rtt}")
            }
            None => {
                let numbers = format!("{rate:>11} {rtt:>6}");
                let taken = name.chars().count() + numbers.chars().count() + 4;
                let bar = bar(part, layout.width.saturating_sub(taken).min(MAX_BAR_LENGTH));
                format!("{name} [{bar}] {numbers}")
            }
        })
    }
}

impl TotalLine {
    pub fn render(&self, layout: Layout) -> String {
        let name = layout.name("all");
        let (done, rate) = (short_size(self.done), short_rate(self.rate));
        let Some(length) = self.length else {
            return layout.trim_end(&format!("{name} {done}  {rate}"));
        };
        let (percent, of) = (share(self.done, length), short_size(length));
        let left = match self.rate.is_zero() {
            true => String::new(),
            false => short_span(self.rate.time_for(length - self.done), "s"),
        };
        // The unit is printed once if both numbers have the same.
        let done = match (done.split_once(' '), of.split_once(' ')) {
            (Some((number, unit)), Some((_, same))) if unit == same => number.to_owned(),
            _ => done,
        };
        let bytes = format!("{done} of {of}");
        let words = if left.is_empty() { String::new() } else { format!("{left} left") };
        if let Some(width) = layout.bar {
            let bar = bar(fraction(self.done, self.length), width);
            let line = format!("{name} [{bar}] {percent:>5}  {bytes:<18}  {rate:<11}  {words}");
            return layout.trim_end(&line);
        }
        let line = format!("{name} {percent:>5}  {bytes}  {rate}  {words}");
        if line.trim_end().chars().count() <= layout.width {
            return layout.trim_end(&line);
        }
        let line = format!("{percent} {done}/{of} {rate} {left}");
        if line.trim_end().chars().count() <= layout.width {
            return layout.trim_end(&line);
        }
        layout.trim_end(&format!("{percent} {done}/{of} {rate}"))
    }
}

/// A part of the whole in percent.
pub fn share(part: Size, whole: Size) -> String {
    if whole.is_zero() {
        return "-".to_owned();
    }
    format!("{:.0} %", 100.0 * part.as_bytes() as f64 / whole.as_bytes() as f64)
}

fn bar(part: f64, width: usize) -> String {
    let halves = (part.clamp(0.0, 1.0) * 2.0 * width as f64).round() as usize;
    let (full, half) = (halves / 2, halves % 2);
    "█".repeat(full) + &"▌".repeat(half) + &"·".repeat(width - full - half)
}

fn fraction(part: Size, whole: Option<Size>) -> f64 {
    let whole = whole.filter(|whole| !whole.is_zero());
    whole.map_or(0.0, |whole| part.as_bytes() as f64 / whole.as_bytes() as f64)
}

fn truncate(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

fn short_rate(rate: Rate) -> String {
    let units = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")];
    in_unit(rate.as_bps(), &units, "bit/s")
}

fn short_size(size: Size) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")];
    in_unit(size.as_bytes(), &units, "B")
}

/// Three digits and the largest unit that fits.
fn in_unit(value: u64, units: &[(u64, &str)], one: &str) -> String {
    let Some((scale, unit)) = units.iter().find(|(scale, _)| value >= *scale) else {
        return format!("{value} {one}");
    };
    let number = value as f64 / *scale as f64;
    let decimals = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$} {unit}")
}

/// In whole units from `least` on: `28 ms`, `12 s`, `3 min`.
fn short_span(span: Span, least: &str) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        ..0.9995 if least == "ms" => format!("{:.0} ms", seconds * 1e3),
        ..99.5 => format!("{seconds:.0} s"),
        ..6000.0 => format!("{:.0} min", seconds / 60.0),
        ..360_000.0 => format!("{:.0} h", seconds / 3600.0),
        _ => "days".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mb(size: u64) -> Size {
        Size::from_bytes(size * 1_000_000)
    }

    fn layout(width: usize) -> Layout {
        Layout::new(width, ["wifi"].into_iter())
    }

    fn path(rate: Option<Rate>) -> PathLine<'static> {
        let rtt = Some(Span::from_millis(28));
        PathLine { name: "wifi", bytes: mb(2), length: Some(mb(8)), rate, rtt }
    }

    #[test]
    fn numbers_stand_below_each_other_where_there_is_room() {
        let fast = path(Some(Rate::from_kbps(9_534)));
        let silent = PathLine { name: "lte", rtt: None, ..path(None) };
        let whole = TotalLine { done: mb(4), length: Some(mb(8)), rate: Rate::from_mbps(12) };
        let layout = layout(79);
        let lines = [fast.render(layout), silent.render(layout), whole.render(layout)];
        let expected = [
            "wifi [█████···············]  25 %  2.00 MB             9.53 Mbit/s  28 ms",
            " lte [█████···············]  25 %  2.00 MB             waiting",
            " all [██████████··········]  50 %  4.00 of 8.00 MB     12.0 Mbit/s  3 s left",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_narrow_terminal_has_rate_and_round_trip_and_the_whole() {
        let fast = path(Some(Rate::from_kbps(9_534)));
        assert_eq!(fast.render(layout(37)), "wifi [███········] 9.53 Mbit/s  28 ms");
        let long = PathLine { name: "wlxf4f26d0e", rtt: None, ..path(None) };
        let narrow = Layout::new(37, [long.name].into_iter());
        assert_eq!(long.render(narrow), "wlxf4f26d… [█▌···]     waiting");
        let whole = TotalLine { done: mb(2), length: Some(mb(8)), rate: Rate::from_mbps(12) };
        let bare = " all  25 %  2.00 of 8.00 MB  12.0 Mbit/s  4 s left";
        assert_eq!(whole.render(layout(55)), bare);
        assert_eq!(whole.render(layout(37)), "25 % 2.00/8.00 MB 12.0 Mbit/s 4 s");
        let stuck = TotalLine { rate: Rate::ZERO, ..whole };
        assert_eq!(stuck.render(layout(30)), "25 % 2.00/8.00 MB 0 bit/s");
        let unknown = TotalLine { length: None, ..stuck };
        assert_eq!(unknown.render(layout(37)), " all 2.00 MB  0 bit/s");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(short_size(Size::from_bytes(999)), "999 B");
        assert_eq!(short_size(Size::from_bytes(9_996_000)), "10.0 MB");
        assert_eq!(short_rate(Rate::from_kbps(123_456)), "123 Mbit/s");
        assert_eq!(short_span(Span::from_micros(999_600), "ms"), "1 s");
        assert_eq!(short_span(Span::from_micros(400), "s"), "0 s");
        assert_eq!(short_span(Span::from_secs(200), "s"), "3 min");
    }

    proptest! {
        #[test]
        fn every_line_fits(
            width in 0_usize..200,
            name in "\\PC{0,20}",
            done in any::<u64>(),
            length in proptest::option::of(any::<u64>()),
            rate in any::<u64>(),
            rtt in proptest::option::of(any::<u64>()),
        ) {
            let (rate, bytes) = (Rate::from_bps(rate), Size::from_bytes(done));
            let length = length.map(Size::from_bytes);
            let layout = Layout::new(width, std::iter::once(name.as_str()));
            let rtt = rtt.map(Span::from_nanos);
            let path = PathLine { name: &name, bytes, length, rate: Some(rate), rtt };
            prop_assert!(path.render(layout).chars().count() <= width);
            let whole = TotalLine { done: bytes, length, rate }.render(layout);
            prop_assert!(whole.chars().count() <= width);
        }

        #[test]
        fn from_40_columns_on_no_number_is_cut(
            length in 0_u64..1 << 43,
            done in 0.0..1.0,
            rate in 0_u64..1 << 36,
            rtt in 0_u64..1 << 34,
        ) {
            let done = Size::from_bytes((length as f64 * done) as u64);
            let (length, rate) = (Some(Size::from_bytes(length)), Rate::from_bps(rate));
            let rtt = Some(Span::from_nanos(rtt));
            let path = PathLine { name: "wlan0", bytes: done, length, rate: Some(rate), rtt };
            let layout = Layout::new(37, ["wlan0"].into_iter());
            for line in [path.render(layout), TotalLine { done, length, rate }.render(layout)] {
                prop_assert!(!line.contains('…'), "{}", line);
            }
        }
    }

    #[test]
    fn nothing_has_no_share() {
        assert_eq!(share(Size::from_bytes(2), Size::from_bytes(3)), "67 %");
        assert_eq!(share(Size::ZERO, Size::ZERO), "-");
    }
}
