//! Distribution of tasks to worker threads.
//!
//! All workers process each block, for the packets of their own shard. The first worker without a
//! task reads the next block for all. A separate reader thread would be one more than there are
//! cores, and would read so far ahead that the blocks leave the caches before they are processed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::block::Block;

/// Maximum number of tasks that wait for a worker.
pub(super) const MAX_QUEUED_TASKS: usize = 8;

/// A task for all workers, in the same order.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Analyze(Arc<Block>),
    /// The flows of all earlier packets end here.
    Finish,
}

/// A source of tasks.
pub(super) trait BlockSource {
    /// Returns the next task, in the used `block`; `None` at the end.
    fn next_task(&mut self, block: Block) -> Option<Task>;
}

/// The task queues of all workers.
#[derive(Debug)]
pub(super) struct WorkQueue<S> {
    state: Mutex<State<S>>,
    /// Notified when a waiting worker may continue.
    changed: Condvar,
}

#[derive(Debug)]
struct State<S> {
    /// The tasks of each worker.
    queues: Vec<VecDeque<Task>>,
    /// `None` while a worker reads.
    source: Option<S>,
    /// Unused blocks.
    pool: Vec<Block>,
    is_closed: bool,
}

impl<S: BlockSource> WorkQueue<S> {
    pub(super) fn new(cores: u8, supply: S) -> Self {
        let todo = (0..cores).map(|_| VecDeque::new()).collect();
        let state =
            State { queues: todo, source: Some(supply), pool: Vec::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The next task of a worker, which reads if its queue is empty; `None` at the end.
    pub(super) fn next(&self, core: u8) -> Option<Task> {
        let mut state = self.state();
        loop {
            let queue = state.queues.get_mut(usize::from(core))?;
            let was_full = queue.len() == MAX_QUEUED_TASKS;
            if let Some(task) = queue.pop_front() {
                if was_full {
                    self.changed.notify_all();
                }
                return Some(task);
            }
            if state.is_closed {
                return None;
            }
            let has_room = state.queues.iter().all(|queue| queue.len() < MAX_QUEUED_TASKS);
            let Some(mut supply) = has_room.then(|| state.source.take()).flatten() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let block = state.pool.pop().unwrap_or_default();
            drop(state);
            let task = supply.next_task(block);
            state = self.state();
            state.source = Some(supply);
            match task {
                Some(task) if !state.is_closed => {
                    state.queues.iter_mut().for_each(|queue| queue.push_back(task.clone()));
                }
                _ => state.is_closed = true,
            }
            self.changed.notify_all();
        }
    }

    /// Returns a block after a worker has processed it.
    pub(super) fn recycle(&self, block: Arc<Block>) {
        if let Some(block) = Arc::into_inner(block) {
            self.state().pool.push(block);
        }
    }

    /// Discards all tasks and ends all workers.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.queues.iter_mut().for_each(VecDeque::clear);
        self.changed.notify_all();
    }

    /// The source of tasks; `None` if it panicked.
    pub(super) fn into_source(self) -> Option<S> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).source
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

    impl BlockSource for Few {
        fn next_task(&mut self, block: Block) -> Option<Task> {
            self.0 = self.0.checked_sub(1)?;
            Some(if self.0 % 3 == 2 { Task::Finish } else { Task::Analyze(Arc::new(block)) })
        }
    }

    #[test]
    fn each_worker_gets_all_tasks_in_one_order() {
        let queue = WorkQueue::new(3, Few(300));
        let kinds = thread::scope(|scope| {
            let cores = [0, 1, 2].map(|core| {
                let queue = &queue;
                scope.spawn(move || {
                    let mut kinds = Vec::new();
                    while let Some(task) = queue.next(core) {
                        kinds.push(matches!(task, Task::Finish));
                        if let Task::Analyze(block) = task {
                            queue.recycle(block);
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
        let blocks = queue.state().pool.len();
        assert!((1..=MAX_QUEUED_TASKS + 4).contains(&blocks), "{blocks}");
        assert_eq!(queue.into_source().map(|few| few.0), Some(0));
    }

    #[test]
    fn a_faster_worker_waits_for_the_others() {
        let queue = WorkQueue::new(2, Few(100));
        thread::scope(|scope| {
            let (said, heard) = channel();
            let ahead = &queue;
            scope.spawn(move || {
                while ahead.next(0).is_some() {
                    said.send(()).unwrap();
                }
            });
            for _ in 0..MAX_QUEUED_TASKS {
                heard.recv().unwrap();
            }
            // The next block is read only if all queues have space.
            assert_eq!(
                queue.state().source.as_ref().map(|few| few.0),
                Some(100 - MAX_QUEUED_TASKS as u32)
            );
            assert!(queue.next(1).is_some());
            heard.recv().unwrap();
            // After a failure, the other workers do not wait.
            queue.close();
            assert!(heard.iter().count() <= 1);
        });
        assert!(queue.next(1).is_none());
    }
}
