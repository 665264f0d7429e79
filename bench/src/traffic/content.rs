//! Requests of a client, and the bytes of the responses.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A request for a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRequest {
    /// Length of the response.
    pub bytes: u64,
    /// Maximum rate of the response in bit/s; zero means unlimited.
    pub rate_bps: u64,
    /// Think time: delay of the server before the response.
    pub think_time: Duration,
    /// Whether the client sends the bytes, which the server confirms with one byte.
    pub is_upload: bool,
}

/// Length of an encoded request in bytes.
const REQUEST_LENGTH: usize = 21;
/// The content repeats after this number of bytes.
const CONTENT_PERIOD: usize = 64 << 10;
/// Interval at which the server sends a rate-limited response.
const PACING_INTERVAL: Duration = Duration::from_millis(10);

impl ByteRequest {
    /// A request without rate limit and think time.
    pub fn unlimited(bytes: u64) -> Self {
        Self { bytes, rate_bps: 0, think_time: Duration::ZERO, is_upload: false }
    }

    pub async fn send(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut out = [0; REQUEST_LENGTH];
        out[..8].copy_from_slice(&self.bytes.to_be_bytes());
        out[8..16].copy_from_slice(&self.rate_bps.to_be_bytes());
        out[16..20].copy_from_slice(&(self.think_time.as_micros() as u32).to_be_bytes());
        out[20] = self.is_upload.into();
        to.write_all(&out).await
    }

    /// Reads the next request; `None` at the end of the stream.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let bytes = match from.read_u64().await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        let pace = from.read_u64().await?;
        let think = Duration::from_micros(from.read_u32().await?.into());
        let is_upload = from.read_u8().await? != 0;
        Ok(Some(Self { bytes, rate_bps: pace, think_time: think, is_upload }))
    }
}

/// The bytes of every response. They are incompressible, and a misplaced piece is detected.
pub struct Content(Vec<u8>);

impl Content {
    /// Creates the content, which is equal in every process.
    pub fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut bytes: Vec<u8> =
            (0..CONTENT_PERIOD / 8).flat_map(|_| next().to_le_bytes()).collect();
        // Stored twice, so that a whole period from any offset is contiguous.
        bytes.extend_from_within(..);
        Self(bytes)
    }

    fn piece(&self, offset: u64, max: usize) -> &[u8] {
        let begin = (offset % CONTENT_PERIOD as u64) as usize;
        self.0.get(begin..begin + max.min(CONTENT_PERIOD)).unwrap_or_default()
    }

    /// Sends the response to a request.
    pub async fn send(
        &self,
        request: ByteRequest,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        if !request.think_time.is_zero() {
            tokio::time::sleep(request.think_time).await;
        }
        let mut sent = 0;
        let mut clock = tokio::time::interval(PACING_INTERVAL);
        let each = match request.rate_bps {
            0 => CONTENT_PERIOD,
            pace => ((pace / 8) as f64 * PACING_INTERVAL.as_secs_f64()).ceil().max(1.0) as usize,
        };
        while sent < request.bytes {
            if request.rate_bps > 0 {
                clock.tick().await;
            }
            let piece = self.piece(sent, each.min((request.bytes - sent) as usize));
            to.write_all(piece).await?;
            sent += piece.len() as u64;
        }
        Ok(())
    }

    /// Receives and checks a response. Calls `heard` after each read with the number of received
    /// bytes.
    pub async fn receive(
        &self,
        bytes: u64,
        from: &mut (impl AsyncRead + Unpin),
        mut heard: impl FnMut(u64),
    ) -> io::Result<()> {
        let mut buffer = vec![0; CONTENT_PERIOD];
        let mut received = 0;
        while received < bytes {
            let max = buffer.len().min((bytes - received) as usize);
            let piece = match from.read(&mut buffer[..max]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => &buffer[..length],
            };
            if piece != self.piece(received, piece.len()) {
                let words = format!("wrong bytes within {} of {received}", piece.len());
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            received += piece.len() as u64;
            heard(received);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn a_request_is_heard_as_it_was_sent() {
        let request = ByteRequest {
            bytes: 5,
            rate_bps: 7,
            think_time: Duration::from_micros(11),
            is_upload: true,
        };
        let mut wire = Vec::new();
        run(request.send(&mut wire)).unwrap();
        let mut wire = &wire[..];
        assert_eq!(run(ByteRequest::read(&mut wire)).unwrap(), Some(request));
        assert_eq!(run(ByteRequest::read(&mut wire)).unwrap(), None);
    }

    #[test]
    fn an_answer_is_whole_and_one_that_is_not_is_found() {
        let content = Content::new();
        let bytes = 3 * CONTENT_PERIOD as u64 + 5;
        let mut wire = Vec::new();
        run(content.send(ByteRequest::unlimited(bytes), &mut wire)).unwrap();
        assert_eq!(wire.len() as u64, bytes);
        let receive = |wire: &[u8]| {
            let mut heard = 0;
            run(content.receive(bytes, &mut &wire[..], |now| heard = now)).map(|()| heard)
        };
        assert_eq!(receive(&wire).unwrap(), bytes);
        assert_eq!(receive(&wire[1..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let short = receive(&wire[..wire.len() - 1]).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        wire.swap(CONTENT_PERIOD, CONTENT_PERIOD + 1);
        assert_eq!(receive(&wire).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
