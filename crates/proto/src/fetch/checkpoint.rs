//! Decides when a download is made durable, so that a later run can continue after a crash.
//!
//! The shell flushes the bytes and writes the resume file at the times that [`Checkpoints`] sets.
//!
//! ```text
//! Waiting ──due, and new bytes have come──▶ Writing ──written──▶ Waiting
//! ```

use manyways_unit::{Size, Span, Time};

/// Times and sizes of checkpoints.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointConfig {
    /// Pause before the second checkpoint. It doubles with each checkpoint: early ones protect few
    /// bytes, but these are all that exist.
    pub min_pause: Span,
    pub max_pause: Span,
    /// New bytes from which on a checkpoint is large.
    pub large: Size,
    /// After a large checkpoint, the pause is at least this multiple of the duration of the
    /// checkpoint, which bounds the load on the disk.
    pub pauses_per_duration: u32,
    /// Maximum of bytes that are made durable at the end of a download. More are pending only if
    /// the download is faster than the disk; to wait would then take longer than the download did.
    pub max_final_sync: Size,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            min_pause: Span::from_millis(250),
            max_pause: Span::from_secs(2),
            large: Size::from_mib(16),
            pauses_per_duration: 10,
            max_final_sync: Size::from_mib(256),
        }
    }
}

/// Paces the checkpoints of one download.
#[derive(Debug)]
pub struct Checkpoints {
    config: CheckpointConfig,
    due_at: Time,
    pause: Span,
    /// Bytes of the latest checkpoint, written or begun; `None` before the first one of this
    /// version of the object.
    latest: Option<u64>,
    durable: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting,
    Writing {
        since: Time,
        /// Bytes that the checkpoint covers.
        bytes: u64,
        is_large: bool,
        version: ObjectVersion,
    },
}

/// Version of the object that a checkpoint describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ObjectVersion {
    Current,
    /// The download restarted while the checkpoint was being written.
    Outdated,
}

/// Whether a written checkpoint is usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointOutcome {
    /// A later run can continue from it.
    Current,
    /// The download restarted in the meantime: the resume file describes discarded bytes.
    Outdated,
}

impl Checkpoints {
    /// Creates the checkpoints of a download. `durable` is the number of durable bytes from an
    /// earlier run, `None` without one.
    pub fn new(now: Time, config: CheckpointConfig, durable: Option<u64>) -> Self {
        Self {
            due_at: now + config.min_pause,
            pause: config.min_pause,
            config,
            latest: durable,
            durable: durable.unwrap_or(0),
            state: State::Waiting,
        }
    }

    /// Notes that the object is known: from now on an interrupted download can be continued.
    pub fn on_object_known(&mut self, now: Time) {
        self.due_at = now;
        self.pause = self.config.min_pause;
    }

    /// Notes that the download restarted: earlier bytes no longer count.
    pub fn on_restart(&mut self) {
        self.latest = None;
        self.durable = 0;
        if let State::Writing { version: target, .. } = &mut self.state {
            *target = ObjectVersion::Outdated;
        }
    }

    /// Whether a checkpoint is due. If so, the caller calls [`Checkpoints::begin`].
    pub fn is_due(&self, now: Time) -> bool {
        matches!(self.state, State::Waiting) && self.due_at <= now
    }

    /// Begins a checkpoint of the `bytes` from which a later run could continue; `None` if no run
    /// could. Returns whether the caller must write the checkpoint.
    pub fn begin(&mut self, now: Time, bytes: Option<u64>) -> bool {
        self.due_at = now + self.pause;
        let Some(bytes) = bytes.filter(|bytes| self.latest.is_none_or(|latest| *bytes > latest))
        else {
            return false;
        };
        let new = bytes.saturating_sub(self.latest.replace(bytes).unwrap_or(0));
        self.pause = self.config.max_pause.min(self.pause * 2);
        let is_large = new >= self.config.large.as_bytes();
        let target = ObjectVersion::Current;
        self.state = State::Writing { since: now, bytes, is_large, version: target };
        true
    }

    /// Ends the checkpoint that was being written.
    pub fn on_written(&mut self, now: Time) -> CheckpointOutcome {
        let State::Writing { since, bytes, is_large, version: target } =
            std::mem::replace(&mut self.state, State::Waiting)
        else {
            return CheckpointOutcome::Outdated;
        };
        // The duration of a small checkpoint does not show the disk's speed.
        let share = if is_large { self.config.pauses_per_duration } else { 1 };
        self.due_at = self.due_at.max(now + now.since(since) * u64::from(share));
        if target == ObjectVersion::Outdated {
            return CheckpointOutcome::Outdated;
        }
        self.durable = bytes;
        CheckpointOutcome::Current
    }

