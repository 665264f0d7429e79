//! When the round trip of the application is measured, and how.

use manyways_unit::{Rate, Size, Span, Time};

use super::transfer::{Fetch, Path, State};
use super::{Output, PathId, Scheduler};

/// How often the application round trip is measured…
const PING: Span = Span::from_millis(100);
/// …by so many PINGs, and again when a choice is near…
const DENSE_PINGS: u32 = 30;
/// …and how often at other times: servers count PINGs, and some allow one a second.
const SPARSE_PING: Span = Span::from_secs(3);
/// A choice is near when so little time is left of what a path has to bring.
const NEAR: Span = Span::from_millis(600);
/// How often the kernel is asked instead, where there are no PINGs.
const TRANSPORT_PING: Span = Span::from_millis(500);

impl Fetch {
    /// When the round trip of a path is to be measured next.
    pub(super) fn pings_at(&self, id: PathId, path: &Path) -> Option<Time> {
        let measured = matches!(path.state, State::Ready(_))
            && path.ping_sent.is_none()
            && self.config.scheduler != Scheduler::Single
            && self.load_of(id) > 0;
        let pause = match path.last_ping {
            None => Span::ZERO,
            Some(_) if !path.takes_pings => TRANSPORT_PING,
            Some(_) if path.pings < DENSE_PINGS || self.is_choice_near(id, path) => PING,
            Some(_) => SPARSE_PING,
        };
        measured.then(|| path.last_ping.unwrap_or(Time::ZERO) + pause)
    }

    /// Whether a path will soon have brought all that it was asked for.
    pub(super) fn is_choice_near(&self, id: PathId, path: &Path) -> bool {
        let owed: u64 = self.requests_of(id).map(|(_, r)| r.end.saturating_sub(r.pos)).sum();
        let rate = path.throughput.rate(self.polled).unwrap_or(Rate::ZERO);
        !rate.is_zero()
            && rate.time_for(Size::from_bytes(owed))
                <= NEAR + self.response_delay(id).unwrap_or_default()
    }

    pub(super) fn ping(&mut self, now: Time) {
        let due = self
            .paths
            .iter()
            .filter(|(id, path)| self.pings_at(**id, path).is_some_and(|at| at <= now));
        let due: Vec<PathId> = due.map(|(id, _)| *id).collect();
        for id in due {
            if let Some(path) = self.paths.get_mut(&id) {
                path.ping_sent = Some(now);
                path.last_ping = Some(now);
                path.pings += 1;
                self.outputs.push_back(Output::Ping { path: id });
            }
        }
    }
}
