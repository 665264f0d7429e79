//! Requests at fixed times, alone or during the download of a large file, over separate connections
//! or over one.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use manyways_unit::Span;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Told;
use super::ask::{Ask, Content};
use super::dial::Way;
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
const FILLED: Duration = Duration::from_secs(2);
/// Time limit for all responses.
const PATIENCE: Duration = Duration::from_secs(60);

impl Requests {
    pub async fn run(&self, way: &Way, think: Duration) -> io::Result<Told> {
        let content = Rc::new(Content::new());
        let ask = Ask { think, ..Ask::of(self.size) };
        let mut bulk = JoinSet::new();
        if self.bulk > 0 {
            let (way, content, ask) = (way.clone(), Rc::clone(&content), Ask::of(self.bulk));
            bulk.spawn_local(async move { fetch(&way, ask, &content).await });
            tokio::time::sleep(FILLED).await;
        }
        let samples = tokio::time::timeout(PATIENCE, async {
            match self.keep {
                true => self.over_one(way, ask, &content).await,
                false => self.each_its_own(way, ask, &content).await,
            }
        });
        let samples = samples.await.map_err(|_| io::ErrorKind::TimedOut)??;
        // A file that ended early did not load the last requests.
        if self.bulk > 0 && bulk.try_join_next().is_some() {
            return Err(io::Error::other("the file did not last as long as the requests"));
        }
        let value = quantile(&samples, 0.95).unwrap_or_default();
        Ok(Told { value, samples, ..Told::default() })
    }

    async fn each_its_own(
        &self,
        way: &Way,
        ask: Ask,
        content: &Rc<Content>,
    ) -> io::Result<Vec<f64>> {
        let mut clock = tokio::time::interval(self.every.into());
        let mut asked = JoinSet::new();
        for _ in 0..self.count {
            clock.tick().await;
            let (way, content) = (way.clone(), Rc::clone(content));
            asked.spawn_local(async move { fetch(&way, ask, &content).await });
        }
        let mut samples = Vec::new();
        while let Some(took) = asked.join_next().await {
            samples.push(took.map_err(io::Error::other)??.as_secs_f64());
        }
        Ok(samples)
    }

    /// A request does not wait for the response to the previous one.
    async fn over_one(&self, way: &Way, ask: Ask, content: &Content) -> io::Result<Vec<f64>> {
        let stream: TcpStream = way.dial().await?;
        let (mut reader, mut writer) = stream.into_split();
        let (every, count) = (Duration::from(self.every), self.count);
        // The first request may include connection setup; it is not a sample.
        ask.send(&mut writer).await?;
        content.receive(ask.bytes, &mut reader, |_| {}).await?;
        let (tell, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let asking = tokio::task::spawn_local(async move {
            let mut clock = tokio::time::interval(every);
            for _ in 0..count {
                clock.tick().await;
                let _ = tell.send(Instant::now());
                ask.send(&mut writer).await?;
            }
            io::Result::Ok(writer)
        });
        let mut samples = Vec::new();
        while let Some(begun) = sent.recv().await {
            content.receive(ask.bytes, &mut reader, |_| {}).await?;
            samples.push(begun.elapsed().as_secs_f64());
        }
        asking.await.map_err(io::Error::other)??;
        Ok(samples)
    }
}
