//! Tests over a recorded load, and over loads that are made up.

mod broken;
mod made_up;
mod recorded;

use manyways_unit::{Span, Time};

use super::{Change, Graph, Load, Replay};

fn millis(time: Time) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A replay with one object's answer delayed.
fn delayed(graph: &Graph, request: usize, delay: Span) -> Replay {
    graph.replay(&Change { added_delays: vec![(request, delay)], ..Change::default() })
}

/// Checks that the critical paths of a replay have no gaps and end at their goals.
fn check_paths(graph: &Graph, replay: &Replay) {
    use super::Goal::{PageInteractive, PageLoad};
    for (goal, end) in [(PageInteractive, replay.page_interactive), (PageLoad, replay.page_load)] {
        let path = graph.critical_path(replay, goal);
        let mut last = Time::ZERO;
        for step in &path.steps {
            assert!(step.start.distance(last) <= Span::from_nanos(2), "{step:?} after {last:?}");
            assert!(step.start < step.end, "{step:?}");
            last = step.end;
        }
        assert!(last.distance(end) <= Span::from_nanos(2), "{last:?} {end:?}");
        let shares = path.shares();
        let sum = (shares.network + shares.computation + shares.lag).as_secs_f64();
        let steps = path.steps.len() as f64;
        assert!((sum - end.as_secs_f64()).abs() <= 1e-9 * (steps + 2.0), "{shares:?} {end:?}");
    }
}

/// Checks that a replay has an order of times for every request and task.
fn check_order(graph: &Graph, load: &Load, replay: &Replay) {
    assert_eq!(replay.requests.len(), load.requests.len());
    assert_eq!(replay.tasks.len(), graph.tasks().len());
    for times in &replay.requests {
        let steps = [times.issued, times.started, times.sent, times.first_byte, times.ended];
        assert!(steps.is_sorted(), "{times:?}");
    }
    let mut tasks = replay.tasks.clone();
    tasks.sort_unstable();
    for pair in tasks.windows(2) {
        assert!(pair[0].0 <= pair[0].1 && pair[0].1 <= pair[1].0, "tasks overlap: {pair:?}");
    }
}
