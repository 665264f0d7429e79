//! The state of a session, derived from the records of both endpoints.

use manyways_unit::Time;

use super::sender::{Heard, Sender};
use super::{ALERT_LIMIT, Alert};
use crate::stream::{End, Turns};
use crate::tls::reader::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HEADER, Record};
use crate::tls::{Carrier, Choice, Offer, Version};
use manyways_unit::ThinVec;

const CLOSE_NOTIFY: u8 = 0;
/// Length of an encrypted alert in TLS 1.3: 2 bytes, the content type and a tag of 16 bytes.
const SEALED_ALERT: u16 = 2 + 1 + 16;
/// Lengths of an encrypted Finished message in TLS 1.3, for SHA-256 and SHA-384.
const SEALED_FINISHED: [u16; 2] = [4 + 32 + 1 + 16, 4 + 48 + 1 + 16];

/// State of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    pub(super) is_tls: Option<bool>,
    pub(super) offer: Option<Box<Offer>>,
    pub(super) choice: Option<Box<Choice>>,
    pub(super) asks_again: Option<bool>,
    /// Whether the server has answered the final ClientHello.
    has_answered: bool,
    /// Whether the client sent data before that.
    is_early: bool,
    /// Whether the client encrypted everything after the ServerHello.
    seals_all: bool,
    /// Whether the handshake has ended, even if the time is unknown.
    is_over: bool,
    pub(super) over: Option<Time>,
    pub(super) alerts: ThinVec<Alert>,
    /// Time of the first close, and its sender.
    pub(super) closed: Option<Time>,
    pub(super) closed_by: Option<End>,
    pub(super) turns: Turns,
}

impl Story {
    pub(super) fn version(&self) -> Option<Version> {
        let said = self.choice.as_ref().and_then(|choice| choice.version);
        said.or(self.seals_all.then_some(Version::TLS_1_3))
    }

    fn is_old(&self) -> bool {
        self.version().is_some_and(|version| version < Version::TLS_1_3)
    }

    pub(super) fn is_resumed(&self, client: &Sender) -> Option<bool> {
        let choice = self.choice.as_ref().filter(|choice| choice.asks_again != Some(true))?;
        if !self.is_old() {
            self.version()?;
            return (choice.is_whole || choice.takes_key).then_some(choice.takes_key);
        }
        let offered = self.offer.as_ref().and_then(|offer| offer.session.as_ref());
        if let (Some(offered), Some(confirmed)) = (offered, &choice.session)
            && !offered.is_empty()
        {
            return Some(**offered == **confirmed);
        }
        if client.has_more {
            return Some(false);
        }
        let is_known = client.finished.is_some() && !client.is_torn;
        is_known.then_some(true)
    }

    fn closes(&mut self, at: Time, from: End) {
        self.closed.get_or_insert(at);
        self.closed_by.get_or_insert(from);
    }

    /// Data of the server after a ClientHello counts as the answer even if its beginning was not
    /// captured. After a HelloRetryRequest, only a ServerHello counts.
    pub(super) fn server_speaks(&mut self, client: &Sender) {
        self.has_answered |= client.hello.is_some() && self.asks_again != Some(true);
    }

    pub(super) fn hears(
        &mut self,
        from: End,
        sender: &mut Sender,
        other: &Sender,
        heard: Heard<'_>,
    ) {
        match heard {
            Heard::Record(record) => self.sees(from, sender, other, record),
            Heard::NoHello => {
                self.is_tls.get_or_insert(false);
            }
            Heard::Hello(record) => {
                self.is_tls.get_or_insert(true);
                sender.hello.get_or_insert(record.at);
                self.has_answered |= from == End::Server;
            }
            Heard::Message(message) => self.reads(from, message),
            // ChangeCipherSpec and Finished follow directly after the ticket (RFC 5077, 3.3), and a
            // truncated packet does not contain them.
            Heard::Ticket(record) if from == End::Server && other.has_more => {
                (self.is_over, self.over) = (true, Some(record.at));
            }
            Heard::Ticket(_) => {}
            Heard::Finished(record) => self.finishes(from, sender, other, record),
            Heard::Alert(record, [level, description]) => {
                if self.alerts.len() < ALERT_LIMIT {
                    self.alerts.push(Alert { at: record.at, from, level, description });
                }
                if description == CLOSE_NOTIFY {
                    self.closes(record.at, from);
                }
            }
            Heard::Data(at, bytes) => self.turns.handle(at, from, bytes),
            // Nearly all bytes after a handshake are application data.
            Heard::Stray(at, bytes) => {
                let is_seen = self.is_over || sender.data.is_some() || other.data.is_some();
                if self.is_tls == Some(true) && is_seen {
                    self.turns.handle(at, from, bytes);
                }
            }
        }
    }

