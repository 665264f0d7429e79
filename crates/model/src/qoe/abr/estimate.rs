//! Estimates of throughput and latency from the downloads of segments.

/// Expected bits per second of the next download, and seconds until its first byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkEstimate {
    pub throughput: f64,
    pub latency: f64,
}

/// A way to average downloads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// The lower of two exponentially weighted means, with these half-lives in seconds of download time.
    /// Latencies decay by the number of segments instead. As in dash.js.
    Exponential { fast: f64, slow: f64 },
    /// The mean of the latest downloads.
    Window(usize),
}

impl Default for Averaging {
    fn default() -> Self {
        Self::Exponential { fast: 3.0, slow: 8.0 }
    }
}

/// The estimate so far.
#[derive(Clone, Debug)]
pub struct Estimator {
    averaging: Averaging,
    /// Usual duration of a segment in seconds, by which latencies decay.
    segment: f64,
    means: [Mean; 2],
    recent: Vec<NetworkEstimate>,
    /// Seconds and number of all downloads.
    total_time: f64,
    count: f64,
    estimate: Option<NetworkEstimate>,
}

/// An exponentially weighted mean, which is divided by the weight of its samples, so that the missing
/// history counts nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    half_life: f64,
    throughput: f64,
    latency: f64,
}

impl Estimator {
    /// Number of downloads that a window may have.
    const MAX_WINDOW: usize = 20;
    /// Shortest time of a download: a small segment can arrive at once.
    const MIN_TIME: f64 = 1e-3;

    /// For a film with segments of usually so many seconds.
    pub fn new(averaging: Averaging, segment: f64) -> Self {
        let of = |half_life| Mean { half_life, ..Mean::default() };
        let means = match averaging {
            Averaging::Exponential { fast, slow } => [of(fast), of(slow)],
            Averaging::Window(_) => [Mean::default(); 2],
        };
        let recent = Vec::new();
        Self { averaging, segment, means, recent, total_time: 0.0, count: 0.0, estimate: None }
    }

    /// `None` before the first download.
    pub fn estimate(&self) -> Option<NetworkEstimate> {
        self.estimate
    }

    /// A download of so many bits has ended, `time` seconds after its first byte, which came `latency`
    /// seconds after the request.
    pub fn push(&mut self, bits: f64, time: f64, latency: f64) {
        let time = time.max(Self::MIN_TIME);
        let throughput = bits / time;
        self.total_time += time;
        self.count += 1.0;
        self.estimate = Some(match self.averaging {
            Averaging::Exponential { .. } => {
                for mean in &mut self.means {
                    mean.push(throughput, time, latency, self.segment);
                }
                let value = |mean: Mean| mean.value(self.total_time, self.count * self.segment);
                let [a, b] = self.means.map(value);
                NetworkEstimate {
                    throughput: a.throughput.min(b.throughput),
                    latency: a.latency.max(b.latency),
                }
            }
            Averaging::Window(size) => {
                let size = size.clamp(1, Self::MAX_WINDOW);
                self.recent.push(NetworkEstimate { throughput, latency });
                let surplus = self.recent.len().saturating_sub(size);
                self.recent.drain(..surplus);
                let count = self.recent.len() as f64;
                let mean = |of: fn(&NetworkEstimate) -> f64| {
                    self.recent.iter().map(of).sum::<f64>() / count
                };
                NetworkEstimate {
                    throughput: mean(|one| one.throughput),
                    latency: mean(|one| one.latency),
                }
            }
        });
    }
}

impl Mean {
    fn push(&mut self, throughput: f64, time: f64, latency: f64, segment: f64) {
        let kept = 0.5_f64.powf(time / self.half_life);
        self.throughput = kept * self.throughput + (1.0 - kept) * throughput;
        let kept = 0.5_f64.powf(segment / self.half_life);
        self.latency = kept * self.latency + (1.0 - kept) * latency;
    }

    /// After downloads of `time` seconds, for `played` seconds of film.
    fn value(&self, time: f64, played: f64) -> NetworkEstimate {
        let weight = |of: f64| 1.0 - 0.5_f64.powf(of / self.half_life);
        NetworkEstimate {
            throughput: self.throughput / weight(time),
            latency: self.latency / weight(played),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_download_is_the_estimate() {
        for averaging in [Averaging::default(), Averaging::Window(3)] {
            let mut estimator = Estimator::new(averaging, 3.0);
            assert_eq!(estimator.estimate(), None);
            estimator.push(4e6, 2.0, 0.04);
            let estimate = estimator.estimate().unwrap();
            assert!((estimate.throughput - 2e6).abs() < 1.0, "{estimate:?}");
            assert!((estimate.latency - 0.04).abs() < 1e-9, "{estimate:?}");
        }
    }

    #[test]
    fn a_fall_counts_more_than_a_rise() {
        let after = |first: f64, second: f64| {
            let mut estimator = Estimator::new(Averaging::default(), 3.0);
            for throughput in [first, first, second, second] {
                estimator.push(throughput * 2.0, 2.0, 0.02);
            }
            estimator.estimate().unwrap().throughput
        };
        let (fallen, risen) = (after(4e6, 1e6), after(1e6, 4e6));
        assert!(fallen - 1e6 < 4e6 - risen, "{fallen} {risen}");
    }

    #[test]
    fn a_window_forgets_what_is_older() {
        let mut estimator = Estimator::new(Averaging::Window(2), 3.0);
        for throughput in [9e6, 1e6, 3e6] {
            estimator.push(throughput, 1.0, 0.02);
        }
        assert!((estimator.estimate().unwrap().throughput - 2e6).abs() < 1.0);
    }

    #[test]
    fn a_segment_that_arrives_at_once_has_a_finite_throughput() {
        let mut estimator = Estimator::new(Averaging::default(), 3.0);
        estimator.push(8e3, 0.0, 0.02);
        assert!(estimator.estimate().unwrap().throughput.is_finite());
    }
}
