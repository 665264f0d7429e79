//! Which connections are passed on unread, as learned from earlier ones.

use std::collections::HashMap;
use std::net::SocketAddr;

use manyways_wire::archive::TunnelReason;
use rustls::AlertDescription;

/// Number of connections whose certificate a client refuses, after which it counts as pinned. A
/// program that does not trust the recorder's authority refuses those of all servers, too.
const REFUSALS: u32 = 2;
/// Maximum number of servers that are remembered.
const MAX_SERVERS: usize = 10_000;

/// A server as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerKey {
    pub address: SocketAddr,
    /// Server name of the ClientHello.
    pub name: Option<String>,
}

/// Servers whose connections are passed on, from earlier ones and by request of the user.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    bypassed: Vec<String>,
    reasons: HashMap<ServerKey, TunnelReason>,
    refusals: HashMap<ServerKey, u32>,
}

impl Tunnels {
    /// `bypassed` are host names; each stands for the names below it, too.
    pub(super) fn new(bypassed: Vec<String>) -> Self {
        Self { bypassed, ..Self::default() }
    }

    /// Why connections to the server are passed on unread; `None` if they are not.
    pub(super) fn reason(&self, server: &ServerKey) -> Option<TunnelReason> {
        let name = server.name.clone().unwrap_or_else(|| server.address.ip().to_string());
        let is_below = |host: &String| {
            let rest = name.strip_suffix(host.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if self.bypassed.iter().any(is_below) {
            return Some(TunnelReason::Bypassed);
        }
        self.reasons.get(server).copied()
    }

    pub(super) fn learn(&mut self, server: ServerKey, reason: TunnelReason) {
        if self.reasons.len() < MAX_SERVERS {
            self.reasons.insert(server, reason);
        }
    }

    /// The client refused the recorder's certificate.
    pub(super) fn on_alert(&mut self, server: &ServerKey, alert: AlertDescription) {
        let reason = match alert {
            // The client's real name is in an extension that only the origin can decrypt. Without
            // it, the client has no connection at all.
            AlertDescription::EncryptedClientHelloRequired => TunnelReason::EncryptedHello,
            _ if is_refusal(alert) && self.refusals.len() < MAX_SERVERS => {
                let count = self.refusals.entry(server.clone()).or_default();
                *count += 1;
                if *count < REFUSALS {
                    return;
                }
                TunnelReason::Pinned
            }
            _ => return,
        };
        self.learn(server.clone(), reason);
    }
}

/// Whether a client refuses a certificate by this alert.
pub(super) fn is_refusal(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: Option<&str>) -> ServerKey {
        ServerKey { address: "192.0.2.1:443".parse().unwrap(), name: name.map(str::to_owned) }
    }

    #[test]
    fn a_client_that_refuses_twice_has_pinned_the_certificate() {
        let mut tunnels = Tunnels::default();
        let (one, other) = (server(Some("a.example")), server(Some("b.example")));
        for _ in 0..5 {
            tunnels.on_alert(&one, AlertDescription::UserCanceled);
        }
        tunnels.on_alert(&one, AlertDescription::UnknownCA);
        tunnels.on_alert(&other, AlertDescription::BadCertificate);
        assert_eq!(tunnels.reason(&one), None);
        tunnels.on_alert(&one, AlertDescription::CertificateUnknown);
        assert_eq!(tunnels.reason(&one), Some(TunnelReason::Pinned));
        assert_eq!((tunnels.reason(&other), tunnels.reason(&server(None))), (None, None));
        tunnels.on_alert(&other, AlertDescription::EncryptedClientHelloRequired);
        assert_eq!(tunnels.reason(&other), Some(TunnelReason::EncryptedHello));
    }

    #[test]
    fn names_below_a_bypassed_host_are_bypassed() {
        let tunnels = Tunnels::new(vec!["b.example".to_owned(), "192.0.2.1".to_owned()]);
        for (name, expected) in [
            (Some("b.example"), true),
            (Some("a.b.example"), true),
            (Some("ab.example"), false),
            (Some("example"), false),
            (None, true),
        ] {
            let reason = tunnels.reason(&server(name));
            assert_eq!(reason, expected.then_some(TunnelReason::Bypassed), "{name:?}");
        }
    }
}
