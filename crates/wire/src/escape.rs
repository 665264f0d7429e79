//! Escapes untrusted text.

/// Appends `bytes` as printable text on one line: a byte that is not visible ASCII becomes a
/// backslash and three decimal digits; a backslash precedes each byte of `special` and each
/// backslash (RFC 1035, 5.1).
pub(crate) fn escape(text: &mut String, bytes: &[u8], special: &[u8]) {
    for byte in bytes {
        match *byte {
            byte if byte == b'\\' || special.contains(&byte) => text.extend(['\\', byte.into()]),
            byte if byte.is_ascii_graphic() => text.push(byte.into()),
            byte => {
                let digits = [byte / 100, byte / 10 % 10, byte % 10];
                text.push('\\');
                text.extend(digits.map(|digit| char::from(b'0' + digit)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_bytes_become_numbers() {
        let mut text = String::from("is ");
        escape(&mut text, b"a.b\\c \x00\x7f\xfc", b".");
        assert_eq!(text, "is a\\.b\\\\c\\032\\000\\127\\252");
        assert!(text.is_ascii());
    }
}
