//! Replays of a page load in virtual time.

mod delays;
mod engine;
mod events;
mod link;
mod pool;
mod trail;

use manyways_unit::{Span, Time};

use super::graph::Graph;

/// Difference of a replay from the recorded load.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Change {
    /// Of all round trips and DNS queries.
    pub rtt_factor: f64,
    /// Of the bottleneck's capacity.
    pub rate_factor: f64,
    /// Of the time of every task of the main thread.
    pub cpu_factor: f64,
    /// Requests take no time in the network: the load is computation only.
    pub cached: bool,
    /// Requests whose server answers later, by their indices in
    /// [`Load::requests`](super::Load::requests), and how much. Unknown requests are ignored.
    pub added_delays: Vec<(usize, Span)>,
}

impl Default for Change {
    fn default() -> Self {
        Self {
            rtt_factor: 1.0,
            rate_factor: 1.0,
            cpu_factor: 1.0,
            cached: false,
            added_delays: Vec::new(),
        }
    }
}

/// Times of all activities in a replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// Page-interactive time of Mobilyzer (4.5.1.1): the document is constructed and rendered for the
    /// first time. It is the later one of `domInteractive` and of the first contentful paint.
    pub page_interactive: Time,
    /// Page load time: the end of the load event.
    pub page_load: Time,
    /// First and largest contentful paint, if the load has these marks.
    pub first_contentful_paint: Option<Time>,
    pub largest_contentful_paint: Option<Time>,
    /// One for each of [`Load::requests`](super::Load::requests).
    pub requests: Vec<RequestTimes>,
    /// One for each of [`Graph::tasks`]: start and end.
    pub tasks: Vec<(Time, Time)>,
    pub(super) trail: trail::Trail,
}

/// Times of a request in a replay, each not before the one above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestTimes {
    /// The page needs the object.
    pub issued: Time,
    /// The browser begins to look for a connection.
    pub started: Time,
    pub sent: Time,
    pub first_byte: Time,
    pub ended: Time,
}

impl Graph {
    /// Replays the load with a change. Without a change, the result is the load as it was recorded,
    /// except where the model of connections and of the bottleneck differs from it. Terminates
    /// for every load. Factors that are negative or not finite, and rate factors below a
    /// millionth, are taken as 1; greater ones than a million as a million.
    pub fn replay(&self, change: &Change) -> Replay {
        engine::run(self, change)
    }
}
