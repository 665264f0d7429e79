//! The resume file, with which a later run continues: the object, and the received bytes.

use manyways_proto::fetch::{Object, Range, Ranges, Validator};
use serde::{Deserialize, Serialize};

/// Version of the written and accepted files.
const SCHEMA: &str = "manyways.resume/1";
/// Larger files are rejected.
pub const MOST_BYTES: usize = 8 << 20;

/// Content of a resume file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The URL of the job.
    pub url: String,
    pub length: u64,
    /// Version of the object that the bytes belong to.
    pub validator: Validator,
    /// Bytes that are durable in the part file.
    pub done: Ranges,
}

/// Why a resume file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Longer than [`MOST_BYTES`].
    #[error("it is too large")]
    TooLarge,
    /// Not valid JSON of this format.
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// Written by another version of this program.
    #[error("it has the format {0}, and this version reads {SCHEMA}")]
    Schema(String),
    /// Ranges past the end of the object, empty or out of order.
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
    /// Returns the object with which later responses must agree.
    pub fn object(&self) -> Object {
        Object { length: Some(self.length), validator: Some(self.validator.clone()) }
    }

    /// Parses a resume file.
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

    /// Serializes a resume file.
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
        // Serialization of strings and numbers cannot fail.
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
