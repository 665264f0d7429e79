//! Connections of devices that have not shown yet who they are.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::task::AbortHandle;

/// The tasks of connections. If there are too many, the oldest one gives way: otherwise connections
/// that stay silent would keep all others away.
pub(super) struct Greetings {
    limit: usize,
    next: Cell<u64>,
    pending: RefCell<VecDeque<(u64, AbortHandle)>>,
}

impl Greetings {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, next: Cell::new(0), pending: RefCell::default() }
    }

    /// Runs a task. It calls [`Greetings::finish`] with its number when it is no longer limited.
    pub(super) fn run<F: Future<Output = ()> + 'static>(&self, task: impl FnOnce(u64) -> F) {
        let id = self.next.get();
        self.next.set(id + 1);
        let handle = tokio::task::spawn_local(task(id)).abort_handle();
        let mut pending = self.pending.borrow_mut();
        pending.push_back((id, handle));
        if pending.len() > self.limit
            && let Some((_, oldest)) = pending.pop_front()
        {
            oldest.abort();
        }
    }

    pub(super) fn finish(&self, id: u64) {
        self.pending.borrow_mut().retain(|(pending, _)| *pending != id);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::rc::Rc;

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_oldest_connection_gives_way_unless_it_has_shown_who_it_is() {
        let run = async {
            let greetings = Rc::new(Greetings::new(3));
            let alive = Rc::new(());
            for at in 0..10 {
                let (greetings_of, alive_of) = (Rc::clone(&greetings), Rc::clone(&alive));
                greetings.run(|id| async move {
                    let _alive = alive_of;
                    if at == 0 {
                        greetings_of.finish(id);
                    }
                    pending::<()>().await;
                });
                yield_now().await;
            }
            yield_now().await;
            // The first one, and the last three.
            assert_eq!(Rc::strong_count(&alive) - 1, 4);
        };
        LocalSet::new().run_until(run).await;
    }
}
