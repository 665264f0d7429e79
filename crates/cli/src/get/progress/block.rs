//! Lines at the bottom of a terminal that are redrawn.
//!
//! The cursor stays at the end of the last line, so that redrawing also removes an echoed `^C`.

use std::fmt::Write as _;

/// The lines on the screen.
#[derive(Default)]
pub struct Block {
    /// Number of characters of each line.
    widths: Vec<usize>,
}

impl Block {
    /// Returns the text that draws these lines over the previous ones, on a terminal of this width.
    pub fn draw(&mut self, lines: &[String], width: usize) -> String {
        let mut text = self.move_to_start(width);
        for (number, line) in lines.iter().enumerate() {
            let feed = if number == 0 { "" } else { "\n" };
            // Writing to a String does not fail. A terminal in raw mode also needs the `\r`.
            let _ = write!(text, "{feed}\r{line}\x1b[K");
        }
        text.push_str("\x1b[J");
        self.widths = lines.iter().map(|line| line.chars().count()).collect();
        text
    }

    /// Returns the text that removes the lines; empty if there are none.
    pub fn erase(&mut self, width: usize) -> String {
        let mut text = self.move_to_start(width);
        if !text.is_empty() {
            text.push_str("\x1b[J");
        }
        self.widths.clear();
        text
    }

    /// Moves the cursor to the first line. A terminal that became narrower has wrapped the lines.
    fn move_to_start(&self, width: usize) -> String {
        let rows = |length: &usize| length.div_ceil(width.max(1)).max(1);
        match self.widths.iter().map(rows).sum::<usize>() {
            0 => String::new(),
            1 => "\r".to_owned(),
            rows => format!("\r\x1b[{}A", rows - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_back_over_what_is_there() {
        let mut block = Block::default();
        let lines = |all: &[&str]| all.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(block.erase(80), "");
        assert_eq!(block.draw(&lines(&["ab", "c"]), 80), "\rab\x1b[K\n\rc\x1b[K\x1b[J");
        assert_eq!(block.draw(&lines(&["d"]), 80), "\r\x1b[1A\rd\x1b[K\x1b[J");
        assert_eq!(block.draw(&lines(&["abcdef", ""]), 80), "\r\rabcdef\x1b[K\n\r\x1b[K\x1b[J");
        // Three rows at the new width of 3.
        assert_eq!(block.erase(3), "\r\x1b[2A\x1b[J");
        assert_eq!(block.erase(3), "");
    }
}
