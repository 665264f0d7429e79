//! A web server with deliberate faults, for the tests of the binary.
//!
//! `faulty-server FOLDER` serves one object, `FOLDER/root/object`, under `/WHEN/FAULT/object`:
//! [`answer`] has the table of faults and their conditions. Faults of whole connections depend on
//! the port, see [`PORTS`]. Once `FOLDER/out/healed` exists, the responses are correct.
//! `FOLDER/faulty.log` has a line for each request and for each connection that the server ends
//! with ENHANCE_YOUR_CALM.
#![forbid(unsafe_code)]

mod answer;
mod http1;
mod http2;

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use answer::{Reply, Request, Span};

/// Treatment of the connections to a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortMode {
    Plain,
    /// `https://` with HTTP/2 or HTTP/1.1.
    Secure,
    /// `https://` with HTTP/1.1 only.
    SecureHttp1,
    /// HTTP/2; the third PING causes GOAWAY with ENHANCE_YOUR_CALM.
    CountsPings,
    /// HTTP/2 without replies to PINGs.
    IgnoresPings,
    /// HTTP/2 with at most one concurrent stream.
    OneStream,
    /// Accepts connections and sends nothing.
    Silent,
    /// Negotiates HTTP/2 and sends HTTP/1.1.
    WrongProtocol,
}

const PORTS: [(u16, PortMode); 8] = [
    (80, PortMode::Plain),
    (443, PortMode::Secure),
    (444, PortMode::SecureHttp1),
    (445, PortMode::CountsPings),
    (446, PortMode::IgnoresPings),
    (447, PortMode::OneStream),
    (448, PortMode::Silent),
    (449, PortMode::WrongProtocol),
];

/// State that all connections share.
struct Server {
    object: Bytes,
    other: Bytes,
    healed: PathBuf,
    request_counts: Mutex<HashMap<(u16, String), u32>>,
    log: Mutex<File>,
}

/// The port and the link of a connection.
#[derive(Clone, Copy)]
struct ConnectionInfo {
    port: u16,
    link: u16,
}

impl Server {
    fn reply(
        &self,
        door: ConnectionInfo,
        target: &str,
        range: Option<Span>,
        if_range: Option<&str>,
    ) -> Reply {
        let nth = {
            let mut asked = self.request_counts.lock().expect("nobody panics with it");
            let count = asked.entry((door.port, target.to_owned())).or_default();
            *count += 1;
            *count
        };
        let request = Request { link: door.link, number: nth, target, range, if_range };
        let reply = answer::answer(&request, &self.object, &self.other, self.healed.exists());
        let range = range.map(|(from, to)| match to {
            Some(to) => format!("{from}-{to}"),
            None => format!("{from}-"),
        });
        let (ConnectionInfo { port, link }, range) =
            (door, range.unwrap_or_else(|| "all".to_owned()));
        self.log_line(&format!("{port} {link} {nth} {target} {range} {}", reply.status));
        reply
    }

    fn log_line(&self, line: &str) {
        let mut log = self.log.lock().expect("nobody panics with it");
        writeln!(log, "{line}").expect("room for a log");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("which folder?")?);
    let server = Arc::new(Server {
        object: fs::read(folder.join("root/object"))?.into(),
        other: fs::read(folder.join("root/other"))?.into(),
        healed: folder.join("out/healed"),
        request_counts: Mutex::default(),
        log: Mutex::new(File::create(folder.join("faulty.log"))?),
    });
    let mut listeners = Vec::new();
    for (port, manner) in PORTS {
        let tls = TlsAcceptor::from(tls(&folder, manner)?);
        listeners.push((TcpListener::bind(("::", port)).await?, port, manner, tls));
    }
    for (listener, port, manner, tls) in listeners {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let door = ConnectionInfo { port, link: link(peer.ip()) };
                tokio::spawn(serve(stream, door, manner, tls.clone(), Arc::clone(&server)));
            }
        });
    }
    std::future::pending().await
}

fn tls(folder: &Path, manner: PortMode) -> Result<Arc<rustls::ServerConfig>, Box<dyn Error>> {
    let chain = CertificateDer::pem_file_iter(folder.join("server.pem"))?;
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key"))?;
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    if manner != PortMode::SecureHttp1 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}

/// The device's addresses in a lab contain the number of their link.
fn link(peer: IpAddr) -> u16 {
    match peer.to_canonical() {
        IpAddr::V4(address) => u16::from(address.octets()[2]),
        IpAddr::V6(address) => address.segments()[2],
    }
}

async fn serve(
    stream: TcpStream,
    door: ConnectionInfo,
    manner: PortMode,
    tls: TlsAcceptor,
    server: Arc<Server>,
) {
    // An error means that the client has closed the connection.
    let _ = stream.set_nodelay(true);
    match manner {
        PortMode::Plain => return http1::serve(stream, door, &server).await,
        PortMode::Silent => {
            let _open = stream;
            return std::future::pending().await;
        }
        _ => {}
    }
    let Ok(mut stream) = tls.accept(stream).await else { return };
    if manner == PortMode::WrongProtocol {
        use tokio::io::AsyncWriteExt;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwords").await;
        let _ = stream.shutdown().await;
    } else if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2::serve(stream, door, manner, &server).await;
    } else {
        http1::serve(stream, door, &server).await;
    }
}
