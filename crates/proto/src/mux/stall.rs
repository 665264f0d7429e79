//! Detection of stalled carriers, and reinjection of their messages.

use manyways_unit::Time;

use super::carrier::{Carrier, SentContent};
use super::control::ControlMessage;
use super::{CarrierId, Mux, Output, Payload};
use crate::ranges::Range;
use crate::sched::PathSet;

impl<P: Payload> Mux<P> {
    /// Marks stalled carriers as suspect and reinjects their messages on other carriers.
    pub(super) fn detect_stalls(&mut self, now: Time) {
        let mut has_recovered = false;
        for carrier in &mut self.carriers {
            carrier.end_distrust(now);
            if carrier.suspect_at().is_some_and(|since| since <= now) {
                carrier.mark_suspect(now);
            }
            if carrier.is_suspect != carrier.reported_suspect {
                carrier.reported_suspect = carrier.is_suspect;
                has_recovered |= !carrier.is_suspect;
                self.outputs.push_back(match carrier.is_suspect {
                    true => {
                        let direction = carrier.silent_direction();
                        Output::Suspect { carrier: carrier.id, direction }
                    }
                    false => Output::Recovered { carrier: carrier.id },
                });
            }
        }
        if has_recovered {
            self.restart_checks();
        }
        if self.carriers.iter().all(|carrier| carrier.is_suspect) {
            return;
        }
        for at in 0..self.carriers.len() {
            if !self.carriers[at].is_suspect {
                continue;
            }
            // A late carrier may cost only the reinjection budget. A failed one must not cost time.
            let given_up = self.carriers[at].failure_deadline().is_some_and(|when| when <= now);
            while given_up || self.reinjection_budget > 0 {
                let Some(content) = self.carriers[at].next_unchecked() else { break };
                let again = self.has_other_carrier(content);
                self.carriers[at].mark_checked(again);
                if again {
                    let bytes = self.retransmit(content);
                    self.counters.reinjected += bytes;
                    self.reinjection_budget -= bytes.cast_signed();
                }
            }
        }
    }

    /// Checks all messages of suspect carriers again, because other carriers may accept their content
    /// now: there is another one, or one that is not suspect any longer, or policies have changed.
    pub(super) fn restart_checks(&mut self) {
        self.carriers.iter_mut().for_each(Carrier::restart_check);
    }

    /// Returns whether a carrier that is not suspect may send this content.
    pub(super) fn has_other_carrier(&self, content: SentContent) -> bool {
        let paths = match content {
            SentContent::Open { stream, .. }
            | SentContent::Opened { stream }
            | SentContent::Data { stream, .. }
            | SentContent::Reset { stream }
            | SentContent::StreamCredit { stream }
            | SentContent::Assign { stream } => match self.stream_policy(stream) {
                Some(policy) => policy.paths,
                None => return false,
            },
            SentContent::Credit
            | SentContent::Relabel { .. }
            | SentContent::CloseFlow { .. }
            | SentContent::PathDown { .. } => PathSet::ALL,
        };
        self.has_reliable_carrier(paths)
    }

    /// Removes a carrier and retransmits all its unacknowledged messages.
    pub(super) fn detach(&mut self, id: CarrierId) {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.id == id) else { return };
        let carrier = self.carriers.remove(at);
        for sent in carrier.sent {
            self.retransmit(sent.content);
        }
        for stream in self.streams.values_mut() {
            stream.copies.retain(|owed| owed.carrier != id);
        }
        self.last_receiver = self.last_receiver.filter(|recent| *recent != id);
    }

    /// Schedules the content for retransmission. Returns its bytes of stream data.
    pub(super) fn retransmit(&mut self, content: SentContent) -> u64 {
        let notice = match content {
            SentContent::Open { stream, length } => {
                let again = self.edit(stream, |stream| {
                    if let Some(open) = &mut stream.pending_open {
                        open.is_in_flight = false;
                    }
                    stream.send.on_lost(Range::new(0, length), false)
                });
                return again.unwrap_or_default();
            }
            SentContent::Data { stream, range, fin } => {
                return self.edit(stream, |s| s.send.on_lost(range, fin)).unwrap_or_default();
            }
            SentContent::Opened { stream } => ControlMessage::Opened(stream),
            SentContent::Reset { stream } => ControlMessage::Reset(stream),
            SentContent::StreamCredit { stream } => ControlMessage::StreamCredit(stream),
            SentContent::Credit => ControlMessage::Credit,
            SentContent::Relabel { id } => ControlMessage::Relabel(id),
            SentContent::Assign { stream } => ControlMessage::Assign(stream),
            SentContent::CloseFlow { flow, label } => ControlMessage::CloseFlow(flow, label),
            SentContent::PathDown { path } => ControlMessage::PathDown(path),
        };
        self.queue_control(notice);
        0
    }
}
