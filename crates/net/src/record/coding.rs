//! Content codings (RFC 9110, 8.4.1), which viewers of HAR files do not decode.

use std::io::{self, Cursor, Read};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use manyways_wire::archive::Field;

/// Maximum length of a decoded body, in bytes. A body that expands to more stays encoded.
pub const MAX_DECODED: u64 = 64 << 20;
/// Maximum number of codings of a body.
const MAX_CODINGS: usize = 4;

/// Whether a body with these fields has a content coding.
pub(super) fn is_coded(fields: &[Field]) -> bool {
    fields.iter().any(|field| field.name.eq_ignore_ascii_case("content-encoding"))
}

/// Returns a body without its content coding. `None` if it has none, or cannot be decoded: it is cut,
/// its coding is unknown, or it has more than [`MAX_DECODED`] bytes.
pub(super) fn decoded(fields: &[Field], body: &[u8]) -> Option<Vec<u8>> {
    decoded_within(MAX_DECODED, fields, body)
}

fn decoded_within(limit: u64, fields: &[Field], body: &[u8]) -> Option<Vec<u8>> {
    let read = |reader: &mut dyn Read| read(limit, reader);
    let is_coding = |field: &&Field| field.name.eq_ignore_ascii_case("content-encoding");
    let values = fields.iter().filter(is_coding);
    let values: Vec<String> =
        values.map(|field| String::from_utf8_lossy(&field.value).to_ascii_lowercase()).collect();
    let codings = values.iter().flat_map(|value| value.split(',')).map(str::trim);
    let codings: Vec<&str> = codings.filter(|coding| !matches!(*coding, "" | "identity")).collect();
    if codings.is_empty() || codings.len() > MAX_CODINGS {
        return None;
    }
    // In the order in which they were applied.
    let mut bytes = body.to_vec();
    for coding in codings.iter().rev() {
        bytes = match *coding {
            "gzip" | "x-gzip" => read(&mut MultiGzDecoder::new(&bytes[..])),
            // Some servers leave the frame of zlib out.
            "deflate" => read(&mut ZlibDecoder::new(&bytes[..]))
                .or_else(|_| read(&mut DeflateDecoder::new(&bytes[..]))),
            "br" => read(&mut brotli_decompressor::Decompressor::new(&bytes[..], 4096)),
            "zstd" => zstd::Decoder::with_buffer(Cursor::new(&bytes))
                .and_then(|mut reader| read(&mut reader)),
            _ => return None,
        }
        .ok()?;
    }
    Some(bytes)
}

fn read(limit: u64, reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn coded(coding: &str) -> [Field; 1] {
        [Field { name: "Content-encoding".to_owned(), value: coding.as_bytes().to_vec() }]
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bodies_are_decoded() {
        let text = b"text text text text".repeat(20);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(&text).unwrap();
        let raw = raw.finish().unwrap();
        // A stored meta-block of one byte, and the last, empty one (RFC 7932, 9.2).
        let brotli = [0x0b, 0x00, 0x80, b'x', 0x03];
        for (coding, bytes, expected) in [
            ("gzip", gzip(&text), &text[..]),
            ("X-GZIP", gzip(&text), &text),
            ("deflate", zlib.finish().unwrap(), &text),
            ("deflate", raw, &text),
            ("zstd", zstd::encode_all(&text[..], 1).unwrap(), &text),
            ("zstd, gzip", gzip(&zstd::encode_all(&text[..], 1).unwrap()), &text),
            ("br", brotli.to_vec(), b"x"),
        ] {
            let seen = decoded(&coded(coding), &bytes);
            assert_eq!(seen.as_deref(), Some(expected), "{coding}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_stays() {
        let cut = &gzip(b"text text")[..12];
        for (coding, bytes) in
            [("gzip", cut), ("br", b"\xff\xff"), ("zstd", b"no"), ("other", b"x")]
        {
            assert_eq!(decoded(&coded(coding), bytes), None, "{coding}");
        }
        let bomb = gzip(&[0; 5_001]);
        assert_eq!(decoded_within(5_000, &coded("gzip"), &bomb), None);
        assert_eq!(decoded_within(5_001, &coded("gzip"), &bomb).unwrap().len(), 5_001);
        assert_eq!(decoded(&coded("identity"), b"x"), None);
        assert_eq!(decoded(&[], b"x"), None);
        assert_eq!(decoded(&coded("gzip,gzip,gzip,gzip,gzip"), b""), None);
    }
}
