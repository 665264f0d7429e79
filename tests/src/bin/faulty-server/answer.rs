//! Selects the response to a request: the correct one, changed by a fault.

use bytes::Bytes;

/// Start and exclusive end of a byte range; without an end, the range extends to the end of the
/// object.
pub type Span = (u64, Option<u64>);

#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// Number of the link over which the request arrived.
    pub link: u16,
    /// Number of requests for this target so far, including this one.
    pub nth: u32,
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
    pub upto: usize,
    /// Action after [`Self::upto`] bytes of the body.
    pub then: Then,
    /// Raw bytes that replace the head in HTTP/1.1.
    pub words: Option<&'static [u8]>,
    /// Whether the response has no head.
    pub headless: bool,
}

/// Action after a part of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// Ends the response correctly and accepts the next request.
    Go,
    /// Closes the connection, or ends the stream.
    Close,
    /// Sends RST_STREAM with this code, or TCP RST over HTTP/1.1.
    Reset(h2::Reason),
    /// Sends GOAWAY with ENHANCE_YOUR_CALM and nothing else; closes over HTTP/1.1.
    GoAway,
    /// Ends the response correctly and accepts no further request: GOAWAY with NO_ERROR.
    Retire,
    /// Sends nothing and keeps the connection open.
    Hold,
}

/// Marks a response of open length; over HTTP/1.1 it has `Transfer-Encoding: chunked`.
pub const CHUNKED: &str = "transfer-encoding";

