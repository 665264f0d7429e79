//! The state of a session, derived from the records of both endpoints.

use manyways_unit::Time;

use super::sender::{Sender, SenderEvent};
use super::{Alert, MAX_ALERTS};
use crate::stream::{Endpoint, ExchangeDetector};
use crate::tls::reader::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HEADER, RecordHeader};
use crate::tls::{ClientHelloDetails, ServerHello, Transport, Version};
use manyways_unit::ThinVec;

const CLOSE_NOTIFY: u8 = 0;
/// Length of an encrypted alert in TLS 1.3: 2 bytes, the content type and a tag of 16 bytes.
const SEALED_ALERT: u16 = 2 + 1 + 16;
/// Lengths of an encrypted Finished message in TLS 1.3, for SHA-256 and SHA-384.
const SEALED_FINISHED: [u16; 2] = [4 + 32 + 1 + 16, 4 + 48 + 1 + 16];

/// State of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionState {
    pub(super) is_tls: Option<bool>,
    pub(super) client_hello: Option<Box<ClientHelloDetails>>,
    pub(super) server_hello: Option<Box<ServerHello>>,
    pub(super) has_retry_request: Option<bool>,
    /// Whether the server has answered the final ClientHello.
    has_answered: bool,
    /// Whether the client sent data before that.
    has_early_data: bool,
    /// Whether the client encrypted everything after the ServerHello.
    encrypts_all: bool,
    /// Whether the handshake has ended, even if the time is unknown.
    has_handshake_ended: bool,
    pub(super) handshake_end: Option<Time>,
    pub(super) alerts: ThinVec<Alert>,
    /// Time of the first close, and its sender.
    pub(super) closed: Option<Time>,
    pub(super) closed_by: Option<Endpoint>,
    pub(super) exchanges: ExchangeDetector,
}

impl SessionState {
    pub(super) fn version(&self) -> Option<Version> {
        let said = self.server_hello.as_ref().and_then(|server_hello| server_hello.version);
        said.or(self.encrypts_all.then_some(Version::TLS_1_3))
    }

    fn is_before_tls_1_3(&self) -> bool {
        self.version().is_some_and(|version| version < Version::TLS_1_3)
    }

    pub(super) fn is_resumed(&self, client: &Sender) -> Option<bool> {
        let server_hello = self
            .server_hello
            .as_ref()
            .filter(|server_hello| server_hello.is_retry_request != Some(true))?;
        if !self.is_before_tls_1_3() {
            self.version()?;
            return (server_hello.is_complete || server_hello.accepts_psk)
                .then_some(server_hello.accepts_psk);
        }
        let offered =
            self.client_hello.as_ref().and_then(|client_hello| client_hello.session_id.as_ref());
        if let (Some(offered), Some(confirmed)) = (offered, &server_hello.session_id)
            && !offered.is_empty()
        {
            return Some(**offered == **confirmed);
        }
        if client.has_more_messages {
            return Some(false);
        }
        let is_known = client.finished.is_some() && !client.has_unknown_record;
        is_known.then_some(true)
    }

    fn on_close(&mut self, at: Time, from: Endpoint) {
        self.closed.get_or_insert(at);
        self.closed_by.get_or_insert(from);
    }

    /// Data of the server after a ClientHello counts as the answer even if its beginning was not
    /// captured. After a HelloRetryRequest, only a ServerHello counts.
    pub(super) fn on_server_data(&mut self, client: &Sender) {
        self.has_answered |= client.hello.is_some() && self.has_retry_request != Some(true);
    }

    pub(super) fn on_event(
        &mut self,
        from: Endpoint,
        sender: &mut Sender,
        other: &Sender,
        event: SenderEvent<'_>,
    ) {
        match event {
            SenderEvent::Record(record) => self.on_record(from, sender, other, record),
            SenderEvent::NoHello => {
                self.is_tls.get_or_insert(false);
            }
            SenderEvent::Hello(record) => {
                self.is_tls.get_or_insert(true);
                sender.hello.get_or_insert(record.start);
                self.has_answered |= from == Endpoint::Server;
            }
            SenderEvent::Message(message) => self.on_hello(from, message),
            // ChangeCipherSpec and Finished follow directly after the ticket (RFC 5077, 3.3), and a
            // truncated packet does not contain them.
            SenderEvent::Ticket(record) if from == Endpoint::Server && other.has_more_messages => {
                (self.has_handshake_ended, self.handshake_end) = (true, Some(record.start));
            }
            SenderEvent::Ticket(_) => {}
            SenderEvent::Finished(record) => self.on_finished(from, sender, other, record),
            SenderEvent::Alert(record, [level, description]) => {
                if self.alerts.len() < MAX_ALERTS {
                    self.alerts.push(Alert { at: record.start, from, level, description });
                }
                if description == CLOSE_NOTIFY {
                    self.on_close(record.start, from);
                }
            }
            SenderEvent::Data(at, bytes) => self.exchanges.handle(at, from, bytes),
            // Nearly all bytes after a handshake are application data.
            SenderEvent::Stray(at, bytes) => {
                let is_seen =
                    self.has_handshake_ended || sender.data.is_some() || other.data.is_some();
                if self.is_tls == Some(true) && is_seen {
                    self.exchanges.handle(at, from, bytes);
                }
            }
        }
    }

