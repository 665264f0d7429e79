//! Base64 (RFC 4648 §4), for credentials and for digests.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// With padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// Padding may be missing (RFC 9651, 4.2.7).
#[cfg(any(feature = "fetch", feature = "bond"))]
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let letters = text.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
    let padding = text.len() - letters;
    let complete = letters.next_multiple_of(4) - letters;
    if letters % 4 == 1 || padding != 0 && padding != complete {
        return None;
    }
    let mut bytes = Vec::with_capacity(letters * 3 / 4);
    for group in text[..letters].chunks(4) {
        let mut bits = 0;
        for at in 0..4 {
            let value = match group.get(at) {
                Some(letter) => ALPHABET.iter().position(|known| known == letter)?,
                None => 0,
            };
            bits = bits << 6 | value as u32;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_standard() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
            let bare = text.trim_end_matches('=');
            assert_eq!(decode(bare.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        for wrong in ["=", "Z", "Zg=", "Zg===", "Zm9v=", "Zm9vY", "Z=g=", "Zm 9v", "Zm-_", "===="] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn reads_back(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }
    }
}
