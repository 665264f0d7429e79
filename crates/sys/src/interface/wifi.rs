//! The signal and the bit rates of a Wi-Fi client, from `nl80211`: `linux/nl80211.h`.

mod generic;

use std::io;

use manyways_unit::{Rate, Span};
use nix::net::if_::if_nametoindex;
use thiserror::Error;

use generic::{Generic, Question, attributes};

const GET_INTERFACE: u8 = 5;
const NEW_INTERFACE: u8 = 7;
const GET_STATION: u8 = 17;
const NEW_STATION: u8 = 19;

const ATTR_INTERFACE: u16 = 3;
const ATTR_MODE: u16 = 5;
const ATTR_STATION: u16 = 21;

const SIGNAL: u16 = 7;
const TX_RATE: u16 = 8;
const SIGNAL_AVERAGE: u16 = 13;
const RX_RATE: u16 = 14;
const FLAGS: u16 = 17;
/// Both in units of 100 kbit/s.
const RATE_16: u16 = 1;
const RATE_32: u16 = 5;
const FLAG_TDLS_PEER: u32 = 1 << 6;

/// Client of an access point, or of a Wi-Fi Direct group.
const CLIENT_MODES: [u32; 2] = [2, 8];

/// Time for all answers of the kernel.
const TIMEOUT: Span = Span::from_secs(2);

/// The access point of a client as its radio receives it; what the driver does not report is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Station {
    /// Signal strength of the last received frame in dBm.
    pub signal: Option<i8>,
    /// Moving average of the signal strength in dBm.
    pub signal_average: Option<i8>,
    /// Physical rate of the last frame that was sent.
    pub sent_rate: Option<Rate>,
    /// Physical rate of the last frame that was received. Without traffic it is that of beacons.
    pub received_rate: Option<Rate>,
}

/// Reason why there is no signal; the `Display` is one sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WifiError {
    #[error("the host has no interface of this name")]
    NoInterface,
    #[error("the kernel has no nl80211, so no Wi-Fi")]
    NoWifi,
    #[error("it is not a Wi-Fi interface")]
    OtherKind,
    #[error("it is not a client of an access point")]
    NotClient,
    #[error("it is not connected to an access point")]
    NotConnected,
    #[error("nl80211 did not answer within {TIMEOUT}")]
    Timeout,
    #[error("nl80211 failed: {0}")]
    Netlink(#[source] io::Error),
}

/// Returns what the radio of a Wi-Fi client receives from its access point, in the network namespace
/// of the calling thread. Needs no privileges. Usually returns at once, and after two seconds at
/// the latest if the kernel does not answer.
///
/// # Errors
/// If the interface is not a connected Wi-Fi client, or the kernel does not answer.
pub fn station(interface: &str) -> Result<Station, WifiError> {
    let index = if_nametoindex(interface).map_err(|_| WifiError::NoInterface)?.to_ne_bytes();
    let failed = |error: io::Error| match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::TimedOut, _) => WifiError::Timeout,
        (_, Some(libc::ENODEV | libc::EOPNOTSUPP)) => WifiError::OtherKind,
        _ => WifiError::Netlink(error),
    };
    let mut generic = Generic::open(TIMEOUT).map_err(failed)?;
    let family = generic.family("nl80211").map_err(failed)?.ok_or(WifiError::NoWifi)?;
    let question = |command, is_dump| Question {
        family,
        command,
        is_dump,
        attribute: (ATTR_INTERFACE, &index),
    };

    let mut mode = None;
    let asked = generic.ask(&question(GET_INTERFACE, false), |command, payload| {
        mode = mode.or(read_mode(command, payload));
    });
    asked.map_err(failed)?;
    match mode {
        None => return Err(WifiError::OtherKind),
        Some(mode) if !CLIENT_MODES.contains(&mode) => return Err(WifiError::NotClient),
        Some(_) => {}
    }
    let mut found = None;
    let asked = generic.ask(&question(GET_STATION, true), |command, payload| {
        found = found.or(read_station(command, payload));
    });
    asked.map_err(failed)?;
    found.ok_or(WifiError::NotConnected)
}

/// The access points in one datagram of the kernel's answer. Anything that is malformed is skipped:
/// a driver may report anything.
pub fn read_stations(datagram: &[u8]) -> Vec<Station> {
    let mut found = Vec::new();
    for (_, sequence, message) in super::kernel::messages(datagram) {
        // An error or the end in one message does not hide the others.
        let _ = generic::read(message, sequence, true, |command, payload| {
            found.extend(read_station(command, payload));
        });
    }
    found
}

fn read_mode(command: u8, payload: &[u8]) -> Option<u32> {
    let (_, value) = attributes(payload).find(|(kind, _)| *kind == ATTR_MODE)?;
    (command == NEW_INTERFACE).then(|| number(value))?
}

fn read_station(command: u8, payload: &[u8]) -> Option<Station> {
    if command != NEW_STATION {
        return None;
    }
    let (_, facts) = attributes(payload).find(|(kind, _)| *kind == ATTR_STATION)?;
    let mut station = Station::default();
    for (kind, value) in attributes(facts) {
        let signal = || value.first().map(|byte| i8::from_ne_bytes([*byte]));
        match kind {
            SIGNAL => station.signal = signal(),
            SIGNAL_AVERAGE => station.signal_average = signal(),
            TX_RATE => station.sent_rate = rate(value),
            RX_RATE => station.received_rate = rate(value),
            // Mask and values. A client may also have direct links to its neighbours.
            FLAGS
                if value.get(4..).and_then(number).is_some_and(|set| set & FLAG_TDLS_PEER > 0) =>
            {
                return None;
            }
            _ => {}
        }
    }
    Some(station)
}

/// The physical rate in nested attributes; `None` if the driver does not know it.
fn rate(value: &[u8]) -> Option<Rate> {
    let (mut short, mut long) = (None, None);
    for (kind, value) in attributes(value) {
        match kind {
            // The wider one exists because rates outgrew the other.
            RATE_16 => short = value.first_chunk().map(|rate| u32::from(u16::from_ne_bytes(*rate))),
            RATE_32 => long = number(value),
            _ => {}
        }
    }
    let tenths = long.or(short).filter(|tenths| *tenths > 0)?;
    Some(Rate::from_kbps(u64::from(tenths) * 100))
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|value| u32::from_ne_bytes(*value))
}

#[cfg(test)]
mod tests;
