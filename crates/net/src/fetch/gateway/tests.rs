//! Gateways between a player of the test and a scripted server, on loopback. The server's port is the
//! user's origin, so its address may be private.

mod manifests;
mod objects;
mod player;
mod refusals;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use manyways_unit::Span;
use tokio::sync::watch;

use super::super::tests::server::{ReceivedRequest, Reply, Server};
use super::super::{Config, Location, PathSpec};
use super::{AllowedOrigin, Gateway, GatewayEvent, Learn, Options};
use player::Player;

const ETAG: &str = "\"one\"";

/// A gateway that runs as long as the runtime of the test.
struct Running {
    server: Server,
    address: SocketAddr,
    /// The path of the origin, with the token.
    root: String,
    ended: watch::Receiver<Vec<Ended>>,
}

/// A transfer that has ended.
#[derive(Clone, Debug)]
struct Ended {
    bytes: u64,
    /// Bytes of each path.
    paths: Vec<u64>,
    error: Option<String>,
}

/// Options of a test.
struct Setup {
    learn: Learn,
    allowed: Vec<AllowedOrigin>,
    headers: Vec<&'static str>,
    config: Config,
}

impl Default for Setup {
    fn default() -> Self {
        let config = Config {
            stall_timeout: Span::from_millis(200),
            last_path_stall_timeout: Span::from_millis(400),
            first_backoff: Span::from_millis(1),
            max_attempts: 3,
            read_ahead: Some(500_000),
            ..Config::default()
        };
        Self { learn: Learn::All, allowed: Vec::new(), headers: Vec::new(), config }
    }
}

/// Path `n` has the source address 127.0.0.n.
fn path(n: u8) -> PathSpec {
    PathSpec::from_address(format!("path {n}"), IpAddr::from([127, 0, 0, n]))
}

impl Running {
    async fn start(script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(Setup::default(), "/films/", script).await
    }

    async fn with(
        setup: Setup,
        target: &str,
        script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let server = Server::start(script).await;
        let origin = Location::parse(&server.url(target)).unwrap();
        let mut options = Options::new(SocketAddr::from(([127, 0, 0, 1], 0)), origin);
        (options.learn, options.allowed_origins) = (setup.learn, setup.allowed);
        let (sender, ended) = watch::channel(Vec::new());
        let (headers, config) = (setup.headers, setup.config);
        let client = move |builder: super::ClientBuilder| {
            let builder = builder.paths([path(1), path(2)]).config(config.clone());
            headers.iter().fold(builder, |builder, line| builder.header(*line))
        };
        let observer = move |event: GatewayEvent<'_>| {
            if let GatewayEvent::End { report, error, .. } = event {
                let paths = report.paths.iter().map(|path| path.bytes.as_bytes()).collect();
                let error = error.map(ToString::to_string);
                let ended = Ended { bytes: report.bytes.as_bytes(), paths, error };
                sender.send_modify(|all| all.push(ended));
            }
        };
        let gateway = Gateway::bind(options, client, observer).await.unwrap();
        let (address, url) = (gateway.address(), gateway.url());
        let root = url.strip_prefix(&format!("http://{address}")).unwrap().to_owned();
        tokio::spawn(gateway.run(std::future::pending()));
        Self { server, address, root, ended }
    }

    async fn player(&self) -> Player {
        Player::connect(self.address).await
    }

    /// Waits for the end of `count` transfers.
    async fn ended(&self, count: usize) -> Vec<Ended> {
        let mut ended = self.ended.clone();
        ended.wait_for(|ended| ended.len() >= count).await.unwrap().clone()
    }
}

/// Bytes that differ by offset.
fn object(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A server with one object, whose first response waits after 100 KB for a request of another path.
fn shared_object(object: &[u8]) -> impl Fn(&ReceivedRequest) -> Reply + Send + Sync + use<> {
    use super::super::tests::server::correct_reply;
    let (object, gate) = (object.to_vec(), Arc::new(tokio::sync::Semaphore::new(0)));
    move |request| {
        let length = object.len();
        if request.range.is_some_and(|(start, _)| start >= length as u64) {
            return Reply::plain(416, &[("content-range", &format!("bytes */{length}"))], b"");
        }
        let mut reply = correct_reply(request, &object, ETAG);
        reply.set("content-type", "video/mp4");
        if request.from == IpAddr::from([127, 0, 0, 1]) && request.index == 0 {
            reply.gate = Some((100_000, Arc::clone(&gate)));
        } else if request.from == IpAddr::from([127, 0, 0, 2]) {
            gate.add_permits(1);
        }
        reply
    }
}

/// The requests that a script has seen, if it decides by their order.
type Count = Arc<Mutex<usize>>;
