//! Parses what DHCP clients and network managers recorded about a network: name servers, and
//! whether it is metered.
//!
//! Every parser takes bytes and never fails: other programs own these files, and unreadable content
//! counts as absent. At most [`MAX_SERVERS`] name servers are kept.

use std::net::{IpAddr, Ipv6Addr};

use super::Metered;

/// Maximum number of name servers of one source.
pub const MAX_SERVERS: usize = 8;

/// Properties that a network announced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Name servers in order.
    pub dns: Vec<IpAddr>,
    /// Whether the network announced that it is metered (Android hotspots do, in DHCP option 43).
    pub metered: bool,
    /// The address that the network assigned to the host; `None` if the file has none. A lease for
    /// an address that the interface no longer has is stale.
    pub address: Option<IpAddr>,
}

/// Value of the DHCP vendor option of a phone that shares its mobile network.
const ANDROID_METERED: &str = "ANDROID_METERED";

/// Parses `/etc/resolv.conf`, and the per-interface files of `resolvconf`, which have the same
/// format.
pub fn resolv_conf(bytes: &[u8]) -> Announcement {
    let text = String::from_utf8_lossy(bytes);
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "nameserver").then(|| words.next()).flatten()
    });
    Announcement { dns: addresses(servers), ..Announcement::default() }
}

/// Parses the state files of systemd: `/run/systemd/resolve/netif/INDEX` (`SERVERS=`),
/// `/run/systemd/netif/links/INDEX` (`DNS=`), and its leases (`DNS=`, `ADDRESS=`,
/// `VENDOR_SPECIFIC=`). NetworkManager's internal DHCP client uses the same format.
pub fn systemd_state(bytes: &[u8]) -> Announcement {
    let text = String::from_utf8_lossy(bytes);
    let mut announced = Announcement::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        match key.trim() {
            "SERVERS" | "DNS" => announced.dns = addresses(value.split_ascii_whitespace()),
            "ADDRESS" => announced.address = address(value.trim()),
            "VENDOR_SPECIFIC" => announced.metered |= is_android_metered(&from_hex(value.trim())),
            _ => {}
        }
    }
    announced
}

/// Parses NetworkManager's `/run/NetworkManager/devices/INDEX`, whose sections `dhcp4` and `dhcp6`
/// contain the options that the DHCP server sent.
pub fn network_manager_device(bytes: &[u8]) -> Announcement {
    let text = String::from_utf8_lossy(bytes);
    let mut section = "";
    let mut announced = Announcement::default();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        if !matches!(section, "dhcp4" | "dhcp6") {
            continue;
        }
        match key.trim() {
            "domain_name_servers" | "dhcp6_name_servers" => {
                announced.dns.extend(addresses(value.split([' ', ',', ';'])));
            }
            "ip_address" if section == "dhcp4" => announced.address = address(value.trim()),
            "vendor_encapsulated_options" => {
                let value = value.trim();
                announced.metered |=
                    is_android_metered(value.as_bytes()) || is_android_metered(&from_hex(value));
            }
            _ => {}
        }
    }
    announced.dns.truncate(MAX_SERVERS);
    announced
}

/// Parses the leases of ISC `dhclient` for `interface`. The file is a log: the last lease counts.
pub fn dhclient_leases(bytes: &[u8], interface: &str) -> Announcement {
    let text = String::from_utf8_lossy(bytes);
    let mut last = Announcement::default();
    let mut lease: Option<(Announcement, bool)> = None;
    for line in text.lines().map(str::trim) {
        if (line.starts_with("lease ") || line.starts_with("lease6 ")) && line.ends_with('{') {
            lease = Some((Announcement::default(), false));
            continue;
        }
        let Some((announced, ours)) = &mut lease else { continue };
        if line == "}" {
            // A DHCPv6 lease closes its inner blocks first; they contain no relevant options.
            if *ours && (!announced.dns.is_empty() || announced.address.is_some()) {
                last = std::mem::take(announced);
            }
            continue;
        }
        let line = line.trim_end_matches(';');
        if let Some(name) = line.strip_prefix("interface ") {
            *ours = name.trim().trim_matches('"') == interface;
        } else if let Some(ip) = line.strip_prefix("fixed-address ") {
            announced.address = address(ip.trim());
        } else if let Some((option, value)) =
            line.strip_prefix("option ").and_then(|option| option.split_once(' '))
        {
            match option {
                "domain-name-servers" | "dhcp6.name-servers" => {
                    announced.dns = addresses(value.split([',', ' ']));
                }
                "vendor-encapsulated-options" => {
                    announced.metered = is_android_metered(value.as_bytes())
                        || is_android_metered(&from_hex(value));
                }
                _ => {}
            }
        }
    }
    last
}

/// NetworkManager's properties of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedDevice {
    pub name: String,
    /// Name servers in order.
    pub dns: Vec<IpAddr>,
    /// Whether it is metered, configured or guessed; `None` if unknown.
    pub metered: Option<Metered>,
}

/// Parses the output of `nmcli --terse --fields GENERAL.DEVICE,GENERAL.METERED,IP4.DNS,IP6.DNS
/// device show`.
pub fn nmcli(bytes: &[u8]) -> Vec<ManagedDevice> {
    let guess = |metered| Metered::Guessed { metered, reason: "NetworkManager guesses so" };
    let text = String::from_utf8_lossy(bytes);
    let mut devices: Vec<ManagedDevice> = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.replace('\\', "");
        if key == "GENERAL.DEVICE" {
            devices.push(ManagedDevice { name: value, dns: Vec::new(), metered: None });
            continue;
        }
        let Some(device) = devices.last_mut() else { continue };
        if key == "GENERAL.METERED" {
            device.metered = match value.trim() {
                "yes" => Some(Metered::Yes),
                "no" => Some(Metered::No),
                "yes (guessed)" => Some(guess(true)),
                "no (guessed)" => Some(guess(false)),
                _ => None,
            };
        } else if (key.starts_with("IP4.DNS") || key.starts_with("IP6.DNS"))
            && device.dns.len() < MAX_SERVERS
        {
            device.dns.extend(address(value.trim()));
        }
    }
    devices
}

fn addresses<'a>(words: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for ip in words.filter_map(|word| address(word.trim())) {
        if found.len() < MAX_SERVERS && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

/// Parses one server in the notation of any of these files: `192.0.2.1`, `fe80::1%wlan0`,
/// `192.0.2.1:53#dns.example`, `[2001:db8::1]:53%2`. The zone is ignored: it is the interface of
/// the file. A server with a port other than 53 is skipped.
fn address(word: &str) -> Option<IpAddr> {
    let word = word.split(['#', '%']).next()?;
    let ip = match word.strip_prefix('[') {
        Some(rest) => {
            let (ip, port) = rest.split_once(']')?;
            if !matches!(port, "" | ":53") {
                return None;
            }
            IpAddr::V6(ip.parse::<Ipv6Addr>().ok()?)
        }
        None if word.matches(':').count() == 1 => word.strip_suffix(":53")?.parse().ok()?,
        None => word.parse().ok()?,
    };
    (!ip.is_unspecified() && !ip.is_multicast()).then_some(ip)
}

fn is_android_metered(option: &[u8]) -> bool {
    option.windows(ANDROID_METERED.len()).any(|part| part == ANDROID_METERED.as_bytes())
}

/// Parses `41:4e:44` or `414e44`; an option has at most 255 bytes.
fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| *byte != b':')
        .map_while(|byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .take(2 * 255)
        .collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests;
