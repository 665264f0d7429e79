//! The program behind the live origins: it answers for all of them, each object after its think time.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manyways_unit::Span;
use manyways_wire::har;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::site::Site;
use crate::traffic::{dial, web};

/// Answer as the origins of a page, for a web server in front.
#[derive(clap::Args)]
pub struct PageOriginsArgs {
    /// The HAR file of the page.
    har: PathBuf,
    /// Of the think times.
    #[arg(long)]
    seed: u64,
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
}

/// Reads the page of a HAR file.
///
/// # Errors
/// One sentence, if the file cannot be read, or has no page.
pub fn read(har: &Path, seed: u64) -> Result<Site, String> {
    let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", har.display());
    let bytes = std::fs::read(har).map_err(|error| named(&error))?;
    let import = har::read(&bytes).map_err(|error| named(&error))?;
    Site::new(&import.archive, seed).map_err(|error| named(&error))
}

/// A response, and the time before it.
struct Answer {
    think: Span,
    response: Vec<u8>,
}

/// By host name, space and path.
type Answers = HashMap<String, Answer>;

/// Runs the server until the process is killed.
///
/// # Errors
/// If the page cannot be read, or the address is in use.
pub async fn run(args: &PageOriginsArgs) -> io::Result<()> {
    let site = read(&args.har, args.seed).map_err(io::Error::other)?;
    let answers = Rc::new(answers(&site));
    let listener = dial::listen(false, args.listen)?;
    dial::serve(listener, move |stream| answer(stream, Rc::clone(&answers))).await
}

fn answers(site: &Site) -> Answers {
    let all = site.objects.iter().filter_map(|object| {
        let (_, rest) = object.url.split_once("://")?;
        let (name, path) = rest.split_at(rest.find('/')?);
        let (media_type, body) = site.content(object);
        // Timing-Allow-Origin lets a page of another origin read the size.
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\
             Timing-Allow-Origin: *\r\nCache-Control: max-age=600\r\n\r\n",
            body.len()
        );
        let response = [head.into_bytes(), body].concat();
        Some((format!("{name} {path}"), Answer { think: object.think, response }))
    });
    all.collect()
}

async fn answer(mut stream: TcpStream, answers: Rc<Answers>) -> io::Result<()> {
    let mut unread = Vec::new();
    while let Some(head) = web::head(&mut stream, &mut unread).await? {
        let found = asked(&head).and_then(|asked| answers.get(&asked));
        let Some(Answer { think, response }) = found else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await?;
            continue;
        };
        tokio::time::sleep((*think).into()).await;
        stream.write_all(response).await?;
    }
    Ok(())
}

/// The host name and the path of a request.
fn asked(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    let path = head.strip_prefix("GET ")?.split(' ').next()?;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let (_, name) = lines.find(|(name, _)| name.eq_ignore_ascii_case("host"))?;
    Some(format!("{name} {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_an_origin_and_a_path() {
        let head = b"GET /a?b=c HTTP/1.1\r\nAccept: */*\r\nHost: www.test\r\n\r\n";
        assert_eq!(asked(head).as_deref(), Some("www.test /a?b=c"));
        assert_eq!(asked(b"POST /a HTTP/1.1\r\nHost: www.test\r\n\r\n"), None);
        assert_eq!(asked(b"GET /a HTTP/1.1\r\n\r\n"), None);
    }
}
