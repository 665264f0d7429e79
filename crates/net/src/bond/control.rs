//! Talking to a running client or gateway: one JSON object a line, over a socket that only its
//! user may open.

use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use manyways_sys::{privilege, sandbox};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::gateway::GatewayStatus;
use super::hold::{Hold, Holding};
use super::status::Status;
use super::why::{Question, Why};

/// The longest request, in bytes.
const MAX_REQUEST: u64 = 64 * 1024;
/// The longest answer.
const MAX_ANSWER: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// Where those of root are.
const ROOTS: &str = "/run/manyways";

/// What can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// What it is doing.
    Status,
    /// What a policy says of a destination.
    Why(Question),
    /// To hold connections back. The connection stays after the answer.
    Hold(Hold),
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What a client is doing.
    Status(Box<Status>),
    /// What a gateway is doing.
    GatewayStatus(GatewayStatus),
    /// What its policy says.
    Why(Box<Why>),
    /// It does what is wished.
    Holds,
    /// It cannot say.
    Refused {
        /// One sentence.
        sentence: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

/// What becomes of a request.
pub enum Reply {
    /// That is all.
    Answer(Answer),
    /// The connection stays, for that.
    Holds(Holding),
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// Which end of a bond is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// That on the device.
    Client,
    /// That on a server.
    Gateway,
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Another one has the name.
    #[error("another {} that is named {name} runs already", .end.word())]
    Taken {
        /// Which end.
        end: End,
        /// Its name.
        name: String,
    },
    /// It is no name.
    #[error("{0:?} is no name: it has 1 to 32 letters, digits, - and _")]
    Name(String),
    /// There is none of that name.
    #[error("no {} that is named {name} runs here", .end.word())]
    Nobody {
        /// Which end.
        end: End,
        /// Its name.
        name: String,
    },
    /// The system says no.
    #[error("the control socket {path} does not work: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] io::Error),
}

/// Answers while it lives.
#[derive(Debug)]
pub struct Control {
    socket: PathBuf,
    task: AbortHandle,
    /// Locked as long as the process lives, however it ends.
    _life: File,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
        }
    }
}

