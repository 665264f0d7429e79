//! URLs of objects: `http://` and `https://`, in the extent that a fetch needs.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::IpAddr;

use idna::AsciiDenyList;
use manyways_unit::reference::{self, without_dot_segments};

/// The URL of an object. Fragments are removed; characters that must not occur in a request line
/// are percent-encoded, as in browsers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    origin: Origin,
    /// Path and query, with the leading slash.
    target: String,
}

/// Scheme, host and port: the scope of one connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// Whether the scheme is https.
    pub secure: bool,
    /// A name in lower case, in its `xn--` form if it has other letters than those of ASCII, or an
    /// address without brackets.
    pub host: String,
    pub port: u16,
}

/// Why a text is not the URL of an object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// Neither http nor https.
    #[error("{0} is not an http:// or https:// URL")]
    Scheme(String),
    /// No host, or one with invalid characters.
    #[error("the host in the URL {0} is not valid")]
    Host(String),
    /// The port is not a number from 1 to 65535.
    #[error("the port in the URL {0} is not valid")]
    Port(String),
    /// User information before the host, in a redirect target.
    #[error("the URL contains a user name or password before the host {0}")]
    UserInfo(String),
}

impl LocationError {
    /// Returns a step that may solve the error, as a clause.
    pub fn hint(&self) -> Option<String> {
        let Self::Scheme(text) = self else { return None };
        if text.contains("://") {
            return None;
        }
        let started = ["https:", "http:"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = started.map_or(text.as_str(), |rest| rest.trim_start_matches('/'));
        let (plain, secure) = (format!("http://{rest}"), format!("https://{rest}"));
        Location::parse(&plain).is_ok().then(|| format!("write {plain} or {secure}"))
    }
}

impl Location {
    /// Parses an absolute URL without user information, see
    /// [`UserInfo::split`](super::login::UserInfo::split).
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let text = text.trim_ascii();
        let shown = || without_secrets(text);
        let secure = match text.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => true,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(LocationError::Scheme(shown())),
        };
        let rest = &text[text.find("://").map_or(0, |at| at + 3)..];
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            let host = authority.rsplit('@').next().unwrap_or_default();
            return Err(LocationError::UserInfo(host.to_owned()));
        }
        let (host, port) = split_port(authority);
        let default = if secure { 443 } else { 80 };
        let port = match port {
            None | Some("") => default,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|&port: &u16| port > 0 && digits.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| LocationError::Port(shown()))?,
        };
        let host = valid_host(host).ok_or_else(|| LocationError::Host(shown()))?;
        Ok(Self { origin: Origin { secure, host, port }, target: normalize_target(target) })
    }

    /// Resolves a `Location` header against this address (RFC 3986 §5.2).
    pub fn join(&self, reference: &str) -> Result<Self, LocationError> {
        let resolved = reference::resolve(&self.to_string(), reference);
        Self::parse(resolved.as_deref().unwrap_or(reference))
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The host, if it is another one than that of `original`; a subdomain of the same domain, for
    /// example with `www.`, does not count as another one.
    pub(super) fn other_host(&self, original: &Self) -> Option<&str> {
        let (host, original) = (self.origin.host.as_str(), original.origin.host.as_str());
        let is_within = |inner: &str, outer: &str| {
            inner.strip_suffix(outer).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        (!is_within(host, original) && !is_within(original, host)).then_some(host)
    }

    /// Path and query, as in a request line.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The last segment of the path, percent-decoded as far as it is UTF-8; `None` if it cannot be
    /// the name of a file.
    pub fn file_name(&self) -> Option<String> {
        let path = self.target.split('?').next()?;
        let last = path.rsplit('/').next()?;
        let name = escape_bytes(&decode(last));
        let bad = name.is_empty()
            || name == "."
            || name == ".."
            || name.contains(['/', '\0'])
            || name.chars().any(char::is_control);
        (!bad).then_some(name)
    }
}

impl Origin {
    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// The host if it is an address literal.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Host and port for `Host` and `:authority`; without the scheme's default port.
    pub fn authority(&self) -> String {
        let host = match self.address() {
            Some(IpAddr::V6(_)) => format!("[{}]", self.host),
            _ => self.host.clone(),
        };
        let default = if self.secure { 443 } else { 80 };
        if self.port == default { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.origin.scheme(), self.origin.authority(), self.target)
    }
}

/// Removes user information from an invalid URL, for an error message. A password may contain a
/// slash or a question mark, and then seems to be part of the path.
fn without_secrets(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    match text.rfind('@') {
        Some(at) if at >= start => format!("{}…{}", &text[..start], &text[at..]),
        _ => text.to_owned(),
    }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    let after_bracket = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[after_bracket..].rfind(':') {
        Some(at) => {
            let at = after_bracket + at;
            (&authority[..at], Some(&authority[at + 1..]))
        }
        None => (authority, None),
    }
}

/// Returns the form of a host that is resolved and sent; `None` if it is neither a name nor an
/// address. Other letters than those of ASCII are converted as in browsers (UTS 46).
pub(super) fn valid_host(host: &str) -> Option<String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().ok().map(|address| address.to_string());
    }
    let decoded = decode(host);
    // A name of ASCII letters may exist although a label after `xn--` cannot be decoded.
    let host = match str::from_utf8(&decoded).ok()? {
        ascii if ascii.is_ascii() => Cow::Borrowed(ascii),
        _ => idna::domain_to_ascii_cow(&decoded, AsciiDenyList::URL).ok()?,
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let fine = !host.is_empty() && host.len() <= 254 && host.bytes().all(plain);
    fine.then(|| host.trim_end_matches('.').to_ascii_lowercase()).filter(|host| !host.is_empty())
}

