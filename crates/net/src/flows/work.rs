//! Goes through captures: one thread reads, and each core looks at the packets of its own pairs of
//! addresses.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, mpsc};
use std::thread;

use manyways_trace::{Span, Time};
use manyways_wire::analysis::{Analysis, Counters, Record, Settings, Summary, Survey};
use thiserror::Error;

use super::block::{Block, Blocks, Buffer, End};
use super::folder::{Folder, FolderError};
use super::input::{Source, SourceError};

/// So many blocks wait for a core.
pub(super) const WAITING: usize = 32;
/// A capture that begins this much before the one before it ended goes on with it: clocks step.
const OVERLAP: Span = Span::from_secs(2);

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

enum Task {
    Look(Arc<Block>),
    /// What follows has nothing to do with what was.
    Finish,
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
        read(sources, 1, progress, |step| match step {
            Read::Blocks(blocks) => {
                let (mut last, mut count) = (None, 0);
                let end = blocks.each(&mut bytes, |interface, packet, _| {
                    (last, count) = (Some(packet.at), count + 1);
                    analysis.packet(interface, packet);
                    while let Some(record) = analysis.poll() {
                        collector.survey.add(record);
                    }
                });
                collector.write(false)?;
                Ok(end.map_or(Ok((last, count)), Err))
            }
            Read::Finish => {
                let mut over = Analysis::new(plan.settings.clone());
                std::mem::swap(&mut over, &mut analysis);
                collector.counters.add(&finish(over, |record| collector.survey.add(record)));
                Ok(Err(End::Whole))
            }
        })?
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

/// What the reader wants.
enum Read<'a> {
    /// The next block of these.
    Blocks(&'a mut Blocks),
    /// All that was going on is over.
    Finish,
}

/// When the last packet passed, and how many there were.
type Times = (Option<Time>, usize);

/// Goes through the captures block by block.
fn read(
    sources: &[Source],
    shards: u8,
    progress: &Progress,
    mut each: impl FnMut(Read<'_>) -> Result<Result<Times, End>, RunError>,
) -> Result<Vec<Capture>, RunError> {
    let (mut captures, mut latest) = (Vec::new(), None::<Time>);
    for source in sources {
        let mut capture = Capture { name: source.name(), ..Capture::default() };
        let opened: Result<_, SourceError> = source.open(&progress.read);
        let mut blocks = match opened {
            Ok(opened) => Blocks::new(opened, shards),
            Err(error) => {
                capture.fault = Some(error.to_string());
                captures.push(capture);
                continue;
            }
        };
        let mut is_first = true;
        loop {
            if progress.stop.load(Ordering::Relaxed) {
                break;
            }
            // Whether it goes on with the one before is known when its first packet is.
            if is_first && let Some(before) = latest {
                let begins = blocks.begins();
                if begins.is_none_or(|begins| begins + OVERLAP < before) {
                    each(Read::Finish)?.ok();
                    latest = None;
                }
            }
            is_first = false;
            match each(Read::Blocks(&mut blocks))? {
                Ok((last, count)) => {
                    latest = latest.max(last);
                    capture.packets += count as u64;
                    progress.packets.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(end) => {
                    capture.fault = fault(end);
                    break;
                }
            }
        }
        capture.missed = blocks.reader().interfaces().iter().map(|interface| interface.lost).sum();
        captures.push(capture);
    }
    each(Read::Finish)?.ok();
    Ok(captures)
}

fn fault(end: End) -> Option<String> {
    match end {
        End::Whole => None,
        End::Empty => Some("it is empty".to_owned()),
        End::Cut(at) => Some(format!("it ends in the middle of what begins at byte {at}")),
        End::Broken(at, broken) => Some(format!("{broken} (at byte {at})")),
        End::Failed(at, error) => Some(format!("cannot be read on after byte {at}: {error}")),
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

/// The same with as many threads beside this one.
fn spread(
    sources: &[Source],
    plan: &Plan,
    threads: u8,
    collector: &mut Collector<'_>,
    progress: &Progress,
) -> Result<Vec<Capture>, RunError> {
    thread::scope(|scope| {
        let (records, came) = channel::<(u8, Vec<Record>)>();
        let mut order = InOrder::new(threads);
        let (back, used) = channel::<Arc<Block>>();
        let mut tasks: Vec<SyncSender<Task>> = Vec::new();
        let mut workers = Vec::new();
        for shard in 0..threads {
            let (task, todo) = sync_channel(WAITING);
            tasks.push(task);
            let (records, back) = (records.clone(), back.clone());
            workers.push(scope.spawn(move || work(shard, &todo, &plan.settings, &records, &back)));
        }
        drop((records, back));
        let mut pool: Vec<Block> = Vec::new();
        let captures = read(sources, threads, progress, |step| {
            pool.extend(used.try_iter().filter_map(Arc::into_inner));
            for (shard, batch) in came.try_iter() {
                order.came(shard, batch);
                while let Some(records) = order.next() {
                    records.for_each(|record| collector.survey.add(record));
                    collector.write(false)?;
                }
            }
            let send =
                |task: &SyncSender<Task>, what| task.send(what).map_err(|_| RunError::Thread);
            match step {
                Read::Blocks(blocks) => {
                    let mut block = pool.pop().unwrap_or_default();
                    if let Some(end) = blocks.next(&mut block) {
                        return Ok(Err(end));
                    }
                    let times = (block.last(), block.len());
                    let block = Arc::new(block);
                    tasks.iter().try_for_each(|task| send(task, Task::Look(block.clone())))?;
                    Ok(Ok(times))
                }
                Read::Finish => {
                    tasks.iter().try_for_each(|task| send(task, Task::Finish))?;
                    Ok(Err(End::Whole))
                }
            }
        })?;
        tasks.clear();
        for worker in workers {
            let counters = worker.join().map_err(|_| RunError::Thread)?;
            collector.counters.add(&counters);
        }
        // Whoever sends is gone.
        came.iter().for_each(|(shard, batch)| order.came(shard, batch));
        while let Some(records) = order.next() {
            records.for_each(|record| collector.survey.add(record));
            collector.write(false)?;
        }
        Ok(captures)
    })
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

    /// A core is done with its next task.
    fn came(&mut self, core: u8, batch: Vec<T>) {
        if let Some(queue) = self.waiting.get_mut(usize::from(core)) {
            queue.push_back(batch);
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

fn work(
    shard: u8,
    todo: &Receiver<Task>,
    settings: &Settings,
    records: &mpsc::Sender<(u8, Vec<Record>)>,
    back: &mpsc::Sender<Arc<Block>>,
) -> Counters {
    let mut counters = Counters::default();
    let mut analysis = Analysis::new(settings.clone());
    for task in todo {
        let mut batch = Vec::new();
        match task {
            Task::Look(block) => {
                for (interface, packet) in block.packets(shard) {
                    analysis.packet(interface, &packet);
                    while let Some(record) = analysis.poll() {
                        batch.push(record);
                    }
                }
                // The reader is gone when it failed.
                back.send(block).ok();
            }
            Task::Finish => {
                let over = std::mem::replace(&mut analysis, Analysis::new(settings.clone()));
                counters.add(&finish(over, |record| batch.push(record)));
            }
        }
        // Also where there is nothing: others wait for it.
        records.send((shard, batch)).ok();
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_ahead_waits() {
        let mut order = InOrder::new(2);
        let next = |order: &mut InOrder<u8>| order.next().map(|batch| batch.collect::<Vec<_>>());
        order.came(0, vec![1, 2]);
        order.came(0, vec![3]);
        order.came(0, vec![]);
        assert_eq!(next(&mut order), None);
        order.came(1, vec![]);
        assert_eq!(next(&mut order), Some(vec![1, 2]));
        assert_eq!(next(&mut order), None);
        order.came(1, vec![4]);
        order.came(1, vec![5]);
        assert_eq!(next(&mut order), Some(vec![3, 4]));
        assert_eq!(next(&mut order), Some(vec![5]));
        assert_eq!(next(&mut order), None);
    }
}
