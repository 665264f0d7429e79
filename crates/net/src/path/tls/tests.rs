use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustls::ProtocolVersion;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::*;

/// Commands that make `key.pem` and `cert.pem`. webpki refuses a certificate of version 1 and a
/// short key, and ring has no algorithm for P-521.
const VERSION_1: &str = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
     -subj /CN=a -keyout key.pem -out request.pem && \
     openssl x509 -req -in request.pem -signkey key.pem -out cert.pem";
const RSA_1024: &str =
    "openssl req -x509 -newkey rsa:1024 -nodes -subj /CN=a -keyout key.pem -out cert.pem";
const P_521: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-521 -nodes \
     -subj /CN=a -keyout key.pem -out cert.pem";

/// A running `openssl s_server`.
struct OpensslServer {
    process: Child,
    /// Open, because the server writes to it.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(certificate: &str, version: &str) -> OpensslServer {
    let folder = TempDir::new().unwrap();
    let run = |words: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", words]).current_dir(folder.path()).stderr(Stdio::null());
        shell
    };
    assert!(run(certificate).status().unwrap().success(), "{certificate}");
    let serve = format!(
        "exec openssl s_server -accept 127.0.0.1:0 -cert cert.pem -key key.pem {version} \
         -cipher DEFAULT@SECLEVEL=0 -www"
    );
    let mut process = run(&serve).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut lines = output.by_ref().lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("ACCEPT ")?.parse().ok());
    let address = address.expect("the server listens");
    OpensslServer { process, _output: output, address }
}

#[tokio::test]
async fn without_checks_any_key_and_version_of_a_certificate_is_accepted() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    for (certificate, version, expected) in [
        (VERSION_1, "-tls1_2", ProtocolVersion::TLSv1_2),
        (VERSION_1, "-tls1_3", ProtocolVersion::TLSv1_3),
        (RSA_1024, "-tls1_2", ProtocolVersion::TLSv1_2),
        (RSA_1024, "-tls1_3", ProtocolVersion::TLSv1_3),
        (P_521, "-tls1_3", ProtocolVersion::TLSv1_3),
    ] {
        let server = start(certificate, version);
        let connect = async |trust| {
            let stream = TcpStream::connect(server.address).await.unwrap();
            handshake(config(&trust, &[]).unwrap(), "a", server.address, stream).await
        };
        let stream = connect(Trust::AnyCertificate).await;
        let stream = stream.unwrap_or_else(|error| panic!("{certificate} {version}: {error}"));
        assert_eq!(stream.get_ref().1.protocol_version(), Some(expected));
        // The server handles one connection at a time.
        drop(stream);
        assert!(connect(Trust::System).await.is_err(), "{certificate} {version}");
    }
}

#[test]
fn a_file_of_certificates_may_begin_with_a_byte_order_mark() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("authority.pem");
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new([]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&key).unwrap().pem();
    fs::write(&path, format!("\u{feff}{pem}{pem}")).unwrap();
    assert_eq!(certificates(&path).unwrap().len(), 2);
}
