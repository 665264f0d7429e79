//! The control socket of a running client or gateway: one JSON object per line, over a Unix socket
//! that only its user can open.

use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use manyways_proto::bond::io_limits::IoLimits;
use manyways_sys::{privilege, sandbox};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::choice::ChoiceRequest;
use super::delay_gate::{DelayGrant, DelayRequest};
use super::gateway_status::GatewayStatus;
use super::status::Status;
use super::why::{WhyQuery, WhyReport};

/// Maximum length of a request, in bytes.
const MAX_REQUEST: u64 = 64 * 1024;
/// Maximum length of a response, in bytes.
const MAX_RESPONSE: u64 = 64 << 20;

/// Folder of root's sockets.
const ROOT_FOLDER: &str = "/run/manyways";

/// A request to a running client or gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRequest {
    /// The status of the client or gateway.
    Status,
    /// The treatment of a destination by the client's policy.
    Why(WhyQuery),
    /// The ownership of the delay gate. The connection stays open after the response.
    Delay(DelayRequest),
    /// The choice of the paths of auto rules.
    Choose(ChoiceRequest),
}

/// The response to a [`ControlRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlResponse {
    /// The status of a client.
    Status(Box<Status>),
    /// The status of a gateway.
    GatewayStatus(GatewayStatus),
    /// The treatment of a destination.
    Why(Box<WhyReport>),
    /// The requesting program owns the delay gate.
    DelayGranted {
        /// Those of the program's rules whose connections bypass the bond; they are delayed, too.
        direct_rules: Vec<String>,
    },
    /// The choice applies.
    Chosen,
    /// The request is refused.
    Refused {
        /// The reason, as one sentence.
        message: String,
        hint: Option<String>,
    },
}

/// The handler's reply to a request.
pub enum ControlReply {
    /// A response, after which the connection is closed.
    Respond(ControlResponse),
    /// A grant. The connection stays open for the owner of the delay gate.
    KeepOpen(DelayGrant),
}

impl From<ControlResponse> for ControlReply {
    fn from(response: ControlResponse) -> Self {
        Self::Respond(response)
    }
}

/// The endpoint of a bond to which a control socket belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BondRole {
    /// The endpoint on the device.
    Client,
    /// The endpoint on a server.
    Gateway,
}

/// An error of a control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlSocketError {
    /// A running client or gateway has this name.
    #[error("another {} that is named {name} runs already", .role.name())]
    NameInUse { role: BondRole, name: String },
    /// The name is not usable in a file name.
    #[error("{0:?} is not a name: a name has 1 to 32 letters, digits, - and _")]
    InvalidName(String),
    /// No client or gateway with this name is running.
    #[error("no {} that is named {name} runs here", .role.name())]
    NotRunning { role: BondRole, name: String },
    /// An error of the operating system.
    #[error("the control socket {path} does not work: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] io::Error),
}

/// A control socket that answers requests. It is removed when this is dropped.
#[derive(Debug)]
pub struct ControlServer {
    socket: PathBuf,
    task: AbortHandle,
    /// Locked for the life of the process. The kernel releases the lock after a crash, too.
    _lock: File,
}

impl BondRole {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
        }
    }
}

