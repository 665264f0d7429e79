//! HTTP/2 (RFC 9113).

mod frame;
mod head;
mod hpack;
mod settings;
mod streams;
#[cfg(test)]
mod tests;

use self::frame::{Frame, Part, Reader};
use self::head::Head;
use self::hpack::Decoder;
use self::settings::Settings;
use self::streams::Streams;
use super::{Event, Fault};
use crate::stream::Endpoint;

pub use self::head::{MAX_FIELDS, MAX_HEAD_SIZE};
pub use self::hpack::MAX_TABLE_SIZE;
pub use self::streams::MAX_OPEN_STREAMS;

/// Maximum length of a head in compressed form: of the field block in a HEADERS or PUSH_PROMISE
/// frame and its CONTINUATION frames.
pub const MAX_BLOCK_LENGTH: usize = 1024 * 1024;

/// Observes the exchanges of a connection, from the preface of the client.
///
/// A promised request (PUSH_PROMISE) is reported as a request of the client, which is complete, on
/// the stream of the promise. `CONNECT`, also with `:protocol` (RFC 8441), has no request body, and
/// ends with [`Event::Upgraded`] if the server agrees; `:protocol` is not among the fields.
///
/// The observer judges frames only as far as it needs to: it ignores flow control, priorities and
/// frames on streams that are closed. A malformed message (RFC 9113, 8.1.1) affects only its
/// stream, because its receiver resets that: a request is not reported at all, and a response or
/// trailers are reported as an [`Event::Abort`] by the sender. Malformed are missing, repeated,
/// unknown or misplaced pseudo fields, and names and values with characters that RFC 9113, 8.2.1
/// forbids. A `Content-Length` that differs from the length of the body is not malformed here.
///
/// Memory, in each direction: a head of [`MAX_BLOCK_LENGTH`], while it is read its fields of
/// [`MAX_HEAD_SIZE`], and a dynamic table of [`MAX_TABLE_SIZE`], if the receiver permits so much;
/// for both, a few bytes for each of at most [`MAX_OPEN_STREAMS`] exchanges. Streams that are
/// closed need no memory.
#[derive(Debug)]
pub struct Observer {
    client: Side,
    server: Side,
    streams: Streams,
    /// Nothing more is read.
    is_ended: bool,
}

/// One direction.
#[derive(Debug)]
struct Side {
    reader: Reader,
    /// The frame that is read.
    frame: Frame,
    /// A head that is not complete.
    block: Option<Block>,
    decoder: Decoder,
    /// Limits for the other direction.
    settings: Settings,
}

/// A field block that is not complete.
#[derive(Debug)]
struct Block {
    /// The stream of its frames.
    stream: u32,
    /// The promised stream, in PUSH_PROMISE.
    promised: Option<u32>,
    /// Whether the message ends with the block.
    is_last: bool,
    bytes: Vec<u8>,
}

impl Side {
    fn new(of: Endpoint) -> Self {
        Self {
            reader: Reader::new(of),
            frame: Frame::Other,
            block: None,
            decoder: Decoder::default(),
            settings: Settings::default(),
        }
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self {
            client: Side::new(Endpoint::Client),
            server: Side::new(Endpoint::Server),
            streams: Streams::default(),
            is_ended: false,
        }
    }
}

impl Observer {
    /// Reads the next bytes of an endpoint.
    ///
    /// # Errors
    /// The bytes are not HTTP/2, or exceed a limit. The open exchanges are reported as aborted, and
    /// all further bytes are ignored.
    pub fn handle(
        &mut self,
        from: Endpoint,
        mut bytes: &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        if self.is_ended {
            return Ok(());
        }
        self.read(from, &mut bytes, each).map_err(|what| {
            self.abort(from, each);
            Fault { from, what }
        })
    }

    /// Ends one direction, after all its bytes: by a FIN, or a TLS `close_notify`. HTTP/2 does not
    /// know connections in one direction: the open exchanges are aborted.
    pub fn end(&mut self, from: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        self.abort(from, each);
    }

    /// Ends the connection at once, as a TCP reset of this endpoint does, or the end of the
    /// observation: all open exchanges are aborted.
    pub fn abort(&mut self, by: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        self.is_ended = true;
        self.streams.abort_all(by, each);
    }

