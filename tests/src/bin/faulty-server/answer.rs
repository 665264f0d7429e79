//! Selects the response to a request: the correct one, changed by a fault.

use bytes::Bytes;

/// Start and exclusive end of a byte range; without an end, the range extends to the end of the
/// object.
pub type Span = (u64, Option<u64>);

#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Number of the link over which the request arrived.
    pub link: u16,
    /// Number of requests for this target so far, including this one.
    pub number: u32,
    pub target: &'a str,
    pub range: Option<Span>,
    pub if_range: Option<&'a str>,
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    /// Announced length; `None` if the length is open.
    pub length: Option<u64>,
    pub body: Bytes,
    /// Number of bytes of the body that are sent.
    pub sent_length: usize,
    /// Action after [`Self::sent_length`] bytes of the body.
    pub action: Action,
    /// Raw bytes that replace the head in HTTP/1.1.
    pub raw_head: Option<&'static [u8]>,
    /// Whether the response has no head.
    pub is_headless: bool,
}

/// Action after a part of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ends the response correctly and accepts the next request.
    Continue,
    /// Closes the connection, or ends the stream.
    Close,
    /// Sends RST_STREAM with this code, or TCP RST over HTTP/1.1.
    Reset(h2::Reason),
    /// Sends GOAWAY with ENHANCE_YOUR_CALM and nothing else; closes over HTTP/1.1.
    GoAway,
    /// Ends the response correctly and accepts no further request: GOAWAY with NO_ERROR.
    GoAwayGracefully,
    /// Sends nothing and keeps the connection open.
    Stall,
}

/// Marks a response of open length; over HTTP/1.1 it has `Transfer-Encoding: chunked`.
pub const CHUNKED: &str = "transfer-encoding";

type Fault = fn(&Request<'_>, &Source<'_>, &mut Reply);

/// The served objects.
pub struct Source<'a> {
    pub object: &'a Bytes,
    /// Has the same length as [`Self::object`].
    pub other: &'a Bytes,
}

