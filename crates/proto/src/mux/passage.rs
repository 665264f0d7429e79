//! Evidence that a lender passes on what it gets, class by class.
//!
//! A lender that answers may still withhold a direction or a class: received messages show only that
//! the other direction works. Bulk messages are passed on if the peer acknowledges more and more of
//! them. The peer does not acknowledge datagrams one by one, because a lender may drop those that are
//! late: it reports how many have come. A lender is suspect if nothing of several datagrams arrives.
//! As nothing more is sent over it then, it gets another trial after a pause.

use manyways_unit::{Span, Time};

/// Time by which an ACK may be later than expected while other messages come over the lender: it may
/// wait behind bulk messages in the queues of the pipe and of a slow mobile network, or come over
/// another carrier with such a queue.
const ACK_QUEUE: Span = Span::from_secs(1);
/// Maximum of the time for which a message counts as waiting at the lender, as the last one did.
const MAX_WAIT: Span = Span::from_millis(1_500);
/// Number of datagrams without a report at which the lender withholds them. A single one may have
/// been late.
const MIN_DATAGRAMS: u32 = 3;
/// Delay of a report, in which more datagrams come.
const REPORT_DELAY: Span = Span::from_millis(50);
/// Time for which a lender that withholds datagrams is suspect; twice as long each time.
const FIRST_PAUSE: Span = Span::from_secs(10);
const MAX_PAUSE: Span = Span::from_secs(300);

/// Messages that have passed a lender, in both directions.
#[derive(Debug)]
pub(super) struct Passage {
    /// When the peer last acknowledged more messages than before.
    acked_at: Time,
    sent_datagrams: u64,
    /// Datagrams that have come to the peer, as it has reported.
    reported_datagrams: u64,
    /// Datagrams that were sent since the last report of more, and when the first of them was.
    unreported: u32,
    unreported_since: Time,
    /// End of the time for which the lender is suspect because of its datagrams.
    distrusted_until: Option<Time>,
    pause: Span,
    received_datagrams: u64,
    report_at: Option<Time>,
}

impl Passage {
    pub(super) fn new(now: Time) -> Self {
        Self {
            acked_at: now,
            sent_datagrams: 0,
            reported_datagrams: 0,
            unreported: 0,
            unreported_since: now,
            distrusted_until: None,
            pause: FIRST_PAUSE,
            received_datagrams: 0,
            report_at: None,
        }
    }

    /// Records that the peer acknowledged more messages.
    pub(super) fn on_acked(&mut self, now: Time) {
        self.acked_at = now;
    }

    pub(super) fn on_datagram_sent(&mut self, now: Time) {
        if self.unreported == 0 {
            self.unreported_since = now;
        }
        self.unreported = self.unreported.saturating_add(1);
        self.sent_datagrams += 1;
    }

    /// Processes the number of datagrams that have come to the peer. Returns whether so many were
    /// sent.
    pub(super) fn on_report(&mut self, count: u64) -> bool {
        // Reports come over several carriers.
        if count > self.reported_datagrams && count <= self.sent_datagrams {
            self.reported_datagrams = count;
            (self.unreported, self.distrusted_until, self.pause) = (0, None, FIRST_PAUSE);
        }
        count <= self.sent_datagrams
    }

    pub(super) fn on_datagram_received(&mut self, now: Time) {
        self.received_datagrams += 1;
        self.report_at.get_or_insert(now + REPORT_DELAY);
    }

    /// Returns when a report to the peer is due.
    pub(super) fn report_at(&self) -> Option<Time> {
        self.report_at
    }

    /// Returns the number of received datagrams, which is reported now.
    pub(super) fn take_report(&mut self) -> u64 {
        self.report_at = None;
        self.received_datagrams
    }

    /// Returns when the lender counts as withholding messages. `oldest` is when the oldest
    /// unacknowledged one was sent, `timeout` the time in which an ACK is expected, `waited` the time
    /// that the last acknowledged one waited at the lender.
    pub(super) fn withheld_at(
        &self,
        oldest: Option<Time>,
        timeout: Span,
        waited: Span,
    ) -> Option<Time> {
        let late = timeout + ACK_QUEUE;
        let bulk = oldest.map(|at| at.max(self.acked_at) + late + waited.min(MAX_WAIT));
        let datagrams = self.datagrams_withheld_at(late);
        [bulk, datagrams].into_iter().flatten().min()
    }

    fn datagrams_withheld_at(&self, late: Span) -> Option<Time> {
        (self.unreported >= MIN_DATAGRAMS).then(|| self.unreported_since + late + REPORT_DELAY)
    }

    /// Records that the lender is suspect now.
    pub(super) fn on_suspect(&mut self, now: Time, timeout: Span) {
        if self.datagrams_withheld_at(timeout + ACK_QUEUE).is_some_and(|at| at <= now) {
            self.distrusted_until = Some(now + self.pause);
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
    }

    /// Whether the lender gets another trial with datagrams.
    pub(super) fn end_distrust(&mut self, now: Time) -> bool {
        let ends = self.distrusted_until.take_if(|until| *until <= now).is_some();
        if ends {
            self.unreported = 0;
        }
        ends
    }
}
