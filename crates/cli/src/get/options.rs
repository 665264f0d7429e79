//! The command line of `manyways get`: its options and the parsers of their values.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use manyways_net::fetch::gateway::{AllowedOrigin, Learn};
use manyways_net::fetch::{
    Checksum, Config, CutMethod, EstimateCache, MeteredUse, NameServers, RefusedStart, Scheduler,
};
use manyways_unit::human::InvalidValue;
use manyways_unit::{Size, Span, human};

/// Fetch files over every network of this host at once.
///
/// Each network (Wi-Fi, cellular, cable) gets one connection to the server, and they share the
/// bytes of each file. The server only has to answer requests for a part of a file, as nearly every
/// server does; otherwise `get` uses one network and prints the reason.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways get https://www.example.com/film.mp4
  manyways get -o film.mp4 --via wifi,lte --metered 500MB https://www.example.com/film.mp4
  manyways get --via auto --goal fast https://www.example.com/film.mp4
  manyways get -c https://www.example.com/film.mp4        (continues a killed run)
  manyways get -o - https://www.example.com/src.tar.gz | tar xz
  manyways get --checksum sha256:9f86d0…0a08 --json https://www.example.com/film.mp4
  manyways get --netrc --dns wifi=192.0.2.53 https://www.example.com/private/build.tar.gz
  manyways get --retry 20 --retry-max-time 1h https://www.example.com/film.mp4
  manyways get --metered no https://www.example.com/a.iso https://www.example.com/b.iso
  manyways get --serve 127.0.0.1:8080 --origin https://www.example.com/films/a.mpd
                                                          (prints a URL for a player)

A file gets its name when it is complete. Until then its bytes are in FILE.manyways-part, and
FILE.manyways lists the received parts; an existing file is replaced at the
end. All options are explained in docs/get.md.")]
pub struct Args {
    /// URLs to fetch, http:// or https://; several are fetched one after the other.
    #[arg(required_unless_present = "serve", value_name = "URL", value_hint = ValueHint::Url)]
    pub urls: Vec<OsString>,

    /// Write to FILE; - is standard output. Default: a file in the current folder, named after the
    /// last part of the URL.
    #[arg(short, long, value_name = "FILE", help_heading = FILES)]
    pub output: Option<PathBuf>,
    /// Name each file after the last part of its URL (default).
    #[arg(short = 'O', long, conflicts_with = "output", help_heading = FILES)]
    pub remote_name: bool,
    /// Resume an unfinished download of an earlier run, if the file on the server is unchanged.
    /// Without -c it is discarded. A complete FILE is not fetched again.
    #[arg(short = 'c', long = "continue", help_heading = FILES)]
    pub resume: bool,
    /// Discard the file and fail unless its SHA-256 is HEX, 64 hexadecimal digits.
    #[arg(long, value_name = "sha256:HEX", value_parser = checksum, help_heading = FILES)]
    pub checksum: Option<Sha256>,
    /// Print the SHA-256 of each file.
    #[arg(long, help_heading = FILES)]
    pub sha256: bool,