type Fault = fn(&Ask<'_>, &Source<'_>, &mut Reply);

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
    ("whole", |ask, source, reply| *reply = whole(ask, source)),
    ("refuses-ranges", |ask, source, reply| {
        *reply = whole(ask, source);
        reply.set("accept-ranges", "none");
    }),
    ("no-content-range", |_, _, reply| reply.remove("content-range")),
    ("odd-content-range", |_, _, reply| reply.set("content-range", "bytes 9-4/x")),
    ("other-range", |_, source, reply| {
        let length = reply.body.len() as u64;
        reply.set("content-range", &content_range(0, length, source.object.len() as u64));
    }),
    ("more-range", |ask, source, reply| {
        // The whole object, with a matching Content-Range.
        let total = source.object.len() as u64;
        *reply = whole(ask, source);
        reply.status = 206;
        reply.set("content-range", &content_range(0, total, total));
    }),
    ("short-range", |ask, source, reply| {
        let Some((from, to)) = ask.range else { return };
        let to = to.unwrap_or(u64::MAX).min(from + 50_000);
        *reply = good(&Ask { range: Some((from, Some(to))), ..*ask }, source.object, ETAG);
    }),
    ("part-of-all", |_, source, reply| {
        reply.status = 206;
        let total = source.object.len() as u64;
        reply.set("content-range", &content_range(0, total, total));
    }),
    // Versions.
    ("changed", |ask, source, reply| *reply = good(ask, source.other, "\"two\"")),
    // Only a request with If-Range reveals the change.
    ("quietly-changed", |ask, source, reply| {
        *reply = good(ask, source.other, "\"two\"");
        if reply.status == 206 {
            reply.remove("etag");
        }
    }),
    ("other-etag", |_, _, reply| reply.set("etag", "\"two\"")),
    ("etag-each", |ask, _, reply| {
        if let Some((_, etag)) = reply.headers.iter_mut().find(|(name, _)| *name == "etag") {
            *etag = format!("\"{}\"", ask.nth);
        }
    }),
    ("replaced", |ask, source, reply| match ask.nth {
        1 => reply.half(Then::Close),
        _ => *reply = good(ask, source.other, "\"two\""),
    }),
    ("restless", |ask, source, reply| {
        *reply = good(ask, source.object, &format!("\"{}\"", ask.nth));
        reply.half(Then::Close);
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
    ("secretly-changed", |ask, source, reply| *reply = good(ask, source.other, ETAG)),
    // Bodies.
    ("encoded", |_, _, reply| reply.set("content-encoding", "gzip")),
    ("chunked", |_, _, reply| {
        reply.length = None;
        reply.set(CHUNKED, "chunked");
    }),
    ("until-close", |_, _, reply| {
        reply.length = None;
        reply.then = Then::Close;
    }),
    ("empty", |ask, _, reply| *reply = good(ask, &Bytes::new(), ETAG)),
    ("more", |_, _, reply| reply.grow()),
    ("more-chunked", |_, _, reply| {
        reply.grow();
        reply.length = None;
        reply.set(CHUNKED, "chunked");
    }),
    ("less-chunked", |_, _, reply| {
        reply.length = None;
        reply.set(CHUNKED, "chunked");
        reply.half(Then::Go);
    }),
    // Half of the body first, and then complete but empty bodies.
    ("hollow", |ask, _, reply| {
        reply.half(Then::Close);
        if ask.nth > 1 {
            reply.length = None;
            reply.set(CHUNKED, "chunked");
            (reply.upto, reply.then) = (0, Then::Go);
        }
    }),
    ("less", |_, _, reply| reply.half(Then::Close)),
    ("nothing", |_, _, reply| (reply.upto, reply.then) = (0, Then::Close)),
    ("reset", |_, _, reply| reply.half(Then::Reset(h2::Reason::INTERNAL_ERROR))),
    ("calm", |_, _, reply| reply.half(Then::Reset(h2::Reason::ENHANCE_YOUR_CALM))),
    ("goaway-calm", |_, _, reply| reply.half(Then::GoAway)),
    ("goaway", |_, _, reply| reply.then = Then::Retire),
    ("stops", |_, _, reply| reply.half(Then::Hold)),
    ("head-only", |_, _, reply| (reply.upto, reply.then) = (0, Then::Hold)),
    // Without a head, or with an incomplete one.
    ("no-head", |_, _, reply| reply.instead(Then::Hold)),
    ("refused", |_, _, reply| reply.instead(Then::Reset(h2::Reason::REFUSED_STREAM))),
    ("http11-required", |_, _, reply| reply.instead(Then::Reset(h2::Reason::HTTP_1_1_REQUIRED))),
    ("closed", |_, _, reply| reply.instead(Then::Close)),
    ("half-head", |_, _, reply| {
        reply.words = Some(b"HTTP/1.1 200 OK\r\nContent-Le");
        reply.instead(Then::Close);
    }),
    ("babble", |_, _, reply| {
        reply.words = Some(b"220 mail.lab ESMTP\r\n");
        reply.instead(Then::Close);
    }),
    ("huge-head", |_, _, reply| {
        // One field must not be longer than a frame of 16 KB.
        (0..100).for_each(|_| reply.headers.push(("x-much", "x".repeat(10_000))));
    }),
    // Redirects.
    ("loop", |ask, _, reply| *reply = redirect(ask.target)),
    ("away", |_, _, reply| *reply = redirect("https://198.18.0.1:444/always/good/object")),
    ("downgrade", |_, _, reply| *reply = redirect("http://origin.lab/always/good/object")),
    ("nowhere", |_, _, reply| *reply = redirect("ftp://origin.lab/object")),
    ("no-location", |_, _, reply| *reply = plain(302)),
    ("signed", |ask, _, reply| *reply = redirect(&format!("/always/only-{}/object", ask.link))),
    ("only-1", |ask, _, reply| only(1, ask, reply)),
    ("only-2", |ask, _, reply| only(2, ask, reply)),
];

const ETAG: &str = "\"one\"";

/// Returns the response to a request. It is correct if `healed`, or if the fault of its target does
/// not apply.
pub fn answer(ask: &Ask<'_>, object: &Bytes, other: &Bytes, healed: bool) -> Reply {
    let path = ask.target.split('?').next().unwrap_or_default();
    let mut parts = path.split('/').skip(1);
    let (when, fault) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let meets = match when {
        "always" => true,
        "wifi" => ask.link == 1,
        "lte" => ask.link == 2,
        "ranges" => ask.range.is_some(),
        "plain" => ask.range.is_none(),
        "once" => ask.nth == 1,
        "later" => ask.nth > 1,
        _ => return plain(404),
    };
    let mut reply = good(ask, object, ETAG);
    if healed || !meets {
        return reply;
    }
    if let Ok(status) = fault.parse() {
        reply = plain(status);
        if status == 416 {
            reply.set("content-range", &format!("bytes */{}", object.len()));
        }
        return reply;
    }
    match FAULTS.iter().find(|(name, _)| *name == fault) {
        Some((_, apply)) => apply(ask, &Source { object, other }, &mut reply),
        None => return plain(404),
    }
    reply
}

/// The response of a correct server.
fn good(ask: &Ask<'_>, object: &Bytes, etag: &str) -> Reply {
    let total = object.len() as u64;
    let fresh = ask.if_range.is_none_or(|wanted| wanted == etag);
    let (status, from, to) = match ask.range {
        Some((from, _)) if fresh && from >= total => {
            let mut reply = plain(416);
            reply.set("content-range", &format!("bytes */{total}"));
            return reply;
        }
        Some((from, to)) if fresh => (206, from, to.unwrap_or(total).min(total)),
        _ => (200, 0, total),
    };
    let body = object.slice(from as usize..to as usize);
    let mut reply = Reply { status, upto: body.len(), length: Some(to - from), body, ..plain(200) };
    reply.headers.clear();
    reply.set("accept-ranges", "bytes");
    reply.set("etag", etag);
    if status == 206 {
        reply.set("content-range", &content_range(from, to, total));
    }
    reply
}

fn whole(ask: &Ask<'_>, source: &Source<'_>) -> Reply {
    good(&Ask { range: None, ..*ask }, source.object, ETAG)
}

fn plain(status: u16) -> Reply {
    let body = Bytes::from_static(b"no object\n");
    Reply {
        status,
        headers: vec![("content-type", "text/plain".to_owned())],
        length: Some(body.len() as u64),
        upto: body.len(),
        body,
        then: Then::Go,
        words: None,
        headless: false,
    }
}

fn redirect(to: &str) -> Reply {
    let mut reply = plain(302);
    reply.set("location", to);
    reply
}

/// A URL that was signed for one network is refused over others.
fn only(link: u16, ask: &Ask<'_>, reply: &mut Reply) {
    if ask.link != link {
        *reply = plain(403);
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
        self.upto = self.body.len();
    }

    /// Sends half of the body, so that a client with enough retries receives all of it.
    fn half(&mut self, then: Then) {
        (self.upto, self.then) = (self.body.len().div_ceil(2), then);
    }

    fn instead(&mut self, then: Then) {
        (self.headless, self.then) = (true, then);
    }
}