impl Control {
    /// Answers requests with `answer`, on the calling thread's local tasks. A process that will
    /// become another `user` says so, since it has to take its socket away as that user.
    ///
    /// # Errors
    /// Where another one has the name, or there is no place for a socket.
    pub fn start<F, A>(
        end: End,
        name: &str,
        user: Option<&str>,
        answer: F,
    ) -> Result<Self, ControlError>
    where
        F: Fn(Request) -> A + 'static,
        A: Future<Output = Reply> + 'static,
    {
        let folder = folder();
        let socket = place(&folder, end, name)?;
        let failed = |error| ControlError::Io(socket.clone(), error);
        prepare(&folder).map_err(failed)?;
        let life = File::create(socket.with_extension("lock")).map_err(failed)?;
        match life.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ControlError::Taken { end, name: name.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let given = user.filter(|_| sandbox::is_root()).and_then(|user| {
            let listening = listen_as(user, &socket);
            // Without the right to give anything away it stays behind, and does no harm.
            listening.inspect_err(|why| tracing::debug!("the control socket: {why}")).ok()
        });
        let (socket, listener) = match given {
            Some(given) => given,
            None => (socket.clone(), listen(&socket).map_err(failed)?),
        };
        let answer = Rc::new(answer);
        let task = tokio::task::spawn_local(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let answer = Rc::clone(&answer);
                        tokio::task::spawn_local(async move {
                            if let Err(error) = serve(stream, &*answer).await {
                                tracing::debug!("a request failed: {error}");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!("the control socket does not accept: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Self { socket, task: task.abort_handle(), _life: life })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Listens there, in place of one that was killed.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Listens in a folder of its own beside that socket, which belongs to a user in the end.
fn listen_as(user: &str, socket: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let folder = socket.with_extension("");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    // Whose it was the last time may be somebody else, and root may lack the right to meddle.
    privilege::take_back(&folder)?;
    let own = given(socket);
    let listener = listen(&own)?;
    if let Err(error) = privilege::give_to(user, &folder) {
        let _ = fs::remove_file(&own);
        return Err(io::Error::other(error));
    }
    Ok((own, listener))
}

/// Where the socket is in place of that one, if its process became another user.
fn given(socket: &Path) -> PathBuf {
    socket.with_extension("").join("socket")
}

/// Asks the one of that name.
///
/// # Errors
/// Where there is none, or it does not answer.
pub fn ask(end: End, name: &str, request: &Request) -> Result<Answer, ControlError> {
    at(end, name, |socket| answered(request_at(socket, request)?))
}

/// Sends a request to the one of that name; the answer is yet to come.
///
/// # Errors
/// Where there is none, or it does not take it.
pub fn request(
    end: End,
    name: &str,
    request: &Request,
) -> Result<std::os::unix::net::UnixStream, ControlError> {
    at(end, name, |socket| request_at(socket, request))
}

fn at<R>(end: End, name: &str, act: impl Fn(&Path) -> io::Result<R>) -> Result<R, ControlError> {
    let socket = place(&folder(), end, name)?;
    let done = act(&socket).or_else(|error| match is_nobody(&error) {
        true => act(&given(&socket)),
        false => Err(error),
    });
    done.map_err(|error| match is_nobody(&error) {
        true => ControlError::Nobody { end, name: name.to_owned() },
        false => ControlError::Io(socket, error),
    })
}

/// Whether root runs one of that name, which another user cannot ask.
pub fn is_roots(end: End, name: &str) -> bool {
    !sandbox::is_root() && is_within(Path::new(ROOTS), end, name)
}

/// Whether one has its socket there. That of who gave up root is in a folder that only it sees.
fn is_within(folder: &Path, end: End, name: &str) -> bool {
    place(folder, end, name).is_ok_and(|at| at.exists() || at.with_extension("").is_dir())
}

fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn request_at(socket: &Path, request: &Request) -> io::Result<std::os::unix::net::UnixStream> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(stream)
}

fn answered(stream: std::os::unix::net::UnixStream) -> io::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

async fn serve<F, A>(mut stream: UnixStream, answer: &F) -> io::Result<()>
where
    F: Fn(Request) -> A,
    A: Future<Output = Reply>,
{
    let said = timeout(PATIENCE, reply(&mut stream, answer)).await;
    match said.map_err(|_| io::ErrorKind::TimedOut)?? {
        Some(holding) => holding.serve(stream).await,
        None => Ok(()),
    }
}

/// Who goes on with the connection.
async fn reply<F, A>(stream: &mut UnixStream, answer: &F) -> io::Result<Option<Holding>>
where
    F: Fn(Request) -> A,
    A: Future<Output = Reply>,
{
    // The socket's mode says the same; it is set a moment after the socket is there.
    let asker = stream.peer_cred()?.uid();
    if asker != sandbox::user_id() && asker != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(MAX_REQUEST)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request).await,
        Err(error) => {
            Answer::Refused { sentence: format!("no request: {error}"), hint: None }.into()
        }
    };
    let (answer, holding) = match answer {
        Reply::Answer(answer) => (answer, None),
        Reply::Holds(holding) => (Answer::Holds, Some(holding)),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await?;
    Ok(holding)
}

/// Where sockets are: with the lab within one.
fn folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(lab) = set("LAB_DIR").filter(|folder| folder.is_dir()) {
        return lab;
    }
    if sandbox::is_root() {
        return PathBuf::from(ROOTS);
    }
    match set("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("manyways"),
        None => std::env::temp_dir().join(format!("manyways-{}", sandbox::user_id())),
    }
}

fn prepare(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    // In /tmp anybody could have made it before.
    if !found.is_dir() || found.uid() != sandbox::user_id() {
        let sentence = format!("{} belongs to another user", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence));
    }
    Ok(())
}

fn place(folder: &Path, end: End, name: &str) -> Result<PathBuf, ControlError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
        return Err(ControlError::Name(name.to_owned()));
    }
    Ok(folder.join(format!("bond-{}-{name}.socket", end.word())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_socket_or_a_folder_of_its_own_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let is = |end, name| is_within(folder.path(), end, name);
        assert!(!is(End::Client, "default") && !is(End::Gateway, "default"));
        File::create(folder.path().join("bond-client-default.socket")).unwrap();
        fs::create_dir(folder.path().join("bond-gateway-default")).unwrap();
        assert!(is(End::Client, "default") && is(End::Gateway, "default"));
        assert!(!is(End::Client, "other") && !is(End::Client, "../default"));
    }
}
