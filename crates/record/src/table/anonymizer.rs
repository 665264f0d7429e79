//! Anonymization: addresses keep their common prefixes, names and flow numbers become keyed hashes.
//!
//! Addresses are anonymized with Crypto-PAn (Xu, Fan, Ammar and Moon, ICNP 2002): two addresses
//! with n common leading bits still have exactly n common leading bits, so that prefixes are
//! preserved. The owner of the key can recover the addresses. An attacker without the key who knows
//! some addresses and their pseudonyms learns the prefixes of other addresses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{Kind, Value};

/// Maximum number of cached pseudonyms; computing one takes a cipher call for each bit.
const MAX_CACHED: usize = 1 << 16;

/// Anonymizes addresses, names and numbers of flows.
pub struct Anonymizer {
    cipher: Aes128,
    pad: u128,
    names: Hmac<Sha256>,
    cache: HashMap<IpAddr, IpAddr>,
}

impl Anonymizer {
    /// Creates a mask from a key.
    pub fn new(key: &[u8; 32]) -> Self {
        let [first, second] = [0, 16].map(|at| key[at..].first_chunk().copied().unwrap_or([0; 16]));
        // HMAC pads keys that are shorter than a block with zeros (RFC 2104).
        let mut padded = [0; 64];
        padded[..key.len()].copy_from_slice(key);
        let names = Hmac::<Sha256>::new(&padded.into());
        let pad = compute_mac(&names, &second);
        Self {
            cipher: Aes128::new(&first.into()),
            pad: u128::from_be_bytes(*pad.first_chunk().unwrap_or(&[0; 16])),
            names,
            cache: HashMap::new(),
        }
    }

    /// Returns the value, anonymized if its kind requires it.
    pub fn anonymize<'a>(&mut self, kind: Kind, value: Value<'a>) -> Value<'a> {
        match (kind, value) {
            (Kind::Address, Value::Text(text)) => {
                let hidden: Vec<String> = text.split(' ').map(|one| self.pseudonym(one)).collect();
                Value::Text(Cow::Owned(hidden.join(" ")))
            }
            // If a server has no name, its address is used as the name.
            (Kind::Name, Value::Text(text)) => Value::Text(Cow::Owned(self.pseudonym(&text))),
            (Kind::Flow, Value::Count(flow)) => Value::Count(self.flow_pseudonym(flow)),
            (_, value) => value,
        }
    }

    /// Returns the pseudonym of a name or of an address in the place of a name.
    pub fn pseudonym(&mut self, text: &str) -> String {
        match text.parse() {
            Ok(address) => self.address_pseudonym(address).to_string(),
            Err(_) => format!("{:016x}", self.keyed_hash(text.as_bytes())),
        }
    }

    /// Returns the pseudonym of a flow number, below 2^63.
    pub fn flow_pseudonym(&self, flow: u64) -> u64 {
        self.keyed_hash(&flow.to_be_bytes()) >> 1
    }

    fn address_pseudonym(&mut self, address: IpAddr) -> IpAddr {
        if let Some(hidden) = self.cache.get(&address) {
            return *hidden;
        }
        let hidden = match address {
            IpAddr::V4(v4) => {
                let bits = self.anonymize_bits(u128::from(u32::from(v4)) << 96, 32);
                IpAddr::V4(Ipv4Addr::from((bits >> 96) as u32))
            }
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(self.anonymize_bits(v6.into(), 128))),
        };
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert(address, hidden);
        hidden
    }

    /// Anonymizes the first `length` bits: each bit is flipped or not, depending on the bits before
    /// it.
    fn anonymize_bits(&self, address: u128, length: u32) -> u128 {
        let mut turned = 0;
        for index in 0..length {
            let before = u128::MAX.checked_shl(128 - index).unwrap_or(0);
            let mut block = (address & before | self.pad & !before).to_be_bytes().into();
            self.cipher.encrypt_block(&mut block);
            turned |= u128::from(block[0] >> 7) << (127 - index);
        }
        address ^ turned
    }

    fn keyed_hash(&self, bytes: &[u8]) -> u64 {
        u64::from_be_bytes(*compute_mac(&self.names, bytes).first_chunk().unwrap_or(&[0; 8]))
    }
}

fn compute_mac(key: &Hmac<Sha256>, message: &[u8]) -> [u8; 32] {
    key.clone().chain_update(message).finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(anonymizer: &mut Anonymizer, kind: Kind, text: &str) -> String {
        match anonymizer.anonymize(kind, Value::Text(Cow::Borrowed(text))) {
            Value::Text(text) => text.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_and_flows_become_numbers_that_depend_on_the_key() {
        let mut anonymizer = Anonymizer::new(&[7; 32]);
        let name = text(&mut anonymizer, Kind::Name, "www.example.net");
        assert_eq!(name, "68b0cd69d9e0d156", "HMAC-SHA-256");
        assert_eq!(text(&mut anonymizer, Kind::Name, "www.example.net"), name);
        assert_ne!(text(&mut anonymizer, Kind::Name, "www.example.org"), name);
        assert_ne!(text(&mut Anonymizer::new(&[8; 32]), Kind::Name, "www.example.net"), name);
        let Value::Count(flow) = anonymizer.anonymize(Kind::Flow, Value::Count(99)) else {
            panic!()
        };
        assert!(flow != 99 && flow < 1 << 63);
        assert_eq!(anonymizer.anonymize(Kind::Count, Value::Count(99)), Value::Count(99));
        assert_eq!(text(&mut anonymizer, Kind::Text, "tls"), "tls");
        assert_eq!(anonymizer.anonymize(Kind::Name, Value::Absent), Value::Absent);
    }

    #[test]
    fn several_addresses_are_hidden_each() {
        let mut anonymizer = Anonymizer::new(&[7; 32]);
        let both = text(&mut anonymizer, Kind::Address, "192.0.2.1 2001:db8::1");
        let parts: Vec<IpAddr> = both.split(' ').map(|part| part.parse().unwrap()).collect();
        assert!(parts[0].is_ipv4() && parts[1].is_ipv6());
        assert_ne!(parts[0], IpAddr::from([192, 0, 2, 1]));
        assert_eq!(text(&mut anonymizer, Kind::Name, "192.0.2.1"), parts[0].to_string());
        assert!(!text(&mut anonymizer, Kind::Address, "nobody").contains("nobody"));
    }

    proptest! {
        #[test]
        fn common_prefixes_of_addresses_are_preserved(one: u32, bits in 0_u32..=32, rest: u32) {
            // Another address with exactly `bits` common leading bits.
            let flip = 0x8000_0000_u32.checked_shr(bits).unwrap_or(0);
            let other = one ^ flip ^ (rest & flip.wrapping_sub(1) & u32::MAX.checked_shr(bits).unwrap_or(0));
            let mut anonymizer = Anonymizer::new(&[3; 32]);
            let mut hidden = |number: u32| {
                let text = text(&mut anonymizer, Kind::Address, &Ipv4Addr::from(number).to_string());
                u32::from(text.parse::<Ipv4Addr>().unwrap())
            };
            let (first, second) = (hidden(one), hidden(other));
            prop_assert_eq!((first ^ second).leading_zeros(), (one ^ other).leading_zeros());
        }
    }
}
