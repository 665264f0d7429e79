//! The last report of each source, and the values that the receiver has not taken yet.

use std::collections::VecDeque;
use std::sync::Arc;

use manyways_model::select::{Indicator, Indicators, Known};
use manyways_unit::Time;
use manyways_unit::human::quoted;

use super::range;

/// Networks that one source may name, at most.
const MAX_NETWORKS: usize = 64;

/// Where values come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SourceKind {
    /// The driver of a Wi-Fi interface.
    Wifi,
    /// ModemManager.
    Modem,
    /// A command of the user.
    Command,
    /// A file of signals over time.
    Trace,
    /// The lab of an emulated interface.
    Lab,
    /// Counters of an interface.
    Counters,
    /// Connections of this program.
    Own,
}

impl SourceKind {
    /// Name for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wifi => "nl80211",
            Self::Modem => "ModemManager",
            Self::Command => "command",
            Self::Trace => "trace",
            Self::Lab => "lab",
            Self::Counters => "counters",
            Self::Own => "own connections",
        }
    }
}

/// Identifies a source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SourceId(pub(super) u64);

/// A new value.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// Time of the measurement, since the origin of [`Sources::start`](super::Sources::start).
    pub at: Time,
    /// Name of the network.
    pub network: Arc<str>,
    pub indicator: Indicator,
    /// In the unit of the indicator. NaN: no source knows it any longer, which removes it from
    /// [`Indicators`].
    pub value: f64,
}

/// The state of a source for one network, to explain decisions.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct SourceStatus {
    pub id: SourceId,
    pub kind: SourceKind,
    /// `None`: a command as a whole, which may name any network.
    pub network: Option<Arc<str>>,
    /// The last values, also those that the source no longer knows.
    pub values: Vec<LastValue>,
    /// Why there is no value now: one sentence. `None` if there is one.
    pub silence: Option<String>,
    /// Impossible values and wrong lines, which were dropped.
    pub dropped: u64,
    /// The first one of them: one sentence.
    pub first_dropped: Option<String>,
}

/// The last value of an indicator from one source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LastValue {
    pub indicator: Indicator,
    pub known: Known,
    /// Whether the source still knows it.
    pub is_current: bool,
}

/// The meaning of a report for indicators that are not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// The source no longer knows them.
    Complete,
    /// Nothing.
    Partial,
}

/// A value, or `None` if the source states that it does not know it.
pub(super) type Reading = (Indicator, Option<f64>);

/// The state of all sources. For each indicator it keeps only the newest update that was not taken,
/// so that a slow receiver costs no memory, and gets no old values.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
    pending: Pending,
}

/// Updates that were not taken, the oldest first.
#[derive(Debug, Default)]
struct Pending {
    updates: VecDeque<(SourceId, Update)>,
}

#[derive(Debug)]
struct Entry {
    status: Status,
    values: Indicators,
    is_current: [bool; Indicator::ALL.len()],
}

#[derive(Debug)]
struct Status {
    id: SourceId,
    kind: SourceKind,
    network: Option<Arc<str>>,
    silence: Option<String>,
    dropped: u64,
    first_dropped: Option<String>,
}

impl Ledger {
    pub(super) fn add(&mut self, id: SourceId, kind: SourceKind, network: Option<&str>) {
        let silence = Some("it has not reported a value yet".to_owned());
        let network = network.map(Arc::from);
        let status = Status { id, kind, network, silence, dropped: 0, first_dropped: None };
        let is_current = [false; Indicator::ALL.len()];
        self.entries.push(Entry { status, values: Indicators::default(), is_current });
    }

    /// Withdraws the values of a source, and forgets it.
    pub(super) fn remove(&mut self, at: Time, id: SourceId) {
        self.on_failure(at, id, "");
        self.entries.retain(|entry| entry.status.id != id);
    }

    /// Notes a report about a network. Impossible values are dropped, and count as unknown.
    pub(super) fn on_reading(
        &mut self,
        at: Time,
        id: SourceId,
        network: &str,
        readings: &[Reading],
        scope: Scope,
    ) {
        let Some(index) = self.entry(id, network) else { return };
        let entry = &mut self.entries[index];
        let (mut is_reported, mut unknown) = ([false; Indicator::ALL.len()], Vec::new());
        for (indicator, value) in readings {
            match value.map(|value| range::check(*indicator, value)) {
                Some(Ok(value)) => {
                    is_reported[*indicator as usize] = true;
                    entry.is_current[*indicator as usize] = true;
                    entry.values.set(at, *indicator, value);
                    self.pending.note(id, at, entry.status.network.as_ref(), *indicator, value);
                }
                Some(Err(implausible)) => {
                    let reason = implausible.to_string();
                    entry.status.on_drop(&reason);
                    entry.status.silence = Some(reason);
                    unknown.push(*indicator);
                }
                None => unknown.push(*indicator),
            }
        }
        if scope == Scope::Complete {
            unknown.extend(Indicator::ALL.into_iter().filter(|one| !is_reported[*one as usize]));
        }
        for indicator in unknown {
            self.withdraw(at, index, indicator);
        }
        let entry = &mut self.entries[index];
        if entry.is_current.contains(&true) {
            entry.status.silence = None;
            for entry in self.entries.iter_mut().filter(|entry| entry.status.id == id) {
                if entry.status.network.is_none() {
                    entry.status.silence = None;
                }
            }
        } else if readings.iter().all(|(_, value)| value.is_none()) {
            entry.status.silence = Some("it does not know a value at the moment".to_owned());
        }
    }

