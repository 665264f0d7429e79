//! Messages from the lines of a stream.

use std::io;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::message::{MAX_LINE, parse};

/// Reads messages of a bounded length. A call that is dropped loses nothing.
pub(crate) struct LineReader<R> {
    reader: R,
    /// Read and not yet parsed.
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new() }
    }

    pub(crate) fn reader(&self) -> &R {
        &self.reader
    }

    /// The next message; `None` at the end of the stream.
    pub(crate) async fn next<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
                return parse(&line).map(Some).map_err(invalid);
            }
            if self.buffer.len() > MAX_LINE {
                let error = super::message::MessageError::TooLong;
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            let mut piece = [0; 1_024];
            match self.reader.read(&mut piece).await? {
                0 => return Ok(None),
                length => self.buffer.extend_from_slice(&piece[..length]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Order;
    use super::*;

    #[tokio::test]
    async fn lines_become_messages_and_endless_ones_an_error() {
        let mut lines = LineReader::new(&b"\"stop\"\n\"stop\"\n\"st"[..]);
        for _ in 0..2 {
            assert_eq!(lines.next::<Order>().await.unwrap(), Some(Order::Stop));
        }
        // A connection that ends in a line has no more messages.
        assert_eq!(lines.next::<Order>().await.unwrap(), None);
        let endless = vec![b' '; 3 * MAX_LINE];
        assert!(LineReader::new(&endless[..]).next::<Order>().await.is_err());
    }
}
