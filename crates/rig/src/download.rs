//! Programs that download an object over some links: their command lines, and what they report.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manyways_trace::scenario::LinkSpec;
use manyways_unit::Size;
use serde::{Deserialize, Serialize};

use crate::origin::{Origin, WARM_UP};
use crate::programs::{program, version};

/// The programs of all downloaders.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The binary under test.
    pub manyways: PathBuf,
    /// Alone and over MPTCP.
    pub curl: Option<PathBuf>,
    /// With its own splitting.
    pub aria2: Option<PathBuf>,
    /// Gives a program the kernel's MPTCP.
    pub mptcpize: Option<PathBuf>,
}

impl Programs {
    /// Looks for those of other people.
    pub fn find(manyways: PathBuf) -> Self {
        let [curl, aria2, mptcpize] = ["curl", "aria2c", "mptcpize"].map(program);
        Self { manyways, curl, aria2, mptcpize }
    }

    /// Names and versions, those of nginx included.
    pub fn versions(&self) -> Vec<String> {
        let nginx = program("nginx");
        let found = [
            (Some(&self.manyways), "--version"),
            (nginx.as_ref(), "-v"),
            (self.curl.as_ref(), "--version"),
            (self.aria2.as_ref(), "--version"),
        ];
        found.iter().filter_map(|(program, option)| version((*program)?, option)).collect()
    }
}

/// One way to get an object. Links are numbered as the cell has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downloader {
    /// Over every link, nothing known beforehand.
    MpH2,
    /// The same with the object's size (`+FS`).
    Sized,
    /// The same with the size and what earlier transfers were worth (`+FS+BW/L`).
    Known,
    /// [`Downloader::MpH2`] that sends a request only when the last one is done.
    Serial,
    /// [`Downloader::MpH2`] with the first link's server for all.
    OneServer,
    /// Chunks of so many KiB in turn: mHTTP.
    FixedChunk(u64),
    /// An equal part over each link.
    EqualSplit,
    /// One connection of the kernel's MPTCP, by the same client.
    Mptcp,
    /// The same by curl.
    MptcpCurl,
    /// One link, by the same client.
    Single(usize),
    /// One link, by curl.
    Curl(usize),
    /// Four connections in turn over the links.
    Aria2,
    /// One link, an end that is cut by flow control.
    Window(usize),
    /// One link, an end that is cut by a reset.
    Reset(usize),
}

/// What a downloader is to fetch.
pub struct Fetch<'a> {
    /// What there is to run.
    pub programs: &'a Programs,
    /// The far side.
    pub site: &'a Origin,
    /// The cell's links.
    pub links: &'a [LinkSpec],
    /// Whether its connections shall be warm.
    pub warm: bool,
    /// The object.
    pub size: Size,
    /// Only so much of it is wanted, although all is asked for.
    pub stop: Option<Size>,
    /// Where it remembers what networks are worth, if it may.
    pub cache: Option<&'a Path>,
}

