//! URLs of the gateway for URLs of servers.
//!
//! `/TOKEN/x` is `x` in the folder of the user's URL. `/TOKEN/_o/https/HOST:PORT/x` is
//! `https://HOST:PORT/x`: any server, with its whole path, so that a player resolves relative
//! references, also with `..`, as the server meant them. `..` does not lead out of the folder: there,
//! the token would be missing.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};

use super::super::location::{Location, LocationError, Origin, decode};

/// The first segment of a path that names its origin.
const ORIGIN_MARK: &str = "_o";

/// The secret in the URLs of a gateway: 128 random bits in hexadecimal.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A new token; `None` if the system returns no random numbers.
    pub(super) fn generate() -> Option<Self> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(super::super::transfer::hex(&bytes)))
    }

    /// The token as it stands in a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a text is the token. The time does not depend on the position of a wrong byte.
    fn is(&self, text: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), text.as_bytes());
        let differences = own.iter().zip(other).fold(0, |sum, (own, other)| sum | (own ^ other));
        own.len() == other.len() && std::hint::black_box(differences) == 0
    }
}

/// The translation of URLs.
#[derive(Debug)]
pub(super) struct Mapping {
    token: Token,
    /// The user's URL.
    typed: Location,
    /// Length of its folder in its target, with the last slash.
    folder: usize,
}

/// A request of the player for an object of a server.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Resource {
    pub(super) location: Location,
    /// Whether the path names the origin. In any other one, `..` may lead out of the gateway.
    pub(super) is_full: bool,
}

/// Why a target is not an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoResource {
    /// The token is missing or wrong, or `..` leads out of its folder.
    Token,
    Location(LocationError),
}

/// A reference in a manifest.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Reference {
    /// It is resolved by the player, and the gateway gets the request.
    Relative {
        /// Whether it begins with `..`.
        climbs: bool,
    },
    /// It gets this path.
    Mapped { path: String, origin: Origin },
    /// It is not a URL of HTTP.
    Other,
}

impl Mapping {
    pub(super) fn new(token: Token, typed: Location) -> Self {
        let path = typed.target().split('?').next().unwrap_or_default();
        let folder = path.rfind('/').map_or(0, |at| at + 1);
        Self { token, typed, folder }
    }

    pub(super) fn token(&self) -> &Token {
        &self.token
    }

    /// The path of the user's URL.
    pub(super) fn typed_path(&self) -> String {
        format!("/{}/{}", self.token.as_str(), &self.typed.target()[self.folder..])
    }

    /// Returns the object of a request target.
    pub(super) fn resource(&self, target: &str) -> Result<Resource, NoResource> {
        let (token, rest) = target
            .strip_prefix('/')
            .and_then(|rest| rest.split_once('/'))
            .ok_or(NoResource::Token)?;
        if !self.token.is(token) {
            return Err(NoResource::Token);
        }
        let full = rest.strip_prefix(ORIGIN_MARK).and_then(|rest| rest.strip_prefix('/'));
        let (url, is_full) = match full.and_then(full_url) {
            Some(url) => (url, true),
            None if climbs_out(rest) => return Err(NoResource::Token),
            None => {
                let (origin, folder) = (self.typed.origin(), &self.typed.target()[..self.folder]);
                (format!("{}://{}{folder}{rest}", origin.scheme(), origin.authority()), false)
            }
        };
        let location = Location::parse(&url).map_err(NoResource::Location)?;
        Ok(Resource { location, is_full })
    }

    /// The path of an object, with its origin.
    pub(super) fn full_path(&self, location: &Location) -> String {
        self.prefix(location.origin()) + location.target()
    }

    /// Translates a reference in the manifest at `location`. The rest after its origin remains as it
    /// is written: it may be a template.
    pub(super) fn reference(&self, location: &Location, reference: &str) -> Reference {
        let mapped = |origin: &Origin, rest: &str| {
            let slash = if rest.starts_with('/') { "" } else { "/" };
            let path = format!("{}{slash}{rest}", self.prefix(origin));
            Reference::Mapped { path, origin: origin.clone() }
        };
        let absolute = |scheme: &str, rest: &str| {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, rest) = rest.split_at(end);
            match Location::parse(&format!("{scheme}://{authority}/")) {
                Ok(root) => mapped(root.origin(), rest),
                Err(_) => Reference::Other,
            }
        };
        if let Some(rest) = reference.strip_prefix("//") {
            return absolute(location.origin().scheme(), rest);
        }
        if reference.starts_with('/') {
            return mapped(location.origin(), reference);
        }
        let scheme_end = reference.find([':', '/', '?', '#', '$', '{']);
        if let Some(at) = scheme_end.filter(|at| *at > 0 && reference[*at..].starts_with(':')) {
            return match reference[at..].strip_prefix("://") {
                Some(rest) => absolute(&reference[..at], rest),
                None => Reference::Other,
            };
        }
        let path = reference.split(['?', '#']).next().unwrap_or_default();
        Reference::Relative { climbs: path.split('/').any(|segment| segment == "..") }
    }

    fn prefix(&self, origin: &Origin) -> String {
        let host = match origin.address() {
            Some(std::net::IpAddr::V6(address)) => format!("%5B{address}%5D"),
            _ => origin.host.clone(),
        };
        let (token, scheme, port) = (self.token.as_str(), origin.scheme(), origin.port);
        format!("/{token}/{ORIGIN_MARK}/{scheme}/{host}:{port}")
    }
}

