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

use answer::{Ask, Reply, Span};

/// Treatment of the connections to a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
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
    Babbles,
}

const PORTS: [(u16, Manner); 8] = [
    (80, Manner::Plain),
    (443, Manner::Secure),
    (444, Manner::SecureHttp1),
    (445, Manner::CountsPings),
    (446, Manner::IgnoresPings),
    (447, Manner::OneStream),
    (448, Manner::Silent),
    (449, Manner::Babbles),
];

/// State that all connections share.
struct Desk {
    object: Bytes,
    other: Bytes,
    healed: PathBuf,
    asked: Mutex<HashMap<(u16, String), u32>>,
    log: Mutex<File>,
}

/// The port and the link of a connection.
#[derive(Clone, Copy)]
struct Door {
    port: u16,
    link: u16,
}

impl Desk {
    fn reply(
        &self,
        door: Door,
        target: &str,
        range: Option<Span>,
        if_range: Option<&str>,
    ) -> Reply {
        let nth = {
            let mut asked = self.asked.lock().expect("nobody panics with it");
            let count = asked.entry((door.port, target.to_owned())).or_default();
            *count += 1;
            *count
        };
        let ask = Ask { link: door.link, nth, target, range, if_range };
        let reply = answer::answer(&ask, &self.object, &self.other, self.healed.exists());
        let range = range.map(|(from, to)| match to {
            Some(to) => format!("{from}-{to}"),
            None => format!("{from}-"),
        });
        let (Door { port, link }, range) = (door, range.unwrap_or_else(|| "all".to_owned()));
        self.note(&format!("{port} {link} {nth} {target} {range} {}", reply.status));
        reply
    }

    fn note(&self, line: &str) {
        let mut log = self.log.lock().expect("nobody panics with it");
        writeln!(log, "{line}").expect("room for a log");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("which folder?")?);
    let desk = Arc::new(Desk {
        object: fs::read(folder.join("root/object"))?.into(),
        other: fs::read(folder.join("root/other"))?.into(),
        healed: folder.join("out/healed"),
        asked: Mutex::default(),
        log: Mutex::new(File::create(folder.join("faulty.log"))?),
    });
    let mut listeners = Vec::new();
    for (port, manner) in PORTS {
        let tls = TlsAcceptor::from(tls(&folder, manner)?);
        listeners.push((TcpListener::bind(("::", port)).await?, port, manner, tls));
    }
    for (listener, port, manner, tls) in listeners {
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let door = Door { port, link: link(peer.ip()) };
                tokio::spawn(serve(stream, door, manner, tls.clone(), Arc::clone(&desk)));
            }
        });
    }
    std::future::pending().await
}

fn tls(folder: &Path, manner: Manner) -> Result<Arc<rustls::ServerConfig>, Box<dyn Error>> {
    let chain = CertificateDer::pem_file_iter(folder.join("server.pem"))?;
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key"))?;
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    if manner != Manner::SecureHttp1 {
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

async fn serve(stream: TcpStream, door: Door, manner: Manner, tls: TlsAcceptor, desk: Arc<Desk>) {
    // An error means that the client has closed the connection.
    let _ = stream.set_nodelay(true);
    match manner {
        Manner::Plain => return http1::serve(stream, door, &desk).await,
        Manner::Silent => {
            let _open = stream;
            return std::future::pending().await;
        }
        _ => {}
    }
    let Ok(mut stream) = tls.accept(stream).await else { return };
    if manner == Manner::Babbles {
        use tokio::io::AsyncWriteExt;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwords").await;
        let _ = stream.shutdown().await;
    } else if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2::serve(stream, door, manner, &desk).await;
    } else {
        http1::serve(stream, door, &desk).await;
    }
}
