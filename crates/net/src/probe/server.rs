//! A probe server: the far end of throughput, burst and load probes.
//!
//! A client must prove to own a key of the allow file. Without it, a connection ends in the TLS
//! handshake, and a datagram is not answered. Data are sent only over a TCP connection, or to an
//! address from which a token came, so that a client cannot direct them to another host.

mod admission;
mod measurement;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyways_sys::clock::Clock;
use manyways_sys::socket::set_receive_buffer;
use manyways_unit::Time;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::admission::Admission;
pub use self::admission::ServerLimits;
use self::measurement::Measurement;
use super::peer::client::RECEIVE_BUFFER;
use super::peer::line::LineReader;
use super::peer::message::{Order, PROTOCOL, Reply, encode};
use super::peer::token::{MAGIC, TCP_HEAD, Token};
use crate::bond::{AllowFile, PrivateKey, PublicKey, peer_key, server_tls};

/// Time in which a connection must name its purpose.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without an order after which a control connection ends.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(300);
/// Connections at a time, so that strangers cannot use up descriptors.
const MAX_CONNECTIONS: usize = 256;
/// Datagrams of a measurement that wait to be counted.
const MAX_WAITING_DATAGRAMS: usize = 4_096;

/// Parameters of a server.
#[derive(Debug)]
pub struct ServerOptions {
    /// Address of the TCP and of the UDP port.
    pub listen: SocketAddr,
    pub key: PrivateKey,
    pub allow: AllowFile,
    pub limits: ServerLimits,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error("cannot listen on {0}: {error}", error = crate::path::plain(.1))]
    Listen(SocketAddr, #[source] io::Error),
    #[error("the key cannot be used: {0}")]
    Key(#[from] rustls::Error),
}

/// A server whose ports are open.
pub struct Server {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    state: Arc<State>,
}

/// A datagram of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    from: SocketAddr,
    sequence: u64,
    /// By the clock of the client.
    nanos: u64,
    received: Time,
}

/// A measurement whose data have a token.
enum Expected {
    /// A connection of data.
    Stream(oneshot::Sender<TcpStream>),
    Datagrams(mpsc::Sender<Datagram>),
    /// Datagrams to be answered, and how many more.
    Echoes(u64),
}

pub(super) struct State {
    clock: Clock,
    allow: AllowFile,
    admission: Mutex<Admission<PublicKey>>,
    expected: Mutex<HashMap<Token, Expected>>,
    udp: UdpSocket,
    /// Datagrams for which a measurement had no room.
    dropped: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Opens the ports. The UDP port has the number of the TCP port.
    ///
    /// # Errors
    /// A port is in use, or the key is unusable.
    pub async fn bind(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { listen, key, allow, limits } = options;
        let failed = |error| ServerError::Listen(listen, error);
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let udp = UdpSocket::bind(address).await.map_err(failed)?;
        let _ = set_receive_buffer(udp.as_fd(), RECEIVE_BUFFER);
        let known = allow.clone();
        let accept = move |key: &PublicKey| known.clients().find(key).is_some();
        let tls = server_tls(&key, Arc::new(accept), &[PROTOCOL])?;
        let state = State {
            clock: Clock::start(),
            allow,
            admission: Mutex::new(Admission::new(limits)),
            expected: Mutex::default(),
            udp,
            dropped: AtomicU64::new(0),
        };
        Ok(Self { listener, acceptor: TlsAcceptor::from(tls), state: Arc::new(state) })
    }

    /// The address of both ports.
    ///
    /// # Errors
    /// Of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is ready.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, acceptor, state } = self;
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let accept = async {
            loop {
                // Without a free slot, connections wait in the kernel.
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
                let Ok((stream, from)) = listener.accept().await else {
                    // For example, no free descriptor: one may be free soon.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (state, acceptor) = (Arc::clone(&state), acceptor.clone());
                tokio::spawn(async move {
                    if let Err(reason) = state.serve(acceptor, stream).await {
                        tracing::info!("{from}: {reason}");
                    }
                    drop(slot);
                });
            }
        };
        tokio::select! {
            () = accept => {}
            () = state.datagrams() => {}
            () = stop => {}
        }
    }
}

