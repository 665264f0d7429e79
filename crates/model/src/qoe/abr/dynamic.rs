//! DYNAMIC (Spiteri, Sitaraman, Sparacio: From Theory to Practice, MMSys 2018): the throughput rule
//! while the buffer is low, and BOLA above.

use super::bola::Bola;
use super::throughput::Throughput;
use super::{Decision, Progress, Rule, View};
use crate::qoe::film::Film;

/// Level in seconds at which the rules change.
const LOW_BUFFER: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Dynamic {
    bola: Bola,
    throughput: Throughput,
    is_bola: bool,
}

impl Dynamic {
    pub(super) fn new(film: &Film, max_buffer: f64) -> Self {
        let bola = Bola::new(film, max_buffer);
        Self { bola, throughput: Throughput::default(), is_bola: false }
    }
}

impl Rule for Dynamic {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        // Both decide always, because both keep a state.
        let (bola, throughput) = (self.bola.decide(view), self.throughput.decide(view));
        if self.is_bola {
            self.is_bola = view.level >= LOW_BUFFER || bola.rung >= throughput.rung;
        } else {
            self.is_bola = view.level > LOW_BUFFER && bola.rung >= throughput.rung;
        }
        if self.is_bola { bola } else { throughput }
    }

    fn abandon(&mut self, view: &View<'_>, progress: &Progress) -> Option<usize> {
        self.throughput.abandon(view, progress)
    }
}
