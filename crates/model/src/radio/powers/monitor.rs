//! Aggregates samples of a power monitor into windows.

use manyways_unit::{Span, Time};

use super::{MAX_WINDOWS, PowerFitError};

/// Samples from which the usual interval is derived.
const HEAD_SAMPLES: usize = 1_000;

/// Energy that a power monitor measured, in windows that start and end where samples do.
///
/// A sample is the mean power from the middle between it and its predecessor to the middle between
/// it and its successor. Next to a missing sample, the usual interval applies.
#[derive(Clone, Debug)]
pub struct Monitor {
    window: Span,
    /// The first samples, until the usual interval is known.
    head: Vec<(Time, f64)>,
    spacing: Option<u64>,
    /// Samples with the same time that are not yet in a window.
    last: Option<Sample>,
    per_window: u64,
    windows: Vec<Window>,
    is_too_long: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: u64,
    start: u64,
    watts: f64,
    count: f64,
}

/// Consecutive samples; times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Window {
    pub start: u64,
    pub end: u64,
    pub joules: f64,
    /// Joules subtracted from `joules` for an assumption.
    pub assumed_joules: f64,
    pub samples: u64,
}

impl Monitor {
    /// Creates a monitor without samples. A window takes about `window`, and at least one sample.
    pub fn new(window: Span) -> Self {
        Self {
            window,
            head: Vec::new(),
            spacing: None,
            last: None,
            per_window: 1,
            windows: Vec::new(),
            is_too_long: false,
        }
    }

    /// Adds a sample of mean watts around `at`. Samples must be in order of time: earlier ones are
    /// ignored, and samples with the same time are averaged.
    pub fn sample(&mut self, at: Time, watts: f64) {
        if !watts.is_finite() {
            return;
        }
        if self.spacing.is_some() {
            self.add(at.as_nanos(), watts);
            return;
        }
        self.head.push((at, watts));
        if self.head.len() >= HEAD_SAMPLES {
            self.set_spacing();
        }
    }

    /// Derives the usual interval from the first samples.
    fn set_spacing(&mut self) {
        let head = std::mem::take(&mut self.head);
        let gaps = head.windows(2).map(|pair| pair[1].0.since(pair[0].0).as_nanos());
        let mut gaps: Vec<u64> = gaps.filter(|gap| *gap > 0).collect();
        gaps.sort_unstable();
        let spacing = gaps.get(gaps.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        self.spacing = Some(spacing);
        let window = self.window.as_nanos();
        self.per_window = ((window + spacing / 2) / spacing.max(1)).max(1);
        for (at, watts) in head {
            self.add(at.as_nanos(), watts);
        }
    }

    fn add(&mut self, at: u64, watts: f64) {
        let spacing = self.spacing.unwrap_or(0);
        let alone = |begins| Sample { at, start: begins, watts, count: 1.0 };
        let Some(last) = &mut self.last else {
            self.last = Some(alone(at.saturating_sub(spacing / 2)));
            return;
        };
        if at == last.at {
            last.watts += watts;
            last.count += 1.0;
        }
        if at <= last.at {
            return;
        }
        let gap = at - last.at;
        let is_next = gap <= spacing.saturating_add(spacing / 2);
        let middle = last.at + gap / 2;
        let end = if is_next { middle } else { last.at + spacing / 2 };
        let next = alone(if is_next { middle } else { at - spacing / 2 });
        let done = std::mem::replace(last, next);
        self.close_sample(done, end);
    }

    fn close_sample(&mut self, sample: Sample, end: u64) {
        let secs = Span::from_nanos(end - sample.start).as_secs_f64();
        let joules = sample.watts / sample.count * secs;
        let is_full = self.windows.len() == MAX_WINDOWS;
        match self.windows.last_mut() {
            Some(window) if window.end == sample.start && window.samples < self.per_window => {
                window.end = end;
                window.joules += joules;
                window.samples += 1;
            }
            _ if is_full => self.is_too_long = true,
            _ => self.windows.push(Window {
                start: sample.start,
                end,
                joules,
                assumed_joules: 0.0,
                samples: 1,
            }),
        }
    }

    /// The usual interval of samples, and the windows.
    ///
    /// # Errors
    /// Fails if there are more than [`MAX_WINDOWS`] windows.
    pub(super) fn windows(mut self) -> Result<(Span, Vec<Window>), PowerFitError> {
        if self.spacing.is_none() {
            self.set_spacing();
        }
        let spacing = self.spacing.unwrap_or(0);
        // The length of a single sample is unknown.
        if let Some(last) = self.last.filter(|_| spacing > 0) {
            self.close_sample(last, last.at.saturating_add(spacing / 2));
        }
        match self.is_too_long {
            true => Err(PowerFitError::TooLong),
            false => Ok((Span::from_nanos(spacing), self.windows)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(window: u64, samples: &[(u64, f64)]) -> Vec<(u64, u64, f64)> {
        let mut monitor = Monitor::new(Span::from_millis(window));
        for (millis, watts) in samples {
            monitor.sample(Time::from_millis(*millis), *watts);
        }
        let (_, windows) = monitor.windows().unwrap();
        let all = windows.iter().map(|one| {
            let millijoules = (one.joules * 1e3).round();
            (one.start / 1_000_000, one.end / 1_000_000, millijoules)
        });
        all.collect()
    }

    #[test]
    fn windows_begin_and_end_between_samples() {
        let samples: Vec<(u64, f64)> = (0..6).map(|index| (50 + 100 * index, 2.0)).collect();
        assert_eq!(windows(300, &samples), [(0, 300, 600.0), (300, 600, 600.0)]);
        // The nearest whole number of samples, at least one.
        assert_eq!(windows(240, &samples).len(), 3);
        assert_eq!(windows(1, &samples).len(), 6);
    }

    #[test]
    fn a_missing_sample_ends_a_window() {
        let samples = [(50, 1.0), (150, 1.0), (250, 1.0), (450, 1.0), (550, 1.0), (650, 1.0)];
        assert_eq!(windows(1_000, &samples), [(0, 300, 300.0), (400, 700, 300.0)]);
    }

    #[test]
    fn samples_of_one_moment_are_their_mean_and_earlier_ones_nothing() {
        let samples = [(50, 1.0), (50, 3.0), (150, 4.0), (20, 9.0), (250, 2.0)];
        assert_eq!(windows(100, &samples), [(0, 100, 200.0), (100, 200, 400.0), (200, 300, 200.0)]);
        assert_eq!(windows(100, &[(50, 1.0)]), []);
        assert_eq!(windows(100, &[]), []);
    }

    #[test]
    fn more_windows_than_can_be_kept_are_refused() {
        let mut monitor = Monitor::new(Span::from_millis(1));
        for millis in 0..=MAX_WINDOWS as u64 {
            monitor.sample(Time::from_millis(millis), 1.0);
        }
        assert_eq!(monitor.windows().unwrap_err(), PowerFitError::TooLong);
    }
}
