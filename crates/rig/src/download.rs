//! Programs that download an object over several links: their command lines, runs and reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manyways_trace::scenario::{Event, LinkSpec};
use manyways_unit::{Size, Span};
use serde::{Deserialize, Serialize};

use crate::launch::{DriveError, Launcher, Observer, RunOutput, first_line};
use crate::need::missing;
use crate::origin::{Origin, Service, WARM_UP};
use crate::programs::{program, versions};
use crate::transfer::Transfer;
use crate::web_server::WebServer;

/// The programs of all downloaders.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The binary under test.
    pub manyways: PathBuf,
    /// Used alone and over MPTCP.
    pub curl: Option<PathBuf>,
    /// Used with its own splitting of the object.
    pub aria2: Option<PathBuf>,
    /// Makes a program use the kernel's MPTCP.
    pub mptcpize: Option<PathBuf>,
}

impl Programs {
    /// Searches for the programs other than `manyways`.
    pub fn find(manyways: PathBuf) -> Self {
        let [curl, aria2, mptcpize] = ["curl", "aria2c", "mptcpize"].map(program);
        Self { manyways, curl, aria2, mptcpize }
    }

    /// Names and versions, including nginx.
    pub fn versions(&self) -> Vec<String> {
        let nginx = program("nginx");
        versions(&[
            (Some(&self.manyways), "--version"),
            (nginx.as_deref(), "-v"),
            (self.curl.as_deref(), "--version"),
            (self.aria2.as_deref(), "--version"),
        ])
    }
}

/// One way to download an object. A link number is an index in the cell's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downloader {
    /// Over every link, without prior knowledge.
    MpH2,
    /// [`Downloader::MpH2`] with the object's size (`+FS`).
    Sized,
    /// [`Downloader::MpH2`] with the size and cached path estimates of earlier transfers
    /// (`+FS+BW/L`).
    Cached,
    /// [`Downloader::MpH2`] with cached path estimates of earlier transfers.
    Remembering,
    /// [`Downloader::MpH2`] with cached path estimates from a time when the links had each other's
    /// rates.
    Misled,
    /// [`Downloader::MpH2`] from another web server than nginx.
    From(WebServer),
    /// [`Downloader::MpH2`] that sends a request only after the previous response is complete.
    Serial,
    /// [`Downloader::MpH2`] with the first link's server for all links.
    OneServer,
    /// Chunks of this many KiB, as mHTTP requests them.
    FixedChunk(u64),
    /// An equal part over each link.
    EqualSplit,
    /// One connection of the kernel's MPTCP, by `manyways get`.
    Mptcp,
    /// One connection of the kernel's MPTCP, by curl.
    MptcpCurl,
    /// One link, by `manyways get`.
    Single(usize),
    /// One link, by curl.
    Curl(usize),
    /// aria2 with four connections, distributed over the links.
    Aria2,
    /// One link; flow control cuts the end of a request.
    Window(usize),
    /// One link; a reset cuts the end of a request.
    Reset(usize),
}

/// One download: the object, the links and the programs.
#[derive(Clone, Copy)]
pub struct Fetch<'a> {
    pub programs: &'a Programs,
    /// The server side.
    pub origin: &'a Origin,
    pub links: &'a [LinkSpec],
    /// Whether the connections are warmed up before the transfer.
    pub warm: bool,
    /// Size of the object.
    pub size: Size,
    /// Ends the transfer after this many bytes, although the whole object is requested. `None` for
    /// the whole object.
    pub stop_after: Option<Size>,
    /// Folder of the cached path estimates; `None` disables the cache.
    pub cache: Option<&'a Path>,
}

/// A download that has ended.
pub struct Download {
    pub ended: RunOutput,
    /// The report of the program, or the reason of its failure.
    pub outcome: Result<Report, String>,
    /// The log of `manyways get`, or the reason why it cannot be read; `None` for other programs.
    pub log: Option<Result<Transfer, String>>,
}

