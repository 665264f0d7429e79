//! A client that takes as many connections as it can.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Measurement;
use super::crowd::open_one;
use super::dial::Dialer;

/// Try to open connections until standard input ends, and keep those that open; the value is how
/// many attempts ended in the last second.
#[derive(clap::Args)]
pub struct Greedy {
    /// How many attempts at once.
    #[arg(long, value_name = "N")]
    at_once: usize,
}

const LAST_SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Taken {
    open: Vec<TcpStream>,
    /// Ends of the attempts.
    ends: Vec<Instant>,
}

impl Greedy {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let taken = Rc::new(RefCell::new(Taken::default()));
        let mut attempts = JoinSet::new();
        for _ in 0..self.at_once {
            attempts.spawn_local(take(dialer.clone(), Rc::clone(&taken)));
        }
        let input_end = || io::copy(&mut io::stdin(), &mut io::sink());
        tokio::task::spawn_blocking(input_end).await.map_err(io::Error::other)??;
        let taken = taken.borrow();
        let held = taken.open.iter().filter(|stream| is_open(stream)).count();
        Ok(Measurement {
            value: recent(&taken.ends, Instant::now()) as f64,
            extra: [("held".to_owned(), held as f64)].into(),
            ..Measurement::default()
        })
    }
}

async fn take(dialer: Dialer, taken: Rc<RefCell<Taken>>) {
    loop {
        let opened = open_one(&dialer).await;
        let mut taken = taken.borrow_mut();
        taken.ends.push(Instant::now());
        taken.open.extend(opened);
    }
}

/// Whether the other end has not closed a connection over which nothing more comes.
fn is_open(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// How many of these were in the last second.
fn recent(ends: &[Instant], now: Instant) -> usize {
    ends.iter().filter(|end| now.duration_since(**end) <= LAST_SECOND).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_the_last_second_count() {
        let now = Instant::now() + LAST_SECOND * 2;
        let before = |millis| now - Duration::from_millis(millis);
        assert_eq!(recent(&[before(1_500), before(900), before(0)], now), 2);
        assert_eq!(recent(&[], now), 0);
    }
}
