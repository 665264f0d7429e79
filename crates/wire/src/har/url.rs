//! URLs of requests.

use std::net::IpAddr;

use crate::HostName;

/// An absolute URL with the scheme `http` or `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// Without user name, password and fragment. Bytes that a request line cannot contain are
    /// percent-encoded.
    pub(super) text: String,
    pub(super) is_secure: bool,
    /// In lower case; addresses of IPv6 without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Url {
    /// # Errors
    /// A phrase that names the reason.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (scheme, rest) = text.split_once(':').ok_or("its URL is not absolute")?;
        let is_secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            other => {
                let scheme: String =
                    other.chars().filter(char::is_ascii_graphic).take(20).collect();
                return Err(format!("its URL begins with `{scheme}:`"));
            }
        };
        let rest = rest.strip_prefix("//").ok_or("its URL has no host")?;
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = split_port(authority).ok_or("its URL has no valid port")?;
        if !is_host(host) {
            return Err("its URL has no valid host".to_owned());
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let scheme = if is_secure { "https" } else { "http" };
        Ok(Self {
            text: format!("{scheme}://{authority}{slash}{}", escaped(path)),
            is_secure,
            host: host.trim_matches(['[', ']']).to_ascii_lowercase(),
            port: port.unwrap_or(if is_secure { 443 } else { 80 }),
        })
    }

    /// The server name for TLS; `None` for an address.
    pub(super) fn server_name(&self) -> Option<String> {
        self.host.parse::<IpAddr>().is_err().then(|| self.host.trim_end_matches('.').to_owned())
    }
}

/// Returns the absolute URL of a request with this target (RFC 9112, 3.2; `:path` in HTTP/2), as
/// [`super::write()`] needs it: without user name, password and fragment. `authority` is the host,
/// with the port if it is not the default one. `None` if they cannot form one.
pub fn request_url(is_secure: bool, authority: &str, target: &str) -> Option<String> {
    let scheme = if is_secure { "https" } else { "http" };
    let text = match target {
        // OPTIONS for the server as a whole has no path.
        "*" => format!("{scheme}://{authority}"),
        path if path.starts_with('/') => format!("{scheme}://{authority}{path}"),
        // The absolute form, of a client that believes to talk to a proxy.
        url if url.contains("://") => url.to_owned(),
        // The authority of CONNECT.
        other => format!("{scheme}://{other}"),
    };
    Url::parse(&text).ok().map(|url| url.text)
}

/// `None` if the part after the colon is not a port.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, "")) => Some((host, None)),
        Some((host, port)) if !port.ends_with(']') => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| Some((host, Some(port.parse().ok()?)))).flatten()
        }
        _ => Some((authority, None)),
    }
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            host.parse::<std::net::Ipv4Addr>().is_ok() || HostName::parse(host.as_bytes()).is_some()
        }
    }
}

/// Percent-encodes spaces, control characters and characters beyond ASCII (RFC 3986, 2.1).
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_graphic() {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_has_the_url_of_its_target() {
        let url = |target| request_url(true, "a.example:8443", target).unwrap();
        assert_eq!(url("/x?y#z"), "https://a.example:8443/x?y");
        assert_eq!(url("*"), "https://a.example:8443/");
        assert_eq!(url("http://b.example/x"), "http://b.example/x");
        assert_eq!(url("b.example:443"), "https://b.example:443/");
        assert_eq!(request_url(false, "[::1]", "/").unwrap(), "http://[::1]/");
        for (authority, target) in [("", "/"), ("a b", "/"), ("a", "ftp://a/"), ("a", "")] {
            assert_eq!(request_url(false, authority, target), None, "{authority} {target}");
        }
    }

    #[test]
    fn a_url_has_a_host_a_port_and_a_text_without_secrets_and_fragment() {
        let parts = |text: &str| {
            let url = Url::parse(text).unwrap();
            (url.text, url.is_secure, url.host, url.port)
        };
        let expected = |text: &str, is_secure, host: &str, port| {
            (text.to_owned(), is_secure, host.to_owned(), port)
        };
        assert_eq!(
            parts("HTTPS://me:secret@A.example:8443/x y?é#z"),
            expected("https://A.example:8443/x%20y?%C3%A9", true, "a.example", 8443)
        );
        assert_eq!(
            parts("http://a.example"),
            expected("http://a.example/", false, "a.example", 80)
        );
        assert_eq!(
            parts("http://a.example?b"),
            expected("http://a.example/?b", false, "a.example", 80)
        );
        assert_eq!(
            parts("https://[2001:DB8::1]/"),
            expected("https://[2001:DB8::1]/", true, "2001:db8::1", 443)
        );
        assert_eq!(parts("http://[::1]:81/"), expected("http://[::1]:81/", false, "::1", 81));
        assert_eq!(Url::parse("https://192.0.2.1/").unwrap().server_name(), None);
        assert_eq!(
            Url::parse("https://a.example./").unwrap().server_name(),
            Some("a.example".into())
        );
    }

    #[test]
    fn other_urls_are_refused_with_a_reason() {
        for (text, reason) in [
            ("data:text/plain,a", "its URL begins with `data:`"),
            ("wss://a.example/", "its URL begins with `wss:`"),
            ("/path", "its URL is not absolute"),
            ("http:/a", "its URL has no host"),
            ("http:///a", "its URL has no valid host"),
            ("http://a b/", "its URL has no valid host"),
            ("http://[::1/", "its URL has no valid host"),
            ("http://a.example:x/", "its URL has no valid port"),
            ("http://a.example:99999/", "its URL has no valid port"),
        ] {
            assert_eq!(Url::parse(text), Err(reason.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_that_was_read_reads_as_itself(text in "(https?://)?[a-z0-9:@.%?#/ é\\[\\]]{0,30}") {
            if let Ok(url) = Url::parse(&text) {
                prop_assert_eq!(Url::parse(&url.text), Ok(url.clone()), "{}", url.text);
            }
        }
    }
}
