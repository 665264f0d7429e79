//! TCP's slow start in closed form.

/// Initial congestion window in bytes (RFC 6928).
pub(crate) const INITIAL_WINDOW: f64 = 14_480.0;

/// Seconds from the first byte to the last one of `bytes`, at `rate` bytes a second and with round
/// trips of `round_trip` seconds: windows that double, each with a round trip, until one fills the
/// link; then the rest at the rate of the link.
pub(crate) fn seconds(bytes: f64, rate: f64, round_trip: f64) -> f64 {
    seconds_from(INITIAL_WINDOW, bytes, rate, round_trip)
}

/// [`seconds()`] of a connection whose window has grown to `window` bytes already.
pub(crate) fn seconds_from(window: f64, bytes: f64, rate: f64, round_trip: f64) -> f64 {
    if rate <= 0.0 {
        return f64::INFINITY;
    }
    let (mut left, mut seconds, mut window) = (bytes, 0.0, window);
    while window < rate * round_trip && left > window {
        left -= window;
        seconds += round_trip;
        window *= 2.0;
    }
    seconds + left / rate
}

/// Bytes that arrive within `seconds` of the first one: the inverse of [`seconds()`].
pub(crate) fn bytes(seconds: f64, rate: f64, round_trip: f64) -> f64 {
    if rate <= 0.0 || seconds <= 0.0 {
        return 0.0;
    }
    let (mut left, mut bytes, mut window) = (seconds, 0.0, INITIAL_WINDOW);
    while window < rate * round_trip && left > round_trip {
        left -= round_trip;
        bytes += window;
        window *= 2.0;
    }
    let in_window = if window < rate * round_trip { window } else { f64::INFINITY };
    bytes + (left * rate).min(in_window)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_two_are_inverse_and_monotone(
            size in 1.0_f64..1e8, rate in 1e3_f64..1e8, round_trip in 0.001_f64..0.5,
        ) {
            let time = seconds(size, rate, round_trip);
            let back = bytes(time, rate, round_trip);
            prop_assert!((back - size).abs() < 1e-6 * size, "{size} {time} {back}");
            prop_assert!(seconds(size * 1.01, rate, round_trip) >= time);
            prop_assert!(seconds(size, rate * 1.01, round_trip) <= time * 1.5);
        }
    }
}
