//! Bodies as pairs of a key and a value.

use super::reading::{MAX_PAIRS, Pair, Place, decode};

/// Bodies above this many bytes are compared as a whole.
const MAX_BODY: usize = 1 << 20;

/// Source of the pairs of a body. Requests with different kinds do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BodyKind {
    None,
    Form,
    Multipart,
    Json,
    Other,
}

/// Reads the body by its content type, or by its first byte: beacons send JSON as text.
pub(super) fn read(content_type: &[u8], body: &[u8], pairs: &mut Vec<Pair>) -> BodyKind {
    if body.is_empty() {
        return BodyKind::None;
    }
    let kind = String::from_utf8_lossy(content_type.get(..256).unwrap_or(content_type));
    let lower = kind.to_ascii_lowercase();
    let start = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let begins_like_json = matches!(start, Some(b'{' | b'['));
    if body.len() <= MAX_BODY {
        if lower.starts_with("application/x-www-form-urlencoded") && !begins_like_json {
            form(body, Place::Form, pairs);
            return BodyKind::Form;
        }
        if lower.starts_with("multipart/form-data")
            && let Some(boundary) = boundary(&kind)
        {
            multipart(body, boundary.as_bytes(), pairs);
            return BodyKind::Multipart;
        }
        if (begins_like_json || lower.contains("json")) && json(body, "", Place::Json, pairs) {
            return BodyKind::Json;
        }
    }
    pairs.push(Pair::hashed(Place::Body, "content", body));
    // A step of the length is an eighth.
    let bits = body.len().ilog2();
    let steps = (body.len() >> bits.saturating_sub(3)).to_string();
    pairs.push(Pair::new(Place::Body, "length", &format!("{bits}{steps}")));
    BodyKind::Other
}

/// Splits `a=1&b=2`, with `+` for spaces.
pub(super) fn form(text: &[u8], place: Place, pairs: &mut Vec<Pair>) {
    let parts = text.split(|byte| *byte == b'&').filter(|part| !part.is_empty());
    let mut parts: Vec<&[u8]> = parts.collect();
    // The order of keys must not decide which of them are compared one by one.
    if parts.len() > MAX_PAIRS {
        parts.sort_unstable();
    }
    let mut rest = 0_u64;
    for part in parts {
        let at = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
        let (key, value) = part.split_at(at);
        let (key, value) = (decode(key, true), decode(value.get(1..).unwrap_or_default(), true));
        if pairs.len() >= MAX_PAIRS {
            rest = rest.wrapping_add(Pair::new(place, &key, &value).hash());
        } else if !(value.starts_with(['{', '[']) && json(value.as_bytes(), &key, place, pairs)) {
            pairs.push(Pair::new(place, &key, &value));
        }
    }
    if rest != 0 {
        pairs.push(Pair::hashed(place, "all other keys", &rest.to_be_bytes()));
    }
}

/// Adds a pair for each scalar of JSON. The elements of an array have one key. Returns false, and adds
/// nothing, if the text is not JSON, or deeper than `serde_json` reads.
fn json(text: &[u8], prefix: &str, place: Place, pairs: &mut Vec<Pair>) -> bool {
    let Ok(root) = serde_json::from_slice::<serde_json::Value>(text) else { return false };
    let mut stack = vec![(prefix.to_owned(), &root)];
    let mut rest = 0_u64;
    while let Some((path, value)) = stack.pop() {
        let text = match value {
            serde_json::Value::Object(object) if !object.is_empty() => {
                let join = |key: &str| {
                    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
                };
                // Paths longer than this share their end; their values still count.
                let is_long = path.len() > 512;
                stack.extend(object.iter().map(|(key, value)| {
                    (
                        if is_long { path.clone() } else { join(key.get(..128).unwrap_or(key)) },
                        value,
                    )
                }));
                continue;
            }
            serde_json::Value::Array(array) if !array.is_empty() => {
                let path = if path.ends_with("[]") { path } else { format!("{path}[]") };
                stack.extend(array.iter().map(|value| (path.clone(), value)));
                continue;
            }
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let pair = Pair::new(place, &path, &text);
        if pairs.len() >= MAX_PAIRS {
            rest = rest.wrapping_add(pair.hash());
        } else {
            pairs.push(pair);
        }
    }
    if rest != 0 {
        pairs.push(Pair::hashed(place, "all other keys", &rest.to_be_bytes()));
    }
    true
}

/// Returns the parameter `boundary` of a content type (RFC 2046, 5.1.1).
fn boundary(content_type: &str) -> Option<&str> {
    let start = content_type.to_ascii_lowercase().find("boundary=")? + "boundary=".len();
    let rest = content_type.get(start..)?;
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split([';', ' ']).next()?,
    };
    (1..=70).contains(&value.len()).then_some(value)
}

/// Adds the fields of multipart/form-data (RFC 7578). A delimiter begins a line.
fn multipart(body: &[u8], boundary: &[u8], pairs: &mut Vec<Pair>) {
    let is_delimiter = |at: usize| {
        body.get(at..)
            .and_then(|rest| rest.strip_prefix(b"--"))
            .is_some_and(|rest| rest.starts_with(boundary))
    };
    let lines = std::iter::once(0)
        .chain(body.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1));
    let mut start: Option<usize> = None;
    for at in lines.filter(|at| is_delimiter(*at)) {
        if let Some(part) = start.and_then(|start| body.get(start..at))
            && pairs.len() < MAX_PAIRS
        {
            add_part(part, pairs);
        }
        start = Some(at + 2 + boundary.len());
    }
}

fn add_part(part: &[u8], pairs: &mut Vec<Pair>) {
    let end = part.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(part.len());
    let (head, content) = part.split_at(end);
    let content = content.get(4..).unwrap_or_default();
    let content = content.strip_suffix(b"\r\n").unwrap_or(content);
    let head = String::from_utf8_lossy(head.get(..1024).unwrap_or(head));
    let parameter = |name: &str| {
        let start = head.find(&format!(" {name}=\""))? + name.len() + 3;
        head.get(start..)?.split('"').next().map(str::to_owned)
    };
    let name = parameter("name").unwrap_or_default();
    match parameter("filename") {
        Some(file) => {
            pairs.push(Pair::new(Place::Form, &format!("{name}.file"), &file));
            pairs.push(Pair::hashed(Place::Form, &format!("{name}.content"), content));
        }
        None => pairs.push(Pair::new(Place::Form, &name, &String::from_utf8_lossy(content))),
    }
}
