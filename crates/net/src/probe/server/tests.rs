//! Clients and servers that misbehave.

use std::future::pending;
use std::os::fd::AsFd;
use std::sync::Arc;

use manyways_sys::interface;
use manyways_sys::socket::tcp_state;
use manyways_unit::{Size, Span};
use tokio::sync::Mutex as AsyncMutex;
use tokio_rustls::TlsConnector;

use super::*;
use crate::bond::client_tls;
use crate::probe::peer::client::ControlCost;
use crate::probe::peer::message::{BurstMessage, Direction};
use crate::probe::{Ending, Measurement, Network, Options, ProbeServer, Report, Tcp, Udp, measure};

/// The probes of these tests use one interface, and would wait for each other.
static LOOPBACK: AsyncMutex<()> = AsyncMutex::const_new(());

fn loopback() -> Network {
    let all = interface::list().unwrap();
    Network::new(all.into_iter().find(|one| one.name == "lo").unwrap())
}

/// A server that accepts the key of any client, and then does as the script of its name.
async fn hostile(script: &'static str) -> ProbeServer {
    let (key, own) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let tls = server_tls(&key, Arc::new(|_: &PublicKey| true), &[PROTOCOL]).unwrap();
    let acceptor = TlsAcceptor::from(tls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.port();
    let udp = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(datagrams(script, udp));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut start = [0; MAGIC.len()];
                if peek(&stream, &mut start).await.is_err() {
                    return;
                }
                if start == MAGIC {
                    data(script, stream).await;
                } else if let Ok(stream) = acceptor.accept(stream).await {
                    control(script, stream).await;
                }
            });
        }
    });
    ProbeServer { host: "127.0.0.1".to_owned(), port, key: key.public(), own_key: Arc::new(own) }
}

async fn data(script: &str, mut stream: TcpStream) {
    match script {
        "endless data" => while stream.write_all(&[0; 4_096]).await.is_ok() {},
        _ => pending().await,
    }
}

/// Answers the first datagram, which has the token.
async fn datagrams(script: &str, udp: UdpSocket) {
    let mut datagram = [0; 200];
    let Ok((length, from)) = udp.recv_from(&mut datagram).await else { return };
    let (token, ..) = Token::read_datagram(&datagram[..length]).unwrap();
    let mut numbers: Vec<(u64, u64)> = match script {
        "impossible numbers" => vec![(u64::MAX, 0), (u64::MAX - 1, 0), (20, 0), (1 << 50, 0)],
        "impossible times" => vec![(0, u64::MAX), (1, 0), (2, u64::MAX), (3, 1 << 63)],
        "endless datagrams" => vec![(0, 0); 100_000],
        _ => Vec::new(),
    };
    // The client waits for the last one.
    numbers.push((19, 0));
    for (sequence, nanos) in numbers {
        token.write_datagram(&mut datagram, sequence, nanos);
        if udp.send_to(&datagram, from).await.is_err() {
            return;
        }
    }
}

async fn control(script: &str, mut stream: TlsStream<TcpStream>) {
    let ready = encode(&Reply::Ready { token: Token::generate().unwrap() });
    let flood = |line: Vec<u8>| line.repeat(1_000);
    let (first, then) = match script {
        "garbage" => (b"\0\xff{]\n".to_vec(), Vec::new()),
        "endless line" => (vec![b' '; 4_096], vec![b' '; 4_096]),
        "samples" => {
            let sample =
                Reply::Sample { nanos: u64::MAX, rtt: Some(u64::MAX), cwnd: 1, retransmitted: 0 };
            (ready, flood(encode(&sample)))
        }
        "received" => {
            let received = Reply::Received { nanos: u64::MAX, bytes: u64::MAX };
            (ready, flood(encode(&received)))
        }
        "counts" => {
            let no = Some(u64::MAX);
            let burst = BurstMessage {
                received: u64::MAX,
                dropped: u64::MAX,
                duplicates: u64::MAX,
                reordered: u64::MAX,
                mean_gap: no,
                median_gap: no,
                p90_gap: no,
                median_variation: no,
                p90_variation: no,
                max_variation: no,
            };
            (ready, flood(encode(&Reply::Burst(burst))))
        }
        _ => (ready, Vec::new()),
    };
    if stream.write_all(&first).await.is_err() {
        return;
    }
    if then.is_empty() {
        pending::<()>().await;
    }
    while stream.write_all(&then).await.is_ok() {}
}

