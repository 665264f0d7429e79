//! Connection attempts to a server's addresses, as [`HappyEyeballs`] decides.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

use manyways_proto::happy_eyeballs::{Config, HappyEyeballs, Input, Output};
use manyways_unit::{Span, Time};
use tokio::time::{Instant, sleep_until};

/// The failure to connect to any address.
#[derive(Debug)]
#[non_exhaustive]
pub enum RaceError<E> {
    /// Every attempt failed: the last error, or `None` if there was no attempt or all timed out.
    Failed(Option<E>),
    /// The time limit of all attempts together has passed.
    TimedOut,
}

/// Connects to one of the addresses in `own`. While `own` is not ready, connects speculatively to
/// the addresses in `other`, which another path has resolved. An error of `own`, or of an attempt
/// if `is_final` is true for it, ends all attempts.
///
/// # Errors
/// [`RaceError`] contains the last error.
pub async fn race<T, E, F>(
    config: Config,
    own: impl Future<Output = Result<Vec<SocketAddr>, E>>,
    other: impl Future<Output = Vec<SocketAddr>>,
    attempt: impl Fn(SocketAddr) -> F,
    is_final: impl Fn(&E) -> bool,
) -> Result<(T, SocketAddr), RaceError<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let started = Instant::now();
    let now = || Time::ZERO + Span::from(started.elapsed());
    let mut core = HappyEyeballs::new(config);
    let mut running: Vec<(SocketAddr, Pin<Box<F>>)> = Vec::new();
    let mut connected: Vec<(SocketAddr, T)> = Vec::new();
    let mut last_error = None;
    let (mut has_own, mut has_other) = (false, false);
    tokio::pin!(own, other);
    loop {
        while let Some(output) = core.poll(now()) {
            match output {
                Output::Connect(address) => running.push((address, Box::pin(attempt(address)))),
                Output::Abandon(address) => {
                    running.retain(|(other, _)| *other != address);
                    connected.retain(|(other, _)| *other != address);
                }
                Output::Use(address) => {
                    let at = connected.iter().position(|(other, _)| *other == address);
                    let used = at.map(|at| connected.swap_remove(at));
                    let (_, connection) = used.ok_or(RaceError::Failed(last_error))?;
                    return Ok((connection, address));
                }
                Output::Exhausted => return Err(RaceError::Failed(last_error)),
                Output::TimedOut => return Err(RaceError::TimedOut),
            }
        }
        let wakeup = core.next_wakeup();
        let timer = async {
            match wakeup {
                Some(at) => sleep_until(started + at.since(Time::ZERO).into()).await,
                None => std::future::pending().await,
            }
        };
        let input = tokio::select! {
            biased;
            own = &mut own, if !has_own => {
                has_own = true;
                Input::OwnAddresses(own.map_err(|error| RaceError::Failed(Some(error)))?)
            }
            other = &mut other, if !has_own && !has_other => {
                has_other = true;
                Input::OtherAddresses(other)
            }
            (address, ended) = next_ended(&mut running) => match ended {
                Ok(connection) => {
                    connected.push((address, connection));
                    Input::Connected(address)
                }
                Err(error) if is_final(&error) => return Err(RaceError::Failed(Some(error))),
                Err(error) => {
                    last_error = Some(error);
                    Input::Failed(address)
                }
            },
            () = timer => continue,
        };
        core.handle(now(), input);
    }
}

/// Returns the next attempt that ends; pending while none is running.
async fn next_ended<T, E, F>(
    running: &mut Vec<(SocketAddr, Pin<Box<F>>)>,
) -> (SocketAddr, Result<T, E>)
where
    F: Future<Output = Result<T, E>>,
{
    poll_fn(|context| {
        for at in 0..running.len() {
            if let Poll::Ready(ended) = running[at].1.as_mut().poll(context) {
                return Poll::Ready((running.swap_remove(at).0, ended));
            }
        }
        Poll::Pending
    })
    .await
}
