//! A file to the server.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;

use super::Measurement;
use super::content::{ByteRequest, Content};
use super::dial::Dialer;

/// Send a file; the value is the time from the connect() to the confirmation of the server that it
/// has all bytes.
#[derive(clap::Args)]
pub struct Upload {
    /// How large, in bytes.
    #[arg(long, value_name = "BYTES")]
    size: u64,
}

impl Upload {
    pub async fn run(&self, dialer: &Dialer, think: Duration) -> io::Result<Measurement> {
        let content = Content::new();
        let begun = Instant::now();
        let mut stream = dialer.dial().await?;
        let all = ByteRequest::unlimited(self.size);
        ByteRequest { is_upload: true, think_time: think, ..all }.send(&mut stream).await?;
        content.send(all, &mut stream).await?;
        stream.read_u8().await?;
        Ok(Measurement { value: begun.elapsed().as_secs_f64(), ..Measurement::default() })
    }
}