/// Whether the path of a target leads out of its folder with `..`, as it is written or for a server
/// that decodes it and takes several slashes for one.
fn climbs_out(target: &str) -> bool {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let decoded = decode(path);
    let as_decoded = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
    climbs(path.as_bytes().split(|byte| *byte == b'/'))
        || climbs(as_decoded.filter(|segment| !segment.is_empty()))
}

fn climbs<'a>(mut segments: impl Iterator<Item = &'a [u8]>) -> bool {
    let left = segments.try_fold(0_u64, |depth, segment| match segment {
        b"." => Some(depth),
        b".." => depth.checked_sub(1),
        _ => Some(depth + 1),
    });
    left.is_none()
}

/// The URL in a path that names its origin: `https/HOST:PORT/x`. `None` for another path.
fn full_url(path: &str) -> Option<String> {
    let (scheme, rest) = path.split_once('/')?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (host, port) = authority.rsplit_once(':')?;
    if !matches!(scheme, "http" | "https") || host.is_empty() || port.is_empty() {
        return None;
    }
    // A player may decode or encode the brackets.
    let bare = host.strip_prefix("%5B").or_else(|| host.strip_prefix("%5b"));
    let bare = bare.and_then(|host| host.strip_suffix("%5D").or_else(|| host.strip_suffix("%5d")));
    let host = bare.map_or_else(|| host.to_owned(), |address| format!("[{address}]"));
    Some(format!("{scheme}://{host}:{port}{rest}"))
}

/// The translation without a server, to test it with any text. Its token is [`Self::TOKEN`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Translation(Mapping);

impl Translation {
    pub const TOKEN: &str = "00ff";

    pub fn new(typed: Location) -> Self {
        Self(Mapping::new(Token(Self::TOKEN.to_owned()), typed))
    }

    /// The object of a request target, and whether the target names its origin.
    pub fn resource(&self, target: &str) -> Option<(Location, bool)> {
        let resource = self.0.resource(target).ok()?;
        Some((resource.location, resource.is_full))
    }

    /// The target that names the origin of an object.
    pub fn full_path(&self, location: &Location) -> String {
        self.0.full_path(location)
    }

