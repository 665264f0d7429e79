//! Lenders that do not pass messages on as they are: client, lender and gateway in one process, over
//! loopback.

use std::time::Duration;

use bytes::Bytes;
use manyways_proto::mux::Destination;
use manyways_proto::relay::{Class, Frame};
use manyways_proto::sched::{PathId, SchedulerKind, StreamPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpListener;
use tokio::sync::Notify;
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
    let listener = lending.0.ports.take().remove(0).listener;
    let (stream, _) = listener.accept().await.unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(&lending.0.tls));
    let (stream, tls) = acceptor.accept(stream).await.unwrap().into_inner();
    let mut pipe = CarrierIo::Tcp(Box::new(TcpCarrier::new(stream, Connection::Server(tls))));
    let (mut far, _) = lending.join(&device, &mut pipe, None).await.unwrap();
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

/// A client that borrows, a lender that does not run yet, and a gateway.
struct Borrowed {
    lending: Lending,
    lend_events: mpsc::UnboundedReceiver<LendEvent>,
    /// The client, as the lender knows it.
    device: PairedDevice,
    client: Client,
    events: mpsc::UnboundedReceiver<ClientEvent>,
    gateway: SocketAddr,
    phone: PublicKey,
    _folder: tempfile::TempDir,
}

impl Borrowed {
    /// `change` changes the options of the lender, and the address at which it dials the gateway.
    fn new(change: impl FnOnce(&mut LendOptions, &mut SocketAddr)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [own, gateway_key, phone_key] = [(); 3].map(|()| PrivateKey::generate().unwrap());
        let allow = folder.path().join("allow");
        std::fs::write(&allow, format!("{} laptop\n", own.public())).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let loopback = EgressFilter::new(vec!["127.0.0.0/8".parse().unwrap()]);
        let gateway_public = gateway_key.public();
        let mut options =
            GatewayOptions::new(vec![any], gateway_key, AllowFile::open(&allow).unwrap());
        options.egress = loopback.clone();
        let gateway = Gateway::bind(options).unwrap();
        let addresses = gateway.addresses();
        tokio::task::spawn_local(gateway.run(pending()));

        let (pairs, usage) = (PairFile::borrowers(folder.path()), UsageFile::named(None, "usage"));
        let phone = phone_key.public();
        let mut options =
            LendOptions::new((vec![any], "phone".to_owned()), phone_key, pairs.clone(), usage);
        options.egress = loopback;
        let (gateway, mut dialled) = (addresses[0], addresses[0]);
        change(&mut options, &mut dialled);
        let role = PairedRole::Borrower { gateway: vec![dialled], gateway_key: gateway_public };
        let device = PairedDevice { name: "laptop".to_owned(), key: own.public(), role };
        pairs.add(device.clone()).unwrap();
        let (lending, lend_events) = Lending::bind(options).unwrap();
        let (client, events) =
            Client::new(ClientOptions::new(addresses, gateway_public, own)).unwrap();
        Self { lending, lend_events, device, client, events, gateway, phone, _folder: folder }
    }

    /// Adds the paths of the client: its own one, and that over the lender.
    fn borrow(&self) {
        self.client.add_path(PathSpec::from_address("lo", [127, 0, 0, 1].into()));
        let (name, address) = ("phone".to_owned(), self.lending.addresses()[0]);
        let lender = Lender { name, address, key: self.phone, pairing: 0 };
        assert_eq!(self.client.add_lender(lender).unwrap(), PathId(1));
    }
}

