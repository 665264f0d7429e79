//! Client and server of QUIC connections, for the tests of captures.
//!
//! `quic-peer serve FOLDER [retry]` listens on port 443 with the certificate `server.pem` of the
//! folder, and creates the file `ready` there. With `retry` it sends a Retry packet to each client.
//! `quic-peer ask FOLDER ADDRESS NAME TIMES PAUSE WAIT BYTES` connects to the server NAME. It
//! requests BYTES bytes TIMES times; each response is delayed by WAIT seconds, and each request is
//! preceded by a pause of PAUSE seconds.
//!
//! Time: the pauses and delays are the workload.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, ServerConfig, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PROTOCOL: &[u8] = b"h3";
const PORT: u16 = 443;
/// Length of a request with its headers, which is longer than an acknowledgement.
const REQUEST: usize = 300;
/// Receive window of a stream, small enough that no long queue forms.
const STREAM_WINDOW: u32 = 60_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", folder] => serve(Path::new(folder), false).await,
        ["serve", folder, "retry"] => serve(Path::new(folder), true).await,
        ["ask", folder, server, name, times, pause, wait, bytes] => {
            let (endpoint, connection) = connect(Path::new(folder), server.parse()?, name).await?;
            for _ in 0..times.parse()? {
                tokio::time::sleep(Duration::from_secs_f64(pause.parse()?)).await;
                let (mut send, mut receive) = connection.open_bi().await?;
                send.write_all(format!("{:REQUEST$}", format!("{wait} {bytes}")).as_bytes())
                    .await?;
                send.finish()?;
                receive.read_to_end(usize::MAX).await?;
            }
            connection.close(VarInt::from_u32(0), b"done");
            endpoint.wait_idle().await;
            Ok(())
        }
        _ => Err("usage: quic-peer serve|ask FOLDER ...".into()),
    }
}

async fn serve(folder: &Path, is_retrying: bool) -> Done {
    let chain = vec![CertificateDer::from_pem_file(folder.join("server.pem"))?];
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key"))?;
    let mut tls =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
    let endpoint = Endpoint::server(config, here)?;
    fs::write(folder.join("ready"), "")?;
    while let Some(incoming) = endpoint.accept().await {
        if is_retrying && !incoming.remote_address_validated() {
            incoming.retry()?;
            continue;
        }
        tokio::spawn(async {
            // A client may close its connection at any time.
            let _ = answer(incoming).await;
        });
    }
    Ok(())
}

async fn answer(incoming: Incoming) -> Done {
    let connection = incoming.await?;
    loop {
        let (mut send, mut receive) = connection.accept_bi().await?;
        let request = String::from_utf8(receive.read_to_end(REQUEST).await?)?;
        let (wait, bytes) = request.trim().split_once(' ').ok_or("WAIT BYTES")?;
        tokio::time::sleep(Duration::from_secs_f64(wait.parse()?)).await;
        send.write_all(&vec![b'x'; bytes.parse()?]).await?;
        send.finish()?;
    }
}

async fn connect(folder: &Path, server: IpAddr, name: &str) -> Done<(Endpoint, Connection)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("authority.pem"))?)?;
    let mut tls =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec(), b"hq-interop".to_vec()];
    let mut endpoint = Endpoint::client(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(STREAM_WINDOW));
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(SocketAddr::new(server, PORT), name)?.await?;
    Ok((endpoint, connection))
}
