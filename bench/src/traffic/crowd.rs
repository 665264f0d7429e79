//! Many idle connections.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Measurement;
use super::content::ByteRequest;
use super::dial::Dialer;

/// Open connections, have one byte over each, and keep them open until standard input ends; the
/// value is how many a second.
#[derive(clap::Args)]
pub struct Crowd {
    /// How many.
    #[arg(long, value_name = "N")]
    count: usize,
    /// How many are opened at once.
    #[arg(long, value_name = "N", default_value_t = 64)]
    at_once: usize,
}

/// Time limit for opening all connections.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);

impl Crowd {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        tokio::time::timeout(OPEN_TIMEOUT, self.open(dialer))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn open(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let turns = Rc::new(Semaphore::new(self.at_once));
        let begun = Instant::now();
        let mut opening = JoinSet::new();
        for _ in 0..self.count {
            let (dialer, turns) = (dialer.clone(), Rc::clone(&turns));
            opening.spawn_local(async move {
                let _turn = turns.acquire().await.map_err(io::Error::other)?;
                open_one(&dialer).await
            });
        }
        let mut open: Vec<TcpStream> = Vec::with_capacity(self.count);
        while let Some(opened) = opening.join_next().await {
            open.push(opened.map_err(io::Error::other)??);
        }
        let value = open.len() as f64 / begun.elapsed().as_secs_f64();
        // The connections stay open until the process ends, because the parent still measures.
        std::mem::forget(open);
        Ok(Measurement { value, ..Measurement::default() })
    }
}

/// A connection over which one byte came.
pub async fn open_one(dialer: &Dialer) -> io::Result<TcpStream> {
    let mut stream = dialer.dial().await?;
    ByteRequest::unlimited(1).send(&mut stream).await?;
    let mut byte = [0; 1];
    stream.read_exact(&mut byte).await?;
    Ok(stream)
}
