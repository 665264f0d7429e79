//! Heads of requests and responses in files of other programs.

use serde_json::value::RawValue;

use super::{MAX_FIELDS, MAX_HEAD_LENGTH, raw};
use crate::archive::Field;

/// The fields of a head, and facts about those that are left out.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) fields: Vec<Field>,
    /// Value of the pseudo field `:method`.
    pub(super) method: Option<String>,
    /// Whether there was a pseudo field of HTTP/2 or HTTP/3.
    pub(super) has_pseudo_fields: bool,
    /// Fields with an invalid name.
    pub(super) invalid: usize,
}

/// # Errors
/// A sentence: the head has too many or too long fields.
pub(super) fn read(headers: Option<&RawValue>) -> Result<Head, String> {
    let list = raw::list::<MAX_FIELDS>(headers);
    if list.length > MAX_FIELDS {
        return Err(format!("a head has {} fields, more than {MAX_FIELDS}", list.length));
    }
    let mut head = Head::default();
    let mut length = 0_usize;
    for value in list.values {
        let field: raw::Field = raw::object(Some(value));
        let name = raw::text(field.name).unwrap_or_default();
        let value = raw::text(field.value).unwrap_or_default();
        length = length.saturating_add(name.len()).saturating_add(value.len());
        if length > MAX_HEAD_LENGTH {
            return Err(format!("a head has more than {MAX_HEAD_LENGTH} bytes"));
        }
        head.add(&name, &value);
        if head.fields.len() > MAX_FIELDS {
            return Err(format!("a head has more than {MAX_FIELDS} fields"));
        }
    }
    Ok(head)
}

impl Head {
    fn add(&mut self, name: &str, value: &str) {
        if let Some(pseudo) = name.strip_prefix(':') {
            self.has_pseudo_fields = true;
            if pseudo.eq_ignore_ascii_case("method") {
                self.method.get_or_insert_with(|| value.trim().to_owned());
            }
            return;
        }
        if !is_token(name) {
            self.invalid += 1;
            return;
        }
        // At most as many parts as a head may have fields, and one more, which is an error.
        for part in value.split('\n').take(MAX_FIELDS + 1) {
            let value: String =
                part.trim().chars().filter(|one| !matches!(one, '\r' | '\0')).collect();
            self.fields.push(Field { name: name.to_owned(), value: value.into_bytes() });
        }
    }
}

/// Whether a text is a token (RFC 9110, 5.6.2), as names of fields and methods are.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Returns the value of the first field of a name, without white space around it, if it is UTF-8.
pub(super) fn value<'a>(fields: &'a [Field], name: &str) -> Option<&'a str> {
    let field = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(&field.value).ok().map(str::trim)
}

/// Returns the announced length of a body; `None` without one, and with a transfer coding, which
/// overrides it (RFC 9112, 6.3).
pub(super) fn announced_length(fields: &[Field]) -> Option<u64> {
    let length = value(fields, "content-length")?;
    if value(fields, "transfer-encoding").is_some() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    length.parse().ok()
}

/// Whether the content has a coding.
pub(super) fn is_coded(fields: &[Field]) -> bool {
    value(fields, "content-encoding")
        .is_some_and(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
}

/// Changes a head for a body of `length` bytes without content coding.
pub(super) fn remove_coding(fields: &mut Vec<Field>, length: usize) {
    fields.retain(|field| !field.name.eq_ignore_ascii_case("content-encoding"));
    for field in fields.iter_mut().filter(|f| f.name.eq_ignore_ascii_case("content-length")) {
        field.value = length.to_string().into_bytes();
    }
}
