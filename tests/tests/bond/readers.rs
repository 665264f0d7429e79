//! Applications and servers that do not read, together with others that do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use manyways_tests::fault;

use crate::bond::Keys;
use crate::needs_bond;
use crate::proxy::socks;
use crate::testbed::{SERVER, TWO_LINKS, Testbed, accept, at};

/// Number of streams whose total credit would exceed the credit of the session.
const STREAMS: usize = 48;

/// Writes until the peer accepts no more data.
fn fill(mut stream: TcpStream) -> TcpStream {
    stream.set_write_timeout(Some(std::time::Duration::from_millis(500))).expect("it can be told");
    let zeros = vec![0; 1 << 20];
    // Sixteen times the initial credit of a stream.
    for _ in 0..32 {
        if stream.write_all(&zeros).is_err() {
            break;
        }
    }
    stream
}

/// Asserts that another connection transfers data in both directions.
#[track_caller]
fn check_other_connection(testbed: &Testbed) {
    let listener = testbed.listen(SERVER[0], 8);
    let mut application = socks(testbed, at(SERVER[0], 8));
    let (mut server, _) = accept(&listener);
    let long: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    let say = |from: &mut TcpStream, to: &mut TcpStream| {
        thread::scope(|scope| {
            scope.spawn(|| from.write_all(&long).expect("the other side listens"));
            let mut came = vec![0; long.len()];
            to.read_exact(&mut came).expect("it comes");
            fault!(came == long, "something else came");
        });
    };
    say(&mut application, &mut server);
    say(&mut server, &mut application);
}

#[test]
fn an_application_that_never_reads_holds_up_nobody() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    let listener = testbed.listen(SERVER[0], 7);
    let application = socks(&testbed, at(SERVER[0], 7));
    let server = fill(accept(&listener).0);
    check_other_connection(&testbed);
    drop((application, server));
}

#[test]
fn a_server_that_never_reads_holds_up_nobody() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    let listener = testbed.listen(SERVER[0], 7);
    let application = fill(socks(&testbed, at(SERVER[0], 7)));
    let server = accept(&listener);
    check_other_connection(&testbed);
    drop((application, server));
}

/// As with many open videos that nothing plays.
#[test]
fn many_that_never_read_hold_up_nobody() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    let listener = testbed.listen(SERVER[0], 7);
    let open: Vec<(TcpStream, TcpStream)> =
        (0..STREAMS).map(|_| (socks(&testbed, at(SERVER[0], 7)), accept(&listener).0)).collect();
    let stuffed: Vec<(TcpStream, TcpStream)> = thread::scope(|scope| {
        let busy = open
            .into_iter()
            .map(|(application, server)| scope.spawn(|| (application, fill(server))));
        let busy: Vec<_> = busy.collect();
        busy.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    check_other_connection(&testbed);
    drop(stuffed);
}
