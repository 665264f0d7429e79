//! Downloads over several networks at once: `proto::fetch` decides, this moves the bytes.
//!
//! A [`Client`] holds one connection per path and keeps it for the next object of the same server.
//! A [`Job`] is one object and the file it goes to. It refuses to mix bytes of which the server
//! does not prove that they belong to the same object, and gives a file its name only when it is
//! whole.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use manyways_net::fetch::{Client, Event, Job, PathSpec};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // One path per usable network of this host.
//! let paths = manyways_sys::interface::list()?;
//! let paths = paths.iter().filter(|network| network.usable.is_ok()).map(PathSpec::of);
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

mod answers;
pub mod conditions;
pub(crate) mod dial;
pub mod digest;
pub mod event;
mod exchange;
mod existing_file;
mod interface_watch;
mod journal;
mod late;
pub mod location;
pub mod login;
pub mod netrc;
mod path;
mod path_selection;
mod report;
pub mod resume;
mod sink;
#[cfg(test)]
mod tests;
mod tls;
mod transfer;
mod warm;
mod worker;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use manyways_proto::estimate::Conditions;
use manyways_proto::fetch::PathId;
pub use manyways_proto::fetch::{Allowance, Config, RangeEnd, Reason, Scheduler};
use manyways_unit::Size;
use tokio::sync::mpsc;

use answers::Answers;
pub use dial::Protocol;
pub use existing_file::{ExistingFile, ExistingFileError};
use late::Late;
use location::{Location, LocationError};
use login::{Login, UserInfo};
pub use path::{HostNames, Lookup, Names, PathSpec, Unresolved};
use path::{Watch, Watcher};
pub use path_selection::{NameServers, PathSelection, SelectionError, SelectionOptions};
pub use report::{
    Cause, ClientError, Event, FetchError, Kept, PathProgress, PathReport, Progress, Report,
};
pub use sink::{Body, SinkError};
pub use tls::{Trust, TrustError};
use transfer::Destination;
use worker::{Command, Worker};

/// How far past what was read of a [`Body`] bytes are asked for, unless [`Config::ahead`] says else.
pub const AHEAD: Size = Size::from_mib(16);
/// Headers that go only to the server that the user named.
const PRIVATE: [HeaderName; 3] =
    [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];
/// Headers on which a fetch depends.
const RESERVED: [HeaderName; 8] = [
    header::RANGE,
    header::IF_RANGE,
    header::ACCEPT_ENCODING,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
];

/// Fetches objects over several paths, with one connection a path.
#[derive(Debug)]
pub struct Client {
    paths: Vec<Arc<PathSpec>>,
    workers: Vec<mpsc::UnboundedSender<Command>>,
    /// Each path's bytes that came for nothing.
    late: Vec<Late>,
    headers: Arc<HeaderMap>,
    /// What is private of every job…
    secrets: Arc<HeaderMap>,
    /// …and of the one that is under way.
    private: Arc<HeaderMap>,
    metered: Allowance,
    metered_spent: Size,
    config: Config,
    records: bool,
    spawner: Spawner,
    watch: Option<Watcher>,
}

/// What every worker gets.
#[derive(Clone, Debug)]
struct Spawner {
    tls: Arc<rustls::ClientConfig>,
    prior_knowledge: bool,
    /// Whose name servers all paths ask, where that is one path's.
    names_of_first: bool,
    answers: Answers,
}

/// What a [`Client`] is made of; from [`Client::builder`].
#[derive(Debug, Default)]
pub struct ClientBuilder {
    paths: Vec<PathSpec>,
    trust: Trust,
    headers: Vec<String>,
    metered: Option<Allowance>,
    config: Config,
    records: bool,
    single_server: bool,
    prior_knowledge: bool,
    watch: Option<Watcher>,
}

/// One object, and the file that it goes to.
#[derive(Clone, Debug)]
pub struct Job {
    location: Location,
    output: PathBuf,
    resume: bool,
    checksum: Checksum,
    size: Option<Size>,
    login: Option<Login>,
}

/// What to do about an object's SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Nothing.
    #[default]
    None,
    /// Report it.
    Report,
    /// Report it, and fail where it is another one.
    Check([u8; 32]),
}

