use std::io::Read;

use super::*;

fn body(coding: Coding, length: u64, is_text: bool) -> Vec<u8> {
    Hollow::new(coding, length, is_text, 7).flatten().collect()
}

fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        Coding::Identity => out.extend(bytes),
        Coding::Gzip => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
        }
        Coding::Zlib => {
            flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut out).unwrap();
        }
        Coding::Zstd => out = zstd::decode_all(bytes).unwrap(),
        Coding::Brotli => {
            brotli_decompressor::Decompressor::new(bytes, 4_096).read_to_end(&mut out).unwrap();
        }
    }
    out
}

const CODINGS: [Coding; 5] =
    [Coding::Identity, Coding::Gzip, Coding::Zlib, Coding::Brotli, Coding::Zstd];

#[test]
fn each_length_is_exact_and_can_be_decoded() {
    for coding in CODINGS {
        let (around, each, longest) = coding.layout();
        let block = each + longest;
        let near =
            |blocks: u64, by: u64| around + blocks * block - by..=around + blocks * block + by;
        for length in (coding.min_length()..40).chain(near(1, 6)).chain(near(2, 1)) {
            let bytes = body(coding, length, true);
            assert_eq!(bytes.len() as u64, length, "{coding:?}");
            if length > 0 {
                let decoded = decode(coding, &bytes);
                assert!(decoded.iter().all(|byte| *byte == b' '), "{coding:?} {length}");
                assert!(decoded.len() as u64 + around + 3 * each >= length);
            }
        }
    }
}

#[test]
fn a_body_that_is_too_short_for_its_coding_has_none() {
    for coding in CODINGS {
        for length in 0..coding.min_length() {
            assert_eq!(body(coding, length, true), vec![b' '; length as usize]);
        }
    }
}

#[test]
fn bytes_depend_on_the_exchange_only() {
    let of = |seed| Hollow::new(Coding::Gzip, 300_000, false, seed).flatten().collect::<Vec<_>>();
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    assert_eq!(decode(Coding::Gzip, &of(1)).len(), 300_000 - 18 - 5 * 5);
    assert_ne!(body(Coding::Identity, 64, false), vec![b' '; 64]);
}

#[test]
fn a_long_body_comes_in_pieces() {
    let mut pieces = Hollow::new(Coding::Zstd, 1 << 40, true, 0);
    assert!(pieces.next().unwrap().len() <= 1 << 18);
}

#[test]
fn names_of_codings() {
    assert_eq!(Coding::parse(b" GZIP"), Some(Coding::Gzip));
    assert_eq!(Coding::parse(b"br"), Some(Coding::Brotli));
    for other in ["gzip, br", "compress", "dcb"] {
        assert_eq!(Coding::parse(other.as_bytes()), None);
    }
}
