//! Assignment of label numbers to rules with a stream policy.

use std::collections::{BTreeMap, BTreeSet};

use crate::sched::StreamPolicy;

/// The assigned labels. 0 is the label of the policy's default.
#[derive(Debug, Default)]
pub(super) struct Labels(BTreeMap<u8, Entry>);

#[derive(Debug)]
struct Entry {
    rule: Option<String>,
    stream_policy: StreamPolicy,
}

/// A label, and whether its definition must be sent to the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AssignedLabel {
    pub(super) id: u8,
    pub(super) change: LabelChange,
}

/// Change of a label's definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LabelChange {
    /// The definition is the same.
    Unchanged,
    /// No flow has the label yet.
    New,
    /// The policy of flows with the label changes.
    Redefined,
}

impl Labels {
    pub(super) fn stream_policy(&self, id: u8) -> Option<StreamPolicy> {
        self.0.get(&id).map(|entry| entry.stream_policy)
    }

    /// Returns the label of `rule`, or of the default for `None`. `used` returns the labels of all
    /// flows. `None` if no number is free.
    pub(super) fn assign(
        &mut self,
        rule: Option<&str>,
        policy: StreamPolicy,
        used: impl FnOnce() -> BTreeSet<u8>,
    ) -> Option<AssignedLabel> {
        let known = self.0.iter_mut().find(|(_, entry)| entry.rule.as_deref() == rule);
        if let Some((id, entry)) = known {
            let change = match entry.stream_policy == policy {
                true => LabelChange::Unchanged,
                false => LabelChange::Redefined,
            };
            entry.stream_policy = policy;
            return Some(AssignedLabel { id: *id, change });
        }
        let id = match rule {
            None => 0,
            // Unused numbers precede numbers of rules without flows, because messages in flight
            // with an old label would get the wrong policy.
            Some(_) => (1..=u8::MAX).find(|id| !self.0.contains_key(id)).or_else(|| {
                let used = used();
                (1..=u8::MAX).find(|id| !used.contains(id))
            })?,
        };
        self.0.insert(id, Entry { rule: rule.map(str::to_owned), stream_policy: policy });
        Some(AssignedLabel { id, change: LabelChange::New })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream_policy(priority: u8) -> StreamPolicy {
        StreamPolicy { priority, ..StreamPolicy::default() }
    }

    #[test]
    fn a_rule_keeps_its_label_and_redefines_it() {
        let mut labels = Labels::default();
        let mut assign = |rule, priority| {
            let AssignedLabel { id, change } =
                labels.assign(rule, stream_policy(priority), BTreeSet::new).unwrap();
            (id, change)
        };
        assert_eq!(assign(None, 1), (0, LabelChange::New));
        assert_eq!(assign(Some("a"), 1), (1, LabelChange::New));
        assert_eq!(assign(Some("b"), 1), (2, LabelChange::New));
        assert_eq!(assign(Some("a"), 1), (1, LabelChange::Unchanged));
        assert_eq!(assign(Some("a"), 2), (1, LabelChange::Redefined));
        assert_eq!(assign(Some("a"), 2), (1, LabelChange::Unchanged));
    }

    #[test]
    fn labels_that_no_flow_has_are_assigned_again_and_others_are_not() {
        let mut labels = Labels::default();
        for rule in 1..=255 {
            labels.assign(Some(&rule.to_string()), stream_policy(1), BTreeSet::new).unwrap();
        }
        let all: BTreeSet<u8> = (1..=255).collect();
        assert_eq!(labels.assign(Some("more"), stream_policy(1), || all.clone()), None);
        let but_one: BTreeSet<u8> = all.into_iter().filter(|id| *id != 7).collect();
        let assigned = labels.assign(Some("more"), stream_policy(1), || but_one);
        assert_eq!(assigned, Some(AssignedLabel { id: 7, change: LabelChange::New }));
    }
}
