use std::future::pending;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::probe::{Ending, Network, Options, Report, measure};

fn loopback() -> Network {
    let all = manyways_sys::interface::list().unwrap();
    Network::new(all.into_iter().find(|one| one.name == "lo").unwrap())
}

/// Serves one connection with these bytes after the request's head, and keeps it open.
async fn server(response: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(response).await.unwrap();
        // Until the client closes the connection.
        let _ = stream.read_u8().await;
    });
    port
}

async fn measured(http: &Http) -> (Report, HttpReport) {
    let (network, options) = (loopback(), Options::default());
    let report = measure(http, &network, &options, pending(), Arc::new(|_| {})).await.unwrap();
    match report.measurement.clone() {
        Some(Measurement::Http(http)) => (report, http),
        other => panic!("{other:?}"),
    }
}

fn http(port: u16) -> Http {
    Http::new(Location::parse(&format!("http://127.0.0.1:{port}/a?b")).unwrap())
}

#[tokio::test]
async fn the_phases_of_a_plain_request_have_times() {
    let port = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde").await;
    let (report, found) = measured(&http(port)).await;
    assert!(matches!(report.ending, Ending::Complete), "{report:?}");
    assert_eq!((found.status, found.protocol), (Some(200), Some("http/1.1")));
    assert_eq!((found.body.as_bytes(), found.is_complete), (5, true));
    let Phases { lookup, connect, tls, first_byte, body, total } = found.phases;
    assert_eq!((lookup, tls), (None, None));
    let sum = [connect, first_byte, body].into_iter().map(Option::unwrap);
    assert!(sum.fold(Span::ZERO, |sum, phase| sum + phase) <= total.unwrap());
}

#[tokio::test]
async fn a_body_is_read_up_to_its_maximum() {
    let port =
        server(b"HTTP/1.1 302 Found\r\nLocation: /c\r\nContent-Length: 9\r\n\r\nabcde").await;
    let (report, found) = measured(&Http { max_body: Size::from_bytes(3), ..http(port) }).await;
    assert!(matches!(report.ending, Ending::Complete), "{report:?}");
    assert_eq!((found.status, found.location.as_deref()), (Some(302), Some("/c")));
    assert!(!found.is_complete && found.phases.body.is_none() && found.body.as_bytes() >= 3);
}

#[tokio::test]
async fn what_is_not_http_is_an_error_and_the_connection_remains() {
    let port = server(b"SSH-2.0-OpenSSH\r\n").await;
    let (report, found) = measured(&http(port)).await;
    assert!(matches!(report.ending, Ending::Failed(ProbeError::Http(_))), "{report:?}");
    assert!(found.phases.connect.is_some() && found.status.is_none());
}
