//! The command line of `manyways get`: its options and the parsers of their values.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueHint;
use manyways_net::fetch::conditions::Memory;
use manyways_net::fetch::{Allowance, Checksum, Config, NameServers, RangeEnd, Scheduler};
use manyways_unit::{Size, human};

/// Minimum size of a chunk, which bounds the number of requests.
const LEAST_CHUNK: Size = Size::from_kib(16);
/// Default size of a chunk.
const CHUNK: Size = Size::from_mib(1);

/// Fetch files over every network of this host at once.
///
/// Each network gets one connection, and they share the bytes of each file. The server only
/// needs to answer range requests, as nearly every server does; otherwise `get` uses one network and
/// reports the reason.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways get https://www.example.com/film.mp4
  manyways get -o film.mp4 --via wifi,lte --metered 500MB https://www.example.com/film.mp4
  manyways get -c https://www.example.com/film.mp4        (goes on after a kill)
  manyways get -o - https://www.example.com/src.tar.gz | tar xz
  manyways get --checksum sha256:9f86d0…0a08 --json https://www.example.com/film.mp4
  manyways get --netrc --dns wifi=192.0.2.53 https://www.example.com/private/build.tar.gz

A file gets its name when it is whole. Until then its bytes are in FILE.manyways-part, and
FILE.manyways lists the received parts; an existing file is replaced at the
end. All options are explained in docs/get.md.")]
pub struct Args {
    /// URLs to fetch, http:// or https://.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub urls: Vec<String>,

    /// Write to FILE, or with - to standard output; without it, to a file in this folder that is
    /// called as the URL ends.
    #[arg(short, long, value_name = "FILE", help_heading = FILES)]
    pub output: Option<PathBuf>,
    /// Name each file as its URL ends, which is what happens without -o too.
    #[arg(short = 'O', long, conflicts_with = "output", help_heading = FILES)]
    pub remote_name: bool,
    /// Go on with what an earlier run left, if the object is still the same.
    #[arg(short = 'c', long = "continue", help_heading = FILES)]
    pub resume: bool,
    /// Fail unless the file has this SHA-256: sha256:HEX.
    #[arg(long, value_name = "sha256:HEX", value_parser = checksum, help_heading = FILES)]
    pub checksum: Option<Sha256>,
    /// Report the file's SHA-256.
    #[arg(long, help_heading = FILES)]
    pub sha256: bool,

