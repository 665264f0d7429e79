//! The result as JSON.

use manyways_model::radio::Share;
use serde::Serialize;

use super::measure::{By, Measured};
use super::{Battery, total};

#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
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

#[derive(Serialize)]
struct Radio {
    trace: String,
    profile: String,
    packets: u64,
    /// Packets of other kinds of networks.
    left_out: u64,
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

#[derive(Serialize)]
struct State {
    name: String,
    seconds: f64,
    joules: f64,
}

#[derive(Serialize)]
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

#[derive(Serialize)]
struct Bursts {
    kind: &'static str,
    bursts: u64,
    bytes: u64,
    seconds: f64,
    joules: f64,
}

#[derive(Serialize)]
struct Periodic {
    application: String,
    every_seconds: f64,
    bursts: u64,
}

pub fn document(
    measured: &[Measured],
    battery: &Battery,
    is_device: bool,
    is_stopped: bool,
) -> Document {
    Document {
        schema: "manyways.radio-energy/1",
        stopped: is_stopped,
        device: is_device,
        joules: (is_device || measured.len() == 1).then(|| total(measured)),
        voltage: battery.volts,
        battery_mah: battery.capacity,
        radios: measured.iter().map(|one| radio(one, battery)).collect(),
    }
}

fn radio(measured: &Measured, battery: &Battery) -> Radio {
    let account = &measured.account;
    let states = measured.states().into_iter().enumerate();
    let a_day = measured.a_day();
    let owners = measured.owners.iter().map(|(name, share)| owner(Some(name.clone()), share));
    let others = (measured.others.packets > 0).then(|| owner(None, &measured.others));
    Radio {
        trace: measured.trace.clone(),
        profile: measured.known.name.clone(),
        packets: measured.seen.packets,
        left_out: measured.seen.left_out,
        up_bytes: account.bytes[0],
        down_bytes: account.bytes[1],
        seconds: measured.lasts(),
        joules: account.total(),
        tail_joules: account.tail(),
        send_joules: account.transfer[0],
        receive_joules: account.transfer[1],
        send_seconds: account.transfer_secs[0],
        receive_seconds: account.transfer_secs[1],
        demotion_joules: account.demotions,
        promotion_joules: account.promotions,
        switches: account.switches,
        states: states
            .map(|(place, name)| State {
                name,
                seconds: account.state_secs[place],
                joules: account.states[place],
            })
            .collect(),
        joules_a_day: a_day,
        mah: battery.mah(account.total()),
        mah_a_day: a_day.map(|joules| battery.mah(joules)),
        battery_share_a_day: a_day.and_then(|joules| battery.share(joules)),
        idle_joules: measured.idle,
        divided_among: match measured.by {
            By::Application => "application",
            By::Flow => "flow",
        },
        owners: owners.chain(others).collect(),
        bursts: measured
            .bursts
            .iter()
            .map(|(kind, total)| Bursts {
                kind: kind.name(),
                bursts: total.bursts,
                bytes: total.bytes,
                seconds: total.secs,
                joules: total.spent,
            })
            .collect(),
        periodic: measured
            .periods
            .iter()
            .map(|(application, period)| Periodic {
                application: application.clone(),
                every_seconds: period.every,
                bursts: period.bursts,
            })
            .collect(),
    }
}

fn owner(name: Option<String>, share: &Share) -> Owner {
    Owner {
        name,
        packets: share.packets,
        up_bytes: share.bytes[0],
        down_bytes: share.bytes[1],
        joules: share.total(),
        transfer_joules: share.transfer,
        tail_joules: share.tail,
        promotion_joules: share.promotion,
        switches: share.switches,
    }
}
