//! Writes the packets of a live capture into files, one for each set.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};

use manyways_unit::Time;
use manyways_wire::capture::Interface;

use super::set_collector::{Report, WorkerMessage};
use crate::block::Block;
use crate::folder::FolderError;
use crate::sets::capture_part;
use manyways_wire::capture::pcapng_writer::{self, Direction};

/// A task of the saver.
pub(super) enum SaveTask {
    Block(Arc<Block>),
    /// A set has ended with this number of dropped packets; `next` is the start of the next set.
    EndSet {
        dropped: u64,
        next: Option<Time>,
    },
}

/// Writes files of packets.
pub(super) struct Saver {
    /// Folder of the sets.
    pub folder: PathBuf,
    /// The interface of the capture.
    pub interfaces: Arc<[Interface]>,
    /// Start of the first set.
    pub start: Time,
}

/// A file that is being written.
struct CaptureFile {
    file: BufWriter<File>,
    /// Buffer for one packet.
    bytes: Vec<u8>,
    start: Time,
    latest: Time,
    packets: u64,
}

impl Saver {
    /// Writes until the channel closes, and reports complete files and errors.
    pub(super) fn run(
        self,
        todo: &Receiver<SaveTask>,
        messages: &SyncSender<WorkerMessage>,
        back: &Sender<Arc<Block>>,
    ) {
        let (mut set_index, mut start) = (0, Some(self.start));
        while let Some(now) = start {
            let set = self.set(now, set_index, todo, back);
            if !matches!(set, Ok(Some(_))) {
                // An incomplete file belongs to no set.
                let _ = fs::remove_file(capture_part(&self.folder, now, set_index));
            }
            let what = match set {
                Ok(None) => return,
                Ok(Some((path, next))) => {
                    start = next;
                    Report::SavedFile(path)
                }
                Err(error) => {
                    start = None;
                    Report::SaveFailed(error)
                }
            };
            // A closed channel means that the capture has ended.
            if messages.send(WorkerMessage { set_index, report: what }).is_err() {
                return;
            }
            set_index += 1;
        }
    }

    /// Writes the packets of a set. Returns the file and the start of the next set; `None` if the
    /// channel closed before the end of the set.
    fn set(
        &self,
        start: Time,
        set_index: u64,
        todo: &Receiver<SaveTask>,
        back: &Sender<Arc<Block>>,
    ) -> Result<Option<(PathBuf, Option<Time>)>, FolderError> {
        let path = capture_part(&self.folder, start, set_index);
        let wrong = |error| FolderError::Write { path: path.clone(), error };
        let mut output = CaptureFile::create(&path, &self.interfaces, start).map_err(wrong)?;
        for save in todo {
            match save {
                SaveTask::Block(block) => {
                    output.add(&block).map_err(wrong)?;
                    back.send(block).ok();
                }
                SaveTask::EndSet { dropped: missed, next } => {
                    output.finish(missed).map_err(wrong)?;
                    return Ok(Some((path, next)));
                }
            }
        }
        Ok(None)
    }
}

impl CaptureFile {
    fn create(path: &Path, interfaces: &[Interface], begins: Time) -> io::Result<Self> {
        // Readable by the owner only, because packets contain private communication.
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        pcapng_writer::section(&mut bytes);
        for Interface { name, link, snap_length: snap, .. } in interfaces {
            pcapng_writer::interface(&mut bytes, name, link.0, *snap);
        }
        let mut file = BufWriter::new(file);
        file.write_all(&bytes)?;
        Ok(Self { file, bytes, start: begins, latest: begins, packets: 0 })
    }

    fn add(&mut self, block: &Block) -> io::Result<()> {
        for (_, packet) in block.all() {
            let direction = match packet.is_sent {
                Some(true) => Direction::Outbound,
                _ => Direction::Inbound,
            };
            self.bytes.clear();
            let at = packet.at.as_nanos();
            pcapng_writer::packet(
                &mut self.bytes,
                at,
                packet.bytes,
                packet.length,
                direction,
                None,
            );
            self.file.write_all(&self.bytes)?;
            self.latest = self.latest.max(packet.at);
            self.packets += 1;
        }
        Ok(())
    }

    fn finish(mut self, dropped: u64) -> io::Result<()> {
        self.bytes.clear();
        let (start, end) = (self.start.as_nanos(), self.latest.as_nanos());
        pcapng_writer::statistics(&mut self.bytes, start, end, self.packets, dropped);
        self.file.write_all(&self.bytes)?;
        self.file.flush()
    }
}
