//! Waits of tasks, more exact than those of tokio, which counts milliseconds: one kernel timer for all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manyways_sys::clock::Clock;
use manyways_sys::timer::Timer;
use manyways_unit::Time;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// Wakes tasks at times of its clock.
#[derive(Clone, Debug)]
pub(super) struct Alarm(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    timer: AsyncFd<Timer>,
    waits: Mutex<BinaryHeap<Reverse<Wait>>>,
}

/// A wait, ordered by its time.
#[derive(Debug)]
struct Wait {
    until: Time,
    done: oneshot::Sender<()>,
}

impl Alarm {
    /// Creates an alarm, and the task that has to run as long as there are waits.
    ///
    /// # Errors
    /// The kernel has no timer for it.
    pub(super) fn new(clock: Clock) -> io::Result<(Self, impl Future<Output = io::Error>)> {
        #[expect(deprecated, reason = "what replaces it is unsafe, and this crate has none")]
        let timer = AsyncFd::with_interest(Timer::new(clock)?, Interest::READABLE)?;
        let alarm = Self(Arc::new(Shared { clock, timer, waits: Mutex::default() }));
        let shared = alarm.0.clone();
        let run = async move {
            loop {
                if let Err(error) = shared.ring().await {
                    return error;
                }
            }
        };
        Ok((alarm, run))
    }

    /// Waits until a time; returns at once if it has passed.
    pub(super) async fn until(&self, time: Time) {
        if self.0.clock.now() >= time {
            return;
        }
        let (done, rung) = oneshot::channel();
        {
            let mut waits = self.0.lock();
            let is_first = waits.peek().is_none_or(|Reverse(first)| time < first.until);
            waits.push(Reverse(Wait { until: time, done }));
            // A timer that cannot be set is one of a kernel without timers: the wait ends early.
            if is_first && self.0.timer.get_ref().set(time).is_err() {
                return;
            }
        }
        // It fails only if the alarm has ended.
        let _ = rung.await;
    }
}

impl Shared {
    /// Waits for the timer, and ends the waits that are due.
    async fn ring(&self) -> io::Result<()> {
        let mut guard = self.timer.readable().await?;
        let mut waits = self.lock();
        guard.clear_ready();
        drop(guard);
        let now = self.clock.now();
        while let Some(Reverse(wait)) = waits.peek()
            && (wait.until <= now || wait.done.is_closed())
            && let Some(Reverse(wait)) = waits.pop()
        {
            // The task may have ended.
            let _ = wait.done.send(());
        }
        match waits.peek() {
            Some(Reverse(next)) => self.timer.get_ref().set(next.until),
            None => self.timer.get_ref().unset(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Wait>>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Wait {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for Wait {}

impl PartialOrd for Wait {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wait {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.until.cmp(&other.until)
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Span;

    use super::*;

    #[test]
    fn all_waits_end_and_none_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::start();
            let (alarm, run) = Alarm::new(clock).unwrap();
            tokio::spawn(run);
            let start = clock.now();
            // A wait that does not end must not delay the others.
            let distant = alarm.clone();
            tokio::spawn(async move { distant.until(Time::MAX).await });
            tokio::task::yield_now().await;
            let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
            // The earliest is neither the first nor the last; two are equal, and one more is given up.
            for micros in [900, 300, 600, 300, 0] {
                let (alarm, sender) = (alarm.clone(), sender.clone());
                tokio::spawn(async move {
                    let until = start + Span::from_micros(micros);
                    alarm.until(until).await;
                    sender.send(clock.now() >= until).unwrap();
                });
            }
            let given_up = tokio::spawn({
                let alarm = alarm.clone();
                async move { alarm.until(start + Span::from_micros(100)).await }
            });
            given_up.abort();
            for _ in 0..5 {
                assert!(ended.recv().await.unwrap());
            }
        });
    }
}
