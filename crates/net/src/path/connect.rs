//! TCP connections over a path to a server.

use std::io;
use std::net::{IpAddr, SocketAddr};

use manyways_proto::happy_eyeballs::Config;
use tokio::net::TcpStream;

use super::{LookupError, PathSpec, RaceError, SharedAddresses, plain, race, socket};

/// Why a path has no connection to a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The interface of the path is down.
    #[error("its link is down")]
    LinkDown,
    /// The name has no addresses.
    #[error(transparent)]
    Unresolved(#[from] LookupError),
    /// The server has only addresses of families that the path does not have.
    #[error("{host} and this network have no address family in common")]
    NoAddress { host: String },
    /// The caller permits no connection to any of the server's addresses; this is one of them.
    #[error("{host} has the address {address}, to which connections are not permitted")]
    Forbidden { host: String, address: IpAddr },
    /// No address accepts a connection; this is the last error.
    #[error("no connection to {0}: {error}", error = plain(.1))]
    Tcp(SocketAddr, #[source] io::Error),
    /// No connection was attempted.
    #[error("no address to connect to")]
    NotAttempted,
}

/// Connects a path to a server, a name or an address, at an address from the path's own name
/// servers. Connects speculatively to the addresses that another path has resolved: `answers` are
/// the results of all paths. Returns the connection and the server's address. The caller sets the
/// timeout.
///
/// # Errors
/// [`ConnectError`] contains the cause.
pub async fn connect(
    path: &PathSpec,
    host: &str,
    port: u16,
    answers: &SharedAddresses,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
    connect_if(path, host, port, answers, |_| true).await
}

/// As [`connect`], but only to addresses that `permits` accepts, from whichever name server they come.
///
/// # Errors
/// [`ConnectError`] contains the cause.
pub async fn connect_if(
    path: &PathSpec,
    host: &str,
    port: u16,
    answers: &SharedAddresses,
    permits: impl Fn(IpAddr) -> bool,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
    if !path.has_carrier() {
        return Err(ConnectError::LinkDown);
    }
    let config = Config::default();
    let literal: Option<IpAddr> = host.parse().ok();
    let select = |addresses: &[IpAddr]| -> Vec<SocketAddr> {
        let usable = |address| path.has_family(address) && permits(address);
        let selected = config.select(addresses, usable);
        selected.into_iter().map(|address| SocketAddr::new(address, port)).collect()
    };
    let own = async {
        let found = match literal {
            Some(address) => vec![address],
            None => {
                let own = path.resolver.lookup(host).await?;
                answers.insert(host, &own);
                own
            }
        };
        let servers = select(&found);
        let forbidden = found.into_iter().find(|address| !permits(*address));
        match (servers.is_empty(), forbidden) {
            (true, Some(address)) => {
                Err(ConnectError::Forbidden { host: host.to_owned(), address })
            }
            (true, None) => Err(ConnectError::NoAddress { host: host.to_owned() }),
            (false, _) => Ok(servers),
        }
    };
    let other = async {
        match literal {
            Some(_) => std::future::pending().await,
            None => select(&answers.wait_for(host).await),
        }
    };
    let attempt = |server| async move {
        let failed = |error| ConnectError::Tcp(server, error);
        socket(path, server).map_err(failed)?.connect(server).await.map_err(failed)
    };
    race(config, own, other, attempt, |_| false).await.map_err(|error| match error {
        RaceError::Failed(Some(error)) => error,
        RaceError::Failed(None) | RaceError::TimedOut => ConnectError::NotAttempted,
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;
    use crate::path::{Lookup, Names};

    /// A name server that answers when it is notified.
    struct SlowResolver(tokio::sync::Notify, Result<Vec<IpAddr>, LookupError>);

    impl Names for SlowResolver {
        fn lookup<'a>(&'a self, _: &'a str) -> Lookup<'a> {
            Box::pin(async {
                self.0.notified().await;
                self.1.clone()
            })
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn path(names: Arc<dyn Names>) -> PathSpec {
        PathSpec { resolver: names, ..PathSpec::from_address("a", address("127.0.0.9")) }
    }

    async fn listener(address: &str) -> (TcpListener, u16) {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// The path's own name server answers only after the speculative connection was accepted.
    #[tokio::test]
    async fn what_another_path_heard_is_knocked_at() {
        let (listener, port) = listener("127.0.0.1").await;
        let own = vec![address("127.0.0.2"), address("127.0.0.1")];
        let names = Arc::new(SlowResolver(tokio::sync::Notify::new(), Ok(own)));
        let (path, answers) = (path(names.clone()), SharedAddresses::default());
        let server = async {
            let (stream, from) = listener.accept().await.unwrap();
            names.0.notify_one();
            (stream, from)
        };
        answers.insert("other.test", &[address("127.0.0.3")]);
        let tell = async { answers.insert("a.test", &[address("127.0.0.1")]) };
        let connecting = connect(&path, "a.test", port, &answers);
        let (reached, (_, from), ()) = tokio::join!(connecting, server, tell);
        let (stream, server) = reached.unwrap();
        assert_eq!(server, listener.local_addr().unwrap());
        // The speculative connection is used, and there was no second one.
        assert_eq!(stream.local_addr().unwrap(), from);
        assert!(is_pending(listener.accept()).await);
    }

    /// Whether a future is not ready immediately.
    async fn is_pending<T>(future: impl Future<Output = T>) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = tokio::task::yield_now() => true,
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_the_paths_own_is_left() {
        let (other, port) = listener("127.0.0.1").await;
        let mine = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let names =
            Arc::new(SlowResolver(tokio::sync::Notify::new(), Ok(vec![address("127.0.0.2")])));
        let (path, answers) = (path(names.clone()), SharedAddresses::default());
        answers.insert("a.test", &[address("127.0.0.1")]);
        let server = async {
            let knocked = other.accept().await.unwrap();
            names.0.notify_one();
            knocked
        };
        let connecting = connect(&path, "a.test", port, &answers);
        let (reached, (mut left, _)) = tokio::join!(connecting, server);
        assert_eq!(reached.unwrap().1, mine.local_addr().unwrap());
        let mut said = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut left, &mut said).await.unwrap();
        assert!(said.is_empty());
    }

    #[tokio::test]
    async fn a_path_without_names_fails_though_another_has_them() {
        let (_listener, port) = listener("127.0.0.1").await;
        let none = LookupError::Unknown { host: "a.test".into() };
        let names = Arc::new(SlowResolver(tokio::sync::Notify::new(), Err(none)));
        names.0.notify_one();
        let (path, answers) = (path(names), SharedAddresses::default());
        answers.insert("a.test", &[address("127.0.0.1")]);
        let error = connect(&path, "a.test", port, &answers).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unresolved(_)), "{error}");
    }
}
