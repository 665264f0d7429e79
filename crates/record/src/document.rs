//! JSON documents: objects whose first field, `schema`, has the name and version of their format.
//!
//! Within a version, fields are only added: a reader skips unknown fields. Each [`Document`] belongs
//! to the module of the result that it contains.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use manyways_unit::human::quoted;

/// The body of a document, without the field `schema`.
pub trait Document: Serialize {
    /// Name and version of the format: `manyways.NAME/VERSION`.
    const SCHEMA: &'static str;
}

/// Implements [`Document`] for a type, with its schema.
#[macro_export]
macro_rules! document {
    ($body:ty, $schema:expr) => {
        impl $crate::document::Document for $body {
            const SCHEMA: &'static str = $schema;
        }
    };
}

/// Reasons why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Not JSON with the fields of the format.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A newer version of the format.
    #[error("it has the format {found} of a newer manyways, and this version reads {read}")]
    Newer { found: String, read: &'static str },
    /// Another format, or an older version of it.
    #[error("it has the format {found}, and this version reads {read}")]
    Schema { found: String, read: &'static str },
}

/// Formats a document on one line, with its line feed.
///
/// # Errors
/// A key or a path of the body is not UTF-8 text.
pub fn to_json<D: Document>(body: &D) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&Envelope { schema: D::SCHEMA, body })? + "\n")
}

/// Formats a document on several lines, with the last line feed.
///
/// # Errors
/// As those of [`to_json`].
pub fn to_json_pretty<D: Document>(body: &D) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&Envelope { schema: D::SCHEMA, body })? + "\n")
}

#[derive(Serialize)]
struct Envelope<'a, D> {
    schema: &'static str,
    #[serde(flatten)]
    body: &'a D,
}

/// Parses a document.
///
/// # Errors
/// The schema is not that of `D`, or the text is malformed.
pub fn parse<D: Document + DeserializeOwned>(bytes: &[u8]) -> Result<D, DocumentError> {
    #[derive(Deserialize)]
    struct Version {
        schema: String,
    }
    let damaged = |error: serde_json::Error| DocumentError::Damaged(error.to_string());
    // Parse the schema first: another version may have other fields.
    let Version { schema } = serde_json::from_slice(bytes).map_err(damaged)?;
    if schema == D::SCHEMA {
        return serde_json::from_slice(bytes).map_err(damaged);
    }
    let (found, read) = (quoted(&schema), D::SCHEMA);
    let (known, unknown) = (name_and_version(read), name_and_version(&schema));
    Err(match known.0 == unknown.0 && known.1 < unknown.1 {
        true => DocumentError::Newer { found, read },
        false => DocumentError::Schema { found, read },
    })
}

fn name_and_version(schema: &str) -> (&str, Option<u32>) {
    schema.rsplit_once('/').map_or((schema, None), |(name, version)| (name, version.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Door {
        width: f64,
        name: String,
    }

    document!(Door, "manyways.door/2");

    fn door() -> Door {
        Door { width: 0.1, name: "front".into() }
    }

    #[test]
    fn the_schema_is_the_first_field() {
        let line = "{\"schema\":\"manyways.door/2\",\"width\":0.1,\"name\":\"front\"}\n";
        assert_eq!(to_json(&door()).unwrap(), line);
        let lines = to_json_pretty(&door()).unwrap();
        assert!(lines.starts_with("{\n  \"schema\": \"manyways.door/2\",\n  \"width\""), "{lines}");
        for text in [line, &lines, &line.replace('}', ",\"new\":1}")] {
            assert_eq!(parse::<Door>(text.as_bytes()), Ok(door()));
        }
    }

    #[test]
    fn other_formats_and_versions_are_refused_in_one_sentence() {
        let error = |text: &str| parse::<Door>(text.as_bytes()).unwrap_err().to_string();
        for (found, newer) in
            [("door/3", " of a newer manyways"), ("door/1", ""), ("wall/3", ""), ("door/x", "")]
        {
            let sentence = format!(
                "it has the format manyways.{found}{newer}, and this version reads manyways.door/2"
            );
            assert_eq!(error(&format!("{{\"schema\":\"manyways.{found}\"}}")), sentence);
        }
        for text in ["", "[]", "{}", "{\"schema\":1}", "{\"schema\":\"manyways.door/2\"}"] {
            assert!(error(text).starts_with("it is damaged: "), "{text}");
        }
    }
}
