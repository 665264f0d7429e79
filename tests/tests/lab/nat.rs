//! A link with a NAT on it.

use std::fs;

use manyways_lab::event::LabEvent;
use manyways_record::event;
use manyways_tests::{Need, folder, needs};

use crate::running::{nginx, script_in};

/// Replies to the first datagram with its source address, and sends to a port without a mapping.
/// After three seconds without a datagram it sends to the peer again, and starts over.
const SERVER: &str = r#"
use IO::Socket::INET; use IO::Select; use Socket;
my $socket = IO::Socket::INET->new(Proto => "udp", LocalAddr => "198.18.0.1", LocalPort => 7);
while (my $peer = $socket->recv(my $text, 99)) {
    my ($port, $address) = sockaddr_in($peer);
    $socket->send(inet_ntoa($address), 0, $peer);
    $socket->send("stranger", 0, pack_sockaddr_in(9, $address));
    next if IO::Select->new($socket)->can_read(3);
    $socket->send("late", 0, $peer);
}
"#;

/// Prints the reply to a datagram, a later datagram, and the reply to another one.
const CLIENT: &str = r#"
use IO::Socket::INET; use IO::Select;
my $socket = IO::Socket::INET->new(Proto => "udp", LocalAddr => "10.64.1.2", LocalPort => 5000,
    PeerAddr => "198.18.0.1", PeerPort => 7);
sub next_one {
    return "nothing" unless IO::Select->new($socket)->can_read($_[0]);
    $socket->recv(my $text, 99); return $text;
}
$socket->send("hello"); print next_one(30), " ";
print next_one(6), " ";
$socket->send("hello"); print next_one(30), "\n";
"#;

/// Output of the client, and number of packets that the middlebox dropped.
fn run_nat(middlebox: &str) -> (String, u64) {
    let files = folder();
    let file = |name: &str| files.path().join(name).display().to_string();
    fs::write(file("server"), SERVER).expect("room for a script");
    fs::write(file("client"), CLIENT).expect("room for a script");
    let link = format!("wifi:delay=1ms,middlebox={middlebox}");
    let (far, timeline) = (format!("perl {}", file("server")), file("timeline"));
    let options = ["--link", &link, "--far", &far, "--timeline", &timeline];
    let seen = script_in(&options, &format!("perl {}", file("client"))).expect_success().stdout;
    let log = event::parse(&fs::read(file("timeline")).expect("a timeline")).expect("it reads");
    let dropped = log.records.iter().filter_map(|record| match &record.event {
        LabEvent::LinkSample(sample) => Some(sample.dropped_packets.middlebox),
        _ => None,
    });
    (seen, dropped.max().unwrap_or_default())
}

#[test]
fn the_far_side_sees_the_nat() {
    needs!(Need::Root, Need::Command("nginx"), Need::Command("curl"));
    let [far, command] = nginx();
    let ask = "curl -sS http://198.18.0.1/address; curl -sS 'http://[fd00:18::1]/address'; \
               curl -sS -o /dev/null -w '%{size_download}\n' http://198.18.0.1/1M";
    let finished =
        script_in(&["--link", "lte:middlebox=nat", &far, &command], ask).expect_success();
    assert_eq!(finished.stdout, "100.64.1.1\nfd00:64:1::2\n1000000\n");
}

#[test]
fn an_idle_mapping_is_forgotten_and_nobody_else_gets_in() {
    needs!(Need::Root, Need::Command("perl"));
    let (seen, dropped) = run_nat("nat:idle=1s");
    assert_eq!(seen, "100.64.1.1 nothing 100.64.1.1\n");
    // The datagram to the port without a mapping and the late one, at least once each.
    assert!(dropped >= 2, "{dropped}");
}

#[test]
fn a_mapping_lasts_as_long_as_it_may() {
    needs!(Need::Root, Need::Command("perl"));
    let (seen, dropped) = run_nat("nat:idle=120s");
    assert_eq!(seen, "100.64.1.1 late 100.64.1.1\n");
    assert!(dropped >= 1, "{dropped}");
}

#[test]
fn without_a_nat_nothing_is_translated() {
    needs!(Need::Root, Need::Command("perl"));
    assert_eq!(run_nat("none"), ("10.64.1.2 late 10.64.1.2\n".to_owned(), 0));
}
