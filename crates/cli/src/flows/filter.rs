//! Error message of an invalid filter, with the position of the error.

use manyways_flows::filter::{Filter, FilterError};

use crate::failure::Failure;

/// Parses a filter.
pub fn read(text: &str) -> Result<Filter, Failure> {
    text.parse().map_err(|error| failure(text, &error))
}

fn failure(text: &str, error: &FilterError) -> Failure {
    // A mark below each wrong character; zero-width characters and line breaks would shift the
    // marks.
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let columns = |bytes: usize| text.get(..bytes).map_or(0, |text| text.chars().count());
    let (begin, end) = (columns(error.at.start), columns(error.at.end));
    let marks = "^".repeat((end - begin).max(1));
    let message = format!("{error}\n  {plain}\n  {:begin$}{marks}", "").trim_end().to_owned();
    Failure::usage(message).hint(error.kind.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure_text(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn an_error_points_at_its_place() {
        let wrong = "`htttp` is not a port\n  tcp port htttp\n           ^^^^^";
        assert_eq!(failure_text("tcp port htttp"), wrong);
        assert_eq!(
            failure_text("tcp\tand"),
            "the filter ends where a test is expected\n  tcp and\n         ^"
        );
        assert_eq!(failure_text("host ü"), "`ü` is not an address\n  host ü\n       ^");
        assert!(read("tcp port 80 or 443").is_ok());
        assert!(read("tcp port 70000").unwrap_err().is_usage());
    }
}
