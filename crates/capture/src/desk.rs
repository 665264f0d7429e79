//! Distribution of tasks to worker threads.
//!
//! All workers process each block, for the packets of their own shard. The first worker without a
//! task reads the next block for all. A separate reader thread would be one more than there are
//! cores, and would read so far ahead that the blocks leave the caches before they are processed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::block::Block;

/// Maximum number of tasks that wait for a worker.
pub(super) const WAITING: usize = 8;

/// A task for all workers, in the same order.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Look(Arc<Block>),
    /// The flows of all earlier packets end here.
    Finish,
}

/// A source of tasks.
pub(super) trait Supply {
    /// Returns the next task, in the used `block`; `None` at the end.
    fn supply(&mut self, block: Block) -> Option<Task>;
}

/// The task queues of all workers.
#[derive(Debug)]
pub(super) struct Desk<S> {
    state: Mutex<State<S>>,
    /// Notified when a waiting worker may continue.
    changed: Condvar,
}

#[derive(Debug)]
struct State<S> {
    /// The tasks of each worker.
    todo: Vec<VecDeque<Task>>,
    /// `None` while a worker reads.
    supply: Option<S>,
    /// Unused blocks.
    pool: Vec<Block>,
    is_over: bool,
}

impl<S: Supply> Desk<S> {
    pub(super) fn new(cores: u8, supply: S) -> Self {
        let todo = (0..cores).map(|_| VecDeque::new()).collect();
        let state = State { todo, supply: Some(supply), pool: Vec::new(), is_over: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The next task of a worker, which reads if its queue is empty; `None` at the end.
    pub(super) fn next(&self, core: u8) -> Option<Task> {
        let mut state = self.state();
        loop {
            let queue = state.todo.get_mut(usize::from(core))?;
            let was_full = queue.len() == WAITING;
            if let Some(task) = queue.pop_front() {
                if was_full {
                    self.changed.notify_all();
                }
                return Some(task);
            }
            if state.is_over {
                return None;
            }
            let has_room = state.todo.iter().all(|queue| queue.len() < WAITING);
            let Some(mut supply) = has_room.then(|| state.supply.take()).flatten() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let block = state.pool.pop().unwrap_or_default();
            drop(state);
            let task = supply.supply(block);
            state = self.state();
            state.supply = Some(supply);
            match task {
                Some(task) if !state.is_over => {
                    state.todo.iter_mut().for_each(|queue| queue.push_back(task.clone()));
                }
                _ => state.is_over = true,
            }
            self.changed.notify_all();
        }
    }

    /// Returns a block after a worker has processed it.
    pub(super) fn done(&self, block: Arc<Block>) {
        if let Some(block) = Arc::into_inner(block) {
            self.state().pool.push(block);
        }
    }

    /// Discards all tasks and ends all workers.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.todo.iter_mut().for_each(VecDeque::clear);
        self.changed.notify_all();
    }

    /// The source of tasks; `None` if it panicked.
    pub(super) fn into_supply(self) -> Option<S> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).supply
    }

    /// A panic happens outside the lock, so the state is consistent.
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// A supply of this number of tasks; every third is not a block.
    struct Few(u32);

    impl Supply for Few {
        fn supply(&mut self, block: Block) -> Option<Task> {
            self.0 = self.0.checked_sub(1)?;
            Some(if self.0 % 3 == 2 { Task::Finish } else { Task::Look(Arc::new(block)) })
        }
    }

    #[test]
    fn each_worker_gets_all_tasks_in_one_order() {
        let desk = Desk::new(3, Few(300));
        let kinds = thread::scope(|scope| {
            let cores = [0, 1, 2].map(|core| {
                let desk = &desk;
                scope.spawn(move || {
                    let mut kinds = Vec::new();
                    while let Some(task) = desk.next(core) {
                        kinds.push(matches!(task, Task::Finish));
                        if let Task::Look(block) = task {
                            desk.done(block);
                        }
                    }
                    kinds
                })
            });
            cores.map(|core| core.join().unwrap())
        });
        let wanted: Vec<bool> = (0..300).rev().map(|left| left % 3 == 2).collect();
        assert!(kinds.iter().all(|kinds| *kinds == wanted));
        // The maximum of waiting blocks, one at each worker, and one that is read.
        let blocks = desk.state().pool.len();
        assert!((1..=WAITING + 4).contains(&blocks), "{blocks}");
        assert_eq!(desk.into_supply().map(|few| few.0), Some(0));
    }

    #[test]
    fn a_faster_worker_waits_for_the_others() {
        let desk = Desk::new(2, Few(100));
        thread::scope(|scope| {
            let (said, heard) = channel();
            let ahead = &desk;
            scope.spawn(move || {
                while ahead.next(0).is_some() {
                    said.send(()).unwrap();
                }
            });
            for _ in 0..WAITING {
                heard.recv().unwrap();
            }
            // The next block is read only if all queues have space.
            assert_eq!(desk.state().supply.as_ref().map(|few| few.0), Some(100 - WAITING as u32));
            assert!(desk.next(1).is_some());
            heard.recv().unwrap();
            // After a failure, the other workers do not wait.
            desk.close();
            assert!(heard.iter().count() <= 1);
        });
        assert!(desk.next(1).is_none());
    }
}