/// All faults by name. A numeric name is a status code without an object.
const FAULTS: &[(&str, Fault)] = &[
    ("good", |_, _, _| {}),
    // Ranges.
    ("whole", |request, source, reply| *reply = correct_object(request, source)),
    ("refuses-ranges", |request, source, reply| {
        *reply = correct_object(request, source);
        reply.set("accept-ranges", "none");
    }),
    ("no-content-range", |_, _, reply| reply.remove("content-range")),
    ("odd-content-range", |_, _, reply| reply.set("content-range", "bytes 9-4/x")),
    ("other-range", |_, source, reply| {
        let length = reply.body.len() as u64;
        reply.set("content-range", &content_range(0, length, source.object.len() as u64));
    }),
    ("more-range", |request, source, reply| {
        // The whole object, with a matching Content-Range.
        let total = source.object.len() as u64;
        *reply = correct_object(request, source);
        reply.status = 206;
        reply.set("content-range", &content_range(0, total, total));
    }),
    ("short-range", |request, source, reply| {
        let Some((from, to)) = request.range else { return };
        let to = to.unwrap_or(u64::MAX).min(from + 50_000);
        *reply =
            correct(&Request { range: Some((from, Some(to))), ..*request }, source.object, ETAG);
    }),
    ("part-of-all", |_, source, reply| {
        reply.status = 206;
        let total = source.object.len() as u64;
        reply.set("content-range", &content_range(0, total, total));
    }),
    // Versions.
    ("changed", |request, source, reply| *reply = correct(request, source.other, "\"two\"")),
    // Only a request with If-Range reveals the change.
    ("quietly-changed", |request, source, reply| {
        *reply = correct(request, source.other, "\"two\"");
        if reply.status == 206 {
            reply.remove("etag");
        }
    }),
    ("other-etag", |_, _, reply| reply.set("etag", "\"two\"")),
    ("etag-each", |request, _, reply| {
        if let Some((_, etag)) = reply.headers.iter_mut().find(|(name, _)| *name == "etag") {
            *etag = format!("\"{}\"", request.number);
        }
    }),
    ("replaced", |request, source, reply| match request.number {
        1 => reply.send_half(Action::Close),
        _ => *reply = correct(request, source.other, "\"two\""),
    }),
    ("restless", |request, source, reply| {
        *reply = correct(request, source.object, &format!("\"{}\"", request.number));
        reply.send_half(Action::Close);
    }),
    ("no-etag", |_, _, reply| reply.remove("etag")),
    ("weak-etag", |_, _, reply| reply.set("etag", "W/\"one\"")),
    ("other-total", |_, _, reply| {
        for (name, value) in &mut reply.headers {
            if *name == "content-range" {
                value.push('9');
            }
        }
    }),
    ("secretly-changed", |request, source, reply| *reply = correct(request, source.other, ETAG)),
    // Bodies.
    ("encoded", |_, _, reply| reply.set("content-encoding", "gzip")),
    ("chunked", |_, _, reply| {
        reply.length = None;
        reply.set(CHUNKED, "chunked");
    }),
    ("until-close", |_, _, reply| {
        reply.length = None;
        reply.action = Action::Close;
    }),
    ("empty", |request, _, reply| *reply = correct(request, &Bytes::new(), ETAG)),
    ("more", |_, _, reply| reply.grow()),
    ("more-chunked", |_, _, reply| {
        reply.grow();
        reply.length = None;
        reply.set(CHUNKED, "chunked");
    }),
    ("less-chunked", |_, _, reply| {
        reply.length = None;
        reply.set(CHUNKED, "chunked");
        reply.send_half(Action::Continue);
    }),
    // Half of the object, and then complete but empty ranges. A plain GET, which a client repeats over
    // another link if the first one is late, never gets an empty body: without a length it would be
    // a correct empty object.
    ("hollow", |request, _, reply| {
        reply.send_half(Action::Close);
        if request.range.is_some() {
            reply.length = None;
            reply.set(CHUNKED, "chunked");
            (reply.sent_length, reply.action) = (0, Action::Continue);
        }
    }),
    ("less", |_, _, reply| reply.send_half(Action::Close)),
    ("nothing", |_, _, reply| (reply.sent_length, reply.action) = (0, Action::Close)),
    ("reset", |_, _, reply| reply.send_half(Action::Reset(h2::Reason::INTERNAL_ERROR))),
    ("calm", |_, _, reply| reply.send_half(Action::Reset(h2::Reason::ENHANCE_YOUR_CALM))),
    ("goaway-calm", |_, _, reply| reply.send_half(Action::GoAway)),
    ("goaway", |_, _, reply| reply.action = Action::GoAwayGracefully),
    ("stops", |_, _, reply| reply.send_half(Action::Stall)),
    ("head-only", |_, _, reply| (reply.sent_length, reply.action) = (0, Action::Stall)),
    // Without a head, or with an incomplete one.
    ("no-head", |_, _, reply| reply.replace_body(Action::Stall)),
    ("refused", |_, _, reply| reply.replace_body(Action::Reset(h2::Reason::REFUSED_STREAM))),
    ("http11-required", |_, _, reply| {
        reply.replace_body(Action::Reset(h2::Reason::HTTP_1_1_REQUIRED))
    }),
    ("closed", |_, _, reply| reply.replace_body(Action::Close)),
    ("half-head", |_, _, reply| {
        reply.raw_head = Some(b"HTTP/1.1 200 OK\r\nContent-Le");
        reply.replace_body(Action::Close);
    }),
    ("babble", |_, _, reply| {
        reply.raw_head = Some(b"220 mail.lab ESMTP\r\n");
        reply.replace_body(Action::Close);
    }),
    ("huge-head", |_, _, reply| {
        // One field must not be longer than a frame of 16 KB.
        (0..100).for_each(|_| reply.headers.push(("x-much", "x".repeat(10_000))));
    }),
    // Redirects.
    ("loop", |request, _, reply| *reply = redirect(request.target)),
    ("away", |_, _, reply| *reply = redirect("https://198.18.0.1:444/always/good/object")),
    ("downgrade", |_, _, reply| *reply = redirect("http://origin.lab/always/good/object")),
    ("nowhere", |_, _, reply| *reply = redirect("ftp://origin.lab/object")),
    ("no-location", |_, _, reply| *reply = status_only(302)),
    ("signed", |request, _, reply| {
        *reply = redirect(&format!("/always/only-{}/object", request.link))
    }),
    ("only-1", |request, _, reply| require_link(1, request, reply)),
    ("only-2", |request, _, reply| require_link(2, request, reply)),
];

