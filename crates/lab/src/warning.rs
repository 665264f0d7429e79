//! Detects valid but probably unintended settings of a link.

use manyways_trace::LinkTrace;
use manyways_trace::scenario::{
    CapacitySpec, Change, Condition, Counter, DirectionSpec, Event, LinkSpec, LinkState, LossSpec,
};
use manyways_unit::Rate;

/// Rate that one thread can forward; `docs/benchmarks/lab.md` has the measurement.
pub const MAX_FORWARDING_RATE: Rate = Rate::from_mbps(10_000);

/// A probably unintended setting; `Display` is one sentence about the link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkWarning {
    /// A rate of zero.
    #[error("`{0}` is 0, so no packet passes in this direction")]
    NoRate(&'static str),
    /// A trace with zero capacity.
    #[error("`{0}` is a trace without capacity, so no packet passes in this direction")]
    NoCapacity(&'static str),
    /// A loss of 100 %.
    #[error("`{0}` is 100 %, so no packet passes in this direction")]
    AllLost(&'static str),
    /// A rate above [`MAX_FORWARDING_RATE`].
    #[error("`{key}` is {rate}, but the emulator forwards at most about {MAX_FORWARDING_RATE}")]
    TooFast {
        /// The key of the setting.
        key: &'static str,
        /// Its rate; for a trace, the maximum.
        rate: Rate,
    },
    /// An event whose end comes before its beginning.
    #[error("the event never happens: `{until}` holds no later than `{when}`")]
    NeverMade { when: Condition, until: Condition },
    /// An event whose end is a counter that it stops.
    #[error("`{until}` may never hold, because the link delivers nothing while `state={state}`")]
    StopsItself { until: Condition, state: LinkState },
}

impl LinkWarning {
    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoRate(_) | Self::NoCapacity(_) => {
                "change it with `lab set` while the lab runs, or use state=silent for a dead link"
            }
            Self::AllLost(_) => "use state=silent for a dead link; loss=1% loses one packet of 100",
            Self::TooFast { .. } => {
                "`manyways lab bench` measures the maximum rate on this machine"
            }
            Self::NeverMade { .. } => {
                "`until` needs a larger value, or the counter of another link"
            }
            Self::StopsItself { .. } => "use the counter of another link for `until`",
        }
    }
}

/// Returns the probably unintended settings of a link.
pub fn link_warnings(link: &LinkSpec) -> Vec<LinkWarning> {
    let mut found: Vec<LinkWarning> =
        [("down", &link.down), ("up", &link.up)].into_iter().filter_map(capacity_warning).collect();
    match [&link.down, &link.up].map(loses_all) {
        [true, true] => found.push(LinkWarning::AllLost("loss")),
        [true, false] => found.push(LinkWarning::AllLost("down-loss")),
        [false, true] => found.push(LinkWarning::AllLost("up-loss")),
        [false, false] => {}
    }
    found
}

/// Returns the probably unintended settings in changes of a link.
pub fn change_warnings(changes: &[Change]) -> Vec<LinkWarning> {
    // The default settings cause no doubt.
    let mut link = LinkSpec::new("changed");
    changes.iter().for_each(|change| link.apply(change));
    link_warnings(&link)
}

/// Returns the probably unintended conditions of an event, and settings in its changes.
pub fn event_warnings(event: &Event) -> Vec<LinkWarning> {
    let mut found = change_warnings(&event.change);
    let Some(until) = &event.until else { return found };
    if let Some(when) = &event.when
        && (&when.link, when.counter) == (&until.link, until.counter)
        && when.least >= until.least
    {
        found.push(LinkWarning::NeverMade { when: when.clone(), until: until.clone() });
    }
    let state = event.change.iter().find_map(|change| match change {
        Change::State(state) if *state != LinkState::Up => Some(*state),
        _ => None,
    });
    if let Some(state) = state
        && until.link == event.link
        && matches!(until.counter, Counter::DownBytes | Counter::UpBytes)
    {
        found.push(LinkWarning::StopsItself { until: until.clone(), state });
    }
    found
}

