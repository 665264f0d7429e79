//! Analyses captures: each core processes the packets of its shard, given by the pair of addresses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use manyways_flows::analysis::{Aggregator, Analysis, Counters, Record, Settings, Summary};
use manyways_unit::Time;
use thiserror::Error;

use super::block::Buffer;
use super::folder::{Folder, FolderError};
use super::input::Source;
use super::sequence::{BlockSummary, CaptureSequence, Step};
use super::work_queue::{BlockSource, MAX_QUEUED_TASKS, Task, WorkQueue};

/// How to analyse captures.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// Settings of the analysis.
    pub settings: Settings,
    /// Number of threads, 1 to 64.
    pub threads: u8,
}

impl RunOptions {
    pub fn new(settings: Settings, threads: u8) -> Self {
        Self { settings, threads }
    }
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
pub struct CaptureStats {
    pub name: String,
    pub packets: u64,
    /// Packets that the capture reports as dropped.
    pub dropped: u64,
    /// Times of the earliest and the latest packet.
    pub times: Option<(Time, Time)>,
    /// Reason why the capture was not read to its end; `None` if it was.
    pub error: Option<String>,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    pub captures: Vec<CaptureStats>,
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
    plan: &RunOptions,
    folder: Option<&mut Folder>,
    progress: &Progress,
) -> Result<RunReport, RunError> {
    let aggregator = Aggregator::new(&plan.settings);
    let aggregator = if folder.is_some() { aggregator } else { aggregator.without_tables() };
    let mut collector = Collector { aggregator, folder, counters: Counters::default() };
    let threads = plan.threads.clamp(1, 64);
    let captures = if threads == 1 {
        let mut analysis = Analysis::new(plan.settings.clone());
        let mut bytes = Buffer::default();
        let mut reading = CaptureSequence::new(sources, 1, progress);
        while let Some(step) = reading.next(|blocks| {
            let mut seen = BlockSummary::default();
            let end = blocks.read_packets(&mut bytes, |interface, packet, _| {
                seen.add(packet.at);
                analysis.handle_packet(interface, packet);
                while let Some(record) = analysis.poll() {
                    collector.aggregator.add(record);
                }
            });
            end.map_or(Ok(seen), Err)
        }) {
            if step == Step::Finish {
                let mut over = Analysis::new(plan.settings.clone());
                std::mem::swap(&mut over, &mut analysis);
                collector
                    .counters
                    .add(&finish_analysis(over, |record| collector.aggregator.add(record)));
            }
            collector.write(false)?;
        }
        reading.captures()
    } else {
        run_parallel(sources, plan, threads, &mut collector, progress)?
    };
    collector.write(true)?;
    let summary = collector.aggregator.summary().clone();
    Ok(RunReport { captures, counters: collector.counters, summary })
}

struct Collector<'a> {
    aggregator: Aggregator,
    folder: Option<&'a mut Folder>,
    counters: Counters,
}

impl Collector<'_> {
    fn write(&mut self, is_end: bool) -> Result<(), FolderError> {
        if !is_end && !self.aggregator.is_full() {
            return Ok(());
        }
        let mut result = Ok(());
        let folder = &mut self.folder;
        self.aggregator.flush(is_end, |schema, batch| {
            if let (Some(folder), Ok(())) = (folder.as_deref_mut(), &result) {
                result = folder.write(schema, batch);
            }
        });
        result
    }
}

/// Ends an analysis, passes its records to `each` and returns its counters.
fn finish_analysis(mut analysis: Analysis, mut each: impl FnMut(Record)) -> Counters {
    analysis.finish();
    while let Some(record) = analysis.poll() {
        each(record);
    }
    analysis.counters().clone()
}

/// Analyses with `threads` worker threads; this thread merges their records.
fn run_parallel(
    sources: &[Source],
    plan: &RunOptions,
    threads: u8,
    collector: &mut Collector<'_>,
    progress: &Progress,
) -> Result<Vec<CaptureStats>, RunError> {
    let queue = WorkQueue::new(threads, CaptureSequence::new(sources, threads, progress));
    let mut order = OrderedMerge::new(threads);
    thread::scope(|scope| {
        // A worker blocks while this thread writes.
        let (records, came) = sync_channel::<(u8, Vec<Vec<Record>>)>(threads.into());
        let mut workers = Vec::new();
        for shard in 0..threads {
            let (queue, records) = (&queue, records.clone());
            workers.push(scope.spawn(move || run_worker(shard, queue, &plan.settings, &records)));
        }
        drop(records);
        for (shard, batches) in &came {
            order.push(shard, batches);
            while let Some(records) = order.next() {
                records.for_each(|record| collector.aggregator.add(record));
                collector.write(false)?;
            }
        }
        for worker in workers {
            let counters = worker.join().map_err(|_| RunError::Thread)?;
            collector.counters.add(&counters);
        }
        Ok::<(), RunError>(())
    })?;
    queue.into_source().map(CaptureSequence::captures).ok_or(RunError::Thread)
}

