//! A file in ranges that several connections take from one queue, as COMBINE does (Ananthanarayanan
//! et al.): one connection straight to the server, the others through proxies.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Measurement;
use super::content::{ByteRequest, Content};
use super::dial::{self, Dialer};

/// Fetch a file in ranges over persistent connections; the value is the time from the first request
/// to the last byte.
#[derive(clap::Args)]
pub struct Combine {
    /// How large the file is, in bytes.
    #[arg(long, value_name = "BYTES")]
    size: u64,
    /// How large each range is, in bytes.
    #[arg(long, value_name = "BYTES")]
    chunk: u64,
    /// A proxy that passes everything on to the server. May be given more than once.
    #[arg(long, value_name = "ADDR:PORT")]
    proxy: Vec<SocketAddr>,
    /// Fetch so many bytes first.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    warm: u64,
}

impl Combine {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let content = Rc::new(Content::new());
        let mut streams = vec![dialer.dial().await?];
        for proxy in &self.proxy {
            streams.push(dial::connect(None, false, *proxy).await?);
        }
        streams = self.fetch(self.warm, streams, &content).await?;
        let begun = Instant::now();
        self.fetch(self.size, streams, &content).await?;
        Ok(Measurement { value: begun.elapsed().as_secs_f64(), ..Measurement::default() })
    }

    /// Each connection fetches the next range when it has the last one. Returns the connections.
    async fn fetch(
        &self,
        bytes: u64,
        streams: Vec<TcpStream>,
        content: &Rc<Content>,
    ) -> io::Result<Vec<TcpStream>> {
        let left = Rc::new(Cell::new(bytes));
        let mut tasks = JoinSet::new();
        for mut stream in streams {
            let (left, content, chunk) = (Rc::clone(&left), Rc::clone(content), self.chunk);
            tasks.spawn_local(async move {
                while left.get() > 0 {
                    let length = left.get().min(chunk);
                    left.set(left.get() - length);
                    ByteRequest::unlimited(length).send(&mut stream).await?;
                    content.receive(length, &mut stream, |_| {}).await?;
                }
                io::Result::Ok(stream)
            });
        }
        let mut streams = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            streams.push(ended.map_err(io::Error::other)??);
        }
        Ok(streams)
    }
}
