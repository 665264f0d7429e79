//! Times of connections that a proxy opened.
//!
//! For the browser, the look-up and the handshake of TCP are one step, at the end of which the proxy
//! grants the connection. The proxy knows their times.

use manyways_model::qoe::page::Load;
use manyways_unit::Time;

use super::trace::since;
use crate::browser::ProxiedConnection;
use crate::fetch::Location;

/// Puts the times of the proxy's connections into the requests that opened them: of those to the same
/// host and port, each in its turn. `start` is that of the load.
pub fn correct(load: &mut Load, start: Time, connections: &[ProxiedConnection]) {
    let mut unused: Vec<&ProxiedConnection> = connections.iter().collect();
    let mut openers: Vec<usize> = (0..load.requests.len())
        .filter(|index| load.requests[*index].times.connect_start.is_some())
        .collect();
    openers.sort_by_key(|index| load.requests[*index].times.connect_start);
    for index in openers {
        let request = &mut load.requests[index];
        let Ok(location) = Location::parse(&request.url) else { continue };
        let origin = location.origin();
        let sent = request.times.sent;
        // A connection that another request waited for, or that the browser gave up, may be before.
        let place = unused.iter().position(|one| {
            let connected = one.connected.map(|time| since(start, time));
            one.port == origin.port
                && one.host.eq_ignore_ascii_case(&origin.host)
                && connected.zip(sent).is_some_and(|(connected, sent)| connected <= sent)
        });
        let Some(place) = place else { continue };
        let used = unused.remove(place);
        let at = |time: Time| since(start, time);
        let times = &mut request.times;
        let (resolved, connected) = (used.resolved.map(at), used.connected.map(at));
        if used.host.parse::<std::net::IpAddr>().is_err() {
            (times.dns_start, times.dns_end) = (Some(at(used.requested)), resolved);
        }
        times.connect_start = resolved;
        times.connect_end = times.tls_end.or(connected);
        if times.tls_start.is_some() {
            times.tls_start = times.tls_start.max(connected);
        }
    }
}