    /// When to call [`Checkpoints::is_due`] again; `None` while a checkpoint is written.
    pub fn next_wakeup(&self) -> Option<Time> {
        matches!(self.state, State::Waiting).then_some(self.due_at)
    }

    /// Whether a complete object of this length is made durable before it gets its name, so that a
    /// crash leaves no zeros under that name.
    pub fn syncs_at_end(&self, length: u64) -> bool {
        length.saturating_sub(self.durable) <= self.config.max_final_sync.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn checkpoints(durable: Option<u64>) -> Checkpoints {
        Checkpoints::new(ms(0), CheckpointConfig::default(), durable)
    }

    /// Downloads 1 MB/s and writes each checkpoint in `takes`. Returns the time of each begin in
    /// ms.
    fn begins(takes: impl Fn(u64) -> Span, until: Time) -> Vec<u64> {
        let (mut checkpoints, mut begins) = (checkpoints(None), Vec::new());
        checkpoints.on_object_known(ms(0));
        let mut now = ms(0);
        while now < until {
            assert!(checkpoints.is_due(now));
            let bytes = now.since(ms(0)).as_nanos() / 1_000;
            if checkpoints.begin(now, Some(bytes)) {
                begins.push(now.since(ms(0)).as_nanos() / 1_000_000);
                assert_eq!(checkpoints.next_wakeup(), None);
                now += takes(bytes);
                assert_eq!(checkpoints.on_written(now), CheckpointOutcome::Current);
            }
            now = now.max(checkpoints.next_wakeup().unwrap());
        }
        begins
    }

    #[test]
    fn pauses_double_up_to_two_seconds() {
        let begins = begins(|_| Span::ZERO, ms(10_000));
        assert_eq!(begins, [0, 250, 750, 1_750, 3_750, 5_750, 7_750, 9_750]);
    }

    #[test]
    fn a_slow_disk_is_busy_at_most_half_of_the_time_and_a_tenth_with_large_checkpoints() {
        let small = begins(|_| Span::from_secs(3), ms(20_000));
        assert_eq!(small, [0, 6_000, 12_000, 18_000]);
        let mut checkpoints = checkpoints(None);
        checkpoints.on_object_known(ms(0));
        assert!(checkpoints.begin(ms(0), Some(16 << 20)));
        assert_eq!(checkpoints.on_written(ms(500)), CheckpointOutcome::Current);
        assert_eq!(checkpoints.next_wakeup(), Some(ms(5_500)));
        // One byte less is not large.
        checkpoints.on_object_known(ms(6_000));
        assert!(checkpoints.begin(ms(6_000), Some((32 << 20) - 1)));
        checkpoints.on_written(ms(6_500));
        assert_eq!(checkpoints.next_wakeup(), Some(ms(7_000)));
    }

    #[test]
    fn without_new_bytes_nothing_is_written() {
        let mut checkpoints = checkpoints(Some(100));
        assert!(!checkpoints.is_due(ms(249)));
        assert!(checkpoints.is_due(ms(250)));
        assert!(!checkpoints.begin(ms(250), Some(100)));
        assert!(!checkpoints.begin(ms(500), None));
        assert!(checkpoints.begin(ms(750), Some(101)));
        assert!(!checkpoints.is_due(ms(9_000)), "one is being written");
    }

    #[test]
    fn a_checkpoint_from_before_a_restart_does_not_count() {
        let mut checkpoints = checkpoints(None);
        checkpoints.on_object_known(ms(0));
        assert!(checkpoints.begin(ms(0), Some(1_000)));
        checkpoints.on_restart();
        assert_eq!(checkpoints.on_written(ms(10)), CheckpointOutcome::Outdated);
        // The same number of bytes of the new version is another checkpoint.
        checkpoints.on_object_known(ms(20));
        assert!(checkpoints.begin(ms(20), Some(1_000)));
        assert_eq!(checkpoints.on_written(ms(30)), CheckpointOutcome::Current);
    }

    #[test]
    fn the_end_waits_for_a_bounded_number_of_bytes() {
        let (mib, mut checkpoints) = (1 << 20, checkpoints(Some(1 << 20)));
        assert!(checkpoints.syncs_at_end(257 * mib));
        assert!(!checkpoints.syncs_at_end(257 * mib + 1));
        checkpoints.begin(ms(250), Some(100 * mib));
        assert!(!checkpoints.syncs_at_end(257 * mib + 1), "a checkpoint under way does not count");
        checkpoints.on_written(ms(300));
        assert!(checkpoints.syncs_at_end(356 * mib));
        checkpoints.on_restart();
        assert!(!checkpoints.syncs_at_end(257 * mib));
    }
}
