//! The server of the pages: the subset of HTTP/1.1 that browsers need, equal on every origin.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::dial;
use super::page::{ORIGINS, Page};

/// Numbers of objects of the served pages, which are those of the plan.
pub const PAGES: [usize; 5] = [20, 40, 70, 100, 150];
/// Maximum length of a request head in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Serves all pages at this address and at the following ports, one port for each origin.
pub fn serve(at: SocketAddr) -> io::Result<()> {
    let pages: BTreeMap<usize, Page> = PAGES.map(|count| (count, Page::new(count))).into();
    let pages = Rc::new(pages);
    for port in (at.port()..).take(ORIGINS) {
        let listener = dial::listen(false, SocketAddr::new(at.ip(), port))?;
        let pages = Rc::clone(&pages);
        let answering = move |stream| answer(stream, Rc::clone(&pages), at.port());
        tokio::task::spawn_local(dial::serve(listener, answering));
    }
    Ok(())
}

/// Returns the URL prefix of each origin.
pub fn base(server: IpAddr, first: u16) -> impl Fn(usize) -> String {
    move |origin| format!("http://{}", SocketAddr::new(server, first + origin as u16))
}

async fn answer(
    mut stream: TcpStream,
    pages: Rc<BTreeMap<usize, Page>>,
    first: u16,
) -> io::Result<()> {
    let base = base(stream.local_addr()?.ip(), first);
    let mut unread = Vec::new();
    while let Some(head) = head(&mut stream, &mut unread).await? {
        let found =
            parse_path(&head).and_then(|(count, index)| pages.get(&count)?.object(index, &base));
        let (status, kind, body) = match found {
            Some((kind, body)) => ("200 OK", kind, body),
            None => ("404 Not Found", "text/plain", Vec::new()),
        };
        // Timing-Allow-Origin lets a page of another origin read the size.
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Timing-Allow-Origin: *\r\nCache-Control: max-age=600\r\n\r\n",
            body.len()
        );
        let response = [head.into_bytes(), body].concat();
        stream.write_all(&response).await?;
    }
    Ok(())
}

/// Reads the head of the next request; `None` at the end of the stream.
pub async fn head(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = unread.split_off(end + 4);
            return Ok(Some(std::mem::replace(unread, rest)));
        }
        if unread.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    }
}

/// The page and the object of a request: `(count, index)`.
fn parse_path(head: &[u8]) -> Option<(usize, usize)> {
    let head = std::str::from_utf8(head).ok()?;
    let path = head.strip_prefix("GET /")?.split(' ').next()?;
    let (count, index) = path.split_once('/')?;
    Some((count.parse().ok()?, index.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_page_and_an_object() {
        assert_eq!(parse_path(b"GET /70/13 HTTP/1.1\r\nHost: a\r\n\r\n"), Some((70, 13)));
        assert_eq!(parse_path(b"GET /favicon.ico HTTP/1.1\r\n\r\n"), None);
        assert_eq!(parse_path(b"POST /70/13 HTTP/1.1\r\n\r\n"), None);
    }
}
