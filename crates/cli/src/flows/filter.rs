//! Error message of an invalid filter, with the position of the error.

use manyways_flows::filter::{Filter, FilterError};

use manyways_unit::human::printable;

use crate::failure::Failure;

/// Parses a filter.
pub fn read(text: &str) -> Result<Filter, Failure> {
    text.parse().map_err(|error| failure(text, &error))
}

fn failure(text: &str, error: &FilterError) -> Failure {
    // A mark below each wrong character; zero-width characters, line breaks and characters that are
    // escaped would shift the marks.
    let plain = |c: char| {
        if printable(c.encode_utf8(&mut [0; 4])) == [c].iter().collect::<String>() {
            c
        } else {
            ' '
        }
    };
    let plain: String = text.chars().map(plain).collect();
    let columns = |bytes: usize| text.get(..bytes).map_or(0, |text| text.chars().count());
    let (begin, end) = (columns(error.at.start), columns(error.at.end));
    let marks = "^".repeat((end - begin).max(1));
    let lines = [format!("  {plain}"), format!("  {:begin$}{marks}", "")];
    let lines = lines.map(|line| line.trim_end().to_owned());
    Failure::usage(error.to_string()).details(lines.into()).hint(error.kind.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure_text(text: &str) -> String {
        read(text).unwrap_err().lines().join("\n")
    }

    #[test]
    fn an_error_points_at_its_place() {
        let wrong = "manyways: `htttp` is not a port\n  tcp port htttp\n           ^^^^^\n\
                     hint: a port is a number up to 65535 or a well-known name: port 443, port https";
        assert_eq!(failure_text("tcp port htttp"), wrong);
        assert_eq!(
            failure_text("tcp\n\u{202e}\tand").split_once("\nhint").unwrap().0,
            "manyways: '\\u{202e}' has no meaning in a filter\n  tcp   and\n      ^"
        );
        let foreign = failure_text("host ü");
        assert!(foreign.contains("`ü` is not an address\n  host ü\n       ^\n"), "{foreign}");
        assert!(read("tcp port 80 or 443").is_ok());
        assert!(read("tcp port 70000").unwrap_err().is_usage());
    }
}
