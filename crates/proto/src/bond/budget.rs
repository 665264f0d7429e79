//! Shares of something scarce, such as descriptors, among the clients of a gateway.
//!
//! A client may take more while it has less than is free: the dynamic threshold of A. K. Choudhury and
//! E. L. Hahne ("Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
//! Transactions on Networking 6(2), 1998), with the factor 1. So a client that is alone has up to half,
//! of two greedy ones each has a third, and something always remains for the next one. Nothing
//! is ever taken back. A single client without others has all.

use std::collections::BTreeMap;

use crate::mux::Config;

/// Bytes for the buffers of a session that always gets them.
pub const MIN_SESSION_MEMORY: u64 = 4 << 20;

/// Units of a resource, and the clients that have them.
#[derive(Clone, Debug)]
pub struct Budget<K> {
    total: u64,
    free: u64,
    used: BTreeMap<K, u64>,
    /// Whether there is only one client, which may have all.
    is_single: bool,
}

impl<K: Copy + Ord> Budget<K> {
    pub fn new(total: u64) -> Self {
        Self { total, free: total, used: BTreeMap::new(), is_single: false }
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Sets the number of clients that there can be: a single one leaves nothing for others.
    pub fn set_clients(&mut self, count: usize) {
        self.is_single = count <= 1;
    }

    /// Units of all clients together.
    pub fn used(&self) -> u64 {
        self.total - self.free
    }

    /// Units of one client.
    pub fn used_by(&self, key: K) -> u64 {
        self.used.get(&key).copied().unwrap_or(0)
    }

    /// Gives a client as much as it may have now of `wanted`; `None`, and nothing is given, if that is
    /// less than `least`.
    pub fn take(&mut self, key: K, wanted: u64, least: u64) -> Option<u64> {
        // With x more, the client has `used + x` while `free - x` remain.
        let allowed = match self.is_single {
            true => self.free,
            false => self.free.saturating_sub(self.used_by(key)).div_ceil(2).min(self.free),
        };
        let given = wanted.min(allowed);
        if given < least || given == 0 {
            return None;
        }
        self.free -= given;
        *self.used.entry(key).or_default() += given;
        Some(given)
    }

    /// Takes back units of a client.
    pub fn give_back(&mut self, key: K, amount: u64) {
        let Some(used) = self.used.get_mut(&key) else { return };
        let amount = amount.min(*used);
        *used -= amount;
        self.free += amount;
        if *used == 0 {
            self.used.remove(&key);
        }
    }
}

/// Returns the bytes that a session with these limits may buffer.
pub fn session_memory(config: &Config) -> u64 {
    config.credit + config.max_unacked
}

/// Lowers the limits of a session in proportion, so that it buffers at most `bytes`.
pub fn limit_buffers(config: &mut Config, bytes: u64) {
    let all = session_memory(config);
    if bytes >= all {
        return;
    }
    config.credit = (u128::from(config.credit) * u128::from(bytes) / u128::from(all)) as u64;
    config.max_unacked = bytes - config.credit;
    // Eight streams that are not read leave room for others.
    config.stream_credit = config.stream_credit.min(config.credit / 16);
    config.max_stream_credit = config.max_stream_credit.min(config.credit / 8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes single units until no more are given; returns their number.
    fn greedy(budget: &mut Budget<u8>, key: u8) -> u64 {
        (0..).take_while(|_| budget.take(key, 1, 1).is_some()).count() as u64
    }

    #[test]
    fn a_greedy_client_leaves_as_much_as_it_has() {
        let mut budget = Budget::new(600);
        assert_eq!(greedy(&mut budget, 1), 300);
        assert_eq!(greedy(&mut budget, 2), 150);
        // The first one cannot come back for more, and the next one has its share.
        assert_eq!(greedy(&mut budget, 1), 0);
        assert_eq!(greedy(&mut budget, 3), 75);
        budget.give_back(1, 300);
        assert_eq!((budget.used(), budget.used_by(1)), (225, 0));
        assert_eq!(greedy(&mut budget, 4), 188);
    }

    #[test]
    fn buffers_shrink_in_proportion_and_never_grow() {
        let whole = Config::default();
        let mut config = whole.clone();
        limit_buffers(&mut config, 1 << 40);
        assert_eq!((config.credit, config.max_unacked), (whole.credit, whole.max_unacked));
        limit_buffers(&mut config, 56 << 20);
        assert_eq!((config.credit, config.max_unacked), (32 << 20, 24 << 20));
        assert_eq!((config.stream_credit, config.max_stream_credit), (1 << 20, 4 << 20));
        limit_buffers(&mut config, MIN_SESSION_MEMORY);
        assert_eq!(session_memory(&config), MIN_SESSION_MEMORY);
        assert!(config.stream_credit >= 128 << 10 && config.stream_credit <= config.credit / 16);
    }

    #[test]
    fn a_single_client_has_all_until_there_is_another() {
        let mut budget = Budget::new(600);
        budget.set_clients(1);
        assert_eq!(greedy(&mut budget, 1), 600);
        budget.give_back(1, 300);
        budget.set_clients(2);
        assert_eq!(greedy(&mut budget, 1), 0);
        assert_eq!(greedy(&mut budget, 2), 150);
    }

    #[test]
    fn a_large_wish_is_met_in_part_or_not_at_all() {
        let mut budget = Budget::new(100);
        assert_eq!(budget.take(1, 80, 1), Some(50));
        assert_eq!(budget.take(2, 80, 30), None);
        assert_eq!(budget.take(2, 80, 25), Some(25));
        assert_eq!((budget.total(), budget.used()), (100, 75));
        assert_eq!(Budget::new(0).take(1, 1, 0), None);
    }

    proptest! {
        #[test]
        fn something_remains_for_the_next_client_and_nothing_is_lost(
            steps in prop::collection::vec((0_u8..5, 1_u64..40, any::<bool>()), 1..200),
        ) {
            let mut budget = Budget::new(1_000);
            for (key, amount, gives_back) in steps {
                match gives_back {
                    true => budget.give_back(key, amount),
                    false => {
                        let before = budget.used_by(key);
                        let given = budget.take(key, amount, 1).unwrap_or(0);
                        prop_assert_eq!(budget.used_by(key), before + given);
                        if given > 0 {
                            prop_assert!(budget.used_by(key) <= 1_000 - budget.used() + 1);
                        }
                    }
                }
                let sum: u64 = (0..5).map(|key| budget.used_by(key)).sum();
                prop_assert_eq!(sum, budget.used());
                prop_assert!(budget.used() < 1_000);
            }
            prop_assert!(budget.take(9, 1, 1).is_some());
        }
    }
}
