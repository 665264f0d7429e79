//! Bodies that a file contains.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::{base64, raw};
use crate::archive::Digest;

/// Bodies by digest, each once.
#[derive(Default)]
pub(super) struct Bodies {
    known: HashSet<Digest>,
    pub(super) list: Vec<(Digest, Vec<u8>)>,
}

impl Bodies {
    pub(super) fn add(&mut self, bytes: Vec<u8>) -> Digest {
        let digest = Digest::of(&bytes);
        if self.known.insert(digest) {
            self.list.push((digest, bytes));
        }
        digest
    }
}

/// Reads the bytes of a `text`; `None` if it has none.
///
/// # Errors
/// A sentence: the encoding is unknown or wrong.
pub(super) fn from_text(
    text: Option<&RawValue>,
    encoding: Option<&RawValue>,
) -> Result<Option<Vec<u8>>, String> {
    let Some(text) = raw::text(text) else { return Ok(None) };
    match raw::text(encoding).unwrap_or_default().trim() {
        "" | "utf-8" | "utf8" => Ok(Some(text.into_bytes())),
        coding if coding.eq_ignore_ascii_case("base64") => {
            let bytes = base64::decode(text.trim());
            Ok(Some(bytes.ok_or("its body is not base64")?))
        }
        other => {
            let other = manyways_unit::human::quoted(other);
            Err(format!("its body has the encoding `{other}`, which is unknown"))
        }
    }
}

/// Formats the parameters of a form (`application/x-www-form-urlencoded`, WHATWG URL, 5.2). `None`
/// if there are none.
pub(super) fn form(parameters: Option<&RawValue>) -> Option<Vec<u8>> {
    let mut text = String::new();
    for value in raw::list::<100_000>(parameters).values {
        let field: raw::Field = raw::object(Some(value));
        if !text.is_empty() {
            text.push('&');
        }
        push_escaped(&mut text, &raw::text(field.name)?);
        text.push('=');
        push_escaped(&mut text, &raw::text(field.value).unwrap_or_default());
    }
    (!text.is_empty()).then(|| text.into_bytes())
}

fn push_escaped(form: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b' ' => form.push('+'),
            byte if byte.is_ascii_alphanumeric() || b"*-._".contains(&byte) => {
                form.push(char::from(byte));
            }
            byte => form.push_str(&format!("%{byte:02X}")),
        }
    }
}
