//! Detection of stalled carriers, and reinjection of their messages.

use manyways_unit::Time;

use super::carrier::What;
use super::notice::Notice;
use super::{CarrierId, Mux, Output, Payload};
use crate::ranges::Range;
use crate::sched::PathSet;

impl<P: Payload> Mux<P> {
    /// Marks stalled carriers as suspect and reinjects their messages on other carriers.
    pub(super) fn look_for_stalls(&mut self, now: Time) {
        for carrier in &mut self.carriers {
            if carrier.suspect_at().is_some_and(|since| since <= now) {
                carrier.suspect(now);
            }
            if carrier.suspect != carrier.told_suspect {
                carrier.told_suspect = carrier.suspect;
                self.outputs.push_back(match carrier.suspect {
                    true => Output::Suspect { carrier: carrier.id },
                    false => Output::Recovered { carrier: carrier.id },
                });
            }
        }
        if self.carriers.iter().all(|carrier| carrier.suspect) {
            return;
        }
        for at in 0..self.carriers.len() {
            if !self.carriers[at].suspect {
                continue;
            }
            // A late carrier may cost only the reinjection budget. A failed one must not cost time.
            let given_up = self.carriers[at].given_up_at().is_some_and(|when| when <= now);
            while given_up || self.reinjection > 0 {
                let Some(what) = self.carriers[at].next_to_save() else { break };
                let again = self.has_another_way(what);
                self.carriers[at].looked_at(again);
                if again {
                    let bytes = self.send_again(what);
                    self.counters.reinjected += bytes;
                    self.reinjection -= bytes.cast_signed();
                }
            }
        }
    }

    /// Returns whether a carrier that is not suspect may send this content.
    pub(super) fn has_another_way(&self, what: What) -> bool {
        let paths = match what {
            What::Open { stream, .. }
            | What::Data { stream, .. }
            | What::Reset { stream }
            | What::StreamCredit { stream }
            | What::Assign { stream } => match self.treatment(stream) {
                Some(treatment) => treatment.paths,
                None => return false,
            },
            What::Credit
            | What::Relabel { .. }
            | What::CloseFlow { .. }
            | What::PathDown { .. } => PathSet::ALL,
        };
        self.carriers.iter().any(|carrier| !carrier.suspect && paths.has(carrier.path))
    }

    /// Removes a carrier and retransmits all its unacknowledged messages.
    pub(super) fn detach(&mut self, id: CarrierId) {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.id == id) else { return };
        let carrier = self.carriers.remove(at);
        for sent in carrier.sent {
            self.send_again(sent.what);
        }
        for stream in self.streams.values_mut() {
            stream.owed.retain(|owed| owed.carrier != id);
        }
        self.recent = self.recent.filter(|recent| *recent != id);
    }

    /// Schedules the content for retransmission. Returns its bytes of stream data.
    pub(super) fn send_again(&mut self, what: What) -> u64 {
        let notice = match what {
            What::Open { stream, length } => {
                let again = self.edit(stream, |stream| {
                    if let Some(open) = &mut stream.open {
                        open.sent = false;
                    }
                    stream.send.lost(Range::new(0, length), false)
                });
                return again.unwrap_or_default();
            }
            What::Data { stream, range, fin } => {
                return self.edit(stream, |s| s.send.lost(range, fin)).unwrap_or_default();
            }
            What::Reset { stream } => Notice::Reset(stream),
            What::StreamCredit { stream } => Notice::StreamCredit(stream),
            What::Credit => Notice::Credit,
            What::Relabel { id } => Notice::Relabel(id),
            What::Assign { stream } => Notice::Assign(stream),
            What::CloseFlow { flow, label } => Notice::CloseFlow(flow, label),
            What::PathDown { path } => Notice::PathDown(path),
        };
        self.notice(notice);
        0
    }
}
