//! The limit for metered paths: how many bytes each request may still receive.

use manyways_unit::Size;

use super::path::Path;
use super::request::Request;
use super::share::MIN_PIECE;
use super::{Fetch, MeteredUse, Note, Output, PathId, RequestId};

/// Whether the user was informed that the limit ends the fetch before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LimitNotice {
    Pending,
    Given,
}

impl Fetch {
    /// Whether a path is metered, and the limit permits it no more requests of the usual length.
    pub fn is_limit_reached(&self, path: PathId) -> bool {
        matches!(self.config.metered, MeteredUse::Limit(_)) && self.budget(path) < MIN_PIECE
    }

    /// Informs the user, once the length is known and only metered paths are left, that their limit
    /// does not suffice.
    pub(super) fn report_limit(&mut self) {
        let MeteredUse::Limit(limit) = self.config.metered else { return };
        let Some(length) = self.object.known().and_then(|object| object.length) else { return };
        let is_unmetered = |path: &Path| !path.metered && path.state.is_alive();
        if self.limit_notice == LimitNotice::Given || self.paths.values().any(is_unmetered) {
            return;
        }
        let end = length.min(self.config.stop_after.unwrap_or(u64::MAX));
        let missing = Size::from_bytes(end.saturating_sub(self.done.total()));
        let remaining = limit.saturating_sub(self.metered_bytes());
        if missing > remaining && !remaining.is_zero() {
            self.limit_notice = LimitNotice::Given;
            self.outputs.push_back(Output::Note(Note::OverLimit { missing, remaining }));
        }
    }

    /// Bytes received over metered paths, including duplicates.
    pub fn metered_bytes(&self) -> Size {
        let metered = self.paths.values().filter(|path| path.metered);
        Size::from_bytes(metered.map(Path::received).sum())
    }

    /// Whether the limit for metered paths permits use of a path.
    pub(super) fn is_allowed(&self, path: &Path) -> bool {
        !path.metered
            || match self.config.metered {
                MeteredUse::Unlimited => true,
                MeteredUse::Forbidden => false,
                MeteredUse::Limit(limit) => self.metered_bytes() < limit,
            }
    }

    /// Bytes that may still be requested over a path.
    pub(super) fn budget(&self, path: PathId) -> u64 {
        self.budget_without(path, None)
    }

    /// Bytes that could be requested over a path if the request `without` were cancelled.
    pub(super) fn budget_without(&self, path: PathId, without: Option<RequestId>) -> u64 {
        if !self.is_metered(path) {
            return u64::MAX;
        }
        match self.config.metered {
            MeteredUse::Unlimited => u64::MAX,
            MeteredUse::Forbidden => 0,
            MeteredUse::Limit(limit) => {
                let others = self.requests.iter().filter(|(id, _)| Some(**id) != without);
                let others = others.filter(|(_, request)| self.is_metered(request.path));
                let reserved = others.map(|(_, request)| self.reserved(request));
                let reserved = reserved.fold(0, u64::saturating_add);
                limit.saturating_sub(self.metered_bytes()).as_bytes().saturating_sub(reserved)
            }
        }
    }

    /// Bytes that a request may still receive. The server may use all credit that it has, even past
    /// the end to which the request was cut.
    fn reserved(&self, request: &Request) -> u64 {
        let granted = if self.can_cut_freely(request.path) { request.granted } else { 0 };
        let end = request.end.max(granted.min(request.requested.end));
        end.saturating_sub(request.next_offset)
    }

    fn is_metered(&self, path: PathId) -> bool {
        self.paths.get(&path).is_some_and(|path| path.metered)
    }
}
