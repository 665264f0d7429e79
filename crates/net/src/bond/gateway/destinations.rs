//! Connections of the gateway to the destinations of its clients.

use std::future::{pending, ready};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use manyways_proto::happy_eyeballs;
use manyways_proto::mux::{Destination, Input, ResetCode, StreamId};
use manyways_unit::Span;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{State, is_out_of_descriptors};
use crate::bond::client_tasks::ClientTasks;
use crate::bond::descriptors::{ClientDescriptors, Descriptor};
use crate::bond::key::PublicKey;
use crate::bond::session::SessionHandle;
use crate::path::{RaceError, race};

impl State {
    pub(super) async fn connect(
        &self,
        (descriptors, tasks): (&ClientDescriptors, &ClientTasks),
        client: &str,
        handle: &SessionHandle,
        stream: StreamId,
        target: Destination,
    ) {
        let limit = Duration::from(self.limits.server_connect);
        match timeout(limit, self.connect_destination(descriptors, tasks, &target))
            .await
            .unwrap_or(Err(ResetCode::Timeout))
        {
            Ok((socket, descriptor)) => {
                tracing::debug!("{client}: connected to {target}");
                handle.handle(Input::Opened { stream });
                handle.attach_socket(stream, socket, Some(descriptor));
            }
            Err(code) => {
                if code != ResetCode::Limit {
                    tracing::info!("{client}: cannot connect to {target}: {code}");
                } else if self.is_shortage_news(descriptors.key()) {
                    let own = descriptors.used();
                    let (total, used) = self.descriptors.counts();
                    tracing::warn!(
                        "{client}: connections are refused: it has {own} descriptors, and {} of \
                         {total} are free for other clients",
                        total - used
                    );
                }
                handle.refuse(stream, code);
            }
        }
    }

    /// Whether the shortage of a client was not logged in the last minute.
    pub(super) fn is_shortage_news(&self, key: PublicKey) -> bool {
        let now = self.clock.now();
        let mut logged = self.shortages.borrow_mut();
        let is_news = logged.get(&key).is_none_or(|at| now.since(*at) >= Span::from_secs(60));
        if is_news {
            logged.insert(key, now);
        }
        is_news
    }

    async fn connect_destination(
        &self,
        descriptors: &ClientDescriptors,
        tasks: &ClientTasks,
        target: &Destination,
    ) -> Result<(TcpStream, Descriptor), ResetCode> {
        let addresses = self.permitted_addresses(tasks, target).await?;
        let config = happy_eyeballs::Config::default();
        let addresses = ready(Ok(addresses));
        let connect = |to| async move {
            let descriptor = descriptors.take().ok_or(ResetCode::Limit)?;
            match TcpStream::connect(to).await {
                Ok(socket) => Ok((socket, descriptor)),
                Err(error) => Err(reset_code(&error)),
            }
        };
        let raced = race(config, addresses, pending(), connect, |_| false).await;
        raced.map(|(connection, _)| connection).map_err(|error| match error {
            RaceError::TimedOut => ResetCode::Timeout,
            RaceError::Failed(code) => code.unwrap_or(ResetCode::Unreachable),
        })
    }

    /// Returns the addresses of a target to which clients are allowed to connect.
    async fn permitted_addresses(
        &self,
        tasks: &ClientTasks,
        target: &Destination,
    ) -> Result<Vec<SocketAddr>, ResetCode> {
        let found: Vec<SocketAddr> = match target {
            Destination::Address(address, port) => vec![SocketAddr::new(*address, *port)],
            Destination::Name(name, port) => {
                let _turn = tasks.lookup().await;
                match tokio::net::lookup_host((name.as_str(), *port)).await {
                    Ok(found) => {
                        found.take(happy_eyeballs::Config::default().max_addresses).collect()
                    }
                    Err(_) => return Err(ResetCode::NameNotFound),
                }
            }
        };
        let own = self.own_addresses.borrow();
        let permits = |to: &SocketAddr| self.egress.permits(&own, to.ip());
        let permitted: Vec<SocketAddr> = found.iter().copied().filter(permits).collect();
        match (found.is_empty(), permitted.is_empty()) {
            (true, _) => Err(ResetCode::NameNotFound),
            (false, true) => Err(ResetCode::Forbidden),
            (false, false) => Ok(permitted),
        }
    }

    pub(super) async fn first_address(
        &self,
        tasks: &ClientTasks,
        target: &Destination,
    ) -> Option<SocketAddr> {
        // A datagram is not worth the wait: the session carries nothing meanwhile.
        if matches!(target, Destination::Name(..)) && !tasks.has_lookups() {
            return None;
        }
        self.permitted_addresses(tasks, target).await.ok()?.first().copied()
    }
}

fn reset_code(error: &io::Error) -> ResetCode {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ResetCode::Refused,
        io::ErrorKind::TimedOut => ResetCode::Timeout,
        _ if is_out_of_descriptors(error) => ResetCode::Limit,
        _ => ResetCode::Unreachable,
    }
}
