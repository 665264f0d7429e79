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

mod dial;
mod exchange;
mod late;
pub mod location;
mod path;
mod report;
pub mod resume;
mod run;
mod sink;
#[cfg(test)]
mod tests;
mod tls;
mod worker;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use manyways_proto::fetch::Config;
pub use manyways_proto::fetch::{Allowance, Reason};
use manyways_trace::Size;
use tokio::sync::mpsc;

pub use dial::Protocol;
use late::Late;
use location::{Location, LocationError};
pub use path::{HostNames, Lookup, Names, PathSpec, Unresolved};
pub use report::{
    Cause, ClientError, Event, FetchError, Kept, PathProgress, PathReport, Progress, Report,
};
pub use sink::SinkError;
pub use tls::{Trust, TrustError};
use worker::{Command, Worker};

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
    private: Arc<HeaderMap>,
    metered: Allowance,
    metered_spent: Size,
    config: Config,
}

/// What a [`Client`] is made of; from [`Client::builder`].
#[derive(Debug, Default)]
pub struct ClientBuilder {
    paths: Vec<PathSpec>,
    trust: Trust,
    headers: Vec<String>,
    metered: Option<Allowance>,
    config: Config,
}

/// One object, and the file that it goes to.
#[derive(Clone, Debug)]
pub struct Job {
    location: Location,
    output: PathBuf,
    resume: bool,
    checksum: Checksum,
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
    /// A client with system trust, 1 MiB chunks and no limit on metered paths, until told else.
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
        let outcome = run::run(self, job, on_event, stop).await;
        let report = match &outcome {
            Ok(report) => report,
            Err(error) => &error.report,
        };
        self.metered_spent += report.metered;
        outcome
    }
}

impl ClientBuilder {
    /// Adds paths. The first one that is not metered makes the first request.
    pub fn paths(mut self, paths: impl IntoIterator<Item = PathSpec>) -> Self {
        self.paths.extend(paths);
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

    /// How much one request of a later path asks for.
    pub fn chunk(mut self, chunk: Size) -> Self {
        self.config.chunk = chunk;
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

    /// Makes the client. Needs a tokio runtime with I/O and time; one thread is enough.
    ///
    /// # Errors
    /// Where the trust cannot be read or a header is not one.
    pub fn build(self) -> Result<Client, ClientError> {
        let tls = tls::config(&self.trust)?;
        let (mut headers, mut private) = (HeaderMap::new(), HeaderMap::new());
        for line in self.headers {
            let (name, value) = parse_header(&line)?;
            let map = if PRIVATE.contains(&name) { &mut private } else { &mut headers };
            map.append(name, value);
        }
        let paths: Vec<Arc<PathSpec>> = self.paths.into_iter().map(Arc::new).collect();
        let late = vec![(); paths.len()].into_iter().map(|()| Late::default()).collect::<Vec<_>>();
        let workers = paths.iter().zip(&late).enumerate().map(|(id, (path, late))| {
            let id = manyways_proto::fetch::PathId(id);
            Worker::spawn(id, Arc::clone(path), Arc::clone(&tls), late.clone())
        });
        Ok(Client {
            workers: workers.collect(),
            paths,
            late,
            headers: Arc::new(headers),
            private: Arc::new(private),
            metered: self.metered.unwrap_or(self.config.metered),
            metered_spent: Size::ZERO,
            config: self.config,
        })
    }
}

impl Job {
    /// The object at `url`, into the file `output`, which is replaced when the object is whole.
    ///
    /// # Errors
    /// Where `url` is not an http or https URL.
    pub fn new(url: &str, output: impl Into<PathBuf>) -> Result<Self, LocationError> {
        Ok(Self {
            location: Location::parse(url)?,
            output: output.into(),
            resume: false,
            checksum: Checksum::None,
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
