//! Text tables for terminals.

use std::borrow::Cow;

use manyways_unit::human::printable;

/// Formats rows with aligned columns. The first row is the heading; text is aligned left, figures
/// right. Cells may contain foreign names.
pub fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |place: usize| {
        rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|place| width(place).unwrap_or(0)).collect();
    // A column contains figures if all its cells except the heading are empty or start like one.
    let is_figure = |cell: &Cow<'_, str>| {
        cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "-+<–".contains(c))
    };
    let figures: Vec<bool> = (0..columns)
        .map(|place| {
            place > 0 && rows.iter().skip(1).filter_map(|row| row.get(place)).all(is_figure)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (place, cell) in row.iter().enumerate() {
            let room = widths[place].saturating_sub(cell.chars().count());
            if place > 0 {
                line.push_str("  ");
            }
            let fill = " ".repeat(room);
            match figures[place] {
                true => line.extend([&fill, &**cell]),
                false => line.extend([&**cell, &fill]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
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
    fn a_name_with_a_line_end_or_a_colour_stays_in_its_cell() {
        let cells = |row: [&str; 2]| row.map(str::to_owned).to_vec();
        let rows = [cells(["app", "bytes"]), cells(["\x1b[1ma\n", "5"])];
        assert_eq!(table(&rows), "app               bytes\n\\u001b[1ma\\u000a      5\n");
    }
}
