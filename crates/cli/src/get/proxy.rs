//! Proxies that the environment names, which `get` does not use.

use std::ffi::OsString;

/// Returns the first variable that names a proxy for a URL; each URL is given by whether its scheme
/// is https.
pub fn ignored(
    mut urls: impl Iterator<Item = bool>,
    variable: impl Fn(&'static str) -> Option<OsString>,
) -> Option<&'static str> {
    urls.find_map(|is_secure| {
        let own =
            if is_secure { ["https_proxy", "HTTPS_PROXY"] } else { ["http_proxy", "HTTP_PROXY"] };
        let mut names = own.into_iter().chain(["all_proxy", "ALL_PROXY"]);
        names.find(|name| variable(name).is_some_and(|value| !value.is_empty()))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_variable_of_the_scheme_counts_in_either_case() {
        let ignored = |urls: &[bool], set: &[(&str, &str)]| {
            let value = |name: &str| {
                set.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into())
            };
            super::ignored(urls.iter().copied(), value)
        };
        let proxy = "http://me:secret@proxy:3128";
        assert_eq!(ignored(&[true], &[("https_proxy", proxy)]), Some("https_proxy"));
        assert_eq!(ignored(&[true], &[("http_proxy", proxy)]), None);
        assert_eq!(ignored(&[true, false], &[("HTTP_PROXY", proxy)]), Some("HTTP_PROXY"));
        assert_eq!(ignored(&[false], &[("ALL_PROXY", proxy)]), Some("ALL_PROXY"));
        assert_eq!(ignored(&[false], &[("http_proxy", ""), ("no_proxy", "*")]), None);
        assert_eq!(ignored(&[], &[("all_proxy", proxy)]), None);
    }
}
