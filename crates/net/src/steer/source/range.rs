//! Values that an indicator can have. A driver or modem may report anything.

use manyways_model::select::Indicator;
use thiserror::Error;

/// A value that its source cannot have measured; the `Display` is one sentence.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[error(
    "it reports {} = {}, which is not between {low} and {high}{}",
    .indicator.name(), short(*.value), unit(*.indicator)
)]
pub struct Implausible {
    pub indicator: Indicator,
    pub value: f64,
    /// Smallest and greatest possible value.
    pub low: f64,
    pub high: f64,
}

/// Returns the value if it is possible.
///
/// # Errors
/// It is not a number, or outside of the range of reports in the specifications: TS 36.133, 9.1,
/// and TS 38.133, 10.1, whichever is wider, and for the CQI TS 36.213, 7.2.3.
pub fn check(indicator: Indicator, value: f64) -> Result<f64, Implausible> {
    let (low, high) = range(indicator);
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(Implausible { indicator, value, low, high }),
    }
}

fn range(indicator: Indicator) -> (f64, f64) {
    match indicator {
        // Of Wi-Fi and of all cellular networks. A driver without a measurement reports 0.
        Indicator::Rssi => (-120.0, -1.0),
        Indicator::Rsrp => (-156.0, -31.0),
        Indicator::Rsrq => (-43.0, 20.0),
        Indicator::Snr => (-23.0, 40.0),
        Indicator::Cqi => (0.0, 15.0),
        // Wi-Fi 7 has 46 Gbit/s.
        Indicator::LinkRate => (0.1, 50_000.0),
        Indicator::AccessPoints => (0.0, 10_000.0),
        Indicator::OwnRate | Indicator::UdpRate => (0.0, 1e6),
        Indicator::UdpLoss => (0.0, 1.0),
        // Seconds.
        _ => (0.0, 600.0),
    }
}

/// A number without hundreds of digits.
fn short(value: f64) -> String {
    let is_short = value == 0.0 || (1e-6..1e12).contains(&value.abs()) || !value.is_finite();
    if is_short { value.to_string() } else { format!("{value:e}") }
}

/// The unit as the end of a sentence, empty if there is none.
fn unit(indicator: Indicator) -> &'static str {
    match indicator {
        Indicator::Rssi | Indicator::Rsrp => " dBm",
        Indicator::Rsrq | Indicator::Snr => " dB",
        Indicator::LinkRate | Indicator::OwnRate | Indicator::UdpRate => " Mbit/s",
        Indicator::Cqi | Indicator::AccessPoints | Indicator::UdpLoss => "",
        _ => " s",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_values_pass_and_absurd_ones_are_named() {
        for (indicator, value) in [
            (Indicator::Rsrp, -156.0),
            (Indicator::Rsrp, -97.5),
            (Indicator::Rsrq, -19.5),
            (Indicator::Snr, 40.0),
            (Indicator::Cqi, 0.0),
            (Indicator::Rssi, -61.0),
        ] {
            assert_eq!(check(indicator, value), Ok(value));
        }
        for (indicator, value) in [
            (Indicator::Rsrp, -157.0),
            (Indicator::Rsrp, 0.0),
            (Indicator::Rsrq, f64::NAN),
            (Indicator::Snr, f64::INFINITY),
            (Indicator::Cqi, -1.0),
            (Indicator::Rssi, 0.0),
            (Indicator::LinkRate, 0.0),
        ] {
            assert!(check(indicator, value).is_err(), "{indicator:?} {value}");
        }
        let message = |indicator, value| check(indicator, value).unwrap_err().to_string();
        let expected = "it reports rsrp = 32767, which is not between -156 and -31 dBm";
        assert_eq!(message(Indicator::Rsrp, 32_767.0), expected);
        let expected = "it reports snr = -1e300, which is not between -23 and 40 dB";
        assert_eq!(message(Indicator::Snr, -1e300), expected);
        let expected = "it reports cqi = NaN, which is not between 0 and 15";
        assert_eq!(message(Indicator::Cqi, f64::NAN), expected);
    }
}