impl State {
    async fn serve(
        self: Arc<Self>,
        acceptor: TlsAcceptor,
        mut stream: TcpStream,
    ) -> io::Result<()> {
        let mut start = [0; MAGIC.len()];
        let looked = timeout(HANDSHAKE_TIMEOUT, peek(&stream, &mut start)).await;
        looked.map_err(|_| io::ErrorKind::TimedOut)??;
        if start == MAGIC {
            let mut head = [0; TCP_HEAD];
            let read = timeout(HANDSHAKE_TIMEOUT, stream.read_exact(&mut head)).await;
            read.map_err(|_| io::ErrorKind::TimedOut)??;
            let token = Token::from_tcp_head(&head);
            let expected = token.and_then(|token| lock(&self.expected).remove(&token));
            if let Some(Expected::Stream(sender)) = expected {
                // The measurement may have ended.
                let _ = sender.send(stream);
            }
            return Ok(());
        }
        let accepted = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        let stream = accepted.map_err(|_| io::ErrorKind::TimedOut)??;
        let key = peer_key(stream.get_ref().1.peer_certificates());
        let key = key.ok_or_else(|| io::Error::other("the client has no key"))?;
        self.control(key, stream).await
    }

    /// Serves the orders of a client, one after the other.
    async fn control(
        self: Arc<Self>,
        key: PublicKey,
        stream: TlsStream<TcpStream>,
    ) -> io::Result<()> {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = LineReader::new(reader);
        loop {
            let order = timeout(CONTROL_TIMEOUT, lines.next::<Order>()).await;
            let Some(order) = order.map_err(|_| io::ErrorKind::TimedOut)?? else { return Ok(()) };
            if order == Order::Stop {
                continue;
            }
            // The key may have been removed since the handshake.
            let Some(rate) = self.allow.clients().find(&key).map(|client| client.limits.rate)
            else {
                return Ok(());
            };
            let now = self.clock.now();
            let grant = lock(&self.admission).begin(now, key, &order, rate);
            let grant = match grant {
                Ok(grant) => grant,
                Err(refusal) => {
                    send(&mut writer, &Reply::Refused { reason: refusal.to_string() }).await?;
                    continue;
                }
            };
            let mut measurement = Measurement::new(Arc::clone(&self), key, order, grant);
            // Every way out of here ends the measurement, by its drop.
            let (replies, mut outgoing) = mpsc::channel(64);
            let mut running = Box::pin(measurement.run(replies));
            let mut is_over = false;
            loop {
                tokio::select! {
                    () = &mut running, if !is_over => is_over = true,
                    reply = outgoing.recv() => match reply {
                        Some(reply) => send(&mut writer, &reply).await?,
                        None if is_over => break,
                        None => {}
                    },
                    order = lines.next::<Order>() => match order? {
                        Some(Order::Stop) => break,
                        Some(_) => {
                            let reason = "another measurement of this client runs".to_owned();
                            send(&mut writer, &Reply::Refused { reason }).await?;
                        }
                        None => return Ok(()),
                    },
                }
            }
            drop(running);
            send(&mut writer, &measurement.ended()).await?;
        }
    }

    /// Passes datagrams with a known token to their measurements; drops all others.
    async fn datagrams(&self) {
        let mut buffer = vec![0; 2_048];
        loop {
            let Ok((length, from)) = self.udp.recv_from(&mut buffer).await else { continue };
            let received = self.clock.now();
            let Some(datagram) = buffer.get(..length) else { continue };
            let Some((token, sequence, nanos)) = Token::read_datagram(datagram) else { continue };
            let mut expected = lock(&self.expected);
            match expected.get_mut(&token) {
                Some(Expected::Datagrams(sender)) => {
                    let datagram = Datagram { from, sequence, nanos, received };
                    if sender.try_send(datagram).is_err() {
                        self.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Some(Expected::Echoes(rest)) if *rest > 0 => {
                    *rest -= 1;
                    drop(expected);
                    let _ = self.udp.try_send_to(datagram, from);
                }
                _ => {}
            }
        }
    }
}

/// Sends a message. A client that reads none is given up.
async fn send(writer: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let line = encode(reply);
    let sent = async {
        writer.write_all(&line).await?;
        writer.flush().await
    };
    timeout(HANDSHAKE_TIMEOUT, sent).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Waits for the first bytes of a connection, which remain to be read.
async fn peek(stream: &TcpStream, start: &mut [u8]) -> io::Result<()> {
    loop {
        let length = stream.peek(start).await?;
        match length {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length if length == start.len() => return Ok(()),
            // The kernel reports the same bytes again at once.
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[cfg(test)]
mod tests;
