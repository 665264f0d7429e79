//! Entries with the fields beyond HAR, which [`super::write()`] made.

use manyways_unit::{Span, Time};

use super::body::{self, Bodies};
use super::url::Url;
use super::{MAX_FIELDS, base64, extra, head, raw};
use crate::archive::{Body, Digest, Exchange, Field, Interim, Request, Response};

/// # Errors
/// A sentence: a field beyond HAR is damaged, or contradicts another one.
pub(super) fn read(
    entry: &raw::Entry,
    connections: usize,
    bodies: &mut Bodies,
    warnings: &mut Vec<String>,
) -> Result<Exchange, String> {
    let extra = entry.extra.ok_or("it has no field _manyways")?;
    let extra: extra::Entry = serde_json::from_str(extra.get())
        .map_err(|error| format!("its field _manyways is damaged: {error}"))?;
    if let Some(index) = extra.connection.filter(|index| *index >= connections) {
        return Err(format!("it has the connection {index} of {connections}"));
    }
    Ok(Exchange {
        connection: extra.connection,
        stream: extra.stream,
        page: raw::text(entry.page),
        started: Time::from_nanos(extra.started),
        timings: extra.timings.read(),
        think: extra.think.map(Span::from_nanos),
        abort: extra.abort()?,
        request: request(entry, extra.request, bodies, warnings)?,
        response: match extra.response {
            Some(extra) => Some(response(entry, extra, bodies, warnings)?),
            None => None,
        },
    })
}

fn request(
    entry: &raw::Entry,
    extra: extra::Message,
    bodies: &mut Bodies,
    warnings: &mut Vec<String>,
) -> Result<Request, String> {
    let request: raw::Request = raw::object(entry.request);
    let method = raw::text(request.method).filter(|method| head::is_token(method));
    let url = raw::text(request.url).ok_or("it has no URL")?;
    Url::parse(&url)?;
    let content: raw::Body = raw::object(request.body);
    let protocol = extra.protocol()?;
    let mut fields = headers(request.headers)?;
    let encoding = content.encoding.or(content.own_encoding);
    let text = body::from_text(content.text, encoding)?;
    Ok(Request {
        method: method.ok_or("its method is missing or invalid")?,
        url,
        protocol,
        body: stored(extra.body, text, &mut fields, bodies, warnings)?,
        fields,
        trailers: list(extra.trailers)?,
    })
}

fn response(
    entry: &raw::Entry,
    extra: extra::Response,
    bodies: &mut Bodies,
    warnings: &mut Vec<String>,
) -> Result<Response, String> {
    let response: raw::Response = raw::object(entry.response);
    let status = raw::count(response.status).and_then(|status| u16::try_from(status).ok());
    let content: raw::Content = raw::object(response.content);
    let text = body::from_text(content.text, content.encoding)?;
    let mut fields = headers(response.headers)?;
    let arrivals = extra.arrivals();
    let extra::Response { message, interim, .. } = extra;
    Ok(Response {
        status: status
            .filter(|s| (200..=599).contains(s))
            .ok_or("its status is not a final one")?,
        reason: raw::text(response.reason).unwrap_or_default(),
        protocol: message.protocol()?,
        body: stored(message.body, text, &mut fields, bodies, warnings)?,
        fields,
        interim: interim.into_iter().map(self::interim).collect::<Result<_, _>>()?,
        trailers: list(message.trailers)?,
        arrivals,
    })
}

fn interim(extra: extra::Interim) -> Result<Interim, String> {
    if !(100..=199).contains(&extra.status) {
        return Err(format!("an interim response has the status {}", extra.status));
    }
    let after = extra.after.map(Span::from_nanos);
    Ok(Interim { status: extra.status, fields: list(extra.fields)?, after })
}

fn headers(headers: Option<&serde_json::value::RawValue>) -> Result<Vec<Field>, String> {
    let headers = headers.ok_or("it has no headers")?;
    let fields: Vec<extra::Field> = serde_json::from_str(headers.get())
        .map_err(|error| format!("its headers are damaged: {error}"))?;
    list(fields)
}

fn list(fields: Vec<extra::Field>) -> Result<Vec<Field>, String> {
    if fields.len() > MAX_FIELDS {
        return Err(format!("a head has {} fields, more than {MAX_FIELDS}", fields.len()));
    }
    fields.into_iter().map(extra::Field::read).collect()
}

/// Stores the bytes of a body if the file has them: the encoded ones, else those of the text.
/// If these are others than the recorded ones, because they are decoded or were edited, they become
/// the body, without content coding.
fn stored(
    extra: Option<extra::Body>,
    text: Option<Vec<u8>>,
    fields: &mut Vec<Field>,
    bodies: &mut Bodies,
    warnings: &mut Vec<String>,
) -> Result<Option<Body>, String> {
    let Some(extra) = extra else { return Ok(None) };
    let mut body = extra.read()?;
    let Some(digest) = body.digest else { return Ok(Some(body)) };
    if let Some(encoded) = &extra.encoded {
        let bytes = base64::decode(encoded).ok_or("its encoded body is not base64")?;
        if Digest::of(&bytes) != digest || bytes.len() as u64 != body.length {
            return Err("its encoded body does not match its digest and length".to_owned());
        }
        bodies.add(bytes);
    } else if let Some(bytes) = text {
        let length = bytes.len() as u64;
        let found = bodies.add(bytes);
        if found != digest {
            let is_coded = head::is_coded(fields);
            let reason = if is_coded { "is decoded" } else { "is not the recorded one" };
            warnings.push(format!("its body {reason}; it is stored without content coding"));
            head::remove_coding(fields, length as usize);
            body = Body { length, decoded_length: Some(length), digest: Some(found), ..body };
        }
    }
    Ok(Some(body))
}
