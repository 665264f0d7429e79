//! HTML documents.

use std::fmt::Write as _;

use crate::svg::Drawing;

/// Style sheet of charts, for pages and for stand-alone pictures.
pub(crate) const CHART_STYLE: &str = include_str!("chart.css");
const PAGE_STYLE: &str = include_str!("page.css");

/// Tables with more columns are set more densely.
const DENSE_COLUMNS: usize = 8;

/// A document to which content is appended.
pub struct Page {
    title: String,
    body: String,
    figures: usize,
}

/// Alignment of a table column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Text, aligned left.
    Text,
    /// Figures, aligned right.
    Numbers,
}

impl Column {
    /// Columns with these headings; those at the indexes `words` contain text, the others figures.
    pub fn of<'a, const N: usize>(headings: [&'a str; N], words: &[usize]) -> [(&'a str, Self); N] {
        std::array::from_fn(|place| {
            (headings[place], if words.contains(&place) { Self::Text } else { Self::Numbers })
        })
    }
}

/// One row of a table.
pub struct TableRow {
    /// One cell per column; the first cell is the heading of the row.
    pub cells: Vec<String>,
    /// Whether the row is emphasized.
    pub strong: bool,
    /// Whether the row is de-emphasized.
    pub faint: bool,
}

impl TableRow {
    /// A row that is neither emphasized nor de-emphasized.
    pub fn plain(cells: Vec<String>) -> Self {
        Self { cells, strong: false, faint: false }
    }
}

impl Page {
    /// Creates a page with a headline and an introduction.
    pub fn new(title: &str, lead: &str) -> Self {
        let body = format!(
            "<header><h1>{}</h1><p class=\"lead\">{}</p></header>\n",
            escape(title),
            escape(lead)
        );
        Self { title: title.to_owned(), body, figures: 0 }
    }

    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// Appends a list of notes.
    pub fn notes(&mut self, notes: &[String]) {
        self.body.push_str("<ul class=\"notes\">\n");
        for note in notes {
            let _ = writeln!(self.body, "<li>{}</li>", escape(note));
        }
        self.body.push_str("</ul>\n");
    }

    /// Appends figures that are emphasized, each with its name.
    pub fn highlights(&mut self, highlights: &[(String, String)]) {
        self.body.push_str("<dl class=\"highlights\">\n");
        for (what, much) in highlights {
            let (what, much) = (escape(what), escape(much));
            let _ = writeln!(self.body, "<div><dt>{what}</dt><dd>{much}</dd></div>");
        }
        self.body.push_str("</dl>\n");
    }

    pub fn table(&mut self, caption: &str, columns: &[(&str, Column)], lines: &[TableRow]) {
        let class = |column: Column| match column {
            Column::Text => "",
            Column::Numbers => " class=\"figure\"",
        };
        let dense = if columns.len() > DENSE_COLUMNS { " class=\"dense\"" } else { "" };
        let _ = write!(
            self.body,
            "<div class=\"wide\"><table{dense}>\n<caption>{}</caption>\n<thead><tr>",
            escape(caption)
        );
        for (name, column) in columns {
            let _ = write!(self.body, "<th scope=\"col\"{}>{}</th>", class(*column), escape(name));
        }
        self.body.push_str("</tr></thead>\n<tbody>\n");
        for line in lines {
            let kind = match (line.strong, line.faint) {
                (true, _) => " class=\"strong\"",
                (_, true) => " class=\"faint\"",
                _ => "",
            };
            let _ = write!(self.body, "<tr{kind}>");
            for (index, (cell, (_, column))) in line.cells.iter().zip(columns).enumerate() {
                let (cell, class) = (escape(cell), class(*column));
                let _ = match index {
                    0 => write!(self.body, "<th scope=\"row\"{class}>{cell}</th>"),
                    _ => write!(self.body, "<td{class}>{cell}</td>"),
                };
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody>\n</table></div>\n");
    }

    pub fn figure(&mut self, drawing: &Drawing, caption: &str) {
        self.figures += 1;
        let _ = writeln!(
            self.body,
            "<figure><div class=\"wide\">{}</div><figcaption>{}</figcaption></figure>",
            drawing.inline(self.figures),
            escape(caption)
        );
    }

    /// Returns the whole document.
    pub fn html(self, footer: &str) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n\
             <style>\n{CHART_STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n{}\
             <footer>{}</footer>\n</main>\n</body>\n</html>\n",
            escape(&self.title),
            self.body,
            escape(footer)
        )
    }
}

/// Escapes text for HTML, SVG and their attributes. Characters that XML forbids become spaces.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<b a='x'>&\"\u{1b}"), "&lt;b a=&#39;x&#39;&gt;&amp;&quot; ");
        let mut page = Page::new("<script>", "<script>");
        page.heading("<script>");
        page.notes(&["<script>".to_owned()]);
        page.highlights(&[("<script>".to_owned(), "<script>".to_owned())]);
        let line = TableRow { cells: vec!["<script>".to_owned()], strong: false, faint: false };
        page.table("<script>", &[("<script>", Column::Text)], &[line]);
        page.figure(&Drawing::new(10.0, 10.0, "<script>", "<script>"), "<script>");
        let html = page.html("<script>");
        assert!(!html.contains("<script"), "{html}");
        assert_eq!(html.matches("&lt;script&gt;").count(), 14, "{html}");
    }

    #[test]
    fn a_page_needs_nothing_from_outside() {
        let html = Page::new("a", "b").html("c");
        for word in ["http:", "https:", "url(", "@import", "src=", "<link", "<script"] {
            assert!(!html.contains(word), "{word}");
        }
    }
}
