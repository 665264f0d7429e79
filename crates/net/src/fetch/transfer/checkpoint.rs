//! Writes the checkpoints of a transfer concurrently with it.

use manyways_proto::fetch::{CheckpointConfig, CheckpointOutcome, Checkpoints};
use manyways_unit::Time;
use tokio::task::{JoinError, JoinHandle};

use super::Transfer;
use crate::fetch::resume::ResumeState;
use crate::fetch::sink::{CheckpointStep, Sink, SinkError};

type Outcome = Result<Result<(), SinkError>, JoinError>;

/// The checkpoints of a transfer; at most one is being written.
pub(super) struct CheckpointWriter {
    pub(super) core: Checkpoints,
    pending: Option<JoinHandle<Result<(), SinkError>>>,
}

impl CheckpointWriter {
    pub(super) fn new(now: Time, durable: Option<u64>) -> Self {
        let core = Checkpoints::new(now, CheckpointConfig::default(), durable);
        Self { core, pending: None }
    }

    fn start(&mut self, work: CheckpointStep) {
        self.pending = Some(tokio::task::spawn_blocking(work));
    }

    /// Returns the result of the checkpoint that is being written; never ready without one. Cancel
    /// safe.
    pub(super) async fn wait_written(&mut self) -> Outcome {
        let Some(pending) = &mut self.pending else { return std::future::pending().await };
        let outcome = pending.await;
        self.pending = None;
        outcome
    }

    /// Waits for the checkpoint that is being written: only one task may write the resume file.
    pub(super) async fn finish(&mut self, sink: &mut Sink, now: impl Fn() -> Time) {
        let Some(pending) = self.pending.take() else { return };
        if let Ok(Err(error)) = pending.await {
            tracing::warn!("{error}");
        }
        if self.core.on_written(now()) == CheckpointOutcome::Outdated {
            sink.remove_stale_resume_file();
        }
    }
}

impl Transfer<'_> {
    /// Starts a checkpoint, if one is due.
    pub(super) fn begin_checkpoint(&mut self, now: Time, sink: &mut Sink) -> Result<(), SinkError> {
        if !self.checkpoints.core.is_due(now) {
            return Ok(());
        }
        let saved = self.resume_state().filter(|_| sink.part().is_some());
        let bytes = saved.as_ref().map(|saved| saved.done.total());
        if self.checkpoints.core.begin(now, bytes)
            && let Some(saved) = saved
        {
            sink.flush()?;
            if let Some(work) = sink.checkpoint(&saved) {
                self.checkpoints.start(work);
            }
        }
        Ok(())
    }

    pub(super) fn on_checkpoint(
        &mut self,
        written: Outcome,
        sink: &mut Sink,
    ) -> Result<(), SinkError> {
        if let Ok(Err(error)) = written {
            return Err(error);
        }
        if self.checkpoints.core.on_written(self.now()) == CheckpointOutcome::Outdated {
            sink.remove_stale_resume_file();
        }
        Ok(())
    }

    /// The state from which a later run could continue; `None` if no run could.
    pub(super) fn resume_state(&self) -> Option<ResumeState> {
        if !self.core.is_resumable() {
            return None;
        }
        let object = self.core.object()?;
        Some(ResumeState {
            url: self.job.location.to_string(),
            length: object.length?,
            validator: object.validator.clone()?,
            done: self.core.done().clone(),
        })
    }
}
