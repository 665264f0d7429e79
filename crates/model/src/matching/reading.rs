//! A request, read once: the parts that must be equal, and the pairs that are weighed.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::body::{self, BodyKind};
use super::request::Request;
use super::shape::{Class, class, segment_class};

/// Pairs of a request that are compared one by one; all others are compared together.
pub(super) const MAX_PAIRS: usize = 512;
/// Bytes of a value that a difference shows.
const SHOWN: usize = 80;

/// Part of a request to which a pair belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// A segment of the path, by its number from 0.
    Path,
    Query,
    /// A field of a form in the body.
    Form,
    /// A value of a JSON body, by its key path.
    Json,
    /// The body as a whole.
    Body,
    /// A field of the head.
    Field,
}

/// A key with its value, for people.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub place: Place,
    pub key: String,
    /// At most [`SHOWN`] bytes.
    pub shown: String,
    pub atom: Atom,
}

/// A key with its value, for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Atom {
    pub key: u64,
    pub value: u64,
    pub class: Class,
}

/// A request as the rule reads it.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// Hash of everything except the fields.
    pub exact: u64,
    /// Hash of method, scheme, host, literal segments of the path and kind of the body.
    pub bucket: u64,
    /// Hash of the pairs that name objects.
    pub identity: u64,
    /// Hash of scheme and host.
    pub host: u64,
    /// In the order of their atoms.
    pub pairs: Vec<Pair>,
    pub fields: Fields,
}

/// Fields that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// Kind of the first type in Accept.
    pub accept: u8,
    pub origin: u64,
    pub requested_with: u64,
    pub authorization: u64,
    /// Names and values of cookies, sorted.
    pub cookies: Vec<(u64, u64)>,
    /// Hash of Range; 0 without.
    pub range: u64,
    pub is_conditional: bool,
}

pub(super) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Atom {
    pub(super) fn hash(self) -> u64 {
        hash((self.key, self.value))
    }
}

impl Pair {
    pub(super) fn new(place: Place, key: &str, value: &str) -> Self {
        Self::classed(place, key, value, class(key, value))
    }

    fn classed(place: Place, key: &str, value: &str, class: Class) -> Self {
        let atom = Atom { key: hash((place, key)), value: hash(value), class };
        Self { place, key: key.to_owned(), shown: short(value), atom }
    }

    /// A value that may be long and is not text.
    pub(super) fn hashed(place: Place, key: &str, value: &[u8]) -> Self {
        let hashed = hash(value);
        let shown = format!("{} bytes, hash {hashed:016x}", value.len());
        let atom = Atom { key: hash((place, key)), value: hashed, class: Class::Word };
        Self { place, key: key.to_owned(), shown, atom }
    }

    pub(super) fn hash(&self) -> u64 {
        self.atom.hash()
    }
}

impl Reading {
    /// Reads a request as if it had the given method.
    pub(super) fn new(request: &Request<'_>, method: &str) -> Self {
        let host =
            hash((request.scheme.to_ascii_lowercase(), host(request.scheme, request.authority)));
        let mut pairs = Vec::new();
        let literal = read_path(request.path, &mut pairs);
        if let Some(query) = request.query {
            body::form(query, Place::Query, &mut pairs);
        }
        let content_type = request.field("content-type").unwrap_or_default();
        let kind: BodyKind = body::read(content_type, request.body, &mut pairs);
        pairs.sort_by_key(|pair| pair.atom);
        let bucket = hash((host, method, literal, kind));
        let of = |pairs: &[Pair], filter: fn(Class) -> bool| {
            let atoms = pairs.iter().map(|pair| pair.atom).filter(|atom| filter(atom.class));
            hash(atoms.map(|atom| (atom.key, atom.value)).collect::<Vec<_>>())
        };
        Self {
            exact: hash((bucket, of(&pairs, |_| true))),
            bucket,
            identity: of(&pairs, |class| class == Class::Identity),
            host,
            fields: Fields::new(request),
            pairs,
        }
    }

    pub(super) fn atoms(&self) -> impl Iterator<Item = Atom> + '_ {
        self.pairs.iter().map(|pair| pair.atom)
    }
}

/// Returns the hash of the segments that are compared literally. The others become pairs, as do
/// parameters of segments (`;name=value`).
fn read_path(path: &[u8], pairs: &mut Vec<Pair>) -> u64 {
    let segments: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let mut literal = DefaultHasher::new();
    let mut before: Option<String> = None;
    for (number, segment) in segments.iter().enumerate() {
        let mut parts = segment.split(|byte| *byte == b';');
        let text = decode(parts.next().unwrap_or_default(), false);
        for parameter in parts.take(MAX_PAIRS.saturating_sub(pairs.len())) {
            body::form(parameter, Place::Query, pairs);
        }
        let is_last = number + 1 == segments.len();
        match segment_class(before.as_deref(), &text, is_last) {
            Some(class) if pairs.len() < MAX_PAIRS => {
                pairs.push(Pair::classed(Place::Path, &number.to_string(), &text, class));
                0_u8.hash(&mut literal);
            }
            _ => text.hash(&mut literal),
        }
        before = Some(text);
    }
    literal.finish()
}

impl Fields {
    fn new(request: &Request<'_>) -> Self {
        let mut fields = Self::default();
        for (name, value) in request.fields {
            let value = *value;
            match name.to_ascii_lowercase().as_str() {
                "accept" => fields.accept = accept(value),
                "origin" => fields.origin = hash(value),
                "x-requested-with" => fields.requested_with = hash(value),
                "authorization" => fields.authorization = hash(value),
                "range" => fields.range = hash(value),
                "if-none-match" | "if-modified-since" => fields.is_conditional = true,
                "cookie" => {
                    let room = 256_usize.saturating_sub(fields.cookies.len());
                    let cookies = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
                    fields.cookies.extend(
                        cookies.filter(|cookie| !cookie.is_empty()).take(room).map(|cookie| {
                            let at = cookie
                                .iter()
                                .position(|byte| *byte == b'=')
                                .unwrap_or(cookie.len());
                            (hash(cookie.get(..at)), hash(cookie.get(at..)))
                        }),
                    );
                }
                _ => {}
            }
        }
        fields.cookies.sort_unstable();
        fields
    }
}

/// Kind of the type that a client prefers: the first.
fn accept(value: &[u8]) -> u8 {
    let first = value.split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    let starts: [&[u8]; 6] =
        [b"*/*", b"text/html", b"image/", b"application/json", b"text/css", b"video/"];
    starts.iter().position(|start| first.starts_with(start)).map_or(1, |place| place as u8 + 2)
}

/// Small letters, and without the default port of the scheme.
pub(super) fn host(scheme: &str, authority: &str) -> String {
    let authority = authority.to_ascii_lowercase();
    let default = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    match authority.strip_suffix(default) {
        Some(host) => host.to_owned(),
        None => authority,
    }
}

/// Removes percent-encoding. Bytes that are not UTF-8 become U+FFFD and their digits.
pub(super) fn decode(text: &[u8], plus: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        let digit = |place: usize| more.get(place).and_then(|byte| char::from(*byte).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = more.get(2..).unwrap_or_default();
            }
            (b'+', ..) if plus => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => text,
        // Two different invalid values must remain different.
        Err(error) => error.as_bytes().iter().fold("\u{fffd}".to_owned(), |mut text, byte| {
            text.push(char::from(*byte));
            text
        }),
    }
}

fn short(value: &str) -> String {
    if value.len() <= SHOWN {
        return value.to_owned();
    }
    let mut end = SHOWN;
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", value.get(..end).unwrap_or_default())
}
