//! What a network said of itself when the host joined it, as DHCP clients and network managers
//! wrote it down: name servers, and whether it is metered.
//!
//! Every reader takes bytes and never fails: these files belong to others, and what cannot be
//! read is as good as absent. At most [`SERVER_LIMIT`] name servers are kept.

use std::net::{IpAddr, Ipv6Addr};

use super::Metered;

/// The most name servers that are kept of one source.
pub const SERVER_LIMIT: usize = 8;

/// What a network announced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announced {
    /// Its name servers in order.
    pub dns: Vec<IpAddr>,
    /// Whether it said that it is metered (Android's hotspots do, in DHCP option 43).
    pub metered: bool,
    /// The address that the host was given, where the file tells: a lease for an address that
    /// the interface no longer has is stale.
    pub address: Option<IpAddr>,
}

/// A phone that shares its mobile network says this in DHCP's vendor option.
const ANDROID_METERED: &str = "ANDROID_METERED";

/// `/etc/resolv.conf`, and the per-interface files of `resolvconf`, which look the same.
pub fn resolv_conf(bytes: &[u8]) -> Announced {
    let text = String::from_utf8_lossy(bytes);
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "nameserver").then(|| words.next()).flatten()
    });
    Announced { dns: addresses(servers), ..Announced::default() }
}

/// The state files of systemd: `/run/systemd/resolve/netif/INDEX` (`SERVERS=`),
/// `/run/systemd/netif/links/INDEX` (`DNS=`), and its leases (`DNS=`, `ADDRESS=`,
/// `VENDOR_SPECIFIC=`), whose format NetworkManager's own DHCP client shares.
pub fn systemd_state(bytes: &[u8]) -> Announced {
    let text = String::from_utf8_lossy(bytes);
    let mut announced = Announced::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        match key.trim() {
            "SERVERS" | "DNS" => announced.dns = addresses(value.split_ascii_whitespace()),
            "ADDRESS" => announced.address = address(value.trim()),
            "VENDOR_SPECIFIC" => announced.metered |= says_metered(&from_hex(value.trim())),
            _ => {}
        }
    }
    announced
}

/// NetworkManager's `/run/NetworkManager/devices/INDEX`, whose sections `dhcp4` and `dhcp6` hold
/// the options that the DHCP server sent.
pub fn network_manager_device(bytes: &[u8]) -> Announced {
    let text = String::from_utf8_lossy(bytes);
    let mut section = "";
    let mut announced = Announced::default();
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
                    says_metered(value.as_bytes()) || says_metered(&from_hex(value));
            }
            _ => {}
        }
    }
    announced.dns.truncate(SERVER_LIMIT);
    announced
}

/// The leases of ISC `dhclient` for `interface`. The file is a log: the last lease counts.
pub fn dhclient_leases(bytes: &[u8], interface: &str) -> Announced {
    let text = String::from_utf8_lossy(bytes);
    let mut last = Announced::default();
    let mut lease: Option<(Announced, bool)> = None;
    for line in text.lines().map(str::trim) {
        if (line.starts_with("lease ") || line.starts_with("lease6 ")) && line.ends_with('{') {
            lease = Some((Announced::default(), false));
            continue;
        }
        let Some((announced, ours)) = &mut lease else { continue };
        if line == "}" {
            // A DHCPv6 lease closes its inner blocks first; they hold nothing that is wanted.
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
                    announced.metered =
                        says_metered(value.as_bytes()) || says_metered(&from_hex(value));
                }
                _ => {}
            }
        }
    }
    last
}

/// What NetworkManager says of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// The device's name.
    pub name: String,
    /// Its name servers in order.
    pub dns: Vec<IpAddr>,
    /// Whether it is metered, where it says so or guesses.
    pub metered: Option<Metered>,
}

/// What `nmcli --terse --fields GENERAL.DEVICE,GENERAL.METERED,IP4.DNS,IP6.DNS device show`
/// prints.
pub fn nmcli(bytes: &[u8]) -> Vec<Managed> {
    let guess = |metered| Metered::Guessed { metered, why: "NetworkManager guesses so" };
    let text = String::from_utf8_lossy(bytes);
    let mut devices: Vec<Managed> = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.replace('\\', "");
        if key == "GENERAL.DEVICE" {
            devices.push(Managed { name: value, dns: Vec::new(), metered: None });
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
            && device.dns.len() < SERVER_LIMIT
        {
            device.dns.extend(address(value.trim()));
        }
    }
    devices
}

fn addresses<'a>(words: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for ip in words.filter_map(|word| address(word.trim())) {
        if found.len() < SERVER_LIMIT && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

/// One server as any of these files may write it: `192.0.2.1`, `fe80::1%wlan0`,
/// `192.0.2.1:53#dns.example`, `[2001:db8::1]:53%2`. The zone is left out: it is the interface
/// that the file is about. A port other than 53 is left out with its server.
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

fn says_metered(option: &[u8]) -> bool {
    option.windows(ANDROID_METERED.len()).any(|part| part == ANDROID_METERED.as_bytes())
}

/// `41:4e:44` or `414e44`; an option is 255 bytes at most.
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
