use std::sync::atomic::{AtomicUsize, Ordering};

use manyways_wire::archive::KeyKind;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::duplex;
use tokio_rustls::TlsConnector;

use super::super::sample::{Sample, run};
use super::*;

/// A certificate authority of a test.
pub(in super::super) struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    root: CertificateDer<'static>,
    issued: AtomicUsize,
}

impl Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    pub(in super::super) fn new() -> Arc<Self> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().der().clone();
        let issuer = rcgen::Issuer::new(params, key);
        Arc::new(Self { issuer, root, issued: AtomicUsize::new(0) })
    }

    /// A client that trusts the authority, and offers these protocols.
    pub(in super::super) fn client(&self, protocols: &[&str]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols =
            protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

impl Certificates for Authority {
    fn certificate(&self, names: &[String], _: Option<&Certificate>) -> Option<Arc<CertifiedKey>> {
        self.issued.fetch_add(1, Ordering::Relaxed);
        let key = rcgen::KeyPair::generate().ok()?;
        let leaf = rcgen::CertificateParams::new(names).ok()?.signed_by(&key, &self.issuer).ok()?;
        let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let signing = ring::sign::any_supported_type(&private).ok()?;
        Some(Arc::new(CertifiedKey::new(vec![leaf.der().clone()], signing)))
    }
}

/// Connects a client to a server address. Returns the protocol if the certificate is valid for `name`;
/// without `sends_name`, the client asks for none.
async fn connect(
    servers: &Arc<Servers>,
    authority: &Authority,
    server: &str,
    name: &str,
    protocols: &[&str],
) -> Result<Option<String>, String> {
    let (client, there) = duplex(1 << 16);
    let (servers, server) = (servers.clone(), server.parse().unwrap());
    let task = tokio::spawn(async move { servers.accept(server, there).await.map(|(_, h2)| h2) });
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = authority.client(protocols).connect(name, client).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let protocol = stream.get_ref().1.alpn_protocol();
    let protocol = protocol.map(|protocol| String::from_utf8_lossy(protocol).into_owned());
    let is_http2 = task.await.unwrap().map_err(|error| error.to_string())?;
    assert_eq!(is_http2, protocol.as_deref() == Some("h2"));
    Ok(protocol)
}

fn sample() -> Sample {
    let mut sample = Sample::default()
        .connection("192.0.2.1:443", Some(("a.example", "h2")))
        .connection("192.0.2.1:443", Some(("a.example", "h2")))
        .connection("192.0.2.1:443", Some(("b.example", "http/1.1")))
        .connection("192.0.2.2:443", Some(("A.example", "http/1.1")))
        .connection("192.0.2.3:443", Some(("c.example", "h2")))
        .connection("192.0.2.4:80", None);
    let certificate = |names: &[&str]| Certificate {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        key: KeyKind::P256,
        chain_length: 3_000,
    };
    let connections = &mut sample.0.archive.connections;
    connections[1].tls.as_mut().unwrap().certificate =
        Some(certificate(&["a.example", "*.cdn.example"]));
    connections[4].protocol = Protocol::Http11;
    let last = connections[4].tls.as_mut().unwrap();
    (last.server_name, last.alpn) = (None, None);
    last.certificate = Some(certificate(&["192.0.2.3", "c.example"]));
    sample
}

#[test]
fn certificate_and_protocol_are_those_of_address_and_name() {
    run(async {
        let authority = Authority::new();
        let servers = Servers::new(&sample().0.archive.connections, authority.clone());
        let servers = Arc::new(servers);
        // One for each address and name.
        assert_eq!(authority.issued.load(Ordering::Relaxed), 4);
        let both = &["http/1.1", "h2"];
        let h2 = Ok(Some("h2".to_owned()));
        let http1 = Ok(Some("http/1.1".to_owned()));
        for (server, name, offered, expected) in [
            ("192.0.2.1:443", "a.example", &both[..], h2.clone()),
            ("192.0.2.1:443", "A.Example", both, h2.clone()),
            ("192.0.2.1:443", "a.example", &["http/1.1"], http1.clone()),
            ("192.0.2.1:443", "a.example", &[], Ok(None)),
            ("192.0.2.1:443", "b.example", both, http1.clone()),
            ("192.0.2.2:443", "a.example", both, http1.clone()),
            // The same name on an address where it was not recorded.
            ("192.0.2.9:443", "b.example", both, http1),
            // The server chose no protocol.
            ("192.0.2.3:443", "192.0.2.3", both, Ok(None)),
            // Neither name nor address were recorded.
            ("192.0.2.9:443", "z.example", both, h2.clone()),
            ("192.0.2.9:443", "192.0.2.9", both, h2),
        ] {
            let found = connect(&servers, &authority, server, name, offered).await;
            assert_eq!(found, expected, "{server} {name} {offered:?}");
        }
        assert_eq!(authority.issued.load(Ordering::Relaxed), 6);
    });
}

#[test]
fn a_certificate_has_the_recorded_names() {
    let authority = Authority::new();
    let servers = Servers::new(&sample().0.archive.connections, authority);
    let config = servers.choose("192.0.2.1:443".parse().unwrap(), Some("a.example")).unwrap();
    assert_eq!(config.alpn_protocols[0], b"h2");
    // A client without a name gets a certificate of the address.
    let nameless = servers.choose("192.0.2.1:443".parse().unwrap(), None).unwrap();
    assert!(Arc::ptr_eq(&nameless, &config));
    run(async {
        // A client that asks for one name of the certificate may use the connection for the other.
        let authority = Authority::new();
        let servers = Arc::new(Servers::new(&sample().0.archive.connections, authority.clone()));
        let (client, there) = duplex(1 << 16);
        let server: SocketAddr = "192.0.2.1:443".parse().unwrap();
        tokio::spawn(async move { servers.accept(server, there).await });
        let name = ServerName::try_from("a.example").unwrap();
        let stream = authority.client(&["h2"]).connect(name, client).await.unwrap();
        let leaf = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        let leaf = rustls::server::ParsedCertificate::try_from(&leaf).unwrap();
        for (name, is_valid) in [("a.example", true), ("x.cdn.example", true), ("b.example", false)]
        {
            let name = ServerName::try_from(name).unwrap();
            let verified = rustls::client::verify_server_name(&leaf, &name);
            assert_eq!(verified.is_ok(), is_valid, "{name:?}");
        }
    });
}

#[test]
fn other_names_are_limited() {
    let authority = Authority::new();
    let servers = Servers::new(&[], authority.clone());
    let server: SocketAddr = "192.0.2.1:443".parse().unwrap();
    let config = servers.choose(server, Some("a.example")).unwrap();
    let mut others = servers.others.lock().unwrap();
    for number in others.len()..MAX_OTHER_NAMES {
        others.insert(number.to_string(), config.clone());
    }
    drop(others);
    assert!(servers.choose(server, Some("b.example")).is_none());
    assert!(servers.choose(server, Some("a.example")).is_some());
    assert_eq!(authority.issued.load(Ordering::Relaxed), 1);
}

#[test]
fn malformed_handshakes_are_errors() {
    use tokio::io::AsyncWriteExt;
    run(async {
        for bytes in [&b"\x16\x03\x01\0\x05hello"[..], b"\x16\x03\x01\xff\xff", b"\x16", b"GET /"] {
            let servers = Servers::new(&[], Authority::new());
            let (mut client, there) = duplex(1 << 16);
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            let server = "192.0.2.1:443".parse().unwrap();
            assert!(servers.accept(server, there).await.is_err());
        }
    });
}
