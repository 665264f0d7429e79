//! Messages for tests: TLS hellos built byte by byte, and QUIC packets encrypted by rustls. The
//! tests of `manyways-flows` include this file, too.
#![allow(dead_code, reason = "the tests of each crate use a part")]

use std::sync::Arc;

use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Version};
use rustls::{ClientConfig, RootCertStore, Side};

/// A rustls client without trusted authorities, which matters only after the ServerHello.
pub(crate) fn config(protocols: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

pub(crate) fn sized(width: usize, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_be_bytes();
    [&length[8 - width..], content].concat()
}

pub(crate) fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized(2, content)].concat()
}

pub(crate) fn sni(name: &[u8]) -> Vec<u8> {
    extension(0, &sized(2, &[&[0][..], &sized(2, name)].concat()))
}

pub(crate) fn alpn(protocols: &[&str]) -> Vec<u8> {
    let list: Vec<u8> = protocols.iter().flat_map(|name| sized(1, name.as_bytes())).collect();
    extension(16, &sized(2, &list))
}

/// A ClientHello message with these extensions.
pub(crate) fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &sized(1, &[9; 32]),
        &sized(2, &[0x1a, 0x1a, 0x13, 0x01]),
        &sized(1, &[0]),
        &sized(2, &extensions.concat()),
    ]
    .concat();
    [&[1][..], &sized(3, &body)].concat()
}

pub(crate) fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &sized(2, part)].concat()).collect()
}

pub(crate) const ID: &[u8] = &[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

/// The ClientHello of rustls for QUIC.
pub(crate) fn hello(version: Version) -> Vec<u8> {
    let name = ServerName::try_from("shop.example.com").unwrap();
    let mut client =
        ClientConnection::new(config(&["h3"]), version, name, b"parameters".to_vec()).unwrap();
    let mut bytes = Vec::new();
    client.write_hs(&mut bytes);
    bytes
}

/// A variable-length integer of two or four bytes.
pub(crate) fn number(number: usize) -> Vec<u8> {
    match u16::try_from(number) {
        Ok(number) if number < 0x4000 => (number | 0x4000).to_be_bytes().to_vec(),
        _ => (number as u32 | 0x8000_0000).to_be_bytes().to_vec(),
    }
}

pub(crate) fn crypto(at: usize, bytes: &[u8]) -> Vec<u8> {
    [&[6][..], &number(at), &number(bytes.len()), bytes].concat()
}

/// A client's Initial packet encrypted by rustls, of at least 1,200 bytes.
pub(crate) fn sealed(
    version: Version,
    id: &[u8],
    packet: u32,
    token: &[u8],
    frames: &[u8],
) -> Vec<u8> {
    sealed_by(Side::Client, version, [id, &[]], packet, token, frames, 1_162)
}

/// An Initial packet of either endpoint between two connection IDs, with a payload of at least
/// `min` bytes.
pub(crate) fn sealed_by(
    side: Side,
    version: Version,
    [to, from]: [&[u8]; 2],
    packet: u32,
    token: &[u8],
    frames: &[u8],
    min: usize,
) -> Vec<u8> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap().quic_suite().unwrap();
    let keys = suite.keys(ID, side, version);
    let (first, wire) = match version {
        Version::V2 => (0xd3, 0x6b33_43cf_u32),
        _ => (0xc3, 1),
    };
    let mut payload = frames.to_vec();
    payload.resize(payload.len().max(min), 0);
    let mut header = [&[first][..], &wire.to_be_bytes()].concat();
    for id in [to, from] {
        header.push(id.len() as u8);
        header.extend(id);
    }
    header.extend(number(token.len()));
    header.extend(token);
    header.extend(number(4 + payload.len() + 16));
    let at = header.len();
    header.extend(packet.to_be_bytes());
    let tag = keys.local.packet.encrypt_in_place(packet.into(), &header, &mut payload);
    payload.extend(tag.unwrap().as_ref());
    let sample = &payload[..16];
    let (first, rest) = header.split_at_mut(1);
    keys.local.header.encrypt_in_place(sample, &mut first[0], &mut rest[at - 1..]).unwrap();
    [header, payload].concat()
}
