//! Manifests on their way to the player: their URLs lead to the gateway.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use manyways_wire::manifest::{self, Film, Format, MAX_LENGTH, Rendition, SIZE_NAMESPACE};

use super::super::location::Location;
use super::super::report::ResponseHead;
use super::Shared;
use super::ask::Ask;
use super::content::Content;
use super::mapping::Reference;
use super::respond::response;
use super::transfers::{Begun, Failure};

/// Whether the name of an object is that of a manifest.
pub(super) fn has_manifest_name(location: &Location) -> bool {
    named_format(location).is_some()
}

fn named_format(location: &Location) -> Option<Format> {
    let path = location.target().split('?').next()?;
    let (_, extension) = path.rsplit('/').next()?.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "mpd" => Some(Format::Dash),
        "m3u8" | "m3u" => Some(Format::Hls),
        _ => None,
    }
}

/// Whether a response is a manifest, by its type, its first bytes or its name.
pub(super) fn is_manifest(head: &ResponseHead, location: &Location, first: &[u8]) -> bool {
    format(head, location, first).is_some()
}

fn format(head: &ResponseHead, location: &Location, first: &[u8]) -> Option<Format> {
    let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Format::of_content(first)
        .or_else(|| content_type.and_then(Format::of_media_type))
        .or_else(|| named_format(location))
}

/// Removes the fields that describe the server's bytes, which the gateway changes.
pub(super) fn remove_validators(headers: &mut HeaderMap) {
    for name in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES] {
        headers.remove(name);
    }
}

impl Shared {
    /// Answers with a manifest. It is fetched for each request, and never kept: a live one changes.
    pub(super) async fn manifest(
        self: &Arc<Self>,
        ask: &Ask,
        begun: Begun,
    ) -> Result<Response<Content>, Failure> {
        let bad = |text: String| Failure::new(StatusCode::BAD_GATEWAY, text);
        let Begun { head, first, mut body, outcome, .. } = begun;
        let first = first.unwrap_or_default();
        let Some(format) = format(&head, &ask.resource.location, &first) else {
            return Err(bad("this is not a manifest".to_owned()));
        };
        if head.headers.contains_key(header::CONTENT_ENCODING) {
            let text =
                "the server sends the manifest with a Content-Encoding that was not requested";
            return Err(bad(text.to_owned()));
        }
        let mut text = first.to_vec();
        while let Some(piece) = body.next().await {
            if text.len() + piece.len() > MAX_LENGTH {
                let limit = manyways_unit::Size::from_bytes(MAX_LENGTH as u64);
                return Err(bad(format!("the manifest is longer than {limit}")));
            }
            text.extend_from_slice(&piece);
        }
        outcome.await.unwrap_or_else(|_| Err(bad("the transfer ended early".to_owned())))?;
        let location = &ask.resource.location;
        let is_moved = *head.location != *location;
        let mut climbs = false;
        let base = format!("http://{}", ask.authority);
        let rewritten = manifest::rewrite(format, &text, |reference| {
            match self.mapping.reference(&head.location, reference) {
                Reference::Relative { climbs: this } => {
                    climbs |= this;
                    None
                }
                Reference::Mapped { path, origin } => {
                    self.guard.meet(&origin);
                    Some(format!("{base}{path}"))
                }
                Reference::Other => None,
            }
        });
        let rewritten =
            rewritten.map_err(|error| bad(format!("the manifest is broken: {error}")))?;
        self.remember_sizes(format, &text, &head.location);
        // The player resolves relative references against the URL of its own request. Where that
        // would lead elsewhere, it gets the URL that does not.
        if is_moved || climbs && !ask.resource.is_full {
            return Ok(redirect(&format!("{base}{}", self.mapping.full_path(&head.location))));
        }
        let mut response = response(StatusCode::OK, &head);
        remove_validators(response.headers_mut());
        *response.body_mut() = Content::Text(Bytes::from(rewritten));
        Ok(response)
    }
}

impl Shared {
    /// Remembers the lengths of files that the manifest states.
    fn remember_sizes(&self, format: Format, text: &[u8], location: &Location) {
        // Most manifests state none, and need not be read.
        let namespace = SIZE_NAMESPACE.as_bytes();
        if !text.windows(namespace.len()).any(|part| part == namespace) {
            return;
        }
        // The player reports what it cannot read.
        let Ok(film) = Film::parse(format, text, &location.to_string()) else { return };
        for segment in film.video.iter().chain(&film.audio).flat_map(Rendition::segments) {
            if let Some(size) = segment.file_size
                && let Ok(location) = Location::parse(&segment.resource.url)
            {
                self.remember_size(&location.to_string(), size.as_bytes());
            }
        }
    }
}

fn redirect(to: &str) -> Response<Content> {
    let mut response = Response::new(Content::Text(Bytes::new()));
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    // A location contains only the characters of a request line.
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