    /// Use only these networks, by their names in `manyways paths`. The first one that is not
    /// metered begins, and the others join it. auto: those that a running `manyways steer run`
    /// advises, which may change during the download.
    #[arg(long, value_name = "NAME,…|auto", value_delimiter = ',', help_heading = NETWORKS)]
    pub via: Vec<String>,
    /// Goal for --via auto. fast: the shortest time. balanced: time and energy. thrifty: time, energy
    /// and money. Default: the goal of `steer run`.
    #[cfg(feature = "steer")]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "fast|balanced|thrifty",
          help_heading = NETWORKS)]
    pub goal: Option<GoalArg>,
    /// How many bytes all metered networks together may receive: yes (any number), no (none: they
    /// are not used), or a size for the whole command. `manyways paths` shows which are metered.
    #[arg(long, value_name = "yes|no|BYTES", default_value = "1GB", value_parser = allowance,
          help_heading = NETWORKS)]
    pub metered: MeteredUse,
    /// Over network NAME, look the host up at the name servers with these addresses, and not at the
    /// network's own. May be given once for each network.
    #[arg(long, value_name = "NAME=ADDRESS,…", value_parser = dns, help_heading = NETWORKS)]
    pub dns: Vec<NameServers>,
    /// Use the first network's resolved server on all networks. Default: each network looks the
    /// host up at its own name servers, and may reach another server of the same site.
    #[arg(long, help_heading = NETWORKS)]
    pub single_server: bool,

    /// Send this header with every request; Authorization and Cookie only to the host of the URL.
    /// May be given more than once.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", help_heading = SERVER)]
    pub header: Vec<String>,
    /// User name and password, sent only to the host of the URL. Other users of this machine may
    /// see them on the command line; --netrc avoids that.
    // Not parsed by clap, whose error messages repeat an invalid value: this one is a secret.
    #[arg(short = 'u', long, value_name = "USER:PASSWORD", help_heading = SERVER)]
    pub user: Option<String>,
    /// Read the user name and password for the host from ~/.netrc, or from FILE.
    #[arg(long, value_name = "FILE", require_equals = true, num_args = 0..=1, help_heading = SERVER)]
    pub netrc: Option<Option<PathBuf>>,
    /// Trust only the certificates in FILE (PEM), and not the authorities that the system trusts.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = SERVER)]
    pub cacert: Option<PathBuf>,
    /// Accept any certificate. Any device on the path can then read and change the file.
    #[arg(long, help_heading = SERVER)]
    pub insecure: bool,
    /// Try again at most N times in a row without a new byte: after an interruption, or if the server
    /// has no capacity (429, 503, …). Default: 5. With this option, also if the server refuses
    /// the first connection.
    #[arg(long, value_name = "N", help_heading = SERVER)]
    pub retry: Option<u32>,
    /// Stop trying again this long after the first failure, in seconds or like 5min. The server can
    /// ask for a wait (Retry-After); a longer one is an error.
    #[arg(long, value_name = "SECONDS", default_value = "5min", value_parser = seconds,
          help_heading = SERVER)]
    pub retry_max_time: Span,
    /// Use HTTP/2 for http:// URLs too, without checking that the server supports it. Default:
    /// HTTP/1.1 for http://, and for https:// what the server chooses.
    #[arg(long, help_heading = SERVER)]
    pub http2_prior_knowledge: bool,

    /// How the networks share a file. mp-h2 (default): all finish together. fixed-chunk: each
    /// fetches the next SIZE bytes (1MiB) when its previous ones are complete. msplayer: the same,
    /// but SIZE follows the rate of the network. equal-split: each fetches an equal part. single:
    /// only one network is used.
    #[arg(long, value_name = "mp-h2|fixed-chunk[=SIZE]|msplayer|equal-split|single",
          default_value = "mp-h2", hide_default_value = true,
          help_heading = SCHEDULING)]
    pub scheduler: Scheduler,
    /// Let each network send its next request when the previous response is complete. Default: one
    /// round trip earlier, so that the network does not pause.
    #[arg(long, help_heading = SCHEDULING)]
    pub no_pipelining: bool,
    /// How to stop a response early when another network fetches the rest: withhold HTTP/2
    /// flow-control credit (window, the default), or reset the stream (reset).
    #[arg(long, value_enum, default_value_t, hide_default_value = true, hide_possible_values = true,
          value_name = "window|reset", help_heading = SCHEDULING)]
    pub cut_method: CutArg,
    /// Length of the file, if known. All networks then start at once, and a network with another
    /// length is dropped if one has this length. Default: the others start when the first response
    /// has shown the length.
    #[arg(long, value_name = "BYTES", value_parser = human::bytes, help_heading = SCHEDULING)]
    pub size: Option<Size>,
    /// tcp (default): one connection per network. mptcp: a single Multipath TCP connection, for
    /// comparison; the kernel chooses its networks, and the server must support MPTCP too.
    #[arg(long, value_enum, default_value_t, hide_default_value = true, hide_possible_values = true,
          value_name = "tcp|mptcp", help_heading = SCHEDULING)]
    pub transport: Transport,
    /// Folder for path estimates: the rate and round trip of each network, for later runs; or off.
    #[arg(long, value_name = "DIR|off", value_parser = cache, value_hint = ValueHint::DirPath, help_heading = SCHEDULING,
          long_help = "Folder for path estimates: the rate and round trip of each network, with \
                       which later runs start faster; off: store and read none. Default: \
                       manyways/networks in your cache folder")]
    pub cache: Option<Cache>,
    /// For measurements: fetch this URL over each network first, so that the download finds warm
    /// connections.
    #[arg(long, value_name = "URL", hide = true)]
    pub warm_up: Option<String>,
    /// For measurements: stop after this many bytes, but request the whole file.
    #[arg(long, value_name = "BYTES", value_parser = human::bytes, hide = true)]
    pub stop_after: Option<Size>,
    /// For tests: fail after this time without data over any network.
    #[arg(long, value_name = "DURATION", hide = true)]
    pub idle_timeout: Option<Span>,
    /// For tests: wait this long for the advice of `steer run`.
    #[cfg(feature = "steer")]
    #[arg(long, value_name = "DURATION", default_value = "1s", hide = true)]
    pub advice_timeout: Span,

    /// Print the result as one line of JSON on standard output, also after a failure (docs/get.md).
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Write what happens to FILE, as JSON lines: each request and response, and the rate of each
    /// network ten times a second (docs/event-log.md).
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub events: Option<PathBuf>,
    /// Print errors only: no progress, notes or summary.
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,

    /// Instead of fetching files, answer players on this machine: print a URL for them, and fetch what
    /// they request over all networks, until a signal. ADDRESS is a loopback address.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "origin", value_parser = listen_address,
          conflicts_with_all = ["urls", "output", "remote_name", "resume", "checksum", "sha256", "size"],
          help_heading = PLAYERS)]
    pub serve: Option<SocketAddr>,
    /// The folder or manifest that players may request. Its server may have a private address; those
    /// of other URLs, in manifests and redirects, may not.
    #[arg(long, value_name = "URL", requires = "serve", value_hint = ValueHint::Url,
          help_heading = PLAYERS)]
    pub origin: Option<OsString>,
    /// Let the pages of ORIGIN (scheme and host) read the responses in a browser; * is
    /// every page. May be given more than once.
    #[arg(long, value_name = "ORIGIN", requires = "serve", value_parser = AllowedOrigin::parse,
          help_heading = PLAYERS)]
    pub allow_origin: Vec<AllowedOrigin>,
    /// Knowledge that a request gets from earlier ones. all (default): lengths of objects, and the
    /// rate and round trip of each network. size: lengths. none: only the connections are kept.
    #[arg(long, value_enum, default_value_t, hide_default_value = true, hide_possible_values = true,
          value_name = "all|size|none", requires = "serve", help_heading = PLAYERS)]
    pub learn: LearnArg,
}

