//! Parsers of bytes from networks, and of files that other programs wrote.

use manyways_link::segment::{Offload, finish_checksum, plan, slice, wire};
use manyways_net::fetch::{Location, Netrc, ResumeState, StoredEstimate, UserInfo, parse_digest};
use manyways_net::probe::message::{Order, Reply, parse};
use manyways_net::resolve::message::{Family, addresses_in_hosts, parse_response};
use manyways_proto::fetch::ContentRange;
use manyways_sys::interface::InterfaceAlias;
use manyways_sys::interface::announcement::{self, MAX_SERVERS};

pub(super) const RANGE_WORDS: &[&str] = &["bytes ", "*", "/", "-", "bytes */"];
pub(super) const RESUME_WORDS: &[&str] =
    &["\"etag\":", "W/", "\"done\":[[0,", "],[", "\"length\":"];
pub(super) const DNS_WORDS: &[&str] =
    &["\u{7}example\u{4}test\0", "\0\u{1}\0\u{1}", "\0\u{1c}\0\u{1}", "\0\u{5}\0\u{1}", "\0\u{4}"];
pub(super) const ANNOUNCEMENT_WORDS: &[&str] = &[
    "nameserver ",
    "SERVERS=",
    "DNS=",
    "VENDOR_SPECIFIC=",
    "ANDROID_METERED",
    "lease {\n",
    "interface \"wlan0\";\n",
    "option domain-name-servers ",
    "[dhcp4]\n",
    "192.0.2.1",
    "fe80::1%2",
    "2001:db8::1",
    "dns=",
    "metered=",
    "GENERAL.DEVICE:",
    "IP4.DNS[1]:",
];

pub(super) const LOCATION_WORDS: &[&str] =
    &["https://", "//", "../", "/./", "?", "#", "%2e", "[::1]", ":443", "@", "\n"];

pub(super) const NETRC_WORDS: &[&str] = &[
    "machine ",
    "default ",
    "login ",
    "password ",
    "account ",
    "macdef ",
    "\"",
    "\\",
    "#",
    "\n\n",
];
pub(super) const DIGEST_WORDS: &[&str] =
    &["sha-256=:", "sha-512=:", ":", "=", ";", ",", "(", ")", "?1", "@1", "%\"", "\"", "-1.5"];
pub(super) const ESTIMATE_WORDS: &[&str] =
    &["\"rate_bps\":", "\"rtt_seconds\":", "\"time\":", "\"gateway\":", "null", "1e999", "-1"];

pub(super) fn content_range(bytes: &[u8]) {
    if let Some(ContentRange { range, length }) = ContentRange::parse(bytes) {
        assert!(range.is_some() || length.is_some());
        if let Some(range) = range {
            assert!(range.start < range.end);
            assert!(length.is_none_or(|length| range.end <= length));
        }
    }
}

/// A virtio header and a packet.
pub(super) fn super_packet(bytes: &[u8]) {
    let Some((header, packet)) = bytes.split_first_chunk::<10>() else { return };
    let offload = Offload::from_bytes(header);
    finish_checksum(&mut packet.to_vec(), &offload);
    let Ok(plan) = plan(packet, &offload) else { return };
    assert!(plan.segments >= 1 && plan.last >= 1);
    let size = |index| if index + 1 == plan.segments { plan.last } else { plan.segment } as usize;
    let mut buffer = manyways_link::segment::Slice::header_buffer();
    let mut cable = Vec::new();
    for index in (0..plan.segments).take(64).chain([plan.segments - 1]) {
        let one = slice(packet, &offload, &plan, index, 1, &mut buffer);
        assert_eq!(one.len(), size(index));
        cable.clear();
        wire(packet, &offload, &plan, index, &mut cable);
        assert_eq!(cable.len(), size(index));
    }
    // A run of segments is a valid packet with the same number of segments.
    let (first, count) = (plan.segments / 3, (plan.segments / 2).max(1));
    let run = slice(packet, &offload, &plan, first, count, &mut buffer);
    let mut whole = run.header(&buffer).to_vec();
    whole.extend_from_slice(&packet[run.payload.clone()]);
    let again = manyways_link::segment::plan(&whole, &run.offload);
    assert_eq!(again.map(|again| again.segments), Ok(count.min(plan.segments - first)));
}

pub(super) fn resume_file(bytes: &[u8]) {
    if let Ok(saved) = ResumeState::parse(bytes) {
        assert!(saved.done.total() <= saved.length);
        assert_eq!(ResumeState::parse(saved.to_json().as_bytes()).ok(), Some(saved));
    }
}

