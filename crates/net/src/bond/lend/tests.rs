//! Lenders that do not pass messages on as they are: client, lender and gateway in one process, over
//! loopback.

use std::time::Duration;

use bytes::Bytes;
use manyways_proto::mux::Destination;
use manyways_proto::relay::{Class, Frame};
use manyways_proto::sched::{PathId, SchedulerKind, StreamPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::task::LocalSet;

use super::*;
use crate::bond::allow::AllowFile;
use crate::bond::carrier::Received;
use crate::bond::client::{Client, ClientEvent, ClientOptions, Lender};
use crate::bond::gateway::{Gateway, GatewayOptions};

/// A treatment of a bulk frame that no lender may give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Change,
    Repeat,
    LeaveOut,
    Swap,
    /// Drops a message that was not recalled.
    Drop,
    /// Sends a frame that only an end sends.
    Invent,
}

impl Fault {
    const ALL: [Self; 6] =
        [Self::Change, Self::Repeat, Self::LeaveOut, Self::Swap, Self::Drop, Self::Invent];

    /// Returns the frames that it passes on in place of the first bulk frames.
    fn apply(self, held: &mut Vec<Frame<Bytes>>, frame: Frame<Bytes>) -> Vec<Frame<Bytes>> {
        match (self, frame) {
            (Self::Change, Frame::Sealed { class, number, sealed }) => {
                let mut bytes = sealed.to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                vec![Frame::Sealed { class, number, sealed: bytes.into() }]
            }
            (Self::Repeat, frame) => vec![frame.clone(), frame],
            (Self::LeaveOut, _) => Vec::new(),
            (Self::Swap, frame) if held.is_empty() => {
                held.push(frame);
                Vec::new()
            }
            (Self::Swap, frame) => [vec![frame], std::mem::take(held)].concat(),
            (Self::Drop, Frame::Sealed { number, .. }) => vec![Frame::Dropped { number }],
            (Self::Invent, frame) => vec![frame, Frame::Recall { first: 0, last: 1 }],
            (_, frame) => vec![frame],
        }
    }

    /// Number of bulk frames to which it is applied.
    fn count(self) -> u32 {
        if self == Self::Swap { 2 } else { 1 }
    }
}

/// Lends to one device as [`Lending::run`] does, with a fault in one direction.
async fn lend_wrongly(lending: Lending, device: PairedDevice, fault: Fault, up: bool) {
    let listener = lending.0.listeners.take().remove(0);
    let (stream, _) = listener.accept().await.unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(&lending.0.tls));
    let (stream, tls) = acceptor.accept(stream).await.unwrap().into_inner();
    let mut pipe = CarrierIo::Tcp(Box::new(TcpCarrier::new(stream, Connection::Server(tls))));
    let (mut far, _) = lending.join(&device, &mut pipe).await.unwrap();
    let CarrierIo::Tcp(mut pipe) = pipe else { panic!("it came over TCP") };
    pipe.relay();
    let (mut buffer, mut held, mut left) = (Vec::new(), Vec::new(), fault.count());
    loop {
        let (near_socket, far_socket) = (Rc::clone(&pipe.stream), Rc::clone(&far.stream));
        let (from, to, is_up) = tokio::select! {
            _ = near_socket.ready(Interest::READABLE) => (&mut *pipe, &mut far, true),
            _ = far_socket.ready(Interest::READABLE) => (&mut far, &mut *pipe, false),
        };
        let mut frames = Vec::new();
        let read = from.read(&mut buffer, |received| match received {
            Received::Frame(frame) => frames.push(frame),
            _ => panic!("a lender reads frames"),
        });
        for frame in frames {
            let is_bulk = matches!(&frame, Frame::Sealed { class: Class::Bulk, .. });
            if is_bulk && is_up == up && left > 0 {
                left -= 1;
                fault.apply(&mut held, frame).iter().for_each(|frame| to.queue_frame(frame));
            } else {
                to.queue_frame(&frame);
            }
        }
        while let Ok(false) = to.flush() {
            let _ = to.stream.ready(Interest::WRITABLE).await;
        }
        if read.is_err() {
            // Both connections end here. No other device is served: that would be another attempt.
            return drop(listener);
        }
    }
}