fn capacity_warning((key, direction): (&'static str, &DirectionSpec)) -> Option<LinkWarning> {
    let (rate, none) = match &direction.capacity {
        CapacitySpec::Unlimited => return None,
        CapacitySpec::Constant(rate) => (*rate, LinkWarning::NoRate(key)),
        CapacitySpec::Trace { trace, .. } => (max_rate(trace), LinkWarning::NoCapacity(key)),
    };
    if rate.is_zero() {
        Some(none)
    } else if rate > MAX_FORWARDING_RATE {
        Some(LinkWarning::TooFast { key, rate })
    } else {
        None
    }
}

fn max_rate(trace: &LinkTrace) -> Rate {
    match trace {
        LinkTrace::Rates(steps) => {
            steps.steps().iter().map(|(_, rate)| *rate).max().unwrap_or_default()
        }
        // Opportunities can coincide; only over a period do they have a rate.
        LinkTrace::Opportunities { .. } => Rate::of(trace.size_per_period(), trace.period()),
    }
}

fn loses_all(direction: &DirectionSpec) -> bool {
    match direction.loss {
        LossSpec::None => false,
        LossSpec::Independent(loss) => loss >= 1.0,
        LossSpec::GilbertElliott { loss_good, loss_bad, .. } => loss_good.min(loss_bad) >= 1.0,
    }
}

#[cfg(test)]
mod tests {
    use manyways_trace::link_text;
    use manyways_unit::Span;

    use super::*;

    #[test]
    fn events_that_block_themselves() {
        let event = |when: &str, until: &str, change: &str| Event {
            when: link_text::condition(when).ok(),
            at: Span::ZERO,
            until: link_text::condition(until).ok(),
            link: "wifi".into(),
            change: link_text::changes([change], &mut |_| unreachable!()).unwrap(),
        };
        for (when, until, change, count) in [
            ("wifi.down_bytes >= 3KB", "lte.down_bytes >= 1KB", "state=paused", 0),
            ("wifi.down_bytes >= 3KB", "wifi.down_bytes >= 5KB", "down=1mbit", 0),
            ("wifi.down_bytes >= 3KB", "wifi.up_bytes >= 1KB", "down=1mbit", 0),
            ("", "wifi.down_dropped >= 5", "state=silent", 0),
            ("wifi.down_bytes >= 3KB", "wifi.down_bytes >= 5KB", "state=paused", 1),
            ("lte.down_bytes >= 3KB", "lte.down_bytes >= 3KB", "down=1mbit", 1),
            ("", "", "state=silent", 0),
        ] {
            let found = event_warnings(&event(when, until, change));
            assert_eq!(found.len(), count, "{when}, {until}, {change}: {found:?}");
        }
    }

    fn warnings(text: &str) -> Vec<LinkWarning> {
        let mut read = |file: &str| match file {
            "zeros" => Ok(b"0 0\n1 0\n".to_vec()),
            "burst" => Ok(b"0 0\n1 40000\n2 0\n".to_vec()),
            _ => Err("no such file".to_owned()),
        };
        let doubts = link_warnings(&LinkSpec::parse(text, &mut read).unwrap());
        let words = text.split_once(':').map_or("", |(_, words)| words).split(',');
        if let Ok(changes) = link_text::changes(words, &mut read) {
            assert_eq!(change_warnings(&changes), doubts, "{text}");
        }
        doubts
    }

    #[test]
    fn a_link_that_carries_nothing_is_doubted() {
        assert_eq!(warnings("wifi:down=0"), [LinkWarning::NoRate("down")]);
        assert_eq!(warnings("wifi:up=0bit"), [LinkWarning::NoRate("up")]);
        assert_eq!(warnings("wifi:down=trace:zeros"), [LinkWarning::NoCapacity("down")]);
        assert_eq!(warnings("wifi:loss=100%"), [LinkWarning::AllLost("loss")]);
        assert_eq!(warnings("wifi:up-loss=100%"), [LinkWarning::AllLost("up-loss")]);
        assert_eq!(warnings("wifi:loss=ge:1%:1%:100%:100%"), [LinkWarning::AllLost("loss")]);
        assert_eq!(warnings("wifi:loss=ge:1%:1%,down=10mbit,state=silent"), []);
        assert_eq!(warnings("wifi"), []);
    }

    #[test]
    fn a_rate_beyond_the_emulators_is_doubted() {
        let too_fast = |key, gigabits: u64| {
            vec![LinkWarning::TooFast { key, rate: Rate::from_mbps(1_000 * gigabits) }]
        };
        assert_eq!(warnings("wifi:down=100gbit"), too_fast("down", 100));
        assert_eq!(warnings("wifi:up=trace:burst"), too_fast("up", 40));
        assert_eq!(warnings("wifi:down=10gbit,up=unlimited"), []);
        let said = too_fast("down", 100)[0].to_string();
        assert_eq!(said, "`down` is 100 Gbit/s, but the emulator forwards at most about 10 Gbit/s");
    }
}
