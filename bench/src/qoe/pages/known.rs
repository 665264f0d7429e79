//! A server of a page whose edges are known.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use manyways_model::qoe::page::known::{Answer, KnownPage, ORIGINS};
use manyways_sys::privilege::raise_file_limit;
use manyways_unit::Span;

use super::HOST;
use crate::replay::request;

/// Limit of a wait for the browser.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serve a page of `manyways_model::qoe::page::known` over HTTP/1.1, until it is killed.
#[derive(clap::Args)]
pub struct KnownPageServeArgs {
    #[arg(long, value_name = "N")]
    seed: u64,
    /// Port of the first origin; the others have the next ones.
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// This object comes later.
    #[arg(long, value_name = "INDEX=TIME")]
    late: Option<Late>,
    /// The server takes no time.
    #[arg(long)]
    prompt: bool,
}

/// An object by its index, and how much later it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Late {
    pub index: usize,
    pub delay: Span,
}

impl FromStr for Late {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=');
        let late = parts.and_then(|(index, delay)| {
            Some(Self { index: index.parse().ok()?, delay: delay.parse().ok()? })
        });
        late.ok_or_else(|| format!("{text:?} is not INDEX=TIME, such as 3=300ms"))
    }
}

/// The address of an object at a server with this first port.
pub fn url(page: &KnownPage, port: u16) -> String {
    format!("http://{HOST}:{port}{}", page.path(0))
}

/// The command of a server.
pub fn serve(seed: u64, port: u16) -> String {
    format!("exec \"$BENCH\" known-page-serve --seed {seed} --port {port}")
}

/// The responses by their path, each with the time before it.
type Responses = HashMap<String, (Span, Vec<u8>)>;

pub fn known_page_serve(args: &KnownPageServeArgs) -> io::Result<()> {
    raise_file_limit()?;
    // First of all, so that no browser comes too early.
    let listen = |origin| {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port + origin as u16));
        TcpListener::bind(address)
    };
    let listeners: Vec<TcpListener> = (0..ORIGINS).map(listen).collect::<io::Result<_>>()?;
    let responses = Arc::new(responses(args));
    std::thread::scope(|scope| {
        for listener in listeners {
            scope.spawn({
                let responses = Arc::clone(&responses);
                move || {
                    // A thread for each connection, because threads wake up on time.
                    for stream in listener.incoming().flatten() {
                        let responses = Arc::clone(&responses);
                        std::thread::spawn(move || answer(stream, &responses));
                    }
                }
            });
        }
    });
    Ok(())
}

fn responses(args: &KnownPageServeArgs) -> Responses {
    let page = KnownPage::new(args.seed);
    let base = |origin: usize| format!("http://{HOST}:{}", usize::from(args.port) + origin);
    let response = |index| {
        let Answer { path, media_type, body, server_time, .. } = page.answer(index, &base)?;
        let late = args.late.filter(|late| late.index == index);
        let usual = if args.prompt { Span::ZERO } else { server_time };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\
             Cache-Control: max-age=600\r\n\r\n",
            body.len()
        );
        let time = usual + late.map_or(Span::ZERO, |late| late.delay);
        Some((path, (time, [head.into_bytes(), body].concat())))
    };
    (0..page.count()).filter_map(response).collect()
}

fn answer(stream: TcpStream, responses: &Responses) -> io::Result<()> {
    const MISSING: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    while let Some(path) = request(&mut stream)? {
        let (time, response) = match responses.get(&path) {
            Some((time, response)) => (*time, response.as_slice()),
            None => (Span::ZERO, MISSING),
        };
        std::thread::sleep(time.into());
        stream.get_mut().write_all(response)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_late_object_comes_later() {
        let args = |late: Option<&str>, prompt| KnownPageServeArgs {
            seed: 7,
            port: 8000,
            late: late.map(|late| late.parse().unwrap()),
            prompt,
        };
        let page = KnownPage::new(7);
        let time = |responses: &Responses, index| responses[&page.path(index)].0;
        let (base, late) = (responses(&args(None, false)), responses(&args(Some("3=0.3s"), false)));
        for index in 0..page.count() {
            let added = if index == 3 { Span::from_millis(300) } else { Span::ZERO };
            assert_eq!(time(&late, index), time(&base, index) + added);
        }
        let prompt = responses(&args(None, true));
        assert!(time(&base, 0) > Span::ZERO && time(&prompt, 0).is_zero());
        assert!("3".parse::<Late>().is_err());
    }
}
