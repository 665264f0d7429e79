use proptest::prelude::*;

use super::*;

fn body(framing: Framing, parts: &[&[u8]]) -> Result<(Vec<u8>, bool, Vec<u8>), Fault> {
    let (mut body, mut input) = (Body::new(framing), BytesMut::new());
    let mut is_complete = false;
    for part in parts {
        input.extend_from_slice(part);
        is_complete = body.take(&mut input)?;
    }
    Ok((body.kept, is_complete, input.to_vec()))
}

#[test]
fn a_head_ends_with_an_empty_line() {
    for text in ["GET / HTTP/1.1\r\nA: b\r\n\r\n", "GET / HTTP/1.1\nA: b\n\n"] {
        for cut in 0..=text.len() {
            let (first, second) = text.split_at(cut);
            let (mut input, mut searched) = (BytesMut::from(first), 0);
            let early = take_head(&mut input, &mut searched).unwrap();
            assert_eq!(early.is_some(), cut == text.len(), "{cut}");
            if early.is_none() {
                input.extend_from_slice(second.as_bytes());
                input.extend_from_slice(b"next");
                let head = take_head(&mut input, &mut searched).unwrap().unwrap();
                assert_eq!((&head[..], &input[..]), (text.as_bytes(), &b"next"[..]));
            }
        }
    }
    let mut input = BytesMut::from(&b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"[..]);
    assert!(take_head(&mut input, &mut 0).unwrap().unwrap().starts_with(b"GET"));
}

#[test]
fn a_head_has_limits() {
    let long = "a".repeat(MAX_HEAD);
    let mut input = BytesMut::from(format!("GET /{long}").as_bytes());
    assert_eq!(take_head(&mut input, &mut 0), Err(Fault::TooLong));
    let mut input = BytesMut::from(format!("GET /{long} HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(take_head(&mut input, &mut 0), Err(Fault::TooLong));
    let of = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(Head::parse(of(MAX_FIELDS).as_bytes()).unwrap().fields.len(), MAX_FIELDS);
    assert_eq!(Head::parse(of(MAX_FIELDS + 1).as_bytes()).unwrap_err(), Fault::TooLong);
}

#[test]
fn the_length_of_a_body_is_unambiguous() {
    let of = |fields: &str| {
        let text = format!("POST / HTTP/1.1\r\n{fields}\r\n");
        Head::parse(text.as_bytes()).map(|head| head.framing)
    };
    assert_eq!(of(""), Ok(Framing::Length(0)));
    assert_eq!(of("Content-Length: 5\r\ncontent-length: 5\r\n"), Ok(Framing::Length(5)));
    assert_eq!(of("Transfer-Encoding: Chunked\r\n"), Ok(Framing::ChunkLine));
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    ] {
        assert_eq!(of(fields), Err(Fault::Malformed), "{fields}");
    }
    assert_eq!(of("Transfer-Encoding: gzip, chunked\r\n"), Err(Fault::Coding));
}

#[test]
fn a_target_is_a_path_or_a_url() {
    let text = "GET http://a.example/b?c HTTP/1.1\r\nHost: b.example\r\n\r\n";
    let head = Head::parse(text.as_bytes()).unwrap();
    let request = head.request("https", b"", 0);
    assert_eq!(
        (request.scheme, request.authority, request.path),
        ("http", "a.example", &b"/b"[..])
    );
    let text = "GET /b?c=http://d HTTP/1.1\r\nHOST: b.example:8443 \r\n\r\n";
    let head = Head::parse(text.as_bytes()).unwrap();
    let request = head.request("https", b"", 0);
    assert_eq!((request.scheme, request.authority), ("https", "b.example:8443"));
    assert_eq!((request.path, request.query), (&b"/b"[..], Some(&b"c=http://d"[..])));
}

#[test]
fn chunks_are_joined() {
    let text = b"5;a=b\r\nhello\r\n00a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nnext";
    let expected = (b"hello0123456789".to_vec(), true, b"next".to_vec());
    assert_eq!(body(Framing::ChunkLine, &[text]).unwrap(), expected);
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    let (kept, ..) = body(Framing::ChunkLine, &bytes).unwrap();
    assert_eq!(kept, expected.0);
    for text in ["x\r\n", "\r\n", "-5\r\n", "5\r\nhelloX\r\n", "1234567890123456\r\n"] {
        assert_eq!(body(Framing::ChunkLine, &[text.as_bytes()]), Err(Fault::Malformed), "{text}");
    }
    let long = [b' '; MAX_CHUNK_LINE];
    assert_eq!(body(Framing::ChunkLine, &[b"5", &long]), Err(Fault::Malformed));
    let trailers = vec![b'a'; MAX_HEAD];
    assert_eq!(body(Framing::ChunkLine, &[b"0\r\n", &trailers]), Err(Fault::Malformed));
}

#[test]
fn a_long_body_is_read_to_its_end_and_kept_in_part() {
    let part = vec![b'a'; MAX_MATCHED_BODY / 2 + 1];
    let length = 3 * part.len() as u64;
    let (kept, is_complete, rest) = body(Framing::Length(length), &[&part, &part, &part]).unwrap();
    assert_eq!((kept.len(), is_complete, rest.len()), (MAX_MATCHED_BODY, true, 0));
}

proptest! {
    #[test]
    fn no_bytes_panic(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "[0-9a-f;\r\n]{0,40}".prop_map(String::into_bytes),
            "(GET|POST) [a-z:/?#*]{0,9} HTTP/1.[01]\r\n([A-Za-z-]{1,9}: [ -~]{0,9}\r\n){0,4}\r\n"
                .prop_map(String::into_bytes),
        ],
    ) {
        let mut input = BytesMut::from(&bytes[..]);
        let _ = take_head(&mut input, &mut 0);
        if let Ok(head) = Head::parse(&bytes) {
            let _ = head.request("http", b"", 0);
        }
        let _ = body(Framing::ChunkLine, &[&bytes]);
        let _ = body(Framing::Length(9), &[&bytes]);
    }
}
