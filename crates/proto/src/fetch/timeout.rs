//! Requests that stall, and connection attempts that exceed their timeout.

use manyways_unit::{Span, Time};

use super::path::PathState;
use super::request::Request;
use super::{Fetch, Output, PathError, PathErrorKind, PathId};

impl Fetch {
    /// Ends requests and connection attempts that exceed their timeout.
    pub(super) fn apply_timeouts(&mut self, now: Time) {
        let stalled = self.requests.values().filter(|request| {
            !self.is_reader_blocked(request) && self.stall_deadline(request) <= now
        });
        let mut stalled: Vec<(PathId, Span)> = stalled
            .filter_map(|request| {
                let path = self.paths.get(&request.path)?;
                Some((request.path, now.since(path.last_activity_at)))
            })
            .collect();
        stalled.sort_unstable();
        stalled.dedup();
        for (path, silent_for) in stalled {
            let words = format!("no data arrived for {:.0} s", silent_for.as_secs_f64());
            self.outputs.push_back(Output::Disconnect { path });
            self.fail_path(now, path, PathError::transient(PathErrorKind::Stalled, words));
        }
        let timeout = self.config.connect_timeout;
        let late = self.paths.iter().filter(|(_, path)| {
            matches!(path.state, PathState::Connecting { since } if since + timeout <= now)
        });
        let late: Vec<PathId> = late.map(|(id, _)| *id).collect();
        for path in late {
            self.outputs.push_back(Output::Disconnect { path });
            let words = format!("no connection within {:.0} s", timeout.as_secs_f64());
            self.fail_path(now, path, PathError::transient(PathErrorKind::Stalled, words));
        }
    }

    /// When a request counts as stalled.
    pub(super) fn stall_deadline(&self, request: &Request) -> Time {
        let has_other = self.paths.iter().any(|(id, path)| {
            *id != request.path && path.state.is_alive() && self.is_allowed(path)
        });
        let is_movable = has_other && !self.object.is_whole_only();
        let timeout = if is_movable {
            self.config.stall_timeout
        } else {
            self.config.last_path_stall_timeout
        };
        let path = self.paths.get(&request.path);
        path.map_or(request.sent, |path| path.last_activity_at) + timeout
    }
}