async fn probed(server: ProbeServer, direction: Direction) -> Report {
    let (duration, bytes) = (Span::from_millis(300), Size::from_bytes(2_000_000));
    let probe = Tcp { duration, bytes, ..Tcp::new(server, direction) };
    measure(&probe, &loopback(), &Options::default(), pending(), Arc::new(|_| {})).await.unwrap()
}

#[tokio::test]
async fn a_hostile_server_ends_no_client_and_exceeds_no_prediction() {
    let _alone = LOOPBACK.lock().await;
    for (script, direction) in [
        ("garbage", Direction::Down),
        ("endless line", Direction::Up),
        ("samples", Direction::Down),
        ("received", Direction::Up),
        ("endless data", Direction::Down),
        ("no data", Direction::Down),
    ] {
        let report = probed(hostile(script).await, direction).await;
        let (used, predicted) = (report.used, report.predicted);
        assert!(used.up <= predicted.up && used.down <= predicted.down, "{script}: {report:?}");
        let is_nonsense = !matches!(script, "endless data" | "no data");
        assert_eq!(matches!(report.ending, Ending::Failed(_)), is_nonsense, "{script}");
        if let (Some(Measurement::Tcp(tcp)), "received") = (&report.measurement, script) {
            // A server cannot have received more than was sent.
            assert!(tcp.bytes.as_bytes() <= 2_000_000, "{tcp:?}");
        }
    }
}

#[tokio::test]
async fn a_hostile_server_of_bursts_ends_no_client_and_exceeds_no_prediction() {
    let _alone = LOOPBACK.lock().await;
    for (script, direction, received) in [
        ("counts", Direction::Up, Some(20)),
        ("impossible numbers", Direction::Down, Some(1)),
        ("impossible times", Direction::Down, Some(5)),
        ("endless datagrams", Direction::Down, None),
        ("garbage", Direction::Up, None),
    ] {
        let probe = Udp { packets: 20, ..Udp::new(hostile(script).await, direction) };
        let network = loopback();
        let options = Options::default();
        let measured = measure(&probe, &network, &options, pending(), Arc::new(|_| {}));
        let report = measured.await.unwrap();
        let (used, predicted) = (report.used, report.predicted);
        assert!(used.up <= predicted.up && used.down <= predicted.down, "{script}: {report:?}");
        let ending = match script {
            "endless datagrams" => matches!(report.ending, Ending::Limit(_)),
            "garbage" => matches!(report.ending, Ending::Failed(_)),
            _ => matches!(report.ending, Ending::Complete),
        };
        assert!(ending, "{script}: {report:?}");
        let Some(received) = received else { continue };
        let Some(Measurement::Udp(udp)) = &report.measurement else { panic!("{report:?}") };
        let summary = &udp.summary;
        assert_eq!((summary.sent, summary.received), (20, received), "{script}");
        assert!(summary.duplicates <= 20 && summary.reordered <= 20, "{script}: {summary:?}");
    }
}

/// A real server on loopback, and a client that it knows.
async fn server(limits: ServerLimits) -> (ProbeServer, tempfile::TempDir) {
    let (key, own) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("allow");
    std::fs::write(&path, format!("{} client\n", own.public())).unwrap();
    let public = key.public();
    let allow = AllowFile::open(&path).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(ServerOptions { listen, key, allow, limits }).await.unwrap();
    let port = server.local_addr().unwrap().port();
    tokio::spawn(server.run(pending()));
    let host = "127.0.0.1".to_owned();
    (ProbeServer { host, port, key: public, own_key: Arc::new(own) }, folder)
}

/// A control connection of the client.
async fn connect(server: &ProbeServer) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await.unwrap();
    let tls = client_tls(&server.own_key, server.key, PROTOCOL).unwrap();
    let name = std::net::IpAddr::from([127, 0, 0, 1]).into();
    TlsConnector::from(tls).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn a_hostile_client_disturbs_no_other() {
    let _alone = LOOPBACK.lock().await;
    let (server, _folder) = server(ServerLimits::default()).await;
    let order = |text: &[u8]| text.to_vec();
    let tcp = encode(&Order::Tcp { direction: Direction::Down, bytes: u64::MAX, millis: u64::MAX });
    let udp = Order::Udp { direction: Direction::Up, packets: u64::MAX, size: 65_535, rate: 1 };
    let lines: [Vec<u8>; 5] = [
        order(b"\xff\xfe{}\n"),
        vec![b'['; 100_000],
        encode(&Order::Stop).repeat(10_000),
        tcp.repeat(100),
        encode(&udp).repeat(100),
    ];
    let mut open = Vec::new();
    for line in lines {
        let mut stream = connect(&server).await;
        // The server may have closed it.
        let _ = timeout(Duration::from_secs(5), stream.write_all(&line)).await;
        open.push(stream);
    }
    // One that takes a measurement and disappears.
    let mut gone = connect(&server).await;
    let order = Order::Tcp { direction: Direction::Up, bytes: 1, millis: 1_000 };
    gone.write_all(&encode(&order)).await.unwrap();
    let mut lines = LineReader::new(gone);
    assert!(matches!(lines.next().await.unwrap(), Some(Reply::Ready { .. })));
    drop(lines);
    let probe = Udp { packets: 20, ..Udp::new(server, Direction::Down) };
    let options = Options::default();
    let report = measure(&probe, &loopback(), &options, pending(), Arc::new(|_| {})).await.unwrap();
    let Some(Measurement::Udp(udp)) = &report.measurement else { panic!("{report:?}") };
    assert_eq!((udp.summary.sent, udp.summary.received), (20, 20));
}

