//! Reported loads of a page.

use manyways_model::qoe::page::{Change, Goal, Graph, Load};
use manyways_unit::Span;

/// Objects and tasks of one load, so that an input is fast.
const MAX_ACTIVITIES: usize = 300;

pub(super) const WORDS: &[&str] = &[
    "{\"requests\":[",
    "\"tasks\":[",
    "\"marks\":{\"load_event_end\":",
    "{\"kind\":\"evaluate_script\",\"start\":1,\"end\":2,\"request\":1},",
    "{\"kind\":\"parse_html\",\"start\":0,\"end\":9,\"request\":0,\"lines\":[0,3]},",
    "{\"kind\":{\"event\":\"load\"},\"start\":9,\"end\":9},",
    "\"initiator\":{\"parser\":{\"document\":0,\"line\":1,\"column\":2}}",
    "\"initiator\":{\"script\":{\"request\":2}}",
    "\"initiator\":{\"redirect\":{\"request\":0}}",
    "\"initiator\":\"navigation\"",
    "\"loading\":\"deferred\"",
    "\"blocking\":\"render\"",
    "\"priority\":\"low\"",
    "\"boosted\":",
    "\"protocol\":\"h2\"",
    "\"arrivals\":[{\"time\":1,\"bytes\":2}]",
    "\"first_byte\":",
    "18446744073709551615",
    "1e300",
    "-1",
    "null",
];

/// A load is replayed, always in the same way, and its critical path leads to the end of the load.
pub(super) fn load(bytes: &[u8]) {
    let Ok(load) = serde_json::from_slice::<Load>(bytes) else { return };
    if load.requests.len() + load.tasks.len() > MAX_ACTIVITIES {
        return;
    }
    let graph = Graph::of(&load);
    let count = load.requests.len();
    assert!(graph.edges().iter().all(|edge| edge.from.max(edge.to) < count));
    let mut changes = vec![Change::default(); 3];
    changes[1].cached = true;
    changes[2].rtt_factor = 0.5;
    changes[2].added_delays = vec![(count / 2, Span::from_millis(300))];
    for change in changes {
        let replay = graph.replay(&change);
        assert!(replay == graph.replay(&change), "a replay is always the same");
        assert_eq!(replay.requests.len(), count);
        for goal in [Goal::PageLoad, Goal::PageInteractive] {
            let path = graph.critical_path(&replay, goal);
            assert!(path.steps.iter().all(|step| step.start < step.end));
        }
        graph.parser_blocked(&replay);
    }
}
