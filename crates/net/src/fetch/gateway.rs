//! A server on this machine for players and other clients of HTTP: it fetches what they request over
//! all networks.
//!
//! A player gets a URL of the [`Gateway`] instead of that of a film. Each of its requests becomes a
//! transfer over all paths, whose bytes it receives in order and at its own pace; the URLs in DASH and
//! HLS manifests are replaced, so that all requests of the player come here. Between transfers,
//! connections are kept, and so are the rate and the round trip of each path: the configuration
//! MP-H2+BW/L of the paper, with the lengths of objects (+FS) where they are known ([`Learn`]).
//!
//! It is not a proxy: it reaches only the server of the user's URL, and those in manifests and
//! redirects of this session, which must have public addresses. It answers only with a secret in the
//! URL, and if the `Host` is its loopback address or `localhost`. It stores nothing, and sends no
//! header of the player to a server. A [`Client`] has one transfer at a time, so there are several,
//! which share what they learn.

mod ask;
mod content;
mod guard;
mod manifests;
mod mapping;
mod pool;
mod respond;
mod server;
#[cfg(test)]
mod tests;
mod transfers;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderValue, StatusCode};
use manyways_proto::fetch::MeteredUse;
use manyways_unit::Rate;
use tokio::net::TcpListener;

use super::location::{Location, LocationError, Origin};
use super::login::Login;
use super::report::{ClientError, Event, FetchError, Report};
use super::{Client, ClientBuilder};
#[doc(hidden)]
pub use ask::requested_part;
use guard::Guard;
pub use guard::MAX_ORIGINS;
use mapping::Mapping;
pub use mapping::Token;
#[doc(hidden)]
pub use mapping::Translation;
use pool::Pool;
pub use pool::{MAX_QUEUE_TIME, MAX_TRANSFERS};
pub use server::{MAX_CONNECTIONS, MAX_IDLE, MAX_REQUEST_FIELDS, MAX_REQUEST_HEAD};

/// Lengths of objects that a gateway remembers.
const MAX_SIZES: usize = 20_000;

/// Knowledge that later transfers get from earlier ones, for comparisons (MP-H2, §5.4). Connections are always
/// kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Learn {
    /// Nothing: MP-H2.
    None,
    /// The lengths of objects: MP-H2+FS.
    Size,
    /// Lengths, and the rate and round trip of each path: MP-H2+BW/L.
    #[default]
    All,
}

/// Pages that may read the responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedOrigin {
    /// Every page.
    Any,
    /// The pages of one origin, as browsers write it: `https://player.example`.
    Only(String),
}

/// Options of a [`Gateway`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Where it listens: a loopback address, and a port, or 0 for a free one.
    pub address: SocketAddr,
    /// URL of a folder or of a manifest. Its server is the only one that may have a private address.
    pub origin: Location,
    /// Sent to the origin only.
    pub login: Option<Login>,
    pub allowed_origins: Vec<AllowedOrigin>,
    pub learn: Learn,
    /// Limit for the metered paths of all transfers together.
    pub metered: MeteredUse,
}

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// Other machines could use it.
    #[error("{0} is not a loopback address, so other machines could use it")]
    NotLoopback(SocketAddr),
    /// The port is in use, or not permitted.
    #[error("{0} cannot be listened at: {why}", why = crate::path::plain(.1))]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system returns no random numbers.
    #[error("the system returns no random numbers for the secret in the URL")]
    NoRandomness,
}

/// An event of a gateway. Transfers may overlap; each has a number.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayEvent<'a> {
    /// A transfer begins.
    Begin { transfer: u64, url: &'a Location },
    /// An event of a transfer.
    Transfer { transfer: u64, event: &'a Event<'a> },
    /// A transfer has ended.
    End {
        transfer: u64,
        report: &'a Report,
        /// The latest estimated rate of each path that has one.
        rates: &'a [(String, Rate)],
        /// `None` also if the player did not want the rest.
        error: Option<&'a FetchError>,
    },
}

/// Receives the events of a gateway.
type Observer = dyn Fn(GatewayEvent<'_>) + Send + Sync;

/// A server that listens. [`Gateway::run`] answers.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    listener: TcpListener,
}

/// State of all connections.
struct Shared {
    address: SocketAddr,
    mapping: Mapping,
    guard: Arc<Guard>,
    pool: Arc<Pool>,
    learn: Learn,
    login: Option<Login>,
    allowed_origins: Vec<AllowedOrigin>,
    observer: Box<Observer>,
    /// Lengths of objects, by URL.
    sizes: Mutex<HashMap<String, u64>>,
    /// Servers that answer a range request with the whole object.
    without_ranges: Mutex<HashSet<Origin>>,
    requests: AtomicU64,
    refused: AtomicU64,
}

