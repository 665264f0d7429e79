//! The file that lets a later run go on: what was being fetched, and which bytes are there.

use manyways_proto::fetch::{Object, Range, Ranges, Validator};
use serde::{Deserialize, Serialize};

/// The version that this program writes and reads.
const SCHEMA: &str = "manyways.resume/1";
/// A larger file is not ours.
pub const MOST_BYTES: usize = 8 << 20;

/// What an unfinished download leaves behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The URL that the user gave.
    pub url: String,
    /// The object's length.
    pub length: u64,
    /// The version of the object that the bytes are of.
    pub validator: Validator,
    /// The bytes that are there for certain.
    pub done: Ranges,
}

/// Why a resume file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Longer than [`MOST_BYTES`].
    #[error("it is too large")]
    TooLarge,
    /// Not what this program writes.
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// Written by another version of this program.
    #[error("it has the format {0}, and this version reads {SCHEMA}")]
    Schema(String),
    /// Ranges beyond the object, empty or out of order.
    #[error("its ranges contradict each other")]
    Ranges,
}

#[derive(Serialize, Deserialize)]
struct File {
    schema: String,
    url: String,
    length: u64,
    validator: Version,
    /// Half-open and in order.
    done: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Version {
    Etag(String),
    LastModified(String),
}

impl Saved {
    /// The object that later answers must agree with.
    pub fn object(&self) -> Object {
        Object { length: Some(self.length), validator: Some(self.validator.clone()) }
    }

    /// Reads a resume file.
    pub fn parse(bytes: &[u8]) -> Result<Self, ResumeError> {
        if bytes.len() > MOST_BYTES {
            return Err(ResumeError::TooLarge);
        }
        let file: File = serde_json::from_slice(bytes)?;
        if file.schema != SCHEMA {
            return Err(ResumeError::Schema(file.schema.chars().take(40).collect()));
        }
        let mut end = 0;
        for &(from, to) in &file.done {
            if from < end || to <= from || to > file.length {
                return Err(ResumeError::Ranges);
            }
            end = to;
        }
        let validator = match file.validator {
            Version::Etag(tag) => Validator::choose(Some(&tag), None, None),
            Version::LastModified(date) => Validator::choose(None, Some(&date), None),
        };
        Ok(Self {
            url: file.url,
            length: file.length,
            validator: validator.ok_or(ResumeError::Ranges)?,
            done: file.done.into_iter().map(|(from, to)| Range::new(from, to)).collect(),
        })
    }

    /// Writes a resume file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let file = File {
            schema: SCHEMA.to_owned(),
            url: self.url.clone(),
            length: self.length,
            validator: match &self.validator {
                Validator::Etag(tag) => Version::Etag(tag.clone()),
                Validator::LastModified(date) => Version::LastModified(date.clone()),
            },
            done: self.done.iter().map(|range| (range.start, range.end)).collect(),
        };
        // Strings and numbers: there is nothing in it that could fail.
        serde_json::to_vec(&file).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        Saved {
            url: "https://a.example/b".into(),
            length: 100,
            validator: Validator::Etag("\"x\"".into()),
            done: [Range::new(0, 10), Range::new(20, 100)].into_iter().collect(),
        }
    }

    #[test]
    fn comes_back_as_it_was_written() {
        let by_date = Saved { validator: Validator::LastModified("then".into()), ..saved() };
        for saved in [saved(), by_date] {
            assert_eq!(Saved::parse(&saved.to_bytes()).unwrap(), saved);
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let text = String::from_utf8(saved().to_bytes()).unwrap();
        assert!(Saved::parse(text.as_bytes()).is_ok());
        for (from, to) in [
            ("[0,10]", "[0,30]"),
            ("[0,10]", "[10,0]"),
            ("[0,10]", "[5,5]"),
            ("100]", "101]"),
            ("[0,10],", "[50,60],"),
            ("resume/1", "resume/2"),
            ("\"length\":100", "\"length\":-1"),
            ("\\\"x\\\"", "x"),
            ("\"done\"", "\"gone\""),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            assert!(Saved::parse(text.replace(from, to).as_bytes()).is_err(), "{from} -> {to}");
        }
        assert!(matches!(Saved::parse(&vec![b' '; MOST_BYTES + 1]), Err(ResumeError::TooLarge)));
    }
}
