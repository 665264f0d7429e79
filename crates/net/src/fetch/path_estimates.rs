//! Path estimates of earlier transfers: one small file per network, in a folder of the user's
//! cache.
//!
//! The estimates are hints. A file that cannot be read, describes another network, is invalid or is
//! older than [`MAX_AGE`] counts as absent.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use manyways_proto::estimate::PathEstimate;
use manyways_record::document;
use manyways_sys::interface::Interface;
use manyways_unit::{Rate, Size, Span};
use serde::{Deserialize, Serialize};

use super::PathReport;

/// Larger files are ignored.
pub(super) const MAX_FILE_SIZE: usize = 4 << 10;
/// Older files are ignored, because networks change.
pub(super) const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Transfers below this size are dominated by slow start and show no rate.
pub(super) const MIN_BYTES: Size = Size::from_bytes(200_000);
/// Larger rates are rejected as invalid; in bit/s.
const MAX_RATE: u64 = 1_000_000_000_000;
/// Longer round-trip times are rejected as invalid; in seconds.
const MAX_RTT: f64 = 60.0;

/// Properties that distinguish networks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Network {
    pub name: String,
    /// Access technology, as `manyways paths` prints it.
    pub kind: String,
    /// An IPv4 gateway if there is one, because IPv6 gateways are often `fe80::1`; `None` without a
    /// gateway.
    pub gateway: Option<IpAddr>,
}

/// The path estimate of a network.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredEstimate {
    pub network: Network,
    pub rate: Rate,
    /// Application RTT; `None` if it was not measured.
    pub rtt: Option<Span>,
    /// Time of the measurement, in seconds since 1970.
    pub time: u64,
}

/// The folder with the files.
#[derive(Clone, Debug)]
pub struct EstimateCache {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(flatten)]
    network: Network,
    rate_bps: u64,
    rtt_seconds: Option<f64>,
    time: u64,
}

document!(File, "manyways.network/1");

impl From<&Interface> for Network {
    fn from(interface: &Interface) -> Self {
        let gateways = &interface.gateways;
        Self {
            name: interface.name.clone(),
            kind: interface.kind.name().to_owned(),
            gateway: gateways.iter().find(|ip| ip.is_ipv4()).or(gateways.first()).copied(),
        }
    }
}

impl Network {
    /// Returns the name of the network's file. Two networks may share a name, because special
    /// characters are replaced; the content of the file identifies the network.
    fn file_name(&self) -> String {
        let gateway = self.gateway.map_or_else(|| "direct".to_owned(), |ip| ip.to_string());
        let name = format!("{}-{}-{gateway}.json", self.kind, self.name);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        name.chars().map(|c| if plain(c) { c } else { '_' }).collect()
    }
}

impl StoredEstimate {
    /// Returns the path estimate of a transfer; `None` if the path received too few bytes. `rate`
    /// is the estimated rate at the end of the transfer, if there is one.
    pub fn of(
        network: Network,
        path: &PathReport,
        rate: Option<Rate>,
        now: SystemTime,
    ) -> Option<Self> {
        // The average includes pauses between requests, and the estimate falls while a network is
        // silent. The larger value counts: a network that failed once need not be slow for a week.
        let rate = path.rate.max(rate.unwrap_or(Rate::ZERO));
        let time = since_1970(now);
        (path.bytes >= MIN_BYTES && !rate.is_zero()).then_some(Self {
            network,
            rate,
            rtt: path.rtt,
            time,
        })
    }

    /// Parses a file; `None` if it has another schema or invalid values.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_FILE_SIZE {
            return None;
        }
        let file: File = document::parse(bytes).ok()?;
        let rate = (1..=MAX_RATE).contains(&file.rate_bps);
        let rtt = file.rtt_seconds.is_none_or(|rtt| rtt > 0.0 && rtt <= MAX_RTT);
        (rate && rtt).then(|| Self {
            network: file.network,
            rate: Rate::from_bps(file.rate_bps),
            rtt: file.rtt_seconds.map(Span::from_secs_f64),
            time: file.time,
        })
    }

    /// Writes a file.
    pub fn to_json(&self) -> String {
        let file = File {
            network: self.network.clone(),
            rate_bps: self.rate.as_bps(),
            rtt_seconds: self.rtt.map(Span::as_secs_f64),
            time: self.time,
        };
        // Serialization of strings and numbers cannot fail.
        document::to_json(&file).unwrap_or_default()
    }

    /// Returns the start values for a transfer; `None` if the RTT is unknown.
    pub fn path_estimate(&self) -> Option<PathEstimate> {
        Some(PathEstimate { rate: self.rate, rtt: self.rtt? })
    }
}

