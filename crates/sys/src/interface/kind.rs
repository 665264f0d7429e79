//! Derives the kind of an interface's network from the properties of its driver.

use std::fs;
use std::path::Path;

use super::Kind;
use super::kernel::Link;

/// Content of `/sys/class/net/NAME`; empty if it belongs to another network namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct DeviceFacts {
    wireless: bool,
    /// `DEVTYPE` of the `uevent` file.
    device_type: String,
    driver: String,
    /// Whether real or virtualized hardware backs the interface.
    device: bool,
}

impl DeviceFacts {
    pub(super) fn read(link: &Link) -> Self {
        let folder = Path::new("/sys/class/net").join(&link.name);
        // A sysfs shows the namespace in which it was mounted, which may be another one.
        let same = fs::read_to_string(folder.join("ifindex"))
            .is_ok_and(|index| index.trim() == link.index.to_string());
        if !same {
            return Self::default();
        }
        let uevent = fs::read_to_string(folder.join("uevent")).unwrap_or_default();
        Self {
            wireless: folder.join("wireless").exists() || folder.join("phy80211").exists(),
            device_type: uevent
                .lines()
                .find_map(|line| line.strip_prefix("DEVTYPE="))
                .unwrap_or_default()
                .to_owned(),
            driver: fs::read_link(folder.join("device/driver"))
                .ok()
                .and_then(|driver| Some(driver.file_name()?.to_string_lossy().into_owned()))
                .unwrap_or_default(),
            device: folder.join("device").exists(),
        }
    }
}

/// ARPHRD_ numbers of `linux/if_arp.h`.
mod hardware {
    pub(super) const ETHER: u16 = 1;
    pub(super) const PPP: u16 = 512;
    pub(super) const TUNNEL: u16 = 768;
    pub(super) const TUNNEL6: u16 = 769;
    pub(super) const SIT: u16 = 776;
    pub(super) const IPGRE: u16 = 778;
    pub(super) const IP6GRE: u16 = 823;
    pub(super) const RAWIP: u16 = 519;
    pub(super) const NONE: u16 = 0xfffe;
}

pub(super) fn classify(link: &Link, facts: &DeviceFacts) -> Kind {
    if link.loopback {
        return Kind::Loopback;
    }
    match facts.device_type.as_str() {
        "wlan" => return Kind::Wifi,
        "wwan" => return Kind::Cellular,
        "bluetooth" => return Kind::Bluetooth,
        _ => {}
    }
    if facts.wireless {
        return Kind::Wifi;
    }
    match facts.driver.as_str() {
        "qmi_wwan" | "cdc_mbim" | "huawei_cdc_ncm" | "sierra_net" | "hso" | "mhi_net" | "iosm"
        | "t7xx" => return Kind::Cellular,
        "rndis_host" | "ipheth" => return Kind::UsbTether,
        // Dongles use these drivers, too. The kernel names a device `usb0` if its MAC address was
        // generated, which is true of phones and not of dongles.
        "cdc_ether" | "cdc_ncm" | "cdc_eem" | "cdc_subset" if link.name.starts_with("usb") => {
            return Kind::UsbTether;
        }
        _ => {}
    }
    match link.software.as_deref() {
        Some(
            "tun" | "wireguard" | "ipip" | "sit" | "gre" | "gretap" | "ip6gre" | "ip6tnl" | "vti"
            | "vti6" | "xfrm" | "ovpn" | "gtp" | "l2tp" | "geneve" | "vxlan",
        ) => return Kind::Tunnel,
        Some("rmnet" | "wwan") => return Kind::Cellular,
        Some("ppp") => return ppp_kind(&link.name),
        // Wires with a number, or a bundle of wires.
        Some("vlan" | "bond" | "team" | "macvlan" | "ipvlan") => return Kind::Ethernet,
        Some(_) => return Kind::Virtual,
        None => {}
    }
    match link.hardware {
        hardware::RAWIP => Kind::Cellular,
        hardware::PPP => ppp_kind(&link.name),
        hardware::TUNNEL
        | hardware::TUNNEL6
        | hardware::SIT
        | hardware::IPGRE
        | hardware::IP6GRE
        | hardware::NONE => match Kind::from_interface_name(&link.name) {
            Some(Kind::Cellular) => Kind::Cellular,
            _ => Kind::Tunnel,
        },
        hardware::ETHER if link.name.starts_with("wwan") => Kind::Cellular,
        hardware::ETHER => match Kind::from_interface_name(&link.name) {
            // Without device information (the sysfs of another namespace), only the name is
            // available.
            Some(kind) if !facts.device => kind,
            _ => Kind::Ethernet,
        },
        _ => Kind::Other,
    }
}