    /// Use only these networks, by their names in `manyways paths`; the first is preferred.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = NETWORKS)]
    pub via: Vec<String>,
    /// How much metered networks may be used: yes (without limit), no, or so many bytes in all.
    #[arg(long, value_name = "yes|no|BYTES", default_value = "1GB", value_parser = allowance,
          help_heading = NETWORKS)]
    pub metered: Allowance,
    /// Ask these name servers over network NAME instead of its own. May be given more than once.
    #[arg(long, value_name = "NAME=ADDRESS,…", value_parser = dns, help_heading = NETWORKS)]
    pub dns: Vec<NameServers>,
    /// Every network talks to the server that the first one found, instead of the one that its own
    /// name servers name.
    #[arg(long, help_heading = NETWORKS)]
    pub single_server: bool,

    /// Send this header with every request. May be given more than once.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", help_heading = SERVER)]
    pub header: Vec<String>,
    /// User name and password, sent only to the host of the URL.
    // Not parsed by clap, whose error messages repeat an invalid value: this one is a secret.
    #[arg(short = 'u', long, value_name = "USER:PASSWORD", help_heading = SERVER)]
    pub user: Option<String>,
    /// Look the user name and password up in ~/.netrc, or in FILE.
    #[arg(long, value_name = "FILE", require_equals = true, num_args = 0..=1, help_heading = SERVER)]
    pub netrc: Option<Option<PathBuf>>,
    /// Trust the certificate authorities in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = SERVER)]
    pub cacert: Option<PathBuf>,
    /// Accept any certificate. Any device on the path can then read and change the file.
    #[arg(long, help_heading = SERVER)]
    pub insecure: bool,
    /// Speak HTTP/2 to http:// servers too, without asking whether they do.
    #[arg(long, help_heading = SERVER)]
    pub http2_prior_knowledge: bool,

    /// Scheduler. fixed-chunk alternates chunks of SIZE (1MiB), equal-split gives each network the
    /// same share, single uses one network.
    #[arg(long, value_name = "mp-h2|fixed-chunk[=SIZE]|equal-split|single", default_value = "mp-h2",
          hide_default_value = true, value_parser = scheduler, help_heading = HOW)]
    pub scheduler: Scheduler,
    /// Send each request only when the one before it is done.
    #[arg(long, help_heading = HOW)]
    pub no_pipelining: bool,
    /// How a request ends before the end of what it asked for: by giving no more flow-control
    /// credit, or by resetting its stream.
    #[arg(long, value_enum, default_value_t, hide_default_value = true, hide_possible_values = true,
          value_name = "window|reset", help_heading = HOW)]
    pub range_end: End,
    /// How long the file is, where you know it: all networks can then begin at once.
    #[arg(long, value_name = "BYTES", value_parser = human::bytes, help_heading = HOW)]
    pub size: Option<Size>,
    /// tcp: one connection a network. mptcp: a single connection of the kernel's Multipath TCP, for
    /// comparison; the server's kernel needs it too.
    #[arg(long, value_enum, default_value_t, hide_default_value = true, hide_possible_values = true,
          value_name = "tcp|mptcp", help_heading = HOW)]
    pub transport: Transport,
    /// Where to remember what each network was worth, for the next time; off: nowhere.
    #[arg(long, value_name = "DIR|off", value_parser = cache, value_hint = ValueHint::DirPath, help_heading = HOW,
          long_help = "Where to remember what each network was worth, for the next time; off: \
                       nowhere. Default: manyways/networks in your cache folder")]
    pub cache: Option<Cache>,
    /// For measurements: fetch this URL over each network first, so that the download finds warm
    /// connections.
    #[arg(long, value_name = "URL", hide = true)]
    pub warm_up: Option<String>,
    /// For measurements: want only so much of the beginning, and ask for all.
    #[arg(long, value_name = "BYTES", value_parser = human::bytes, hide = true)]
    pub stop_after: Option<Size>,

    /// Print one line of JSON at the end, on standard output.
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Write an event per request to FILE, as JSON lines (docs/event-log.md).
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub events: Option<PathBuf>,
    /// Print errors only.
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,
}

const FILES: &str = "Files";
const NETWORKS: &str = "Networks";
const SERVER: &str = "The server";
const HOW: &str = "Scheduling";
const OUTPUT: &str = "Output";

/// An expected hash.
#[derive(Clone, Copy)]
pub struct Sha256(pub [u8; 32]);

/// [`RangeEnd`] as a value of the command line.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub enum End {
    /// By flow control.
    #[default]
    Window,
    /// By a reset.
    Reset,
}

/// Location of the path estimates of earlier transfers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cache {
    /// No cache.
    Off,
    /// This folder.
    Folder(PathBuf),
}

/// Transport of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Transport {
    /// A connection a network.
    #[default]
    Tcp,
    /// One connection, and the kernel chooses the networks.
    Mptcp,
}

impl Args {
    /// Whether the bytes are written to standard output.
    pub fn to_stdout(&self) -> bool {
        self.output.as_deref().is_some_and(|output| output == "-")
    }

    /// The path estimates of earlier transfers; `None` without a cache.
    pub fn memory(&self) -> Option<Memory> {
        match &self.cache {
            None => Memory::of_user(),
            Some(Cache::Off) => None,
            Some(Cache::Folder(folder)) => Some(Memory::at(folder)),
        }
    }

    /// The treatment of a file's hash.
    pub fn checksum(&self) -> Checksum {
        match self.checksum {
            Some(Sha256(wanted)) => Checksum::Check(wanted),
            None if self.sha256 => Checksum::Report,
            None => Checksum::None,
        }
    }

    /// The configuration of a transfer.
    pub fn config(&self) -> Config {
        Config {
            scheduler: self.scheduler,
            pipelining: !self.no_pipelining,
            range_end: match self.range_end {
                End::Window => RangeEnd::Window,
                End::Reset => RangeEnd::Reset,
            },
            stop_after: self.stop_after.map(Size::as_bytes),
            ..Config::default()
        }
    }
}

