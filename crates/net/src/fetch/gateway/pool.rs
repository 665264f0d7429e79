//! The clients of a gateway, and the memory that they share: each client has its own connections and
//! runs one transfer at a time.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyways_proto::fetch::{MeteredUse, Scheduler};
use manyways_unit::{Rate, Size};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::super::Client;
use super::super::learned::Learned;
use super::super::location::Origin;
use super::super::report::{ClientError, Report};
use super::Learn;

/// Transfers at a time; later requests wait.
pub const MAX_TRANSFERS: usize = 6;
/// Longest time that a request waits for its turn.
pub const MAX_QUEUE_TIME: Duration = Duration::from_secs(30);
/// Longest wait for a client whose last bytes are delivered, instead of one without connections.
const MAX_WAIT_FOR_WARM: Duration = Duration::from_millis(500);

/// Creates a client.
pub(super) type MakeClient = dyn Fn() -> Result<Client, ClientError> + Send + Sync;

/// The clients of a gateway.
pub(super) struct Pool {
    make: Box<MakeClient>,
    learn: Learn,
    scheduler: Scheduler,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    /// A client was returned.
    returned: Notify,
}

#[derive(Default)]
struct State {
    idle: Vec<(Client, Origin)>,
    /// The transfers under way, and whether the player has the last byte.
    running: HashMap<u64, (Origin, bool)>,
    started: u64,
    learned: Learned,
    ledger: Ledger,
}

/// A client for one transfer.
pub(super) struct PooledClient {
    pub(super) client: Client,
    /// Identifies the transfer.
    pub(super) id: u64,
    grant: MeteredUse,
    _permit: OwnedSemaphorePermit,
}

/// The limit for the metered paths of all clients together.
struct Ledger {
    left: MeteredUse,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { left: MeteredUse::Unlimited }
    }
}

impl Ledger {
    /// The limit of a transfer: half of the rest, so that transfers beside it can use some too.
    fn grant(&mut self) -> MeteredUse {
        let MeteredUse::Limit(left) = &mut self.left else { return self.left };
        let granted = Size::from_bytes(left.as_bytes().div_ceil(2));
        *left = left.saturating_sub(granted);
        MeteredUse::Limit(granted)
    }

