//! Finds the process that owns a flow. A separate thread does this, because it reads `/proc`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use manyways_proto::bond::io_limits::IoLimits;
use manyways_sys::process::{Owner, OwnerLookup, Protocol};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum remembered user names.
const MAX_USERS: usize = 256;

/// Looks up the owners of sockets.
pub(super) struct ProcessLookup {
    queries: Option<SyncSender<OwnerQuery>>,
    users: RefCell<HashMap<u32, Option<String>>>,
    limits: IoLimits,
}

struct OwnerQuery {
    local: SocketAddr,
    remote: SocketAddr,
    protocol: Protocol,
    answer: oneshot::Sender<Option<Owner>>,
}

impl ProcessLookup {
    /// Starts the thread, in the network namespace of the caller.
    pub(super) fn new(limits: IoLimits) -> Self {
        let (queries, received) = sync_channel(limits.owner_lookups);
        let thread = std::thread::Builder::new().name("bond-owners".into());
        let started = thread.spawn(move || run_lookups(&received));
        if let Err(error) = &started {
            tracing::warn!("cannot start the process lookup: {error}");
        }
        Self { queries: started.is_ok().then_some(queries), users: RefCell::default(), limits }
    }

    /// Returns the owner of the socket at `local` that is connected to `remote`; `None` if the
    /// owner is not found within `IoLimits::owner_lookup`.
    pub(super) async fn find(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        protocol: Protocol,
    ) -> Option<Owner> {
        let (answer, answered) = oneshot::channel();
        let query = OwnerQuery { local, remote, protocol, answer };
        self.queries.as_ref()?.try_send(query).ok()?;
        timeout(Duration::from(self.limits.owner_lookup), answered).await.ok()?.ok()?
    }

    /// Returns the name of a user; `None` if unknown.
    pub(super) fn user_name(&self, uid: u32) -> Option<String> {
        let mut users = self.users.borrow_mut();
        if users.len() >= MAX_USERS {
            users.clear();
        }
        users.entry(uid).or_insert_with(|| name_of(uid)).clone()
    }
}

fn run_lookups(queries: &Receiver<OwnerQuery>) {
    let mut owners = OwnerLookup::default();
    while let Ok(query) = queries.recv() {
        // The flow no longer waits for the result.
        if query.answer.is_closed() {
            continue;
        }
        let found = owners.find(query.local, query.remote, query.protocol);
        let owner = found.unwrap_or_else(|error| {
            tracing::debug!("cannot find the owner of {}: {error}", query.local);
            None
        });
        let _ = query.answer.send(owner);
    }
}

/// Returns the name of a user in `/etc/passwd`.
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
    async fn the_owner_of_a_connection_is_found() {
        let lookup = ProcessLookup::new(IoLimits::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = listener.local_addr().unwrap();
        let near = TcpStream::connect(remote).unwrap();
        let local = near.local_addr().unwrap();
        let owner = lookup.find(local, remote, Protocol::Tcp).await.unwrap();
        assert_eq!(owner.process.unwrap().pid, std::process::id() as i32);
        assert_eq!(lookup.user_name(0).as_deref(), Some("root"));
        let nowhere = "127.0.0.1:1".parse().unwrap();
        assert_eq!(lookup.find(local, nowhere, Protocol::Tcp).await, None);
    }
}
