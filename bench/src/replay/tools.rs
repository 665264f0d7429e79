//! Programs that the scripts of the cells run: an origin with think times, a client that opens
//! connections, and the server of a replay alone.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use manyways_model::matching::Rule;
use manyways_net::authority::Authority;
use manyways_net::replay::{Contents, Layout, Options, Server, Think, listen};
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

/// Limit of a wait for a peer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answer `/N/…` after N milliseconds, over HTTPS; until it is killed.
#[derive(clap::Args)]
pub struct OriginArgs {
    #[arg(long = "listen", value_name = "ADDR:PORT", required = true)]
    listen: Vec<SocketAddr>,
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

pub fn origin(args: &OriginArgs) -> io::Result<()> {
    let certificates = certificates(&args.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&args.key).map_err(io::Error::other)?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, key));
    let config = Arc::new(config.map_err(io::Error::other)?);
    let listeners: Vec<TcpListener> =
        args.listen.iter().map(TcpListener::bind).collect::<io::Result<_>>()?;
    // A thread for each connection, because threads wake up on time.
    std::thread::scope(|scope| {
        for listener in listeners {
            let config = Arc::clone(&config);
            scope.spawn(move || {
                for stream in listener.incoming().flatten() {
                    let config = Arc::clone(&config);
                    std::thread::spawn(move || answer(stream, config));
                }
            });
        }
    });
    Ok(())
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    while let Some(path) = request(&mut stream)? {
        let millis = path.split('/').nth(1).and_then(|millis| millis.parse().ok());
        std::thread::sleep(Duration::from_millis(millis.unwrap_or_default()));
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes";
        stream.get_mut().write_all(response.as_bytes())?;
    }
    Ok(())
}

/// The path of the next request, which has no body.
///
/// # Errors
/// The connection is broken.
pub fn request(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while line.trim() != "" {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(path))
}

/// Open connections, each for one request over HTTPS, and print their number and the seconds that they took.
#[derive(clap::Args)]
pub struct ConnectArgs {
    /// Server name, which is also asked for by name.
    #[arg(long)]
    name: String,
    #[arg(long, value_name = "ADDR:PORT")]
    server: SocketAddr,
    /// Certificates of the authorities that are trusted.
    #[arg(long, value_name = "FILE")]
    trust: PathBuf,
    /// For so long.
    #[arg(long, value_name = "TIME")]
    length: Span,
    /// Connections at a time.
    #[arg(long, value_name = "N")]
    jobs: usize,
}

pub fn connect(args: &ConnectArgs) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&args.trust)?);
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut config = config;
    // Every handshake is a whole one.
    config.resumption = rustls::client::Resumption::disabled();
    let config = Arc::new(config);
    let count = AtomicU64::new(0);
    let clock = Clock::start();
    let elapsed = || clock.now().since(Time::ZERO);
    let ended: io::Result<Vec<()>> = std::thread::scope(|scope| {
        let work = || {
            while elapsed() < args.length {
                fetch(args, Arc::clone(&config))?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(()))).collect()
    });
    ended?;
    println!("{} {:.3}", count.into_inner(), elapsed().as_secs_f64());
    Ok(())
}

fn fetch(args: &ConnectArgs, config: Arc<ClientConfig>) -> io::Result<()> {
    let stream = TcpStream::connect(args.server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from(args.name.clone()).map_err(io::Error::other)?;
    let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(tls, stream);
    write!(stream, "GET /1 HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", args.name)?;
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
        _ => {}
    }
    match response.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err(io::Error::other("the response is not the file")),
    }
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(file).map_err(io::Error::other)?;
    all.collect::<Result<_, _>>().map_err(io::Error::other)
}

/// Serve a recording without think times at its addresses, which this network namespace has; until it is killed.
#[derive(clap::Args)]
pub struct ReplayedArgs {
    archive: PathBuf,
    /// Where the authority is.
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
}

pub fn replayed(args: &ReplayedArgs) -> io::Result<()> {
    let contents = Contents::open(&args.archive, Rule::Ours).map_err(io::Error::other)?;
    let layout = Layout::new(contents.archive(), false, |_: IpAddr| true);
    let authority = Arc::new(Authority::open(&args.folder).map_err(io::Error::other)?);
    let listeners = listen(&layout.ports, false)?;
    let mut options = Options::default();
    options.think = Think::Zero;
    let server = Server::start(Arc::new(contents), options, authority, listeners)?;
    let _server = server;
    loop {
        std::thread::park();
    }
}
