//! Numbers and tables for people.

/// Columns of equal width: the first row is the heading, words stand left, figures right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |place: usize| {
        rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|place| width(place).unwrap_or(0)).collect();
    // A column of which all but the heading begin like figures is one.
    let is_figure = |cell: &String| {
        cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "-+<–".contains(c))
    };
    let figures: Vec<bool> = (0..columns)
        .map(|place| {
            place > 0 && rows.iter().skip(1).filter_map(|row| row.get(place)).all(is_figure)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (place, cell) in row.iter().enumerate() {
            let room = widths[place].saturating_sub(cell.chars().count());
            if place > 0 {
                line.push_str("  ");
            }
            let fill = " ".repeat(room);
            match figures[place] {
                true => line.extend([&fill, cell.as_str()]),
                false => line.extend([cell.as_str(), &fill]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Seconds in the unit that fits.
pub fn seconds(secs: f64) -> String {
    if !secs.is_finite() {
        return "never".to_owned();
    }
    match secs {
        ..5e-7 => "0 s".to_owned(),
        ..1e-3 => format!("{:.0} µs", secs * 1e6),
        ..1.0 => format!("{} ms", short(secs * 1e3)),
        ..120.0 => format!("{} s", short(secs)),
        ..7_200.0 => format!("{} min", short(secs / 60.0)),
        ..864_000.0 => format!("{} h", short(secs / 3_600.0)),
        _ => format!("{} d", short(secs / 86_400.0)),
    }
}

/// Joules in the unit that fits.
pub fn joules(joules: f64) -> String {
    match joules.abs() {
        ..5e-7 => "0 J".to_owned(),
        ..1.0 => format!("{} mJ", short(joules * 1e3)),
        ..1e4 => format!("{} J", short(joules)),
        _ => format!("{} kJ", short(joules / 1e3)),
    }
}

/// Watts in the unit that fits.
pub fn watts(watts: f64) -> String {
    match watts.abs() {
        ..5e-7 => "0 W".to_owned(),
        ..1.0 => format!("{} mW", short(watts * 1e3)),
        _ => format!("{} W", short(watts)),
    }
}

/// Bytes in the unit that fits.
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        ..1e3 => format!("{bytes} B"),
        value @ ..1e6 => format!("{} kB", short(value / 1e3)),
        value @ ..1e9 => format!("{} MB", short(value / 1e6)),
        value => format!("{} GB", short(value / 1e9)),
    }
}

/// A share of something, as per cent.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "–".to_owned() }
}

/// Three digits that count, without zeros behind them.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A number with a space between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_right_and_words_left() {
        let cells = |row: [&str; 3]| row.map(str::to_owned).to_vec();
        let rows = [cells(["a", "energy", "about"]), cells(["long name", "5 J", "words"])];
        assert_eq!(table(&rows), "a          energy  about\nlong name     5 J  words\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn numbers_have_the_unit_that_fits() {
        let all = [0.0, 0.0005, 0.26, 4.5, 90.0, 3_600.0, 90_000.0, 900_000.0, f64::INFINITY];
        let words =
            ["0 s", "500 µs", "260 ms", "4.5 s", "90 s", "60 min", "25 h", "10.4 d", "never"];
        assert_eq!(all.map(seconds), words);
        assert_eq!([0.0, 0.55, 1.1, 12_345.0].map(joules), ["0 J", "550 mJ", "1.1 J", "12.3 kJ"]);
        let all = [0.0, 1e-9, 0.0205, 1.375, -10.3].map(watts);
        assert_eq!(all, ["0 W", "0 W", "20.5 mW", "1.38 W", "-10.3 W"]);
        assert_eq!(percent(0.904), "90.4 %");
        assert_eq!([5, 1_234, 1_234_567].map(count), ["5", "1 234", "1 234 567"]);
    }
}
