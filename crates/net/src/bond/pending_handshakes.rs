//! The tasks of connections that have not proved a key yet, and counts of those that were refused.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use manyways_proto::bond::session::{
    HandshakeConfig, HandshakeId, PendingHandshakes as Core, RefusalCause, Refusals, Standing,
};
use manyways_sys::clock::Clock;
use manyways_unit::human::count_with_noun;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::gateway::display_address;
use super::timer;

/// The pending handshakes; cheap to clone.
#[derive(Clone)]
pub(super) struct PendingHandshakes(Rc<Inner>);

struct Inner {
    clock: Clock,
    max_sockets: u64,
    core: RefCell<Core>,
    refusals: RefCell<Refusals>,
    tasks: RefCell<HashMap<HandshakeId, (SocketAddr, AbortHandle)>>,
    /// Notified when the next wakeup of a core may have changed.
    timer: Notify,
}

/// One pending handshake.
pub(super) struct Handshake {
    all: PendingHandshakes,
    id: HandshakeId,
}

/// Treatment of a connection over QUIC, before anything is kept of it.
pub(super) enum Greeting {
    Accept,
    /// Let the peer show that the address is its own.
    ValidateAddress,
    Refuse,
}

impl Handshake {
    /// Takes whether the first packet of the peer has a proof. Returns whether the handshake goes on: not
    /// for a stranger while there are many.
    pub(super) fn greet(&self, is_proved: bool) -> bool {
        let mut core = self.all.0.core.borrow_mut();
        if is_proved {
            core.prove(self.id);
        }
        core.standing_of(self.id) != Some(Standing::Stranger)
            || !core.is_crowded(Standing::Stranger)
    }

    /// Notes that the peer has proved a key that is allowed.
    pub(super) fn authenticate(&self) {
        self.all.0.core.borrow_mut().authenticate(self.id);
    }
}

impl PendingHandshakes {
    /// `open_files` is the limit of open files of this process, of which handshakes may have a part.
    pub(super) fn new(clock: Clock, open_files: u64) -> Self {
        let mut config = HandshakeConfig::default();
        let share = usize::try_from(open_files / 8).unwrap_or(usize::MAX);
        config.max_pending = config.max_pending.min(share.max(8));
        Self(Rc::new(Inner {
            clock,
            max_sockets: config.max_pending as u64 * Standing::COUNT,
            core: RefCell::new(Core::new(config)),
            refusals: RefCell::default(),
            tasks: RefCell::default(),
            timer: Notify::new(),
        }))
    }

    /// The sockets of pending handshakes, at most.
    pub(super) fn max_sockets(&self) -> u64 {
        self.0.max_sockets
    }

    /// Decides about a connection over QUIC by its first packet.
    pub(super) fn greet(&self, from: SocketAddr, is_proved: bool, is_validated: bool) -> Greeting {
        let core = self.0.core.borrow();
        let standing = core.standing(from.ip(), is_proved);
        match core.is_crowded(standing) {
            true if !is_validated => Greeting::ValidateAddress,
            true if standing == Standing::Stranger => Greeting::Refuse,
            _ => Greeting::Accept,
        }
    }

    /// Runs a handshake until it ends or is abandoned.
    pub(super) fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        from: SocketAddr,
        is_proved: bool,
        run: impl FnOnce(Handshake) -> F,
    ) {
        let id = self.0.core.borrow_mut().begin(self.0.clock.now(), from.ip(), is_proved);
        let handshake = run(Handshake { all: self.clone(), id });
        let all = Rc::clone(&self.0);
        let task = tokio::task::spawn_local(async move {
            handshake.await;
            all.core.borrow_mut().finish(id);
            all.tasks.borrow_mut().remove(&id);
        });
        self.0.tasks.borrow_mut().insert(id, (from, task.abort_handle()));
        self.pump();
    }

    /// Counts a refused connection, and logs it unless there are many.
    pub(super) fn refuse(&self, from: SocketAddr, cause: RefusalCause, why: &dyn Display) {
        let is_listed = self.0.refusals.borrow_mut().note(self.0.clock.now(), cause);
        match is_listed {
            true => tracing::info!("refused {}: {why}", display_address(from)),
            false => tracing::debug!("refused {}: {why}", display_address(from)),
        }
        self.0.timer.notify_one();
    }

    /// The refused connections so far, by cause.
    pub(super) fn refused(&self) -> BTreeMap<String, u64> {
        let refusals = self.0.refusals.borrow();
        refusals.totals().map(|(cause, count)| (cause.name().to_owned(), count)).collect()
    }

    /// Abandons handshakes that take too long, and sums up refusals; never returns.
    pub(super) async fn run(&self) {
        loop {
            let wakeups =
                [self.0.core.borrow().next_wakeup(), self.0.refusals.borrow().next_wakeup()];
            let wakeup = wakeups.into_iter().flatten().min();
            tokio::select! {
                () = timer::until(&self.0.clock, wakeup) => self.pump(),
                () = self.0.timer.notified() => {}
            }
        }
    }

    fn pump(&self) {
        let now = self.0.clock.now();
        loop {
            let abandoned = self.0.core.borrow_mut().poll(now);
            let Some((id, _, why)) = abandoned else { break };
            let Some((from, task)) = self.0.tasks.borrow_mut().remove(&id) else { continue };
            task.abort();
            self.refuse(from, why.into(), &why);
        }
        let unlisted = self.0.refusals.borrow_mut().poll(now);
        if let Some(unlisted) = unlisted {
            tracing::warn!("{}", summary(&unlisted));
        }
        self.0.timer.notify_one();
    }
}

/// The refusals of a minute that were not logged on their own.
fn summary(unlisted: &[(RefusalCause, u64)]) -> String {
    let total: u64 = unlisted.iter().map(|(_, count)| count).sum();
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    let causes: Vec<String> =
        unlisted.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    let total = count_with_noun(total, "more connection");
    format!("refused {total} in the last minute: {}", causes.join(", "))
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn tasks_of_abandoned_handshakes_end() {
        LocalSet::new()
            .run_until(async {
                let handshakes = PendingHandshakes::new(Clock::start(), 1 << 20);
                let from = SocketAddr::from(([192, 0, 2, 1], 1));
                let max = HandshakeConfig::default().max_pending;
                for _ in 0..10 * max {
                    handshakes.spawn(from, false, |_| std::future::pending());
                }
                let (done, is_done) = oneshot::channel();
                let end = async move { done.send(()).expect("it is awaited") };
                handshakes.spawn(from, false, |_| end);
                let greeting =
                    |is_proved, is_validated| handshakes.greet(from, is_proved, is_validated);
                assert!(matches!(greeting(false, false), Greeting::ValidateAddress));
                assert!(matches!(greeting(false, true), Greeting::Refuse));
                assert!(matches!(greeting(true, false), Greeting::Accept));
                assert_eq!(handshakes.refused()["too-many"], 9 * max as u64 + 1);
                is_done.await.expect("the newest has its turn");
                tokio::task::yield_now().await;
                assert_eq!(handshakes.0.tasks.borrow().len(), max - 1);
            })
            .await;
    }

    #[test]
    fn a_flood_is_summed_up() {
        let unlisted = [(RefusalCause::TooMany, 9_000), (RefusalCause::Lost, 1)];
        let expected = "refused 9001 more connections in the last minute: 9000 because too many \
                        handshakes are pending, 1 because they broke";
        assert_eq!(summary(&unlisted), expected);
    }
}
