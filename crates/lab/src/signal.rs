//! The radio signals of links, which programs in the lab read from its folder.
//!
//! An emulated interface has no radio that nl80211 or a modem could report. For each link with a
//! signal, the folder has a document with the samples and the time at which they began, so that a
//! program can compute the current one. A thread of its own writes it: a document may be large, and
//! the relay must not wait for a disk.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use manyways_record::document;
use manyways_trace::scenario::SignalSpec;
use manyways_trace::signal::{self, PublishedSignal, Sample, published_file};
use manyways_unit::Span;
use serde::{Deserialize, Serialize};

/// The signal of a link as a document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignalDocument(pub PublishedSignal);

manyways_record::document!(SignalDocument, signal::SCHEMA);

/// The signal of a link now.
#[derive(Clone, PartialEq, Debug)]
pub struct SignalState {
    /// The file as the user wrote it.
    pub source: String,
    /// Time since the start of the current repetition.
    pub position: Span,
    pub sample: Sample,
}

impl SignalState {
    /// The state at a time since the start of the trace.
    pub fn at(signal: &SignalSpec, since: Span) -> Self {
        let period = signal.trace.period().as_nanos().max(1);
        Self {
            source: signal.source.clone(),
            position: Span::from_nanos(since.as_nanos() % period),
            sample: *signal.trace.repeated_at(since),
        }
    }
}

enum Message {
    Publish { link: String, signal: Option<SignalSpec>, start: i64 },
    Flush(Sender<io::Result<()>>),
    Stop,
}

/// Sends signals to a [`Publisher`].
#[derive(Clone, Debug)]
pub(crate) struct SignalSender(Sender<Message>);

impl SignalSender {
    /// Publishes the signal of a link, or removes it; `start` is as in [`PublishedSignal`].
    pub(crate) fn publish(&self, link: &str, signal: Option<SignalSpec>, start: i64) {
        // A publisher that has ended reports the error with the next flush.
        let _ = self.0.send(Message::Publish { link: link.to_owned(), signal, start });
    }

    /// Waits until all signals are published.
    ///
    /// # Errors
    /// The first error since the last flush.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let (done, answer) = channel();
        let ended = || io::Error::other("the thread that publishes signals has ended");
        self.0.send(Message::Flush(done)).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())?
    }
}

/// Writes signals into the folder of a lab, until dropped.
pub(crate) struct Publisher {
    sender: SignalSender,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let (sender, inbox) = channel();
        let folder = folder.to_owned();
        let thread = std::thread::Builder::new().name("lab-signal".into()).spawn(move || {
            let mut result = Ok(());
            for message in inbox {
                match message {
                    Message::Publish { link, signal, start } => {
                        let published = publish(&folder, &link, signal, start);
                        if let Err(error) = &published {
                            tracing::warn!(%error, "cannot publish the signal of {link}");
                        }
                        result = result.and(published);
                    }
                    Message::Flush(done) => {
                        let _ = done.send(std::mem::replace(&mut result, Ok(())));
                    }
                    Message::Stop => return,
                }
            }
        })?;
        Ok(Self { sender: SignalSender(sender), thread: Some(thread) })
    }

    pub(crate) fn sender(&self) -> SignalSender {
        self.sender.clone()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.sender.0.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn publish(folder: &Path, link: &str, signal: Option<SignalSpec>, start: i64) -> io::Result<()> {
    let name = published_file(link).ok_or(io::ErrorKind::InvalidInput)?;
    let file = folder.join(&name);
    let Some(SignalSpec { source, trace }) = signal else {
        return match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    let trace = trace.as_ref().clone();
    let document =
        SignalDocument(PublishedSignal { interface: link.to_owned(), source, start, trace });
    // Renamed into place, so that a reader never sees a part of it.
    let fresh = folder.join(name + ".new");
    fs::write(&fresh, document::to_json(&document)?)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o644))?;
    fs::rename(&fresh, file)
}

#[cfg(test)]
mod tests {
    use manyways_trace::scenario::LinkSpec;

    use super::*;

    fn signal(text: &str) -> SignalSpec {
        let mut read = |_: &str| Ok(text.as_bytes().to_vec());
        LinkSpec::parse("wifi:signal=trace:walk.csv", &mut read).unwrap().signal.unwrap()
    }

    #[test]
    fn a_published_signal_reads_back_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = Publisher::start(folder.path()).unwrap();
        let sender = publisher.sender();
        let file = folder.path().join("signal-wifi.json");
        for (text, start) in [("time,rssi\n0,-61\n", 5), ("time,cqi\n0,7\n1.5,9\n", -5)] {
            let signal = signal(text);
            sender.publish("wifi", Some(signal.clone()), start);
            sender.flush().unwrap();
            let read = document::parse::<SignalDocument>(&fs::read(&file).unwrap()).unwrap().0;
            assert_eq!((&read.interface[..], &read.source[..]), ("wifi", "walk.csv"));
            assert_eq!((read.start, &read.trace), (start, signal.trace.as_ref()));
        }
        for _ in 0..2 {
            sender.publish("wifi", None, 0);
            sender.flush().unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::remove_dir(folder.path()).unwrap();
        sender.publish("wifi", Some(signal("time,rssi\n0,-61\n")), 0);
        assert_eq!(sender.flush().unwrap_err().kind(), io::ErrorKind::NotFound);
        sender.flush().unwrap();
        drop(publisher);
        assert!(sender.flush().is_err());
    }

    #[test]
    fn the_state_is_that_of_the_current_repetition() {
        let signal = signal("time,cqi\n0,7\n1.5,9\n");
        let state = SignalState::at(&signal, Span::from_secs(5));
        assert_eq!(
            (state.position, state.sample.at),
            (Span::from_secs(2), Span::from_millis(1_500))
        );
    }
}
