//! Limits of redirects, and how long their target is asked directly.

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

/// Targets in a row that were refused at their first reuse, after which no target is remembered: each
/// is for one request.
const MAX_UNUSED_TARGETS: u32 = 2;

/// The target of a path's redirects, which later requests ask directly.
///
/// A target may be valid for some time, for one request or for one address of the client, as the
/// signed URLs of object stores are. If it is refused, the given URL must be asked again: it leads to
/// a new target. Each path has a separate memory.
#[derive(Debug)]
pub struct RedirectMemory<T> {
    target: Option<Target<T>>,
    /// Targets in a row that were refused at their first reuse.
    unused: u32,
}

#[derive(Debug)]
struct Target<T> {
    location: T,
    /// Whether it answered a request that asked it directly.
    is_reused: bool,
}

impl<T> Default for RedirectMemory<T> {
    fn default() -> Self {
        Self { target: None, unused: 0 }
    }
}

impl<T: Clone + PartialEq> RedirectMemory<T> {
    /// The URL for the next request; `None` for the given URL.
    pub fn target(&self) -> Option<T> {
        Some(self.target.as_ref()?.location.clone())
    }

    /// Notes the status with which a target answered to which the given URL had redirected.
    pub fn on_redirected(&mut self, location: T, status: u16) {
        if is_success(status) && self.unused < MAX_UNUSED_TARGETS {
            self.target = Some(Target { location, is_reused: false });
        }
    }

    /// Notes the status with which a target answered that a request asked directly. Returns whether
    /// the given URL must be asked instead. At most once for each request.
    pub fn on_reused(&mut self, location: &T, status: u16) -> bool {
        let current = self.target.as_mut().filter(|target| target.location == *location);
        if !may_have_expired(status) {
            if let Some(target) = current.filter(|_| is_success(status)) {
                target.is_reused = true;
                self.unused = 0;
            }
            return false;
        }
        // Two requests at the same time may ask the same target.
        if let Some(target) = current {
            // A server without capacity does not refuse the target.
            self.unused += u32::from(!target.is_reused && status < 500);
            self.target = None;
        }
        true
    }

    /// Notes that the server of the target is not reached: the given URL may lead to another one.
    pub fn on_unreachable(&mut self) {
        self.target = None;
    }
}

fn is_success(status: u16) -> bool {
    matches!(status, 200..=299)
}

/// Whether a redirect target that answers with this status may be no longer valid, so that the given
/// URL leads to another one. A target that redirects leads to a page about the reason, if at all.
pub(super) fn may_have_expired(status: u16) -> bool {
    matches!(status, 300..=399 | 400 | 401 | 403 | 404 | 410 | 503)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_has_expired_is_asked_for_again() {
        for status in [302, 400, 401, 403, 404, 410, 503] {
            let mut memory = RedirectMemory::default();
            assert_eq!(memory.target(), None);
            for signature in 1..9 {
                memory.on_redirected(signature, 200);
                assert_eq!(memory.target(), Some(signature), "{status}");
                assert!(!memory.on_reused(&signature, 206));
                assert!(memory.on_reused(&signature, status), "{status}");
                assert_eq!(memory.target(), None, "{status}");
            }
        }
    }

    #[test]
    fn targets_for_one_request_are_remembered_twice_at_most() {
        let mut memory = RedirectMemory::default();
        for signature in 1..=2 {
            memory.on_redirected(signature, 206);
            assert_eq!(memory.target(), Some(signature));
            assert!(memory.on_reused(&signature, 403));
        }
        memory.on_redirected(3, 206);
        assert_eq!(memory.target(), None);
    }

    /// Two requests on one connection are refused because of the same target.
    #[test]
    fn one_target_counts_once() {
        let mut memory = RedirectMemory::default();
        memory.on_redirected(1, 200);
        assert!(memory.on_reused(&1, 403));
        memory.on_redirected(2, 206);
        assert!(memory.on_reused(&1, 403));
        assert_eq!(memory.target(), Some(2));
    }

    #[test]
    fn other_answers_do_not_change_the_target() {
        let mut memory = RedirectMemory::default();
        memory.on_redirected(0, 404);
        assert_eq!(memory.target(), None);
        memory.on_redirected(1, 200);
        for status in [206, 200, 412, 416, 429, 500] {
            assert!(!memory.on_reused(&1, status), "{status}");
            assert_eq!(memory.target(), Some(1));
        }
        memory.on_unreachable();
        assert_eq!(memory.target(), None);
    }

    /// A server that is overloaded refuses the first reuse of any number of targets.
    #[test]
    fn a_lack_of_capacity_does_not_make_targets_single_use() {
        let mut memory = RedirectMemory::default();
        for target in 1..9 {
            memory.on_redirected(target, 200);
            assert_eq!(memory.target(), Some(target));
            assert!(memory.on_reused(&target, 503));
        }
    }

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
