//! Live captures on an interface.
//!
//! One thread empties the kernel's ring, one thread for each shard analyses packets, and the
//! calling thread writes the tables. While it writes, packets wait in queues and then in the ring;
//! packets dropped by the full ring are counted.

mod books;
mod device;
mod pump;
mod save;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use manyways_sys::capture::Ring;
use manyways_sys::signal::Termination;
use manyways_unit::Span;
use manyways_wire::capture::Interface;

use self::books::{Books, Said};
pub use self::device::{Devices, LiveError};
use self::pump::{Pump, look};
use self::save::Saver;
use super::desk::WAITING;
use super::sets::Sets;
use super::work::{Outcome, Plan, RunError};

/// Maximum number of messages that wait for the writing thread.
const MESSAGES: usize = 256;

/// An open live capture.
pub struct Live {
    ring: Ring,
    name: String,
    /// `None` for all interfaces.
    index: Option<u32>,
    /// The interface description that all packets share.
    interfaces: Arc<[Interface]>,
}

/// Duration, rotation and reports of a live capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// Period of the sets of tables; `None` for a single set.
    pub rotate: Option<Span>,
    /// Time after which the capture stops; `None` to stop at a signal only.
    pub duration: Option<Span>,
    /// Summarize ended flows every second for [`Listener::progress`]. Tables then have one row
    /// group for each second.
    pub refresh: bool,
    /// Write the packets into the sets, too.
    pub save: bool,
}

/// Receiver of events of a live capture.
pub trait Listener {
    /// Returns the content of `flows.json` for a set with these numbers of rows.
    fn manifest(&mut self, set: &Outcome, rows: &[(&str, u64)]) -> String;
    /// A set is complete.
    fn set(&mut self, path: &Path, set: &Outcome);
    /// Called every second with the counts so far and the number of active flows.
    fn progress(&mut self, so_far: &Outcome, going_on: usize);
}

/// Captures until the duration is over or a signal arrives, and writes tables into `sets`, if
/// given. The end of the capture ends all flows, which are written.
pub fn follow(
    live: Live,
    plan: &Plan,
    watch: &Watch,
    sets: Option<&mut Sets>,
    termination: &Termination,
    listener: &mut dyn Listener,
) -> Result<Outcome, RunError> {
    let threads = plan.threads.clamp(1, 64);
    thread::scope(|scope| {
        let (said, heard) = sync_channel::<Said>(MESSAGES);
        let (back, used) = channel();
        let (mut tasks, mut workers) = (Vec::new(), Vec::new());
        for shard in 0..threads {
            let (task, todo) = sync_channel(WAITING);
            tasks.push(task);
            let (said, back) = (said.clone(), back.clone());
            workers.push(scope.spawn(move || look(shard, &todo, &plan.settings, &said, &back)));
        }
        let folder = sets.as_ref().filter(|_| watch.save).map(|sets| sets.path().to_owned());
        let (name, interfaces) = (live.name.clone(), live.interfaces.clone());
        let mut books = Books::new(name, plan, watch, sets, listener);
        let mut pump = Pump::new(live, watch, tasks, said.clone(), used);
        let began = pump.began();
        if let Some(folder) = folder {
            let (save, todo) = sync_channel(WAITING);
            pump.save(save);
            let saver = Saver { folder, interfaces, began };
            let (said, back) = (said.clone(), back.clone());
            workers.push(scope.spawn(move || saver.run(&todo, &said, &back)));
        }
        drop((said, back));
        books.begin(began)?;
        let pumping = scope.spawn(move || pump.run(termination));
        let written = heard.iter().try_for_each(|said| books.hear(said));
        // Closing the channel ends the threads that still send.
        drop(heard);
        let fault = pumping.join().map_err(|_| RunError::Thread)?;
        for worker in workers {
            worker.join().map_err(|_| RunError::Thread)?;
        }
        written?;
        Ok(books.close(fault?))
    })
}