impl Fetch<'_> {
    /// Runs a download and compares the file with the server's. `timeout` is in seconds; see
    /// [`Launcher::run`].
    ///
    /// # Errors
    /// If the lab fails or a signal ends the benchmark. A failed download is an outcome.
    pub fn run(
        &self,
        how: Downloader,
        launcher: &Launcher<'_>,
        timeout: f64,
        when: (Span, &[Event]),
        observed: Option<(Span, Observer<'_>)>,
    ) -> Result<Download, DriveError> {
        for file in [self.origin.events(), self.origin.download()] {
            let _ = fs::remove_file(file);
        }
        let ended = launcher.run(how.command(self), timeout, when, observed)?;
        let outcome = self.outcome(how, &ended);
        let log = how.is_get().then(|| {
            let log = fs::read(self.origin.events()).map_err(|error| error.to_string());
            log.and_then(|log| Transfer::read(&log))
        });
        Ok(Download { ended, outcome, log })
    }

    fn outcome(&self, how: Downloader, ended: &RunOutput) -> Result<Report, String> {
        match ended.success {
            None => return Err("it took too long".to_owned()),
            Some(false) => return Err(first_line(&ended.stderr)),
            Some(true) => {}
        }
        let file = fs::read(self.origin.download()).map_err(|e| format!("it left no file: {e}"))?;
        let whole = self.stop_after.is_some() || file.len() as u64 == self.size.as_bytes();
        if !whole || !self.origin.is_prefix(&file, self.stop_after.unwrap_or(self.size)) {
            return Err(format!("the file is not the server's ({} bytes)", file.len()));
        }
        let report = match how {
            Downloader::Aria2 => Some(Report { seconds: ended.seconds, ..Report::default() }),
            Downloader::Curl(_) | Downloader::MptcpCurl => read_curl(&ended.stdout),
            _ => read_get(&ended.stdout),
        };
        report.ok_or_else(|| "its report cannot be read".to_owned())
    }
}

impl Downloader {
    pub fn name(self, links: &[LinkSpec]) -> String {
        match self {
            Self::MpH2 => "mp-h2".to_owned(),
            Self::Sized => "mp-h2+fs".to_owned(),
            Self::Cached => "mp-h2+fs+bw/l".to_owned(),
            Self::Remembering => "mp-h2 with estimates".to_owned(),
            Self::Misled => "mp-h2 with wrong estimates".to_owned(),
            Self::From(server) => format!("mp-h2 from {}", server.name()),
            Self::Serial => "mp-h2 without pipelining".to_owned(),
            Self::OneServer => "mp-h2 with one server".to_owned(),
            Self::FixedChunk(1024) => "fixed-chunk 1 MiB".to_owned(),
            Self::FixedChunk(kib) => format!("fixed-chunk {kib} KiB"),
            Self::EqualSplit => "equal-split".to_owned(),
            Self::Mptcp => "kernel MPTCP".to_owned(),
            Self::MptcpCurl => "kernel MPTCP, curl".to_owned(),
            Self::Single(link) => format!("{} alone", via(links, link)),
            Self::Curl(link) => format!("{} alone, curl", via(links, link)),
            Self::Aria2 => "aria2".to_owned(),
            Self::Window(link) => format!("{} window", via(links, link)),
            Self::Reset(link) => format!("{} reset", via(links, link)),
        }
    }

    pub fn links(self, links: &[LinkSpec]) -> &[LinkSpec] {
        match self {
            Self::Single(link) | Self::Curl(link) | Self::Window(link) | Self::Reset(link) => {
                links.get(link..=link).unwrap_or_default()
            }
            _ => links,
        }
    }

    /// The links that the command line names; connections are warmed up on one after the other.
    /// With warm connections a single link gets the links after it too: then its connection is idle
    /// for the same time as in a multipath run, and slow start after idle applies equally (RFC
    /// 5681, 4.1).
    pub fn listed_links(self, links: &[LinkSpec], warm: bool) -> &[LinkSpec] {
        match self {
            Self::Single(link) if warm => links.get(link..).unwrap_or_default(),
            _ => self.links(links),
        }
    }

    /// Whether the program is `manyways get`, which reports details of the transfer.
    pub fn is_get(self) -> bool {
        !matches!(self, Self::MptcpCurl | Self::Curl(_) | Self::Aria2)
    }

    pub fn is_mptcp(self) -> bool {
        matches!(self, Self::Mptcp | Self::MptcpCurl)
    }

    /// The server of the downloader.
    fn service(self) -> Service {
        match self {
            Self::Mptcp | Self::MptcpCurl => Service::Mptcp,
            Self::From(server) => Service::Other(server),
            _ => Service::Plain,
        }
    }

