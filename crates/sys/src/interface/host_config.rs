//! Reads the files in which DHCP clients and network managers record announced properties.

use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::announcement::{self, Announcement, ManagedDevice};
use super::kernel::Link;
use super::{DnsSource, Metered};

/// Maximum size of a file; a larger one is not of this kind.
const MAX_FILE_SIZE: u64 = 1 << 20;
/// Timeout; NetworkManager normally answers within milliseconds.
const NMCLI_TIMEOUT: Duration = Duration::from_secs(1);

/// All information on this host apart from the kernel's.
#[derive(Debug, Default)]
pub(super) struct HostConfig {
    network_manager: Vec<ManagedDevice>,
    name_servers: Vec<IpAddr>,
}

/// Recorded properties of one interface.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InterfaceConfig {
    pub dns: Vec<IpAddr>,
    pub dns_source: Option<DnsSource>,
    /// Whether the network announced that it is metered.
    pub announced_metered: bool,
    /// NetworkManager's setting or guess; `None` if unknown.
    pub managed_metered: Option<Metered>,
}

impl HostConfig {
    pub(super) fn read() -> Self {
        let network_manager = if Path::new("/run/NetworkManager").exists() {
            announcement::nmcli(&nmcli())
        } else {
            Vec::new()
        };
        let mut host = announcement::resolv_conf(&read_file(Path::new("/etc/resolv.conf"))).dns;
        // A local stub resolver hides its upstream servers, and queries them over any network.
        if !host.is_empty() && host.iter().all(IpAddr::is_loopback) {
            let behind = announcement::resolv_conf(&read_file(Path::new(
                "/run/systemd/resolve/resolv.conf",
            )));
            if !behind.dns.is_empty() {
                host = behind.dns;
            }
        }
        Self { network_manager, name_servers: host }
    }

    /// Returns the name servers of the host as a whole.
    pub(super) fn name_servers(&self) -> &[IpAddr] {
        &self.name_servers
    }

    /// Returns the recorded properties of `link`, whose current addresses are `addresses`.
    pub(super) fn interface_config(&self, link: &Link, addresses: &[IpAddr]) -> InterfaceConfig {
        let Link { index, name, .. } = link;
        let managed = self.network_manager.iter().find(|device| device.name == *name);
        let state = |path: String| announcement::systemd_state(&read_file(Path::new(&path)));
        // Best first: configured values precede announced ones.
        let mut sources =
            vec![(DnsSource::Resolved, state(format!("/run/systemd/resolve/netif/{index}")))];
        sources.extend(managed.map(|managed| {
            let dns = managed.dns.clone();
            (DnsSource::NetworkManager, Announcement { dns, ..Announcement::default() })
        }));
        let mut lease = |announced| sources.push((DnsSource::Lease, announced));
        lease(state(format!("/run/systemd/netif/links/{index}")));
        lease(state(format!("/run/systemd/netif/leases/{index}")));
        lease(announcement::network_manager_device(&read_file(Path::new(&format!(
            "/run/NetworkManager/devices/{index}"
        )))));
        for file in files_in("/var/lib/NetworkManager") {
            let file_name = file.file_name().unwrap_or_default().to_string_lossy();
            if file_name.ends_with(&format!("-{name}.lease")) {
                lease(if file_name.starts_with("internal-") {
                    announcement::systemd_state(&read_file(&file))
                } else {
                    announcement::dhclient_leases(&read_file(&file), name)
                });
            }
        }
        for place in ["/var/lib/dhcp", "/var/lib/dhclient"] {
            for file in files_in(place) {
                lease(announcement::dhclient_leases(&read_file(&file), name));
            }
        }
        for place in ["/run/resolvconf/interface", "/run/resolvconf/interfaces"] {
            for file in files_in(place) {
                let file_name = file.file_name().unwrap_or_default().to_string_lossy();
                let of_this = file_name
                    .strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
                if of_this {
                    sources.push((
                        DnsSource::Resolvconf,
                        announcement::resolv_conf(&read_file(&file)),
                    ));
                }
            }
        }
        let record = InterfaceConfig::from_sources(sources, addresses);
        InterfaceConfig { managed_metered: managed.and_then(|managed| managed.metered), ..record }
    }
}

