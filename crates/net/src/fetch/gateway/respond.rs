//! Responses to the player.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use manyways_proto::fetch::{ContentRange, Excerpt};

use super::super::report::ResponseHead;
use super::ask::{Ask, Treatment, Wanted, end_within};
use super::content::{Content, Streamed};
use super::transfers::{Begun, Failure, passed_on};
use super::{Shared, manifests};

/// Fields that a page of a permitted origin may read.
const EXPOSED: &str = "Accept-Ranges, Age, Content-Length, Content-Range, Content-Type, Date, ETag, \
                       Last-Modified";
/// How long a browser may remember that an origin is permitted, in seconds.
const PREFLIGHT_AGE: &str = "600";
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

impl Shared {
    /// Answers a request.
    pub(super) async fn respond<B>(self: &Arc<Self>, request: Request<B>) -> Response<Content> {
        let treatment = self.treat(&request);
        let page = request.headers().get(header::ORIGIN).cloned();
        // Without the token, nothing shows that this server exists for pages.
        let is_known = !matches!(&treatment, Treatment::Refused(failure)
            if matches!(failure.status, StatusCode::NOT_FOUND | StatusCode::MISDIRECTED_REQUEST));
        let mut response = match treatment {
            Treatment::Object(ask) => {
                let is_head = ask.is_head;
                let answer = match is_head {
                    true => self.describe(&ask).await,
                    false => self.deliver(&ask).await,
                };
                let mut response = answer.unwrap_or_else(|failure| refusal(&failure));
                if is_head {
                    *response.body_mut() = Content::Text(Bytes::new());
                }
                response
            }
            Treatment::Preflight => preflight(),
            Treatment::Refused(failure) => refusal(&failure),
        };
        self.count(response.status());
        if is_known && let Some(page) = page {
            self.permit_page(&page, response.headers_mut());
        }
        response
    }

    /// Lets a page of a permitted origin read the response (CORS).
    fn permit_page(&self, page: &HeaderValue, headers: &mut HeaderMap) {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        let Some(permitted) = self.permitted_page(page) else {
            let preflight = [header::ACCESS_CONTROL_ALLOW_METHODS, PRIVATE_NETWORK];
            preflight.into_iter().for_each(|name| drop(headers.remove(name)));
            return;
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, permitted);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }

    /// Answers a HEAD request. The server is asked for one byte, so that its answer has the length and
    /// costs no more.
    async fn describe(self: &Arc<Self>, ask: &Ask) -> Result<Response<Content>, Failure> {
        let head = self.head_of(ask).await?;
        if ask.is_unmodified(&head) {
            return Ok(unmodified(&head));
        }
        let mut response = response(StatusCode::OK, &head);
        if manifests::is_manifest(&head, &ask.resource.location, &[]) {
            // The gateway changes the URLs in it, and so its length.
            manifests::remove_validators(response.headers_mut());
        } else if let Some(total) = head.total {
            set(&mut response, header::CONTENT_LENGTH, &total.to_string());
        }
        Ok(response)
    }

