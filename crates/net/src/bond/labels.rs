//! Which numbers stand for which treatments on the wire: one for each rule that carries something.

use std::collections::{BTreeMap, BTreeSet};

use manyways_proto::sched::Treatment;

/// The labels that are given out. 0 is that of the default.
#[derive(Debug, Default)]
pub(super) struct Labels(BTreeMap<u8, Entry>);

#[derive(Debug)]
struct Entry {
    rule: Option<String>,
    treatment: Treatment,
}

/// A label and what the other end has to hear of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Given {
    pub(super) id: u8,
    pub(super) news: News,
}

/// Whether a label stands for something else now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// It stood for that before.
    None,
    /// Nobody has it yet.
    New,
    /// Others have it, and are treated so too from now on.
    Changed,
}

impl Labels {
    /// What a label stands for.
    pub(super) fn treatment(&self, id: u8) -> Option<Treatment> {
        self.0.get(&id).map(|entry| entry.treatment)
    }

    /// The label of what a rule carries, or of what none does. `used` are those that somebody has.
    /// None when there are no numbers left.
    pub(super) fn give(
        &mut self,
        rule: Option<&str>,
        treatment: Treatment,
        used: impl FnOnce() -> BTreeSet<u8>,
    ) -> Option<Given> {
        let known = self.0.iter_mut().find(|(_, entry)| entry.rule.as_deref() == rule);
        if let Some((id, entry)) = known {
            let news = match entry.treatment == treatment {
                true => News::None,
                false => News::Changed,
            };
            entry.treatment = treatment;
            return Some(Given { id: *id, news });
        }
        let id = match rule {
            None => 0,
            // One that was never used before one whose rule has nothing to carry any more: what
            // of it is still on its way would be taken for something else.
            Some(_) => (1..=u8::MAX).find(|id| !self.0.contains_key(id)).or_else(|| {
                let used = used();
                (1..=u8::MAX).find(|id| !used.contains(id))
            })?,
        };
        self.0.insert(id, Entry { rule: rule.map(str::to_owned), treatment });
        Some(Given { id, news: News::New })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn treatment(priority: u8) -> Treatment {
        Treatment { priority, ..Treatment::default() }
    }

    #[test]
    fn a_rule_keeps_its_label_and_says_when_it_means_something_else() {
        let mut labels = Labels::default();
        let mut give =
            |rule, priority| labels.give(rule, treatment(priority), BTreeSet::new).unwrap();
        assert_eq!(give(None, 1), Given { id: 0, news: News::New });
        assert_eq!(give(Some("a"), 1), Given { id: 1, news: News::New });
        assert_eq!(give(Some("b"), 1), Given { id: 2, news: News::New });
        assert_eq!(give(Some("a"), 1), Given { id: 1, news: News::None });
        assert_eq!(give(Some("a"), 2), Given { id: 1, news: News::Changed });
        assert_eq!(give(Some("a"), 2), Given { id: 1, news: News::None });
    }

    #[test]
    fn labels_that_nobody_has_are_given_again_and_others_are_not() {
        let mut labels = Labels::default();
        for rule in 1..=255 {
            labels.give(Some(&rule.to_string()), treatment(1), BTreeSet::new).unwrap();
        }
        let all: BTreeSet<u8> = (1..=255).collect();
        assert_eq!(labels.give(Some("more"), treatment(1), || all.clone()), None);
        let but_one: BTreeSet<u8> = all.into_iter().filter(|id| *id != 7).collect();
        let given = labels.give(Some("more"), treatment(1), || but_one);
        assert_eq!(given, Some(Given { id: 7, news: News::New }));
    }
}
