//! Client, lender and gateway in one process, over loopback.

use std::sync::Arc;

use manyways_proto::relay::Class;
use rustls::Connection;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::bond::key::PrivateKey;
use crate::bond::tls;

/// Maximum time of a test.
const PATIENCE: Duration = Duration::from_secs(60);
const SMALL_BUFFER: Size = Size::from_kib(64);
/// Bytes of a sealed message.
const LENGTH: usize = 8_000;

/// Creates both ends of a connection that carries frames.
async fn connection() -> (TcpCarrier, TcpCarrier) {
    let [own, peer] = [(); 2].map(|()| PrivateKey::generate().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let accept = tls::server(&peer, Arc::new(|_| true), &[tls::ALPN_PROTOCOL]).unwrap();
    let connect = tls::client(&own, peer.public(), tls::ALPN_PROTOCOL).unwrap();
    let (name, acceptor) = (ServerName::try_from("lender.invalid"), TlsAcceptor::from(accept));
    let client = async {
        let stream = TcpStream::connect(to).await.unwrap();
        TlsConnector::from(connect).connect(name.unwrap(), stream).await.unwrap()
    };
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.unwrap()
    };
    let (client, server) = tokio::join!(client, server);
    let ((client, of_client), (server, of_server)) = (client.into_inner(), server.into_inner());
    let mut ends = (
        TcpCarrier::new(client, Connection::Client(of_client)),
        TcpCarrier::new(server, Connection::Server(of_server)),
    );
    ends.0.relay();
    ends.1.relay();
    ends
}

fn bulk(number: u64) -> Frame<Bytes> {
    Frame::Sealed { class: Class::Bulk, number, sealed: Bytes::from(vec![b'x'; LENGTH]) }
}

/// Sends bulk frames through a lender to an end that does not read at first.
async fn fill(up: bool) {
    let (mut device, pipe) = connection().await;
    let (far, mut gateway) = connection().await;
    let progress = Rc::new(Progress::default());
    let options = (false, SMALL_BUFFER);
    spawn_local(run(pipe, far, options, Rc::clone(&progress), Clock::start()));
    let (from, to) = match up {
        true => (&mut device, &mut gateway),
        false => (&mut gateway, &mut device),
    };
    // More than fits the kernel's buffers of both connections.
    let (mut sent, all) = (0, 20_000);
    for _ in 0..all {
        if from.flush().unwrap() {
            from.queue_frame(&bulk(sent));
            sent += 1;
        }
        yield_now().await;
        let backlog = progress.backlog.get();
        // One read may exceed the buffer.
        assert!(backlog < SMALL_BUFFER.as_bytes() + (512 << 10), "{backlog} bytes, up {up}");
    }
    assert!(sent < all, "nothing held the sender back");
    let (mut buffer, mut received) = (Vec::new(), 0);
    while received < sent {
        from.flush().unwrap();
        let take = |one| {
            let Received::Frame(Frame::Sealed { number, sealed, .. }) = one else {
                panic!("not a message")
            };
            assert_eq!((number, sealed.len()), (received, LENGTH));
            received += 1;
        };
        to.read(&mut buffer, take).unwrap();
        yield_now().await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_lender_reads_no_more_than_it_has_room_for() {
    for up in [true, false] {
        let ended = LocalSet::new().run_until(timeout(PATIENCE, fill(up))).await;
        assert!(ended.is_ok(), "not all messages came, up {up}");
    }
}

#[test]
fn acks_wait_while_messages_of_a_silent_gateway_wait_for_the_pipe() {
    let (before, now) = (Time::from_millis(900), Time::from_millis(1_000));
    assert!(is_sending(now, now, false));
    assert!(is_sending(now, before + Span::from_millis(1), false));
    assert!(!is_sending(now, before, false), "the radio may sleep");
    assert!(is_sending(now, before, true), "the ACKs of the last messages");
}
