//! The networks that a lender lends, its paired devices, the rules for its traffic, and its screen.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use manyways_tests::testbed::Namespace;
use manyways_tests::{Finished, Running, finish, manyways, manyways_path};
use serde_json::{Value, json};

use crate::bond::{Keys, key};
use crate::lenders::{Devices, LENDER, LINKS, PERMIT, code, fails};
use crate::needs_bond;
use crate::proxy::Association;
use crate::testbed::{GATEWAY, PATIENCE, SERVER, Testbed, at, eventually, ip};

/// `manyways bond lend` with these words, to its end.
fn lend(testbed: &Testbed, phone: &Namespace, words: &[&str]) -> Finished {
    let mut command = manyways();
    command.env("XDG_STATE_HOME", testbed.path("state")).args(["bond", "lend"]).args(words);
    phone.run(|| finish(&mut command))
}

/// The address of a link at the phone.
#[track_caller]
fn address_of(phone: &Namespace, link: &str) -> String {
    let addresses = phone.run(|| {
        finish(Command::new("ip").args(["-4", "-o", "addr", "show", "dev", link])).expect_success()
    });
    let (_, rest) = addresses.stdout.split_once("inet ").expect("an address");
    rest.split(['/', ' ']).next().expect("an address").to_owned()
}

#[test]
fn a_lender_is_reached_over_the_other_network_alone_and_lists_its_devices() {
    needs_bond!();
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let devices = Devices::new(&testbed, &keys);
    let phone = &devices.phone;
    let lte = address_of(phone, "lte");
    for listen in [format!("{lte}:4434"), format!("[::ffff:{lte}]:4434")] {
        fails(lend(&testbed, phone, &["--listen", &listen, "--via", "lte"]), "the lent network");
    }
    let lender = devices.lend(&[]);
    let digits = code(&lender);
    devices.pair(&digits).expect_success();
    // A host beyond the lent network sends packets to the address on the other one.
    let address: SocketAddr = LENDER.parse().expect("an address");
    let any_network = SocketAddr::new(address.ip(), 4435);
    let _open = phone.run(|| TcpListener::bind(any_network)).expect("a port");
    testbed.host(|| ip(&format!("route add {}/32 via {lte}", address.ip())));
    let reaches = |to| testbed.host(|| TcpStream::connect_timeout(&to, PATIENCE)).is_ok();
    assert!(reaches(any_network), "the packets do not arrive");
    assert!(!reaches(address), "the lent network is open to strangers");
    assert!(testbed.device(|| TcpStream::connect(address)).is_ok());

    // Another device of the same name gets no place, and takes none.
    drop(lender);
    let lender = devices.lend(&["--pair"]);
    let digits = code(&lender);
    key(&testbed.path("other.key"));
    let refused = devices.pair_as(&digits, "other.key", "laptop");
    assert!(refused.stderr.contains("--name"), "{}", refused.stderr);
    fails(refused, "another device is paired there under this name");
    devices.pair_as(&digits, "other.key", "tablet").expect_success();
    let list = lend(&testbed, phone, &["--list"]).expect_success();
    for words in
        ["laptop       borrows", "tablet       borrows", "phone        lends", "198.18.0.1:4433"]
    {
        assert!(list.stdout.contains(words), "no {words} in {}", list.stdout);
    }
    let list = lend(&testbed, phone, &["--list", "--json"]).expect_success();
    let list: Value = serde_json::from_str(&list.stdout).expect("it is JSON");
    assert_eq!(list["schema"], "manyways.bond-pairs/1");
    assert_eq!(list["borrowers"][0]["name"], "laptop");
    assert_eq!(list["borrowers"][0]["gateway"], json!([format!("{GATEWAY}:4433")]));
    assert_eq!(list["borrowers"][0]["public_key"], json!(keys.client));
    assert_eq!(list["lenders"][0]["address"], LENDER);

    // Without --via, the network towards the gateway is the one that would be lent.
    drop(lender);
    fails(
        lend(&testbed, phone, &[&["--listen", &format!("{lte}:4434")], &PERMIT[..]].concat()),
        "the lent network",
    );
}

