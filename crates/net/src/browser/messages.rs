//! Messages of the DevTools protocol on a stream: JSON objects that end with a zero byte.

use serde::Deserialize;
use serde_json::Value;

use super::BrowserError;

/// Bytes of a message. The largest are parts of traces, and requests of long `data:` URLs.
const MAX_MESSAGE: usize = 64 << 20;

/// A message of the browser: an answer (with `id`), or an event (with `method`).
#[derive(Debug, Deserialize)]
pub struct Message {
    #[serde(default)]
    pub id: Option<u64>,
    #[serde(default)]
    pub method: Option<String>,
    #[serde(default)]
    pub params: Value,
    #[serde(default)]
    pub result: Value,
    #[serde(default)]
    pub error: Option<Refusal>,
    #[serde(default, rename = "sessionId")]
    pub session: Option<String>,
}

/// Why a command was not executed.
#[derive(Debug, Deserialize)]
pub struct Refusal {
    #[serde(default)]
    pub message: String,
}

/// The bytes of a stream whose messages were not taken yet.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    /// Bytes before, which were taken.
    taken: usize,
    /// Bytes before, which do not end the next message.
    searched: usize,
}

impl Messages {
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next message, if it is complete.
    ///
    /// # Errors
    /// It is too long, or not a message. The stream cannot be read on.
    pub fn next(&mut self) -> Result<Option<Message>, BrowserError> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == 0);
        let end = end.map_or(self.bytes.len(), |place| self.searched + place);
        if end - self.taken > MAX_MESSAGE {
            return Err(BrowserError::Invalid(format!(
                "a message of more than {} MB",
                MAX_MESSAGE >> 20
            )));
        }
        self.searched = end;
        if end == self.bytes.len() {
            return Ok(None);
        }
        let message = serde_json::from_slice(&self.bytes[self.taken..end]);
        (self.taken, self.searched) = (end + 1, end + 1);
        match message {
            Ok(message) => Ok(Some(message)),
            Err(error) => Err(BrowserError::Invalid(format!("no message: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(messages: &mut Messages) -> Vec<Message> {
        std::iter::from_fn(|| messages.next().unwrap()).collect()
    }

    #[test]
    fn messages_are_cut_at_zero_bytes_wherever_the_stream_is_cut() {
        let stream = b"{\"id\":1,\"result\":{\"a\":2}}\0{\"method\":\"A.b\",\"sessionId\":\"s\"}\0{\"id\":2,\
            \"error\":{\"code\":-1,\"message\":\"no\"}}\0";
        for size in 1..=stream.len() {
            let mut messages = Messages::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                messages.extend(piece);
                found.extend(all(&mut messages));
            }
            assert_eq!(found.len(), 3, "{size}");
            assert_eq!((found[0].id, &found[0].result["a"]), (Some(1), &Value::from(2)));
            assert_eq!(found[1].method.as_deref(), Some("A.b"));
            assert_eq!(found[1].session.as_deref(), Some("s"));
            assert_eq!(found[2].error.as_ref().unwrap().message, "no");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in ["\0", "{\"id\":-1}\0", "{]\0", "{\"method\":3}\0"] {
            let mut messages = Messages::default();
            messages.extend(text.as_bytes());
            assert!(matches!(messages.next(), Err(BrowserError::Invalid(_))), "{text}");
        }
    }

    #[test]
    fn a_message_without_an_end_is_refused() {
        let mut messages = Messages::default();
        let piece = vec![b' '; MAX_MESSAGE / 4];
        for _ in 0..4 {
            messages.extend(&piece);
            assert!(messages.next().unwrap().is_none());
        }
        messages.extend(&piece);
        assert!(messages.next().unwrap_err().to_string().contains("more than 64 MB"));
    }
}