const FILES: &str = "Files";
const NETWORKS: &str = "Networks";
const SERVER: &str = "The server";
const SCHEDULING: &str = "Scheduling";
const OUTPUT: &str = "Output";
const PLAYERS: &str = "Players";

/// An expected hash.
#[derive(Clone, Copy)]
pub struct Sha256(pub [u8; 32]);

/// [`CutMethod`] as a value of the command line.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub enum CutArg {
    /// By flow control.
    #[default]
    Window,
    /// By a reset.
    Reset,
}

/// [`Learn`] as a value of the command line.
#[derive(Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LearnArg {
    #[default]
    All,
    Size,
    None,
}

impl From<LearnArg> for Learn {
    fn from(learn: LearnArg) -> Self {
        match learn {
            LearnArg::All => Self::All,
            LearnArg::Size => Self::Size,
            LearnArg::None => Self::None,
        }
    }
}

/// Goal of the choice of networks.
#[cfg(feature = "steer")]
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum GoalArg {
    Fast,
    Balanced,
    Thrifty,
}

#[cfg(feature = "steer")]
impl GoalArg {
    /// The name in requests to `steer run`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Balanced => "balanced",
            Self::Thrifty => "thrifty",
        }
    }
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

/// The value of `--via` for the networks that `steer run` advises.
const AUTO: &str = "auto";

