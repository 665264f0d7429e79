//! Requests as the matcher reads them.

/// A request: a recorded one, or one of a replayed client. Nothing has to be valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Case-sensitive (RFC 9110, 9.1).
    pub method: &'a str,
    /// `http` or `https`, in any case.
    pub scheme: &'a str,
    /// Host and optional port, as in the field Host or `:authority`.
    pub authority: &'a str,
    /// Path before `?`, still percent-encoded.
    pub path: &'a [u8],
    /// Part behind `?`, still percent-encoded. `None` without `?`.
    pub query: Option<&'a [u8]>,
    /// Names in any case.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// Without content coding; empty if the request has none.
    pub body: &'a [u8],
    /// Number of the connection: of the recording in a recorded request, else one that the server
    /// assigned to a connection of the client. `None` if it is unknown.
    pub connection: Option<u64>,
}

/// A recorded request with the properties of its response that decide which requests it answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded<'a> {
    /// Returned in an answer; usually the index of the exchange.
    pub id: usize,
    pub request: Request<'a>,
    /// Status of the response. `None` if none came.
    pub status: Option<u16>,
    /// Any number that is equal for equal bodies of responses, such as eight bytes of the digest, or
    /// the length of a hollow body. Requests with equal responses may be confused without harm.
    pub response: Option<u64>,
}

impl<'a> Request<'a> {
    /// Splits an absolute URL. `None` if it has no scheme with `://`.
    pub fn from_url(method: &'a str, url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        let path = if path.is_empty() { "/" } else { path }.as_bytes();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Some(Self { method, scheme, authority, path, query, ..Self::default() })
    }

    /// Returns the first value of a field.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        let field = self.fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name))?;
        Some(field.1)
    }
}
