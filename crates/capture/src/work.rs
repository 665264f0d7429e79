//! Analyses captures: each core processes the packets of its shard, given by the pair of addresses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use manyways_flows::analysis::{Analysis, Counters, Record, Settings, Summary, Survey};
use manyways_unit::Time;
use thiserror::Error;

use super::block::Buffer;
use super::desk::{Desk, Supply, Task, WAITING};
use super::folder::{Folder, FolderError};
use super::input::Source;
use super::reading::{Reading, Seen, Step};

/// How to analyse captures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Settings of the analysis.
    pub settings: Settings,
    /// Number of threads, 1 to 64.
    pub threads: u8,
}

/// Progress of a run.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Bytes read, before decompression.
    pub read: Arc<AtomicU64>,
    pub packets: Arc<AtomicU64>,
    /// Set this to stop as if the captures ended here.
    pub stop: Arc<std::sync::atomic::AtomicBool>,
}

/// Statistics of a capture.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    pub name: String,
    pub packets: u64,
    /// Packets that the capture reports as dropped.
    pub missed: u64,
    /// Times of the first and the latest packet.
    pub times: Option<(Time, Time)>,
    /// Reason why the capture was not read to its end; `None` if it was.
    pub fault: Option<String>,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub captures: Vec<Capture>,
    /// Counters over all captures.
    pub counters: Counters,
    /// Statistics over all flows.
    pub summary: Summary,
}

/// Reason why a run failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The tables cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A live capture failed.
    #[error("the capture on {interface} failed: {error}")]
    Capture {
        interface: String,
        /// Error of the system.
        #[source]
        error: std::io::Error,
    },
    /// A thread panicked.
    #[error("an analysis thread failed")]
    Thread,
}

/// Analyses captures in this order, and writes tables into `folder`, if given.
pub fn run(
    sources: &[Source],
    plan: &Plan,
    folder: Option<&mut Folder>,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    let survey = Survey::new(&plan.settings);
    let survey = if folder.is_some() { survey } else { survey.without_tables() };
    let mut collector = Collector { survey, folder, counters: Counters::default() };
    let threads = plan.threads.clamp(1, 64);
    let captures = if threads == 1 {
        let mut analysis = Analysis::new(plan.settings.clone());
        let mut bytes = Buffer::default();
        let mut reading = Reading::new(sources, 1, progress);
        while let Some(step) = reading.next(|blocks| {
            let mut seen = Seen::default();
            let end = blocks.each(&mut bytes, |interface, packet, _| {
                seen.pass(packet.at);
                analysis.packet(interface, packet);
                while let Some(record) = analysis.poll() {
                    collector.survey.add(record);
                }
            });
            end.map_or(Ok(seen), Err)
        }) {
            if step == Step::Finish {
                let mut over = Analysis::new(plan.settings.clone());
                std::mem::swap(&mut over, &mut analysis);
                collector.counters.add(&finish(over, |record| collector.survey.add(record)));
            }
            collector.write(false)?;
        }
        reading.captures()
    } else {
        spread(sources, plan, threads, &mut collector, progress)?
    };
    collector.write(true)?;
    let summary = collector.survey.summary().clone();
    Ok(Outcome { captures, counters: collector.counters, summary })
}

struct Collector<'a> {
    survey: Survey,
    folder: Option<&'a mut Folder>,
    counters: Counters,
}

impl Collector<'_> {
    fn write(&mut self, is_end: bool) -> Result<(), FolderError> {
        if !is_end && !self.survey.is_full() {
            return Ok(());
        }
        let mut result = Ok(());
        let folder = &mut self.folder;
        self.survey.flush(is_end, |schema, batch| {
            if let (Some(folder), Ok(())) = (folder.as_deref_mut(), &result) {
                result = folder.write(schema, batch);
            }
        });
        result
    }
}

/// Ends an analysis, passes its records to `each` and returns its counters.
fn finish(mut analysis: Analysis, mut each: impl FnMut(Record)) -> Counters {
    analysis.finish();
    while let Some(record) = analysis.poll() {
        each(record);
    }
    analysis.counters().clone()
}