impl Client {
    /// A client with system trust, MP-H2 and no limit on metered paths, until told else.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Fetches one object, and tells `on_event` what happens. When `stop` is ready first, the
    /// transfer ends with [`Cause::Stopped`] and leaves what a later run can go on with.
    ///
    /// Dropping the future instead leaves the unfinished file as a kill would.
    ///
    /// # Errors
    /// [`FetchError`] says why, and what is left.
    pub async fn fetch(
        &mut self,
        job: &Job,
        on_event: &mut (dyn FnMut(Event<'_>) + Send),
        stop: impl Future<Output = ()>,
    ) -> Result<Report, FetchError> {
        self.carry(job, Destination::File, on_event, stop).await
    }

    /// Fetches one object for somebody who reads it in order while it comes. The job's file is not
    /// touched, nothing is kept for a later run, and a checksum is compared when all was read
    /// already.
    ///
    /// The second thing that is returned does the work, and has to be awaited beside the reading:
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use manyways_net::fetch::{Client, Job, PathSpec};
    ///
    /// let paths = manyways_sys::interface::list()?;
    /// let paths = paths.iter().filter(|network| network.usable.is_ok()).map(PathSpec::of);
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
    /// It is bounded: no more than [`AHEAD`], and what was on its way when that was reached, waits
    /// to be read. Where the [`Body`] is dropped, the transfer ends with [`SinkError::Unread`].
    pub fn stream<'a>(
        &'a mut self,
        job: &'a Job,
        on_event: &'a mut (dyn FnMut(Event<'_>) + Send),
        stop: impl Future<Output = ()> + 'a,
    ) -> (Body, impl Future<Output = Result<Report, FetchError>> + 'a) {
        let (to, body) = Destination::reader();
        (body, self.carry(job, to, on_event, stop))
    }

    async fn carry(
        &mut self,
        job: &Job,
        to: Destination,
        on_event: &mut (dyn FnMut(Event<'_>) + Send),
        stop: impl Future<Output = ()>,
    ) -> Result<Report, FetchError> {
        self.private = self.secrets_for(job);
        let outcome = transfer::run(self, job, to, on_event, stop).await;
        let report = match &outcome {
            Ok(report) => report,
            Err(error) => &error.report,
        };
        self.metered_spent += report.metered;
        outcome
    }

    /// A path that was not there before, for this transfer and those to come.
    fn join(&mut self, spec: PathSpec) {
        let id = PathId(self.paths.len());
        let (path, late) = (Arc::new(self.with_names(id.0, spec)), Late::default());
        let worker = Worker::spawn(id, Arc::clone(&path), late.clone(), &self.spawner);
        self.paths.push(path);
        self.late.push(late);
        self.workers.push(worker);
    }

    /// What is known of a path is not true any more; its worker has to hear of that.
    fn renew(&mut self, id: usize, spec: PathSpec) -> Option<Arc<PathSpec>> {
        let spec = Arc::new(self.with_names(id, spec));
        let path = self.paths.get_mut(id)?;
        *path = Arc::clone(&spec);
        Some(spec)
    }

    /// The names of a path are the first one's where all talk to one server.
    fn with_names(&self, id: usize, spec: PathSpec) -> PathSpec {
        match self.paths.first() {
            Some(first) if self.spawner.names_of_first && id > 0 => {
                PathSpec { names: Arc::clone(&first.names), ..spec }
            }
            _ => spec,
        }
    }

    /// A header that says who we are goes before a login.
    fn secrets_for(&self, job: &Job) -> Arc<HeaderMap> {
        let login = job.login.as_ref().and_then(Login::header);
        match login.filter(|_| !self.secrets.contains_key(header::AUTHORIZATION)) {
            Some(value) => {
                let mut secrets = HeaderMap::clone(&self.secrets);
                secrets.insert(header::AUTHORIZATION, value);
                Arc::new(secrets)
            }
            None => Arc::clone(&self.secrets),
        }
    }
}

impl ClientBuilder {
    /// Adds paths. The first one that is not metered makes the first request.
    pub fn paths(mut self, paths: impl IntoIterator<Item = PathSpec>) -> Self {
        self.paths.extend(paths);
        self
    }

    /// Asks this, about once a second while a transfer runs, which paths there are now: one of a
    /// new name joins the transfer, and one that is missing is not used until it is back. `None`
    /// where that cannot be told; nothing changes then. It may block. Paths without a device stay
    /// as they are.
    pub fn watch(
        mut self,
        look: impl Fn() -> Option<Vec<PathSpec>> + Send + Sync + 'static,
    ) -> Self {
        let look: Arc<Watch> = Arc::new(look);
        self.watch = Some(Watcher(look));
        self
    }

    /// Whose certificates are accepted.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Sends this header, `Name: value`, with every request. `Authorization` and `Cookie` are sent
    /// only to the server of the job's URL, not where it redirects to.
    pub fn header(mut self, line: impl Into<String>) -> Self {
        self.headers.push(line.into());
        self
    }

    /// How much metered paths may bring in all, over every job of this client.
    pub fn metered(mut self, allowance: Allowance) -> Self {
        self.metered = Some(allowance);
        self
    }

    /// Replaces the times and limits of the decisions.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Tells each request, answer, piece and PING as [`Event::Record`].
    pub fn records(mut self, records: bool) -> Self {
        self.records = records;
        self
    }

    /// Every path talks to the server that the first one found, instead of the one that its own
    /// name servers name.
    pub fn single_server(mut self, single_server: bool) -> Self {
        self.single_server = single_server;
        self
    }

    /// Speaks HTTP/2 to `http://` servers too, without asking whether they do.
    pub fn http2_prior_knowledge(mut self, prior_knowledge: bool) -> Self {
        self.prior_knowledge = prior_knowledge;
        self
    }

    /// Makes the client. Needs a tokio runtime with I/O and time; one thread is enough.
    ///
    /// # Errors
    /// Where the trust cannot be read or a header is not one.
    pub fn build(self) -> Result<Client, ClientError> {
        let tls = tls::config(&self.trust)?;
        let (mut headers, mut private) = (HeaderMap::new(), HeaderMap::new());
        for line in self.headers {
            let (name, mut value) = parse_header(&line)?;
            value.set_sensitive(PRIVATE.contains(&name));
            let map = if PRIVATE.contains(&name) { &mut private } else { &mut headers };
            map.append(name, value);
        }
        let mut client = Client {
            workers: Vec::new(),
            paths: Vec::new(),
            late: Vec::new(),
            headers: Arc::new(headers),
            secrets: Arc::new(private),
            private: Arc::default(),
            metered: self.metered.unwrap_or(self.config.metered),
            metered_spent: Size::ZERO,
            config: self.config,
            records: self.records,
            spawner: Spawner {
                tls,
                prior_knowledge: self.prior_knowledge,
                names_of_first: self.single_server,
                answers: Answers::default(),
            },
            watch: self.watch,
        };
        for path in self.paths {
            client.join(path);
        }
        Ok(client)
    }
}

impl Job {
    /// The object at `url`, into the file `output`, which is replaced when the object is whole. A
    /// user name and a password in the URL become the job's login.
    ///
    /// # Errors
    /// Where `url` is not an http or https URL.
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
            login,
        })
    }

    /// Where the object is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The file that it goes to.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Goes on with what an earlier run left, if it left anything.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// The object's length, where it is known beforehand: every path can then begin at once.
    pub fn size(mut self, size: Option<Size>) -> Self {
        self.size = size;
        self
    }

    /// Who asks for it. This goes only to the origin of the job's URL, not where it redirects to.
    pub fn login(mut self, login: Option<Login>) -> Self {
        self.login = login;
        self
    }

    /// What to do about the SHA-256.
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = checksum;
        self
    }
}

fn parse_header(line: &str) -> Result<(HeaderName, HeaderValue), ClientError> {
    let bad = || ClientError::Header(line.chars().take_while(|c| *c != ':').collect());
    let (name, value) = line.split_once(':').ok_or_else(bad)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
    if RESERVED.contains(&name) {
        return Err(ClientError::Reserved(name.to_string()));
    }
    Ok((name, value))
}