/// Counters of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests of players that were answered.
    pub requests: u64,
    /// Those whose answer has a status of 400 or more.
    pub refused: u64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}

impl AllowedOrigin {
    /// Parses an origin as in the header `Origin`, or `*`.
    ///
    /// # Errors
    /// Fails if it is not the scheme, host and port of an http or https URL.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let location = Location::parse(text)?;
        let origin = location.origin();
        Ok(Self::Only(format!("{}://{}", origin.scheme(), origin.authority())))
    }
}

impl Options {
    /// Creates options without pages, with everything that can be learned and without a limit for
    /// metered paths.
    pub fn new(address: SocketAddr, origin: Location) -> Self {
        Self {
            address,
            origin,
            login: None,
            allowed_origins: Vec::new(),
            learn: Learn::default(),
            metered: MeteredUse::Unlimited,
        }
    }
}

impl Gateway {
    /// Listens. `client` adds paths, trust, headers and the configuration to the builder of each
    /// client; the limit for metered paths and the permitted addresses are those of the gateway.
    /// `observer` receives all events, and must not block.
    ///
    /// # Errors
    /// [`GatewayError`] contains the cause.
    pub async fn bind(
        options: Options,
        client: impl Fn(ClientBuilder) -> ClientBuilder + Send + Sync + 'static,
        observer: impl Fn(GatewayEvent<'_>) + Send + Sync + 'static,
    ) -> Result<Self, GatewayError> {
        let Options { address, origin, login, allowed_origins, learn, metered } = options;
        if !address.ip().to_canonical().is_loopback() {
            return Err(GatewayError::NotLoopback(address));
        }
        let token = Token::generate().ok_or(GatewayError::NoRandomness)?;
        let guard = Arc::new(Guard::new(origin.origin().clone()));
        let make = {
            let guard = Arc::clone(&guard);
            move || -> Result<Client, ClientError> {
                let guard = Arc::clone(&guard);
                client(Client::builder())
                    .metered(metered)
                    .address_filter(move |origin, address| guard.permits_address(origin, address))
                    .build()
            }
        };
        let pool = Pool::new(Box::new(make), learn, metered, origin.origin())?;
        let failed = |error| GatewayError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            address,
            mapping: Mapping::new(token, origin),
            guard,
            pool: Arc::new(pool),
            learn,
            login,
            allowed_origins,
            observer: Box::new(observer),
            sizes: Mutex::default(),
            without_ranges: Mutex::default(),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        Ok(Self { shared, listener })
    }

    /// The URL for the player: the mapped URL of the origin.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.shared.address, self.shared.mapping.typed_path())
    }

    pub fn token(&self) -> &Token {
        self.shared.mapping.token()
    }

    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Answers requests until `stop` is ready; then all connections and transfers end.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Counters {
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            () = server::serve(Arc::clone(&shared), self.listener) => {}
            () = stop => {}
        }
        Counters {
            requests: shared.requests.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    fn report(&self, event: GatewayEvent<'_>) {
        (self.observer)(event);
    }

    fn count(&self, status: StatusCode) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let is_refused = status.is_client_error() || status.is_server_error();
        self.refused.fetch_add(u64::from(is_refused), Ordering::Relaxed);
    }

    /// The value of `Access-Control-Allow-Origin` for a page; `None` if it may not read.
    fn permitted_page(&self, page: &HeaderValue) -> Option<HeaderValue> {
        let is_any = self.allowed_origins.contains(&AllowedOrigin::Any);
        let is_allowed = self.allowed_origins.iter().any(
            |allowed| matches!(allowed, AllowedOrigin::Only(origin) if page == origin.as_str()),
        );
        match (is_any, is_allowed) {
            (true, _) => Some(HeaderValue::from_static("*")),
            (false, true) => Some(page.clone()),
            (false, false) => None,
        }
    }

    fn size_of(&self, url: &str) -> Option<u64> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).get(url).copied()
    }

    fn remember_size(&self, url: &str, size: u64) {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        // A session of days has other objects by now.
        if sizes.len() >= MAX_SIZES {
            sizes.clear();
        }
        sizes.insert(url.to_owned(), size);
    }

    fn ignores_ranges(&self, origin: &Origin) -> bool {
        self.without_ranges.lock().unwrap_or_else(PoisonError::into_inner).contains(origin)
    }

    fn note_ignored_ranges(&self, origin: &Origin) {
        let mut origins = self.without_ranges.lock().unwrap_or_else(PoisonError::into_inner);
        origins.insert(origin.clone());
    }
}
