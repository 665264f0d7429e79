//! URL references (RFC 3986, 5.2), as text: in redirects and manifests.

/// Resolves a reference against the absolute URL `base`: another absolute URL, or a relative one of
/// any form (`//host/a`, `/a`, `../a`, `?a`, or none). The result has neither a fragment nor dot
/// segments. `None` if `base` has no scheme and host.
///
/// The text is not checked further, and no characters are encoded.
pub fn resolve(base: &str, reference: &str) -> Option<String> {
    let base = without_fragment(base.trim_ascii());
    let reference = without_fragment(reference.trim_ascii());
    let scheme_end = base.find("://").filter(|_| has_scheme(base))?;
    let (origin, path, query) = split(base, scheme_end + "://".len());
    if has_scheme(reference) {
        return Some(match reference.find("://") {
            Some(at) => {
                let (origin, path, query) = split(reference, at + "://".len());
                join(origin, path, query)
            }
            None => reference.to_owned(),
        });
    }
    if reference.starts_with("//") {
        let (origin, path, query) = split(reference, "//".len());
        return Some(join(&format!("{}:{origin}", &base[..scheme_end]), path, query));
    }
    let (_, new_path, new_query) = split(reference, 0);
    Some(if reference.is_empty() {
        join(origin, path, query)
    } else if new_path.is_empty() {
        join(origin, path, new_query)
    } else if new_path.starts_with('/') {
        join(origin, new_path, new_query)
    } else {
        let folder = &path[..path.rfind('/').map_or(0, |at| at + 1)];
        join(origin, &format!("{folder}{new_path}"), new_query)
    })
}

/// Returns a path without `.` and `..` (RFC 3986, 5.2.4); it begins with a slash.
pub fn without_dot_segments(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    parts.pop();
                }
                if last {
                    parts.push("");
                }
            }
            _ => parts.push(segment),
        }
    }
    let mut clean = String::with_capacity(path.len() + 1);
    clean.push('/');
    clean.push_str(&parts.join("/"));
    clean
}

/// Whether a reference begins with a scheme, and so is absolute.
fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else { return false };
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) && scheme.bytes().all(is_valid)
}

fn without_fragment(text: &str) -> &str {
    text.split('#').next().unwrap_or_default()
}

/// Splits a URL without a fragment into scheme and authority, path, and query with its question mark.
/// `authority` is the offset at which the authority begins; if it is 0, there is none.
fn split(url: &str, authority: usize) -> (&str, &str, &str) {
    let rest = &url[authority..];
    let end = if authority == 0 { 0 } else { rest.find(['/', '?']).unwrap_or(rest.len()) };
    let (origin, rest) = url.split_at(authority + end);
    let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    (origin, path, query)
}

fn join(origin: &str, path: &str, query: &str) -> String {
    format!("{origin}{}{query}", without_dot_segments(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3986, 5.4; those with a fragment are without it here.
    #[test]
    fn references_resolve_as_in_the_rfc() {
        let base = "http://a/b/c/d;p?q";
        for (reference, expected) in [
            ("g:h", "g:h"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g?y#s", "http://a/b/c/g?y"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
        ] {
            assert_eq!(resolve(base, reference).as_deref(), Some(expected), "{reference}");
        }
    }

    #[test]
    fn references_of_manifests_resolve() {
        for (base, reference, expected) in [
            ("https://[::1]:8443", "v/1.m4s", "https://[::1]:8443/v/1.m4s"),
            ("http://a?b=/c", "d", "http://a/d"),
            ("http://a/b/..", "c", "http://a/b/c"),
            ("http://a/b/", "$Number$.m4s?c=d:e/f", "http://a/b/$Number$.m4s?c=d:e/f"),
            ("http://a/b", "2026-01-01T00:00.m4s", "http://a/2026-01-01T00:00.m4s"),
            ("http://a/b", " HTTPS://C/./d ", "HTTPS://C/d"),
        ] {
            assert_eq!(resolve(base, reference).as_deref(), Some(expected), "{base} {reference}");
        }
        for base in ["", "a/b", "/a", "//a/b", "mailto:a", "1://a", "?x=http://a/"] {
            assert_eq!(resolve(base, "c"), None, "{base}");
        }
    }
}