    /// The reason why the downloader cannot run on this machine; `None` if it can.
    pub fn missing(self, programs: &Programs) -> Option<String> {
        let is_curl = matches!(self, Self::MptcpCurl | Self::Curl(_));
        let name = if is_curl && programs.curl.is_none() {
            "curl"
        } else if self == Self::Aria2 && programs.aria2.is_none() {
            "aria2"
        } else if self.is_mptcp() && programs.mptcpize.is_none() {
            "mptcpize"
        } else {
            let Self::From(server) = self else { return None };
            return missing(&[server.needs()]);
        };
        Some(format!("{name} is not installed (Debian: package {name})"))
    }

    /// The complete command line, with output and errors piped.
    pub fn command(self, fetch: &Fetch<'_>) -> Command {
        let mut command = match self {
            Self::Curl(_) | Self::MptcpCurl => self.curl(fetch),
            Self::Aria2 => self.aria2(fetch),
            _ => self.get(fetch),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn get(self, fetch: &Fetch<'_>) -> Command {
        let Fetch { programs, origin: site, links, size, .. } = fetch;
        let mut command = Command::new(&programs.manyways);
        command.args(["get", "--json", "--quiet", "--metered", "yes", "--cacert"]);
        command.arg(site.authority()).arg("-o").arg(site.download());
        command.arg("--events").arg(site.events());
        match fetch.cache {
            Some(folder) => command.arg("--cache").arg(folder),
            None => command.args(["--cache", "off"]),
        };
        if self == Self::Mptcp {
            command.args(["--transport", "mptcp"]);
        } else {
            let told = self.listed_links(links, fetch.warm);
            let names: Vec<_> = told.iter().map(|link| link.name.as_str()).collect();
            command.args(["--via", &names.join(",")]);
        }
        match self {
            Self::Sized | Self::Cached => {
                command.args(["--size", &size.as_bytes().to_string()]);
            }
            Self::Serial => {
                command.arg("--no-pipelining");
            }
            Self::OneServer => {
                command.arg("--single-server");
            }
            Self::FixedChunk(kib) => {
                command.args(["--scheduler", &format!("fixed-chunk={kib}KiB")]);
            }
            Self::EqualSplit => {
                command.args(["--scheduler", "equal-split"]);
            }
            Self::Single(_) => {
                command.args(["--scheduler", "single"]);
            }
            Self::Reset(_) => {
                command.args(["--cut-method", "reset"]);
            }
            _ => {}
        }
        if let Some(stop) = fetch.stop_after {
            command.args(["--stop-after", &stop.as_bytes().to_string()]);
        }
        if fetch.warm {
            command.args(["--warm-up", &site.url(WARM_UP, self.service())]);
        }
        command.arg(site.url(*size, self.service()));
        command
    }

    fn curl(self, fetch: &Fetch<'_>) -> Command {
        let Fetch { programs, origin: site, links, .. } = fetch;
        let curl = programs.curl.as_deref().unwrap_or(Path::new("curl"));
        let mut command = match (&programs.mptcpize, self) {
            (Some(mptcpize), Self::MptcpCurl) => {
                let mut command = Command::new(mptcpize);
                command.arg("run").arg(curl);
                command
            }
            _ => Command::new(curl),
        };
        // --disable must be the first option: it ignores the user's .curlrc.
        command.args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--fail"]);
        command.args(["--write-out", "%{json}\n", "--cacert"]).arg(site.authority());
        if let Self::Curl(link) = self {
            command.args(["--interface", via(links, link)]);
        }
        if fetch.warm {
            command.args(["--output", "/dev/null", &site.url(WARM_UP, self.service())]);
        }
        command.arg("--output").arg(site.download()).arg(site.url(fetch.size, self.service()));
        command
    }

    fn aria2(self, fetch: &Fetch<'_>) -> Command {
        let Fetch { programs, origin: site, links, .. } = fetch;
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        let mut command = Command::new(programs.aria2.as_deref().unwrap_or(Path::new("aria2c")));
        command.args(["--no-conf", "-x4", "-s4", "-k1M", "--file-allocation=none"]);
        command.args([
            "--allow-overwrite=true",
            "--console-log-level=error",
            "--summary-interval=0",
        ]);
        command.arg(format!("--multiple-interface={}", names.join(",")));
        command.arg(format!("--ca-certificate={}", site.authority().display()));
        command.arg("--dir").arg(site.folder()).args(["--out", "download"]);
        command.arg(site.url(fetch.size, self.service()));
        command
    }
}

fn via(links: &[LinkSpec], link: usize) -> &str {
    links.get(link).map_or("", |link| &link.name)
}

/// The final report of `manyways get` or curl.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Duration of the transfer, without the warm-up and the start of the process.
    pub seconds: f64,
    /// `h2` or `http/1.1`; `None` if the program does not report it.
    pub protocol: Option<String>,
    /// By path; empty if the program does not report paths.
    pub paths: Vec<PathReport>,
}

/// The share of one path in a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    pub name: String,
    /// `h2` or `http/1.1`; `None` if the path had no connection.
    pub protocol: Option<String>,
    /// Bytes of the object that the path delivered.
    pub bytes: u64,
    /// Number of requests that were sent.
    pub requests: u64,
    /// Overshoot: bytes that arrived past an adjusted end.
    #[serde(default)]
    pub overshoot_bytes: u64,
    /// Bytes that had already arrived over another request.
    #[serde(default)]
    pub duplicate_bytes: u64,
}