impl EstimateCache {
    /// Creates a memory in this folder, which need not exist.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the user's memory: `manyways/networks` in the cache folder of the XDG base
    /// directories.
    pub fn of_user() -> Option<Self> {
        // The specification requires that relative paths are ignored.
        let folder = |variable: &str| {
            std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute())
        };
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
        Some(Self::in_folder(cache.join("manyways/networks")))
    }

    /// Returns the valid path estimate of a network.
    pub fn load(&self, network: &Network, now: SystemTime) -> Option<StoredEstimate> {
        let file = fs::File::open(self.folder.join(network.file_name())).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_SIZE as u64 + 1).read_to_end(&mut bytes).ok()?;
        let remembered = StoredEstimate::parse(&bytes)?;
        // After a clock was set back, files may have a time in the future.
        let age = since_1970(now).checked_sub(remembered.time)?;
        (remembered.network == *network && age <= MAX_AGE.as_secs()).then_some(remembered)
    }

    /// Writes the path estimate in place of the previous one.
    ///
    /// # Errors
    /// The I/O error; the previous file is unchanged then.
    pub fn store(&self, remembered: &StoredEstimate) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let name = remembered.network.file_name();
        // Two runs may end at the same time.
        let fresh = self.folder.join(format!(".{name}.{}", std::process::id()));
        let written = write(&fresh, remembered.to_json().as_bytes())
            .and_then(|()| fs::rename(&fresh, self.folder.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        written
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(bytes)
}

fn since_1970(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network() -> Network {
        Network {
            name: "wlan0".into(),
            kind: "wifi".into(),
            gateway: Some(IpAddr::from([192, 0, 2, 1])),
        }
    }

    fn stored_estimate() -> StoredEstimate {
        StoredEstimate {
            network: network(),
            rate: Rate::from_mbps(10),
            rtt: Some(Span::from_millis(28)),
            time: 1_700_000_000,
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn comes_back_for_a_week_and_for_this_network_only() {
        let folder = tempfile::tempdir().unwrap();
        let memory = EstimateCache::in_folder(folder.path().join("new/folder"));
        let now = at(1_700_000_000);
        assert_eq!(memory.load(&network(), now), None);
        memory.store(&stored_estimate()).unwrap();
        assert_eq!(memory.load(&network(), now), Some(stored_estimate()));
        assert_eq!(memory.load(&network(), now + MAX_AGE), Some(stored_estimate()));
        let late = MAX_AGE + Duration::from_secs(1);
        assert_eq!(memory.load(&network(), now + late), None);
        assert_eq!(memory.load(&network(), now - Duration::from_secs(1)), None);
        for other in [
            Network { name: "wlan1".into(), ..network() },
            Network { kind: "ethernet".into(), ..network() },
            Network { gateway: None, ..network() },
            // The same file.
            Network { name: "wlan0".into(), gateway: Some("::".parse().unwrap()), ..network() },
        ] {
            assert_eq!(memory.load(&other, now), None, "{other:?}");
        }
        let files = fs::read_dir(folder.path().join("new/folder")).unwrap().count();
        assert_eq!(files, 1, "nothing is left beside the file");
    }

    #[test]
    fn what_shares_a_file_is_not_taken_for_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let memory = EstimateCache::in_folder(folder.path());
        let odd = |name: &str| Network { name: name.into(), ..network() };
        assert_eq!(odd("a:b").file_name(), odd("a/b").file_name());
        memory.store(&StoredEstimate { network: odd("a:b"), ..stored_estimate() }).unwrap();
        assert!(memory.load(&odd("a:b"), at(1_700_000_000)).is_some());
        assert_eq!(memory.load(&odd("a/b"), at(1_700_000_000)), None);
    }

    #[test]
    fn what_makes_no_sense_is_not_read() {
        let text = stored_estimate().to_json();
        assert!(StoredEstimate::parse(text.as_bytes()).is_some());
        for (from, to) in [
            ("10000000", "0"),
            ("10000000", "2000000000000"),
            ("0.028", "0"),
            ("0.028", "-1"),
            ("0.028", "61"),
            ("0.028", "1e999"),
            ("network/1", "network/2"),
            ("192.0.2.1", "192.0.2"),
            ("}", ""),
        ] {
            let broken = text.replace(from, to);
            assert_ne!(broken, text, "{from}");
            assert_eq!(StoredEstimate::parse(broken.as_bytes()), None, "{broken}");
        }
        let long = format!("{text}{}", " ".repeat(MAX_FILE_SIZE));
        assert_eq!(StoredEstimate::parse(long.as_bytes()), None);
    }

    #[test]
    fn a_few_bytes_say_nothing_and_a_silence_at_the_end_is_not_held_against_a_network() {
        let path = PathReport {
            name: "wlan0".into(),
            metered: false,
            limit_reached: false,
            server: None,
            protocol: None,
            bytes: MIN_BYTES,
            requests: 1,
            rate: Rate::from_mbps(8),
            rtt: Some(Span::from_millis(28)),
            overshoot: Size::ZERO,
            duplicate: Size::ZERO,
        };
        let of = |path: &PathReport, rate| {
            let remembered = StoredEstimate::of(network(), path, rate, at(5))?;
            assert_eq!((remembered.time, remembered.rtt), (5, path.rtt));
            Some(remembered.rate)
        };
        assert_eq!(of(&path, Some(Rate::from_mbps(10))), Some(Rate::from_mbps(10)));
        assert_eq!(of(&path, Some(Rate::from_kbps(9))), Some(Rate::from_mbps(8)));
        assert_eq!(of(&path, None), Some(Rate::from_mbps(8)));
        let little = PathReport { bytes: MIN_BYTES - Size::from_bytes(1), ..path };
        assert_eq!(of(&little, Some(Rate::from_mbps(10))), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = StoredEstimate::parse(&bytes);
        }
    }
}
