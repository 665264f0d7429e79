//! Connections that have not shown yet who they are.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use tokio::task::AbortHandle;

/// So many at a time.
const MOST: usize = 256;

/// Those that are there. When there are too many, the one goes that has been there for longest:
/// a client greets within two round trips, and those who only keep places occupied keep none.
#[derive(Clone, Debug, Default)]
pub(super) struct Strangers(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tasks: RefCell<BTreeMap<u64, AbortHandle>>,
    next: Cell<u64>,
}

impl Strangers {
    /// Whether whoever comes next should first show that it is where it says.
    pub(super) fn are_many(&self) -> bool {
        self.0.tasks.borrow().len() >= MOST / 2
    }

    /// Deals with one.
    pub(super) fn take(&self, greeting: impl Future<Output = ()> + 'static) {
        let number = self.0.next.replace(self.0.next.get() + 1);
        let all = Rc::clone(&self.0);
        let task = tokio::task::spawn_local(async move {
            greeting.await;
            all.tasks.borrow_mut().remove(&number);
        });
        let mut tasks = self.0.tasks.borrow_mut();
        tasks.insert(number, task.abort_handle());
        if tasks.len() > MOST
            && let Some((_, oldest)) = tasks.pop_first()
        {
            tracing::debug!("too many connections have not greeted: the oldest is closed");
            oldest.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn whoever_comes_is_heard_however_many_are_silent() {
        LocalSet::new()
            .run_until(async {
                let strangers = Strangers::default();
                for _ in 0..10 * MOST {
                    strangers.take(std::future::pending());
                }
                let (heard, hears) = oneshot::channel();
                strangers.take(async move { heard.send(()).expect("somebody waits") });
                assert!(strangers.are_many());
                hears.await.expect("it has its turn");
                tokio::task::yield_now().await;
                assert_eq!(strangers.0.tasks.borrow().len(), MOST - 1);
            })
            .await;
    }
}
