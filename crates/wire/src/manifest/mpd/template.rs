//! Templates of URLs (ISO/IEC 23009-1, 5.3.9.4.4).

use std::fmt::Write;

use super::super::film::{FilmError, MAX_URL_LENGTH};

/// Digits to which a number is filled up at most.
const MAX_WIDTH: usize = 20;

/// Values of the identifiers in a template.
#[derive(Clone, Copy)]
pub(super) struct Values<'v> {
    pub id: &'v str,
    pub bandwidth: u64,
    /// Of one segment; `None` in the template of the initialization.
    pub number_and_time: Option<(u64, u64)>,
}

/// Returns the URL of a segment, as a reference.
pub(super) fn fill(template: &str, values: Values<'_>) -> Result<String, FilmError> {
    let broken = |message| FilmError::Template { template: template.to_owned(), message };
    let mut url = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        // A long identifier may occur often.
        if url.len() > MAX_URL_LENGTH {
            return Err(FilmError::LongUrl);
        }
        url.push_str(before);
        let (identifier, after) =
            after.split_once('$').ok_or_else(|| broken("a dollar sign has no second one"))?;
        rest = after;
        let (name, format) = identifier.split_at(identifier.find('%').unwrap_or(identifier.len()));
        let of_segment = || values.number_and_time.ok_or_else(|| broken("it is not of a segment"));
        let number = match name {
            "" if format.is_empty() => {
                url.push('$');
                continue;
            }
            "RepresentationID" if format.is_empty() => {
                url.push_str(values.id);
                continue;
            }
            "Number" => of_segment()?.0,
            "Time" => of_segment()?.1,
            "Bandwidth" => values.bandwidth,
            "SubNumber" => return Err(FilmError::Unsupported("parts of segments ($SubNumber$)")),
            _ => return Err(broken("it has an unknown identifier")),
        };
        let width = width(format).ok_or_else(|| broken("the format of a number is not %0Nd"))?;
        // Writing to a String does not fail.
        let _ = write!(url, "{number:0width$}");
    }
    url.push_str(rest);
    Ok(url)
}

/// Reads `%0Nd`; without it, a number has as many digits as it needs.
fn width(format: &str) -> Option<usize> {
    if format.is_empty() {
        return Some(1);
    }
    let digits = format.strip_prefix("%0")?.strip_suffix('d')?;
    let is_plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let width = is_plain.then(|| digits.parse().ok())??;
    (1..=MAX_WIDTH).contains(&width).then_some(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled() {
        let values = Values { id: "a$b", bandwidth: 500, number_and_time: Some((7, 9000)) };
        for (template, url) in [
            ("v.mp4", Ok("v.mp4")),
            ("$RepresentationID$/$Number$.m4s", Ok("a$b/7.m4s")),
            ("$$$Number%05d$$Time%03d$$$", Ok("$000079000$")),
            ("$Bandwidth$?t=$Time$", Ok("500?t=9000")),
            ("$Number", Err("the template $Number is not valid: a dollar sign has no second one")),
            ("$Numbers$", Err("the template $Numbers$ is not valid: it has an unknown identifier")),
            (
                "$Number%5d$",
                Err("the template $Number%5d$ is not valid: the format of a number is not %0Nd"),
            ),
            (
                "$Number%0999d$",
                Err("the template $Number%0999d$ is not valid: the format of a number is not %0Nd"),
            ),
            (
                "$SubNumber$",
                Err("it uses parts of segments ($SubNumber$), which this program does not support"),
            ),
        ] {
            let filled = fill(template, values).map_err(|error| error.to_string());
            assert_eq!(filled.as_deref().map_err(String::as_str), url);
        }
        let initialization = Values { number_and_time: None, ..values };
        assert_eq!(fill("$Bandwidth$", initialization).unwrap(), "500");
        assert!(fill("$Number$", initialization).is_err());
    }
}
