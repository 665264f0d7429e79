//! Requests at fixed times, alone or during the download of a large file, over separate connections
//! or over one.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use manyways_unit::Span;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Measurement;
use super::content::{ByteRequest, Content};
use super::dial::Dialer;
use super::files::fetch;
use manyways_rig::sample::quantile;

/// Ask at fixed times; the value is the 95th percentile of the answers' times.
#[derive(clap::Args)]
pub struct Requests {
    /// How large each answer is, in bytes.
    #[arg(long, value_name = "BYTES")]
    size: u64,
    /// Time from one to the next.
    #[arg(long, value_name = "TIME")]
    every: Span,
    /// How many.
    #[arg(long, value_name = "N")]
    count: u32,
    /// All over one connection.
    #[arg(long)]
    keep: bool,
    /// While a file of so many bytes comes, which is not waited for.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    bulk: u64,
}

/// Time in which a file has filled the queues.
const QUEUE_FILL_TIME: Duration = Duration::from_secs(2);
/// Time limit for all responses.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

impl Requests {
    pub async fn run(&self, dialer: &Dialer, think: Duration) -> io::Result<Measurement> {
        let content = Rc::new(Content::new());
        let request = ByteRequest { think_time: think, ..ByteRequest::unlimited(self.size) };
        let mut bulk = JoinSet::new();
        if self.bulk > 0 {
            let (dialer, content, request) =
                (dialer.clone(), Rc::clone(&content), ByteRequest::unlimited(self.bulk));
            bulk.spawn_local(async move { fetch(&dialer, request, &content).await });
            tokio::time::sleep(QUEUE_FILL_TIME).await;
        }
        let samples = tokio::time::timeout(RESPONSE_TIMEOUT, async {
            match self.keep {
                true => self.single_connection(dialer, request, &content).await,
                false => self.separate_connections(dialer, request, &content).await,
            }
        });
        let samples = samples.await.map_err(|_| io::ErrorKind::TimedOut)??;
        // A file that ended early did not load the last requests.
        if self.bulk > 0 && bulk.try_join_next().is_some() {
            return Err(io::Error::other("the file did not last as long as the requests"));
        }
        let value = quantile(&samples, 0.95).unwrap_or_default();
        Ok(Measurement { value, samples, ..Measurement::default() })
    }

    async fn separate_connections(
        &self,
        dialer: &Dialer,
        request: ByteRequest,
        content: &Rc<Content>,
    ) -> io::Result<Vec<f64>> {
        let mut clock = tokio::time::interval(self.every.into());
        let mut asked = JoinSet::new();
        for _ in 0..self.count {
            clock.tick().await;
            let (dialer, content) = (dialer.clone(), Rc::clone(content));
            asked.spawn_local(async move { fetch(&dialer, request, &content).await });
        }
        let mut samples = Vec::new();
        while let Some(took) = asked.join_next().await {
            samples.push(took.map_err(io::Error::other)??.as_secs_f64());
        }
        Ok(samples)
    }

    /// A request does not wait for the response to the previous one.
    async fn single_connection(
        &self,
        dialer: &Dialer,
        request: ByteRequest,
        content: &Content,
    ) -> io::Result<Vec<f64>> {
        let stream: TcpStream = dialer.dial().await?;
        let (mut reader, mut writer) = stream.into_split();
        let (interval, count) = (Duration::from(self.every), self.count);
        // The first request may include connection setup; it is not a sample.
        request.send(&mut writer).await?;
        content.receive(request.bytes, &mut reader, |_| {}).await?;
        let (tell, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let asking = tokio::task::spawn_local(async move {
            let mut clock = tokio::time::interval(interval);
            for _ in 0..count {
                clock.tick().await;
                let _ = tell.send(Instant::now());
                request.send(&mut writer).await?;
            }
            io::Result::Ok(writer)
        });
        let mut samples = Vec::new();
        while let Some(begun) = sent.recv().await {
            content.receive(request.bytes, &mut reader, |_| {}).await?;
            samples.push(begun.elapsed().as_secs_f64());
        }
        asking.await.map_err(io::Error::other)??;
        Ok(samples)
    }
}