/// Analyses with `threads` worker threads; this thread merges their records.
fn spread(
    sources: &[Source],
    plan: &Plan,
    threads: u8,
    collector: &mut Collector<'_>,
    progress: &Progress,
) -> Result<Vec<Capture>, RunError> {
    let desk = Desk::new(threads, Reading::new(sources, threads, progress));
    let mut order = InOrder::new(threads);
    thread::scope(|scope| {
        // A worker blocks while this thread writes.
        let (records, came) = sync_channel::<(u8, Vec<Vec<Record>>)>(threads.into());
        let mut workers = Vec::new();
        for shard in 0..threads {
            let (desk, records) = (&desk, records.clone());
            workers.push(scope.spawn(move || work(shard, desk, &plan.settings, &records)));
        }
        drop(records);
        for (shard, batches) in &came {
            order.came(shard, batches);
            while let Some(records) = order.next() {
                records.for_each(|record| collector.survey.add(record));
                collector.write(false)?;
            }
        }
        for worker in workers {
            let counters = worker.join().map_err(|_| RunError::Thread)?;
            collector.counters.add(&counters);
        }
        Ok::<(), RunError>(())
    })?;
    desk.into_supply().map(Reading::captures).ok_or(RunError::Thread)
}

/// Merges the records of all workers in the order of the tasks: the fastest worker's records wait
/// for those of the others. So a flow follows the names that were resolved before its end, and the
/// tables do not depend on the speed of the workers.
struct InOrder<T> {
    waiting: Vec<VecDeque<Vec<T>>>,
}

impl<T> InOrder<T> {
    fn new(threads: u8) -> Self {
        Self { waiting: std::iter::repeat_with(VecDeque::new).take(threads.into()).collect() }
    }

    /// Adds the records of the next tasks of a worker.
    fn came(&mut self, core: u8, batches: Vec<Vec<T>>) {
        if let Some(queue) = self.waiting.get_mut(usize::from(core)) {
            queue.extend(batches);
        }
    }

    /// The records of the next task, as soon as all workers have finished it.
    fn next(&mut self) -> Option<impl Iterator<Item = T> + use<T>> {
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let batches: Vec<Vec<T>> =
            self.waiting.iter_mut().filter_map(VecDeque::pop_front).collect();
        Some(batches.into_iter().flatten())
    }
}

/// Analyses the packets of a shard.
fn work(
    shard: u8,
    desk: &Desk<Reading<'_>>,
    settings: &Settings,
    records: &SyncSender<(u8, Vec<Vec<Record>>)>,
) -> Counters {
    let _leaving = Leaving(desk);
    let mut counters = Counters::default();
    let mut analysis = Analysis::new(settings.clone());
    let mut batches = Vec::new();
    while let Some(task) = desk.next(shard) {
        let mut batch = Vec::new();
        match task {
            Task::Look(block) => {
                for (interface, packet) in block.packets(shard) {
                    analysis.packet(interface, &packet);
                    while let Some(record) = analysis.poll() {
                        batch.push(record);
                    }
                }
                desk.done(block);
            }
            Task::Finish => {
                let over = std::mem::replace(&mut analysis, Analysis::new(settings.clone()));
                counters.add(&finish(over, |record| batch.push(record)));
            }
        }
        // Empty batches are sent as well, because the order counts batches.
        batches.push(batch);
        if batches.len() == WAITING && records.send((shard, std::mem::take(&mut batches))).is_err()
        {
            // The collector has failed.
            desk.close();
            break;
        }
    }
    records.send((shard, batches)).ok();
    counters
}

/// Closes the desk if a worker panics, so that the others do not wait for it.
struct Leaving<'a, S: Supply>(&'a Desk<S>);

impl<S: Supply> Drop for Leaving<'_, S> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Block;
    use super::*;

    struct Endless;

    impl Supply for Endless {
        fn supply(&mut self, _: Block) -> Option<Task> {
            Some(Task::Finish)
        }
    }

    #[test]
    fn a_failed_worker_does_not_block_the_others() {
        let desk = Desk::new(2, Endless);
        thread::scope(|scope| {
            let fails = scope.spawn(|| {
                let _leaving = Leaving(&desk);
                desk.next(0);
                std::panic::resume_unwind(Box::new(()));
            });
            let goes_on = scope.spawn(|| while desk.next(1).is_some() {});
            assert!(fails.join().is_err());
            goes_on.join().unwrap();
        });
    }

    #[test]
    fn records_of_a_faster_worker_wait() {
        let mut order = InOrder::new(2);
        let next = |order: &mut InOrder<u8>| order.next().map(|batch| batch.collect::<Vec<_>>());
        order.came(0, vec![vec![1, 2], vec![3]]);
        order.came(0, vec![vec![]]);
        assert_eq!(next(&mut order), None);
        order.came(1, vec![vec![]]);
        assert_eq!(next(&mut order), Some(vec![1, 2]));
        assert_eq!(next(&mut order), None);
        order.came(1, vec![vec![4], vec![5]]);
        assert_eq!(next(&mut order), Some(vec![3, 4]));
        assert_eq!(next(&mut order), Some(vec![5]));
        assert_eq!(next(&mut order), None);
    }
}