impl InterfaceConfig {
    /// The first source with name servers counts.
    fn from_sources(sources: Vec<(DnsSource, Announcement)>, addresses: &[IpAddr]) -> Self {
        let mut record = Self::default();
        for (name, source) in sources {
            if !is_current(&source, addresses) {
                continue;
            }
            record.announced_metered |= source.metered;
            if record.dns.is_empty() && !source.dns.is_empty() {
                (record.dns, record.dns_source) = (source.dns, Some(name));
            }
        }
        record
    }
}

/// Whether a lease is current: a lease for an address that the interface does not have belongs to
/// another network.
fn is_current(announced: &Announcement, addresses: &[IpAddr]) -> bool {
    announced.address.is_none_or(|address| addresses.contains(&address))
}

fn read_file(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        // A partially read file is used as far as it was read.
        let _ = file.take(MAX_FILE_SIZE).read_to_end(&mut bytes);
    }
    bytes
}

fn files_in(path: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// Runs NetworkManager's tool, because its state files do not contain whether a network is metered,
/// and D-Bus would need another library. Empty if the tool does not answer in time.
fn nmcli() -> Vec<u8> {
    let fields = "GENERAL.DEVICE,GENERAL.METERED,IP4.DNS,IP6.DNS";
    let child = Command::new("nmcli")
        .args(["--terse", "--fields", fields, "device", "show"])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(child) => output_within(child, NMCLI_TIMEOUT),
        Err(_) => Vec::new(),
    }
}

/// Returns the output of a child, or nothing if it takes longer than `timeout`. The child has then
/// ended.
fn output_within(mut child: Child, timeout: Duration) -> Vec<u8> {
    let Some(stdout) = child.stdout.take() else { return Vec::new() };
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(MAX_FILE_SIZE).read_to_end(&mut bytes);
        // After the timeout the receiver is closed.
        let _ = sender.send(read.map(|_| bytes).unwrap_or_default());
    });
    let bytes = receiver.recv_timeout(timeout).unwrap_or_default();
    // Killing the child also ends the reader, at the end of the pipe.
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_child_costs_the_patience_and_no_more() {
        let sleeper =
            Command::new("sleep").arg("1000").stdout(Stdio::piped()).spawn().expect("sleep starts");
        assert!(output_within(sleeper, Duration::ZERO).is_empty());
        let echo =
            Command::new("echo").arg("here").stdout(Stdio::piped()).spawn().expect("echo starts");
        assert_eq!(output_within(echo, Duration::from_secs(60)), b"here\n");
    }

    #[test]
    fn the_first_source_that_has_servers_counts() {
        let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
        let servers = |last: u8| Announcement { dns: vec![ip(last)], ..Announcement::default() };
        let stale = Announcement { address: Some(ip(99)), ..servers(1) };
        let hotspot = Announcement { metered: true, ..Announcement::default() };
        let sources = vec![
            (DnsSource::Resolved, stale),
            (DnsSource::NetworkManager, Announcement::default()),
            (DnsSource::Lease, servers(2)),
            (DnsSource::Lease, hotspot),
            (DnsSource::Resolvconf, servers(3)),
        ];
        let record = InterfaceConfig::from_sources(sources, &[ip(7)]);
        assert_eq!((record.dns, record.dns_source), (vec![ip(2)], Some(DnsSource::Lease)));
        assert!(record.announced_metered);
        assert_eq!(InterfaceConfig::from_sources(Vec::new(), &[]), InterfaceConfig::default());
    }

    #[test]
    fn a_lease_counts_while_the_interface_has_its_address() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let lease = Announcement { address: Some(address), ..Announcement::default() };
        assert!(is_current(&lease, &[address]));
        assert!(!is_current(&lease, &["192.0.2.8".parse().unwrap()]));
        assert!(is_current(&Announcement::default(), &[]));
    }
}