impl ControlServer {
    /// Answers requests with `respond`, on the calling thread's local tasks. `user` is the user
    /// that the process becomes later, which must be able to remove the socket at the end.
    ///
    /// # Errors
    /// If a running process has this name, or the socket cannot be created.
    pub fn start<F, A>(
        role: BondRole,
        name: &str,
        user: Option<&str>,
        respond: F,
    ) -> Result<Self, ControlSocketError>
    where
        F: Fn(ControlRequest) -> A + 'static,
        A: Future<Output = ControlReply> + 'static,
    {
        let limits = IoLimits::default();
        let folder = socket_folder();
        let socket = socket_path(&folder, role, name)?;
        let failed = |error| ControlSocketError::Io(socket.clone(), error);
        prepare(&folder).map_err(failed)?;
        let life = File::create(socket.with_extension("lock")).map_err(failed)?;
        match life.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ControlSocketError::NameInUse { role, name: name.to_owned() });
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

/// Sends a request to the client or gateway with this name, and returns the response.
///
/// # Errors
/// If no client or gateway has this name, or if it does not respond.
pub fn ask(
    role: BondRole,
    name: &str,
    request: &ControlRequest,
) -> Result<ControlResponse, ControlSocketError> {
    with_socket(role, name, |socket| read_response(request_at(socket, request)?))
}

/// Sends a request to the client or gateway with this name, and returns the connection on which the
/// response will arrive.
///
/// # Errors
/// If no client or gateway has this name, or if it does not accept the request.
pub fn request(
    role: BondRole,
    name: &str,
    request: &ControlRequest,
) -> Result<std::os::unix::net::UnixStream, ControlSocketError> {
    with_socket(role, name, |socket| request_at(socket, request))
}

fn with_socket<R>(
    role: BondRole,
    name: &str,
    act: impl Fn(&Path) -> io::Result<R>,
) -> Result<R, ControlSocketError> {
    let socket = socket_path(&socket_folder(), role, name)?;
    let done = act(&socket).or_else(|error| match is_not_running(&error) {
        true => act(&handed_over_socket(&socket)),
        false => Err(error),
    });
    done.map_err(|error| match is_not_running(&error) {
        true => ControlSocketError::NotRunning { role, name: name.to_owned() },
        false => ControlSocketError::Io(socket, error),
    })
}

/// Whether root runs a client or gateway with this name, to which another user cannot connect.
pub fn is_run_by_root(role: BondRole, name: &str) -> bool {
    !sandbox::is_root() && has_socket_in(Path::new(ROOT_FOLDER), role, name)
}

/// Whether the folder contains a socket, or the folder of one. The socket of a process that gave up
/// root is in a folder that other users cannot read.
fn has_socket_in(folder: &Path, role: BondRole, name: &str) -> bool {
    socket_path(folder, role, name).is_ok_and(|at| at.exists() || at.with_extension("").is_dir())
}

fn is_not_running(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn request_at(
    socket: &Path,
    request: &ControlRequest,
) -> io::Result<std::os::unix::net::UnixStream> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(stream)
}

fn read_response(stream: std::os::unix::net::UnixStream) -> io::Result<ControlResponse> {
    stream.set_read_timeout(Some(IoLimits::default().control_request.into()))?;
    let mut response = String::new();
    BufReader::new(stream.take(MAX_RESPONSE)).read_line(&mut response)?;
    Ok(serde_json::from_str(&response)?)
}

async fn serve<F, A>(mut stream: UnixStream, respond: &F, limits: IoLimits) -> io::Result<()>
where
    F: Fn(ControlRequest) -> A,
    A: Future<Output = ControlReply>,
{
    let limit = Duration::from(limits.control_request);
    let handled = timeout(limit, handle_request(&mut stream, respond)).await;
    match handled.map_err(|_| io::ErrorKind::TimedOut)?? {
        Some(grant) => grant.serve(stream).await,
        None => Ok(()),
    }
}

/// Answers a request. Returns `Some` if the connection stays open.
async fn handle_request<F, A>(
    stream: &mut UnixStream,
    respond: &F,
) -> io::Result<Option<DelayGrant>>
where
    F: Fn(ControlRequest) -> A,
    A: Future<Output = ControlReply>,
{
    // The mode of the socket has the same effect, but is set a moment after the socket is
    // created.
    let user = stream.peer_cred()?.uid();
    if user != sandbox::user_id() && user != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(MAX_REQUEST)).read_line(&mut line).await?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => respond(request).await,
        Err(error) => {
            let message = format!("cannot parse the request: {error}");
            ControlResponse::Refused { message, hint: None }.into()
        }
    };
    let (response, grant) = match reply {
        ControlReply::Respond(response) => (response, None),
        ControlReply::KeepOpen(grant) => {
            let direct_rules = grant.direct_rules.clone();
            (ControlResponse::DelayGranted { direct_rules }, Some(grant))
        }
    };
    let mut text = serde_json::to_vec(&response)?;
    text.push(b'\n');
    write.write_all(&text).await?;
    Ok(grant)
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

fn socket_path(folder: &Path, role: BondRole, name: &str) -> Result<PathBuf, ControlSocketError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
        return Err(ControlSocketError::InvalidName(name.to_owned()));
    }
    Ok(folder.join(format!("bond-{}-{name}.socket", role.name())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_or_a_folder_for_it_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let is = |role, name| has_socket_in(folder.path(), role, name);
        assert!(!is(BondRole::Client, "default") && !is(BondRole::Gateway, "default"));
        File::create(folder.path().join("bond-client-default.socket")).unwrap();
        fs::create_dir(folder.path().join("bond-gateway-default")).unwrap();
        assert!(is(BondRole::Client, "default") && is(BondRole::Gateway, "default"));
        assert!(!is(BondRole::Client, "other") && !is(BondRole::Client, "../default"));
    }
}
