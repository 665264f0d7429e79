//! Downloads over several networks at once: `proto::fetch` decides, this module does the I/O.
//!
//! A [`Client`] has one connection per path and keeps it for the next object of the same server. A
//! [`Job`] describes one object and its output file. Bytes of several responses are combined only
//! if the server proves that they belong to the same object. A file gets its name only when it is
//! complete.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use manyways_net::fetch::{Client, Event, Job, PathSpec};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // One path per usable network of this host.
//! let paths = manyways_sys::interface::list()?;
//! let paths = paths.iter().filter(|network| network.usable.is_ok()).map(PathSpec::from_interface);
//! let mut client = Client::builder().paths(paths).build()?;
//! let job = Job::new("https://www.example.com/film.mp4", "film.mp4")?;
//! let report = client
//!     .fetch(
//!         &job,
//!         &mut |event| {
//!             if let Event::Progress(progress) = event {
//!                 println!("{} so far", progress.done);
//!             }
//!         },
//!         std::future::pending(),
//!     )
//!     .await?;
//! for path in &report.paths {
//!     println!("{}: {} at {}", path.name, path.bytes, path.rate);
//! }
//! # Ok(())
//! # }
//! ```

mod advice;
mod dial;
mod digest;
mod discarded;
mod event;
mod exchange;
mod existing_file;
#[cfg(feature = "gateway")]
pub mod gateway;
mod interface_watch;
mod journal;
pub(crate) mod learned;
mod location;
mod login;
mod netrc;
mod path_estimates;
mod path_selection;
mod report;
mod resume;
mod sink;
#[cfg(test)]
mod tests;
mod transfer;
mod warm;
mod worker;

use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use manyways_proto::estimate::PathEstimate;
use manyways_proto::fetch::PathId;
pub use manyways_proto::fetch::{
    Config, CutMethod, Excerpt, FetchFailure, MeteredUse, RefusedStart, Scheduler, ValidatorKind,
    VersionProof,
};
use manyways_unit::{Size, Span};
use tokio::sync::mpsc;

use advice::PathAdvisor;
pub use advice::{AdviceRequest, NoAdvice};
use dial::AddressFilter;
pub use dial::Protocol;
pub use digest::parse as parse_digest;
use discarded::DiscardedBytes;
pub use event::{PathSample, PingMethod, RequestOutcome, TransferEvent};
pub use existing_file::{ExistingFile, ExistingFileError};
use interface_watch::{PathLister, Watch};
pub use location::{Location, LocationError, Origin, escape_bytes};
pub use login::{Login, UserInfo};
pub use netrc::{Netrc, NetrcError};
pub use path_estimates::{EstimateCache, Network, StoredEstimate};
pub use path_selection::{NameServers, PathSelection, SelectionError, SelectionOptions};
pub use report::{
    Cause, ClientError, Event, FetchError, PartFile, PathProgress, PathReport, Progress, Report,
    ResponseHead,
};
pub use resume::{ResumeError, ResumeState};
pub use sink::{Body, SinkError};
use transfer::Destination;
use worker::{Command, Worker};

use crate::path::{FirstAnswers, SharedAddresses, tls};
pub use crate::path::{HostResolver, Lookup, LookupError, Names, PathSpec, Trust, TrustError};

/// Default of [`Config::read_ahead`] for a [`Body`]: requested bytes past the ones that were read.
pub const READ_AHEAD: Size = Size::from_mib(16);
/// Headers that are sent only to the origin of the job's URL.
const PRIVATE_HEADERS: [HeaderName; 3] =
    [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];
/// Headers that a fetch sets itself.
const RESERVED_HEADERS: [HeaderName; 8] = [
    header::RANGE,
    header::IF_RANGE,
    header::ACCEPT_ENCODING,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
];

/// Fetches objects over several paths, with one connection per path.
#[derive(Debug)]
pub struct Client {
    paths: Vec<Arc<PathSpec>>,
    workers: Vec<mpsc::UnboundedSender<Command>>,
    /// Received bytes that each path discarded.
    discarded: Vec<DiscardedBytes>,
    headers: Arc<HeaderMap>,
    /// Private headers of all jobs.
    common_private_headers: Arc<HeaderMap>,
    /// Private headers of the current job.
    private_headers: Arc<HeaderMap>,
    metered: MeteredUse,
    metered_used: Size,
    config: Config,
    records: bool,
    worker_config: WorkerConfig,
    /// Whether servers must prove their identity.
    verifies_servers: bool,
    path_lister: Option<PathLister>,
    path_advisor: Option<PathAdvisor>,
}