async fn deselects(fault: Fault, up: bool) {
    let borrowed = Borrowed::new(|_, _| {});
    borrowed.borrow();
    let Borrowed { lending, device, client, mut events, _folder, .. } = borrowed;
    tokio::task::spawn_local(lend_wrongly(lending, device, fault, up));
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

macro_rules! local {
    ($body:expr) => {
        LocalSet::new().run_until(timeout(Duration::from_secs(30), async { $body })).await.unwrap()
    };
}

#[tokio::test(flavor = "current_thread")]
async fn a_lender_that_stops_while_it_connects_does_not_lend() {
    local!({
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = listener.local_addr().unwrap();
        let mut borrowed = Borrowed::new(|_, dialled| *dialled = relay);
        borrowed.borrow();
        let stop = Rc::new(Notify::new());
        let (lending, gateway) = (borrowed.lending.clone(), borrowed.gateway);
        let (stopping, to_stop) = (lending.clone(), Rc::clone(&stop));
        tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            to_stop.notify_one();
            while !stopping.is_closed() {
                tokio::task::yield_now().await;
            }
            let mut far = TcpStream::connect(gateway).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
        });
        lending.run(stop.notified(), pending()).await;
        loop {
            match borrowed.events.recv().await.unwrap() {
                ClientEvent::PathFailed { path, reason } if path == "phone" => {
                    let reason = reason.to_string();
                    assert!(reason.contains("stopped to lend"), "{reason}");
                    break;
                }
                ClientEvent::PathUp { path, .. } => assert_eq!(path, "lo"),
                _ => {}
            }
        }
        assert_eq!(lending.status(), []);
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_ticket_is_for_one_connection_to_the_gateway() {
    local!({
        let borrowed = Borrowed::new(|_, _| {});
        borrowed.borrow();
        let Borrowed { lending, device, .. } = &borrowed;
        let listener = lending.0.ports.take().remove(0).listener;
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(Arc::clone(&lending.0.tls));
        let (stream, tls) = acceptor.accept(stream).await.unwrap().into_inner();
        let mut pipe = CarrierIo::Tcp(Box::new(TcpCarrier::new(stream, Connection::Server(tls))));
        let messages = pipe.messages().await.unwrap();
        let Some(Message::Loan(LoanMessage::Join { ticket, .. })) = messages.first() else {
            panic!("{messages:?}")
        };
        let first = lending.connect(device, *ticket, None).await;
        let (carrier, _) = first.map_err(|error| panic!("{error}")).unwrap();
        assert!(lending.bytes() > 200, "the handshake counts");
        assert!(lending.connect(device, *ticket, None).await.is_err());
        drop(carrier);
        assert!(lending.connect(device, *ticket, None).await.is_err());
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_network_that_accepts_connections_and_stays_silent_is_named_in_time() {
    local!({
        let captive = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = captive.local_addr().unwrap();
        let Borrowed { lending, device, .. } = &Borrowed::new(|_, dialled| *dialled = address);
        let began = Instant::now();
        let connected = lending.connect(device, TicketId([0; 16]), None).await;
        assert_eq!(
            connected.err().as_deref(),
            Some("the gateway does not answer over the lent network")
        );
        let client_waits = manyways_proto::bond::dial::Config::default().lender_timeout;
        assert!(began.elapsed() < Duration::from(client_waits));
        assert!(lending.bytes() > 100, "the attempt counts: {}", lending.bytes());
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_private_gateway_is_dialled_only_if_it_is_permitted() {
    local!({
        let Borrowed { lending, device, .. } =
            &Borrowed::new(|options, _| options.egress = EgressFilter::default());
        let refused = lending.connect(device, TicketId([0; 16]), None).await.err().unwrap();
        assert!(refused.contains("--permit"), "{refused}");
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_monthly_limit_begins_again_with_the_month() {
    local!({
        let limit = LendLimit { size: Size::from_bytes(1_000), monthly: true };
        let mut borrowed = Borrowed::new(|options, _| options.limit = Some(limit));
        let lending = &borrowed.lending;
        for (used, is_closed) in [(999, false), (1_000, true), (5_000, true), (0, false)] {
            lending.review_limit(Size::from_bytes(used));
            assert_eq!(lending.is_closed(), is_closed, "{used}");
        }
        let events = [(); 2].map(|()| borrowed.lend_events.try_recv().unwrap());
        assert!(matches!(events, [LendEvent::LimitReached(_), LendEvent::LendsAgain]));
        assert!(borrowed.lend_events.try_recv().is_err());
    });
}

#[tokio::test(flavor = "current_thread")]
async fn strangers_that_prove_nothing_keep_no_device_from_pairing() {
    local!({
        let borrowed = Borrowed::new(|_, _| {});
        let Borrowed { lending, device, phone, gateway, .. } = &borrowed;
        let (code, address) = (lending.show_code().unwrap(), lending.addresses()[0]);
        let running = lending.clone();
        tokio::task::spawn_local(async move { running.run(pending(), pending()).await });
        // More than wait at once, and all of them stay silent.
        let mut silent = Vec::new();
        for _ in 0..MAX_HANDSHAKES + 8 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        // More than the code has guesses, and each hangs up before its proof.
        let stranger = PrivateKey::generate().unwrap();
        let tls = tls::client(&stranger, *phone, tls::PAIR_PROTOCOL).unwrap();
        let mut hanging = Vec::new();
        for _ in 0..MAX_PAIRINGS + 4 {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from(SERVER_NAME).unwrap();
            let connected = TlsConnector::from(Arc::clone(&tls)).connect(name, stream).await;
            let mut connected = connected.unwrap();
            let _ = connected.shutdown().await;
            hanging.push(connected);
        }
        let PairedRole::Borrower { gateway_key, .. } = device.role.clone() else { panic!() };
        let to = (gateway_key, vec![*gateway]);
        // Another device has this name; the code is valid for a second attempt.
        let taken = pair(address, &code, (&stranger, "laptop"), to.clone()).await;
        assert!(matches!(taken, Err(PairError::NameTaken)), "{taken:?}");
        assert_eq!(lending.devices(), ["laptop"]);
        assert!(lending.access(|access| access.devices[0].key == device.key));
        pair(address, &code, (&stranger, "tablet"), to).await.unwrap();
        assert_eq!(lending.devices(), ["laptop", "tablet"]);
    });
}

#[tokio::test(flavor = "current_thread")]
async fn guesses_of_several_devices_at_once_are_three_together() {
    local!({
        let borrowed = Borrowed::new(|_, _| {});
        let Borrowed { lending, device, gateway, .. } = &borrowed;
        let code = lending.show_code().unwrap();
        let wrong = format!("{:06}", (code.parse::<u32>().unwrap() + 1) % 1_000_000);
        let address = lending.addresses()[0];
        let running = lending.clone();
        tokio::task::spawn_local(async move { running.run(pending(), pending()).await });
        let PairedRole::Borrower { gateway_key, .. } = device.role.clone() else { panic!() };
        let keys = [(); 6].map(|()| PrivateKey::generate().unwrap());
        let guess = |digits: String, key: usize| {
            let (key, to) = (&keys[key], (gateway_key, vec![*gateway]));
            async move { pair(address, &digits, (key, "guesser"), to).await }
        };
        let results = tokio::join!(
            guess(wrong.clone(), 0),
            guess(wrong.clone(), 1),
            guess(wrong.clone(), 2),
            guess(wrong.clone(), 3),
            guess(wrong.clone(), 4),
        );
        let results = [results.0, results.1, results.2, results.3, results.4];
        assert!(results.iter().all(Result::is_err));
        let spent = results.iter().filter(|result| {
            matches!(result, Err(PairError::Refused(why)) if why.contains("the code is wrong")
                || why.contains("wrong 3 times"))
        });
        assert!(spent.count() >= 3, "{results:?}");
        assert!(guess(code, 5).await.is_err(), "no guess is left");
        assert_eq!(lending.devices(), ["laptop"]);
    });
}
