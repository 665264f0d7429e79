use super::*;

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        digits.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()
}

fn decode_within(
    decoder: &mut Decoder,
    block: &[u8],
    max_table_size: usize,
) -> Result<Vec<String>, &'static str> {
    let mut lines = Vec::new();
    decoder.decode(block, max_table_size, |name, value| {
        lines.push(format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
        Ok(())
    })?;
    Ok(lines)
}

fn decode(decoder: &mut Decoder, block: &str) -> Result<Vec<String>, &'static str> {
    decode_within(decoder, &hex(block), INITIAL_TABLE_SIZE)
}

/// Blocks of one direction: each with its fields, and the table after it.
type Blocks<'a> = &'a [(&'a str, &'a [&'a str], &'a [&'a str], usize)];

fn check(decoder: &mut Decoder, blocks: Blocks<'_>) {
    for (block, fields, entries, size) in blocks {
        assert_eq!(decode(decoder, block).unwrap(), *fields);
        let expected = entries.iter().map(|entry| (*entry).to_owned()).collect();
        assert_eq!(decoder.table.dump(), (expected, *size));
    }
}

#[test]
fn integers_of_appendix_c_1() {
    for (bytes, prefix_bits, expected) in [
        (&[0b1110_1010][..], 5, Some(10)),
        (&[0b1111_1111, 0b1001_1010, 0b0000_1010], 5, Some(1337)),
        (&[0b0010_1010], 8, Some(42)),
        (&[0x1f, 0], 5, Some(31)),
        (&[0x1f, 0x80, 0x80, 0], 5, Some(31)),
        (&[0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f], 7, Some(0xffff_ffff)),
        (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 7, None),
        (&[0xff; 20], 7, None),
        (&[0x1f], 5, None),
        (&[0x1f, 0x80], 5, None),
    ] {
        let mut cursor = Cursor { rest: bytes };
        let first = cursor.byte().unwrap();
        assert_eq!(cursor.integer(first, prefix_bits), expected, "{bytes:?}");
    }
}

#[test]
fn fields_of_appendix_c_2() {
    let entry = "custom-key: custom-header";
    check(
        &mut Decoder::default(),
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &[entry],
            &[entry],
            55,
        )],
    );
    check(
        &mut Decoder::default(),
        &[
            ("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], &[], 0),
            ("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], &[], 0),
            ("82", &[":method: GET"], &[], 0),
        ],
    );
}

#[test]
fn requests_of_appendix_c_3_and_c_4() {
    let authority = ":authority: www.example.com";
    let (no_cache, custom) = ("cache-control: no-cache", "custom-key: custom-value");
    let get = [":method: GET", ":scheme: http", ":path: /", authority];
    let index = [":method: GET", ":scheme: https", ":path: /index.html", authority, custom];
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for [first, second, third] in [plain, huffman] {
        check(
            &mut Decoder::default(),
            &[
                (first, &get, &[authority], 57),
                (second, &[&get[..], &[no_cache]].concat(), &[no_cache, authority], 110),
                (third, &index, &[custom, no_cache, authority], 164),
            ],
        );
    }
}

#[test]
fn responses_of_appendix_c_5_and_c_6() {
    let (private, location) = ("cache-control: private", "location: https://www.example.com");
    let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
    let later = "date: Mon, 21 Oct 2013 20:13:22 GMT";
    let gzip = "content-encoding: gzip";
    let cookie = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 \
         303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 \
         5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 \
         5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b \
         ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad \
         94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 \
         65c0 03ed 4ee5 b106 3d50 07",
    ];
    for [first, second, third] in [plain, huffman] {
        let (found, moved) = (":status: 302", ":status: 307");
        let mut decoder = Decoder::default();
        decoder.table.resize(256);
        check(
            &mut decoder,
            &[
                (first, &[found, private, date, location], &[location, date, private, found], 222),
                (second, &[moved, private, date, location], &[moved, location, date, private], 222),
                (
                    third,
                    &[":status: 200", private, later, location, gzip, cookie],
                    &[cookie, gzip, later],
                    215,
                ),
            ],
        );
    }
}

#[test]
fn the_static_table_has_61_entries() {
    let mut decoder = Decoder::default();
    let first = decode(&mut decoder, "81 88 8e 8f 90 a0 ba bc bd").unwrap();
    let expected = [
        ":authority: ",
        ":status: 200",
        ":status: 500",
        "accept-charset: ",
        "accept-encoding: gzip, deflate",
        "cookie: ",
        "user-agent: ",
        "via: ",
        "www-authenticate: ",
    ];
    assert_eq!(first, expected);
    for none in ["80", "be", "ff00", "ff80808001", "7f0001 61", "0f3001 61"] {
        assert_eq!(decode(&mut decoder, none), Err(INVALID), "{none}");
    }
}

#[test]
fn an_entry_that_is_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::default();
    decode(&mut decoder, "4001 6101 62").unwrap();
    assert_eq!(decoder.table.dump(), (vec!["a: b".to_owned()], 34));
    // The name is that of an entry that gives way. 4096 bytes are too many with the overhead.
    let block = [&hex("7e 7f e0 1e")[..], &[b'x'; 4_063]].concat();
    let lines = decode_within(&mut decoder, &block, INITIAL_TABLE_SIZE).unwrap();
    assert_eq!(lines[0].len(), "a: ".len() + 4_063);
    assert_eq!(decoder.table.dump().1, 4_096);
    let block = [&hex("7e 7f e1 1e")[..], &[b'x'; 4_064]].concat();
    let lines = decode_within(&mut decoder, &block, INITIAL_TABLE_SIZE).unwrap();
    assert_eq!(lines[0].len(), "a: ".len() + 4_064);
    assert_eq!(decoder.table.dump(), (vec![], 0));
}

#[test]
fn a_table_has_the_size_that_the_encoder_chooses_within_the_limit() {
    let mut decoder = Decoder::default();
    let too_large = Err("heads that need more memory than permitted");
    // 100, then 68 bytes: two entries.
    let block = hex("3f45 3f25 4001 6101 62 4001 6301 64 4001 6501 66");
    assert_eq!(decode_within(&mut decoder, &block, 100).unwrap(), ["a: b", "c: d", "e: f"]);
    assert_eq!(decoder.table.dump(), (vec!["e: f".to_owned(), "c: d".to_owned()], 68));
    assert_eq!(decode(&mut decoder, "20").unwrap(), [""; 0]);
    assert_eq!(decoder.table.dump(), (vec![], 0));
    assert_eq!(decode_within(&mut decoder, &hex("3f46"), 100), too_large);
    assert_eq!(decode(&mut decoder, "82 20"), Err(INVALID), "only at the start of a block");
    // 1 MiB, and one more.
    let permitted = usize::MAX;
    assert_eq!(decode_within(&mut decoder, &hex("3fe1 ff3f"), permitted), Ok(vec![]));
    assert_eq!(decode_within(&mut decoder, &hex("3fe2 ff3f"), permitted), too_large);
}

#[test]
fn a_block_that_is_cut_is_invalid() {
    let block = hex("4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
    for length in 1..block.len() {
        let mut decoder = Decoder::default();
        let read = decode_within(&mut decoder, &block[..length], INITIAL_TABLE_SIZE);
        assert_eq!(read, Err(INVALID), "{length} bytes");
    }
    assert_eq!(decode(&mut Decoder::default(), "0001 6182 ffff"), Err(INVALID), "padding");
}