impl Downloader {
    /// Its name in results.
    pub fn name(self, links: &[LinkSpec]) -> String {
        match self {
            Self::MpH2 => "mp-h2".to_owned(),
            Self::Sized => "mp-h2+fs".to_owned(),
            Self::Known => "mp-h2+fs+bw/l".to_owned(),
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

    /// The links that it may use.
    pub fn links(self, links: &[LinkSpec]) -> &[LinkSpec] {
        match self {
            Self::Single(link) | Self::Curl(link) | Self::Window(link) | Self::Reset(link) => {
                links.get(link..=link).unwrap_or_default()
            }
            _ => links,
        }
    }

    /// The links that it is told of, of which connections are warmed up one after the other. One
    /// link alone is told of those after it too: there its connection would be idle as long, and
    /// slow start after idle begins anew.
    pub fn warmed(self, links: &[LinkSpec], warm: bool) -> &[LinkSpec] {
        match self {
            Self::Single(link) if warm => links.get(link..).unwrap_or_default(),
            _ => self.links(links),
        }
    }

    /// Whether it is `manyways get`, which says what went on.
    pub fn is_get(self) -> bool {
        !matches!(self, Self::MptcpCurl | Self::Curl(_) | Self::Aria2)
    }

    /// Whether it needs the kernel's MPTCP.
    pub fn is_mptcp(self) -> bool {
        matches!(self, Self::Mptcp | Self::MptcpCurl)
    }

    /// Why it cannot run here, if it cannot.
    pub fn missing(self, programs: &Programs) -> Option<&'static str> {
        let curl = matches!(self, Self::MptcpCurl | Self::Curl(_));
        if curl && programs.curl.is_none() {
            Some("curl is not installed (Debian: package curl)")
        } else if self == Self::Aria2 && programs.aria2.is_none() {
            Some("aria2 is not installed (Debian: package aria2)")
        } else if self.is_mptcp() && programs.mptcpize.is_none() {
            Some("mptcpize is not installed (Debian: package mptcpize)")
        } else {
            None
        }
    }

    /// The whole command.
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
        let Fetch { programs, site, links, size, .. } = fetch;
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
            let told = self.warmed(links, fetch.warm);
            let names: Vec<_> = told.iter().map(|link| link.name.as_str()).collect();
            command.args(["--via", &names.join(",")]);
        }
        match self {
            Self::Sized | Self::Known => {
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
                command.args(["--range-end", "reset"]);
            }
            _ => {}
        }
        if let Some(stop) = fetch.stop {
            command.args(["--stop-after", &stop.as_bytes().to_string()]);
        }
        if fetch.warm {
            command.args(["--warm-up", &site.url(WARM_UP, self.is_mptcp())]);
        }
        command.arg(site.url(*size, self.is_mptcp()));
        command
    }

    fn curl(self, fetch: &Fetch<'_>) -> Command {
        let Fetch { programs, site, links, .. } = fetch;
        let curl = programs.curl.as_deref().unwrap_or(Path::new("curl"));
        let mut command = match (&programs.mptcpize, self) {
            (Some(mptcpize), Self::MptcpCurl) => {
                let mut command = Command::new(mptcpize);
                command.arg("run").arg(curl);
                command
            }
            _ => Command::new(curl),
        };
        // First --disable: the caller's settings are not the benchmark's.
        command.args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--fail"]);
        command.args(["--write-out", "%{json}\n", "--cacert"]).arg(site.authority());
        if let Self::Curl(link) = self {
            command.args(["--interface", via(links, link)]);
        }
        if fetch.warm {
            command.args(["--output", "/dev/null", &site.url(WARM_UP, self.is_mptcp())]);
        }
        command.arg("--output").arg(site.download()).arg(site.url(fetch.size, self.is_mptcp()));
        command
    }

    fn aria2(self, fetch: &Fetch<'_>) -> Command {
        let Fetch { programs, site, links, .. } = fetch;
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
        command.arg(site.url(fetch.size, false));
        command
    }
}

fn via(links: &[LinkSpec], link: usize) -> &str {
    links.get(link).map_or("", |link| &link.name)
}

/// What `manyways get` and curl report at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Of the transfer, warm-up and start of the process left out.
    pub seconds: f64,
    /// `h2` or `http/1.1`; `None` where the program does not tell.
    pub protocol: Option<String>,
    /// By path; empty where the program does not tell.
    pub paths: Vec<PathReport>,
}

/// What one path did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Its name.
    pub name: String,
    /// `h2` or `http/1.1`; nothing where there was no connection.
    pub protocol: Option<String>,
    /// Bytes of the object.
    pub bytes: u64,
    /// How many it sent.
    pub requests: u64,
    /// What came past an adjusted end.
    #[serde(default)]
    pub tail_bytes: u64,
    /// What had come already.
    #[serde(default)]
    pub duplicate_bytes: u64,
}

/// Reads the JSON of `manyways get`.
pub fn read_get(json: &str) -> Option<Report> {
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

/// Reads what curl writes about its last transfer.
pub fn read_curl(json: &str) -> Option<Report> {
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
        let get = r#"{"schema":"manyways.get/1","transfers":[{"url":"x","bytes":8,"seconds":4.5,
            "paths":[{"name":"a","protocol":null,"bytes":0,"requests":0},
            {"name":"b","protocol":"h2","bytes":8,"requests":2,"tail_bytes":3}]}]}"#;
        let said = read_get(get).unwrap();
        assert_eq!((said.seconds, said.paths[1].tail_bytes), (4.5, 3));
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
        assert_eq!(Downloader::Single(0).warmed(&links, true), links);
        assert_eq!(Downloader::Single(1).warmed(&links, true), &links[1..]);
        assert_eq!(Downloader::Single(0).warmed(&links, false), &links[..1]);
        assert_eq!(Downloader::MpH2.links(&links).len(), 2);
    }
}
