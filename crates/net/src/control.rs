//! Control sockets: a process that runs for long answers requests of the command line and of other
//! programs. A request and its response are one line of JSON each, over a Unix socket that only the
//! user of the process (and root) can open.
//!
//! A [`Service`] names the process, and thereby the socket. The process starts a [`ControlServer`];
//! other processes [`ask`]. The types of a protocol implement [`Request`] and [`Response`].

use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use manyways_proto::bond::io_limits::IoLimits;
use manyways_sys::{privilege, sandbox};
use manyways_unit::Span;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Maximum length of a request, in bytes.
const MAX_REQUEST: usize = 64 * 1024;
/// Bytes of a request that is too long which are read and dropped, at most: a process that closes a socket with bytes
/// in it resets the connection, and the other end loses the response.
const MAX_DROPPED: u64 = 64 << 20;
/// Maximum length of a response, in bytes.
const MAX_RESPONSE: u64 = 64 << 20;
/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 32;

/// Of a process that is stopped, or busy for too long.
const NO_ANSWER: &str = "the process does not answer";

/// Folder of root's sockets.
const ROOT_FOLDER: &str = "/run/manyways";

/// A request of a protocol.
pub trait Request: Serialize + DeserializeOwned {
    /// The answer to the request.
    type Response: Response;
}

/// The response to a [`Request`].
pub trait Response: Serialize + DeserializeOwned {
    /// Returns the response to a request that is refused. `message` is the reason as one sentence.
    fn refused(message: String, hint: Option<String>) -> Self;
}

/// The handler's reply to a request.
pub enum Reply<R> {
    /// A response, after which the connection is closed.
    Respond(R),
    /// A response, after which the connection stays open, and is served by the function.
    KeepOpen(R, Serve),
}

/// Serves a connection until its end. Dropped without a call if the response cannot be sent.
pub type Serve = Box<dyn FnOnce(UnixStream) -> Pin<Box<dyn Future<Output = io::Result<()>>>>>;

impl<R> Reply<R> {
    /// Sends a response, and then serves the connection.
    pub fn keep_open<F, A>(response: R, serve: F) -> Self
    where
        F: FnOnce(UnixStream) -> A + 'static,
        A: Future<Output = io::Result<()>> + 'static,
    {
        Self::KeepOpen(response, Box::new(|stream| Box::pin(serve(stream))))
    }
}

impl<R> From<R> for Reply<R> {
    fn from(response: R) -> Self {
        Self::Respond(response)
    }
}

/// A process that answers on a control socket. One process of a user at a time can be this service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    kind: &'static str,
    noun: &'static str,
    name: Option<String>,
}

impl Service {
    /// The only service of its kind. Its socket is `KIND.socket`; `noun` is the subject of error
    /// messages, such as a command.
    pub const fn only(kind: &'static str, noun: &'static str) -> Self {
        Self { kind, noun, name: None }
    }

    /// One of several services of a kind. Its socket is `KIND-NAME.socket`; `noun` is the word for
    /// one of them in error messages.
    ///
    /// # Errors
    /// [`ControlSocketError::InvalidName`].
    pub fn named(
        kind: &'static str,
        noun: &'static str,
        name: &str,
    ) -> Result<Self, ControlSocketError> {
        // The name becomes a part of a file name.
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
            return Err(ControlSocketError::InvalidName(name.to_owned()));
        }
        Ok(Self { kind, noun, name: Some(name.to_owned()) })
    }

    fn socket_in(&self, folder: &Path) -> PathBuf {
        folder.join(match &self.name {
            None => format!("{}.socket", self.kind),
            Some(name) => format!("{}-{name}.socket", self.kind),
        })
    }

    fn runs_already(&self) -> String {
        match &self.name {
            None => format!("{} runs here already", self.noun),
            Some(name) => format!("another {} that is named {name} runs already", self.noun),
        }
    }

    fn does_not_run(&self) -> String {
        match &self.name {
            None => format!("{} does not run here", self.noun),
            Some(name) => format!("no {} that is named {name} runs here", self.noun),
        }
    }
}

/// An error of a control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlSocketError {
    /// Another process is this service.
    #[error("{}", .0.runs_already())]
    AlreadyRunning(Service),
    /// The name is not usable in a file name.
    #[error("{0:?} is not a name: a name has 1 to {MAX_NAME} letters, digits, - and _")]
    InvalidName(String),
    /// No process is this service.
    #[error("{}", .0.does_not_run())]
    NotRunning(Service),
    /// An error of the operating system.
    #[error("the control socket {path} does not work: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] io::Error),
}

/// Bytes that are not a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    #[error("a request has at most {MAX_REQUEST} bytes")]
    TooLong,
    /// Not JSON, or not a request of the protocol.
    #[error("cannot parse the request: {0}")]
    Invalid(#[from] serde_json::Error),
}

