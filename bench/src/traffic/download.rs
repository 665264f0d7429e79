//! One download for a time, and when its bytes arrive.

use std::io;
use std::time::{Duration, Instant};

use manyways_unit::Span;
use tokio::time::{sleep, timeout};

use super::Measurement;
use super::content::{ByteRequest, Content};
use super::dial::Dialer;

/// Tenths of a second.
const BINS_A_SECOND: f64 = 10.0;
/// More than any link delivers.
const ENDLESS: u64 = 1 << 50;

/// Download for a time; the value is the number of bytes, and the samples are those of each tenth of a second since
/// the connect().
#[derive(clap::Args)]
pub struct Download {
    /// How long to wait before it begins.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Span,
    /// How long.
    #[arg(long, value_name = "TIME")]
    length: Span,
}

impl Download {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let content = Content::new();
        sleep(Duration::from(self.wait)).await;
        let begun = Instant::now();
        let mut tenths = vec![0.0; (self.length.as_secs_f64() * BINS_A_SECOND).ceil() as usize];
        let mut before = 0;
        let heard = |received: u64| {
            let bin = (begun.elapsed().as_secs_f64() * BINS_A_SECOND) as usize;
            if let Some(bytes) = tenths.get_mut(bin) {
                *bytes += (received - before) as f64;
            }
            before = received;
        };
        let download = async {
            let mut stream = dialer.dial().await?;
            ByteRequest::unlimited(ENDLESS).send(&mut stream).await?;
            content.receive(ENDLESS, &mut stream, heard).await
        };
        // The time ends a download that is right so far.
        timeout(Duration::from(self.length), download).await.unwrap_or(Ok(()))?;
        Ok(Measurement { value: tenths.iter().sum(), samples: tenths, ..Measurement::default() })
    }
}
