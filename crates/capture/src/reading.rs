//! Reads captures one after the other.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use manyways_unit::{Span, Time};

use super::block::{Block, Blocks, End};
use super::desk::{Supply, Task};
use super::input::Source;
use super::work::{Capture, Progress};

/// Maximum time by which a capture may begin before the previous one ended and still continue it,
/// because clocks are adjusted.
const OVERLAP: Span = Span::from_secs(2);

/// A sequence of captures, read block by block.
pub(super) struct Reading<'a> {
    sources: slice::Iter<'a, Source>,
    shards: u8,
    progress: &'a Progress,
    captures: Vec<Capture>,
    /// The current capture; `None` between two captures.
    blocks: Option<Blocks>,
    /// Whether no block of the current capture was read yet.
    is_first: bool,
    /// Latest time of the captures that form one recording.
    latest: Option<Time>,
    is_over: bool,
}

/// Result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A block was processed.
    Looked,
    /// The flows of all earlier captures end here.
    Finish,
}

/// Summary of the packets of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Times of the first and the last packet.
    pub times: Option<(Time, Time)>,
    pub count: u64,
}

impl Seen {
    /// Counts a packet.
    #[inline]
    pub(super) fn pass(&mut self, at: Time) {
        self.times = Some((self.times.map_or(at, |(first, _)| first), at));
        self.count += 1;
    }
}

impl<'a> Reading<'a> {
    pub(super) fn new(sources: &'a [Source], shards: u8, progress: &'a Progress) -> Self {
        Self {
            sources: sources.iter(),
            shards,
            progress,
            captures: Vec::new(),
            blocks: None,
            is_first: true,
            latest: None,
            is_over: false,
        }
    }

    /// Passes the next block to `look`, or returns the step before that block; `None` at the end,
    /// after the last [`Step::Finish`].
    pub(super) fn next(
        &mut self,
        mut look: impl FnMut(&mut Blocks) -> Result<Seen, End>,
    ) -> Option<Step> {
        loop {
            let Some(blocks) = &mut self.blocks else {
                match self.sources.next() {
                    Some(source) => self.open(source),
                    None if self.is_over => return None,
                    None => {
                        self.is_over = true;
                        return Some(Step::Finish);
                    }
                }
                continue;
            };
            if self.progress.stop.load(Ordering::Relaxed) {
                self.close(None);
                continue;
            }
            // The first packet shows whether a capture continues the previous one.
            if std::mem::take(&mut self.is_first)
                && let Some(before) = self.latest
            {
                let begins = blocks.begins();
                if begins.is_none_or(|begins| begins + OVERLAP < before) {
                    self.latest = None;
                    return Some(Step::Finish);
                }
            }
            match look(blocks) {
                Ok(Seen { times, count }) => {
                    self.latest = self.latest.max(times.map(|(_, last)| last));
                    if let Some(capture) = self.captures.last_mut() {
                        capture.packets += count;
                        capture.times = joined(capture.times, times);
                    }
                    self.progress.packets.fetch_add(count, Ordering::Relaxed);
                    return Some(Step::Looked);
                }
                // An interrupted capture has no fault, even if it ends within a packet.
                Err(End::Broken(at, broken)) => self.close(fault(End::Broken(at, broken))),
                Err(_) if self.progress.stop.load(Ordering::Relaxed) => self.close(None),
                Err(end) => self.close(fault(end)),
            }
        }
    }

    /// Statistics of each capture.
    pub(super) fn captures(self) -> Vec<Capture> {
        self.captures
    }

    fn open(&mut self, source: &Source) {
        let mut capture = Capture { name: source.name(), ..Capture::default() };
        match source.open(self.progress) {
            Ok(opened) => self.blocks = Some(Blocks::new(opened, self.shards)),
            Err(error) => capture.fault = Some(error.to_string()),
        }
        self.is_first = true;
        self.captures.push(capture);
    }

    fn close(&mut self, fault: Option<String>) {
        if let (Some(blocks), Some(capture)) = (self.blocks.take(), self.captures.last_mut()) {
            let interfaces = blocks.reader().interfaces().iter();
            capture.missed = interfaces.map(|interface| interface.lost).sum();
            capture.fault = fault;
        }
    }
}

impl Supply for Reading<'_> {
    fn supply(&mut self, mut block: Block) -> Option<Task> {
        let step = self.next(|blocks| match blocks.next(&mut block) {
            Some(end) => Err(end),
            None => Ok(block.seen()),
        });
        Some(match step? {
            Step::Looked => Task::Look(Arc::new(block)),
            Step::Finish => Task::Finish,
        })
    }
}

/// The range that contains both ranges.
fn joined(one: Option<(Time, Time)>, other: Option<(Time, Time)>) -> Option<(Time, Time)> {
    match (one, other) {
        (Some((first, last)), Some((begins, ends))) => Some((first.min(begins), last.max(ends))),
        (one, other) => one.or(other),
    }
}

fn fault(end: End) -> Option<String> {
    match end {
        End::Whole => None,
        End::Empty => Some("the capture is empty".to_owned()),
        End::Cut(at) => Some(format!("the capture ends in the middle of the block at byte {at}")),
        End::Broken(at, broken) => Some(format!("{broken} (at byte {at})")),
        End::Failed(at, error) => Some(format!("cannot be read after byte {at}: {error}")),
    }
}
