//! Networks that fail, return, lose NAT mappings, or have a small MTU.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use manyways_tests::fault;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bond::{Keys, network_fields};
use crate::needs_bond;
use crate::proxy::{plain, socks};
use crate::testbed::{SERVER, SLOW_LINKS, Testbed, accept, at, eventually};

/// Data that the links need longer than a second for.
fn long_data() -> Vec<u8> {
    numbers(0..1_000_000)
}

fn numbers(range: Range<u32>) -> Vec<u8> {
    range.flat_map(u32::to_be_bytes).collect()
}

/// Downloads the data of [`long_data`], and changes the links while the download is in progress: until
/// `meddle` returns, no link delivers more than a part. A link that it pauses delivers again then.
#[track_caller]
pub fn download_while(testbed: &Testbed, meddle: impl FnOnce()) {
    let long = long_data();
    let links = || {
        let status = testbed.lab.status();
        let links = status["links"].as_array().expect("a list").clone();
        links.into_iter().map(|link| (text(&link, "name"), text(&link, "state")))
    };
    for (link, _) in links() {
        let at = format!("{link}.down_bytes >= 1MB");
        testbed.lab.set(&["--when", &at, &link, "state=paused"]).expect_success();
    }
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    let mut came = vec![0; long.len()];
    thread::scope(|scope| {
        scope.spawn(|| server.write_all(&long).expect("the other side listens"));
        let (first, rest) = came.split_at_mut(100_000);
        application.read_exact(first).expect("it begins to come");
        let reading = scope.spawn(|| application.read_exact(rest).expect("the rest comes"));
        meddle();
        assert!(!reading.is_finished(), "it ended before the change");
        for (link, _) in links() {
            testbed.lab.set(&["--cancel", &link]).expect_success();
        }
        for (link, _) in links().filter(|(_, state)| state == "paused") {
            testbed.set(&link, "state=up");
        }
        reading.join().expect("the rest came");
    });
    fault!(came == long, "something else came");
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().expect("a text").to_owned()
}

/// Data in the kernel's send queue can no longer use another network or be overtaken by urgent
/// data. The queue is small, independent of Linux's limits.
#[test]
fn little_waits_in_the_kernel() {
    needs_bond!();
    const WRITTEN: usize = 2_000_000;
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    client.says("wifi is up");
    client.says("lte is up");
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    let max = thread::scope(|scope| {
        scope.spawn(move || {
            application.write_all(&vec![7; WRITTEN]).expect("somebody takes it");
        });
        let reading = scope.spawn(|| io::copy(&mut server, &mut io::sink()).expect("it comes"));
        let mut max = 0;
        while !reading.is_finished() {
            let queues = network_fields(&testbed, "default", "queue_bytes");
            max = queues.iter().filter_map(Value::as_u64).fold(max, u64::max);
        }
        assert_eq!(reading.join().expect("it came"), WRITTEN as u64);
        max
    });
    // About 6 KiB, and the last write.
    assert!((1..=16 << 10).contains(&max), "{max} bytes waited");
}

/// One of the links after the other goes into this state.
fn download_goes_on(state: &str) {
    for link in ["wifi", "lte"] {
        let testbed = Testbed::new(&SLOW_LINKS);
        let keys = Keys::new(&testbed);
        let (_gateway, _client) = (keys.gateway(&[]), keys.client());
        download_while(&testbed, || testbed.set(link, &format!("state={state}")));
    }
}

#[test]
fn a_download_goes_on_when_a_link_goes_down() {
    needs_bond!();
    download_goes_on("no-carrier");
}

#[test]
fn a_download_goes_on_when_a_link_goes_silent() {
    needs_bond!();
    download_goes_on("silent");
}

#[test]
fn a_link_that_is_back_is_used_again() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    testbed.set("wifi", "state=no-carrier");
    client.says("wifi is down");
    testbed.set("wifi", "state=up");
    client.says_times("wifi is up", 2);
    // From here on the transfer depends on Wi-Fi.
    testbed.set("lte", "state=no-carrier");
    client.says("lte is down");
    download_while(&testbed, || {});
}

