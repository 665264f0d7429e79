//! Networks that fail, return, lose NAT mappings, or have a small MTU.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bond::{Keys, networks};
use crate::needs_bond;
use crate::proxy::{plain, socks};
use crate::world::{SERVER, SLOW_LINKS, World, accept, at, eventually};

/// Data that the links need longer than a second for.
fn long() -> Vec<u8> {
    numbers(1_000_000)
}

fn numbers(count: u32) -> Vec<u8> {
    (0..count).flat_map(u32::to_be_bytes).collect()
}

/// Downloads the data of [`long`], and changes the links while the download is in progress.
#[track_caller]
pub fn download_while(world: &World, meddle: impl FnOnce(&dyn Fn() -> bool)) {
    download(world, &long(), meddle);
}

#[track_caller]
fn download(world: &World, long: &[u8], meddle: impl FnOnce(&dyn Fn() -> bool)) {
    let listener = world.listen(SERVER[0], 7);
    let mut application = socks(world, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    let mut came = vec![0; long.len()];
    thread::scope(|scope| {
        scope.spawn(|| server.write_all(long).expect("the other side listens"));
        let (first, rest) = came.split_at_mut(100_000);
        application.read_exact(first).expect("it begins to come");
        let reading = scope.spawn(|| application.read_exact(rest).expect("the rest comes"));
        let is_under_way = || !reading.is_finished();
        assert!(is_under_way(), "it was there before anything happened");
        meddle(&is_under_way);
        reading.join().expect("the rest came");
    });
    assert!(came == long, "something else came");
}

/// Data in the kernel's send queue can no longer use another network or be overtaken by urgent
/// data. The queue is small, independent of Linux's limits.
#[test]
fn little_waits_in_the_kernel() {
    needs_bond!();
    const WRITTEN: usize = 2_000_000;
    let world = World::new(&SLOW_LINKS);
    let keys = Keys::new(&world);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    client.says("wifi is up");
    client.says("lte is up");
    let listener = world.listen(SERVER[0], 7);
    let mut application = socks(&world, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    let most = thread::scope(|scope| {
        scope.spawn(move || {
            application.write_all(&vec![7; WRITTEN]).expect("somebody takes it");
        });
        let reading = scope.spawn(|| io::copy(&mut server, &mut io::sink()).expect("it comes"));
        let mut most = 0;
        while !reading.is_finished() {
            let queues = networks(&world, "default", "queue_bytes");
            most = queues.iter().filter_map(Value::as_u64).fold(most, u64::max);
        }
        assert_eq!(reading.join().expect("it came"), WRITTEN as u64);
        most
    });
    // About 6 KiB, and the last write.
    assert!((1..=16 << 10).contains(&most), "{most} bytes waited");
}

#[test]
fn a_download_goes_on_when_a_link_goes_down_or_silent() {
    needs_bond!();
    for state in ["no-carrier", "silent"] {
        for link in ["wifi", "lte"] {
            let world = World::new(&SLOW_LINKS);
            let keys = Keys::new(&world);
            let (_gateway, _client) = (keys.gateway(&[]), keys.client());
            download_while(&world, |_| world.set(link, &format!("state={state}")));
        }
    }
}

#[test]
fn a_link_that_is_back_is_used_again() {
    needs_bond!();
    let world = World::new(&SLOW_LINKS);
    let keys = Keys::new(&world);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    world.set("wifi", "state=no-carrier");
    client.says("wifi is down");
    world.set("wifi", "state=up");
    client.says_times("wifi is up", 2);
    // From here on the transfer depends on Wi-Fi.
    world.set("lte", "state=no-carrier");
    client.says("lte is down");
    download_while(&world, |_| {});
}

/// Half a second up, half a second down, for a minute. The sleeps are the fault itself and not a
/// wait for a result.
#[test]
fn a_download_survives_a_link_that_flaps() {
    needs_bond!();
    const FLAPS: usize = 60;
    let world = World::new(&["wifi:down=2mbit,up=1mbit,delay=4ms", SLOW_LINKS[1]]);
    let keys = Keys::new(&world);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    world.set("lte", "down=1mbit");
    // More data than both links carry in that minute.
    download(&world, &numbers(4_000_000), |is_under_way| {
        for flap in 0..FLAPS {
            if !is_under_way() {
                // On a loaded machine, changes of a link take so long that the download ends first.
                assert!(flap >= FLAPS / 2, "the download ended after {flap} flaps");
                break;
            }
            for state in ["state=no-carrier", "state=up"] {
                world.set("wifi", state);
                thread::sleep(Duration::from_millis(500));
            }
        }
        world.set("wifi", "down=20mbit");
    });
    // The number of up phases in which a carrier connects depends on the load of the machine.
    assert!(client.times("wifi is down") > 0, "{}", client.said());
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

#[test]
fn a_download_waits_for_networks_when_there_are_none() {
    needs_bond!();
    let world = World::new(&SLOW_LINKS);
    let keys = Keys::new(&world);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    download_while(&world, |_| {
        world.set("wifi", "state=no-carrier");
        world.set("lte", "state=no-carrier");
        client.says("wifi is down");
        client.says("lte is down");
        world.set("lte", "state=up");
    });
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

/// Carriers use TCP, so a small MTU of a path does not affect applications.
#[test]
fn links_may_carry_packets_of_different_sizes() {
    needs_bond!();
    let world = World::new(&["wifi:down=20mbit,delay=3ms,mtu=1280", "lte:down=20mbit,delay=3ms"]);
    let keys = Keys::new(&world);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    download_while(&world, |_| {});
    let listener = world.listen(SERVER[1], 7);
    let mut application = plain(&world, at(SERVER[1], 7));
    let (mut server, _) = accept(&listener);
    let long = long();
    thread::scope(|scope| {
        scope.spawn(|| application.write_all(&long).expect("the other side listens"));
        let mut came = vec![0; long.len()];
        server.read_exact(&mut came).expect("it comes");
        assert!(came == long, "something else came");
    });
}

/// Both ends of an idle connection.
pub fn idle(world: &World) -> (TcpListener, TcpStream, TcpStream) {
    let listener = world.listen(SERVER[0], 7);
    let mut application = socks(world, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    speak(&mut application, &mut server);
    (listener, application, server)
}

/// Sends data in both directions.
#[track_caller]
pub fn speak(application: &mut TcpStream, server: &mut TcpStream) {
    say(application, server);
    say(server, application);
}

#[track_caller]
fn say(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"hello").expect("it is taken");
    let mut heard = [0; 5];
    to.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"hello");
}

/// NAT timeouts, and a longer idle time.
const FORGETFUL: [&str; 2] =
    ["wifi:delay=3ms,middlebox=nat:idle=1s", "lte:delay=5ms,middlebox=nat:idle=1s"];
const LONGER: Duration = Duration::from_secs(3);

#[test]
fn a_nat_that_forgets_costs_no_connection() {
    needs_bond!();
    let world = World::new(&FORGETFUL);
    let keys = Keys::new(&world);
    let (_gateway, client) = (keys.gateway(&[]), keys.client());
    let (_listener, mut application, mut server) = idle(&world);
    for _ in 0..2 {
        thread::sleep(LONGER);
        speak(&mut application, &mut server);
    }
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

/// A device in standby: no process runs, and all its NAT mappings have expired when it resumes.
#[test]
fn a_client_that_slept_goes_on_where_it_was() {
    needs_bond!();
    let world = World::new(&FORGETFUL);
    let keys = Keys::new(&world);
    let (gateway, client) = (keys.gateway(&[]), keys.client());
    let (_listener, mut application, mut server) = idle(&world);
    client.process.signal(Signal::SIGSTOP);
    for link in ["wifi", "lte"] {
        world.set(link, "state=no-carrier");
    }
    // Sent in both directions while the client sleeps.
    application.write_all(b"are you").expect("the kernel takes it");
    server.write_all(b"I am").expect("the kernel takes it");
    thread::sleep(LONGER);
    for link in ["wifi", "lte"] {
        world.set(link, "state=up");
    }
    client.process.signal(Signal::SIGCONT);
    let mut heard = [0; 7];
    server.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"are you");
    application.read_exact(&mut heard[..4]).expect("it arrives");
    assert_eq!(&heard[..4], b"I am");
    speak(&mut application, &mut server);
    eventually("both networks are used again", || (client.times("is up") >= 4).then_some(()));
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
    assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
}
