//! A large number of connections, each of which may use few resources.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::bond::Keys;
use crate::links::exchange_data;
use crate::needs_bond;
use crate::proxy::socks;
use crate::testbed::{SERVER, TWO_LINKS, Testbed, accept, at};

/// Number of connections if the file limit allows both ends of each in this process.
const MAX_CONNECTIONS: u64 = 20_000;
/// File descriptors for other tests of this process, which run concurrently.
const RESERVED_DESCRIPTORS: u64 = 1000;
/// Limit of the memory that a connection costs both endpoints together. The
/// program itself is as large without connections.
const CONNECTION_MEMORY: u64 = 10 << 10;

// Slow: opens 20,000 connections.
#[test]
fn connections_that_are_idle_cost_little() {
    needs_bond!();
    let wanted = MAX_CONNECTIONS * 2 + RESERVED_DESCRIPTORS;
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit is known");
    let max = [wanted.max(max), max]
        .into_iter()
        .find(|limit| setrlimit(Resource::RLIMIT_NOFILE, *limit, *limit).is_ok())
        .expect("up to the limit everybody may");
    let many = MAX_CONNECTIONS.min(max.saturating_sub(RESERVED_DESCRIPTORS) / 2);
    if many < MAX_CONNECTIONS / 10 {
        return eprintln!("skipped: only {max} files may be open");
    }
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (gateway, client) = (keys.gateway(&[]), keys.client());
    let memory = || [&client, &gateway].map(manyways_tests::testbed::Logged::memory);
    let before: u64 = memory().iter().sum();
    let listener = testbed.listen(SERVER[0], 7);
    let open = || {
        let mut application = socks(&testbed, at(SERVER[0], 7));
        application.write_all(b"!").expect("it is taken");
        application
    };
    let (applications, mut servers): (Vec<TcpStream>, Vec<TcpStream>) = thread::scope(|scope| {
        let openers = [0, 1, 2, 3].map(|opener| {
            let share = (opener..many).step_by(4);
            scope.spawn(|| share.map(|_| open()).collect::<Vec<_>>())
        });
        let servers = (0..many).map(|_| accept(&listener).0).collect();
        let opened = openers.map(|opener| opener.join().expect("no panic"));
        (opened.into_iter().flatten().collect(), servers)
    });
    for server in &mut servers {
        server.read_exact(&mut [0]).expect("it said something");
    }
    let cost = memory().iter().sum::<u64>().saturating_sub(before);
    assert!(cost <= CONNECTION_MEMORY * many, "{cost} bytes for {many} connections");
    drop((applications, servers));
    // New connections are possible after the old ones.
    let mut application = open();
    let mut server = accept(&listener).0;
    server.read_exact(&mut [0]).expect("it said something");
    exchange_data(&mut application, &mut server);
}