#[test]
fn a_primary_that_vanishes_is_freed_while_the_buffer_is_full() {
    needs_bond!("curl", "nginx");
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let _web = testbed.web_server();
    let devices = Devices::new(&testbed, &keys);
    let options = ["--buffer", "50KB", "--peer-timeout", "1s", "--limit", "1GB/month"];
    let lender = devices.lend(&options);
    lender.says("lends at most 1 GB a month, 0 B so far");
    devices.pair(&code(&lender)).expect_success();
    let client = devices.client();
    client.says("phone is up");
    let download = devices.download_over_phone();
    testbed.set("lan", "state=silent");
    lender.says("laptop no longer uses it");
    devices.is_complete(download);

    // The lent bytes of this month count after a restart, too.
    drop(lender);
    let lender = devices.lend(&options);
    lender.says("lends at most 1 GB a month, ");
    assert!(!lender.said().contains("a month, 0 B so far"), "{}", lender.said());
}

#[test]
fn a_rule_keeps_traffic_from_lenders_or_sends_datagrams_over_them() {
    needs_bond!("curl", "nginx");
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let _web = testbed.web_server();
    let devices = Devices::new(&testbed, &keys);
    let lender = devices.lend(&[]);
    devices.pair(&code(&lender)).expect_success();
    let policy = testbed.path("policy.toml");
    // A phone may pay for its bytes.
    let text = "[default]\npaths = 'unmetered'\n\
                [[rule]]\nname = 'calls'\nmatch = { protocol = 'udp' }\nuse = { paths = 'lender' }\n";
    fs::write(&policy, text).expect("room for a file");
    let client = devices.client_with(&["--policy", &policy.display().to_string()]);
    client.says("phone is up");
    let before = devices.bytes_over_phone();
    devices.is_complete(devices.download());
    assert!(devices.bytes_over_phone() < before + 50_000, "a download has used the phone");

    let server = testbed.udp_server(SERVER[0], 4000);
    let application = Association::new(&testbed);
    let sent = |path: &Value| path["sent_bytes"].as_u64().expect("a number");
    let before = sent(&devices.path());
    let data = vec![7; 900];
    for _ in 0..20 {
        application.send(at(SERVER[0], 4000), &data).expect("it is sent");
        let mut buffer = [0; 2_000];
        let (length, from) = server.recv_from(&mut buffer).expect("it arrives");
        assert_eq!(buffer[..length], data);
        server.send_to(&buffer[..length], from).expect("it is answered");
        let (answer, _) = application.receive().expect("the answer arrives");
        assert_eq!(answer, data);
    }
    eventually("the datagrams have used the phone", || {
        (sent(&devices.path()) >= before + 20 * 900).then_some(())
    });
}

#[test]
fn a_key_on_the_screen_of_a_lender_stops_it() {
    needs_bond!("script", "mkfifo");
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let devices = Devices::new(&testbed, &keys);
    let (fifo, screen) = (testbed.path("keyboard"), testbed.path("screen"));
    finish(Command::new("mkfifo").arg(&fifo)).expect_success();
    let line = format!(
        "exec script --quiet --return --command '{} bond lend --listen {LENDER} --via lte --name phone' \
         /dev/null < {} > {} 2>&1",
        manyways_path().display(),
        fifo.display(),
        screen.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("SHELL", "/bin/sh");
    command.env("XDG_STATE_HOME", testbed.path("state"));
    let mut script = devices.phone.run(|| Running::start(&mut command));
    // The open blocks until the other side opens the FIFO.
    let mut keyboard = File::options().write(true).open(&fifo).expect("a keyboard");
    let shown = || fs::read_to_string(&screen).unwrap_or_default();
    let times = |words: &str| shown().matches(words).count();
    eventually("the line is there", || (times("q stops, p pairs") == 1).then_some(()));
    // Another line takes its place for a moment only.
    keyboard.write_all(b"p").expect("somebody reads");
    eventually("another code is there", || (times("the code is") == 2).then_some(()));
    eventually("the line is there again", || (times("q stops, p pairs") == 2).then_some(()));
    keyboard.write_all(b"q").expect("somebody reads");
    assert!(script.wait(PATIENCE).expect("it ends").success(), "{}", shown());
}
