//! The contenders: programs that fetch the file, and their runs.

use manyways_rig::cell::{self, Cell};
use manyways_rig::download::{Downloader, Fetch, Programs, Report};
use manyways_rig::launch::{DriveError, Launcher};
use manyways_rig::sockets::{Mptcp, mptcp_available, subflows};
use manyways_rig::transfer::{Request, Transfer};
use manyways_rig::{Origin, WARM_UP};
use manyways_trace::scenario::LinkSpec;
use manyways_unit::{Rate, Size, Span};

use super::sampling::{Display, INTERVAL, Sample, relative_to_start};
use super::setting::{labels, links};
use super::{SIZE, WARM_UP_TIMEOUT};
use crate::get::share;

/// A program with its configuration.
#[derive(Debug)]
pub struct Contender {
    /// Name in the JSON.
    pub name: &'static str,
    /// Name in the report.
    pub label: &'static str,
    /// Its use of the links, for charts.
    pub short_label: &'static str,
    /// Its command, and its requirement on the server.
    pub about: &'static str,
    /// Indices of the first and the last link that it may use.
    links: (usize, usize),
    downloader: Downloader,
}

/// In the order of the runs.
pub const CONTENDERS: [Contender; 5] = [
    Contender {
        name: "wifi",
        label: "Wi-Fi alone",
        short_label: "one connection",
        about: "manyways get --via wifi",
        links: (0, 0),
        downloader: Downloader::MpH2,
    },
    Contender {
        name: "lte",
        label: "LTE alone",
        short_label: "one connection",
        about: "manyways get --via lte",
        links: (1, 1),
        downloader: Downloader::MpH2,
    },
    Contender {
        name: "kernel-mptcp",
        label: "kernel MPTCP",
        short_label: "server must support MPTCP",
        about: "mptcpize run curl; the server must support MPTCP too",
        links: (0, 1),
        downloader: Downloader::MptcpCurl,
    },
    Contender {
        name: "fixed-chunk",
        label: "fixed chunks",
        short_label: "1 MiB each, any server",
        about: "manyways get --scheduler fixed-chunk --via wifi,lte (as mHTTP does); any server",
        links: (0, 1),
        downloader: Downloader::FixedChunk(1024),
    },
    Contender {
        name: "manyways",
        label: "manyways get",
        short_label: "MP-H2, any server",
        about: "manyways get --via wifi,lte (MP-H2); any server",
        links: (0, 1),
        downloader: Downloader::MpH2,
    },
];

/// The contenders in one cell; each runs once, in this order.
pub fn cell() -> Cell<&'static Contender, ()> {
    let (links, contenders) = (links(), CONTENDERS.iter().collect());
    Cell { name: "demo".to_owned(), links, contenders, rounds: 1, ..Cell::default() }
}

impl cell::Contender for &'static Contender {
    fn name(&self, _links: &[LinkSpec]) -> String {
        self.name.to_owned()
    }
}

/// Maximum duration of a run, in seconds.
const TIMEOUT: f64 = 60.0;
/// When the sockets of kernel MPTCP are listed: after both subflows exist and before the end of the
/// download.
const SAMPLE_TIME: Span = Span::from_millis(2000);

/// The environment of the runs.
pub struct Testbed<'a> {
    pub launcher: &'a Launcher<'a>,
    pub programs: &'a Programs,
    pub origin: &'a Origin,
    pub links: &'a [LinkSpec],
}

impl Testbed<'_> {
    /// A download of the file, or of the small object before it.
    pub fn fetch<'s>(&'s self, links: &'s [LinkSpec], size: Size) -> Fetch<'s> {
        let (programs, site) = (self.programs, self.origin);
        Fetch { programs, origin: site, links, warm: false, size, stop_after: None, cache: None }
    }
}

/// Outcome of one contender.
pub struct Run {
    pub contender: &'static Contender,
    pub outcome: RunOutcome,
    /// From the start of the process to its end; `None` if it did not run.
    pub process: Option<Span>,
    /// Bytes that the links delivered during the run; empty if it did not run.
    pub samples: Vec<Sample>,
    /// Subflows of kernel MPTCP; `None` for other contenders.
    pub mptcp: Option<Mptcp>,
    /// The requests of `manyways get`, or the error of its event log; `None` if it did not run.
    pub log: Option<Result<Transfer, String>>,
}

pub enum RunOutcome {
    /// The complete and unchanged file arrived; the report of the contender.
    Delivered(Report),
    /// The run failed, with the reason.
    Failed(String),
    /// The contender cannot run here, with the reason.
    Skipped(String),
}

