//! The Huffman code of strings (RFC 7541, 5.2 and Appendix B).

/// Symbol of the end of a string, which never occurs in one.
const EOS: u16 = 256;
const SYMBOL_COUNT: usize = 257;
/// Length in bits of the code of each byte, and of [`EOS`].
#[rustfmt::skip]
pub(super) const LENGTHS: [u8; SYMBOL_COUNT] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
const MAX_LENGTH: usize = 30;

/// The codes of one length. The code is canonical: codes grow with their length and then with the
/// symbol, so that a comparison with the bounds of each length finds the length.
#[derive(Clone, Copy, Debug)]
struct Codes {
    length: u32,
    /// The first code of this length and the end of the last one, at the left of 32 bits.
    first: u64,
    end: u64,
    /// Index of the first symbol in [`Code::symbols`].
    start: usize,
}

struct Code {
    /// In the order of their lengths.
    codes: [Codes; MAX_LENGTH + 1],
    /// In the order of their codes.
    symbols: [u16; SYMBOL_COUNT],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut codes = [Codes { length: 0, first: 0, end: 0, start: 0 }; MAX_LENGTH + 1];
    let mut symbols = [0; SYMBOL_COUNT];
    let (mut length, mut next, mut count) = (0, 0, 0);
    while length <= MAX_LENGTH {
        let (first, start) = (next, count);
        let mut symbol = 0;
        while symbol < SYMBOL_COUNT {
            if LENGTHS[symbol] as usize == length {
                symbols[count] = symbol as u16;
                count += 1;
                next += 1 << (32 - length);
            }
            symbol += 1;
        }
        codes[length] = Codes { length: length as u32, first, end: next, start };
        length += 1;
    }
    Code { codes, symbols }
}

/// Appends the decoded string. Returns `None` if a code is cut, or [`EOS`], or if the padding is
/// not up to 7 bits with the value 1.
pub(super) fn decode(bytes: &[u8], decoded: &mut Vec<u8>) -> Option<()> {
    let mut rest = bytes.iter();
    // The next bits, at the left, and how many there are.
    let (mut bits, mut count) = (0_u64, 0_u32);
    loop {
        while count <= 56
            && let Some(byte) = rest.next()
        {
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let window = bits >> 32;
        let codes = CODE.codes.iter().find(|codes| window < codes.end)?;
        if codes.length > count || bits.leading_ones() >= count {
            // The rest is not a complete code, or only ones: a padding, which is the start of EOS.
            return (count < 8 && bits.leading_ones() == count).then_some(());
        }
        let index = (window - codes.first) >> (32 - codes.length);
        let symbol = *CODE.symbols.get(codes.start + index as usize)?;
        if symbol == EOS {
            return None;
        }
        decoded.push(symbol as u8);
        bits <<= codes.length;
        count -= codes.length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a string, without padding as text of binary digits.
    fn digits(text: &[u8]) -> String {
        let digits_of = |byte: &u8| {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let codes = CODE.codes[length];
            let symbols = &CODE.symbols[codes.start..];
            let index = symbols.iter().position(|symbol| *symbol == u16::from(*byte)).unwrap();
            let code = (codes.first >> (32 - length)) + index as u64;
            format!("{code:0length$b}")
        };
        text.iter().map(digits_of).collect()
    }

    fn packed(digits: &str) -> Vec<u8> {
        let bytes = digits.as_bytes().chunks(8);
        let byte =
            |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 2).unwrap();
        bytes.map(byte).collect()
    }

    fn decoded(digits: &str) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(&packed(digits), &mut text).map(|()| text)
    }

    #[test]
    fn codes_are_those_of_the_appendix() {
        for (byte, code) in [
            (b'0', "00000"),
            (b't', "01001"),
            (b' ', "010100"),
            (b':', "1011100"),
            (b'&', "11111000"),
            (b'!', "1111111000"),
            (b'\\', "1111111111111110000"),
            (0xff, "11111111111111111111101110"),
            (0x16, "111111111111111111111111111110"),
        ] {
            assert_eq!(digits(&[byte]), code);
        }
        assert_eq!(CODE.codes[MAX_LENGTH].end, 1 << 32, "the code is complete");
    }

    #[test]
    fn a_padding_is_short_and_only_of_ones() {
        // The code of `a` has 5 bits, that of `&` 8.
        assert_eq!(decoded(""), Some(vec![]));
        assert_eq!(decoded("00011111"), Some(b"a".to_vec()));
        assert_eq!(decoded("00011110"), None);
        assert_eq!(decoded("00011011"), None);
        assert_eq!(decoded("11111000"), Some(b"&".to_vec()));
        assert_eq!(decoded("1111100011111111"), None);
        assert_eq!(decoded("11111111"), None);
        let seven = format!("{}1111111", digits(b"00000"));
        assert_eq!(decoded(&seven), Some(b"00000".to_vec()));
        assert_eq!(decoded(&format!("{}1111110", digits(b"00000"))), None);
        assert_eq!(decoded(&format!("{}11111111", digits(b"00000000"))), None, "eight bits");
    }

    #[test]
    fn the_end_of_a_string_is_not_in_it() {
        let end = "1".repeat(30);
        assert_eq!(decoded(&format!("{end}11")), None);
        assert_eq!(decoded(&format!("{}{end}11111", digits(b"a"))), None);
        assert_eq!(decoded(&format!("{end}{}11111", digits(b"a"))), None);
        assert_eq!(decoded(&"1".repeat(800)), None);
    }

    proptest! {
        #[test]
        fn strings_are_decoded(text: Vec<u8>) {
            let digits = digits(&text);
            let padding = "1".repeat(digits.len().next_multiple_of(8) - digits.len());
            prop_assert_eq!(decoded(&format!("{digits}{padding}")), Some(text));
        }
    }
}
