//! A capture on an interface, looked at while it goes on.
//!
//! One thread empties the kernel's ring, each core looks at the packets of its own pairs of
//! addresses, and the thread that called writes the tables. While it writes, what passes waits in
//! queues and then in the ring; what finds no room there is counted.

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

/// So many messages of the threads wait to be written down.
const MESSAGES: usize = 256;

/// An interface that is being captured on.
pub struct Live {
    ring: Ring,
    name: String,
    /// None where it is all interfaces.
    index: Option<u32>,
    /// As the packets' own.
    interfaces: Arc<[Interface]>,
}

/// How long to look, and when to say so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// Sets of tables end at multiples of this.
    pub rotate: Option<Span>,
    /// Stop after so long; otherwise when a signal comes.
    pub duration: Option<Span>,
    /// Add up every second what is over, for [`Listener::progress`]. Of tables each second would be
    /// a part of its own then.
    pub refresh: bool,
    /// Write the packets as well, into the sets.
    pub save: bool,
}

/// Who is told how it goes.
pub trait Listener {
    /// What the `flows.json` of a set says, which has so many rows in its tables.
    fn manifest(&mut self, set: &Outcome, rows: &[(&str, u64)]) -> String;
    /// A set is whole.
    fn set(&mut self, path: &Path, set: &Outcome);
    /// A second has passed. So much was seen, and so many flows are going on.
    fn progress(&mut self, so_far: &Outcome, going_on: usize);
}

/// Captures until it is time to stop, and writes tables into sets, where there are any. A signal
/// stops it as well: all that was going on is over then, and written.
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
        // Whoever has something to say stops when nobody hears it.
        drop(heard);
        let fault = pumping.join().map_err(|_| RunError::Thread)?;
        for worker in workers {
            worker.join().map_err(|_| RunError::Thread)?;
        }
        written?;
        Ok(books.close(fault?))
    })
}
