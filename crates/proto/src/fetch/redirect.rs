//! Limits of redirects.

use manyways_unit::{Size, Span};

/// Limits of redirects.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RedirectConfig {
    /// Maximum number of redirects that are followed for one request.
    pub max_redirects: u32,
    /// Longest body of a redirect that is read in order to keep the connection.
    pub max_body: Size,
    /// Longest time that the reading of this body may take.
    pub max_body_time: Span,
}

impl Default for RedirectConfig {
    fn default() -> Self {
        Self { max_redirects: 10, max_body: Size::from_kib(64), max_body_time: Span::from_secs(1) }
    }
}

/// URI scheme of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    Http,
    Https,
}

/// Why a redirect is not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedirectError {
    /// The chain has more than this number of redirects.
    TooMany(u32),
    /// From `https` to `http`: the bytes could be read and changed in transit.
    Downgrade,
}

/// The redirects of one request.
#[derive(Clone, Copy, Debug)]
pub struct Redirects {
    config: RedirectConfig,
    followed: u32,
}

impl Redirects {
    /// Creates the state of a request without redirects.
    pub fn new(config: RedirectConfig) -> Self {
        Self { config, followed: 0 }
    }

    /// Counts a redirect.
    ///
    /// # Errors
    /// Fails if the redirect must not be followed.
    pub fn follow(&mut self, from: Scheme, to: Scheme) -> Result<(), RedirectError> {
        if self.followed >= self.config.max_redirects {
            return Err(RedirectError::TooMany(self.config.max_redirects));
        }
        self.followed += 1;
        match (from, to) {
            (Scheme::Https, Scheme::Http) => Err(RedirectError::Downgrade),
            _ => Ok(()),
        }
    }

    /// Whether any redirect was followed.
    pub fn is_redirected(&self) -> bool {
        self.followed > 0
    }

    pub fn config(&self) -> &RedirectConfig {
        &self.config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_redirects_are_followed_and_none_leaves_tls() {
        let mut redirects = Redirects::new(RedirectConfig::default());
        for _ in 0..10 {
            assert_eq!(redirects.follow(Scheme::Http, Scheme::Https), Ok(()));
        }
        let eleventh = redirects.follow(Scheme::Https, Scheme::Https);
        assert_eq!(eleventh, Err(RedirectError::TooMany(10)));
        let mut redirects = Redirects::new(RedirectConfig::default());
        let downgrade = redirects.follow(Scheme::Https, Scheme::Http);
        assert_eq!(downgrade, Err(RedirectError::Downgrade));
    }
}