/// Parameters of all workers.
#[derive(Clone, Debug)]
struct WorkerConfig {
    tls: Arc<rustls::ClientConfig>,
    prior_knowledge: bool,
    /// Whether all paths use the name servers of the first path.
    shares_resolver: bool,
    shared_addresses: SharedAddresses,
    address_filter: AddressFilter,
}

/// Configuration of a [`Client`], from [`Client::builder`].
#[derive(Debug, Default)]
pub struct ClientBuilder {
    paths: Vec<PathSpec>,
    trust: Trust,
    headers: Vec<String>,
    metered: Option<MeteredUse>,
    config: Config,
    records: bool,
    single_server: bool,
    prior_knowledge: bool,
    path_lister: Option<PathLister>,
    path_advisor: Option<PathAdvisor>,
    address_filter: AddressFilter,
}

/// One object and its output file.
#[derive(Clone, Debug)]
pub struct Job {
    location: Location,
    output: PathBuf,
    resume: bool,
    checksum: Checksum,
    size: Option<Size>,
    excerpt: Option<Excerpt>,
    login: Option<Login>,
    is_foreign: bool,
}

/// Treatment of an object's SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Not computed.
    #[default]
    None,
    /// Computed and reported.
    Report,
    /// Computed and reported; the fetch fails if it differs from this value.
    Check([u8; 32]),
}

