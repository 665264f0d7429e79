//! The SHA-256 of a whole object: of a file, and in the header `Repr-Digest` (RFC 9530 §3).
//!
//! The header is a dictionary of structured fields (RFC 9651 §3.2). A field that violates these
//! rules anywhere is ignored as a whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::base64;

/// Maximum number of digits of an integer (RFC 9651 §3.3.1).
const MAX_INTEGER_DIGITS: usize = 15;
/// Maximum number of digits of a decimal before and after the point (RFC 9651 §3.3.2).
const MAX_WHOLE_DIGITS: usize = 12;
const MAX_FRACTION_DIGITS: usize = 3;

/// Returns the SHA-256 of a file; blocking.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn file_sha256(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Returns the SHA-256 of the representation in the value of a `Repr-Digest` field; `None` if there
/// is none. The caller joins several field lines with `, `.
pub fn parse(value: &[u8]) -> Option<[u8; 32]> {
    let mut field = FieldParser { remaining: value };
    field.spaces();
    let mut wanted = None;
    while !field.remaining.is_empty() {
        let key = field.key()?;
        let item = field.member()?;
        if key == b"sha-256" {
            // The last of several members counts (RFC 9651 §3.2).
            wanted = Some(item);
        }
        field.blanks();
        if field.remaining.is_empty() {
            break;
        }
        field.expect_byte(b',')?;
        field.blanks();
        if field.remaining.is_empty() {
            return None;
        }
    }
    match wanted? {
        Item::Bytes(bytes) => bytes.try_into().ok(),
        Item::Other => None,
    }
}

enum Item {
    Bytes(Vec<u8>),
    Other,
}

/// The unparsed rest of a field. Each parser consumes one element, or returns `None` for a
/// malformed field.
struct FieldParser<'a> {
    remaining: &'a [u8],
}

impl<'a> FieldParser<'a> {
    fn peek(&self) -> Option<u8> {
        self.remaining.first().copied()
    }

