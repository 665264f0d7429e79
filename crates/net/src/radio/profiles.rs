//! Key figures of profiles as JSON.

use manyways_model::radio::profiles::Known;
use manyways_model::radio::{NEVER, SleepTradeoff};
use manyways_unit::Span;
use serde::Serialize;

/// The output of `radio profiles --json`.
#[derive(Debug, Serialize)]
pub struct Document {
    pub profiles: Vec<KeyFigures>,
}

/// Key figures of a profile.
#[derive(Debug, Serialize)]
pub struct KeyFigures {
    pub name: String,
    pub title: String,
    pub technology: &'static str,
    pub send_watts: f64,
    pub receive_watts: f64,
    pub send_joules_per_mbit: f64,
    pub receive_joules_per_mbit: f64,
    pub burst_gap_seconds: f64,
    pub states: Vec<State>,
    /// `None` if the network never releases the radio.
    pub tail_seconds: Option<f64>,
    pub tail_joules: Option<f64>,
    pub switch_joules: f64,
    /// `None` if immediate fast dormancy never saves energy.
    pub threshold_seconds: Option<f64>,
}

/// A radio state in a document.
#[derive(Debug, Serialize)]
pub struct State {
    pub name: String,
    pub watts: f64,
    /// Mean over a DRX cycle.
    pub mean_watts: f64,
    pub timer_seconds: Option<f64>,
    pub listen_every_seconds: Option<f64>,
    pub listen_for_seconds: Option<f64>,
    pub listen_watts: Option<f64>,
    pub demotion_joules: f64,
    pub promotion_joules: f64,
    pub promotion_delay_seconds: f64,
    pub released: bool,
    pub dormant: bool,
    pub source: String,
}

manyways_record::document!(Document, "manyways.radio-profiles/1");

impl KeyFigures {
    pub fn of(known: &Known) -> Self {
        let Known { name, profile } = known;
        let choice = SleepTradeoff::of(profile);
        let finite = |span: Span| (span < NEVER).then_some(span);
        let tail = finite(choice.stay.idle_after());
        let transfer = &profile.transfer;
        let states = profile.states.iter().enumerate().map(|(place, state)| State {
            name: state.name.clone(),
            watts: state.power.as_watts(),
            mean_watts: state.mean_power().as_watts(),
            timer_seconds: state.timer.map(|timer| timer.as_secs_f64()),
            listen_every_seconds: state.drx.map(|listens| listens.cycle.as_secs_f64()),
            listen_for_seconds: state.drx.map(|listens| listens.on_duration.as_secs_f64()),
            listen_watts: state.drx.map(|listens| listens.power.as_watts()),
            demotion_joules: state.demotion.as_joules(),
            promotion_joules: state.promotion.as_joules(),
            promotion_delay_seconds: state.promotion_delay.as_secs_f64(),
            released: state.is_idle,
            dormant: place == profile.dormant,
            source: state.source.clone(),
        });
        Self {
            name: name.clone(),
            title: profile.title.clone(),
            technology: profile.technology.name(),
            send_watts: transfer.send.as_watts(),
            receive_watts: transfer.receive.as_watts(),
            send_joules_per_mbit: transfer.send_per_mbit.as_joules(),
            receive_joules_per_mbit: transfer.receive_per_mbit.as_joules(),
            burst_gap_seconds: transfer.burst_gap.as_secs_f64(),
            states: states.collect(),
            tail_seconds: tail.map(Span::as_secs_f64),
            tail_joules: tail.map(|tail| choice.stay.energy(tail)),
            switch_joules: choice.switch_energy().as_joules(),
            threshold_seconds: finite(choice.threshold()).map(Span::as_secs_f64),
        }
    }
}
