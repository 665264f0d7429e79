//! The objects of a HAR file with every value unread, so that a wrong type in one place damages
//! only this place.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use manyways_unit::Span;

/// Defines an object by its fields and their names in the file. Other fields are skipped.
macro_rules! objects {
    ($($name:ident { $($field:ident $key:literal)* })*) => {$(
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        pub(super) struct $name<'a> {$(
            #[serde(borrow, rename = $key)]
            pub(super) $field: Option<&'a RawValue>,
        )*}
    )*};
}

objects! {
    Creator { name "name" version "version" }
    Page { id "id" title "title" started "startedDateTime" timings "pageTimings" extra "_manyways" }
    PageTimings { content_loaded "onContentLoad" loaded "onLoad" }
    Entry {
        page "pageref" started "startedDateTime" request "request" response "response"
        timings "timings" server "serverIPAddress" connection "connection" socket "_socket"
        wpt_address "_ip_addr" client_port "_client_port" server_rtt "_server_rtt"
        protocol "_protocol" alpn "_tls_next_proto" stream "_http2_stream_id" method "_method"
        object_size "_objectSize" decoded_size "_objectSizeUncompressed" chunks "_chunks"
        first_byte "_ttfb_end" extra "_manyways"
    }
    Chunk { time "ts" bytes "bytes" }
    Timings {
        blocked "blocked" dns "dns" connect "connect" tls "ssl" send "send" wait "wait"
        receive "receive"
    }
    Request {
        method "method" url "url" version "httpVersion" headers "headers" body "postData"
        body_size "bodySize"
    }
    Body {
        mime_type "mimeType" text "text" parameters "params" size "_size" file "_file"
        encoding "encoding" own_encoding "_encoding"
    }
    Response {
        status "status" reason "statusText" version "httpVersion" headers "headers"
        content "content" body_size "bodySize" head_size "headersSize"
        transfer_size "_transferSize"
    }
    Content {
        size "size" compression "compression" text "text" encoding "encoding" file "_file"
    }
    Field { name "name" value "value" bytes "_base64" }
}

/// The first `MAX` values of a list, and the number of all.
pub(super) struct List<'a, const MAX: usize> {
    pub(super) values: Vec<&'a RawValue>,
    pub(super) length: usize,
}

impl<'de: 'a, 'a, const MAX: usize> Deserialize<'de> for List<'a, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values<const MAX: usize>;

        impl<'de, const MAX: usize> Visitor<'de> for Values<MAX> {
            type Value = List<'de, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut list = List { values: Vec::new(), length: 0 };
                while list.length < MAX
                    && let Some(value) = seq.next_element()?
                {
                    list.values.push(value);
                    list.length += 1;
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    list.length += 1;
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(Values)
    }
}

/// Returns an object; one without values if there is none, or a value of another type.
pub(super) fn object<'a, T: Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Returns a list; an empty one if there is none, or a value of another type.
pub(super) fn list<'a, const MAX: usize>(raw: Option<&'a RawValue>) -> List<'a, MAX> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or(List { values: Vec::new(), length: 0 })
}

/// Returns a text; also a number or a truth value, as it is written. Halves of surrogate pairs
/// become U+FFFD.
pub(super) fn text(raw: Option<&RawValue>) -> Option<String> {
    let raw = raw?.get();
    match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok().or_else(|| {
            let Wtf8(bytes) = serde_json::from_str(raw).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }),
        b'{' | b'[' | b'n' => None,
        _ => Some(raw.to_owned()),
    }
}

/// A string in which surrogates may have no partner.
struct Wtf8(Vec<u8>);

impl<'de> Deserialize<'de> for Wtf8 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Wtf8;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Wtf8, E> {
                Ok(Wtf8(bytes.to_owned()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Returns a number, also one in a string.
pub(super) fn number(raw: Option<&RawValue>) -> Option<f64> {
    let number: f64 = text(raw)?.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// Returns a number that is not negative, without its decimals: a size, a port.
pub(super) fn count(raw: Option<&RawValue>) -> Option<u64> {
    number(raw).filter(|number| *number >= 0.0).map(|number| number as u64)
}

/// Returns a time in milliseconds that is not negative.
pub(super) fn millis(raw: Option<&RawValue>) -> Option<Span> {
    let millis = number(raw).filter(|number| *number >= 0.0)?;
    Some(Span::from_nanos((millis * 1e6).round() as u64))
}
