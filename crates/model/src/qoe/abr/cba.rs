//! CBA: capacity-based adaptation, as in the measurements of Mobilyzer (§4.5.2).

use super::{Decision, Rule, View, sustainable};

/// The highest bitrate that is not above the estimate of the throughput.
#[derive(Debug)]
pub(super) struct Cba;

impl Rule for Cba {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        let rung =
            view.network.map_or(0, |network| sustainable(view.film, network.throughput, 0.0));
        Decision { rung, wait: 0.0 }
    }
}