/// Parses the line of a request, with or without its line break.
///
/// # Errors
/// If the line is too long, or is not a request of the protocol.
pub fn parse_request<Q: Request>(line: &[u8]) -> Result<Q, RequestError> {
    if line.len() > MAX_REQUEST {
        return Err(RequestError::TooLong);
    }
    Ok(serde_json::from_slice(line)?)
}

/// A control socket that answers requests. It is removed when this is dropped.
#[derive(Debug)]
pub struct ControlServer {
    socket: PathBuf,
    task: AbortHandle,
    /// Locked for the life of the process. The kernel releases the lock after a crash, too.
    _lock: File,
}

impl ControlServer {
    /// Answers requests with `respond`, on the calling thread's local tasks. `user` is the user
    /// that the process becomes later, which must be able to remove the socket at the end.
    ///
    /// # Errors
    /// If a running process is this service, or the socket cannot be created.
    pub fn start<Q, F, A>(
        service: &Service,
        user: Option<&str>,
        respond: F,
    ) -> Result<Self, ControlSocketError>
    where
        Q: Request + 'static,
        F: Fn(Q) -> A + 'static,
        A: Future<Output = Reply<Q::Response>> + 'static,
    {
        Self::start_in(&socket_folder(), service, user, respond)
    }

    fn start_in<Q, F, A>(
        folder: &Path,
        service: &Service,
        user: Option<&str>,
        respond: F,
    ) -> Result<Self, ControlSocketError>
    where
        Q: Request + 'static,
        F: Fn(Q) -> A + 'static,
        A: Future<Output = Reply<Q::Response>> + 'static,
    {
        let limits = IoLimits::default();
        let socket = service.socket_in(folder);
        let failed = |error| ControlSocketError::Io(socket.clone(), error);
        prepare(folder).map_err(failed)?;
        let life = File::create(socket.with_extension("lock")).map_err(failed)?;
        match life.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ControlSocketError::AlreadyRunning(service.clone()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let given = user.filter(|_| sandbox::is_root()).and_then(|user| {
            let listening = bind_socket_as(user, &socket);
            // Without the permission to change owners, the socket remains after the end of the
            // process. It does no harm.
            listening.inspect_err(|why| tracing::debug!("the control socket: {why}")).ok()
        });
        let (socket, listener) = match given {
            Some(given) => given,
            None => (socket.clone(), bind_socket(&socket).map_err(failed)?),
        };
        let respond = Rc::new(respond);
        let task = tokio::task::spawn_local(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let respond = Rc::clone(&respond);
                        tokio::task::spawn_local(async move {
                            if let Err(error) = serve(stream, &*respond, limits).await {
                                tracing::debug!("a request failed: {error}");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!("the control socket does not accept: {error}");
                        tokio::time::sleep(Duration::from(limits.accept_retry)).await;
                    }
                }
            }
        });
        Ok(Self { socket, task: task.abort_handle(), _lock: life })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Listens at this path, and replaces the socket of a process that was killed.
fn bind_socket(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Listens in a folder next to `socket`, and gives the folder to `user`.
fn bind_socket_as(user: &str, socket: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let folder = socket.with_extension("");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    // The folder may belong to the user of an earlier run, and root without CAP_DAC_OVERRIDE
    // cannot write to it.
    privilege::take_ownership(&folder)?;
    let own = handed_over_socket(socket);
    let listener = bind_socket(&own)?;
    if let Err(error) = privilege::give_to(user, &folder) {
        let _ = fs::remove_file(&own);
        return Err(io::Error::other(error));
    }
    Ok((own, listener))
}

/// Returns the path of the socket of a process that has become another user.
fn handed_over_socket(socket: &Path) -> PathBuf {
    socket.with_extension("").join("socket")
}

/// Sends a request to a service, and returns the response.
///
/// # Errors
/// If the service does not run or does not respond.
pub fn ask<Q: Request>(service: &Service, request: &Q) -> Result<Q::Response, ControlSocketError> {
    ask_within(service, request, IoLimits::default().control_request)
}

/// As [`ask`]; fails if a step of the exchange takes longer than `limit`.
///
/// # Errors
/// As [`ask`].
pub fn ask_within<Q: Request>(
    service: &Service,
    request: &Q,
    limit: Span,
) -> Result<Q::Response, ControlSocketError> {
    ask_in(&socket_folder(), service, request, limit)
}

/// [`ask`], for a service whose sockets are in `folder`, such as that of a lab.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_in<Q: Request>(
    folder: &Path,
    service: &Service,
    request: &Q,
    limit: Span,
) -> Result<Q::Response, ControlSocketError> {
    with_socket(folder, service, |socket| read_response(request_at(socket, request)?, limit))
}

/// Sends a request to a service, and returns the connection on which the response will arrive.
///
/// # Errors
/// If the service does not run or does not accept the request.
pub fn request<Q: Request>(
    service: &Service,
    request: &Q,
) -> Result<std::os::unix::net::UnixStream, ControlSocketError> {
    with_socket(&socket_folder(), service, |socket| request_at(socket, request))
}

fn with_socket<R>(
    folder: &Path,
    service: &Service,
    act: impl Fn(&Path) -> io::Result<R>,
) -> Result<R, ControlSocketError> {
    let socket = service.socket_in(folder);
    let done = act(&socket).or_else(|error| match is_not_running(&error) {
        true => act(&handed_over_socket(&socket)),
        false => Err(error),
    });
    done.map_err(|error| match is_not_running(&error) {
        true => ControlSocketError::NotRunning(service.clone()),
        false => ControlSocketError::Io(socket, error),
    })
}

/// Whether root runs this service, to which another user cannot connect.
pub fn is_run_by_root(service: &Service) -> bool {
    !sandbox::is_root() && has_socket_in(Path::new(ROOT_FOLDER), service)
}

/// Whether the folder contains a socket, or the folder of one. The socket of a process that gave up
/// root is in a folder that other users cannot read.
fn has_socket_in(folder: &Path, service: &Service) -> bool {
    let socket = service.socket_in(folder);
    socket.exists() || socket.with_extension("").is_dir()
}

fn is_not_running(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn request_at(socket: &Path, request: &impl Request) -> io::Result<std::os::unix::net::UnixStream> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(stream)
}

fn read_response<R: Response>(
    stream: std::os::unix::net::UnixStream,
    limit: Span,
) -> io::Result<R> {
    stream.set_read_timeout(Some(limit.into()))?;
    let mut response = String::new();
    let read = BufReader::new(stream.take(MAX_RESPONSE)).read_line(&mut response);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER),
        _ => error,
    })?;
    if response.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, NO_ANSWER));
    }
    Ok(serde_json::from_str(&response)?)
}