/// The link goes down and up again each time 64 KiB have arrived.
// Slow: the link flaps 60 times.
#[test]
fn a_download_survives_a_link_that_flaps() {
    needs_bond!();
    const BYTES_BETWEEN: u64 = 64 << 10;
    let testbed = Testbed::new(&["wifi:down=4mbit,up=1mbit,delay=4ms", SLOW_LINKS[1]]);
    let keys = Keys::new(&testbed);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    testbed.set("lte", "down=3mbit");
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sent, came) = thread::scope(|scope| {
        // As long as the link flaps, the download continues.
        let sending = scope.spawn(|| {
            let mut sent = 0;
            while !is_over.load(Ordering::Acquire) {
                server.write_all(&numbers(sent..sent + 1024)).expect("the other side listens");
                sent += 1024;
            }
            server.shutdown(Shutdown::Write).expect("it is connected");
            sent
        });
        let reading = scope.spawn(|| {
            let mut came = Vec::new();
            let mut part = vec![0; 4 << 10];
            while let count @ 1.. = application.read(&mut part).expect("more comes") {
                came.extend_from_slice(&part[..count]);
                received.fetch_add(count as u64, Ordering::Release);
            }
            came
        });
        for _ in 0..60 {
            for state in ["state=no-carrier", "state=up"] {
                testbed.set("wifi", state);
                let end = received.load(Ordering::Acquire) + BYTES_BETWEEN;
                eventually("data arrives", || {
                    assert!(!reading.is_finished(), "it ended");
                    (received.load(Ordering::Acquire) >= end).then_some(())
                });
            }
        }
        testbed.set("wifi", "down=20mbit");
        is_over.store(true, Ordering::Release);
        (sending.join().expect("it was sent"), reading.join().expect("it came"))
    });
    fault!(came == numbers(0..sent), "something else came");
    // The number of up phases in which a carrier connects depends on the load of the machine.
    assert!(client.times("wifi is down") > 0, "{}", client.said());
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

#[test]
fn a_download_waits_for_networks_when_there_are_none() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    download_while(&testbed, || {
        testbed.set("wifi", "state=no-carrier");
        testbed.set("lte", "state=no-carrier");
        client.says("wifi is down");
        client.says("lte is down");
        testbed.set("lte", "state=paused");
    });
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

/// Carriers use TCP, so a small MTU of a path does not affect applications.
#[test]
fn links_may_carry_packets_of_different_sizes() {
    needs_bond!();
    let testbed =
        Testbed::new(&["wifi:down=20mbit,delay=3ms,mtu=1280", "lte:down=20mbit,delay=3ms"]);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    download_while(&testbed, || {});
    let listener = testbed.listen(SERVER[1], 7);
    let mut application = plain(&testbed, at(SERVER[1], 7));
    let (mut server, _) = accept(&listener);
    let long = long_data();
    thread::scope(|scope| {
        scope.spawn(|| application.write_all(&long).expect("the other side listens"));
        let mut came = vec![0; long.len()];
        server.read_exact(&mut came).expect("it comes");
        fault!(came == long, "something else came");
    });
}

/// Both ends of an idle connection.
pub fn idle(testbed: &Testbed) -> (TcpListener, TcpStream, TcpStream) {
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    exchange_data(&mut application, &mut server);
    (listener, application, server)
}

/// Sends data in both directions.
#[track_caller]
pub fn exchange_data(application: &mut TcpStream, server: &mut TcpStream) {
    send_data(application, server);
    send_data(server, application);
}

#[track_caller]
fn send_data(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"hello").expect("it is taken");
    let mut heard = [0; 5];
    to.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"hello");
}

/// Links with NATs whose timeout does not affect the test.
const NATS: [&str; 2] = ["wifi:delay=3ms,middlebox=nat", "lte:delay=5ms,middlebox=nat"];

/// All NATs lose their mappings, as after their idle timeout.
fn expire_mappings(testbed: &Testbed) {
    for link in ["wifi", "lte"] {
        testbed.set(link, "middlebox=restart");
    }
}

#[test]
fn a_nat_that_forgets_costs_no_connection() {
    needs_bond!();
    let testbed = Testbed::new(&NATS);
    let keys = Keys::new(&testbed);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    let (_listener, mut application, mut server) = idle(&testbed);
    for _ in 0..2 {
        expire_mappings(&testbed);
        exchange_data(&mut application, &mut server);
    }
    // A carrier whose mapping is lost is replaced.
    eventually("a carrier is new", || (client.times("is up") >= 3).then_some(()));
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

/// A device in standby: no process runs, and all its NAT mappings have expired when it resumes.
#[test]
fn a_client_that_slept_goes_on_where_it_was() {
    needs_bond!();
    let testbed = Testbed::new(&NATS);
    let keys = Keys::new(&testbed);
    let (gateway, client) = (keys.gateway(&[]), keys.client());
    let (_listener, mut application, mut server) = idle(&testbed);
    client.process.signal(Signal::SIGSTOP);
    for link in ["wifi", "lte"] {
        testbed.set(link, "state=no-carrier");
    }
    // Sent in both directions while the client sleeps.
    application.write_all(b"are you").expect("the kernel takes it");
    server.write_all(b"I am").expect("the kernel takes it");
    expire_mappings(&testbed);
    for link in ["wifi", "lte"] {
        testbed.set(link, "state=up");
    }
    client.process.signal(Signal::SIGCONT);
    let mut heard = [0; 7];
    server.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"are you");
    application.read_exact(&mut heard[..4]).expect("it arrives");
    assert_eq!(&heard[..4], b"I am");
    exchange_data(&mut application, &mut server);
    eventually("both networks are used again", || (client.times("is up") >= 4).then_some(()));
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
    assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
}
