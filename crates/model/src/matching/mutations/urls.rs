//! Populations from the URLs of real pages.

use super::value::{Role, Value};
use super::{Content, Parameters, Sample, Template, kinds, number};
use crate::matching::request::Request;

/// Keys that change in each run of a page, in small letters.
const CHANGING_KEYS: &[&str] = &[
    "_",
    "cb",
    "cachebuster",
    "correlator",
    "nonce",
    "ord",
    "rand",
    "random",
    "rnd",
    "timestamp",
    "ts",
];
/// Keys that name an object, in small letters.
const OBJECT_KEYS: &[&str] =
    &["id", "q", "query", "page", "item", "pid", "mid", "product", "article", "videoid", "slot"];

/// Returns the requests (GET) of URLs, in their order, with roles by short lists: values of a dozen
/// keys, times and UUIDs in queries change, numbers of others name objects, and so do the digits
/// before the end of a path. URLs without `http` or `https` are omitted.
pub fn population_of_urls<'u>(
    parameters: &Parameters,
    urls: impl IntoIterator<Item = &'u str>,
) -> Vec<Sample> {
    let templates = urls.into_iter().filter_map(template).enumerate();
    let connections = parameters.connections.max(1);
    number(
        templates
            .map(|(place, template)| {
                let connection = place as u64 % connections;
                (Template { connection, ..template }, kinds::Reply::Object)
            })
            .collect(),
    )
}

fn template(url: &str) -> Option<Template> {
    let request =
        Request::from_url("GET", url).filter(|request| request.scheme.starts_with("http"))?;
    let path = std::str::from_utf8(request.path).ok()?.trim_start_matches('/');
    let mut path: Vec<Vec<Value>> =
        path.split('/').map(|segment| vec![Value::fixed(segment)]).collect();
    if let Some(last) = path.last_mut() {
        *last = split_number(&last.first()?.text);
    }
    let query = match request.query {
        Some(query) => Some(std::str::from_utf8(query).ok()?.split('&').map(pair).collect()),
        None => None,
    };
    let mut template = Template {
        method: "GET",
        scheme: request.scheme.to_owned(),
        authority: request.authority.to_owned(),
        path,
        query,
        content: Content::None,
        fields: vec![("User-Agent", "Agent/1.0".into())],
        cookies: Vec::new(),
        connection: 0,
    };
    // The texts of values are decoded.
    template.each_value(|value| value.text = decode(&value.text));
    Some(template)
}

/// Splits a file such as `photo-123.jpg` before and behind its last number of three to six digits.
fn split_number(segment: &str) -> Vec<Value> {
    let end = segment.rfind(|c: char| c.is_ascii_digit()).map_or(0, |place| place + 1);
    let (head, tail) = segment.split_at(end);
    let start = head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (head, digits) = head.split_at(start);
    let is_number = (3..=6).contains(&digits.len())
        && !head.ends_with(|c: char| c.is_ascii_alphanumeric() || "%.".contains(c))
        && (tail.is_empty() || tail.starts_with('.'));
    if !is_number {
        return vec![Value::fixed(segment)];
    }
    let role = Role::Number(digits.len() as u32);
    vec![Value::fixed(head), Value { text: digits.into(), role }, Value::fixed(tail)]
}

fn pair(text: &str) -> (String, Value) {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let value = Value { text: value.to_owned(), role: role(&key.to_ascii_lowercase(), value) };
    (decode(key), value)
}

fn role(key: &str, value: &str) -> Role {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let count = value.len() as u32;
    let changes = CHANGING_KEYS.contains(&key);
    if digits && count == 13 && value.starts_with("1") {
        Role::Milliseconds
    } else if digits && count == 10 && value.starts_with("1") && changes {
        Role::Seconds
    } else if changes && digits && (5..=18).contains(&count) {
        Role::Digits(count)
    } else if changes && value.starts_with("0.") && count > 8 {
        Role::Fraction
    } else if is_uuid(value) {
        if OBJECT_KEYS.contains(&key) { Role::Identifier } else { Role::Uuid }
    } else if OBJECT_KEYS.contains(&key) && digits && (1..=9).contains(&count) {
        Role::Number(count.max(2))
    } else if OBJECT_KEYS.contains(&key)
        && value.len() > 2
        && value.bytes().all(|b| b.is_ascii_lowercase())
    {
        Role::Word
    } else {
        Role::Fixed
    }
}

fn is_uuid(value: &str) -> bool {
    value.len() == 36
        && value.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        let digits = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = more.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = more;
            }
            _ => {
                bytes.push(byte);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_of_real_values_are_known() {
        assert_eq!(role("x", "1575346576063"), Role::Milliseconds);
        assert_eq!(role("ord", "1884299219"), Role::Seconds);
        assert_eq!(role("mid", "3690"), Role::Number(4));
        assert_eq!(role("xuid", "fb845de5-9931-4000-a123-f943660d19ac"), Role::Uuid);
        assert_eq!(role("size", "50"), Role::Fixed);
        let parts: Vec<String> = split_number("p-123.jpg").into_iter().map(|v| v.text).collect();
        assert_eq!(parts, ["p-", "123", ".jpg"]);
        assert_eq!(decode("a%20b%zz%"), "a b%zz%");
    }
}
