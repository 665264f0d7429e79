//! The end of a transfer: the file gets its name, or the resume state is kept.

use std::path::Path;

use manyways_proto::fetch::FetchFailure;
use manyways_unit::Size;

use super::Transfer;
use crate::fetch::Checksum;
use crate::fetch::report::{Cause, Event, PartFile, Report};
use crate::fetch::sink::Sink;

impl Transfer<'_> {
    /// Compares the hash, if one is requested or announced, and gives the file its name.
    pub(super) async fn finish_file(
        &mut self,
        sink: &mut Sink,
        report: &mut Report,
    ) -> Result<(), Cause> {
        self.emit_progress();
        let done = self.core.done().total();
        // An announced hash is ignored if the bytes cannot be hashed.
        let is_whole = self.length().is_some_and(|length| length.as_bytes() == done);
        let announced = self.announced_digest.filter(|_| is_whole && sink.can_be_hashed());
        if self.job.checksum != Checksum::None || announced.is_some() {
            let hash = sink.sha256().await?;
            match (self.job.checksum, hash, announced) {
                (Checksum::Check(wanted), Some(hash), _) if wanted != hash => {
                    report.sha256 = Some(hash);
                    return Err(Cause::Checksum { wanted: hex(&wanted), found: hex(&hash) });
                }
                // The caller's checksum takes precedence over the server's.
                (Checksum::Check(_), ..) => report.sha256 = hash,
                (_, Some(hash), Some(announced)) if announced != hash => {
                    return Err(Cause::Digest { announced: hex(&announced), found: hex(&hash) });
                }
                (Checksum::Report, ..) => report.sha256 = hash,
                (Checksum::None, ..) => {}
            }
        }
        let is_synced = self.checkpoints.core.syncs_at_end(done);
        let links = sink.finish(done, is_synced)?;
        if links > 0 {
            let (links, keep) = match links {
                1 => ("another hard link".to_owned(), "keeps"),
                _ => (format!("{links} other hard links"), "keep"),
            };
            let target = self.job.output.display();
            let text = format!("{target} had {links}, which {keep} the older content");
            (self.log.on_event)(Event::Note(&text));
        }
        Ok(())
    }

    /// Keeps the files if a later run can continue them, and removes them otherwise.
    pub(super) fn keep_part_file(&mut self, sink: &mut Sink, cause: &Cause) -> Option<PartFile> {
        let is_useless = matches!(
            cause,
            Cause::Checksum { .. }
                | Cause::Digest { .. }
                | Cause::Refused(FetchFailure::Disagreement(_), _)
        );
        let is_changed = matches!(cause, Cause::Refused(FetchFailure::Changed, _));
        let is_untouched = is_changed && self.earlier_run.bytes > 0;
        let saved = self.resume_state().filter(|saved| !is_useless && !saved.done.is_empty());
        let Some((mut saved, part)) = saved.zip(sink.part().map(Path::to_owned)) else {
            if !is_untouched {
                sink.discard();
            }
            return None;
        };
        if let Err(error) = sink.flush() {
            // Bytes that could not be written to a full disk must be fetched again.
            tracing::debug!("{error}");
            let lost = sink.unwritten();
            saved.done = saved.done.iter().flat_map(|range| lost.gaps(range)).collect();
        }
        let saved = sink.save(saved).filter(|saved| !saved.done.is_empty())?;
        // A changed object cannot be continued; its bytes remain until the user decides.
        (!is_changed).then(|| PartFile {
            path: part,
            received: Size::from_bytes(saved.done.total()),
            length: Size::from_bytes(saved.length),
        })
    }
}

pub(in crate::fetch) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