async fn serve<Q, F, A>(mut stream: UnixStream, respond: &F, limits: IoLimits) -> io::Result<()>
where
    Q: Request,
    F: Fn(Q) -> A,
    A: Future<Output = Reply<Q::Response>>,
{
    let limit = Duration::from(limits.control_request);
    let handled = timeout(limit, handle_request(&mut stream, respond)).await;
    match handled.map_err(|_| io::ErrorKind::TimedOut)?? {
        Some(serve) => serve(stream).await,
        None => Ok(()),
    }
}

/// Answers a request. Returns `Some` if the connection stays open.
async fn handle_request<Q, F, A>(stream: &mut UnixStream, respond: &F) -> io::Result<Option<Serve>>
where
    Q: Request,
    F: Fn(Q) -> A,
    A: Future<Output = Reply<Q::Response>>,
{
    // The mode of the socket has the same effect, but is set a moment after the socket is
    // created.
    let user = stream.peer_cred()?.uid();
    if user != sandbox::user_id() && user != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (read, mut write) = stream.split();
    let mut line = Vec::new();
    // One byte more shows that a request is too long.
    let limited = read.take(MAX_REQUEST as u64 + 1);
    let mut limited = tokio::io::BufReader::new(limited);
    limited.read_until(b'\n', &mut line).await?;
    let parsed = parse_request(&line);
    let is_too_long = matches!(parsed, Err(RequestError::TooLong));
    let reply = match parsed {
        Ok(request) => respond(request).await,
        Err(error) => Q::Response::refused(error.to_string(), None).into(),
    };
    let (response, serve) = match reply {
        Reply::Respond(response) => (response, None),
        Reply::KeepOpen(response, serve) => (response, Some(serve)),
    };
    let mut text = serde_json::to_vec(&response)?;
    text.push(b'\n');
    write.write_all(&text).await?;
    if is_too_long && line.last() != Some(&b'\n') {
        drop_rest(limited.into_inner().into_inner()).await?;
    }
    Ok(serve)
}

/// Reads the rest of a line.
async fn drop_rest(read: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut rest = tokio::io::BufReader::new(read.take(MAX_DROPPED));
    loop {
        let bytes = rest.fill_buf().await?;
        let (length, is_end) = (bytes.len(), bytes.is_empty() || bytes.contains(&b'\n'));
        rest.consume(length);
        if is_end {
            return Ok(());
        }
    }
}

/// Returns the folder of this user's sockets; within a lab, the folder of the lab.
fn socket_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(lab) = set("LAB_DIR").filter(|folder| folder.is_dir()) {
        return lab;
    }
    if sandbox::is_root() {
        return PathBuf::from(ROOT_FOLDER);
    }
    match set("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("manyways"),
        None => std::env::temp_dir().join(format!("manyways-{}", sandbox::user_id())),
    }
}

fn prepare(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    // In /tmp another user may have created the folder.
    if !found.is_dir() || found.uid() != sandbox::user_id() {
        let message = format!("{} belongs to another user", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