/// Reads the JSON output of `manyways get`.
fn read_get(json: &str) -> Option<Report> {
    #[derive(Deserialize)]
    struct Document {
        transfers: Vec<Transfer>,
    }
    #[derive(Deserialize)]
    struct Transfer {
        seconds: f64,
        paths: Vec<PathReport>,
    }
    let document: Document = serde_json::from_str(json).ok()?;
    let Transfer { seconds, paths } = document.transfers.into_iter().next()?;
    let protocol = paths.iter().find_map(|path| path.protocol.clone());
    Some(Report { seconds, protocol, paths })
}

/// Reads curl's `%{json}` output of its last transfer.
fn read_curl(json: &str) -> Option<Report> {
    #[derive(Deserialize)]
    struct Transfer {
        time_total: f64,
        #[serde(default)]
        http_version: String,
    }
    let last = json.lines().rfind(|line| !line.trim().is_empty())?;
    let Transfer { time_total, http_version } = serde_json::from_str(last).ok()?;
    let protocol = match http_version.as_str() {
        "" => None,
        "2" => Some("h2".to_owned()),
        other => Some(format!("http/{other}")),
    };
    Some(Report { seconds: time_total, protocol, paths: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::wifi_and_lte;

    #[test]
    fn reports_of_both_programs_are_read() {
        let get = r#"{"schema":"manyways.get/2","transfers":[{"url":"x","bytes":8,"seconds":4.5,
            "paths":[{"name":"a","protocol":null,"bytes":0,"requests":0},
            {"name":"b","protocol":"h2","bytes":8,"requests":2,"overshoot_bytes":3}]}]}"#;
        let said = read_get(get).unwrap();
        assert_eq!((said.seconds, said.paths[1].overshoot_bytes), (4.5, 3));
        assert_eq!(said.protocol.as_deref(), Some("h2"));
        let curl = "{\"time_total\":0.2}\n{\"time_total\":4.9,\"http_version\":\"2\"}\n";
        let said = read_curl(curl).unwrap();
        assert_eq!((said.seconds, said.protocol.as_deref()), (4.9, Some("h2")));
        assert_eq!(read_curl("curl: (7) Failed to connect"), None);
        assert_eq!(read_get(r#"{"transfers":[]}"#), None);
    }

    #[test]
    fn a_single_path_has_its_link_and_no_other() {
        let links = wifi_and_lte(10, 5);
        assert_eq!(Downloader::Single(1).name(&links), "lte alone");
        assert_eq!(Downloader::Single(1).links(&links), &links[1..]);
        assert_eq!(Downloader::Single(0).links(&links), &links[..1]);
        assert_eq!(Downloader::Single(0).listed_links(&links, true), links);
        assert_eq!(Downloader::Single(1).listed_links(&links, true), &links[1..]);
        assert_eq!(Downloader::Single(0).listed_links(&links, false), &links[..1]);
        assert_eq!(Downloader::MpH2.links(&links).len(), 2);
    }
}
