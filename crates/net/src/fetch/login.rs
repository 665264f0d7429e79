//! User name and password for Basic authentication (RFC 7617).
//!
//! No `Debug` or `Display` in this module prints a password. No URL that is printed, logged or
//! stored contains one.

use std::fmt;

use http::HeaderValue;

use super::location::decode;
use crate::base64;

/// User name and password of a URL, an option or a netrc file.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Must not contain a colon, which Basic cannot transmit.
    pub user: String,
    pub password: String,
}

/// User information of a URL.
#[derive(Clone, PartialEq, Eq)]
pub struct UserInfo {
    /// Percent-decoded.
    pub user: String,
    /// Percent-decoded; `None` without a colon.
    pub password: Option<String>,
}

impl Login {
    /// Parses `USER:PASSWORD`; the password may contain colons.
    pub fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':')?;
        (!user.is_empty()).then(|| Self { user: user.to_owned(), password: password.to_owned() })
    }

    /// Returns the value of `Authorization`.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let secret = base64::encode(format!("{}:{}", self.user, self.password).as_bytes());
        let mut value = HeaderValue::from_str(&format!("Basic {secret}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl UserInfo {
    /// Returns the URL without its user information, and that information.
    pub fn split(url: &str) -> (String, Option<Self>) {
        let Some(start) = url.find("://").map(|at| at + 3) else { return (url.to_owned(), None) };
        let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
        let Some(at) = url[start..end].rfind('@').map(|at| start + at) else {
            return (url.to_owned(), None);
        };
        let (user, password) = match url[start..at].split_once(':') {
            Some((user, password)) => (user, Some(decoded(password))),
            None => (&url[start..at], None),
        };
        let bare = format!("{}{}", &url[..start], &url[at + 1..]);
        // For example `http://@host/`.
        let empty = user.is_empty() && password.is_none();
        (bare, (!empty).then(|| Self { user: decoded(user), password }))
    }
}

fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&decode(text)).into_owned()
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for UserInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserInfo").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_word_of_the_command_line() {
        let login = Login::parse("me:a:b").unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("me", "a:b"));
        assert_eq!(Login::parse("me:").unwrap().password, "");
        for wrong in ["me", "", ":secret"] {
            assert_eq!(Login::parse(wrong), None);
        }
    }

    /// The example of RFC 7617 §2.
    #[test]
    fn is_sent_as_basic_and_never_shown() {
        let login = Login { user: "Aladdin".into(), password: "open sesame".into() };
        let header = login.header().unwrap();
        assert_eq!(header, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let shown = format!("{header:?} {login:?}");
        assert!(!shown.contains("sesame") && !shown.contains("QWxh"), "{shown}");
    }

    #[test]
    fn is_taken_out_of_a_url() {
        let split = |url: &str| {
            let (bare, info) = UserInfo::split(url);
            (bare, info.map(|info| (info.user, info.password)))
        };
        let some = |user: &str, password: Option<&str>| {
            Some((user.to_owned(), password.map(str::to_owned)))
        };
        assert_eq!(split("http://a/b@c:d"), ("http://a/b@c:d".into(), None));
        assert_eq!(split("http://me@a/b"), ("http://a/b".into(), some("me", None)));
        assert_eq!(split("http://me:@a"), ("http://a".into(), some("me", Some(""))));
        assert_eq!(
            split("https://m%40e:p%2F%3a@a:8/"),
            ("https://a:8/".into(), some("m@e", Some("p/:")))
        );
        assert_eq!(
            split("http://me:p@ss@a?x@y"),
            ("http://a?x@y".into(), some("me", Some("p@ss")))
        );
        assert_eq!(split("http://@a/"), ("http://a/".into(), None));
        assert_eq!(split("me:secret@a"), ("me:secret@a".into(), None));
        let shown = format!("{:?}", UserInfo::split("http://me:secret@a/"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
