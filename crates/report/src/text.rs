//! Text tables for terminals.

use std::borrow::Cow;

use manyways_unit::human::printable;

/// Formats rows with aligned columns below their heading; text is aligned left, figures right.
/// Cells may contain foreign names.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |place: usize| {
        rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|index| width(index).unwrap_or(0)).collect();
    // A column contains figures if all its cells except the heading are empty or start like one.
    let is_figure = |cell: &Cow<'_, str>| {
        cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "-+<–".contains(c))
    };
    let figures: Vec<bool> = (0..columns)
        .map(|index| {
            index > 0 && rows.iter().skip(1).filter_map(|row| row.get(index)).all(is_figure)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (index, cell) in row.iter().enumerate() {
            let room = widths[index].saturating_sub(cell.chars().count());
            if index > 0 {
                line.push_str("  ");
            }
            let fill = " ".repeat(room);
            match figures[index] {
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
        let rows = [cells(["long name", "5 J", "words"])];
        let text = table(&["a", "energy", "about"], rows);
        assert_eq!(text, "a          energy  about\nlong name     5 J  words\n");
        assert_eq!(table(&["a"], []), "a\n");
    }

    #[test]
    fn a_name_with_a_line_end_or_a_colour_stays_in_its_cell() {
        let cells = |row: [&str; 2]| row.map(str::to_owned).to_vec();
        let rows = [cells(["\x1b[1ma\n", "5"])];
        assert_eq!(
            table(&["app", "bytes"], rows),
            "app               bytes\n\\u001b[1ma\\u000a      5\n"
        );
    }
}