impl Contender {
    pub fn run(&'static self, stage: &Testbed<'_>) -> Result<Run, DriveError> {
        let (how, lab) = (self.downloader, &stage.launcher.lab);
        let missing = how.missing(stage.programs);
        let mptcp = || how.is_mptcp().then(|| mptcp_available(lab).err()).flatten();
        if let Some(reason) = missing.or_else(mptcp) {
            return Ok(Run::ended(self, RunOutcome::Skipped(reason)));
        }
        let links = &stage.links[self.links.0..=self.links.1];
        let none = (Span::ZERO, &[][..]);
        let mut before = None;
        if how.is_mptcp() {
            // curl's first run reads its libraries from the disk. The libraries of `manyways` were
            // read for the first small request.
            stage.fetch(links, WARM_UP).run(how, stage.launcher, WARM_UP_TIMEOUT, none, None)?;
            before = Some(Mptcp::counted(lab)?);
        }
        let mut display = Display::new(self.label, SIZE);
        let mut samples = vec![Sample { at: Span::ZERO, delivered: vec![0; stage.links.len()] }];
        let mut control = None;
        let mut observer = |at, delivered: &[u64]| {
            samples.push(Sample { at, delivered: delivered.to_vec() });
            display.show(&samples);
            if how.is_mptcp() && control.is_none() && at >= SAMPLE_TIME {
                control = Some(subflows(lab));
            }
        };
        let observed = Some((INTERVAL, &mut observer as _));
        let download =
            stage.fetch(links, SIZE).run(how, stage.launcher, TIMEOUT, none, observed)?;
        let mptcp = before.map(|before| Mptcp::counted(lab).map(|after| after.since(&before)));
        let congestion_control = control.unwrap_or_default();
        let mptcp = mptcp.transpose()?.map(|mptcp| Mptcp { congestion_control, ..mptcp });
        let process = samples.last().map(|sample| sample.at);
        let mut run = Run::ended(
            self,
            download.outcome.map_or_else(RunOutcome::Failed, RunOutcome::Delivered),
        );
        run.samples = match run.elapsed() {
            Some(elapsed) => relative_to_start(samples, elapsed),
            None => samples,
        };
        Ok(Run { process, mptcp, log: download.log, ..run })
    }
}

impl Run {
    fn ended(contender: &'static Contender, end: RunOutcome) -> Self {
        Self { contender, outcome: end, process: None, samples: Vec::new(), mptcp: None, log: None }
    }

    /// The result as one line, printed after the run.
    pub fn line(&self) -> String {
        let label = self.contender.label;
        match &self.outcome {
            RunOutcome::Delivered(Report { seconds, .. }) => {
                let rate = Rate::of(SIZE, Span::from_secs_f64(*seconds)).as_mbps_f64();
                format!("{label:<18} {seconds:6.2} s  {rate:5.2} Mbit/s")
            }
            RunOutcome::Failed(reason) => format!("{label:<18} failed: {reason}"),
            RunOutcome::Skipped(reason) => format!("{label:<18} skipped: {reason}"),
        }
    }

    pub fn report(&self) -> Option<&Report> {
        match &self.outcome {
            RunOutcome::Delivered(report) => Some(report),
            _ => None,
        }
    }

    /// Measured by the contender: from the name look-up to the last byte.
    pub fn elapsed(&self) -> Option<Span> {
        self.report().map(|report| Span::from_secs_f64(report.seconds))
    }

    /// The requests of `manyways get`; `None` for other runs.
    pub fn requests(&self) -> Option<&[Request]> {
        self.log.as_ref()?.as_ref().ok().map(|transfer| &transfer.requests[..])
    }

    /// The requests of a run that split the file over several links; `None` for other runs.
    pub fn split_requests(&self) -> Option<&[Request]> {
        let (first, last) = self.contender.links;
        self.requests().filter(|_| last > first)
    }

    /// Longest time between two samples.
    pub fn longest_gap(&self) -> Span {
        let gap = |pair: &[Sample]| pair[1].at - pair[0].at;
        self.samples.windows(2).map(gap).max().unwrap_or_default()
    }

    /// IP bytes by link, over the whole run.
    pub fn delivered(&self) -> &[u64] {
        self.samples.last().map_or(&[], |sample| &sample.delivered)
    }

    /// The share of each link in the bytes; empty if it did not run.
    pub fn parts(&self) -> Vec<f64> {
        let sum = self.delivered().iter().sum::<u64>().max(1) as f64;
        self.delivered().iter().map(|bytes| *bytes as f64 / sum).collect()
    }

    /// Whether a link carried a share of the bytes that rounds to more than 0 %. Late packets of an
    /// earlier connection and packets of the kernel do not count as use.
    pub fn has_used(&self, link: usize) -> bool {
        self.parts().get(link).is_some_and(|part| *part > 0.005)
    }

    /// The shares of the used links, for example `Wi-Fi 67 %, LTE 33 %`.
    pub fn shares(&self) -> String {
        let sum = Size::from_bytes(self.delivered().iter().sum());
        let links = labels().into_iter().zip(self.delivered()).enumerate();
        let used = links.filter(|(link, _)| self.has_used(*link));
        let share = |(label, part): (&str, &u64)| {
            format!("{label} {}", share(Size::from_bytes(*part), sum))
        };
        used.map(|(_, link)| share(link)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(samples: Vec<Sample>) -> Run {
        Run { samples, ..Run::ended(&CONTENDERS[0], RunOutcome::Skipped(String::new())) }
    }

    #[test]
    fn the_longest_gap_is_between_neighbours() {
        let sample = |millis| Sample { at: Span::from_millis(millis), delivered: Vec::new() };
        let run = run([0, 100, 900, 1000].map(sample).into());
        assert_eq!(run.longest_gap(), Span::from_millis(800));
    }

    #[test]
    fn shares_leave_out_links_that_carried_next_to_nothing() {
        let of = |bytes: [u64; 2]| run(vec![Sample { at: Span::ZERO, delivered: bytes.into() }]);
        assert_eq!(of([3, 1]).shares(), "Wi-Fi 75 %, LTE 25 %");
        assert_eq!(of([3, 0]).shares(), "Wi-Fi 100 %");
        let run = of([120, 8_000_000]);
        assert_eq!(run.shares(), "LTE 100 %");
        assert_eq!([0, 1, 2].map(|link| run.has_used(link)), [false, true, false]);
    }
}
