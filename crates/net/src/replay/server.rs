//! Connections of all protocols, on a thread of their own.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::BytesMut;
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::alarm::Alarm;
use super::contents::Contents;
use super::log::{Log, Served};
use super::responder::{Options, Responder};
use super::service::{Peer, Service};
use super::tls::{Certificates, MAX_HANDSHAKE, Servers};
use super::{http1, http2};

/// Open connections; further ones are closed at once.
pub const MAX_CONNECTIONS: usize = 10_000;
/// First byte of a TLS handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
/// Threads that read bodies of the archive. A body that is read in pieces has one until its end.
const READERS: usize = 256;
/// Wait after a failed `accept`, which fails while descriptors are short.
const RETRY: Duration = Duration::from_millis(20);

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    front: Arc<Front>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Accepts connections.
#[derive(Debug)]
struct Front {
    service: Arc<Service>,
    tls: Servers,
    connections: AtomicU64,
    /// One for each connection that may be open.
    places: Arc<Semaphore>,
}

impl Server {
    /// Answers on sockets that listen, on a new thread. Each may have any address; that to which a client
    /// connected identifies the recorded server. Connections belong to the network namespace of their
    /// socket. A client begins with TLS, HTTP/1 or the preface of HTTP/2, on any port.
    ///
    /// # Errors
    /// The system has no descriptors or threads left.
    pub fn start(
        contents: Arc<Contents>,
        options: Options,
        certificates: Arc<dyn Certificates>,
        listeners: Vec<StdListener>,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(READERS)
            .thread_name("replay-bodies")
            .build()?;
        let clock = Clock::start();
        let epoch = clock.epoch();
        let tls = Servers::new(contents.connections(), certificates);
        let responder = Responder::new(contents, options, Time::ZERO + epoch);
        let within = runtime.enter();
        let (alarm, ring) = Alarm::new(clock)?;
        let listen = |listener: StdListener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let listeners: Vec<TcpListener> =
            listeners.into_iter().map(listen).collect::<io::Result<_>>()?;
        drop(within);
        let service = Arc::new(Service { responder, alarm, clock, epoch, log: Log::default() });
        let front = Arc::new(Front {
            service,
            tls,
            connections: AtomicU64::new(0),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("replay".to_owned()).spawn({
            let front = front.clone();
            move || run(runtime, front, listeners, ring, stopped)
        })?;
        Ok(Self { front, stop: Some(stop), thread: Some(thread) })
    }

    /// Time since the start, the origin of the times of [`Served`].
    pub fn now(&self) -> Time {
        self.front.service.clock.now()
    }

    /// From 1970 to the start.
    pub fn epoch(&self) -> Span {
        self.front.service.epoch
    }

    /// Takes the requests that were served since the last call, in the order of their ends, and the number
    /// of those for which there was no place ([`MAX_SERVED`](super::MAX_SERVED)).
    pub fn take_served(&self) -> (Vec<Served>, u64) {
        self.front.service.log.take()
    }

    /// Ends all connections, and returns what [`take_served`](Self::take_served) would.
    pub fn stop(mut self) -> (Vec<Served>, u64) {
        self.end();
        self.take_served()
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended with an error of its timer.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the replay panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a server until it is stopped.
fn run(
    runtime: Runtime,
    front: Arc<Front>,
    listeners: Vec<TcpListener>,
    ring: impl Future<Output = io::Error>,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        for listener in listeners {
            tokio::spawn(accept(front.clone(), listener));
        }
        tokio::select! {
            error = ring => tracing::error!("the timer of the replay failed: {error}"),
            _ = stopped => {}
        }
    });
    // A thread that reads a body ends when it finds that the connection is gone.
    runtime.shutdown_background();
}

async fn accept(front: Arc<Front>, listener: TcpListener) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("no connection was accepted: {error}");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let number = front.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(place) = front.places.clone().try_acquire_owned() else { continue };
        let front = front.clone();
        tokio::spawn(async move {
            if let Err(error) = front.serve(stream, number).await {
                tracing::debug!("connection {number}: {error}");
            }
            drop(place);
        });
    }
}

impl Front {
    async fn serve(&self, stream: TcpStream, number: u64) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let address = stream.local_addr()?;
        // A socket for both versions of IP has IPv4 addresses in IPv6 ones.
        let server = SocketAddr::new(address.ip().to_canonical(), address.port());
        let mut start = [0; 4];
        let count = timeout(MAX_HANDSHAKE, stream.peek(&mut start)).await??;
        let is_tls = start.first() == Some(&HANDSHAKE) && count > 0;
        let scheme = if is_tls { "https" } else { "http" };
        let peer = Peer { number, server, scheme };
        if is_tls {
            let (stream, is_http2) = self.tls.accept(server, stream).await?;
            self.serve_http(peer, stream, is_http2).await;
        } else {
            // No method of HTTP/1 begins like the preface (RFC 9113, 3.4).
            self.serve_http(peer, stream, &start == b"PRI ").await;
        }
        Ok(())
    }

    async fn serve_http<S>(&self, peer: Peer, stream: S, is_http2: bool)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        match is_http2 {
            true => http2::serve(&self.service, &peer, stream).await,
            false => http1::serve(&self.service, &peer, stream, BytesMut::new()).await,
        }
    }
}

#[cfg(test)]
mod tests;
