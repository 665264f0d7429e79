//! Live captures on an interface.
//!
//! One thread empties the kernel's ring, one thread for each shard analyses packets, and the
//! calling thread writes the tables. While it writes, packets wait in queues and then in the ring;
//! packets dropped by the full ring are counted.

mod dispatcher;
mod interface;
mod save;
mod set_collector;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use manyways_sys::capture::Ring;
use manyways_sys::signal::Termination;
use manyways_unit::Span;
use manyways_wire::capture::Interface;

use self::dispatcher::{Dispatcher, analyze};
pub use self::interface::{LiveError, LiveInterface};
use self::save::Saver;
use self::set_collector::{SetCollector, WorkerMessage};
use super::sets::Sets;
use super::work::{RunError, RunOptions, RunReport};
use super::work_queue::MAX_QUEUED_TASKS;

/// Maximum number of messages that wait for the writing thread.
const MAX_QUEUED_MESSAGES: usize = 256;

/// An open live capture.
pub struct LiveCapture {
    ring: Ring,
    name: String,
    /// `None` for all interfaces.
    index: Option<u32>,
    /// The interface description that all packets share.
    interfaces: Arc<[Interface]>,
}

/// Duration, rotation and reports of a live capture.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LiveOptions {
    /// Period of the sets of tables; `None` for a single set.
    pub rotation_period: Option<Span>,
    /// Time after which the capture stops; `None` to stop at a signal only.
    pub duration: Option<Span>,
    /// Summarize ended flows every second for [`Listener::on_progress`]. Tables then have one row
    /// group for each second.
    pub summarize: bool,
    /// Write the packets into the sets, too.
    pub save_packets: bool,
}

/// Receiver of events of a live capture.
pub trait Listener {
    /// Returns the content of `flows.json` for a set with these numbers of rows.
    fn manifest(&mut self, set: &RunReport, rows: &[(&str, u64)]) -> String;
    /// A set is complete.
    fn on_set(&mut self, path: &Path, set: &RunReport);
    /// Called every second with the counts so far and the number of active flows.
    fn on_progress(&mut self, so_far: &RunReport, going_on: usize);
}

/// Captures until the duration is over or a signal arrives, and writes tables into `sets`, if
/// given. The end of the capture ends all flows, which are written.
pub fn run_live(
    live: LiveCapture,
    plan: &RunOptions,
    watch: &LiveOptions,
    sets: Option<&mut Sets>,
    termination: &Termination,
    listener: &mut dyn Listener,
) -> Result<RunReport, RunError> {
    let threads = plan.threads.clamp(1, 64);
    thread::scope(|scope| {
        let (messages, heard) = sync_channel::<WorkerMessage>(MAX_QUEUED_MESSAGES);
        let (back, used) = channel();
        let (mut tasks, mut workers) = (Vec::new(), Vec::new());
        for shard in 0..threads {
            let (task, todo) = sync_channel(MAX_QUEUED_TASKS);
            tasks.push(task);
            let (messages, back) = (messages.clone(), back.clone());
            workers
                .push(scope.spawn(move || analyze(shard, &todo, &plan.settings, &messages, &back)));
        }
        let folder =
            sets.as_ref().filter(|_| watch.save_packets).map(|sets| sets.path().to_owned());
        let (name, interfaces) = (live.name.clone(), live.interfaces.clone());
        let mut collector = SetCollector::new(name, plan, watch, sets, listener);
        let mut pump = Dispatcher::new(live, watch, tasks, messages.clone(), used);
        let began = pump.start();
        if let Some(folder) = folder {
            let (save, todo) = sync_channel(MAX_QUEUED_TASKS);
            pump.enable_saving(save);
            let saver = Saver { folder, interfaces, start: began };
            let (messages, back) = (messages.clone(), back.clone());
            workers.push(scope.spawn(move || saver.run(&todo, &messages, &back)));
        }
        drop((messages, back));
        collector.begin(began)?;
        let pumping = scope.spawn(move || pump.run(termination));
        let written = heard.iter().try_for_each(|message| collector.handle(message));
        // Closing the channel ends the threads that still send.
        drop(heard);
        let fault = pumping.join().map_err(|_| RunError::Thread)?;
        for worker in workers {
            worker.join().map_err(|_| RunError::Thread)?;
        }
        written?;
        Ok(collector.finish(fault?))
    })
}