fn allowance(text: &str) -> Result<Allowance, String> {
    match text {
        "yes" => Ok(Allowance::All),
        "no" => Ok(Allowance::Nothing),
        size => human::bytes(size)
            .map(Allowance::Limit)
            .map_err(|error| format!("yes, no or a size is needed; {error}")),
    }
}

fn dns(text: &str) -> Result<NameServers, String> {
    let wrong = || "a network and its name servers are needed, like wifi=192.0.2.53".to_owned();
    let (network, servers) = text.split_once('=').ok_or_else(wrong)?;
    if network.is_empty() {
        return Err(wrong());
    }
    let address = |text: &str| {
        let text = text.trim();
        text.parse().map_err(|_| format!("{text:?} is not an IP address"))
    };
    let servers = servers.split(',').map(address).collect::<Result<Vec<IpAddr>, String>>()?;
    Ok(NameServers { network: network.to_owned(), servers })
}

fn cache(text: &str) -> Result<Cache, String> {
    match text {
        "" => Err("off or a folder is needed".to_owned()),
        "off" => Ok(Cache::Off),
        folder => Ok(Cache::Folder(folder.into())),
    }
}

fn scheduler(text: &str) -> Result<Scheduler, String> {
    match text.split_once('=') {
        None => {
            match text {
                "mp-h2" => Ok(Scheduler::MpH2),
                "fixed-chunk" => Ok(Scheduler::FixedChunk(CHUNK)),
                "equal-split" => Ok(Scheduler::EqualSplit),
                "single" => Ok(Scheduler::Single),
                _ => Err("there are mp-h2, fixed-chunk, fixed-chunk=SIZE, equal-split and single"
                    .to_owned()),
            }
        }
        Some(("fixed-chunk", size)) => {
            let size = human::bytes(size).map_err(|error| error.to_string())?;
            if size < LEAST_CHUNK {
                return Err("a chunk is at least 16KiB".to_owned());
            }
            Ok(Scheduler::FixedChunk(size))
        }
        Some((name, _)) => Err(format!("only fixed-chunk has a size, and not {name}")),
    }
}

fn checksum(text: &str) -> Result<Sha256, String> {
    let wrong = || "sha256: and 64 hexadecimal digits are needed".to_owned();
    let digits = text.strip_prefix("sha256:").ok_or_else(wrong)?;
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(Sha256(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(allowance("500MB"), Ok(Allowance::Limit(Size::from_bytes(500_000_000))));
        assert_eq!(allowance("1000000"), Ok(Allowance::Limit(Size::from_bytes(1_000_000))));
        assert_eq!(allowance("no"), Ok(Allowance::Nothing));
        assert!(allowance("maybe").is_err());
        let hash = "ab".repeat(32);
        assert_eq!(checksum(&format!("sha256:{hash}")).map(|hash| hash.0), Ok([0xab; 32]));
        for wrong in [hash.as_str(), "sha256:ab", &format!("md5:{hash}")] {
            assert!(checksum(wrong).is_err());
        }
    }

    #[test]
    fn name_servers_are_addresses() {
        let read = dns("wlan0=192.0.2.1, fd00::1").map(|dns| (dns.network, dns.servers.len()));
        assert_eq!(read, Ok(("wlan0".to_owned(), 2)));
        for wrong in ["192.0.2.1", "=192.0.2.1", "wlan0=", "wlan0=a.example", "wlan0=192.0.2.1:53"]
        {
            assert!(dns(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_chunk_has_a_size_and_the_others_have_none() {
        assert_eq!(scheduler("mp-h2"), Ok(Scheduler::MpH2));
        assert_eq!(scheduler("fixed-chunk"), Ok(Scheduler::FixedChunk(Size::from_mib(1))));
        let half = Scheduler::FixedChunk(Size::from_kib(512));
        assert_eq!(scheduler("fixed-chunk=512KiB"), Ok(half));
        assert_eq!(scheduler("fixed-chunk=524288"), Ok(half));
        for wrong in ["fixed-chunk=1KB", "fixed-chunk=", "single=1MB", "mptcp", ""] {
            assert!(scheduler(wrong).is_err(), "{wrong}");
        }
    }
}