    /// Reads a hello, complete or truncated.
    fn reads(&mut self, from: End, message: &[u8]) {
        if from == End::Client {
            self.offer = Offer::read(message, Carrier::Tcp).map(Box::new);
            return;
        }
        let Some(choice) = Choice::read(message) else { return };
        // A server sends at most one HelloRetryRequest (RFC 8446, 4.1.4).
        if self.asks_again.is_none() {
            self.asks_again = choice.asks_again;
            self.has_answered &= choice.asks_again != Some(true);
        }
        self.choice = Some(Box::new(choice));
    }

    /// Processes a record header.
    fn sees(&mut self, from: End, sender: &mut Sender, other: &Sender, record: Record) {
        if sender.is_torn {
            // Recognized by its header only; see `Reader` for the probability of an error.
            self.is_tls.get_or_insert(true);
        }
        match record.kind {
            CHANGE_CIPHER_SPEC => {
                sender.changed.get_or_insert(record.at);
            }
            ALERT if record.length != 2 => {
                self.closes(record.at, from);
            }
            APPLICATION_DATA => {
                sender.is_data = self.is_data(from, sender, other, record);
                if sender.is_data {
                    sender.data.get_or_insert(record.at);
                    self.turns.handle(record.at, from, 1);
                    self.turns.handle(record.known, from, HEADER as u64 - 1);
                }
            }
            _ => {}
        }
    }

    /// Whether an encrypted record is application data. Other records end the handshake or the
    /// session, or are part of the handshake.
    fn is_data(&mut self, from: End, sender: &Sender, other: &Sender, record: Record) -> bool {
        let client = if from == End::Client { sender } else { other };
        let is_old = self.is_old() || client.has_more || sender.finished.is_some();
        if is_old {
            return true;
        }
        if self.is_over || began_before(sender, other) {
            let is_alert = record.length == SEALED_ALERT;
            if is_alert {
                self.closes(record.at, from);
            }
            return !is_alert;
        }
        if from == End::Server {
            return false;
        }
        if !self.has_answered {
            self.is_early = true;
            return false;
        }
        if sender.is_torn {
            // The end of the handshake was before this record and was not captured.
            self.is_over = true;
            return true;
        }
        if !self.is_early || SEALED_FINISHED.contains(&record.length) {
            (self.seals_all, self.is_over, self.over) = (true, true, Some(record.at));
        }
        false
    }

    /// Processes the first encrypted handshake message, before TLS 1.3.
    fn finishes(&mut self, from: End, sender: &mut Sender, other: &Sender, record: Record) {
        let is_new = self.version().is_some_and(|version| version >= Version::TLS_1_3);
        if is_new || sender.finished.is_some() {
            return;
        }
        sender.finished = Some(record.at);
        // The server's Finished is the second in a full handshake, the client's in a resumed
        // session. So one of the two messages suffices.
        let is_second = match from {
            End::Client => !sender.has_more && !sender.is_torn,
            End::Server => other.has_more,
        };
        if is_second || other.finished.is_some() {
            let at = other.finished.map_or(record.at, |finished| finished.max(record.at));
            (self.is_over, self.over) = (true, Some(at));
        }
    }
}

/// Whether the handshake ended before the first captured record.
fn began_before(sender: &Sender, other: &Sender) -> bool {
    [sender, other].iter().all(|end| end.hello.is_none()) && (sender.is_torn || other.is_torn)
}