    fn expect_byte(&mut self, wanted: u8) -> Option<()> {
        self.remaining = self.remaining.strip_prefix(&[wanted])?;
        Some(())
    }

    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.remaining.iter().position(|b| !fits(*b)).unwrap_or(self.remaining.len());
        let (taken, rest) = self.remaining.split_at(end);
        self.remaining = rest;
        taken
    }

    fn spaces(&mut self) {
        self.take_while(|b| b == b' ');
    }

    fn blanks(&mut self) {
        self.take_while(|b| matches!(b, b' ' | b'\t'));
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let fits = |b: u8| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'*')
        };
        (first.is_ascii_lowercase() || first == b'*').then(|| self.take_while(fits))
    }

    /// Parses the rest of a member after its key: a value, or only parameters, which mean true.
    fn member(&mut self) -> Option<Item> {
        let mut item = Item::Other;
        if self.peek() == Some(b'=') {
            self.expect_byte(b'=')?;
            match self.peek()? {
                b'(' => self.inner_list()?,
                _ => item = self.bare_item()?,
            }
        }
        self.parameters()?;
        Some(item)
    }

    fn inner_list(&mut self) -> Option<()> {
        self.expect_byte(b'(')?;
        loop {
            self.spaces();
            if self.peek()? == b')' {
                return self.expect_byte(b')');
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.peek()?, b' ' | b')') {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.peek() == Some(b';') {
            self.expect_byte(b';')?;
            self.spaces();
            self.key()?;
            if self.peek() == Some(b'=') {
                self.expect_byte(b'=')?;
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<Item> {
        match self.peek()? {
            b':' => return self.byte_sequence().map(Item::Bytes),
            b'-' | b'0'..=b'9' => drop(self.number()?),
            b'"' => self.string()?,
            b'?' => self.boolean()?,
            b'@' => self.date()?,
            b'%' => self.display_string()?,
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => drop(self.take_while(is_token)),
            _ => return None,
        }
        Some(Item::Other)
    }

    fn byte_sequence(&mut self) -> Option<Vec<u8>> {
        self.expect_byte(b':')?;
        let text = self.take_while(|b| b != b':');
        self.expect_byte(b':')?;
        base64::decode(text)
    }

    /// Returns whether the number is an integer.
    fn number(&mut self) -> Option<bool> {
        if self.peek() == Some(b'-') {
            self.expect_byte(b'-')?;
        }
        let whole = self.take_while(|b| b.is_ascii_digit()).len();
        if self.peek() != Some(b'.') {
            return (1..=MAX_INTEGER_DIGITS).contains(&whole).then_some(true);
        }
        self.expect_byte(b'.')?;
        let fraction = self.take_while(|b| b.is_ascii_digit()).len();
        let fits = (1..=MAX_WHOLE_DIGITS).contains(&whole)
            && (1..=MAX_FRACTION_DIGITS).contains(&fraction);
        fits.then_some(false)
    }

    fn string(&mut self) -> Option<()> {
        self.expect_byte(b'"')?;
        loop {
            self.take_while(|b| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\'));
            if self.peek()? == b'"' {
                return self.expect_byte(b'"');
            }
            self.expect_byte(b'\\')?;
            let escaped = self.peek().filter(|b| matches!(b, b'"' | b'\\'))?;
            self.expect_byte(escaped)?;
        }
    }

    fn boolean(&mut self) -> Option<()> {
        self.expect_byte(b'?')?;
        let digit = self.peek().filter(|b| matches!(b, b'0' | b'1'))?;
        self.expect_byte(digit)
    }

    fn date(&mut self) -> Option<()> {
        self.expect_byte(b'@')?;
        self.number()?.then_some(())
    }

    fn display_string(&mut self) -> Option<()> {
        self.expect_byte(b'%')?;
        self.expect_byte(b'"')?;
        let mut text = Vec::new();
        loop {
            text.extend(self.take_while(|b| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'%')));
            if self.peek()? == b'"' {
                std::str::from_utf8(&text).ok()?;
                return self.expect_byte(b'"');
            }
            self.expect_byte(b'%')?;
            let (hex, rest) = self.remaining.split_first_chunk::<2>()?;
            let digit = |b: u8| match b {
                b'0'..=b'9' => Some(b - b'0'),
                b'a'..=b'f' => Some(b - b'a' + 10),
                _ => None,
            };
            text.push(digit(hex[0])? << 4 | digit(hex[1])?);
            self.remaining = rest;
        }
    }
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(b, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.')
        || matches!(b, b'^' | b'_' | b'`' | b'|' | b'~' | b':' | b'/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of `{"hello": "world"}` and a line feed, as in the examples of RFC 9530.
    const HELLO: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";

    fn found(value: &str) -> bool {
        let hash = parse(value.as_bytes());
        assert!(hash.is_none_or(|hash| hash[..2] == [0x44, 0xaf]), "{value}: {hash:?}");
        hash.is_some()
    }

    #[test]
    fn finds_it_among_others() {
        for value in [
            HELLO.to_owned(),
            format!("  {HELLO}  "),
            format!("sha-512=:YWJj:,{HELLO}"),
            format!("sha-512=:YWJj:;q=1 \t,\t {HELLO};a;b=?0;c=@1659578233;d=%\"f%c3%bc\""),
            format!(
                "a, b=1, c=-1.5, d=\"x \\\" \\\\\", e=tok/en:*, f=?1, g=(1 \"a\";b  t ), {HELLO}"
            ),
            format!("h=(), *i;j=2, {HELLO}"),
            format!("sha-256=:YWJj:, {HELLO}"),
            HELLO.replace("=:", ":").replacen("256:", "256=:", 1),
        ] {
            assert!(found(&value), "{value}");
        }
    }

    #[test]
    fn nothing_comes_of_a_field_that_breaks_the_rules() {
        for value in [
            "".to_owned(),
            "sha-256".to_owned(),
            "sha-256=abc".to_owned(),
            "sha-256=:YWJj:".to_owned(),
            format!("{HELLO}, sha-256=:YWJj:"),
            format!("{HELLO}, sha-256=(:YWJj:)"),
            format!("{HELLO},"),
            format!(",{HELLO}"),
            format!("\t{HELLO}"),
            format!("{HELLO} a"),
            format!("{HELLO}x"),
            format!("A=1, {HELLO}"),
            format!("a=, {HELLO}"),
            format!("a=1234567890123456, {HELLO}"),
            format!("a=1., {HELLO}"),
            format!("a=1.1234, {HELLO}"),
            format!("a=-, {HELLO}"),
            format!("a=\"x, {HELLO}"),
            format!("a=\"\\x\", {HELLO}"),
            format!("a=?2, {HELLO}"),
            format!("a=@1.5, {HELLO}"),
            format!("a=%\"%C3\", {HELLO}"),
            format!("a=%\"%ff\", {HELLO}"),
            format!("a=(1,2), {HELLO}"),
            format!("a=(1\"b\"), {HELLO}"),
            format!("a=(1, {HELLO}"),
            format!("a; =1, {HELLO}"),
            HELLO.replace("sha-256=:", "sha-256=: "),
            HELLO.trim_end_matches(':').to_owned(),
            HELLO.to_uppercase(),
        ] {
            assert!(!found(&value), "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(hash in any::<[u8; 32]>()) {
            let value = format!("sha-256=:{}:", base64::encode(&hash));
            prop_assert_eq!(parse(value.as_bytes()), Some(hash));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_pieces_panic(
            pieces in proptest::collection::vec("sha-256|=|:|\\(|\\)|;|,| |%\"|\"|@|\\?|1|\\.|-|a", 0..30)
        ) {
            let _ = parse(pieces.concat().as_bytes());
        }
    }
}
