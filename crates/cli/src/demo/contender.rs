//! The contenders: programs that fetch the file.

use std::process::Command;

use manyways_lab::Lab;
use manyways_rig::download::{Downloader, Fetch, Programs, read_curl, read_get};
use manyways_rig::launch::{DriveError, Ended, Launcher, first_line};
use manyways_rig::{Origin, WARM_UP};
use manyways_trace::scenario::LinkSpec;
use manyways_unit::{Rate, Size, Span};
use sha2::{Digest, Sha256};

use super::kernel::{self, Mptcp};
use super::requests::{self, Request};
use super::watch::{Display, INTERVAL, Sample, share, since_its_start};
use super::{GREETING, SIZE};

/// A program with its configuration.
pub struct Contender {
    /// Name in the JSON.
    pub name: &'static str,
    /// Name in the report.
    pub label: &'static str,
    /// Its use of the links, for charts.
    pub short: &'static str,
    /// Its command, and its requirement on the server.
    pub about: &'static str,
    /// Indices of the first and the last link that it may use.
    links: (usize, usize),
    how: Downloader,
}

/// In the order of the runs.
pub const CONTENDERS: [Contender; 5] = [
    Contender {
        name: "wifi",
        label: "Wi-Fi alone",
        short: "one connection",
        about: "manyways get --via wifi",
        links: (0, 0),
        how: Downloader::MpH2,
    },
    Contender {
        name: "lte",
        label: "LTE alone",
        short: "one connection",
        about: "manyways get --via lte",
        links: (1, 1),
        how: Downloader::MpH2,
    },
    Contender {
        name: "kernel-mptcp",
        label: "kernel MPTCP",
        short: "server must have it too",
        about: "mptcpize run curl; the server needs MPTCP too",
        links: (0, 1),
        how: Downloader::MptcpCurl,
    },
    Contender {
        name: "fixed-chunk",
        label: "fixed chunks",
        short: "1 MiB each, any server",
        about: "manyways get --scheduler fixed-chunk --via wifi,lte (as mHTTP does); any server",
        links: (0, 1),
        how: Downloader::FixedChunk(1024),
    },
    Contender {
        name: "manyways",
        label: "manyways get",
        short: "MP-H2, any server",
        about: "manyways get --via wifi,lte (MP-H2); any server",
        links: (0, 1),
        how: Downloader::MpH2,
    },
];

/// Maximum duration of a run, in seconds.
const TIMEOUT: f64 = 60.0;

/// The environment of the runs.
pub struct Stage<'a> {
    pub launcher: &'a Launcher<'a>,
    pub programs: &'a Programs,
    pub origin: &'a Origin,
    pub links: &'a [LinkSpec],
}

impl Stage<'_> {
    /// Returns the command that fetches an object of this size over these links.
    pub fn command(&self, how: Downloader, links: &[LinkSpec], size: Size) -> Command {
        let (programs, site) = (self.programs, self.origin);
        how.command(&Fetch { programs, site, links, warm: false, size, stop: None, cache: None })
    }

    fn lab(&self) -> &Lab {
        &self.launcher.lab
    }
}

/// Outcome of one contender.
pub struct Run {
    pub contender: &'static Contender,
    pub end: End,
    /// From the start of the process to its end; `None` if it did not run.
    pub process: Option<Span>,
    /// Bytes that the links delivered during the run; empty if it did not run.
    pub samples: Vec<Sample>,
    /// Subflows of kernel MPTCP; `None` for other contenders.
    pub mptcp: Option<Mptcp>,
    /// Requests of `manyways get`, or the error of its event log; `None` if it did not run.
    pub requests: Option<Result<Vec<Request>, String>>,
}

pub enum End {
    /// The complete and unchanged file arrived.
    Delivered(Delivery),
    /// The run failed, with the reason.
    Failed(String),
    /// The contender cannot run here, with the reason.
    Skipped(String),
}

