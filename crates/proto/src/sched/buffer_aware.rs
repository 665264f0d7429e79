//! The earliest expected delivery, with what waits in the kernel counted, so that a slow path never
//! holds a stream back. Our own; the nearest relatives are OTIAS and STMS.
//!
//! A path that has room, but would deliver later than faster ones that have none, is not given the
//! next bytes: these would be missed at the other end until they arrive. It is given bytes further
//! on in the stream, those that the faster paths would not have delivered by then either. Where
//! less than that waits, it is given nothing.

use super::{Choice, Job, Scheduler, View, least};

#[derive(Debug, Default)]
pub(super) struct BufferAware;

impl Scheduler for BufferAware {
    fn choose(&mut self, job: &Job, paths: &[View]) -> Choice {
        let Some(at) = least(paths, |view| view.has_room, View::arrival) else {
            return Choice::Wait;
        };
        let arrival = paths[at].arrival();
        // What faster paths deliver before this one's message is there.
        let sooner = paths.iter().filter(|view| !view.has_room).map(|view| {
            let lead = arrival.saturating_sub(view.arrival());
            view.rate.size_in(lead).as_bytes()
        });
        let sooner: u64 = sooner.sum();
        let (backlog, total) = (job.backlog.as_bytes(), job.total.as_bytes().max(1));
        // Of that, a stream gets its share.
        let ahead = (u128::from(sooner) * u128::from(backlog) / u128::from(total)) as u64;
        if ahead >= backlog && ahead > 0 {
            return Choice::Wait;
        }
        Choice::Send { at, ahead }
    }
}
