//! Merges consecutive small pieces into large writes.

use std::io;

use manyways_proto::fetch::Range;

/// Size of a run that is written.
const MIN_WRITE: usize = 256 << 10;
/// Maximum number of buffered runs: two requests for each of several paths.
const MAX_RUNS: usize = 16;

/// Bytes that wait to be written: at most about [`MAX_RUNS`] × [`MIN_WRITE`].
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    /// The oldest run is first.
    runs: Vec<Run>,
    /// Buffers for later runs.
    free_buffers: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Run {
    offset: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn range(&self) -> Range {
        Range::new(self.offset, self.offset + self.bytes.len() as u64)
    }
}

impl WriteBuffer {
    /// Buffers a piece, and writes a run with `out` if it is large enough or there are too many. A
    /// run whose write fails remains.
    pub(super) fn put(
        &mut self,
        at: u64,
        piece: &[u8],
        out: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let run = match self.runs.iter().position(|run| run.range().end == at) {
            Some(run) => run,
            None => {
                let bytes =
                    self.free_buffers.pop().unwrap_or_else(|| Vec::with_capacity(MIN_WRITE));
                self.runs.push(Run { offset: at, bytes });
                self.runs.len() - 1
            }
        };
        self.runs[run].bytes.extend_from_slice(piece);
        if self.runs[run].bytes.len() >= MIN_WRITE {
            self.write(run, out)
        } else if self.runs.len() > MAX_RUNS {
            self.write(0, out)
        } else {
            Ok(())
        }
    }

    /// Writes all runs.
    pub(super) fn flush(
        &mut self,
        mut out: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        while !self.runs.is_empty() {
            self.write(0, &mut out)?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        run: usize,
        mut out: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        out(self.runs[run].offset, &self.runs[run].bytes)?;
        let mut bytes = self.runs.remove(run).bytes;
        bytes.clear();
        if self.free_buffers.len() < MAX_RUNS && bytes.capacity() <= 2 * MIN_WRITE {
            self.free_buffers.push(bytes);
        }
        Ok(())
    }

    /// Discards all runs.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
    }

    /// Ranges that are not written.
    pub(super) fn buffered(&self) -> impl Iterator<Item = Range> + '_ {
        self.runs.iter().map(Run::range)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// For any order of pieces and any write errors, each byte is written or waits.
        #[test]
        fn no_byte_is_lost(
            pieces in prop::collection::vec((0usize..24, 1usize..90_000, prop::bool::weighted(0.1)), 1..80),
        ) {
            const APART: usize = 8 << 20;
            let mut gather = WriteBuffer::default();
            let mut ends = [0usize; 24];
            let mut disk = std::collections::BTreeMap::<u64, Vec<u8>>::new();
            // The byte at an offset depends on its phase in the pattern. The comparison of slices is
            // fast without compiler optimization.
            const PERIOD: usize = 251;
            let pattern = (0..251).collect::<Vec<u8>>().repeat(90_000 / PERIOD + 2);
            let expected = |at: u64, length| &pattern[at as usize % PERIOD..][..length];
            for (index, length, refuses) in pieces {
                let at = (index * APART + ends[index]) as u64;
                ends[index] += length;
                let put = gather.put(at, expected(at, length), |at, bytes| {
                    if refuses {
                        return Err(io::ErrorKind::StorageFull.into());
                    }
                    disk.insert(at, bytes.to_vec());
                    Ok(())
                });
                prop_assert!(refuses || put.is_ok());
                let written: usize = disk.values().map(Vec::len).sum();
                let waiting: u64 = gather.buffered().map(Range::len).sum();
                prop_assert_eq!(written as u64 + waiting, ends.iter().sum::<usize>() as u64);
            }
            gather.flush(|at, bytes| { disk.insert(at, bytes.to_vec()); Ok(()) }).unwrap();
            prop_assert_eq!(gather.buffered().count(), 0);
            for (at, bytes) in &disk {
                let mut parts = bytes.chunks(100 * PERIOD);
                prop_assert!(parts.all(|part| part == expected(*at, part.len())));
            }
            prop_assert_eq!(disk.values().map(Vec::len).sum::<usize>(), ends.iter().sum::<usize>());
        }
    }

    #[test]
    fn what_follows_is_written_at_once() {
        let mut gather = WriteBuffer::default();
        let mut writes = Vec::new();
        for i in 0..64u64 {
            gather
                .put(i * 8192, &[1; 8192], |at, bytes| {
                    writes.push((at, bytes.len()));
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(writes, [(0, MIN_WRITE), (MIN_WRITE as u64, MIN_WRITE)]);
    }
}
