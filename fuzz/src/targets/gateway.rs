//! Requests of players to a gateway.

use manyways_net::fetch::gateway::{Translation, requested_part};
use manyways_net::fetch::{Excerpt, Location};

use super::network::check_location;

pub(super) const WORDS: &[&str] = &[
    "/00ff/",
    "_o/",
    "https/",
    "http/a.example:80",
    "%5B::1%5D:81",
    "//",
    "../",
    "/..",
    "./",
    "%2e",
    "%2E",
    "%2f",
    "%5c",
    "?",
    "#",
    "@",
    ":",
    "\n",
    "http://",
    "$Number$",
    "bytes=",
    "-",
    ",",
];

/// The users' URLs, of which the first byte of an input chooses one.
const TYPED: [&str; 4] = [
    "https://cdn.example/films/x/",
    "http://cdn.example:8080/a.mpd?key=a/b",
    "http://[2001:db8::1]/films/_o/a.m3u8",
    "https://cdn.example/",
];

/// The choice of a user's URL, and a line each: the target of a request, its `Range`, a reference in a
/// manifest.
pub(super) fn request(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let mut lines = rest.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (target, range, reference) = (line(), line(), line());
    check_range(range, bytes.len() as u64);
    let typed = TYPED[usize::from(*choice) % TYPED.len()];
    let typed = Location::parse(typed).expect("a URL");
    let translation = Translation::new(typed.clone());
    if let Ok(target) = std::str::from_utf8(target) {
        check_target(&translation, &typed, target);
    }
    if let Ok(reference) = std::str::from_utf8(reference) {
        check_reference(&translation, &typed, reference);
    }
}

/// A part is not empty, and lies within its object.
fn check_range(range: &[u8], length: u64) {
    for total in [0, 1, length, u64::MAX] {
        if let Some(Excerpt { start, end }) = requested_part(range, total) {
            assert!(end.is_some_and(|end| start < end && end <= total), "{start} {end:?} {total}");
        }
    }
}

/// Nothing is reached without the token; then an object is below the user's folder, for a server that
/// decodes its path too, or the target names its origin.
fn check_target(translation: &Translation, typed: &Location, target: &str) {
    let below = target.strip_prefix('/').and_then(|rest| rest.strip_prefix(Translation::TOKEN));
    let below = below.and_then(|rest| rest.strip_prefix('/'));
    let Some((location, is_full)) = translation.resource(target) else { return };
    let below = below.unwrap_or_else(|| panic!("{target:?} is without the token"));
    check_location(&location);
    if is_full {
        assert!(below.starts_with("_o/http"), "{target:?}");
    } else {
        let folder = folder_of(typed);
        assert_eq!(location.origin(), typed.origin(), "{target:?}");
        assert!(location.target().starts_with(folder), "{target:?} is {location}");
        let decoded = decoded(location.target().split('?').next().unwrap_or_default());
        assert!(normalized(&decoded).starts_with(folder), "{target:?} is {location}");
    }
    let path = translation.full_path(&location);
    assert_eq!(translation.resource(&path), Some((location, true)), "{path:?}");
}

/// A reference that is replaced leads to the object that the server meant.
fn check_reference(translation: &Translation, typed: &Location, reference: &str) {
    if let Ok(location) = Location::parse(reference) {
        let path = translation.full_path(&location);
        assert_eq!(translation.resource(&path), Some((location, true)), "{path:?}");
    }
    let Some(path) = translation.reference(typed, reference) else { return };
    assert!(path.starts_with(&format!("/{}/_o/http", Translation::TOKEN)), "{path:?}");
    let (found, is_full) = translation.resource(&path).expect("a path with the token");
    assert!(is_full, "{path:?}");
    // Spaces around a fragment have no meaning, and are encoded in some places only.
    if reference.bytes().all(|byte| byte.is_ascii_graphic()) {
        assert_eq!(Ok(found), typed.join(reference), "{reference:?} is {path:?}");
    }
}

/// The folder of a URL, with the last slash.
fn folder_of(location: &Location) -> &str {
    let path = location.target().split('?').next().unwrap_or_default();
    &path[..=path.rfind('/').expect("a path begins with a slash")]
}

/// A path as a server may read it: `%XX` are bytes, and a backslash is a slash.
fn decoded(path: &str) -> String {
    let mut decoded = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        let digit = |at: usize| char::from(*more.get(at)?).to_digit(16);
        let escaped = (*byte == b'%').then(|| Some(digit(0)? << 4 | digit(1)?)).flatten();
        let value = escaped.and_then(|value| u8::try_from(value).ok());
        decoded.push(value.unwrap_or(*byte));
        rest = if value.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&decoded).replace('\\', "/")
}

/// A path without `.`, `..` and repeated slashes.
fn normalized(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    format!("/{}/", kept.join("/"))
}
