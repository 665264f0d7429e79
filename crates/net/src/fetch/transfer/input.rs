//! Messages of the workers as inputs of the core.

use manyways_proto::fetch::{Input, PathId, RequestId};
use tokio::sync::oneshot;

use super::Transfer;
use crate::fetch::dial::Protocol;
use crate::fetch::event::{PingMethod, RequestOutcome};
use crate::fetch::location::Location;
use crate::fetch::report::{Event, ResponseHead};
use crate::fetch::sink::Sink;
use crate::fetch::worker::{Answer, Command, Message, Peer, WorkerEvent};

impl Transfer<'_> {
    pub(super) fn on_message(&mut self, Message { path, event: what }: Message, sink: &mut Sink) {
        let now = self.now();
        let input = match what {
            WorkerEvent::Bytes(request, bytes) if !self.core.is_under_way(request) => {
                Input::Late { path, length: bytes.len() as u64 }
            }
            WorkerEvent::Connected(peer, rtt) => {
                self.on_peer(path, peer);
                Input::Connected { path, multiplexed: peer.protocol == Protocol::Http2, rtt }
            }
            WorkerEvent::ConnectFailed(fault) => Input::ConnectFailed { path, error: fault },
            WorkerEvent::Redirected(location) => return self.on_redirect(&location),
            WorkerEvent::Pong => {
                self.core.handle(now, Input::Pong { path });
                if let Some(rtt) = self.core.last_round_trip(path) {
                    self.log.journal.on_ping(now, path, rtt, PingMethod::H2);
                }
                return;
            }
            WorkerEvent::SmoothedRtt(rtt) => {
                self.core.handle(now, Input::TransportRtt { path, rtt });
                self.log.journal.on_ping(now, path, rtt, PingMethod::Tcp);
                return;
            }
            WorkerEvent::PingFailed => Input::PingFailed { path },
            WorkerEvent::Head(request, answer, peer) => {
                self.on_peer(path, peer);
                let Answer { head, headers, location, announced } = *answer;
                self.log.journal.on_response(now, request, head.status);
                if head.length == Some(0) {
                    self.timings.on_first_byte(now);
                }
                self.report_discarded();
                let was_known = self.core.object().is_some();
                let (status, total) = (head.status, head.total_length());
                self.core.handle(now, Input::Head { request, head });
                if !was_known {
                    let is_description = self.core.object().is_some();
                    let head = ResponseHead { status, headers, location, total, is_description };
                    (self.log.on_event)(Event::Response(&head));
                }
                self.on_announced_digest(request, announced, was_known, sink);
                return;
            }
            WorkerEvent::Bytes(request, bytes) => {
                self.timings.on_bytes(path, now);
                let length = bytes.len() as u64;
                self.log.journal.on_received(now, request, length);
                self.piece = bytes;
                Input::Bytes { request, length }
            }
            WorkerEvent::Finished(request) => Input::Finished { request },
            WorkerEvent::Failed(request, fault) => {
                self.log.journal.on_request_end(now, request, RequestOutcome::Failed);
                Input::Failed { request, error: fault }
            }
        };
        self.report_discarded();
        self.core.handle(now, input);
    }

    fn on_redirect(&mut self, location: &Location) {
        let location = location.to_string();
        if self.log.redirected_to.as_ref() != Some(&location) {
            (self.log.on_event)(Event::Redirected(&location));
            self.log.redirected_to = Some(location);
        }
    }

    /// Stores an announced hash of the object. The response that describes the object is decisive;
    /// for a continued download, any response of the same object.
    fn on_announced_digest(
        &mut self,
        request: RequestId,
        announced: Option<[u8; 32]>,
        was_known: bool,
        sink: &mut Sink,
    ) {
        // The digest is that of the whole object.
        let is_part = self.job.excerpt.is_some();
        if is_part || !self.core.is_under_way(request) || self.core.object().is_none() {
            return;
        }
        self.announced_digest = self.announced_digest.filter(|_| was_known).or(announced);
        if self.announced_digest.is_some()
            && let Sink::Stream(stream) = sink
        {
            stream.enable_hash();
        }
    }

    /// Reports discarded bytes to the core.
    fn report_discarded(&mut self) {
        let now = self.now();
        for (id, discarded) in self.client.discarded.iter().enumerate() {
            if let length @ 1.. = discarded.take() {
                self.core.handle(now, Input::Late { path: PathId(id), length });
            }
        }
    }

    /// Cancels all requests, and counts the bytes that had been received for them.
    pub(super) async fn abort_requests(&mut self) {
        for worker in &self.client.workers {
            let (sender, ended) = oneshot::channel();
            // A worker ends only with its client.
            if worker.send(Command::End(sender)).is_ok() {
                let _ = ended.await;
            }
        }
        // The task of a closed connection drops the connection with a delay.
        tokio::task::yield_now().await;
        while let Ok(Message { path, event: what }) = self.mailbox.messages.try_recv() {
            if let WorkerEvent::Bytes(_, bytes) = what {
                let length = bytes.len() as u64;
                self.core.handle(self.now(), Input::Late { path, length });
            }
        }
        self.report_discarded();
    }

    fn on_peer(&mut self, path: PathId, peer: Peer) {
        if self.timings.on_peer(path, peer)
            && let Some(spec) = self.client.paths.get(path.0)
        {
            (self.log.on_event)(Event::Connected {
                path: &spec.name,
                server: peer.server.ip(),
                protocol: peer.protocol,
            });
        }
    }
}