impl Client {
    /// Returns a builder with the system's trust, MP-H2, and no limit on metered paths.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Fetches one object and reports events to `on_event`. If `stop` is ready first, the transfer
    /// ends with [`Cause::Stopped`] and leaves a part file that a later run can continue.
    ///
    /// If the future is dropped instead, the part file is left as after a kill of the process.
    ///
    /// # Errors
    /// [`FetchError`] contains the cause and the state of the part file.
    pub async fn fetch(
        &mut self,
        job: &Job,
        on_event: &mut (dyn FnMut(Event<'_>) + Send),
        stop: impl Future<Output = ()>,
    ) -> Result<Report, FetchError> {
        self.run_transfer(job, Destination::File, on_event, stop).await
    }

    /// Fetches one object for a caller that reads it in order while it arrives. The job's file is
    /// not touched, nothing is kept for a later run, and a checksum is compared only after all
    /// bytes were read.
    ///
    /// The returned future does the transfer and must be awaited concurrently with the reading:
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use manyways_net::fetch::{Client, Job, PathSpec};
    ///
    /// let paths = manyways_sys::interface::list()?;
    /// let usable = paths.iter().filter(|network| network.usable.is_ok());
    /// let paths = usable.map(PathSpec::from_interface);
    /// let mut client = Client::builder().paths(paths).build()?;
    /// let job = Job::new("https://www.example.com/film.mp4", "")?;
    /// let mut ignore = |_: manyways_net::fetch::Event<'_>| {};
    /// let (mut body, transfer) = client.stream(&job, &mut ignore, std::future::pending());
    /// let read = async {
    ///     let mut bytes = 0;
    ///     while let Some(piece) = body.next().await {
    ///         bytes += piece.len();
    ///     }
    ///     bytes
    /// };
    /// let (report, bytes) = tokio::join!(transfer, read);
    /// println!("{bytes} bytes, {}", report?.elapsed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The memory is bounded: at most [`READ_AHEAD`], plus the bytes that were in flight at that
    /// point, wait for the reader. If the [`Body`] is dropped, the transfer ends with
    /// [`SinkError::ReaderClosed`].
    pub fn stream<'a>(
        &'a mut self,
        job: &'a Job,
        on_event: &'a mut (dyn FnMut(Event<'_>) + Send),
        stop: impl Future<Output = ()> + 'a,
    ) -> (Body, impl Future<Output = Result<Report, FetchError>> + 'a) {
        let (to, body) = Destination::reader();
        (body, self.run_transfer(job, to, on_event, stop))
    }

    async fn run_transfer(
        &mut self,
        job: &Job,
        to: Destination,
        on_event: &mut (dyn FnMut(Event<'_>) + Send),
        stop: impl Future<Output = ()>,
    ) -> Result<Report, FetchError> {
        self.private_headers = self.private_headers_for(job);
        let outcome = transfer::run(self, job, to, on_event, stop).await;
        let report = match &outcome {
            Ok(report) => report,
            Err(error) => &error.report,
        };
        self.metered_used += report.metered;
        outcome
    }

    /// Sets the estimates with which the paths begin the next transfer, by name; `None` if a path has
    /// none.
    pub fn set_estimates(&mut self, estimate: impl Fn(&str) -> Option<PathEstimate>) {
        for path in &mut self.paths {
            let estimate = estimate(&path.name);
            if path.estimate != estimate {
                Arc::make_mut(path).estimate = estimate;
            }
        }
    }

    /// Limits the bytes of metered paths from now on, over all later jobs.
    pub fn set_metered(&mut self, allowance: MeteredUse) {
        (self.metered, self.metered_used) = (allowance, Size::ZERO);
    }

    /// Adds a path, for this transfer and later ones.
    fn add_path(&mut self, spec: PathSpec) {
        let id = PathId(self.paths.len());
        let (path, discarded) =
            (Arc::new(self.with_shared_resolver(id.0, spec)), DiscardedBytes::default());
        let worker = Worker::spawn(id, Arc::clone(&path), discarded.clone(), &self.worker_config);
        self.paths.push(path);
        self.discarded.push(discarded);
        self.workers.push(worker);
    }

    /// Replaces the properties of a path. Returns them for its worker, or `None` for an unknown
    /// path.
    fn update_path(&mut self, id: usize, spec: PathSpec) -> Option<Arc<PathSpec>> {
        let spec = Arc::new(self.with_shared_resolver(id, spec));
        let path = self.paths.get_mut(id)?;
        *path = Arc::clone(&spec);
        Some(spec)
    }

    /// Uses the names of the first path if all paths must connect to one server.
    fn with_shared_resolver(&self, id: usize, spec: PathSpec) -> PathSpec {
        match self.paths.first() {
            Some(first) if self.worker_config.shares_resolver && id > 0 => {
                let answers = self.worker_config.shared_addresses.clone();
                let names = FirstAnswers { names: Arc::clone(&first.resolver), answers };
                PathSpec { resolver: Arc::new(names), ..spec }
            }
            _ => spec,
        }
    }

    /// A configured `Authorization` header takes precedence over a login.
    fn private_headers_for(&self, job: &Job) -> Arc<HeaderMap> {
        if job.is_foreign {
            return Arc::default();
        }
        let login = job.login.as_ref().and_then(Login::header);
        match login.filter(|_| !self.common_private_headers.contains_key(header::AUTHORIZATION)) {
            Some(value) => {
                let mut secrets = HeaderMap::clone(&self.common_private_headers);
                secrets.insert(header::AUTHORIZATION, value);
                Arc::new(secrets)
            }
            None => Arc::clone(&self.common_private_headers),
        }
    }
}

impl ClientBuilder {
    /// Adds paths. The first request prefers paths that are not metered.
    pub fn paths(mut self, paths: impl IntoIterator<Item = PathSpec>) -> Self {
        self.paths.extend(paths);
        self
    }

    /// Sets a callback that lists the current paths, about once per second during a transfer. A
    /// path with a new name joins the transfer, and a missing path is not used until it returns. If
    /// the callback returns `None`, nothing changes. It may block. Paths without a device never
    /// change.
    pub fn path_lister(
        mut self,
        look: impl Fn() -> Option<Vec<PathSpec>> + Send + Sync + 'static,
    ) -> Self {
        let look: Arc<Watch> = Arc::new(look);
        self.path_lister = Some(PathLister(look));
        self
    }

    /// Sets a callback that advises which paths to use: before the first request, when the length is
    /// known, and every two seconds during a transfer. A path that is no longer advised is left when an
    /// advised one has delivered bytes. Without advice before the first request all paths are used, and
    /// later those in use stay. `ask` may block; the first request waits for it for `limit` at most.
    pub fn path_advisor(
        mut self,
        limit: Span,
        ask: impl Fn(&AdviceRequest) -> Result<Vec<String>, NoAdvice> + Send + Sync + 'static,
    ) -> Self {
        self.path_advisor = Some(PathAdvisor { ask: Arc::new(ask), limit });
        self
    }

    /// Sets the accepted certificates.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Adds a header, `Name: value`, to every request. `Authorization` and `Cookie` are sent only
    /// to the origin of the job's URL, not to redirect targets.
    pub fn header(mut self, line: impl Into<String>) -> Self {
        self.headers.push(line.into());
        self
    }

    /// Limits the bytes of metered paths over all jobs of this client.
    pub fn metered(mut self, allowance: MeteredUse) -> Self {
        self.metered = Some(allowance);
        self
    }

    /// Replaces the configuration of the transfers.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Whether each request, response, piece and PING is reported as [`Event::Record`].
    pub fn records(mut self, records: bool) -> Self {
        self.records = records;
        self
    }

    /// Whether every path connects to the server that the first path's name servers return, instead
    /// of the one that its own return.
    pub fn single_server(mut self, single_server: bool) -> Self {
        self.single_server = single_server;
        self
    }

    /// Sets a callback that decides whether the server of an origin may be reached at an address. It
    /// is asked for each connection with the address to which the socket will connect, after every
    /// look-up and redirect, so no name server can circumvent it.
    pub fn address_filter(
        mut self,
        permits: impl Fn(&Origin, IpAddr) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.address_filter = AddressFilter(Some(Arc::new(permits)));
        self
    }

    /// Whether HTTP/2 is used with `http://` servers without negotiation (RFC 9113 §3.3).
    pub fn http2_prior_knowledge(mut self, prior_knowledge: bool) -> Self {
        self.prior_knowledge = prior_knowledge;
        self
    }

    /// Creates the client. It needs a tokio runtime with I/O and time; one thread is enough.
    ///
    /// # Errors
    /// Fails if the trust cannot be loaded or a header is invalid.
    pub fn build(self) -> Result<Client, ClientError> {
        let tls = tls::config(&self.trust, &[b"h2", b"http/1.1"])?;
        let (mut headers, mut private) = (HeaderMap::new(), HeaderMap::new());
        for line in self.headers {
            let (name, mut value) = parse_header(&line)?;
            value.set_sensitive(PRIVATE_HEADERS.contains(&name));
            let map = if PRIVATE_HEADERS.contains(&name) { &mut private } else { &mut headers };
            map.append(name, value);
        }
        let mut client = Client {
            workers: Vec::new(),
            paths: Vec::new(),
            discarded: Vec::new(),
            headers: Arc::new(headers),
            common_private_headers: Arc::new(private),
            private_headers: Arc::default(),
            metered: self.metered.unwrap_or(self.config.metered),
            metered_used: Size::ZERO,
            config: self.config,
            records: self.records,
            worker_config: WorkerConfig {
                tls,
                prior_knowledge: self.prior_knowledge,
                shares_resolver: self.single_server,
                shared_addresses: SharedAddresses::default(),
                address_filter: self.address_filter,
            },
            verifies_servers: !matches!(self.trust, Trust::AnyCertificate),
            path_lister: self.path_lister,
            path_advisor: self.path_advisor,
        };
        for path in self.paths {
            client.add_path(path);
        }
        Ok(client)
    }
}

impl Job {
    /// Creates a job that downloads `url` to the file `output`, which is replaced when the object
    /// is complete. A user name and a password in the URL become the job's login.
    ///
    /// # Errors
    /// Fails if `url` is not an http or https URL.
    pub fn new(url: &str, output: impl Into<PathBuf>) -> Result<Self, LocationError> {
        let (bare, info) = UserInfo::split(url);
        let login = info.map(|UserInfo { user, password }| Login {
            user,
            password: password.unwrap_or_default(),
        });
        Ok(Self {
            location: Location::parse(&bare)?,
            output: output.into(),
            resume: false,
            checksum: Checksum::None,
            size: None,
            excerpt: None,
            is_foreign: false,
            login,
        })
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Whether the part file of an earlier run is continued, if there is one.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Sets the expected length of the object, which lets every path begin at once.
    pub fn size(mut self, size: Option<Size>) -> Self {
        self.size = size;
        self
    }

    /// Fetches only this part of the object; [`Job::size`] is the length of the part then. Only
    /// [`Client::stream`] uses it. A server that sends the whole object instead ends the transfer with
    /// [`FetchFailure::RangesIgnored`] before the first byte.
    pub fn excerpt(mut self, excerpt: Option<Excerpt>) -> Self {
        self.excerpt = excerpt;
        self
    }

    /// Sets the login. It is sent only to the origin of the job's URL, not to redirect targets.
    pub fn login(mut self, login: Option<Login>) -> Self {
        self.login = login;
        self
    }

    /// Whether the URL comes from a server and not from the user: the client's `Authorization`,
    /// `Cookie` and `Proxy-Authorization` are not sent.
    pub fn foreign(mut self, is_foreign: bool) -> Self {
        self.is_foreign = is_foreign;
        self
    }

    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = checksum;
        self
    }
}

/// Whether a line can be passed to [`ClientBuilder::header`].
#[cfg(feature = "replay")]
pub(crate) fn can_be_header(line: &str) -> bool {
    parse_header(line).is_ok()
}

fn parse_header(line: &str) -> Result<(HeaderName, HeaderValue), ClientError> {
    let bad = || ClientError::Header(line.chars().take_while(|c| *c != ':').collect());
    let (name, value) = line.split_once(':').ok_or_else(bad)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
    if RESERVED_HEADERS.contains(&name) {
        return Err(ClientError::Reserved(name.to_string()));
    }
    Ok((name, value))
}