    /// Reads a hello, complete or truncated.
    fn on_hello(&mut self, from: Endpoint, message: &[u8]) {
        if from == Endpoint::Client {
            self.client_hello = ClientHelloDetails::read(message, Transport::Tcp).map(Box::new);
            return;
        }
        let Some(server_hello) = ServerHello::read(message) else { return };
        // A server sends at most one HelloRetryRequest (RFC 8446, 4.1.4).
        if self.has_retry_request.is_none() {
            self.has_retry_request = server_hello.is_retry_request;
            self.has_answered &= server_hello.is_retry_request != Some(true);
        }
        self.server_hello = Some(Box::new(server_hello));
    }

    /// Processes a record header.
    fn on_record(
        &mut self,
        from: Endpoint,
        sender: &mut Sender,
        other: &Sender,
        record: RecordHeader,
    ) {
        if sender.has_unknown_record {
            // Recognized by its header only; see `Reader` for the probability of an error.
            self.is_tls.get_or_insert(true);
        }
        match record.kind {
            CHANGE_CIPHER_SPEC => {
                sender.cipher_changed.get_or_insert(record.start);
            }
            ALERT if record.length != 2 => {
                self.on_close(record.start, from);
            }
            APPLICATION_DATA => {
                sender.is_data = self.is_data(from, sender, other, record);
                if sender.is_data {
                    sender.data.get_or_insert(record.start);
                    self.exchanges.handle(record.start, from, 1);
                    self.exchanges.handle(record.end, from, HEADER as u64 - 1);
                }
            }
            _ => {}
        }
    }

    /// Whether an encrypted record is application data. Other records end the handshake or the
    /// session, or are part of the handshake.
    fn is_data(
        &mut self,
        from: Endpoint,
        sender: &Sender,
        other: &Sender,
        record: RecordHeader,
    ) -> bool {
        let client = if from == Endpoint::Client { sender } else { other };
        let is_old =
            self.is_before_tls_1_3() || client.has_more_messages || sender.finished.is_some();
        if is_old {
            return true;
        }
        if self.has_handshake_ended || is_handshake_missed(sender, other) {
            let is_alert = record.length == SEALED_ALERT;
            if is_alert {
                self.on_close(record.start, from);
            }
            return !is_alert;
        }
        if from == Endpoint::Server {
            return false;
        }
        if !self.has_answered {
            self.has_early_data = true;
            return false;
        }
        if sender.has_unknown_record {
            // The end of the handshake was before this record and was not captured.
            self.has_handshake_ended = true;
            return true;
        }
        if !self.has_early_data || SEALED_FINISHED.contains(&record.length) {
            (self.encrypts_all, self.has_handshake_ended, self.handshake_end) =
                (true, true, Some(record.start));
        }
        false
    }

    /// Processes the first encrypted handshake message, before TLS 1.3.
    fn on_finished(
        &mut self,
        from: Endpoint,
        sender: &mut Sender,
        other: &Sender,
        record: RecordHeader,
    ) {
        let is_new = self.version().is_some_and(|version| version >= Version::TLS_1_3);
        if is_new || sender.finished.is_some() {
            return;
        }
        sender.finished = Some(record.start);
        // The server's Finished is the second in a full handshake, the client's in a resumed
        // session. So one of the two messages suffices.
        let is_second = match from {
            Endpoint::Client => !sender.has_more_messages && !sender.has_unknown_record,
            Endpoint::Server => other.has_more_messages,
        };
        if is_second || other.finished.is_some() {
            let at = other.finished.map_or(record.start, |finished| finished.max(record.start));
            (self.has_handshake_ended, self.handshake_end) = (true, Some(at));
        }
    }
}

/// Whether the handshake ended before the first captured record.
fn is_handshake_missed(sender: &Sender, other: &Sender) -> bool {
    [sender, other].iter().all(|end| end.hello.is_none())
        && (sender.has_unknown_record || other.has_unknown_record)
}
