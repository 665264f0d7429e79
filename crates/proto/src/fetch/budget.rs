//! The allowance of metered paths: how much each request may still bring.

use manyways_unit::Size;

use super::path::Path;
use super::request::Request;
use super::{Allowance, Fetch, PathId, RequestId};

impl Fetch {
    /// The bytes that metered paths brought, needed or not.
    pub fn metered_bytes(&self) -> Size {
        let metered = self.paths.values().filter(|path| path.metered);
        Size::from_bytes(metered.map(Path::received).sum())
    }

    /// Whether a path may be used at all.
    pub(super) fn is_allowed(&self, path: &Path) -> bool {
        !path.metered
            || match self.config.metered {
                Allowance::All => true,
                Allowance::Nothing => false,
                Allowance::Limit(limit) => self.metered_bytes() < limit,
            }
    }

    /// What may still be requested over a path.
    pub(super) fn budget(&self, path: PathId) -> u64 {
        self.budget_without(path, None)
    }

    /// What may be requested over a path if the request `without` were cancelled.
    pub(super) fn budget_without(&self, path: PathId, without: Option<RequestId>) -> u64 {
        if !self.is_metered(path) {
            return u64::MAX;
        }
        match self.config.metered {
            Allowance::All => u64::MAX,
            Allowance::Nothing => 0,
            Allowance::Limit(limit) => {
                let others = self.requests.iter().filter(|(id, _)| Some(**id) != without);
                let others = others.filter(|(_, request)| self.is_metered(request.path));
                let reserved: u64 = others.map(|(_, request)| self.reserved(request)).sum();
                limit.saturating_sub(self.metered_bytes()).as_bytes().saturating_sub(reserved)
            }
        }
    }

    /// What a request may still bring: the server may use the credit that it has, wanted or not.
    fn reserved(&self, request: &Request) -> u64 {
        let granted = if self.can_cut_freely(request.path) { request.granted } else { 0 };
        let end = request.end.max(granted.min(request.requested.end));
        end.saturating_sub(request.next_offset)
    }

    fn is_metered(&self, path: PathId) -> bool {
        self.paths.get(&path).is_some_and(|path| path.metered)
    }
}
