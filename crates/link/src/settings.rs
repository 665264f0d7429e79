//! Settings of a link with temporary changes, each of which can be undone in any order.

use std::mem::discriminant;

use manyways_trace::scenario::{Change, LinkSpec};

/// The settings of a link, and the temporary changes on top of them.
///
/// A later change wins as long as it lasts. When a temporary change is undone, the link has the
/// settings that it would have without it. A lasting change also replaces the same setting in
/// temporary changes, so that undoing them does not touch it.
#[derive(Clone, Debug)]
pub struct Settings {
    lasting: LinkSpec,
    /// In the order in which they were made.
    temporary: Vec<Temporary>,
    made: u64,
}

/// Identifies a temporary change of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TemporaryId(u64);

#[derive(Clone, Debug)]
struct Temporary {
    id: TemporaryId,
    /// Each for one direction, if the setting has directions.
    changes: Vec<Change>,
}

impl Settings {
    /// Creates settings without temporary changes.
    pub fn new(spec: LinkSpec) -> Self {
        Self { lasting: spec, temporary: Vec::new(), made: 0 }
    }

    /// Returns the settings that are in effect.
    pub fn current(&self) -> LinkSpec {
        let mut spec = self.lasting.clone();
        let changes = self.temporary.iter().flat_map(|temporary| &temporary.changes);
        changes.for_each(|change| spec.apply(change));
        spec
    }

    /// Makes changes that last.
    pub fn change(&mut self, changes: &[Change]) {
        for change in changes.iter().flat_map(one_way) {
            self.lasting.apply(&change);
            for temporary in &mut self.temporary {
                temporary.changes.retain(|other| !is_same_setting(other, &change));
            }
        }
    }

    /// Makes changes until [`Settings::undo`].
    pub fn change_temporarily(&mut self, changes: &[Change]) -> TemporaryId {
        let id = TemporaryId(self.made);
        self.made += 1;
        let changes = changes.iter().flat_map(one_way).collect();
        self.temporary.push(Temporary { id, changes });
        id
    }

    /// Undoes temporary changes. Returns the settings that take effect instead: none that others
    /// have replaced meanwhile.
    pub fn undo(&mut self, id: TemporaryId) -> Vec<Change> {
        let Some(index) = self.temporary.iter().position(|temporary| temporary.id == id) else {
            return Vec::new();
        };
        let Temporary { changes, .. } = self.temporary.remove(index);
        let later = &self.temporary[index..];
        let is_replaced = |change: &Change| {
            later
                .iter()
                .flat_map(|other| &other.changes)
                .any(|other| is_same_setting(other, change))
        };
        let spec = self.current();
        let undone = changes.iter().filter(|change| !is_replaced(change));
        undone.filter_map(|change| change.inverse(&spec)).flatten().collect()
    }
}

/// Returns the same change for each direction; nothing for a request.
fn one_way(change: &Change) -> Vec<Change> {
    let mut changed = LinkSpec::new("");
    changed.apply(change);
    change.inverse(&changed).unwrap_or_default()
}

fn is_same_setting(one: &Change, other: &Change) -> bool {
    discriminant(one) == discriminant(other) && one.direction() == other.direction()
}

#[cfg(test)]
mod tests {
    use manyways_trace::link_text;

    use super::*;

    fn changes(text: &str) -> Vec<Change> {
        link_text::changes(text.split(' '), &mut |_| unreachable!()).unwrap()
    }

    fn shown(settings: &Settings, of: &str) -> String {
        let spec = settings.current();
        let shown = changes(of).iter().flat_map(|change| change.inverse(&spec).unwrap()).collect();
        text(shown)
    }

    fn text(changes: Vec<Change>) -> String {
        changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    fn settings() -> Settings {
        let mut settings = Settings::new(LinkSpec::new("wifi"));
        settings.change(&changes("down=10mbit delay=20ms"));
        settings
    }

    #[test]
    fn changes_are_undone_in_any_order() {
        for order in [[0, 1], [1, 0]] {
            let mut settings = settings();
            let ids = ["down=1mbit", "down=3mbit"]
                .map(|text| settings.change_temporarily(&changes(text)));
            assert_eq!(shown(&settings, "down=1bit"), "down=3mbit");
            let first = text(settings.undo(ids[order[0]]));
            let (left, told) = [("down=3mbit", ""), ("down=1mbit", "down=1mbit")][order[0]];
            assert_eq!((shown(&settings, "down=1bit"), &first[..]), (left.to_owned(), told));
            assert_eq!(text(settings.undo(ids[order[1]])), "down=10mbit");
            assert_eq!(shown(&settings, "down=1bit"), "down=10mbit");
            assert_eq!(text(settings.undo(ids[order[1]])), "", "once");
        }
    }

    #[test]
    fn a_lasting_change_stays_when_a_temporary_one_is_undone() {
        let mut settings = settings();
        let id = settings.change_temporarily(&changes("state=paused delay=50ms down=1mbit"));
        settings.change(&changes("down=2mbit up-delay=5ms"));
        assert_eq!(
            shown(&settings, "down=1bit delay=0s"),
            "down=2mbit down-delay=50ms up-delay=5ms"
        );
        let undone = text(settings.undo(id));
        assert_eq!(undone, "state=up down-delay=20ms");
        assert_eq!(
            shown(&settings, "down=1bit delay=0s"),
            "down=2mbit down-delay=20ms up-delay=5ms"
        );
    }
}
