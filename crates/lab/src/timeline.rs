//! The timeline of a lab: rates, queues and drops over time, as an event log.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use manyways_link::Cause;
use manyways_record::event::{Header, Record, line};
use manyways_unit::Time;

use super::Lab;
use super::relay::{Applied, LaneStats, Relay};
use crate::event::{Drops, LabEvent, LaneDirection, LinkSample};

/// Interval between two samples of the links.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

enum Message {
    /// Something happened just now.
    Event(LabEvent),
    Finish,
}

/// Sender of events to a timeline. Events after its end or failure are ignored.
#[derive(Clone, Debug)]
pub struct EventSender(Sender<Message>);

impl EventSender {
    /// Records an event with the current time.
    pub fn record(&self, event: LabEvent) {
        // A writer that failed reports the error at the end.
        let _ = self.0.send(Message::Event(event));
    }
}

/// Writes samples to a file until dropped.
pub struct Timeline {
    event_sender: EventSender,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Timeline {
    /// Starts writing to `file`, which is replaced if it exists.
    pub fn start(lab: &Lab, file: &Path, subject: Option<&str>) -> io::Result<Self> {
        let relay = Arc::clone(lab.relay());
        let names: Vec<_> = lab.links().iter().map(|link| link.name.clone()).collect();
        let mut out = BufWriter::new(File::create(file)?);
        let mut header = Header::new("lab", env!("CARGO_PKG_VERSION"), relay.clock().epoch());
        header.subject = subject.map(str::to_owned);
        out.write_all(header.line().as_bytes())?;
        let (marks, inbox) = channel();
        let thread = std::thread::Builder::new().name("lab-timeline".into()).spawn(move || {
            loop {
                let message = inbox.recv_timeout(SAMPLE_INTERVAL);
                let now = relay.clock().now();
                for Applied { at, link, changes } in relay.take_applied()? {
                    let set = changes.iter().map(ToString::to_string).collect();
                    let link = names[link].clone();
                    write(&mut out, at, LabEvent::LinkChange { link, set })?;
                }
                match message {
                    Ok(Message::Event(event)) => write(&mut out, now, event)?,
                    Err(RecvTimeoutError::Timeout) => sample(&mut out, &relay, &names)?,
                    Ok(Message::Finish) | Err(RecvTimeoutError::Disconnected) => {
                        sample(&mut out, &relay, &names)?;
                        return out.flush();
                    }
                }
            }
        })?;
        Ok(Self { event_sender: EventSender(marks), thread: Some(thread) })
    }

    /// Returns a sender of events.
    pub fn event_sender(&self) -> EventSender {
        self.event_sender.clone()
    }

    /// Writes the last sample and returns the first error of writing.
    pub fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let _ = self.event_sender.0.send(Message::Finish);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the timeline's thread panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn sample(out: &mut impl Write, relay: &Relay, names: &[String]) -> io::Result<()> {
    let snapshot = relay.snapshot()?;
    for (name, link) in names.iter().zip(snapshot.links) {
        for (direction, stats, rate) in [
            (LaneDirection::Down, link.down, link.down_rate),
            (LaneDirection::Up, link.up, link.up_rate),
        ] {
            let event = LabEvent::LinkSample(LinkSample {
                link: name.clone(),
                direction,
                rate_bps: rate.map(|rate| rate.as_bps()),
                delivered_bytes: stats.delivered.size.as_bytes(),
                queue_bytes: stats.backlog.size.as_bytes(),
                queue_packets: stats.backlog.packets,
                dropped_packets: drops(&stats, link.middlebox_drops),
            });
            write(out, snapshot.at, event)?;
        }
    }
    Ok(())
}

fn drops(stats: &LaneStats, middlebox: u64) -> Drops {
    Drops {
        queue: stats.dropped(Cause::Queue).packets,
        aqm: stats.dropped(Cause::Aqm).packets,
        loss: stats.dropped(Cause::Loss).packets,
        down: stats.dropped(Cause::Down).packets,
        middlebox,
    }
}

fn write(out: &mut impl Write, time: Time, event: LabEvent) -> io::Result<()> {
    out.write_all(line(&Record { time, event }).as_bytes())
}
