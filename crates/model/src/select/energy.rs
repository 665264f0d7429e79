//! The energy of a transfer: what a device spends because of it, and would not spend without it.

use manyways_unit::{Size, Span};

use crate::radio::{Profile, TailEnergy};

/// Joules of transfers over one network, from the state in which its radio is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TransferEnergy {
    watts: f64,
    joules_per_byte: f64,
    /// Promotion, and the tail that would not be there without the transfer.
    fixed: f64,
}

impl TransferEnergy {
    /// The model of the thesis (§3.5.2): a constant power, and a constant energy of the tail. For
    /// downloads, table 3.4 has 1.674 W for LTE and 0.428 W for Wi-Fi.
    pub fn constant(watts: f64, tail: f64) -> Self {
        Self { watts, joules_per_byte: 0.0, fixed: tail }
    }

    /// The marginal energy of a download by a radio profile.
    ///
    /// A radio that is awake needs no promotion, and only the part of the tail by which the transfer
    /// prolongs it. `since` is the time since the last packet; `None` if the radio is released.
    pub fn of_download(profile: &Profile, since: Option<Span>) -> Self {
        let transfer = &profile.transfer;
        let per_byte = transfer.receive_per_mbit.as_joules() * 8e-6;
        Self::marginal(profile, since, transfer.receive.as_watts(), per_byte)
    }

    /// The same of an upload.
    pub fn of_upload(profile: &Profile, since: Option<Span>) -> Self {
        let transfer = &profile.transfer;
        let per_byte = transfer.send_per_mbit.as_joules() * 8e-6;
        Self::marginal(profile, since, transfer.send.as_watts(), per_byte)
    }

    fn marginal(profile: &Profile, since: Option<Span>, watts: f64, joules_per_byte: f64) -> Self {
        let tail = TailEnergy::from_state(profile, 0);
        let fixed = match since.filter(|since| *since <= tail.idle_after()) {
            Some(since) => tail.energy(since) + tail.promotion(since),
            None => tail.energy_until_idle() + tail.promotion(Span::MAX),
        };
        Self { watts, joules_per_byte, fixed }
    }

    /// Of a transfer that takes this long.
    pub fn joules(&self, bytes: Size, seconds: f64) -> f64 {
        self.watts * seconds + self.joules_per_byte * bytes.as_bytes() as f64 + self.fixed
    }

    /// Both networks carry the transfer, each a half of it.
    pub fn with(self, other: Self) -> Self {
        Self {
            watts: self.watts + other.watts,
            joules_per_byte: (self.joules_per_byte + other.joules_per_byte) / 2.0,
            fixed: self.fixed + other.fixed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::profiles::named;

    fn joules(energy: TransferEnergy) -> f64 {
        energy.joules(Size::from_bytes(1_000_000), 2.0)
    }

    #[test]
    fn a_radio_that_is_awake_costs_only_what_the_transfer_adds() {
        let profile = named("lte").unwrap().unwrap();
        let of = |since| joules(TransferEnergy::of_download(&profile, since));
        let busy = of(Some(Span::ZERO));
        let transfer = &profile.transfer;
        let expected =
            2.0 * transfer.receive.as_watts() + 8.0 * transfer.receive_per_mbit.as_joules();
        assert!((busy - expected).abs() < 1e-9, "{busy} {expected}");
        let secs = [0, 1, 3, 5, 8].map(|secs| of(Some(Span::from_secs(secs))));
        assert!(secs.is_sorted(), "{secs:?}");
        let released = of(None);
        assert!(secs[4] < released, "{secs:?} {released}");
        assert_eq!(released, of(Some(Span::from_secs(3_600))));
        let tail = TailEnergy::from_state(&profile, 0);
        let whole = tail.energy_until_idle() + tail.promotion(Span::MAX);
        assert!((released - busy - whole).abs() < 1e-9);
    }

    #[test]
    fn two_networks_take_the_power_of_both() {
        let (wifi, lte) =
            (TransferEnergy::constant(0.428, 0.0), TransferEnergy::constant(1.674, 5.0));
        assert!((joules(wifi.with(lte)) - (2.0 * 2.102 + 5.0)).abs() < 1e-9);
    }

    #[test]
    fn an_upload_takes_the_power_of_sending() {
        for name in ["lte", "delphi-lte"] {
            let profile = named(name).unwrap().unwrap();
            let transfer = &profile.transfer;
            let busy = joules(TransferEnergy::of_upload(&profile, Some(Span::ZERO)));
            let expected =
                2.0 * transfer.send.as_watts() + 8.0 * transfer.send_per_mbit.as_joules();
            assert!((busy - expected).abs() < 1e-9, "{name}: {busy} {expected}");
            let down = joules(TransferEnergy::of_download(&profile, Some(Span::ZERO)));
            assert!(busy > down + 0.1, "{name}: sending costs more: {busy} {down}");
        }
    }

    #[test]
    fn a_byte_over_two_networks_costs_the_mean_and_both_tails() {
        let of = |joules_per_byte, fixed| TransferEnergy { watts: 0.0, joules_per_byte, fixed };
        let both = of(1e-6, 2.0).with(of(3e-6, 5.0));
        assert!((joules(both) - (2.0 + 7.0)).abs() < 1e-9);
    }

    #[test]
    fn a_radio_that_is_half_awake_needs_the_promotion_from_its_state() {
        let profile = named("3g-i997").unwrap().unwrap();
        let tail = TailEnergy::from_state(&profile, 0);
        let of = |since| joules(TransferEnergy::of_download(&profile, Some(since)));
        let mut seconds = (0..=60).map(Span::from_secs);
        let promoted = |since: &Span| tail.promotion(*since) > 0.0 && *since < tail.idle_after();
        let since = seconds.find(promoted).expect("a state between");
        let fixed = of(since) - of(Span::ZERO);
        assert!((fixed - tail.energy(since) - tail.promotion(since)).abs() < 1e-9, "{fixed}");
    }
}
