//! The resume file, with which a later run continues: the object, and the received bytes.

use manyways_proto::fetch::{Object, Range, Ranges, Validator};
use manyways_record::document::{self, DocumentError};
use serde::{Deserialize, Serialize};

use super::location::Location;

/// Larger files are rejected.
pub const MAX_FILE_SIZE: usize = 8 << 20;

/// Content of a resume file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResumeState {
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
    /// More than 8 MiB.
    #[error("it is too large")]
    TooLarge,
    /// Damaged, or written by another version of this program.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Ranges past the end of the object, empty or out of order.
    #[error("its ranges contradict each other")]
    Ranges,
}

#[derive(Serialize, Deserialize)]
struct File {
    url: String,
    length: u64,
    validator: StoredValidator,
    /// Half-open and in order.
    done: Vec<(u64, u64)>,
}

manyways_record::document!(File, "manyways.resume/1");

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredValidator {
    Etag(String),
    LastModified(String),
}

impl ResumeState {
    /// Returns the object with which later responses must agree.
    pub fn object(&self) -> Object {
        Object { length: Some(self.length), validator: Some(self.validator.clone()) }
    }

    /// Whether the bytes may be of the object at `url`: scheme, host, port and path are the same. The
    /// query may differ, for example a signature in it; validator and length prove that it is the
    /// same object.
    pub(super) fn may_be_of(&self, url: &Location) -> bool {
        let path = |url: &Location| url.target().split('?').next().map(str::to_owned);
        let own = Location::parse(&self.url);
        own.is_ok_and(|own| own.origin() == url.origin() && path(&own) == path(url))
    }

    /// Parses a resume file.
    pub fn parse(bytes: &[u8]) -> Result<Self, ResumeError> {
        if bytes.len() > MAX_FILE_SIZE {
            return Err(ResumeError::TooLarge);
        }
        let file: File = document::parse(bytes)?;
        let mut end = 0;
        for &(from, to) in &file.done {
            if from < end || to <= from || to > file.length {
                return Err(ResumeError::Ranges);
            }
            end = to;
        }
        let validator = match file.validator {
            StoredValidator::Etag(tag) => Validator::choose(Some(&tag), None, None),
            StoredValidator::LastModified(date) => Validator::choose(None, Some(&date), None),
        };
        Ok(Self {
            url: file.url,
            length: file.length,
            validator: validator.ok_or(ResumeError::Ranges)?,
            done: file.done.into_iter().map(|(from, to)| Range::new(from, to)).collect(),
        })
    }

    /// Serializes a resume file.
    pub fn to_json(&self) -> String {
        let file = File {
            url: self.url.clone(),
            length: self.length,
            validator: match &self.validator {
                Validator::Etag(tag) => StoredValidator::Etag(tag.clone()),
                Validator::LastModified(date) => StoredValidator::LastModified(date.clone()),
            },
            done: self.done.iter().map(|range| (range.start, range.end)).collect(),
        };
        // Serialization of strings and numbers cannot fail.
        document::to_json(&file).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resume_state() -> ResumeState {
        ResumeState {
            url: "https://a.example/b".into(),
            length: 100,
            validator: Validator::Etag("\"x\"".into()),
            done: [Range::new(0, 10), Range::new(20, 100)].into_iter().collect(),
        }
    }

    #[test]
    fn comes_back_as_it_was_written() {
        let by_date =
            ResumeState { validator: Validator::LastModified("then".into()), ..resume_state() };
        for saved in [resume_state(), by_date] {
            assert_eq!(ResumeState::parse(saved.to_json().as_bytes()).unwrap(), saved);
        }
    }

    #[test]
    fn another_query_may_be_of_the_same_object() {
        for (url, is_same) in [
            ("https://a.example/b", true),
            ("https://a.example/b?signature=2", true),
            ("https://a.example/c", false),
            ("https://b.example/b", false),
            ("https://a.example:8443/b", false),
            ("http://a.example/b", false),
        ] {
            let url = Location::parse(url).unwrap();
            for own in ["https://a.example/b", "https://a.example/b?signature=1"] {
                let saved = ResumeState { url: own.into(), ..resume_state() };
                assert_eq!(saved.may_be_of(&url), is_same, "{own} and {url}");
            }
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let text = resume_state().to_json();
        assert!(ResumeState::parse(text.as_bytes()).is_ok());
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
            assert!(
                ResumeState::parse(text.replace(from, to).as_bytes()).is_err(),
                "{from} -> {to}"
            );
        }
        assert!(matches!(
            ResumeState::parse(&vec![b' '; MAX_FILE_SIZE + 1]),
            Err(ResumeError::TooLarge)
        ));
    }
}
