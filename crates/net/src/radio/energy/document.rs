//! The result as JSON.

use manyways_model::radio::EnergyShare;
use manyways_model::radio::energy::Battery;
use serde::Serialize;

use super::{Measured, total};

/// The output of `radio energy --json`.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Whether a signal stopped the run; all values are of the packets read until then.
    stopped: bool,
    /// Whether all radios belong to one device.
    device: bool,
    /// Sum of all radios, if they belong to one device.
    joules: Option<f64>,
    voltage: f64,
    battery_mah: Option<f64>,
    radios: Vec<Radio>,
}

manyways_record::document!(Document, "manyways.radio-energy/2");

#[derive(Debug, Serialize)]
struct Radio {
    trace: String,
    profile: String,
    packets: u64,
    /// Packets of other kinds of networks.
    skipped: u64,
    up_bytes: u64,
    down_bytes: u64,
    seconds: f64,
    joules: f64,
    /// Energy of connected states without a transfer, demotions and promotions.
    tail_joules: f64,
    /// Energy of transfers by direction.
    send_joules: f64,
    receive_joules: f64,
    send_seconds: f64,
    receive_seconds: f64,
    demotion_joules: f64,
    promotion_joules: f64,
    /// Packets that found the radio released.
    switches: u64,
    states: Vec<State>,
    joules_a_day: Option<f64>,
    mah: f64,
    mah_a_day: Option<f64>,
    battery_share_a_day: Option<f64>,
    /// Energy of the released radio.
    idle_joules: f64,
    divided_among: &'static str,
    owners: Vec<Owner>,
    bursts: Vec<Bursts>,
    periodic: Vec<Periodic>,
}

#[derive(Debug, Serialize)]
struct State {
    name: String,
    seconds: f64,
    joules: f64,
}

#[derive(Debug, Serialize)]
struct Owner {
    /// `None` for the sum of further owners.
    name: Option<String>,
    packets: u64,
    up_bytes: u64,
    down_bytes: u64,
    joules: f64,
    transfer_joules: f64,
    tail_joules: f64,
    promotion_joules: f64,
    switches: u64,
}

#[derive(Debug, Serialize)]
struct Bursts {
    kind: &'static str,
    bursts: u64,
    bytes: u64,
    seconds: f64,
    joules: f64,
}

#[derive(Debug, Serialize)]
struct Periodic {
    application: String,
    interval_seconds: f64,
    bursts: u64,
}

impl Document {
    /// If `is_device`, all radios belong to one device. If `is_stopped`, a signal stopped the run.
    pub fn new(
        measured: &[Measured],
        battery: &Battery,
        is_device: bool,
        is_stopped: bool,
    ) -> Self {
        Self {
            stopped: is_stopped,
            device: is_device,
            joules: (is_device || measured.len() == 1).then(|| total(measured)),
            voltage: battery.volts,
            battery_mah: battery.capacity,
            radios: measured.iter().map(|one| radio(one, battery)).collect(),
        }
    }
}

fn radio(measured: &Measured, battery: &Battery) -> Radio {
    let energies = &measured.energies;
    let account = &energies.account;
    let states = measured.radio.profile.states.iter().enumerate();
    let a_day = measured.daily_joules();
    let owners = energies.owners.iter().map(|(name, share)| owner(Some(name.clone()), share));
    let others = (energies.others.packets > 0).then(|| owner(None, &energies.others));
    Radio {
        trace: measured.trace.clone(),
        profile: measured.radio.name.clone(),
        packets: measured.trace_stats.packets,
        skipped: measured.trace_stats.skipped,
        up_bytes: account.bytes[0],
        down_bytes: account.bytes[1],
        seconds: measured.trace_stats.lasts(),
        joules: account.total(),
        tail_joules: account.tail_energy(),
        send_joules: account.transfer_energy[0],
        receive_joules: account.transfer_energy[1],
        send_seconds: account.transfer_time[0].as_secs_f64(),
        receive_seconds: account.transfer_time[1].as_secs_f64(),
        demotion_joules: account.demotion_energy,
        promotion_joules: account.promotion_energy,
        switches: account.promotion_count,
        states: states
            .map(|(place, state)| State {
                name: state.name.clone(),
                seconds: account.state_time[place].as_secs_f64(),
                joules: account.state_energy[place],
            })
            .collect(),
        joules_a_day: a_day,
        mah: battery.mah(account.total()),
        mah_a_day: a_day.map(|joules| battery.mah(joules)),
        battery_share_a_day: a_day.and_then(|joules| battery.share(joules)),
        idle_joules: energies.idle,
        divided_among: energies.by.name(),
        owners: owners.chain(others).collect(),
        bursts: energies
            .bursts
            .iter()
            .map(|(kind, total)| Bursts {
                kind: kind.name(),
                bursts: total.bursts,
                bytes: total.bytes,
                seconds: total.time.as_secs_f64(),
                joules: total.cost,
            })
            .collect(),
        periodic: energies
            .periods
            .iter()
            .map(|(application, period)| Periodic {
                application: application.clone(),
                interval_seconds: period.interval.as_secs_f64(),
                bursts: period.bursts,
            })
            .collect(),
    }
}

fn owner(name: Option<String>, share: &EnergyShare) -> Owner {
    Owner {
        name,
        packets: share.packets,
        up_bytes: share.bytes[0],
        down_bytes: share.bytes[1],
        joules: share.total(),
        transfer_joules: share.transfer,
        tail_joules: share.tail,
        promotion_joules: share.promotion,
        switches: share.promotion_count,
    }
}