    /// Returns what a transfer did not use.
    fn settle(&mut self, grant: MeteredUse, used: Size) {
        if let (MeteredUse::Limit(left), MeteredUse::Limit(granted)) = (&mut self.left, grant) {
            *left += granted.saturating_sub(used);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl Pool {
    /// Creates the first client, which shows whether clients can be created, and has the estimates of
    /// earlier runs.
    pub(super) fn new(
        make: Box<MakeClient>,
        learn: Learn,
        metered: MeteredUse,
        typed: &Origin,
    ) -> Result<Self, ClientError> {
        let first = make()?;
        let scheduler = first.config.scheduler;
        let state = State {
            learned: Learned::of(&first),
            idle: vec![(first, typed.clone())],
            ledger: Ledger { left: metered },
            ..State::default()
        };
        let permits = Arc::new(Semaphore::new(MAX_TRANSFERS));
        Ok(Self {
            make,
            learn,
            scheduler,
            permits,
            state: Mutex::new(state),
            returned: Notify::new(),
        })
    }

    /// Returns a client when there is one, the one whose connections lead to the origin if possible;
    /// `None` if the wait is too long, or no client can be created. If the origin ignores ranges, the
    /// client uses one path: a second one would only find that out again.
    pub(super) async fn take(&self, origin: &Origin, ignores_ranges: bool) -> Option<PooledClient> {
        let now = Instant::now();
        let permit = timeout_at(now + MAX_QUEUE_TIME, Arc::clone(&self.permits).acquire_owned());
        let permit = permit.await.ok()?.ok()?;
        let mut client = loop {
            let returned = self.returned.notified();
            {
                let mut state = self.state();
                let warm = state.idle.iter().rposition(|(_, last)| last == origin);
                if let Some(warm) = warm {
                    break state.idle.swap_remove(warm).0;
                }
                if !state.running.values().any(|(to, is_ending)| *is_ending && to == origin) {
                    if let Some((idle, _)) = state.idle.pop() {
                        break idle;
                    }
                    drop(state);
                    break self.make_client()?;
                }
            }
            if timeout_at(now + MAX_WAIT_FOR_WARM, returned).await.is_err() {
                let idle = self.state().idle.pop();
                match idle {
                    Some((idle, _)) => break idle,
                    None => break self.make_client()?,
                }
            }
        };
        let mut state = self.state();
        let grant = state.ledger.grant();
        client.config.scheduler = if ignores_ranges { Scheduler::Single } else { self.scheduler };
        client.set_metered(grant);
        match self.learn {
            Learn::All => state.learned.prepare(&mut client),
            Learn::None | Learn::Size => Learned::default().prepare(&mut client),
        }
        state.started += 1;
        let id = state.started;
        state.running.insert(id, (origin.clone(), false));
        drop(state);
        Some(PooledClient { client, id, grant, _permit: permit })
    }

    fn make_client(&self) -> Option<Client> {
        (self.make)().inspect_err(|error| tracing::warn!("no further client: {error}")).ok()
    }

    /// The player has the last byte of a transfer.
    pub(super) fn on_ending(&self, id: u64) {
        if let Some((_, is_ending)) = self.state().running.get_mut(&id) {
            *is_ending = true;
        }
    }

    /// Takes a client back after its transfer. `rates` are the latest estimated rates of its paths.
    pub(super) fn give_back(
        &self,
        pooled: PooledClient,
        origin: &Origin,
        report: &Report,
        rates: &[(String, Rate)],
    ) {
        let mut state = self.state();
        state.learned.observe(report, rates);
        state.ledger.settle(pooled.grant, report.metered);
        state.running.remove(&pooled.id);
        state.idle.push((pooled.client, origin.clone()));
        drop(state);
        self.returned.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use manyways_proto::estimate::PathEstimate;
    use manyways_unit::Span;

    use super::super::super::learned::tests::path;
    use super::super::super::{Location, PathSpec};
    use super::*;

    #[test]
    fn transfers_beside_each_other_share_the_limit_and_return_the_rest() {
        let limit = |bytes| MeteredUse::Limit(Size::from_bytes(bytes));
        let mut ledger = Ledger { left: limit(1000) };
        let (first, second) = (ledger.grant(), ledger.grant());
        assert_eq!((first, second, ledger.left), (limit(500), limit(250), limit(250)));
        ledger.settle(first, Size::from_bytes(100));
        ledger.settle(second, Size::from_bytes(400));
        assert_eq!(ledger.left, limit(650));
        let mut last = Ledger { left: limit(1) };
        assert_eq!((last.grant(), last.grant()), (limit(1), limit(0)));
        for whole in [MeteredUse::Unlimited, MeteredUse::Forbidden] {
            assert_eq!(Ledger { left: whole }.grant(), whole);
        }
    }

    /// Virtual time: the second transfer would wait for a client that does not come.
    #[tokio::test(start_paused = true)]
    async fn connections_are_always_kept_and_estimates_only_if_they_are_learned() {
        let [four, nine] = [4, 9].map(Rate::from_mbps);
        let [old, new] = [50, 30].map(Span::from_millis);
        let early = PathEstimate { rate: nine, rtt: old };
        let learned = PathEstimate { rate: four, rtt: new };
        for (learn, first, second) in [
            (Learn::All, Some(early), Some(learned)),
            (Learn::Size, None, None),
            (Learn::None, None, None),
        ] {
            let made = Arc::new(Mutex::new(0));
            let make = {
                let made = Arc::clone(&made);
                move || {
                    *made.lock().unwrap() += 1;
                    let mut spec = PathSpec::from_address("wifi", [127, 0, 0, 1].into());
                    spec.estimate = Some(early);
                    Client::builder().paths([spec]).build()
                }
            };
            let origin = Location::parse("http://127.0.0.1:1/").unwrap().origin().clone();
            let pool = Pool::new(Box::new(make), learn, MeteredUse::Unlimited, &origin).unwrap();
            let begun = pool.take(&origin, false).await.unwrap();
            assert_eq!(begun.client.paths[0].estimate, first, "{learn:?}");
            let report = Report { paths: vec![path(300_000, Some(new))], ..Report::default() };
            pool.give_back(begun, &origin, &report, &[]);
            // The same client, and then a further one beside it.
            let (again, beside) =
                (pool.take(&origin, false).await, pool.take(&origin, false).await);
            assert_eq!(*made.lock().unwrap(), 2, "{learn:?}");
            for pooled in [again, beside] {
                assert_eq!(pooled.unwrap().client.paths[0].estimate, second, "{learn:?}");
            }
        }
    }
}
