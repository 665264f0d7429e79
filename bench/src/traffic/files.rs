//! Whole files, one after the other or several at once.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Measurement;
use super::content::{ByteRequest, Content};
use super::dial::Dialer;

/// Fetch files, each over a connection of its own; the value is the time from the first connect()
/// to the last byte of all.
#[derive(clap::Args)]
pub struct Files {
    /// How large each is, in bytes.
    #[arg(long, value_name = "BYTES")]
    size: u64,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: usize,
    /// How many at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    at_once: usize,
    /// Fetch one of so many bytes first, over another connection.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    warm: u64,
}

impl Files {
    pub async fn run(&self, dialer: &Dialer, think: Duration) -> io::Result<Measurement> {
        let content = Rc::new(Content::new());
        let left = Rc::new(Cell::new(self.flows));
        let samples = Rc::new(RefCell::new(Vec::with_capacity(self.flows)));
        let request = ByteRequest { think_time: think, ..ByteRequest::unlimited(self.size) };
        if self.warm > 0 {
            fetch(dialer, ByteRequest::unlimited(self.warm), &content).await?;
        }
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.at_once.min(self.flows) {
            let (dialer, content) = (dialer.clone(), Rc::clone(&content));
            let (left, samples) = (Rc::clone(&left), Rc::clone(&samples));
            tasks.spawn_local(async move {
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    let took = fetch(&dialer, request, &content).await?;
                    samples.borrow_mut().push(took.as_secs_f64());
                }
                io::Result::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(io::Error::other)??;
        }
        let value = begun.elapsed().as_secs_f64();
        Ok(Measurement { value, samples: samples.take(), ..Measurement::default() })
    }
}

/// Fetches one file; returns the time from connect() to its last byte.
pub async fn fetch(
    dialer: &Dialer,
    request: ByteRequest,
    content: &Content,
) -> io::Result<Duration> {
    let begun = Instant::now();
    let mut stream = dialer.dial().await?;
    request.send(&mut stream).await?;
    content.receive(request.bytes, &mut stream, |_| {}).await?;
    Ok(begun.elapsed())
}
