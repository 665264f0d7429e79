use super::*;

fn ips(words: &[&str]) -> Vec<IpAddr> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn resolv_conf_keeps_the_servers_in_order() {
    let announced = resolv_conf(
        b"# made by hand\nsearch example.org\nnameserver 192.0.2.1\n  nameserver\tfe80::1%wlan0 # here\n\
          nameserver\nnameserver nonsense\nnameserver 192.0.2.1\noptions edns0\nnameservers 192.0.2.9\n",
    );
    assert_eq!(announced.dns, ips(&["192.0.2.1", "fe80::1"]));
}

#[test]
fn systemd_state_of_resolved_and_of_a_lease() {
    let resolved = systemd_state(
        b"# This is private data. Do not parse.\nLLMNR=yes\nMDNS=no\n\
          SERVERS=192.0.2.53 [2001:db8::53]:53%3#dns.example 192.0.2.54:5353 192.0.2.55:53\nDOMAINS=lan\n",
    );
    assert_eq!(resolved.dns, ips(&["192.0.2.53", "2001:db8::53", "192.0.2.55"]));
    assert!(!resolved.metered);

    let lease = systemd_state(
        b"ADDRESS=192.168.43.7\nNETMASK=255.255.255.0\nROUTER=192.168.43.1\nDNS=192.168.43.1\n\
          VENDOR_SPECIFIC=414e44524f49445f4d455445524544\n",
    );
    assert_eq!(lease.dns, ips(&["192.168.43.1"]));
    assert_eq!(lease.address, Some("192.168.43.7".parse().unwrap()));
    assert!(lease.metered);
}

#[test]
fn network_manager_device_reads_only_the_dhcp_sections() {
    let announced = network_manager_device(
        b"[device]\nmanaged=1\nconnection-uuid=0b7d\ndomain_name_servers=203.0.113.9\n\
          [dhcp4]\nip_address=192.168.1.7\ndomain_name_servers=192.168.1.1 192.168.1.2\n\
          [dhcp6]\ndhcp6_name_servers=2001:db8::1\n",
    );
    assert_eq!(announced.dns, ips(&["192.168.1.1", "192.168.1.2", "2001:db8::1"]));
    assert_eq!(announced.address, Some("192.168.1.7".parse().unwrap()));
}

const LEASES: &[u8] = br#"
lease {
  interface "eth0";
  fixed-address 192.0.2.7;
  option domain-name-servers 192.0.2.1;
  option vendor-encapsulated-options "ANDROID_METERED";
}
lease {
  interface "wlan0";
  fixed-address 192.168.43.7;
  option domain-name-servers 192.168.43.1,192.168.43.2;
  option vendor-encapsulated-options 41:4e:44:52:4f:49:44:5f:4d:45:54:45:52:45:44;
  renew 2 2026/05/05 03:46:42;
}
lease {
  interface "eth0";
  fixed-address 192.0.2.8;
  option domain-name-servers 192.0.2.2, 192.0.2.3;
}
lease6 {
  interface "eth1";
  ia-na 5a:6b:7c:8d {
    iaaddr 2001:db8::7 {
      starts 1;
    }
  }
  option dhcp6.name-servers 2001:db8::1;
}
"#;

#[test]
fn dhclient_leases_count_the_last_of_an_interface() {
    let eth0 = dhclient_leases(LEASES, "eth0");
    assert_eq!(eth0.dns, ips(&["192.0.2.2", "192.0.2.3"]));
    assert_eq!(eth0.address, Some("192.0.2.8".parse().unwrap()));
    assert!(!eth0.metered);

    let wlan0 = dhclient_leases(LEASES, "wlan0");
    assert_eq!(wlan0.dns, ips(&["192.168.43.1", "192.168.43.2"]));
    assert!(wlan0.metered);

    assert_eq!(dhclient_leases(LEASES, "eth1").dns, ips(&["2001:db8::1"]));
    assert_eq!(dhclient_leases(LEASES, "eth2"), Announcement::default());
}

#[test]
fn nmcli_gives_a_record_for_each_device() {
    let devices = nmcli(
        b"GENERAL.DEVICE:wlan0\nGENERAL.METERED:yes (guessed)\nIP4.DNS[1]:192.168.43.1\n\
          IP6.DNS[1]:fd00\\:\\:1\nIP6.DNS[2]:fd00::2\n\n\
          GENERAL.DEVICE:eth0\nGENERAL.METERED:no\n\nGENERAL.DEVICE:lo\nGENERAL.METERED:unknown\n",
    );
    let device = |name: &str, dns: &[&str], metered| ManagedDevice {
        name: name.into(),
        dns: ips(dns),
        metered,
    };
    let guess = Metered::Guessed { metered: true, reason: "NetworkManager guesses so" };
    assert_eq!(
        devices,
        [
            device("wlan0", &["192.168.43.1", "fd00::1", "fd00::2"], Some(guess)),
            device("eth0", &[], Some(Metered::No)),
            device("lo", &[], None),
        ]
    );
}

#[test]
fn a_long_list_is_cut() {
    let mut file = String::new();
    for host in 1..=100 {
        file.push_str(&format!("nameserver 192.0.2.{host}\n"));
    }
    assert_eq!(resolv_conf(file.as_bytes()).dns.len(), MAX_SERVERS);
}

proptest::proptest! {
    /// The files contain foreign bytes.
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        resolv_conf(&bytes);
        systemd_state(&bytes);
        network_manager_device(&bytes);
        dhclient_leases(&bytes, "eth0");
        nmcli(&bytes);
    }

    #[test]
    fn no_text_in_their_shape_makes_a_reader_panic(
        text in r#"((lease|lease6) \{|\}|option |domain-name-servers|vendor-encapsulated-options|[0-9a-f:.%#\[\], ;"]|DNS=|VENDOR_SPECIFIC=|\[dhcp4\]|nameserver |IP6.DNS\[1\]:|é|\n){0,60}"#
    ) {
        let bytes = text.as_bytes();
        resolv_conf(bytes);
        systemd_state(bytes);
        network_manager_device(bytes);
        dhclient_leases(bytes, "eth0");
        nmcli(bytes);
    }
}