/// Removes the fragment, resolves dot segments and encodes characters that must not occur in a
/// request line.
fn normalize_target(text: &str) -> String {
    let text = text.split('#').next().unwrap_or_default();
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    let mut target = without_dot_segments(path);
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    let mut clean = String::with_capacity(target.len());
    for b in target.bytes() {
        if b.is_ascii_graphic()
            && !matches!(b, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
        {
            clean.push(char::from(b));
        } else {
            push_escaped(&mut clean, b);
        }
    }
    clean
}

/// Returns a URL or a part of one as text. Bytes that are not UTF-8 are percent-encoded: a server
/// or a file name may use another encoding.
pub fn escape_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| push_escaped(&mut text, *byte));
    }
    text
}

fn push_escaped(text: &mut String, byte: u8) {
    // Writing to a String does not fail.
    let _ = write!(text, "%{byte:02X}");
}

/// Decodes `%XX`; other percent signs remain.
pub(super) fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex
            .filter(|hex| bytes[at] == b'%' && hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(from: &str) -> String {
        Location::parse(from).map_or_else(|error| format!("error: {error}"), |l| l.to_string())
    }

    #[test]
    fn reads_urls() {
        assert_eq!(text("HTTP://Example.COM"), "http://example.com/");
        assert_eq!(text("https://example.com:443/a?b=c#d"), "https://example.com/a?b=c");
        assert_eq!(text("http://[::1]:8080/x y/ä"), "http://[::1]:8080/x%20y/%C3%A4");
        assert_eq!(text("http://a/b/../c/./d/.."), "http://a/c/");
        assert_eq!(text("http://a?x=/../y"), "http://a/?x=/../y");
        for bad in ["ftp://a/", "a/b", "http://", "http://a b/", "http://a:0/", "http://a:99999/"] {
            assert!(text(bad).starts_with("error: "), "{bad}");
        }
        for secret in
            ["http://me:secret@a/", "http://me:secr/et@a/", "me:secret@a", "http://u:s?secret@b"]
        {
            let said = text(secret);
            assert!(said.starts_with("error: ") && !said.contains("secr"), "{said}");
        }
    }

    #[test]
    fn a_host_in_other_letters_has_its_ascii_form() {
        assert_eq!(text("http://Bücher.Example/ä"), "http://xn--bcher-kva.example/%C3%A4");
        assert_eq!(text("http://b%C3%BCcher.example:8/"), "http://xn--bcher-kva.example:8/");
        assert_eq!(text("http://日本語。JP/"), "http://xn--wgv71a119e.jp/");
        assert_eq!(text("http://faß.de/"), "http://xn--fa-hia.de/");
        assert_eq!(text("http://%6Frigin.lab/"), "http://origin.lab/");
        // Such names exist.
        for exists in ["http://r3---sn-x.example/", "http://a_b.example/", "http://xn--a/"] {
            assert_eq!(text(exists), exists);
        }
        for bad in
            ["http://a%2Fb/", "http://%FF/", "http://a\u{200d}ü/", "http://ü%20x/", "http://%"]
        {
            let error = text(bad);
            assert!(error.starts_with("error: the host in the URL "), "{bad}: {error}");
        }
    }

    #[test]
    fn bytes_are_escaped_as_they_are() -> Result<(), LocationError> {
        let base = Location::parse("http://a/b/c")?;
        let redirect = |target: &[u8]| base.join(&escape_bytes(target)).map(|l| l.to_string());
        assert_eq!(
            redirect(b"/caf\xe9 \xc3\xa9%e9?\xff=|")?,
            "http://a/caf%E9%20%C3%A9%e9?%FF=%7C"
        );
        assert_eq!(redirect(b"\xa0")?, "http://a/b/%A0");
        assert_eq!(redirect("\u{a0}".as_bytes())?, "http://a/b/%C2%A0");
        assert_eq!(redirect("//bücher.example/".as_bytes())?, "http://xn--bcher-kva.example/");
        assert!(redirect(b"//b\xfccher.example/").is_err());
        Ok(())
    }

    #[test]
    fn a_missing_scheme_has_a_hint() {
        let hint = |text: &str| Location::parse(text).err().and_then(|error| error.hint());
        let both = Some("write http://origin.lab/x or https://origin.lab/x".to_owned());
        for text in ["origin.lab/x", "http:/origin.lab/x", "https:origin.lab/x"] {
            assert_eq!(hint(text), both, "{text}");
        }
        for other in ["mailto:x", "ftp://a/", "/etc/passwd", "me:secret@a/b", ""] {
            assert_eq!(hint(other), None, "{other}");
        }
    }

    #[test]
    fn a_subdomain_is_not_another_host() {
        for (from, to, other) in [
            ("http://a.example/x", "https://a.example:8443/y", None),
            ("http://a.example/x", "https://www.a.example/x", None),
            ("http://www.a.example/x", "http://a.example/x", None),
            ("http://a.example/x", "http://not-a.example/", Some("not-a.example")),
            ("http://a.example/x", "http://portal.test/", Some("portal.test")),
            ("http://a.example/x", "http://192.0.2.1/", Some("192.0.2.1")),
        ] {
            let [from, to] = [from, to].map(|url| Location::parse(url).unwrap());
            assert_eq!(to.other_host(&from), other, "{from} {to}");
        }
    }

    #[test]
    fn resolves_redirects() -> Result<(), LocationError> {
        let base = Location::parse("https://a.example/b/c?d")?;
        for (reference, expected) in [
            ("https://other/x", "https://other/x"),
            ("//other/x", "https://other/x"),
            ("/x", "https://a.example/x"),
            ("x", "https://a.example/b/x"),
            ("../x?y", "https://a.example/x?y"),
            ("?y", "https://a.example/b/c?y"),
            ("/x:y", "https://a.example/x:y"),
            ("#f", "https://a.example/b/c?d"),
        ] {
            assert_eq!(base.join(reference)?.to_string(), expected, "{reference}");
        }
        assert!(base.join("mailto:x").is_err());
        Ok(())
    }

    #[test]
    fn names_files() -> Result<(), LocationError> {
        let name = |url: &str| Location::parse(url).map(|location| location.file_name());
        assert_eq!(name("http://a/b/c%20d.bin?x")?, Some("c d.bin".to_owned()));
        // Whether a name is too long depends on the folder.
        let long = "x".repeat(300);
        assert_eq!(name(&format!("http://a/{long}"))?, Some(long));
        assert_eq!(name("http://a/%c3%a9%e9")?, Some("é%E9".to_owned()));
        for none in
            ["http://a/", "http://a/b/", "http://a/%2e%2e", "http://a/x%2Fy", "http://a/%00"]
        {
            assert_eq!(name(none)?, None, "{none}");
        }
        Ok(())
    }
}