pub struct Delivery {
    /// Measured by the contender: from the name look-up to the last byte.
    pub elapsed: Span,
    pub bytes: Size,
    pub sha256: String,
    /// `h2` or `http/1.1`.
    pub protocol: String,
}

impl Contender {
    pub fn run(&'static self, stage: &Stage<'_>, mut display: Display) -> Result<Run, DriveError> {
        let mut run = Run {
            contender: self,
            end: End::Skipped(String::new()),
            process: None,
            samples: Vec::new(),
            mptcp: None,
            requests: None,
        };
        let missing = self.how.missing(stage.programs).map(str::to_owned);
        let is_mptcp = self.how.is_mptcp();
        let mptcp = || is_mptcp.then(|| kernel::available(stage.lab()).err()).flatten();
        if let Some(reason) = missing.or_else(mptcp) {
            return Ok(Run { end: End::Skipped(reason), ..run });
        }
        let links = &stage.links[self.links.0..=self.links.1];
        let mut watcher = None;
        if is_mptcp {
            // curl's first run reads its libraries from the disk. The libraries of `manyways` were
            // read for the first small request.
            let greeting = stage.command(self.how, links, WARM_UP);
            stage.launcher.run(greeting, GREETING, Span::ZERO, &[])?;
            watcher = Some(kernel::Watcher::start(stage.lab())?);
        }
        let mut samples =
            vec![Sample { at: Span::ZERO, delivered: vec![Size::ZERO; stage.links.len()] }];
        let mut observer = |at, delivered: &[u64]| {
            let delivered = delivered.iter().map(|bytes| Size::from_bytes(*bytes)).collect();
            samples.push(Sample { at, delivered });
            display.show(&samples);
            if let Some(watcher) = &mut watcher {
                watcher.look(stage.lab(), at);
            }
        };
        for file in [stage.origin.events(), stage.origin.download()] {
            let _ = std::fs::remove_file(file);
        }
        let ended = stage.launcher.run_observed(
            stage.command(self.how, links, SIZE),
            TIMEOUT,
            (Span::ZERO, &[]),
            Some((INTERVAL, &mut observer)),
        )?;
        run.mptcp = watcher.map(|watcher| watcher.finish(stage.lab())).transpose()?;
        if self.how.is_get() {
            let log = std::fs::read(stage.origin.events()).map_err(|error| error.to_string());
            run.requests = Some(log.and_then(|log| requests::read(&log)));
        }
        run.process = samples.last().map(|sample| sample.at);
        run.end = match ended.success {
            None => End::Failed("it took more than a minute".to_owned()),
            Some(false) => End::Failed(first_line(&ended.stderr)),
            Some(true) => {
                self.delivery(stage.origin, &ended).map_or_else(End::Failed, End::Delivered)
            }
        };
        run.samples = match run.delivery() {
            Some(delivery) => since_its_start(samples, delivery.elapsed),
            None => samples,
        };
        Ok(run)
    }

    /// Checks the downloaded file and parses the program's report.
    fn delivery(&self, origin: &Origin, ended: &Ended) -> Result<Delivery, String> {
        let file = std::fs::read(origin.download()).map_err(|e| format!("it left no file: {e}"))?;
        let (bytes, sha256) = (Size::from_bytes(file.len() as u64), hex(&file));
        if file != origin.object(SIZE) {
            return Err(format!("the file is not the server's: {bytes}, SHA-256 {sha256}"));
        }
        let report = match self.how.is_get() {
            true => read_get(&ended.stdout),
            false => read_curl(&ended.stdout),
        };
        let read = report.and_then(|report| Some((report.seconds, report.protocol?)));
        let (seconds, protocol) = read.ok_or("its report cannot be read")?;
        Ok(Delivery { elapsed: Span::from_secs_f64(seconds), bytes, sha256, protocol })
    }
}

pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Run {
    /// The result as one line, printed after the run.
    pub fn line(&self) -> String {
        let label = self.contender.label;
        match &self.end {
            End::Delivered(delivery) => {
                let rate = Rate::of(delivery.bytes, delivery.elapsed).as_mbps_f64();
                format!("{label:<18} {:6.2} s  {rate:5.2} Mbit/s", delivery.elapsed.as_secs_f64())
            }
            End::Failed(reason) => format!("{label:<18} failed: {reason}"),
            End::Skipped(reason) => format!("{label:<18} left out: {reason}"),
        }
    }

    pub fn delivery(&self) -> Option<&Delivery> {
        match &self.end {
            End::Delivered(delivery) => Some(delivery),
            _ => None,
        }
    }

    /// The requests of a run that split the file over several links; `None` for other runs.
    pub fn split(&self) -> Option<&[Request]> {
        let (first, last) = self.contender.links;
        self.requests.as_ref()?.as_deref().ok().filter(|_| last > first)
    }

    /// Longest time between two samples.
    pub fn longest_gap(&self) -> Span {
        let gap = |pair: &[Sample]| pair[1].at - pair[0].at;
        self.samples.windows(2).map(gap).max().unwrap_or_default()
    }

    /// IP bytes by link, over the whole run.
    pub fn delivered(&self) -> Vec<Size> {
        self.samples.last().map(|sample| sample.delivered.clone()).unwrap_or_default()
    }

    /// Whether a link carried a share of the bytes that rounds to more than 0 %. Late packets of an
    /// earlier connection and packets of the kernel do not count as use.
    pub fn used(&self, link: usize) -> bool {
        let delivered = self.delivered();
        let sum: Size = delivered.iter().copied().sum();
        delivered.get(link).is_some_and(|part| 200 * part.as_bytes() > sum.as_bytes())
    }

    /// The shares of the used links, for example `Wi-Fi 67 %, LTE 33 %`.
    pub fn shares(&self, labels: &[&str]) -> String {
        let delivered = self.delivered();
        let sum = delivered.iter().copied().sum();
        let of = |(label, part): (&&str, &Size)| format!("{label} {}", share(*part, sum));
        let links = labels.iter().zip(&delivered).enumerate();
        let used = links.filter(|(link, _)| self.used(*link)).map(|(_, link)| of(link));
        used.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_between_neighbours() {
        let sample = |millis| Sample { at: Span::from_millis(millis), delivered: Vec::new() };
        let run = Run {
            contender: &CONTENDERS[0],
            end: End::Skipped(String::new()),
            process: None,
            samples: [0, 100, 900, 1000].map(sample).into(),
            mptcp: None,
            requests: None,
        };
        assert_eq!(run.longest_gap(), Span::from_millis(800));
    }

    #[test]
    fn shares_leave_out_links_that_carried_next_to_nothing() {
        let sample = |bytes: [u64; 2]| Sample {
            at: Span::ZERO,
            delivered: bytes.map(Size::from_bytes).into(),
        };
        let run = Run {
            contender: &CONTENDERS[0],
            end: End::Skipped(String::new()),
            process: None,
            samples: vec![sample([0, 0]), sample([3, 1])],
            mptcp: None,
            requests: None,
        };
        assert_eq!(run.shares(&["Wi-Fi", "LTE"]), "Wi-Fi 75 %, LTE 25 %");
        let run = Run { samples: vec![sample([3, 0])], ..run };
        assert_eq!(run.shares(&["Wi-Fi", "LTE"]), "Wi-Fi 100 %");
        let run = Run { samples: vec![sample([120, 8_000_000])], ..run };
        assert_eq!(run.shares(&["Wi-Fi", "LTE"]), "LTE 100 %");
        assert_eq!([0, 1, 2].map(|link| run.used(link)), [false, true, false]);
    }

    #[test]
    fn hashes_are_as_sha256sum_prints_them() {
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
