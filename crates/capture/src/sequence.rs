//! Reads captures one after the other.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use manyways_unit::{Span, Time};

use super::block::{Block, Blocks, CaptureEnd};
use super::input::Source;
use super::work::{CaptureStats, Progress};
use super::work_queue::{BlockSource, Task};

/// Maximum time by which a capture may begin before the previous one ended and still continue it,
/// because clocks are adjusted.
const MAX_OVERLAP: Span = Span::from_secs(2);

/// A sequence of captures, read block by block.
pub(super) struct CaptureSequence<'a> {
    sources: slice::Iter<'a, Source>,
    shards: u8,
    progress: &'a Progress,
    captures: Vec<CaptureStats>,
    /// The current capture; `None` between two captures.
    blocks: Option<Blocks>,
    /// Whether no block of the current capture was read yet.
    is_first: bool,
    /// Latest time of the captures that form one recording.
    latest: Option<Time>,
    is_finished: bool,
}

/// Result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A block was processed.
    Block,
    /// The flows of all earlier captures end here.
    Finish,
}

/// Summary of the packets of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockSummary {
    /// Times of the earliest and the latest packet.
    pub times: Option<(Time, Time)>,
    pub count: u64,
}

impl BlockSummary {
    /// Counts a packet.
    #[inline]
    pub(super) fn add(&mut self, at: Time) {
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        self.count += 1;
    }
}

impl<'a> CaptureSequence<'a> {
    pub(super) fn new(sources: &'a [Source], shards: u8, progress: &'a Progress) -> Self {
        Self {
            sources: sources.iter(),
            shards,
            progress,
            captures: Vec::new(),
            blocks: None,
            is_first: true,
            latest: None,
            is_finished: false,
        }
    }

    /// Passes the next block to `look`, or returns the step before that block; `None` at the end,
    /// after the last [`Step::Finish`].
    pub(super) fn next(
        &mut self,
        mut look: impl FnMut(&mut Blocks) -> Result<BlockSummary, CaptureEnd>,
    ) -> Option<Step> {
        loop {
            let Some(blocks) = &mut self.blocks else {
                match self.sources.next() {
                    Some(source) => self.open(source),
                    None if self.is_finished => return None,
                    None => {
                        self.is_finished = true;
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
                let start = blocks.first_packet_time();
                if start.is_none_or(|start| start + MAX_OVERLAP < before) {
                    self.latest = None;
                    return Some(Step::Finish);
                }
            }
            match look(blocks) {
                Ok(BlockSummary { times, count }) => {
                    self.latest = self.latest.max(times.map(|(_, last)| last));
                    if let Some(capture) = self.captures.last_mut() {
                        capture.packets += count;
                        capture.times = merge_ranges(capture.times, times);
                    }
                    self.progress.packets.fetch_add(count, Ordering::Relaxed);
                    return Some(Step::Block);
                }
                // An interrupted capture has no fault, even if it ends within a packet.
                Err(CaptureEnd::Invalid(at, broken)) => {
                    self.close(error_text(CaptureEnd::Invalid(at, broken)))
                }
                Err(_) if self.progress.stop.load(Ordering::Relaxed) => self.close(None),
                Err(end) => self.close(error_text(end)),
            }
        }
    }

    /// Statistics of each capture.
    pub(super) fn captures(self) -> Vec<CaptureStats> {
        self.captures
    }

    fn open(&mut self, source: &Source) {
        let mut capture = CaptureStats { name: source.name(), ..CaptureStats::default() };
        match source.open(self.progress) {
            Ok(opened) => self.blocks = Some(Blocks::new(opened, self.shards)),
            Err(error) => capture.error = Some(error.to_string()),
        }
        self.is_first = true;
        self.captures.push(capture);
    }

    fn close(&mut self, error: Option<String>) {
        if let (Some(blocks), Some(capture)) = (self.blocks.take(), self.captures.last_mut()) {
            let interfaces = blocks.reader().interfaces().iter();
            capture.dropped = interfaces.map(|interface| interface.dropped).sum();
            capture.error = error;
        }
    }
}

impl BlockSource for CaptureSequence<'_> {
    fn next_task(&mut self, mut block: Block) -> Option<Task> {
        let step = self.next(|blocks| match blocks.next(&mut block) {
            Some(end) => Err(end),
            None => Ok(block.summary()),
        });
        Some(match step? {
            Step::Block => Task::Analyze(Arc::new(block)),
            Step::Finish => Task::Finish,
        })
    }
}

/// The range that contains both ranges.
fn merge_ranges(one: Option<(Time, Time)>, other: Option<(Time, Time)>) -> Option<(Time, Time)> {
    match (one, other) {
        (Some((first, last)), Some((begins, ends))) => Some((first.min(begins), last.max(ends))),
        (one, other) => one.or(other),
    }
}

fn error_text(end: CaptureEnd) -> Option<String> {
    match end {
        CaptureEnd::Complete => None,
        CaptureEnd::Empty => Some("the capture is empty".to_owned()),
        CaptureEnd::Truncated(at) => {
            Some(format!("the capture ends in the middle of the block at byte {at}"))
        }
        CaptureEnd::Invalid(at, broken) => Some(format!("{broken} (at byte {at})")),
        CaptureEnd::ReadFailed(at, error) => {
            Some(format!("cannot be read after byte {at}: {error}"))
        }
    }
}