    /// Whether an exchange is not complete.
    pub fn is_busy(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Returns the direction of an endpoint, and the other one.
    fn sides(&mut self, from: Endpoint) -> (&mut Side, &mut Side) {
        match from {
            Endpoint::Client => (&mut self.client, &mut self.server),
            Endpoint::Server => (&mut self.server, &mut self.client),
        }
    }

    fn read(
        &mut self,
        from: Endpoint,
        rest: &mut &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        loop {
            let (side, other) = self.sides(from);
            match side.reader.read(rest, other.settings.max_frame_length())? {
                Part::Pending => return Ok(()),
                Part::Begin(frame) => self.begin(from, frame)?,
                Part::Content(bytes) => match (side.frame, &mut side.block) {
                    (Frame::Data { stream, .. }, _) => self.streams.body(stream, from, bytes, each),
                    (Frame::Settings, _) => side.settings.read(bytes)?,
                    (_, Some(block)) => block.add(bytes)?,
                    _ => {}
                },
                Part::End => self.finish(from, each)?,
            }
        }
    }

    /// Begins a frame.
    fn begin(&mut self, from: Endpoint, frame: Frame) -> Result<(), &'static str> {
        let is_idle = |stream| self.streams.is_idle(stream);
        match frame {
            Frame::Data { stream, .. } if is_idle(stream) => return Err("a body without a head"),
            Frame::Reset { stream } if is_idle(stream) => return Err("a reset of no stream"),
            Frame::Promise { .. } if from == Endpoint::Client => {
                return Err("a promise, as only servers may");
            }
            _ => {}
        }
        let (side, _) = self.sides(from);
        side.frame = frame;
        let new =
            |stream, promised, is_last| Block { stream, promised, is_last, bytes: Vec::new() };
        match (frame, &side.block) {
            (Frame::Continuation { stream, .. }, Some(block)) if stream == block.stream => {}
            (Frame::Continuation { .. }, _) | (_, Some(_)) => {
                return Err("a frame between the parts of a head");
            }
            (Frame::Headers { stream, is_last, .. }, None) => {
                side.block = Some(new(stream, None, is_last));
            }
            (Frame::Promise { stream, promised, .. }, None) => {
                side.block = Some(new(stream, Some(promised), false));
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends a frame.
    fn finish(
        &mut self,
        from: Endpoint,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        let (side, other) = self.sides(from);
        match side.frame {
            Frame::Data { stream, is_last: true } => {
                self.streams.end(stream, from, Vec::new(), each);
            }
            Frame::Headers { is_complete: true, .. }
            | Frame::Promise { is_complete: true, .. }
            | Frame::Continuation { is_complete: true, .. } => self.finish_block(from, each)?,
            Frame::Reset { stream } => self.streams.abort(stream, from, each),
            Frame::Settings => side.settings.announce()?,
            Frame::SettingsAck => other.settings.acknowledge(),
            Frame::Goaway { last_stream } => self.streams.go_away(from, last_stream, each),
            _ => {}
        }
        Ok(())
    }

    fn finish_block(
        &mut self,
        from: Endpoint,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        let (side, other) = self.sides(from);
        let Some(block) = side.block.take() else { return Ok(()) };
        let mut head = Head::default();
        let max_table_size = other.settings.max_table_size();
        // Also for a stream that is closed: the next blocks need its changes of the table.
        side.decoder.decode(&block.bytes, max_table_size, |name, value| head.add(name, value))?;
        match (block.promised, from) {
            (Some(promised), _) => self.streams.promise(promised, head, each),
            (None, Endpoint::Client) => {
                self.streams.client_head(block.stream, head, block.is_last, each)
            }
            (None, Endpoint::Server) => {
                self.streams.server_head(block.stream, head, block.is_last, each)
            }
        }
    }
}

impl Block {
    fn add(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if self.bytes.len() + bytes.len() > MAX_BLOCK_LENGTH {
            return Err("a head that is too long");
        }
        self.bytes.extend(bytes);
        Ok(())
    }
}