#[tokio::test]
async fn a_control_connection_costs_less_than_it_reserves() {
    let _alone = LOOPBACK.lock().await;
    let (server, _folder) = server(ServerLimits::default()).await;
    let mut stream = connect(&server).await;
    let order = Order::Tcp { direction: Direction::Down, bytes: 1 << 30, millis: 2_000 };
    stream.write_all(&encode(&order)).await.unwrap();
    let socket = stream.get_ref().0.as_fd().try_clone_to_owned().unwrap();
    let mut lines = LineReader::new(stream);
    assert!(matches!(lines.next().await.unwrap(), Some(Reply::Ready { .. })));
    let used = tcp_state(socket.as_fd()).unwrap();
    let (up, down) = (used.bytes_sent.as_bytes(), used.bytes_received.as_bytes());
    assert!(up <= ControlCost::HANDSHAKE && down <= ControlCost::HANDSHAKE, "{up} {down}");
    let whole = Reply::Sample {
        nanos: u64::MAX,
        rtt: Some(u64::MAX),
        cwnd: u32::MAX,
        retransmitted: u32::MAX,
    };
    assert!(encode(&whole).len() as u64 + 22 <= ControlCost::MESSAGE);
}

#[tokio::test]
async fn datagrams_with_impossible_numbers_are_not_counted() {
    let _alone = LOOPBACK.lock().await;
    let (server, _folder) = server(ServerLimits::default()).await;
    let mut stream = connect(&server).await;
    let order = Order::Udp { direction: Direction::Up, packets: 2, size: 64, rate: 1_000_000 };
    stream.write_all(&encode(&order)).await.unwrap();
    let mut lines = LineReader::new(stream);
    let Some(Reply::Ready { token }) = lines.next().await.unwrap() else { panic!("no token") };
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect((server.host.as_str(), server.port)).await.unwrap();
    let mut datagram = [0; 64];
    for (sequence, nanos) in [(u64::MAX, u64::MAX), (2, 0), (0, u64::MAX), (1, 0)] {
        token.write_datagram(&mut datagram, sequence, nanos);
        socket.send(&datagram).await.unwrap();
    }
    let Some(Reply::Burst(burst)) = lines.next().await.unwrap() else { panic!("no summary") };
    assert_eq!((burst.received, burst.duplicates), (2, 0));
}

/// Datagrams go only to addresses that sent a token, and a token ends with its measurement.
#[tokio::test]
async fn an_unknown_token_has_no_answer_and_a_known_one_as_many_as_ordered() {
    let _alone = LOOPBACK.lock().await;
    let (server, _folder) = server(ServerLimits::default()).await;
    let mut stream = connect(&server).await;
    let order = Order::Echo { packets: 2, size: 64, millis: 2_000 };
    stream.write_all(&encode(&order)).await.unwrap();
    let mut lines = LineReader::new(stream);
    let Some(Reply::Ready { token }) = lines.next().await.unwrap() else { panic!("no token") };
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect((server.host.as_str(), server.port)).await.unwrap();
    let mut datagram = [0; 64];
    Token::generate().unwrap().write_datagram(&mut datagram, 7, 0);
    socket.send(&datagram).await.unwrap();
    for sequence in 0..4 {
        token.write_datagram(&mut datagram, sequence, 0);
        socket.send(&datagram).await.unwrap();
    }
    // The end of the measurement comes after all answers.
    let Some(Reply::Ended { sent, received }) = lines.next().await.unwrap() else { panic!() };
    assert_eq!((sent, received), (128, 128));
    let mut numbers = Vec::new();
    while let Ok(length) = socket.try_recv(&mut datagram) {
        numbers.push(Token::read_datagram(&datagram[..length]).unwrap().1);
    }
    assert_eq!(numbers, [0, 1]);
}
