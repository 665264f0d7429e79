//! Why a page was not loaded.

use manyways_unit::Span;

use super::recorder::MAX_REQUESTS;
use crate::browser::{BrowserError, ProxiedConnection};

/// Why the load of a page has ended early.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    #[error(transparent)]
    Browser(#[from] BrowserError),
    /// There was no load event in time.
    #[error("the page has not loaded after {0}")]
    TimedOut(Span),
    /// The browser shows an error instead of the page: the code of Chromium, such as
    /// `net::ERR_NAME_NOT_RESOLVED`, and the reason that the proxy knows.
    #[error("the page cannot be loaded: {}", .reason.clone().unwrap_or_else(|| sentence(.code)))]
    Unreachable { code: String, reason: Option<String> },
    /// The server sent a file that is not shown.
    #[error("the address is of a file to download, not of a page")]
    Download,
    /// Each document leads to the next one before it has loaded.
    #[error("the page went on to another one more than {0} times")]
    Wanders(u32),
    #[error("the page has more than {MAX_REQUESTS} requests")]
    TooManyRequests,
}

impl PageError {
    /// The step that may help.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Browser(error) => error.hint()?,
            Self::TimedOut(_) => {
                "allow more with --timeout; --har FILE shows which responses are missing"
            }
            Self::Unreachable { code, .. } => match code.trim_start_matches("net::ERR_") {
                "TOO_MANY_REDIRECTS" => "`manyways probe http` shows where each redirect leads",
                code if code.starts_with("CERT_") => {
                    "let the user trust the certificate's authority, or name the host that it is for"
                }
                _ => "`manyways probe http` shows how far a request gets",
            },
            Self::Download => "`manyways get` downloads files",
            Self::Wanders(_) => "name the page at which it ends",
            Self::TooManyRequests => "measure a page that loads fewer objects at once",
        };
        Some(hint.to_owned())
    }

    /// The browser knows only that the proxy has no connection; the proxy knows the reason.
    pub(super) fn explained(self, connections: &[ProxiedConnection]) -> Self {
        match self {
            Self::Unreachable { code, .. } if code.contains("SOCKS") => {
                let reason = connections.iter().rev().find_map(|one| one.failure.clone());
                Self::Unreachable { code, reason }
            }
            other => other,
        }
    }
}

/// A code of Chromium as words.
fn sentence(code: &str) -> String {
    let known = match code.trim_start_matches("net::ERR_") {
        "NAME_NOT_RESOLVED" => "its name was not found",
        "TOO_MANY_REDIRECTS" => "it redirects for ever",
        "CONNECTION_REFUSED" => "the server refuses connections",
        "EMPTY_RESPONSE" => "the server closed the connection without a response",
        "INVALID_HTTP_RESPONSE" | "INVALID_RESPONSE" => "the server does not answer with HTTP",
        "CERT_AUTHORITY_INVALID" => "the browser does not trust the server's certificate",
        "CERT_COMMON_NAME_INVALID" => "the server's certificate is for another name",
        "CERT_DATE_INVALID" => "the server's certificate has expired, or is not valid yet",
        other => return other.replace('_', " ").to_lowercase(),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(code: &str) -> PageError {
        PageError::Unreachable { code: code.to_owned(), reason: None }
    }

    #[test]
    fn codes_of_chromium_become_sentences() {
        let text = unreachable("net::ERR_TOO_MANY_REDIRECTS").to_string();
        assert_eq!(text, "the page cannot be loaded: it redirects for ever");
        let text = unreachable("net::ERR_ADDRESS_UNREACHABLE").to_string();
        assert_eq!(text, "the page cannot be loaded: address unreachable");
        let hint = unreachable("net::ERR_CERT_AUTHORITY_INVALID").hint().unwrap();
        assert!(hint.contains("authority"), "{hint}");
    }

    #[test]
    fn the_proxy_knows_why_there_is_no_connection() {
        let failed = |reason: Option<&str>| ProxiedConnection {
            host: "a.example".to_owned(),
            port: 80,
            requested: manyways_unit::Time::ZERO,
            resolved: None,
            connected: None,
            failure: reason.map(str::to_owned),
        };
        let connections = [failed(Some("the name a.example does not exist")), failed(None)];
        let error =
            unreachable("net::ERR_SOCKS_CONNECTION_HOST_UNREACHABLE").explained(&connections);
        let text = "the page cannot be loaded: the name a.example does not exist";
        assert_eq!(error.to_string(), text);
        let error = unreachable("net::ERR_EMPTY_RESPONSE").explained(&connections);
        assert!(error.to_string().ends_with("without a response"), "{error}");
    }
}