pub(super) fn dns_answer(bytes: &[u8]) {
    let id = bytes.first_chunk::<2>().map_or(0, |id| u16::from_be_bytes(*id));
    for family in [Family::V4, Family::V6] {
        let _ = parse_response(bytes, id, "example.test", family);
    }
    let _ = addresses_in_hosts(bytes, "example.test");
}

/// Lines of a control connection of `probe`.
pub(super) fn probe_message(bytes: &[u8]) {
    if let Ok(order) = parse::<Order>(bytes) {
        let line = serde_json::to_vec(&order).expect("numbers can be written");
        assert_eq!(parse::<Order>(&line), Ok(order));
    }
    let _ = parse::<Reply>(bytes);
}

pub(super) const PROBE_WORDS: &[&str] = &[
    "{\"tcp\":{\"direction\":\"down\",\"bytes\":1,\"millis\":1}}",
    "{\"udp\":{\"direction\":\"up\",\"packets\":1,\"size\":32,\"rate\":1}}",
    "{\"ready\":{\"token\":\"00000000000000000000000000000000\"}}",
    "{\"refused\":{\"reason\":\"\"}}",
    "\"stop\"",
    "18446744073709551615",
];

pub(super) fn announcement(bytes: &[u8]) {
    for read in [
        announcement::resolv_conf,
        announcement::systemd_state,
        announcement::network_manager_device,
        |bytes: &[u8]| announcement::dhclient_leases(bytes, "wlan0"),
    ] {
        assert!(read(bytes).dns.len() <= MAX_SERVERS);
    }
    let _ = announcement::nmcli(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = InterfaceAlias::parse(text);
    }
}

/// A URL, and on the next line the target of a redirect.
pub(super) fn location(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (url, reference) = text.split_once('\n').unwrap_or((text, "/a/../b?c#d"));
    let Ok(base) = Location::parse(url) else { return };
    check_location(&base);
    if let Ok(joined) = base.join(reference) {
        check_location(&joined);
    }
}

/// A location breaks neither a request line nor a header, is equal after printing and parsing, and
/// its file name stays in its folder.
pub(super) fn check_location(location: &Location) {
    assert!(location.target().starts_with('/'));
    let authority = location.origin().authority();
    for part in [location.target(), authority.as_str()] {
        assert!(!part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic()), "{part:?}");
    }
    assert_eq!(Location::parse(&location.to_string()).as_ref(), Ok(location));
    if let Some(name) = location.file_name() {
        assert!(!name.contains(['/', '\0']) && !["", ".", ".."].contains(&name.as_str()));
    }
}

/// A URL with user information: the rest is not longer and contains no login.
pub(super) fn login_url(bytes: &[u8]) {
    let Ok(url) = std::str::from_utf8(bytes) else { return };
    let (bare, info) = UserInfo::split(url);
    assert!(bare.len() <= url.len() && (info.is_none() || bare.len() < url.len()));
    assert_eq!(UserInfo::split(&bare), (bare.clone(), None));
    const SECRET: &str = "7ac3t";
    for url in [format!("https://me:{SECRET}@{url}"), format!("https://{url}{SECRET}@a/")] {
        let (bare, _) = UserInfo::split(&url);
        for text in [&url, &bare] {
            let shown =
                Location::parse(text).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(!shown.contains(SECRET), "{shown}");
        }
    }
}

pub(super) fn netrc(bytes: &[u8]) {
    let Ok(netrc) = Netrc::parse(bytes) else { return };
    let any = netrc.login("a.example", None);
    for user in ["me", "you"] {
        if let Some(login) = netrc.login("a.example", Some(user)) {
            assert_eq!(login.user, user);
        }
    }
    if let Some(login) = any {
        assert!(netrc.login("a.example", Some(&login.user)).is_some());
    }
}

pub(super) fn digest(bytes: &[u8]) {
    if let Some(hash) = parse_digest(bytes) {
        // Surrounding spaces and an additional member do not change the result.
        let more = [b" ", bytes.trim_ascii(), b" ,\tother=1 "].concat();
        assert_eq!(parse_digest(&more), Some(hash));
    }
}

/// A file of cached path estimates.
pub(super) fn path_estimates(bytes: &[u8]) {
    if let Some(remembered) = StoredEstimate::parse(bytes) {
        assert!(!remembered.rate.is_zero());
        let again = StoredEstimate::parse(remembered.to_json().as_bytes());
        assert!(again.is_some_and(|again| again.network == remembered.network
            && again.rate == remembered.rate
            && again.rtt.is_some() == remembered.rtt.is_some()));
    }
}
