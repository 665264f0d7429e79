//! What the records of both ends add up to.

use manyways_unit::Time;

use super::sender::{Heard, Sender};
use super::{ALERT_LIMIT, Alert};
use crate::stream::{End, Turns};
use crate::tls::reader::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HEADER, Record};
use crate::tls::{Carrier, Choice, Offer, Version};
use manyways_unit::ThinVec;

const CLOSE_NOTIFY: u8 = 0;
/// The length of an alert that TLS 1.3 seals: 2 bytes, its real type and 16 bytes of seal.
const SEALED_ALERT: u16 = 2 + 1 + 16;
/// The lengths of a client's Finished message that TLS 1.3 seals, for SHA-256 and SHA-384.
const SEALED_FINISHED: [u16; 2] = [4 + 32 + 1 + 16, 4 + 48 + 1 + 16];

/// What is known of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    pub(super) is_tls: Option<bool>,
    pub(super) offer: Option<Box<Offer>>,
    pub(super) choice: Option<Box<Choice>>,
    pub(super) asks_again: Option<bool>,
    /// The server answered the hello that counts.
    has_answered: bool,
    /// The client sent data before that.
    is_early: bool,
    /// The client sealed all that it sent after the server's hello.
    seals_all: bool,
    /// The handshake is over, whether or not it is known since when.
    is_over: bool,
    pub(super) over: Option<Time>,
    pub(super) alerts: ThinVec<Alert>,
    /// When the first end said that it is done, and which.
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

    /// What the server says after a hello may answer it even when it was not captured. When it asked
    /// for another one, only a hello counts.
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
            // The change of keys and the Finished message come right behind it (RFC 5077, 3.3), and
            // in a cut packet it hides them.
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
            // Nearly all that passes after a handshake is data.
            Heard::Stray(at, bytes) => {
                let is_seen = self.is_over || sender.data.is_some() || other.data.is_some();
                if self.is_tls == Some(true) && is_seen {
                    self.turns.handle(at, from, bytes);
                }
            }
        }
    }

    /// A hello is there, or what was captured of it.
    fn reads(&mut self, from: End, message: &[u8]) {
        if from == End::Client {
            self.offer = Offer::read(message, Carrier::Tcp).map(Box::new);
            return;
        }
        let Some(choice) = Choice::read(message) else { return };
        // It asks once at most (RFC 8446, 4.1.4).
        if self.asks_again.is_none() {
            self.asks_again = choice.asks_again;
            self.has_answered &= choice.asks_again != Some(true);
        }
        self.choice = Some(Box::new(choice));
    }

    /// A record begins.
    fn sees(&mut self, from: End, sender: &mut Sender, other: &Sender, record: Record) {
        if sender.is_torn {
            // By how it looks; see the reader for the odds.
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

    /// Whether a sealed record is data of the application. The others end the handshake or the
    /// session, or are a part of the handshake.
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
            // What ended the handshake was before this, and not captured.
            self.is_over = true;
            return true;
        }
        if !self.is_early || SEALED_FINISHED.contains(&record.length) {
            (self.seals_all, self.is_over, self.over) = (true, true, Some(record.at));
        }
        false
    }

    /// The first handshake message under new keys, before TLS 1.3.
    fn finishes(&mut self, from: End, sender: &mut Sender, other: &Sender, record: Record) {
        let is_new = self.version().is_some_and(|version| version >= Version::TLS_1_3);
        if is_new || sender.finished.is_some() {
            return;
        }
        sender.finished = Some(record.at);
        // The server's comes second when the client made new keys, and the client's when it goes on
        // with those of an earlier session. So the other one need not be known.
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

/// The handshake was before all that was captured.
fn began_before(sender: &Sender, other: &Sender) -> bool {
    [sender, other].iter().all(|end| end.hello.is_none()) && (sender.is_torn || other.is_torn)
}
