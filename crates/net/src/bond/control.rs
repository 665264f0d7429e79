//! The control socket of a running client or gateway: one JSON object a line, over a socket that only
//! its user may open.

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

use super::delay_gate::{DelayGrant, DelayRequest};
use super::gateway_status::GatewayStatus;
use super::status::Status;
use super::why::{WhyQuery, WhyReport};

/// The longest request, in bytes.
const MAX_REQUEST: u64 = 64 * 1024;
/// The longest response, in bytes.
const MAX_RESPONSE: u64 = 64 << 20;

/// The folder of root's sockets.
const ROOT_FOLDER: &str = "/run/manyways";

/// What can be requested.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRequest {
    /// What the client or gateway does.
    Status,
    /// What the client's policy says of a destination.
    Why(WhyQuery),
    /// To delay connections. The connection stays after the response.
    Delay(DelayRequest),
}

/// What is responded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlResponse {
    /// What a client does.
    Status(Box<Status>),
    /// What a gateway does.
    GatewayStatus(GatewayStatus),
    /// What the policy says.
    Why(Box<WhyReport>),
    /// The program owns the delay gate.
    DelayGranted,
    /// The request is refused.
    Refused {
        /// One sentence.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

/// What becomes of a request.
pub enum ControlReply {
    /// A response ends it.
    Respond(ControlResponse),
    /// The connection stays, for the owner of the delay gate.
    KeepOpen(DelayGrant),
}

impl From<ControlResponse> for ControlReply {
    fn from(response: ControlResponse) -> Self {
        Self::Respond(response)
    }
}

/// Which end of a bond a control socket belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BondRole {
    /// The end on the device.
    Client,
    /// The end on a server.
    Gateway,
}

/// Why a control socket cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlSocketError {
    /// A running client or gateway has the name.
    #[error("another {} that is named {name} runs already", .role.name())]
    NameInUse {
        /// Which end.
        role: BondRole,
        /// Its name.
        name: String,
    },
    /// A name must be a part of a file name.
    #[error("{0:?} is not a name: a name has 1 to 32 letters, digits, - and _")]
    InvalidName(String),
    /// No client or gateway of that name runs.
    #[error("no {} that is named {name} runs here", .role.name())]
    NotRunning {
        /// Which end.
        role: BondRole,
        /// Its name.
        name: String,
    },
    /// The system refuses.
    #[error("the control socket {path} does not work: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] io::Error),
}

/// Answers requests until it is dropped.
#[derive(Debug)]
pub struct ControlServer {
    socket: PathBuf,
    task: AbortHandle,
    /// Locked as long as the process lives, however it ends.
    _life: File,
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
    /// Answers requests with `respond`, on the calling thread's local tasks. A process that will
    /// become another `user` has to name that user, as who removes the socket at the end.
    ///
    /// # Errors
    /// Where a running one has the name, or there is no place for a socket.
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
            // Without the right to give anything away it stays behind, and does no harm.
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
        Ok(Self { socket, task: task.abort_handle(), _life: life })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Listens there, in place of a process that was killed.
fn bind_socket(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Listens in a folder beside that socket, which belongs to a user in the end.
fn bind_socket_as(user: &str, socket: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let folder = socket.with_extension("");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    // It may still belong to another user, and root may lack the right to change that.
    privilege::take_back(&folder)?;
    let own = handed_over_socket(socket);
    let listener = bind_socket(&own)?;
    if let Err(error) = privilege::give_to(user, &folder) {
        let _ = fs::remove_file(&own);
        return Err(io::Error::other(error));
    }
    Ok((own, listener))
}

/// Where the socket is instead, if its process became another user.
fn handed_over_socket(socket: &Path) -> PathBuf {
    socket.with_extension("").join("socket")
}

/// Asks the client or gateway of that name.
///
/// # Errors
/// Where there is none, or it does not respond.
pub fn ask(
    role: BondRole,
    name: &str,
    request: &ControlRequest,
) -> Result<ControlResponse, ControlSocketError> {
    with_socket(role, name, |socket| read_response(request_at(socket, request)?))
}

/// Sends a request to the client or gateway of that name, whose response is yet to come.
///
/// # Errors
/// Where there is none, or it does not accept the request.
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

/// Whether root runs a client or gateway of that name, which another user cannot ask.
pub fn is_run_by_root(role: BondRole, name: &str) -> bool {
    !sandbox::is_root() && has_socket_in(Path::new(ROOT_FOLDER), role, name)
}

/// Whether there is a socket in the folder. That of a process that gave up root is in a folder which
/// others cannot read.
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

/// Responds to a request. `Some` where the connection stays.
async fn handle_request<F, A>(
    stream: &mut UnixStream,
    respond: &F,
) -> io::Result<Option<DelayGrant>>
where
    F: Fn(ControlRequest) -> A,
    A: Future<Output = ControlReply>,
{
    // The socket's mode says the same, but is set a moment after the socket is there.
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
        ControlReply::KeepOpen(grant) => (ControlResponse::DelayGranted, Some(grant)),
    };
    let mut text = serde_json::to_vec(&response)?;
    text.push(b'\n');
    write.write_all(&text).await?;
    Ok(grant)
}

/// The folder of this user's sockets: that of the lab within one.
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
    // In /tmp another user may have made it before.
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