    /// Notes that a source knows nothing now, and why.
    pub(super) fn on_failure(&mut self, at: Time, id: SourceId, reason: &str) {
        for index in 0..self.entries.len() {
            if self.entries[index].status.id == id {
                for indicator in Indicator::ALL {
                    self.withdraw(at, index, indicator);
                }
                self.entries[index].status.silence = Some(reason.to_owned());
            }
        }
    }

    /// Notes something that could not be used.
    pub(super) fn on_drop(&mut self, id: SourceId, reason: &str) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.status.id == id) {
            entry.status.on_drop(reason);
        }
    }

    /// Takes the oldest update.
    pub(super) fn take(&mut self) -> Option<Update> {
        self.pending.updates.pop_front().map(|(_, update)| update)
    }

    /// The sources of a network, and commands that may name it.
    pub(super) fn status(&self, network: &str) -> Vec<SourceStatus> {
        let of_network =
            |entry: &&Entry| entry.status.network.as_deref().is_none_or(|name| name == network);
        self.entries.iter().filter(of_network).map(Entry::status).collect()
    }

    /// Notes that a source no longer knows a value. Another source may still know it.
    fn withdraw(&mut self, at: Time, index: usize, indicator: Indicator) {
        let entry = &mut self.entries[index];
        if !std::mem::take(&mut entry.is_current[indicator as usize]) {
            return;
        }
        let Status { id, network, .. } = &self.entries[index].status;
        let knows_it = |other: &&Entry| {
            other.status.network == *network && other.is_current[indicator as usize]
        };
        let others = self.entries.iter().filter(knows_it);
        let newest =
            others.filter_map(|other| other.values.get(indicator)).max_by_key(|one| one.at);
        let Known { value, at } = newest.unwrap_or(Known { value: f64::NAN, at });
        self.pending.note(*id, at, network.as_ref(), indicator, value);
    }

    /// The place of a network's entry; a command creates it with its first line.
    fn entry(&mut self, id: SourceId, network: &str) -> Option<usize> {
        let of_source = |entry: &&Entry| entry.status.id == id;
        let kind = self.entries.iter().find(of_source)?.status.kind;
        let is_it = |entry: &Entry| {
            entry.status.id == id && entry.status.network.as_deref() == Some(network)
        };
        if let Some(index) = self.entries.iter().position(is_it) {
            return Some(index);
        }
        if self.entries.iter().filter(of_source).count() > MAX_NETWORKS {
            let name = quoted(network);
            self.on_drop(id, &format!("it names `{name}` after {MAX_NETWORKS} other networks"));
            return None;
        }
        self.add(id, kind, Some(network));
        Some(self.entries.len() - 1)
    }
}

impl Entry {
    fn status(&self) -> SourceStatus {
        let values = self.values.iter().map(|(indicator, known)| LastValue {
            indicator,
            known,
            is_current: self.is_current[indicator as usize],
        });
        let Status { id, kind, network, silence, dropped, first_dropped } = &self.status;
        SourceStatus {
            id: *id,
            kind: *kind,
            network: network.clone(),
            values: values.collect(),
            silence: silence.clone(),
            dropped: *dropped,
            first_dropped: first_dropped.clone(),
        }
    }
}

impl Status {
    fn on_drop(&mut self, reason: &str) {
        self.dropped = self.dropped.saturating_add(1);
        self.first_dropped.get_or_insert_with(|| reason.to_owned());
    }
}

impl Pending {
    fn note(
        &mut self,
        id: SourceId,
        at: Time,
        network: Option<&Arc<str>>,
        indicator: Indicator,
        value: f64,
    ) {
        let Some(network) = network.cloned() else { return };
        self.updates.retain(|(source, old)| {
            (*source, old.indicator) != (id, indicator) || old.network != network
        });
        self.updates.push_back((id, Update { at, network, indicator, value }));
    }
}

#[cfg(test)]
mod tests;
