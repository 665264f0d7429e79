//! The tasks of connections that have not proved a key yet.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use manyways_proto::bond::session::{
    Abandonment, HandshakeConfig, HandshakeId, PendingHandshakes as Core,
};
use manyways_sys::clock::Clock;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::gateway::display_address;
use super::timer;

/// The pending handshakes; cheap to clone.
#[derive(Clone)]
pub(super) struct PendingHandshakes(Rc<Inner>);

struct Inner {
    clock: Clock,
    core: RefCell<Core>,
    tasks: RefCell<HashMap<HandshakeId, (SocketAddr, AbortHandle)>>,
    /// Notified when the next wakeup of the core may have changed.
    timer: Notify,
}

impl PendingHandshakes {
    pub(super) fn new(clock: Clock) -> Self {
        Self(Rc::new(Inner {
            clock,
            core: RefCell::new(Core::new(HandshakeConfig::default())),
            tasks: RefCell::default(),
            timer: Notify::new(),
        }))
    }

    pub(super) fn needs_address_validation(&self) -> bool {
        self.0.core.borrow().needs_address_validation()
    }

    /// Runs a handshake until it ends or is abandoned.
    pub(super) fn spawn(&self, from: SocketAddr, handshake: impl Future<Output = ()> + 'static) {
        let id = self.0.core.borrow_mut().begin(self.0.clock.now(), from.ip().to_canonical());
        let all = Rc::clone(&self.0);
        let task = tokio::task::spawn_local(async move {
            handshake.await;
            all.core.borrow_mut().finish(id);
            all.tasks.borrow_mut().remove(&id);
        });
        self.0.tasks.borrow_mut().insert(id, (from, task.abort_handle()));
        self.pump();
    }

    /// Abandons handshakes that take too long; never returns.
    pub(super) async fn run(&self) {
        loop {
            let wakeup = self.0.core.borrow().next_wakeup();
            tokio::select! {
                () = timer::until(&self.0.clock, wakeup) => self.pump(),
                () = self.0.timer.notified() => {}
            }
        }
    }

    fn pump(&self) {
        loop {
            let abandoned = self.0.core.borrow_mut().poll(self.0.clock.now());
            let Some((id, _, why)) = abandoned else { break };
            let Some((from, task)) = self.0.tasks.borrow_mut().remove(&id) else { continue };
            task.abort();
            let from = display_address(from);
            match why {
                Abandonment::TimedOut => tracing::info!("refused {from}: {why}"),
                Abandonment::TooMany => tracing::debug!("refused {from}: {why}"),
            }
        }
        self.0.timer.notify_one();
    }
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
                let handshakes = PendingHandshakes::new(Clock::start());
                let from = SocketAddr::from(([192, 0, 2, 1], 1));
                let max = HandshakeConfig::default().max_pending;
                for _ in 0..10 * max {
                    handshakes.spawn(from, std::future::pending());
                }
                let (done, is_done) = oneshot::channel();
                handshakes.spawn(from, async move { done.send(()).expect("it is awaited") });
                assert!(handshakes.needs_address_validation());
                is_done.await.expect("the newest has its turn");
                tokio::task::yield_now().await;
                assert_eq!(handshakes.0.tasks.borrow().len(), max - 1);
            })
            .await;
    }
}
