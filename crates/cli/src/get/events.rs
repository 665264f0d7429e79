//! `--events`: the event log of a run, for plots and tests.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use manyways_net::fetch::{Event, PathSample, Progress, TransferEvent};
use manyways_record::event::{Header, Record, line};
use manyways_sys::clock::Clock;
use manyways_unit::{Size, Span, Time};

use crate::failure::Failure;

/// The event log of a run.
pub struct EventLog {
    path: PathBuf,
    clock: Clock,
    /// `None` after a write error: a transfer does not fail because of its log.
    out: Option<BufWriter<File>>,
    /// The start of each current transfer. They may overlap.
    started: HashMap<u32, Time>,
}

impl EventLog {
    /// Creates a log about `subject`, and replaces an existing file.
    pub fn create(path: &Path, subject: &str) -> Result<Self, Failure> {
        let clock = Clock::start();
        let mut header = Header::new("get", env!("CARGO_PKG_VERSION"), clock.epoch());
        header.subject = Some(subject.to_owned());
        let begin = || -> io::Result<BufWriter<File>> {
            let mut out = BufWriter::new(File::create(path)?);
            out.write_all(header.line().as_bytes())?;
            out.flush()?;
            Ok(out)
        };
        let out = begin().map_err(|error| {
            let words = format!("the event log {} cannot be written: {error}", path.display());
            Failure::new(words).hint("name another file with --events")
        })?;
        let path = path.to_owned();
        Ok(Self { path, clock, out: Some(out), started: HashMap::new() })
    }

    /// The path as given on the command line.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a transfer.
    pub fn begin(&mut self, transfer: u32, url: &str) {
        self.started.insert(transfer, self.clock.now());
        let url = url.to_owned();
        self.write(transfer, Span::ZERO, TransferEvent::TransferStart { transfer, url });
    }

    /// Logs an event of a current transfer.
    pub fn on_event(&mut self, transfer: u32, event: &Event<'_>) {
        match event {
            Event::Record(record) => {
                let event = with_number(record.event.clone(), transfer);
                self.write(transfer, record.time.since(Time::ZERO), event);
            }
            Event::Progress(progress) => self.sample(transfer, progress),
            _ => {}
        }
    }

    /// Ends a current transfer.
    pub fn end(&mut self, transfer: u32, complete: bool, bytes: Size) {
        let bytes = bytes.as_bytes();
        let since = self.clock.now().since(self.start_of(transfer));
        self.write(transfer, since, TransferEvent::TransferEnd { transfer, complete, bytes });
        self.started.remove(&transfer);
        if let Some(out) = &mut self.out
            && let Err(error) = out.flush()
        {
            self.disable(&error);
        }
    }

    fn sample(&mut self, transfer: u32, progress: &Progress) {
        for path in &progress.paths {
            let sample = PathSample {
                transfer,
                path: path.name.clone(),
                bytes: path.bytes.as_bytes(),
                rate_bps: path.rate.map(manyways_unit::Rate::as_bps),
            };
            self.write(transfer, progress.elapsed, TransferEvent::PathSample(sample));
        }
    }

    fn start_of(&self, transfer: u32) -> Time {
        self.started.get(&transfer).copied().unwrap_or_default()
    }

    /// Writes an event that happened `since` after the start of the transfer.
    fn write(&mut self, transfer: u32, since: Span, event: TransferEvent) {
        let time = self.start_of(transfer) + since;
        let Some(out) = &mut self.out else { return };
        let record = Record { time, event };
        if let Err(error) = out.write_all(line(&record).as_bytes()) {
            self.disable(&error);
        }
    }

    fn disable(&mut self, error: &io::Error) {
        self.out = None;
        let words = format!("the event log {} ends here: {error}", self.path.display());
        tracing::warn!("{words}");
    }
}

/// Sets the number of the transfer, which the transfer itself does not know.
fn with_number(mut event: TransferEvent, number: u32) -> TransferEvent {
    use TransferEvent as E;
    match &mut event {
        E::TransferStart { transfer, .. }
        | E::PathSample(PathSample { transfer, .. })
        | E::PathState { transfer, .. }
        | E::Request { transfer, .. }
        | E::Response { transfer, .. }
        | E::Received { transfer, .. }
        | E::Cut { transfer, .. }
        | E::RequestEnd { transfer, .. }
        | E::Ping { transfer, .. }
        | E::TransferEnd { transfer, .. } => *transfer = number,
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use manyways_net::fetch::PathProgress;
    use manyways_unit::Rate;

    use super::*;

    #[test]
    fn a_second_transfer_has_its_own_number_and_later_times() -> Result<(), Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("events");
        let mut log = EventLog::create(&path, "http://a/b")?;
        let request = |time| Record {
            time,
            event: TransferEvent::Request {
                transfer: 0,
                path: "wifi".into(),
                request: 0,
                from: 0,
                to: None,
            },
        };
        for transfer in 0..2 {
            log.begin(transfer, "http://a/b");
            log.on_event(transfer, &Event::Record(&request(Time::from_millis(3))));
            if transfer == 0 {
                log.end(transfer, true, Size::from_bytes(7));
            }
        }
        let paths = vec![PathProgress {
            name: "wifi".into(),
            bytes: Size::from_bytes(5),
            rate: Some(Rate::from_mbps(1)),
            rtt: None,
        }];
        let progress = Progress { elapsed: Span::from_millis(100), paths, ..Progress::default() };
        log.on_event(1, &Event::Progress(&progress));
        log.end(1, true, Size::from_bytes(7));
        drop(log);

        let read = manyways_record::event::parse::<TransferEvent>(&std::fs::read(&path)?)?;
        assert_eq!(read.header.tool, "get");
        assert_eq!(read.header.subject.as_deref(), Some("http://a/b"));
        assert_eq!(read.records.len(), 7);
        let [first, .., last_request, sample, _] = &read.records[1..] else { panic!("{read:?}") };
        assert_eq!(first, &request(first.time));
        let TransferEvent::Request { transfer: 1, .. } = last_request.event else {
            panic!("{last_request:?}")
        };
        assert_eq!(last_request.time, read.records[3].time + Span::from_millis(3));
        assert_eq!(sample.time, read.records[3].time + Span::from_millis(100));
        Ok(())
    }

    #[test]
    fn a_full_disk_ends_the_log_and_nothing_else() {
        let Ok(mut log) = EventLog::create(Path::new("/dev/null"), "") else { panic!("it opens") };
        log.out = File::options().write(true).open("/dev/full").ok().map(BufWriter::new);
        log.begin(0, "http://a/b");
        log.end(0, false, Size::ZERO);
        assert!(log.out.is_none());
    }
}