impl Args {
    /// Whether `steer run` advises the networks.
    pub fn is_advised(&self) -> bool {
        self.via.iter().any(|name| name.trim() == AUTO)
    }

    /// Names of the networks to use; empty: all of them.
    pub fn networks(&self) -> &[String] {
        if self.is_advised() { &[] } else { &self.via }
    }

    /// Whether the bytes are written to standard output.
    pub fn to_stdout(&self) -> bool {
        let output = self.output.as_deref().and_then(Path::to_str);
        matches!(output, Some("-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1"))
    }

    /// The path estimates of earlier transfers; `None` without a cache.
    pub fn estimate_cache(&self) -> Option<EstimateCache> {
        match &self.cache {
            _ if self.learn != LearnArg::All => None,
            None => EstimateCache::of_user(),
            Some(Cache::Off) => None,
            Some(Cache::Folder(folder)) => Some(EstimateCache::in_folder(folder)),
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
        let default = Config::default();
        let retry = self.retry.map(|retries| (retries.saturating_add(1), RefusedStart::Retry));
        let (max_attempts, refused_start) =
            retry.unwrap_or((default.max_attempts, default.refused_start));
        Config {
            max_attempts,
            refused_start,
            max_retry_time: self.retry_max_time,
            scheduler: self.scheduler,
            pipelining: !self.no_pipelining,
            cut_method: match self.cut_method {
                CutArg::Window => CutMethod::Window,
                CutArg::Reset => CutMethod::Reset,
            },
            stop_after: self.stop_after.map(Size::as_bytes),
            idle_timeout: self.idle_timeout.unwrap_or(default.idle_timeout),
            ..default
        }
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write an address and a port, like 127.0.0.1:8080".to_owned())?;
    match address.ip().to_canonical().is_loopback() {
        true => Ok(address),
        false => {
            Err("this is not a loopback address, so other machines could use the networks of \
                      this one; write 127.0.0.1 or [::1]"
                .to_owned())
        }
    }
}

fn allowance(text: &str) -> Result<MeteredUse, InvalidValue> {
    match text {
        "yes" => Ok(MeteredUse::Unlimited),
        "no" => Ok(MeteredUse::Forbidden),
        size => human::bytes(size).map(MeteredUse::Limit).map_err(|_| {
            InvalidValue::new(size, "a limit", "yes, no, or a size like 500MB (500000000 bytes)")
        }),
    }
}

fn seconds(text: &str) -> Result<Span, String> {
    match text.parse() {
        Ok(seconds) => Ok(Span::from_secs(seconds)),
        Err(_) => text.parse::<Span>().map_err(|_| "write seconds, or a time like 5min".to_owned()),
    }
}

fn dns(text: &str) -> Result<NameServers, String> {
    let wrong = || "write a network and its name servers, like wifi=192.0.2.53".to_owned();
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
        "" => Err("write off, or name a folder".to_owned()),
        "off" => Ok(Cache::Off),
        folder => Ok(Cache::Folder(folder.into())),
    }
}

fn checksum(text: &str) -> Result<Sha256, String> {
    let wrong = || "write sha256: and 64 hexadecimal digits".to_owned();
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
mod tests;
