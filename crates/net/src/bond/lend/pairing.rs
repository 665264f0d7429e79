//! The exchange of two devices that pair. TLS authenticates neither of them yet: the proof includes
//! the public keys of both ends, so that a device in between, which has other keys, cannot pass it on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use manyways_proto::bond::pairing::{CodeError, MAX_MESSAGE, PairMessage};
use ring::hmac;
use rustls::pki_types::ServerName;
use spake2::{Ed25519Group, Identity, Password, Spake2};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::pairs::{PairedDevice, PairedRole};
use crate::bond::gateway::random_number;
use crate::bond::key::{PrivateKey, PublicKey};
use crate::bond::tls;

/// Name in the handshake, without meaning.
const SERVER_NAME: &str = "lender.invalid";
/// Time for a whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Answer to a device whose name another one has at the lender.
pub(super) const NAME_TAKEN: &str = "another device is paired there under this name";

/// Failure to pair.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    #[error("no connection to {0}: {error}", error = crate::path::plain(.1))]
    Connect(SocketAddr, #[source] io::Error),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// Nothing at the address that pairs.
    #[error("no `manyways bond lend` at this address: {0}")]
    Foreign(#[source] io::Error),
    #[error("{0}")]
    Code(#[from] CodeError),
    /// The other end gives a reason.
    #[error("{0}")]
    Refused(String),
    #[error("{NAME_TAKEN}")]
    NameTaken,
    /// The proof of the other end is wrong.
    #[error("the other end does not know the code: it is not the device that shows it")]
    WrongLender,
    #[error("the connection broke: {error}", error = crate::path::plain(.0))]
    Lost(#[from] io::Error),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The end of a pairing that proves something.
#[derive(Clone, Copy)]
enum Prover {
    Client,
    Lender,
}

/// Computes the proof of one end, over the names and keys of the exchange.
struct Proofs {
    secret: hmac::Key,
    client: PublicKey,
    lender: PublicKey,
}

impl Proofs {
    fn new(secret: &[u8], client: PublicKey, lender: PublicKey) -> Self {
        Self { secret: hmac::Key::new(hmac::HMAC_SHA256, secret), client, lender }
    }

    fn text(&self, prover: Prover, name: &str) -> Vec<u8> {
        let prover = match prover {
            Prover::Client => b"manyways pair client ",
            Prover::Lender => b"manyways pair lender ",
        };
        [&prover[..], &self.client.0, &self.lender.0, name.as_bytes()].concat()
    }

    fn make(&self, prover: Prover, name: &str) -> [u8; 32] {
        let tag = hmac::sign(&self.secret, &self.text(prover, name));
        let mut proof = [0; 32];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    fn is_valid(&self, prover: Prover, name: &str, proof: &[u8]) -> bool {
        hmac::verify(&self.secret, &self.text(prover, name), proof).is_ok()
    }
}

fn parts(code: &str) -> (Password, Identity, Identity) {
    (Password::new(code), Identity::new(b"manyways client"), Identity::new(b"manyways lender"))
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &PairMessage) -> io::Result<()> {
    let bytes = message.encode();
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes()[..], &bytes].concat()).await?;
    stream.flush().await
}

async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Result<PairMessage, PairError> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_MESSAGE {
        return Err(PairError::Foreign(io::Error::other("a message that is too long")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    match PairMessage::decode(&bytes) {
        Ok(PairMessage::Failed(reason)) if reason == NAME_TAKEN => Err(PairError::NameTaken),
        Ok(PairMessage::Failed(reason)) => Err(PairError::Refused(reason)),
        Ok(message) => Ok(message),
        Err(error) => Err(PairError::Foreign(io::Error::other(error))),
    }
}

fn unexpected() -> PairError {
    PairError::Foreign(io::Error::other("a message out of turn"))
}

/// Pairs this device with the lender at an address, which shows `code`. The lender may dial the
/// gateway.
///
/// # Errors
/// If there is no lender, or the code is wrong, expired or used.
pub async fn pair(
    address: SocketAddr,
    code: &str,
    (key, name): (&PrivateKey, &str),
    gateway: (PublicKey, Vec<SocketAddr>),
) -> Result<PairedDevice, PairError> {
    let paired = pair_with(address, code, (key, name), gateway);
    timeout(TIMEOUT, paired).await.unwrap_or(Err(PairError::Timeout))
}

async fn pair_with(
    address: SocketAddr,
    code: &str,
    (key, name): (&PrivateKey, &str),
    (gateway_key, addresses): (PublicKey, Vec<SocketAddr>),
) -> Result<PairedDevice, PairError> {
    let connected = TcpStream::connect(address).await;
    let stream = connected.map_err(|error| PairError::Connect(address, error))?;
    let config = tls::client_of(key, Arc::new(|_: &PublicKey| true), tls::PAIR_PROTOCOL)?;
    let server = ServerName::try_from(SERVER_NAME)
        .map_err(|error| PairError::Foreign(io::Error::other(error)))?;
    let connected = TlsConnector::from(config).connect(server, stream).await;
    let mut stream =
        connected.map_err(|error| match error.to_string().contains("AccessDenied") {
            true => PairError::Code(CodeError::None),
            false => PairError::Foreign(error),
        })?;
    let lender = tls::peer_key(stream.get_ref().1.peer_certificates());
    let lender = lender.ok_or_else(unexpected)?;
    let (password, client_id, lender_id) = parts(code);
    let (exchange, part) = Spake2::<Ed25519Group>::start_a(&password, &client_id, &lender_id);
    send(&mut stream, &PairMessage::Exchange(part)).await?;
    // A lender without a valid code refuses the key of a stranger.
    let answer = receive(&mut stream).await.map_err(|error| match error {
        PairError::Lost(error) if error.to_string().contains("AccessDenied") => {
            PairError::Code(CodeError::None)
        }
        other => other,
    })?;
    let PairMessage::Exchange(part) = answer else { return Err(unexpected()) };
    let secret = exchange.finish(&part).map_err(|_| PairError::WrongLender)?;
    let proofs = Proofs::new(&secret, key.public(), lender);
    let proof = proofs.make(Prover::Client, name);
    send(&mut stream, &PairMessage::Confirm { proof, name: name.to_owned() }).await?;
    let PairMessage::Confirm { proof, name } = receive(&mut stream).await? else {
        return Err(unexpected());
    };
    if !proofs.is_valid(Prover::Lender, &name, &proof) {
        return Err(PairError::WrongLender);
    }
    send(&mut stream, &PairMessage::Gateway { key: gateway_key.0, addresses }).await?;
    let PairMessage::Done = receive(&mut stream).await? else { return Err(unexpected()) };
    let role = PairedRole::Lender { address, pairing: random_number() };
    Ok(PairedDevice { name, key: lender, role })
}

/// A pairing at the lender that has come to its proof.
pub(super) enum Guess {
    Right(PairedDevice),
    Wrong,
}

/// Serves one device that pairs, with a valid code. `name` is that of this device. `spend` spends a
/// guess as soon as the device has sent its proof: before, it learns nothing about the code.
pub(super) async fn serve(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    code: &str,
    (own, name): (PublicKey, &str),
    client: PublicKey,
    spend: impl FnOnce() -> Result<(), CodeError>,
) -> Result<Guess, PairError> {
    let served = serve_one(stream, code, (own, name), client, spend);
    timeout(TIMEOUT, served).await.unwrap_or(Err(PairError::Timeout))
}

async fn serve_one(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    code: &str,
    (own, name): (PublicKey, &str),
    client: PublicKey,
    spend: impl FnOnce() -> Result<(), CodeError>,
) -> Result<Guess, PairError> {
    let PairMessage::Exchange(part) = receive(stream).await? else { return Err(unexpected()) };
    let (password, client_id, lender_id) = parts(code);
    let (exchange, own_part) = Spake2::<Ed25519Group>::start_b(&password, &client_id, &lender_id);
    let secret = exchange.finish(&part).map_err(|_| unexpected())?;
    send(stream, &PairMessage::Exchange(own_part)).await?;
    let proofs = Proofs::new(&secret, client, own);
    let PairMessage::Confirm { proof, name: client_name } = receive(stream).await? else {
        return Err(unexpected());
    };
    spend()?;
    if !proofs.is_valid(Prover::Client, &client_name, &proof) {
        return Ok(Guess::Wrong);
    }
    let proof = proofs.make(Prover::Lender, name);
    send(stream, &PairMessage::Confirm { proof, name: name.to_owned() }).await?;
    let PairMessage::Gateway { key, addresses } = receive(stream).await? else {
        return Err(unexpected());
    };
    let role = PairedRole::Borrower { gateway: addresses, gateway_key: PublicKey(key) };
    Ok(Guess::Right(PairedDevice { name: client_name, key: client, role }))
}

/// Answers the device that it is paired, or why it is not.
pub(super) async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    result: Result<(), String>,
) {
    let message = result.map_or_else(PairMessage::Failed, |()| PairMessage::Done);
    let _ = timeout(TIMEOUT, send(stream, &message)).await;
    // The other end reads the answer before the connection ends.
    let _ = timeout(TIMEOUT, stream.shutdown()).await;
}