/// Merges the records of all workers in the order of the tasks: the fastest worker's records wait
/// for those of the others. So a flow follows the names that were resolved before its end, and the
/// tables do not depend on the speed of the workers.
struct OrderedMerge<T> {
    queues: Vec<VecDeque<Vec<T>>>,
}

impl<T> OrderedMerge<T> {
    fn new(threads: u8) -> Self {
        Self { queues: std::iter::repeat_with(VecDeque::new).take(threads.into()).collect() }
    }

    /// Adds the records of the next tasks of a worker.
    fn push(&mut self, core: u8, batches: Vec<Vec<T>>) {
        if let Some(queue) = self.queues.get_mut(usize::from(core)) {
            queue.extend(batches);
        }
    }

    /// The records of the next task, as soon as all workers have finished it.
    fn next(&mut self) -> Option<impl Iterator<Item = T> + use<T>> {
        if self.queues.iter().any(VecDeque::is_empty) {
            return None;
        }
        let batches: Vec<Vec<T>> = self.queues.iter_mut().filter_map(VecDeque::pop_front).collect();
        Some(batches.into_iter().flatten())
    }
}

/// Analyses the packets of a shard.
fn run_worker(
    shard: u8,
    queue: &WorkQueue<CaptureSequence<'_>>,
    settings: &Settings,
    records: &SyncSender<(u8, Vec<Vec<Record>>)>,
) -> Counters {
    let _leaving = CloseOnPanic(queue);
    let mut counters = Counters::default();
    let mut analysis = Analysis::new(settings.clone());
    let mut batches = Vec::new();
    while let Some(task) = queue.next(shard) {
        let mut batch = Vec::new();
        match task {
            Task::Analyze(block) => {
                for (interface, packet) in block.packets(shard) {
                    analysis.handle_packet(interface, &packet);
                    while let Some(record) = analysis.poll() {
                        batch.push(record);
                    }
                }
                queue.recycle(block);
            }
            Task::Finish => {
                let over = std::mem::replace(&mut analysis, Analysis::new(settings.clone()));
                counters.add(&finish_analysis(over, |record| batch.push(record)));
            }
        }
        // Empty batches are sent as well, because the order counts batches.
        batches.push(batch);
        if batches.len() == MAX_QUEUED_TASKS
            && records.send((shard, std::mem::take(&mut batches))).is_err()
        {
            // The collector has failed.
            queue.close();
            break;
        }
    }
    records.send((shard, batches)).ok();
    counters
}

/// Closes the queue if a worker panics, so that the others do not wait for it.
struct CloseOnPanic<'a, S: BlockSource>(&'a WorkQueue<S>);

impl<S: BlockSource> Drop for CloseOnPanic<'_, S> {
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

    impl BlockSource for Endless {
        fn next_task(&mut self, _: Block) -> Option<Task> {
            Some(Task::Finish)
        }
    }

    #[test]
    fn a_failed_worker_does_not_block_the_others() {
        let queue = WorkQueue::new(2, Endless);
        thread::scope(|scope| {
            let fails = scope.spawn(|| {
                let _leaving = CloseOnPanic(&queue);
                queue.next(0);
                std::panic::resume_unwind(Box::new(()));
            });
            let goes_on = scope.spawn(|| while queue.next(1).is_some() {});
            assert!(fails.join().is_err());
            goes_on.join().unwrap();
        });
    }

    #[test]
    fn records_of_a_faster_worker_wait() {
        let mut order = OrderedMerge::new(2);
        let next =
            |order: &mut OrderedMerge<u8>| order.next().map(|batch| batch.collect::<Vec<_>>());
        order.push(0, vec![vec![1, 2], vec![3]]);
        order.push(0, vec![vec![]]);
        assert_eq!(next(&mut order), None);
        order.push(1, vec![vec![]]);
        assert_eq!(next(&mut order), Some(vec![1, 2]));
        assert_eq!(next(&mut order), None);
        order.push(1, vec![vec![4], vec![5]]);
        assert_eq!(next(&mut order), Some(vec![3, 4]));
        assert_eq!(next(&mut order), Some(vec![5]));
        assert_eq!(next(&mut order), None);
    }
}
