//! The tasks of a gateway's clients, which share the processor by turns.
//!
//! A runtime serves tasks in the order in which they become ready, so that a client with a thousand
//! busy connections would have a thousand turns for one of a client with a single connection. Here
//! all tasks of a client are in one set, which ends its turn after at most 61 of them. Before its next
//! turn, all other clients have theirs, and the runtime looks which sockets are ready.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::task::{JoinHandle, LocalSet};

use super::key::PublicKey;

/// Names that a client looks up at a time. A lookup occupies one of the 512 threads that the runtime
/// has for what blocks.
const MAX_LOOKUPS: usize = 32;

/// The tasks of all clients.
#[derive(Default)]
pub(super) struct AllTasks(RefCell<HashMap<PublicKey, Weak<Tasks>>>);

/// The tasks of one client; cheap to clone. They end with the last clone.
#[derive(Clone)]
pub(super) struct ClientTasks(Rc<Tasks>);

struct Tasks {
    set: Rc<LocalSet>,
    lookups: Semaphore,
    /// Closed when this is dropped.
    _alive: oneshot::Sender<()>,
}

impl AllTasks {
    /// Returns the tasks of a client, which all of its sessions share.
    pub(super) fn of(&self, key: PublicKey) -> ClientTasks {
        let mut all = self.0.borrow_mut();
        if let Some(tasks) = all.get(&key).and_then(Weak::upgrade) {
            return ClientTasks(tasks);
        }
        all.retain(|_, tasks| tasks.strong_count() > 0);
        let tasks = ClientTasks::new();
        all.insert(key, Rc::downgrade(&tasks.0));
        tasks
    }
}

impl ClientTasks {
    fn new() -> Self {
        let set = Rc::new(LocalSet::new());
        let (alive, is_over) = oneshot::channel();
        let runner = Rc::clone(&set);
        tokio::task::spawn_local(async move {
            // An error: the sender is dropped.
            let _ = by_turns(runner.run_until(is_over)).await;
        });
        Self(Rc::new(Tasks { set, lookups: Semaphore::new(MAX_LOOKUPS), _alive: alive }))
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
        self.0.set.spawn_local(task)
    }

    /// Waits until the client may look up a name. `None` does not happen: nothing closes it.
    pub(super) async fn lookup(&self) -> Option<SemaphorePermit<'_>> {
        self.0.lookups.acquire().await.ok()
    }

    /// Whether the client may look up a name without waiting.
    pub(super) fn has_lookups(&self) -> bool {
        self.0.lookups.available_permits() > 0
    }
}

/// Polls `set` once in each round of the runtime, also if it is ready for more at once: a runtime
/// would serve it again before it looks for ready sockets.
async fn by_turns<F: Future>(set: F) -> F::Output {
    let mut set = pin!(set);
    let turn = Arc::new(Turn::default());
    let waker = Waker::from(Arc::clone(&turn));
    poll_fn(move |context| {
        turn.begin(context.waker());
        let done = set.as_mut().poll(&mut Context::from_waker(&waker));
        if turn.end() && done.is_pending() {
            // Wakes this task after the runtime has looked for ready sockets, also if it is dropped.
            let _ = pin!(tokio::task::yield_now()).poll(context);
        }
        done
    })
    .await
}

/// Whether a set was woken during its turn.
#[derive(Default)]
struct Turn {
    is_running: AtomicBool,
    is_woken: AtomicBool,
    /// Of the task that polls the set.
    outer: Mutex<Option<Waker>>,
}

impl Turn {
    fn begin(&self, waker: &Waker) {
        let mut outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner);
        if !outer.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *outer = Some(waker.clone());
        }
        self.is_woken.store(false, Ordering::SeqCst);
        self.is_running.store(true, Ordering::SeqCst);
    }

    /// Returns whether the set is ready for another turn.
    fn end(&self) -> bool {
        self.is_running.store(false, Ordering::SeqCst);
        self.is_woken.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_running.load(Ordering::SeqCst) {
            let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(waker) = outer.as_ref() {
                waker.wake_by_ref();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    /// Spawns tasks that are always ready, and count their turns.
    fn busy(tasks: &ClientTasks, count: u32) -> Rc<Cell<u64>> {
        let turns = Rc::new(Cell::new(0));
        for _ in 0..count {
            let turns = Rc::clone(&turns);
            tasks.spawn(async move {
                loop {
                    turns.set(turns.get() + 1);
                    tokio::task::yield_now().await;
                }
            });
        }
        turns
    }

    #[test]
    fn a_client_with_many_busy_tasks_has_no_more_turns_than_61_of_them() {
        run(async {
            let all = AllTasks::default();
            let [greedy, modest] = [1, 2].map(|byte| all.of(PublicKey([byte; 32])));
            let [many, one] = [busy(&greedy, 1_000), busy(&modest, 1)];
            while one.get() < 100 {
                tokio::task::yield_now().await;
            }
            assert!(many.get() <= 61 * 103, "{}", many.get());
        });
    }

    #[test]
    fn sessions_of_a_client_share_its_tasks_which_end_with_them() {
        run(async {
            let all = AllTasks::default();
            let first = all.of(PublicKey([1; 32]));
            let second = all.of(PublicKey([1; 32]));
            assert!(Rc::ptr_eq(&first.0, &second.0));
            let (kept, is_dropped) = oneshot::channel::<()>();
            first.spawn(async move {
                let _kept = kept;
                std::future::pending::<()>().await;
            });
            drop(first);
            tokio::task::yield_now().await;
            drop(second);
            assert!(is_dropped.await.is_err(), "the task is dropped");
        });
    }

    #[test]
    fn a_client_that_looks_up_many_names_waits() {
        run(async {
            let all = AllTasks::default();
            let [greedy, modest] = [1, 2].map(|byte| all.of(PublicKey([byte; 32])));
            let mut held = Vec::new();
            for _ in 0..MAX_LOOKUPS {
                held.push(greedy.lookup().await);
            }
            assert!(!greedy.has_lookups());
            assert!(modest.has_lookups() && modest.lookup().await.is_some());
        });
    }
}
