//! Whether a network reaches the internet, or only a login page.
//!
//! A network is asked for a page whose answer is known, for example one with status 204 and no body.
//! [`verdict`] judges the answers; the name look-up before them is judged by [`super::dns`].

/// The answer to a request for a known page over plain HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The response has this status. `as_expected`: its status and its body are those of the known
    /// page; `location`: the target of a redirect.
    Response { status: u16, as_expected: bool, location: Option<String> },
    /// The server could not be connected to, or did not answer.
    Silent,
}

/// The answer of the network's resolver for the host of the known page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// An address that the host may have.
    Plausible,
    /// An address of a private network, or one that another resolver contradicts.
    Lie,
    /// No address.
    Missing,
}

/// Where a network leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// To the internet.
    Validated,
    /// To a login page, at this URL if it is known.
    Captive { login: Option<String> },
    /// The resolver gives wrong addresses, and nothing else answers.
    DnsLies,
    /// Nowhere.
    NoInternet,
}

impl Verdict {
    /// Name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Validated => "validated",
            Self::Captive { .. } => "captive",
            Self::DnsLies => "dns-lies",
            Self::NoInternet => "no-internet",
        }
    }
}

/// Judges a network. `encrypted` is whether a TLS connection to the same host was validated with its
/// certificate, which no portal can imitate; `None` if it was not tried.
///
/// Answers to pings do not count: many portals let them pass.
pub fn verdict(resolution: Resolution, answer: &Answer, encrypted: Option<bool>) -> Verdict {
    match answer {
        Answer::Response { as_expected: true, .. } if encrypted != Some(false) => {
            Verdict::Validated
        }
        // The page of a portal that imitates the known one, or that lets only plain HTTP pass.
        Answer::Response { as_expected: true, .. } => Verdict::Captive { login: None },
        // The host itself has changed, or its page is not the known one.
        Answer::Response { .. } if encrypted == Some(true) => Verdict::Validated,
        // Network Authentication Required (RFC 6585).
        Answer::Response { location, .. } => Verdict::Captive { login: location.clone() },
        Answer::Silent if encrypted == Some(true) => Verdict::Validated,
        Answer::Silent if resolution == Resolution::Lie => Verdict::DnsLies,
        Answer::Silent => Verdict::NoInternet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, as_expected: bool, location: Option<&str>) -> Answer {
        Answer::Response { status, as_expected, location: location.map(str::to_owned) }
    }

    #[test]
    fn only_the_known_page_or_a_certificate_validates() {
        use Resolution::{Lie, Missing, Plausible};
        let login = "http://login.example/";
        let captive = |login: Option<&str>| Verdict::Captive { login: login.map(str::to_owned) };
        for (resolution, answer, encrypted, expected) in [
            (Plausible, response(204, true, None), Some(true), Verdict::Validated),
            (Plausible, response(204, true, None), None, Verdict::Validated),
            (Plausible, response(204, true, None), Some(false), captive(None)),
            (Plausible, response(302, false, Some(login)), Some(false), captive(Some(login))),
            (Lie, response(302, false, Some(login)), None, captive(Some(login))),
            (Plausible, response(200, false, None), None, captive(None)),
            (Plausible, response(511, false, None), None, captive(None)),
            (Plausible, response(500, false, None), Some(true), Verdict::Validated),
            (Plausible, Answer::Silent, Some(true), Verdict::Validated),
            (Lie, Answer::Silent, Some(false), Verdict::DnsLies),
            (Plausible, Answer::Silent, Some(false), Verdict::NoInternet),
            (Missing, Answer::Silent, None, Verdict::NoInternet),
        ] {
            assert_eq!(verdict(resolution, &answer, encrypted), expected, "{answer:?}");
        }
    }
}