/// Modems, DSL and VPNs use PPP; only the name distinguishes them.
fn ppp_kind(name: &str) -> Kind {
    match Kind::from_interface_name(name) {
        Some(kind) => kind,
        None => Kind::Tunnel,
    }
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Wifi,
        Self::Cellular,
        Self::Ethernet,
        Self::Bluetooth,
        Self::UsbTether,
        Self::Tunnel,
        Self::Virtual,
        Self::Loopback,
        Self::Other,
    ];

    /// Returns the kind with this [`Kind::name`].
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == word)
    }

    /// Returns the usual kind of an interface with this name: `wlan0`, `wwan0`, `lte`, `eth0`.
    pub fn from_interface_name(name: &str) -> Option<Self> {
        const NAMES: [(&str, Kind); 19] = [
            ("wifi", Kind::Wifi),
            ("wlan", Kind::Wifi),
            ("wlp", Kind::Wifi),
            ("wwan", Kind::Cellular),
            ("wwp", Kind::Cellular),
            ("rmnet", Kind::Cellular),
            ("lte", Kind::Cellular),
            ("cell", Kind::Cellular),
            ("umts", Kind::Cellular),
            ("3g", Kind::Cellular),
            ("4g", Kind::Cellular),
            ("5g", Kind::Cellular),
            ("eth", Kind::Ethernet),
            ("eno", Kind::Ethernet),
            ("ens", Kind::Ethernet),
            ("enp", Kind::Ethernet),
            ("lan", Kind::Ethernet),
            ("bnep", Kind::Bluetooth),
            ("usb", Kind::UsbTether),
        ];
        NAMES.iter().find(|(start, _)| name.starts_with(start)).map(|(_, kind)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, software: Option<&str>, hardware: u16) -> Link {
        Link {
            name: name.into(),
            software: software.map(str::to_owned),
            hardware,
            ..Link::default()
        }
    }

    #[test]
    fn the_driver_overrides_the_name() {
        let plain = DeviceFacts { device: true, ..DeviceFacts::default() };
        let cases = [
            (link("enp3s0", None, 1), DeviceFacts { wireless: true, ..plain.clone() }, Kind::Wifi),
            (
                link("wlp2s0", None, 1),
                DeviceFacts { device_type: "wlan".into(), ..plain.clone() },
                Kind::Wifi,
            ),
            (
                link("enx0a1b", None, 1),
                DeviceFacts { driver: "rndis_host".into(), ..plain.clone() },
                Kind::UsbTether,
            ),
            (
                link("enx0a1b", None, 1),
                DeviceFacts { driver: "cdc_ncm".into(), ..plain.clone() },
                Kind::Ethernet,
            ),
            (
                link("usb0", None, 1),
                DeviceFacts { driver: "cdc_ncm".into(), ..plain.clone() },
                Kind::UsbTether,
            ),
            (link("eth0", None, 1), plain.clone(), Kind::Ethernet),
            (link("wwan0", None, hardware::RAWIP), plain.clone(), Kind::Cellular),
            (link("wg0", Some("wireguard"), hardware::NONE), DeviceFacts::default(), Kind::Tunnel),
            (link("tun0", Some("tun"), hardware::NONE), DeviceFacts::default(), Kind::Tunnel),
            (link("docker0", Some("bridge"), 1), DeviceFacts::default(), Kind::Virtual),
            (link("eth0", Some("veth"), 1), DeviceFacts::default(), Kind::Virtual),
            (link("bond0", Some("bond"), 1), DeviceFacts::default(), Kind::Ethernet),
            (link("ppp0", None, hardware::PPP), DeviceFacts::default(), Kind::Tunnel),
            (link("can0", None, 280), DeviceFacts::default(), Kind::Other),
        ];
        for (link, facts, kind) in cases {
            assert_eq!(classify(&link, &facts), kind, "{} {facts:?}", link.name);
        }
    }

    #[test]
    fn every_word_is_read_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
    }
}
