//! Changes of links at a time or at a counter.

use std::sync::Arc;

use manyways_link::middlebox::Middlebox;
use manyways_link::schedule::{Due, Threshold};
use manyways_link::settings::TemporaryId;
use manyways_trace::scenario::{Change, SignalSpec};
use manyways_unit::{Span, Time};

use super::{MAX_APPLIED, Worker};

/// Changes of a link, now or later.
#[derive(Clone, Debug)]
pub struct Action {
    /// Index of the link and the counter that must have increased by this value; `None` for an
    /// action at a time.
    pub when: Option<Threshold>,
    /// Time from now, or from the moment at which the condition holds.
    pub after: Span,
    /// The changes are undone when this counter has increased by this value, and not made if it
    /// has already; `None` for changes that stay.
    pub until: Option<Threshold>,
    /// Index of the link that changes.
    pub link: usize,
    pub changes: Vec<Change>,
}

/// Changes that a scheduled action has made.
#[derive(Clone, Debug)]
pub struct Applied {
    pub at: Time,
    pub link: usize,
    pub changes: Vec<Change>,
}

/// Changes of a link that wait to be made or undone.
#[derive(Clone, Debug)]
pub struct WaitingChange {
    /// Index of the link.
    pub link: usize,
    pub changes: Vec<Change>,
    /// A time, or the increase of a counter from now on.
    pub due: Due,
    /// Whether they are made, and wait to be undone.
    pub is_made: bool,
}

/// An action that waits for its time or its condition.
pub(super) struct Pending {
    link: usize,
    changes: Vec<Change>,
    step: Step,
}

enum Step {
    /// Make the changes, which last.
    Change,
    /// Make the changes until a counter has this value.
    ChangeUntil(Threshold),
    Undo(TemporaryId),
}

impl Pending {
    /// Whether the link would change, in another way than back.
    pub(super) fn would_change(&self, link: usize) -> bool {
        self.link == link && !matches!(self.step, Step::Undo(_))
    }
}

/// Compares the files without their content, which may be long.
fn is_same_signal(one: Option<&SignalSpec>, other: Option<&SignalSpec>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            one.source == other.source && Arc::ptr_eq(&one.trace, &other.trace)
        }
        _ => one.is_none() && other.is_none(),
    }
}

impl Worker {
    /// Adds an action that counts from now.
    pub(super) fn schedule(
        &mut self,
        now: Time,
        Action { when, after, until, link, changes }: Action,
    ) {
        let [when, until] = [when, until].map(|threshold| {
            let Threshold { link, counter, least } = threshold?;
            let least = self.links.get_mut(link)?.counters(now).get(counter).saturating_add(least);
            Some(Threshold { link, counter, least })
        });
        let step = until.map_or(Step::Change, Step::ChangeUntil);
        let pending = Pending { link, changes, step };
        match when {
            None => self.schedule.at(now + after, pending),
            Some(threshold) => {
                self.schedule.when(threshold, after, pending);
                self.observe(now, threshold.link);
            }
        }
        self.apply_due(now);
    }

    /// Applies the actions that are due.
    pub(super) fn apply_due(&mut self, now: Time) {
        while let Some((at, Pending { link, changes, step })) = self.schedule.poll(now) {
            // Applied with the scheduled time, so that a late wake-up does not delay it.
            let changes = match step {
                Step::Change => {
                    self.apply(at, link, &changes);
                    changes
                }
                Step::ChangeUntil(until) => {
                    let counters = self.links[until.link].counters(now);
                    if counters.get(until.counter) >= until.least {
                        continue;
                    }
                    let id = self.links[link].settings.change_temporarily(&changes);
                    self.apply_settings(at, link);
                    let step = Step::Undo(id);
                    let undo = Pending { link, changes: changes.clone(), step };
                    self.schedule.when(until, Span::ZERO, undo);
                    changes
                }
                Step::Undo(id) => {
                    let undone = self.links[link].settings.undo(id);
                    self.apply_settings(at, link);
                    undone
                }
            };
            if changes.is_empty() {
                continue;
            }
            if self.applied.len() == MAX_APPLIED {
                self.applied.pop_front();
            }
            self.applied.push_back(Applied { at, link, changes });
        }
    }

    /// Reports the counters of a link to the schedule and applies the actions that are due.
    pub(super) fn observe(&mut self, now: Time, link: usize) {
        if self.schedule.is_waiting() {
            let counters = self.links[link].counters(now);
            self.schedule.observe(now, link, &counters);
            self.apply_due(now);
        }
    }

    /// Makes changes that last.
    pub(super) fn apply(&mut self, now: Time, index: usize, changes: &[Change]) {
        let Some(link) = self.links.get_mut(index) else { return };
        link.settings.change(changes);
        self.apply_settings(now, index);
        let link = &mut self.links[index];
        if changes.contains(&Change::Dormant) {
            link.request_dormancy(now);
        }
        if changes.contains(&Change::NatRestart)
            && let Some(Middlebox::Nat(nat)) = &mut link.middlebox
        {
            nat.restart();
        }
    }

    fn apply_settings(&mut self, now: Time, link: usize) {
        self.advance_airs(now);
        let before = self.links[link].spec.signal.clone();
        self.links[link].apply_settings(now);
        let link = &self.links[link];
        if !is_same_signal(before.as_ref(), link.spec.signal.as_ref()) {
            self.publish_signal(link);
        }
        self.update_priority();
    }

    /// Returns the changes to be made or undone, with the rest of each counter.
    pub(super) fn waiting_changes(&mut self, now: Time) -> Vec<WaitingChange> {
        let links = &mut self.links;
        let waiting = self.schedule.iter().map(|(due, pending)| WaitingChange {
            link: pending.link,
            changes: pending.changes.clone(),
            due: match due {
                Due::At(_) => due,
                Due::When(Threshold { link, counter, least }) => {
                    let least = least.saturating_sub(links[link].counters(now).get(counter));
                    Due::When(Threshold { link, counter, least })
                }
            },
            is_made: matches!(pending.step, Step::Undo(_)),
        });
        waiting.collect()
    }
}