const ETAG: &str = "\"one\"";

/// Returns the response to a request. It is correct if `healed`, or if the fault of its target does
/// not apply.
pub fn answer(request: &Request<'_>, object: &Bytes, other: &Bytes, healed: bool) -> Reply {
    let path = request.target.split('?').next().unwrap_or_default();
    let mut parts = path.split('/').skip(1);
    let (when, error) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let meets = match when {
        "always" => true,
        "wifi" => request.link == 1,
        "lte" => request.link == 2,
        "ranges" => request.range.is_some(),
        "plain" => request.range.is_none(),
        "once" => request.number == 1,
        _ => return status_only(404),
    };
    let mut reply = correct(request, object, ETAG);
    if healed || !meets {
        return reply;
    }
    if let Ok(status) = error.parse() {
        reply = status_only(status);
        if status == 416 {
            reply.set("content-range", &format!("bytes */{}", object.len()));
        }
        return reply;
    }
    match FAULTS.iter().find(|(name, _)| *name == error) {
        Some((_, apply)) => apply(request, &Source { object, other }, &mut reply),
        None => return status_only(404),
    }
    reply
}

/// The response of a correct server.
fn correct(request: &Request<'_>, object: &Bytes, etag: &str) -> Reply {
    let total = object.len() as u64;
    let fresh = request.if_range.is_none_or(|wanted| wanted == etag);
    let (status, from, to) = match request.range {
        Some((from, _)) if fresh && from >= total => {
            let mut reply = status_only(416);
            reply.set("content-range", &format!("bytes */{total}"));
            return reply;
        }
        Some((from, to)) if fresh => (206, from, to.unwrap_or(total).min(total)),
        _ => (200, 0, total),
    };
    let body = object.slice(from as usize..to as usize);
    let mut reply = Reply {
        status,
        sent_length: body.len(),
        length: Some(to - from),
        body,
        ..status_only(200)
    };
    reply.headers.clear();
    reply.set("accept-ranges", "bytes");
    reply.set("etag", etag);
    if status == 206 {
        reply.set("content-range", &content_range(from, to, total));
    }
    reply
}

fn correct_object(request: &Request<'_>, source: &Source<'_>) -> Reply {
    correct(&Request { range: None, ..*request }, source.object, ETAG)
}

fn status_only(status: u16) -> Reply {
    let body = Bytes::from_static(b"no object\n");
    Reply {
        status,
        headers: vec![("content-type", "text/plain".to_owned())],
        length: Some(body.len() as u64),
        sent_length: body.len(),
        body,
        action: Action::Continue,
        raw_head: None,
        is_headless: false,
    }
}

fn redirect(to: &str) -> Reply {
    let mut reply = status_only(302);
    reply.set("location", to);
    reply
}

/// A URL that was signed for one network is refused over others.
fn require_link(link: u16, request: &Request<'_>, reply: &mut Reply) {
    if request.link != link {
        *reply = status_only(403);
    }
}

fn content_range(from: u64, to: u64, total: u64) -> String {
    format!("bytes {from}-{}/{total}", to.saturating_sub(1))
}

impl Reply {
    fn set(&mut self, name: &'static str, value: &str) {
        self.remove(name);
        self.headers.push((name, value.to_owned()));
    }

    fn remove(&mut self, name: &str) {
        self.headers.retain(|(own, _)| *own != name);
    }

    /// Makes the body longer than announced.
    fn grow(&mut self) {
        self.body = [&self.body[..], &[b'!'; 5_000]].concat().into();
        self.sent_length = self.body.len();
    }

    /// Sends half of the body, so that a client with enough retries receives all of it.
    fn send_half(&mut self, then: Action) {
        (self.sent_length, self.action) = (self.body.len().div_ceil(2), then);
    }

    fn replace_body(&mut self, then: Action) {
        (self.is_headless, self.action) = (true, then);
    }
}
