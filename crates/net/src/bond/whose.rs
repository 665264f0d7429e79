//! Whose a flow is: asked on a thread of its own, since it means to look through `/proc`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use manyways_sys::process::{Owner, Owners, Protocol};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A flow waits so long for the answer, and is nobody's then.
const PATIENCE: Duration = Duration::from_millis(250);
/// So many questions wait; with more, the newest have no answer.
const WAITING: usize = 64;
/// Users whose names are remembered.
const USERS: usize = 256;

/// Looks owners up.
pub(super) struct Whose {
    questions: Option<SyncSender<Question>>,
    users: RefCell<HashMap<u32, Option<String>>>,
}

struct Question {
    local: SocketAddr,
    remote: SocketAddr,
    protocol: Protocol,
    answer: oneshot::Sender<Option<Owner>>,
}

impl Whose {
    /// Starts the thread, in the network namespace of the caller.
    pub(super) fn new() -> Self {
        let (questions, asked) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("bond-owners".into());
        let started = thread.spawn(move || answer(&asked));
        if let Err(error) = &started {
            tracing::warn!("nobody can look for the owners of connections: {error}");
        }
        Self { questions: started.is_ok().then_some(questions), users: RefCell::default() }
    }

    /// Whose the socket at `local` is, which talks to `remote`; none where that is not found out
    /// soon.
    pub(super) async fn find(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        protocol: Protocol,
    ) -> Option<Owner> {
        let (answer, answered) = oneshot::channel();
        let question = Question { local, remote, protocol, answer };
        self.questions.as_ref()?.try_send(question).ok()?;
        timeout(PATIENCE, answered).await.ok()?.ok()?
    }

    /// The name of a user.
    pub(super) fn user(&self, uid: u32) -> Option<String> {
        let mut users = self.users.borrow_mut();
        if users.len() >= USERS {
            users.clear();
        }
        users.entry(uid).or_insert_with(|| name_of(uid)).clone()
    }
}

fn answer(asked: &Receiver<Question>) {
    let mut owners = Owners::default();
    while let Ok(question) = asked.recv() {
        // Nobody waits for it any more.
        if question.answer.is_closed() {
            continue;
        }
        let found = owners.find(question.local, question.remote, question.protocol);
        let owner = found.unwrap_or_else(|error| {
            tracing::debug!("whose {} is: {error}", question.local);
            None
        });
        let _ = question.answer.send(owner);
    }
}

pub(super) fn name_of(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_connection_of_ours_is_found_and_one_that_is_not_there_is_not() {
        let whose = Whose::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = listener.local_addr().unwrap();
        let near = TcpStream::connect(remote).unwrap();
        let local = near.local_addr().unwrap();
        let owner = whose.find(local, remote, Protocol::Tcp).await.unwrap();
        assert_eq!(owner.process.unwrap().pid, std::process::id() as i32);
        assert_eq!(whose.user(0).as_deref(), Some("root"));
        let nowhere = "127.0.0.1:1".parse().unwrap();
        assert_eq!(whose.find(local, nowhere, Protocol::Tcp).await, None);
    }
}