/// A server that returns everything.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}

/// An application's connection through the client.
async fn application(client: &Client, to: SocketAddr) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (carried, _) = listener.accept().await.unwrap();
    client.carry(carried, Destination::Address(to.ip(), to.port()), 0, Bytes::new());
    own
}

async fn deselects(fault: Fault, up: bool) {
    let folder = tempfile::tempdir().unwrap();
    let [own, gateway_key, phone_key] = [(); 3].map(|()| PrivateKey::generate().unwrap());
    let allow = folder.path().join("allow");
    std::fs::write(&allow, format!("{} laptop\n", own.public())).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let loopback = EgressFilter::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let gateway_public = gateway_key.public();
    let mut options = GatewayOptions::new(vec![any], gateway_key, AllowFile::open(&allow).unwrap());
    options.egress = loopback.clone();
    let gateway = Gateway::bind(options).unwrap();
    let addresses = gateway.addresses();
    tokio::task::spawn_local(gateway.run(pending()));

    let role = PairedRole::Borrower { gateway: addresses.clone(), gateway_key: gateway_public };
    let device = PairedDevice { name: "laptop".to_owned(), key: own.public(), role };
    let (pairs, usage) = (PairFile::borrowers(folder.path()), UsageFile::named(None, "usage"));
    pairs.add(device.clone()).unwrap();
    let phone = phone_key.public();
    let mut options = LendOptions::new((vec![any], "phone".to_owned()), phone_key, pairs, usage);
    options.egress = loopback;
    let (lending, _events) = Lending::bind(options).unwrap();
    let address = lending.addresses()[0];
    tokio::task::spawn_local(lend_wrongly(lending, device, fault, up));

    let (client, mut events) =
        Client::new(ClientOptions::new(addresses, gateway_public, own)).unwrap();
    client.add_path(PathSpec::from_address("lo", [127, 0, 0, 1].into()));
    let lender =
        client.add_lender(Lender { name: "phone".to_owned(), address, key: phone, pairing: 0 });
    assert_eq!(lender.unwrap(), PathId(1));
    let policy = StreamPolicy {
        scheduler: SchedulerKind::Single,
        primary: Some(PathId(1)),
        ..StreamPolicy::default()
    };
    client.handle().with(|session| session.set_label(0, policy));
    let mut ups = 0;
    while ups < 2 {
        let event = events.recv().await.unwrap();
        assert!(matches!(event, ClientEvent::PathUp { .. }), "{event:?}");
        ups += 1;
    }

    let mut application = application(&client, echo().await).await;
    let sent: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    let (mut reader, mut writer) = application.split();
    let mut received = vec![0; sent.len()];
    let (written, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut received));
    written.unwrap();
    read.unwrap();
    assert!(received == sent, "{fault:?}: the bytes are wrong");
    // The lender may end the path before the report of the gateway comes.
    loop {
        let ClientEvent::PathDown { path, reason } = events.recv().await.unwrap() else { continue };
        assert_eq!(path, "phone");
        let line = reason.to_string();
        if line.ends_with("; it is not used for 30 s") {
            assert_eq!(line.starts_with("the gateway reports"), up, "{fault:?}: {line}");
            break;
        }
        assert!(up, "{fault:?}: {line}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_lender_that_does_not_pass_messages_on_as_they_are_is_not_used() {
    for (fault, up) in Fault::ALL.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let tasks = LocalSet::new();
        let ended = tasks.run_until(timeout(Duration::from_secs(30), deselects(fault, up))).await;
        assert!(ended.is_ok(), "{fault:?}, up {up}: it is still used");
    }
}
