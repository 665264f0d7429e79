//! A stream of constant rate, of which the longest stall is measured.

use std::io;
use std::time::{Duration, Instant};

use manyways_unit::{Rate, Span};

use super::Measurement;
use super::content::{ByteRequest, Content};
use super::dial::Dialer;

/// Receive at a rate; the value is the longest time without a byte.
#[derive(clap::Args)]
pub struct Stream {
    /// How fast.
    #[arg(long, value_name = "RATE")]
    rate: Rate,
    /// How long.
    #[arg(long, value_name = "TIME")]
    length: Span,
}

impl Stream {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let pace = self.rate.as_bps();
        let bytes = self.rate.size_in(self.length).as_bytes();
        let content = Content::new();
        let mut stream = dialer.dial().await?;
        ByteRequest { rate_bps: pace, ..ByteRequest::unlimited(bytes) }.send(&mut stream).await?;
        let mut last: Option<Instant> = None;
        let mut longest = Duration::ZERO;
        let heard = |_| {
            let now = Instant::now();
            longest = longest.max(last.map(|last| now - last).unwrap_or_default());
            last = Some(now);
        };
        content.receive(bytes, &mut stream, heard).await?;
        Ok(Measurement { value: longest.as_secs_f64(), ..Measurement::default() })
    }
}
