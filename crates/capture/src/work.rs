//! Goes through captures: each core looks at the packets of its own pairs of addresses.

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

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How to look at packets.
    pub settings: Settings,
    /// How many cores look at them, 1 to 64.
    pub threads: u8,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Bytes that were read, compressed ones as they are.
    pub read: Arc<AtomicU64>,
    /// Packets that were found.
    pub packets: Arc<AtomicU64>,
    /// Set it to stop as if the captures ended here.
    pub stop: Arc<std::sync::atomic::AtomicBool>,
}

/// What became of a capture.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Its name.
    pub name: String,
    /// How many packets were found in it.
    pub packets: u64,
    /// Packets that it says it lost.
    pub missed: u64,
    /// When its first packet passed, and its latest.
    pub times: Option<(Time, Time)>,
    /// Why it was not read to its end, where it was not.
    pub fault: Option<String>,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Each capture.
    pub captures: Vec<Capture>,
    /// What was counted in all of them.
    pub counters: Counters,
    /// What all flows add up to.
    pub summary: Summary,
}

/// Why it could not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// Nothing can be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The system does not go on with a live capture.
    #[error("cannot go on capturing on {interface}: {error}")]
    Capture {
        /// Where it was.
        interface: String,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// A thread fell over its own feet.
    #[error("a thread that looked at packets failed")]
    Thread,
}

/// Goes through captures in this order, and writes tables into a folder, where there is one.
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

/// Hands out what is left in it, and says what it counted.
fn finish(mut analysis: Analysis, mut each: impl FnMut(Record)) -> Counters {
    analysis.finish();
    while let Some(record) = analysis.poll() {
        each(record);
    }
    analysis.counters().clone()
}

/// The same with as many threads beside this one, which puts together what they find.
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
        // Whoever finds more than can be written waits.
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

/// What cores hand in task by task, put together in the order of the tasks: what one is ahead waits
/// for the others. So a flow comes behind the names that were told before it was over, and what is
/// made of both does not depend on who was faster.
struct InOrder<T> {
    waiting: Vec<VecDeque<Vec<T>>>,
}

impl<T> InOrder<T> {
    fn new(threads: u8) -> Self {
        Self { waiting: std::iter::repeat_with(VecDeque::new).take(threads.into()).collect() }
    }

    /// A core is done with its next tasks.
    fn came(&mut self, core: u8, batches: Vec<Vec<T>>) {
        if let Some(queue) = self.waiting.get_mut(usize::from(core)) {
            queue.extend(batches);
        }
    }

    /// What came out of the next task, once all are done with it.
    fn next(&mut self) -> Option<impl Iterator<Item = T> + use<T>> {
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let batches: Vec<Vec<T>> =
            self.waiting.iter_mut().filter_map(VecDeque::pop_front).collect();
        Some(batches.into_iter().flatten())
    }
}

/// Looks at the packets of a shard.
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
        // Also where there is nothing: others wait for it.
        batches.push(batch);
        if batches.len() == WAITING && records.send((shard, std::mem::take(&mut batches))).is_err()
        {
            // Nothing can be written any more.
            desk.close();
            break;
        }
    }
    records.send((shard, batches)).ok();
    counters
}

/// A core that fell over its own feet must not be waited for by the others.
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
    fn nobody_waits_for_a_core_that_failed() {
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
    fn whoever_is_ahead_waits() {
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
