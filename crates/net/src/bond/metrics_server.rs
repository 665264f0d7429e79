//! An HTTP server for `GET /metrics`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use manyways_proto::bond::io_limits::IoLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::listeners::accept_each;

/// Maximum length of a request's header section, in bytes.
const MAX_HEADER_SECTION: usize = 8 << 10;

/// Answers each request with the text that `text` returns at that time. Returns the address, with
/// its port. Runs on the calling thread's local tasks.
///
/// # Errors
/// If the address cannot be bound.
pub async fn serve<F, T>(at: SocketAddr, text: F) -> io::Result<SocketAddr>
where
    F: Fn() -> T + 'static,
    T: Future<Output = String> + 'static,
{
    let limits = IoLimits::default();
    let listener = TcpListener::bind(at).await?;
    let bound = listener.local_addr()?;
    let (text, free) = (Rc::new(text), Arc::new(Semaphore::new(limits.metrics_requests)));
    tokio::task::spawn_local(accept_each(listener, limits, move |stream, _| {
        // A connection beyond the limit is closed without an answer.
        let Ok(place) = Arc::clone(&free).try_acquire_owned() else { return };
        let text = Rc::clone(&text);
        tokio::task::spawn_local(async move {
            let _place = place;
            let limit = Duration::from(limits.metrics_request);
            if let Ok(Err(error)) = timeout(limit, answer(stream, &*text)).await {
                tracing::debug!("a request for metrics failed: {error}");
            }
        });
    }));
    Ok(bound)
}

async fn answer<F, T>(mut stream: TcpStream, text: &F) -> io::Result<()>
where
    F: Fn() -> T,
    T: Future<Output = String>,
{
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= MAX_HEADER_SECTION || stream.read_buf(&mut head).await? == 0 {
            return respond(&mut stream, "400 Bad Request", "no request\n").await;
        }
    }
    let (status, body) = match request_line(&head) {
        Some(("GET", "/metrics")) => ("200 OK", text().await),
        Some(("GET", _)) => ("404 Not Found", "only /metrics exists\n".to_owned()),
        Some(_) => ("405 Method Not Allowed", "only GET is supported\n".to_owned()),
        None => ("400 Bad Request", "no request\n".to_owned()),
    };
    respond(&mut stream, status, &body).await
}

/// Returns the method and the path of a request.
fn request_line(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    words.next()?.starts_with("HTTP/1.").then_some(())?;
    Some((method, target.split('?').next().unwrap_or(target)))
}

async fn respond(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    async fn asked(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        // The server may reset the connection after its answer, because of bytes that it has not
        // read.
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn there_is_one_page_which_can_only_be_read() {
        let work = async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let at = serve(any, || async { "some_metric 1\n".to_owned() }).await.unwrap();
            let page = asked(at, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
            assert!(page.ends_with("\r\n\r\nsome_metric 1\n"), "{page}");
            let other = asked(at, b"GET / HTTP/1.1\r\n\r\n").await;
            assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
            let post = asked(at, b"POST /metrics HTTP/1.1\r\n\r\n").await;
            assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
            let cut = asked(at, b"GET /metr").await;
            assert!(cut.starts_with("HTTP/1.1 400 "), "{cut}");
            let none = asked(at, b"\x16\x03\x01\r\n\r\n").await;
            assert!(none.starts_with("HTTP/1.1 400 "), "{none}");
        };
        LocalSet::new().run_until(work).await;
    }

    #[test]
    fn a_query_string_is_ignored() {
        assert_eq!(request_line(b"GET /metrics?a=b HTTP/1.1\r\n\r\n"), Some(("GET", "/metrics")));
        assert_eq!(request_line(b"GET /metrics\r\n\r\n"), None);
    }
}