    /// The target that replaces a reference in the manifest at `location`, if it is replaced.
    pub fn reference(&self, location: &Location, reference: &str) -> Option<String> {
        match self.0.reference(location, reference) {
            Reference::Mapped { path, .. } => Some(path),
            Reference::Relative { .. } | Reference::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mapping(typed: &str) -> Mapping {
        Mapping::new(Token("00ff".into()), Location::parse(typed).unwrap())
    }

    fn resource(mapping: &Mapping, target: &str) -> (String, bool) {
        let resource = mapping.resource(target).unwrap();
        (resource.location.to_string(), resource.is_full)
    }

    #[test]
    fn tokens_are_random_and_compared_as_a_whole() {
        let token = Token::generate().unwrap();
        assert_eq!(token.as_str().len(), 32);
        assert_ne!(token.as_str(), Token::generate().unwrap().as_str());
        assert!(token.is(token.as_str()) && !token.is("") && !token.is(&token.as_str()[1..]));
        assert!(!format!("{token:?}").contains(token.as_str()));
    }

    #[test]
    fn the_folder_of_the_users_url_is_below_the_token() {
        let films = mapping("https://cdn.example/films/");
        assert_eq!(films.typed_path(), "/00ff/");
        for (target, url) in [
            ("/00ff/", "https://cdn.example/films/"),
            ("/00ff/a/x.mpd?b=/c", "https://cdn.example/films/a/x.mpd?b=/c"),
            ("/00ff/_o", "https://cdn.example/films/_o"),
            ("/00ff/_o/x", "https://cdn.example/films/_o/x"),
            ("/00ff/_o/ftp/a:1/x", "https://cdn.example/films/_o/ftp/a:1/x"),
        ] {
            assert_eq!(resource(&films, target), (url.into(), false), "{target}");
        }
        let manifest = mapping("http://cdn.example:8080/films/x.mpd?key=a/b");
        assert_eq!(manifest.typed_path(), "/00ff/x.mpd?key=a/b");
        let (url, _) = resource(&manifest, "/00ff/1.m4s");
        assert_eq!(url, "http://cdn.example:8080/films/1.m4s");
        for wrong in ["", "/", "/00ff", "/00fe/x", "/00ff0/x", "x", "/_o/http/a:80/"] {
            assert_eq!(films.resource(wrong), Err(NoResource::Token), "{wrong}");
        }
    }

    #[test]
    fn a_full_path_names_its_origin() {
        let films = mapping("https://cdn.example/films/");
        for url in [
            "https://cdn.example/films/a?b",
            "http://other.example/",
            "http://other.example:8080/a/b?c=d/e",
            "http://[2606:4700::1]/x",
            "http://[2606:4700::1]:81/x",
        ] {
            let path = films.full_path(&Location::parse(url).unwrap());
            assert_eq!(resource(&films, &path), (url.into(), true), "{path}");
        }
        let (url, _) = resource(&films, "/00ff/_o/http/[2606:4700::1]:81/x");
        assert_eq!(url, "http://[2606:4700::1]:81/x");
        assert!(films.resource("/00ff/_o/http/a:99999/x").is_err());
        assert!(films.resource("/00ff/_o/http/a@b:80/x").is_err());
    }

    #[test]
    fn dots_do_not_lead_out_of_the_folder() {
        let films = mapping("https://cdn.example/films/");
        for (target, url) in [
            ("/00ff/a/../x", "https://cdn.example/films/x"),
            ("/00ff/a/%2e%2E/x", "https://cdn.example/films/a/%2e%2E/x"),
            ("/00ff/..a/...?../../x", "https://cdn.example/films/..a/...?../../x"),
        ] {
            assert_eq!(resource(&films, target), (url.into(), false), "{target}");
        }
        for target in [
            "/00ff/..",
            "/00ff/../films/x",
            "/00ff/a/../../x",
            "/00ff/./../x",
            "/00ff/%2e%2E/x",
            "/00ff/.%2e/x",
            "/00ff/..%2fx",
            "/00ff/..%5Cx",
            "/00ff/a%2fb/../../x",
            "/00ff//%2e./x",
            "/00ff/_o/../../x",
        ] {
            assert_eq!(films.resource(target), Err(NoResource::Token), "{target}");
        }
        let (url, is_full) = resource(&films, "/00ff/_o/http/a.example:80/b/../../../x");
        assert_eq!((url.as_str(), is_full), ("http://a.example/x", true));
    }

    #[test]
    fn references_keep_their_templates() {
        let films = mapping("https://cdn.example/films/");
        let at = Location::parse("https://cdn.example/films/x.mpd").unwrap();
        for (reference, expected) in [
            ("https://b.example/$Number%05d$.m4s", "https/b.example:443/$Number%05d$.m4s"),
            ("HTTP://b.example:80/{$x}?y", "http/b.example:80/{$x}?y"),
            ("http://b.example", "http/b.example:80/"),
            ("http://b.example?q", "http/b.example:80/?q"),
            ("//b.example/x", "https/b.example:443/x"),
            ("/root/$Time$", "https/cdn.example:443/root/$Time$"),
        ] {
            let Reference::Mapped { path, .. } = films.reference(&at, reference) else {
                panic!("{reference}")
            };
            assert_eq!(path, format!("/00ff/_o/{expected}"), "{reference}");
        }
        for (reference, climbs) in [
            ("x.m4s", false),
            ("a/$Number$.m4s?u=http://b", false),
            ("$Base$://x", false),
            ("?x", false),
            ("../x", true),
            ("a/../x", true),
            ("a?../x", false),
        ] {
            let found = films.reference(&at, reference);
            assert_eq!(found, Reference::Relative { climbs }, "{reference}");
        }
        for other in
            ["data:text/plain,x", "urn:mpeg:x", "file:///etc/passwd", "ftp://a/b", "http://u:p@a/b"]
        {
            assert_eq!(films.reference(&at, other), Reference::Other, "{other}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_full_paths_return(target in "[ -~é]{0,60}", rest in "[!-~]{0,40}") {
            let films = mapping("https://cdn.example/films/");
            let at = Location::parse("https://cdn.example/films/x.mpd").unwrap();
            let _ = films.resource(&target);
            let _ = films.resource(&format!("/00ff/_o/{target}"));
            let _ = films.reference(&at, &target);
            let url = Location::parse(&format!("http://a.example:81/{rest}")).unwrap();
            prop_assert_eq!(films.resource(&films.full_path(&url)).unwrap().location, url);
        }
    }
}
