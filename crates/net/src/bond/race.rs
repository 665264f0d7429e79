//! Connecting to one of a host's addresses, as [`HappyEyeballs`] decides.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;

use manyways_proto::bond::happy_eyeballs::{Config, HappyEyeballs, Input, Output};
use manyways_sys::clock::Clock;
use tokio::task::{AbortHandle, JoinSet};

use super::timer;

/// The failure to connect to any address.
#[derive(Debug)]
pub(super) enum RaceError<E> {
    /// Every attempt failed: the last error, or `None` if all attempts timed out.
    Failed(Option<E>),
    /// The time limit of all attempts together has passed.
    TimedOut,
}

/// Connects to the first of `addresses` that answers. A failure for which `is_final` is true ends
/// all attempts. Runs the attempts as local tasks.
pub(super) async fn connect<T, E, F>(
    addresses: impl IntoIterator<Item = SocketAddr>,
    config: Config,
    attempt: impl Fn(SocketAddr) -> F,
    is_final: impl Fn(&E) -> bool,
) -> Result<T, RaceError<E>>
where
    T: 'static,
    E: 'static,
    F: Future<Output = Result<T, E>> + 'static,
{
    let clock = Clock::start();
    let mut race = HappyEyeballs::new(clock.now(), addresses, config);
    let mut attempts = JoinSet::new();
    let mut handles: HashMap<SocketAddr, AbortHandle> = HashMap::new();
    let mut last = None;
    loop {
        while let Some(output) = race.poll(clock.now()) {
            match output {
                Output::Connect(address) => {
                    let connecting = attempt(address);
                    let task = attempts.spawn_local(async move { (address, connecting.await) });
                    handles.insert(address, task);
                }
                Output::Abandon(address) => {
                    if let Some(task) = handles.remove(&address) {
                        task.abort();
                    }
                }
                Output::Exhausted => return Err(RaceError::Failed(last)),
                Output::TimedOut => return Err(RaceError::TimedOut),
            }
        }
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok((_, Ok(connection))) => return Ok(connection),
                Ok((_, Err(error))) if is_final(&error) => {
                    return Err(RaceError::Failed(Some(error)));
                }
                Ok((address, Err(error))) => {
                    last = Some(error);
                    handles.remove(&address);
                    race.handle(clock.now(), Input::Failed(address));
                }
                // An abandoned attempt.
                Err(_) => {}
            },
            () = timer::until(&clock, race.next_wakeup()) => {}
        }
    }
}
