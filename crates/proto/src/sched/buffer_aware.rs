//! Earliest expected delivery, including bytes in the kernel's send buffer, so that a slow path
//! never delays a stream. Ours; similar to OTIAS and STMS.
//!
//! A path with room may deliver later than faster paths without room. The next bytes would then be
//! missing at the receiver until the slow path delivers. The slow path therefore gets bytes further
//! on in the stream, which the faster paths would not have delivered by then either. If the backlog
//! is too small for that, the slow path gets nothing.

use super::{Assignment, PathView, Scheduler, SendRequest, min_index};

#[derive(Debug, Default)]
pub(super) struct BufferAware;

impl Scheduler for BufferAware {
    fn choose(&mut self, request: &SendRequest, paths: &[PathView]) -> Assignment {
        let Some(at) = min_index(paths, |view| view.is_writable, PathView::delivery_time) else {
            return Assignment::Wait;
        };
        let arrival = paths[at].delivery_time();
        // Bytes that faster paths deliver before the message of this path arrives.
        let sooner = paths.iter().filter(|view| !view.is_writable).map(|view| {
            let lead = arrival.saturating_sub(view.delivery_time());
            view.end_rate().size_in(lead).as_bytes()
        });
        let sooner: u64 = sooner.sum();
        let (backlog, total) = (request.backlog.as_bytes(), request.total.as_bytes().max(1));
        // The share of this stream in these bytes.
        let ahead = (u128::from(sooner) * u128::from(backlog) / u128::from(total)) as u64;
        if ahead >= backlog && ahead > 0 {
            return Assignment::Wait;
        }
        Assignment::Send { index: at, ahead }
    }
}