    /// The head of an object.
    async fn head_of(self: &Arc<Self>, ask: &Ask) -> Result<ResponseHead, Failure> {
        let location = &ask.resource.location;
        let byte = Excerpt { start: 0, end: Some(1) };
        let byte = Some(byte).filter(|_| !self.ignores_ranges(location.origin()));
        match self.begin(location, byte).await {
            Ok(begun) => Ok(begun.head),
            Err(failure) if failure.ignores_ranges => {
                self.note_ignored_ranges(location.origin());
                Ok(self.begin(location, None).await?.head)
            }
            // An empty object has no first byte.
            Err(Failure { head: Some(head), .. }) if head.status == 416 => {
                Ok(self.begin(location, None).await?.head)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Answers a GET request.
    async fn deliver(self: &Arc<Self>, ask: &Ask) -> Result<Response<Content>, Failure> {
        let location = &ask.resource.location;
        let is_whole =
            manifests::has_manifest_name(location) || self.ignores_ranges(location.origin());
        let mut excerpt = match ask.wanted.filter(|_| !is_whole) {
            None => None,
            Some(Wanted::From { start, end }) => Some(Excerpt { start, end }),
            Some(last @ Wanted::Last(_)) => {
                self.head_of(ask).await?.total.and_then(|total| last.of(total))
            }
        };
        let begun = loop {
            let begun = match self.begin(location, excerpt).await {
                Err(failure) if failure.ignores_ranges && excerpt.is_some() => {
                    self.note_ignored_ranges(location.origin());
                    excerpt = None;
                    continue;
                }
                begun => begun?,
            };
            let first = begun.first.as_deref().unwrap_or_default();
            let is_manifest = manifests::is_manifest(&begun.head, location, first);
            if excerpt.is_some() && (is_manifest || ask.has_other_version(&begun.head)) {
                excerpt = None;
                continue;
            }
            if is_manifest {
                return self.manifest(ask, begun).await;
            }
            break begun;
        };
        if ask.is_unmodified(&begun.head) {
            return Ok(unmodified(&begun.head));
        }
        let mut response = stream(begun, excerpt);
        if self.ignores_ranges(location.origin()) {
            response.headers_mut().remove(header::ACCEPT_RANGES);
        }
        Ok(response)
    }
}

/// The response with the bytes of a transfer.
fn stream(begun: Begun, excerpt: Option<Excerpt>) -> Response<Content> {
    let Begun { head, first, body, outcome, id, pool } = begun;
    let status = if excerpt.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = response(status, &head);
    let length = match excerpt {
        None => head.total,
        Some(Excerpt { start, end }) => {
            let sent = head.headers.get(header::CONTENT_RANGE);
            let sent = sent.and_then(|range| ContentRange::parse(range.as_bytes())?.range);
            let end = match (end, head.total) {
                (end, Some(total)) => Some(end_within(end, total)),
                (end, None) => end.or(sent.map(|range| range.end)),
            };
            let last = end.map(|end| end.saturating_sub(1));
            let total = head.total.map_or("*".to_owned(), |total| total.to_string());
            if let Some(last) = last {
                let range = format!("bytes {start}-{last}/{total}");
                set(&mut response, header::CONTENT_RANGE, &range);
            }
            end.map(|end| end.saturating_sub(start))
        }
    };
    if let Some(length) = length {
        set(&mut response, header::CONTENT_LENGTH, &length.to_string());
    }
    *response.body_mut() =
        Content::Stream(Streamed { first, body, left: length, outcome, id, pool });
    response
}

/// A response with the fields of the server, without a body.
pub(super) fn response(status: StatusCode, head: &ResponseHead) -> Response<Content> {
    let mut response = Response::new(Content::Text(Bytes::new()));
    *response.status_mut() = status;
    let refuses_ranges =
        head.headers.get(header::ACCEPT_RANGES).is_some_and(|units| units == "none");
    for (name, value) in passed_on(&head.headers) {
        response.headers_mut().append(name, value);
    }
    if !refuses_ranges {
        set(&mut response, header::ACCEPT_RANGES, "bytes");
    }
    response
}

fn unmodified(head: &ResponseHead) -> Response<Content> {
    let mut response = response(StatusCode::NOT_MODIFIED, head);
    for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE] {
        response.headers_mut().remove(name);
    }
    response
}

fn preflight() -> Response<Content> {
    let mut response = Response::new(Content::Text(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    set(&mut response, header::ALLOW, "GET, HEAD, OPTIONS");
    set(&mut response, header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD");
    set(&mut response, header::ACCESS_CONTROL_ALLOW_HEADERS, "Range, If-Range, If-None-Match, *");
    set(&mut response, header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE);
    // Pages of the internet may read this server only if the browser gets this field.
    set(&mut response, PRIVATE_NETWORK, "true");
    response
}

/// A short text instead of the object.
fn refusal(failure: &Failure) -> Response<Content> {
    let mut response = Response::new(Content::Text(Bytes::from(format!("{}\n", failure.text))));
    *response.status_mut() = failure.status;
    set(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    set(&mut response, header::CACHE_CONTROL, "no-store");
    if failure.status == StatusCode::METHOD_NOT_ALLOWED {
        set(&mut response, header::ALLOW, "GET, HEAD, OPTIONS");
    }
    for name in [header::RETRY_AFTER, header::DATE] {
        if let Some(value) = failure.field(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    if failure.status == StatusCode::RANGE_NOT_SATISFIABLE
        && let Some(total) = failure.head.as_ref().and_then(|head| head.total)
    {
        set(&mut response, header::CONTENT_RANGE, &format!("bytes */{total}"));
    }
    response
}

fn set(response: &mut Response<Content>, name: HeaderName, value: &str) {
    // Only printable characters are passed.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
