//! The index of the recorded requests.

use std::borrow::Cow;
use std::io::Read;

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use manyways_model::matching::{Index, Recorded, Request, Rule};
use manyways_wire::archive::container::ContainerError;
use manyways_wire::archive::{Archive, Body, Exchange};

use super::super::MAX_MATCHED_BODY;
use super::super::hollow::Coding;
use super::store::Store;

/// Reads all recorded requests. Their numbers are those of the exchanges.
pub(super) fn index(archive: &Archive, store: &Store, rule: Rule) -> Result<Index, ContainerError> {
    let read = |exchange: &Exchange| body(exchange, store);
    let bodies: Vec<Bytes> = archive.exchanges.iter().map(read).collect::<Result<_, _>>()?;
    let fields: Vec<Vec<(&str, &[u8])>> = archive
        .exchanges
        .iter()
        .map(|exchange| {
            let fields = exchange.request.fields.iter();
            fields.map(|field| (field.name.as_str(), field.value.as_slice())).collect()
        })
        .collect();
    let bodies: Vec<Cow<'_, [u8]>> =
        bodies.iter().zip(&fields).map(|(body, fields)| decoded_body(fields, body)).collect();
    let requests = archive.exchanges.iter().zip(&fields).zip(&bodies).enumerate();
    let recorded = requests.filter_map(|(id, ((exchange, fields), body))| {
        let request = Request::from_url(&exchange.request.method, &exchange.request.url)?;
        let connection = exchange.connection.map(|number| number as u64);
        let response = exchange.response.as_ref();
        Some(Recorded {
            id,
            request: Request { fields, body, connection, ..request },
            status: response.map(|response| response.status),
            response: response.map(|response| identity(response.body)),
        })
    });
    Ok(Index::new(rule, recorded))
}

/// Reads the body of a request with its content coding, up to [`MAX_MATCHED_BODY`] bytes. A body that was
/// not recorded has none.
pub(super) fn body(exchange: &Exchange, store: &Store) -> Result<Bytes, ContainerError> {
    match exchange.request.body.and_then(|body| body.digest) {
        Some(digest) => store.beginning(&digest, MAX_MATCHED_BODY as u64),
        None => Ok(Bytes::new()),
    }
}

/// A number that is equal for equal bodies.
fn identity(body: Option<Body>) -> u64 {
    let Some(body) = body else { return 0 };
    let digest = body.digest.and_then(|digest| digest.0.first_chunk().copied());
    digest.map_or(body.length, u64::from_be_bytes)
}

/// Removes the content coding from the body of a request, up to [`MAX_MATCHED_BODY`] bytes. A body that
/// cannot be decoded stays as it is.
pub(in super::super) fn decoded_body<'b>(
    fields: &[(&str, &[u8])],
    body: &'b [u8],
) -> Cow<'b, [u8]> {
    let coding = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    let Some((_, coding)) = coding.filter(|_| !body.is_empty()) else { return Cow::Borrowed(body) };
    let reader: Box<dyn Read + '_> = match Coding::parse(coding) {
        Some(Coding::Gzip) => Box::new(GzDecoder::new(body)),
        Some(Coding::Zlib) => Box::new(ZlibDecoder::new(body)),
        _ => return Cow::Borrowed(body),
    };
    let mut decoded = Vec::new();
    match reader.take(MAX_MATCHED_BODY as u64).read_to_end(&mut decoded) {
        Ok(_) => Cow::Owned(decoded),
        // The beginning of a long body, which was cut, ends too early, too.
        Err(_) if body.len() >= MAX_MATCHED_BODY => Cow::Owned(decoded),
        Err(_) => Cow::Borrowed(body),
    }
}
