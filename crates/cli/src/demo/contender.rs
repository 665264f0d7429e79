//! Who fetches the file, and how.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use manyways_lab::{Lab, Place};
use manyways_sys::signal::Termination;
use manyways_unit::{Rate, Size, Span};
use serde::Deserialize;

use super::kernel::{self, Mptcp};
use super::requests::{self, Request};
use super::site::{Site, hex, program, this_program};
use super::watch::{Display, Sample, complaint, share, since_its_start, watch};
use crate::lab::lab_failure;

/// One way to get the file.
pub struct Contender {
    /// For machines.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    /// How it uses the links, for charts.
    pub short: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    how: How,
}

enum How {
    /// `manyways get` over these links, with these options.
    Get(&'static str, &'static [&'static str]),
    /// curl on the kernel's Multipath TCP.
    KernelMptcp,
}

/// In the order in which they run.
pub const CONTENDERS: [Contender; 5] = [
    Contender {
        name: "wifi",
        label: "Wi-Fi alone",
        short: "one connection",
        about: "manyways get --via wifi",
        how: How::Get("wifi", &[]),
    },
    Contender {
        name: "lte",
        label: "LTE alone",
        short: "one connection",
        about: "manyways get --via lte",
        how: How::Get("lte", &[]),
    },
    Contender {
        name: "kernel-mptcp",
        label: "kernel MPTCP",
        short: "server must have it too",
        about: "mptcpize run curl; the server needs MPTCP too",
        how: How::KernelMptcp,
    },
    Contender {
        name: "fixed-chunk",
        label: "fixed chunks",
        short: "1 MiB each, any server",
        about: "manyways get --scheduler fixed-chunk --via wifi,lte (as mHTTP does); any server",
        how: How::Get("wifi,lte", &["--scheduler", "fixed-chunk=1MiB"]),
    },
    Contender {
        name: "manyways",
        label: "manyways get",
        short: "MP-H2, any server",
        about: "manyways get --via wifi,lte (MP-H2); any server",
        how: How::Get("wifi,lte", &[]),
    },
];

/// What became of one contender.
pub struct Run {
    pub contender: &'static Contender,
    pub end: End,
    /// From the start of its process to the end; nothing when it did not run.
    pub process: Option<Span>,
    /// What the links delivered meanwhile; empty when it did not run.
    pub samples: Vec<Sample>,
    /// What kernel MPTCP used; only where it was used.
    pub mptcp: Option<Mptcp>,
    /// What `manyways get` asked for, or why its event log does not say; only where it ran.
    pub requests: Option<Result<Vec<Request>, String>>,
}

pub enum End {
    /// The whole file came, as it was.
    Delivered(Delivery),
    /// It ran and failed, with the reason.
    Failed(String),
    /// It cannot run here, with the reason.
    Skipped(String),
}

pub struct Delivery {
    /// By the contender's own clock: from the name look-up to the last byte.
    pub elapsed: Span,
    pub bytes: Size,
    pub sha256: String,
    /// `h2` or `http/1.1`.
    pub protocol: String,
}

impl Contender {
    pub fn run(
        &'static self,
        lab: &Lab,
        site: &Site,
        display: Display,
        termination: &Termination,
    ) -> Result<Run> {
        let skipped = |reason: String| Run {
            contender: self,
            end: End::Skipped(reason),
            process: None,
            samples: Vec::new(),
            mptcp: None,
            requests: None,
        };
        let mut command = match self.command(lab, site, &site.download()) {
            Ok(command) => command?,
            Err(reason) => return Ok(skipped(reason)),
        };
        command.arg(site.url()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let (How::KernelMptcp, Ok(command)) =
            (&self.how, self.command(lab, site, Path::new("/dev/null")))
        {
            // curl's first run reads its libraries from the disk; ours did when the site was tried.
            if let Err(said) = site.greet(command?, lab, termination)? {
                tracing::debug!("warming up: {said}");
            }
        }
        let mut watcher = match self.how {
            How::KernelMptcp => Some(kernel::Watcher::start(lab)?),
            How::Get(..) => None,
        };
        let mut peek = |elapsed| {
            if let Some(watcher) = &mut watcher {
                watcher.look(lab, elapsed);
            }
        };
        let start = || Ok(lab.spawn(Place::Device, command).map_err(lab_failure)?);
        let (mut child, watched) = watch(lab, start, display, termination, &mut peek)?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_end(&mut stdout)?;
        }
        if let Some(mut pipe) = child.stderr.take() {
            pipe.read_to_end(&mut stderr)?;
        }
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        let end = match watched.status {
            None => End::Failed("it took more than a minute".to_owned()),
            Some(status) if status.success() => match self.delivery(&stdout, site) {
                Ok(delivery) => End::Delivered(delivery),
                Err(reason) => End::Failed(reason),
            },
            Some(status) => End::Failed(format!("{status}: {}", complaint(&stderr))),
        };
        let mptcp = watcher.map(|watcher| watcher.finish(lab)).transpose()?;
        let requests = match self.how {
            How::KernelMptcp => None,
            How::Get(..) => Some(
                std::fs::read(site.events())
                    .map_err(|error| error.to_string())
                    .and_then(|log| requests::read(&log)),
            ),
        };
        let _ = std::fs::remove_file(site.events());
        let process = watched.samples.last().map(|sample| sample.at);
        let samples = match &end {
            End::Delivered(delivery) => since_its_start(watched.samples, delivery.elapsed),
            _ => watched.samples,
        };
        Ok(Run { contender: self, end, process, samples, mptcp, requests })
    }

    /// The command but for the address, or why this contender cannot run here.
    fn command(&self, lab: &Lab, site: &Site, output: &Path) -> Result<Result<Command>, String> {
        let command = match self.how {
            How::Get(via, options) => {
                let mut command = match this_program() {
                    Ok(program) => Command::new(program),
                    Err(error) => return Ok(Err(error)),
                };
                command.args(["get", "--json", "--quiet", "--metered", "yes", "--via", via]);
                // What this host remembers of its own networks is not the demonstration's.
                command.args(["--cache", "off"]).args(options);
                command.arg("--events").arg(site.events());
                command.arg("--cacert").arg(site.authority()).arg("-o").arg(output);
                command
            }
            How::KernelMptcp => {
                let mptcpize = site.mptcpize()?;
                let curl = program("curl")
                    .ok_or_else(|| "curl is not installed (Debian: package curl)".to_owned())?;
                kernel::available(lab)?;
                let mut command = Command::new(mptcpize);
                // First --disable: the caller's settings are not the demonstration's.
                command.arg("run").arg(curl).args(["--disable", "--noproxy", "*"]);
                command.args(["--silent", "--show-error", "--fail", "--write-out", "%{json}"]);
                command.arg("--cacert").arg(site.authority());
                command.arg("--output").arg(output);
                command
            }
        };
        Ok(Ok(command))
    }

    /// Reads what the program reports, and looks at the file that it left.
    fn delivery(&self, stdout: &str, site: &Site) -> Result<Delivery, String> {
        let file = std::fs::read(site.download()).map_err(|e| format!("it left no file: {e}"))?;
        let _ = std::fs::remove_file(site.download());
        let sha256 = hex(&file);
        let bytes = Size::from_bytes(file.len() as u64);
        if sha256 != site.sha256() {
            return Err(format!("the file is not the server's: {bytes}, SHA-256 {sha256}"));
        }
        let (seconds, protocol) = match self.how {
            How::Get(..) => get_says(stdout),
            How::KernelMptcp => curl_says(stdout),
        }
        .ok_or_else(|| "its report cannot be read".to_owned())?;
        Ok(Delivery { elapsed: Span::from_secs_f64(seconds), bytes, sha256, protocol })
    }
}

impl Run {
    /// One line as soon as it is over.
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

    /// What was asked for by itself over several links.
    pub fn split(&self) -> Option<&[Request]> {
        match (&self.contender.how, &self.requests) {
            (How::Get(via, _), Some(Ok(requests))) if via.contains(',') => Some(requests),
            _ => None,
        }
    }

    /// The longest time between two looks at the links.
    pub fn longest_gap(&self) -> Span {
        let gap = |pair: &[Sample]| pair[1].at - pair[0].at;
        self.samples.windows(2).map(gap).max().unwrap_or_default()
    }

    /// IP bytes by link, over the whole run.
    pub fn delivered(&self) -> Vec<Size> {
        self.samples.last().map(|sample| sample.delivered.clone()).unwrap_or_default()
    }

    /// Whether a link carried a part of the bytes that rounds to more than 0 %: what an earlier
    /// connection still says, or the kernel of itself, is no use of a link.
    pub fn used(&self, link: usize) -> bool {
        let delivered = self.delivered();
        let sum: Size = delivered.iter().copied().sum();
        delivered.get(link).is_some_and(|part| 200 * part.as_bytes() > sum.as_bytes())
    }

    /// `Wi-Fi 67 %, LTE 33 %`: each link's share of the bytes, of those that were used.
    pub fn shares(&self, labels: &[&str]) -> String {
        let delivered = self.delivered();
        let sum = delivered.iter().copied().sum();
        let of = |(label, part): (&&str, &Size)| format!("{label} {}", share(*part, sum));
        let links = labels.iter().zip(&delivered).enumerate();
        let used = links.filter(|(link, _)| self.used(*link)).map(|(_, link)| of(link));
        used.collect::<Vec<_>>().join(", ")
    }
}

fn get_says(json: &str) -> Option<(f64, String)> {
    #[derive(Deserialize)]
    struct Document {
        transfers: Vec<Transfer>,
    }
    #[derive(Deserialize)]
    struct Transfer {
        seconds: f64,
        paths: Vec<Path>,
    }
    #[derive(Deserialize)]
    struct Path {
        protocol: Option<String>,
    }
    let document: Document = serde_json::from_str(json).ok()?;
    let transfer = document.transfers.into_iter().next()?;
    let protocol = transfer.paths.into_iter().find_map(|path| path.protocol)?;
    Some((transfer.seconds, protocol))
}

fn curl_says(json: &str) -> Option<(f64, String)> {
    #[derive(Deserialize)]
    struct Document {
        time_total: f64,
        http_version: String,
    }
    let document: Document = serde_json::from_str(json).ok()?;
    let protocol = match document.http_version.as_str() {
        "2" => "h2".to_owned(),
        other => format!("http/{other}"),
    };
    Some((document.time_total, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_both_programs_are_read() {
        let get = r#"{"schema":"manyways.get/1","transfers":[{"url":"x","bytes":8,"seconds":4.5,
            "paths":[{"name":"a","protocol":null},{"name":"b","protocol":"h2"}]}]}"#;
        assert_eq!(get_says(get), Some((4.5, "h2".to_owned())));
        let curl = r#"{"time_total":4.9,"http_version":"1.1","http_code":200}"#;
        assert_eq!(curl_says(curl), Some((4.9, "http/1.1".to_owned())));
        assert_eq!(curl_says("curl: (7) Failed to connect"), None);
    }

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
}
