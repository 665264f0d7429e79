//! Files that are damaged, hostile or written in unusual ways.

use proptest::prelude::*;

use super::*;

#[test]
fn a_useless_file_is_an_error_with_a_sentence() {
    for (file, expected) in [
        (&b""[..], "it is cut off: it ends at line 1, column 0"),
        (b"{\"log\": {\"entries\": [", "it is cut off: it ends at line 1, column 21"),
        (b"{\"log\":\n{\"entries\": [}]}", "it is not JSON: expected value at line 2, column 14"),
        (
            b"{\"log\": {\"entries\": []}} x",
            "it is not JSON: trailing characters at line 1, column 26",
        ),
        (b"{}", "it is not a HAR file: missing field `log`"),
        (b"{\"log\": {}}", "it is not a HAR file: missing field `entries`"),
        (
            b"{\"log\": {\"entries\": 5}}",
            "it is not a HAR file: invalid type: integer `5`, expected a list",
        ),
        (
            b"{\"log\": {\"entries\": [], \"_manyways\": {\"schema\": \"manyways.archive/2\"}}}",
            "it has the format manyways.archive/2, and this version reads manyways.archive/1",
        ),
    ] {
        assert_eq!(read(file).unwrap_err().to_string(), expected);
    }
    let zeros = "0,".repeat(MAX_ENTRIES);
    let file = format!("{{\"log\": {{\"entries\": [{zeros}0]}}}}");
    assert_eq!(read(file.as_bytes()), Err(HarError::TooManyEntries(MAX_ENTRIES + 1)));
}

#[test]
fn a_byte_order_mark_and_damaged_characters_are_tolerated() {
    let mut file = file(vec![entry("http://a.example/", &[])]);
    file.splice(0..0, *b"\xef\xbb\xbf");
    assert_eq!(read(&file).unwrap().archive.exchanges.len(), 1);
    let at = file.iter().position(|byte| *byte == b'O').unwrap();
    file[at] = 0xff;
    let import = read(&file).unwrap();
    assert_eq!(import.archive.exchanges[0].response.as_ref().unwrap().reason, "\u{fffd}K");
    assert_eq!(warnings(&import), ["it is not UTF-8: damaged characters are replaced"]);
}

#[test]
fn a_damaged_entry_is_left_out_and_named() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = String::from_utf8(file(vec![
        entry("http://a.example/1", &[]),
        json!("damaged"),
        json!({"request": 5, "response": null}),
        entry("data:text/plain,a", &[]),
        entry("http://a.example/2", &[("/response/status", json!(101))]),
        entry("http://a.example/3", &[("/request/method", json!("G ET"))]),
        entry(
            "http://a.example/4",
            &[("/request/headers", json!(vec![json!({"name": "a", "value": ""}); MAX_FIELDS + 1]))],
        ),
        entry(
            "http://a.example/5",
            &[("/request/headers", json!([{"name": "a", "value": "\n".repeat(MAX_FIELDS + 1)}]))],
        ),
        entry(
            "http://a.example/6",
            &[("/request/headers", json!([{"name": "a", "value": "b".repeat(MAX_HEAD_LENGTH)}]))],
        ),
        entry("http://a.example/7", &[("/_deep", json!("DEEP"))]),
    ]))
    .unwrap();
    let import = read(text.replace("\"DEEP\"", &deep).as_bytes()).unwrap();
    assert_eq!(
        warnings(&import),
        [
            "entry 2: it is damaged: invalid type: string \"damaged\", expected struct Entry at line 1 column 9; the entry is left out",
            "entry 3: it has no URL; the entry is left out",
            "entry 4: its URL begins with `data:`; the entry is left out",
            "entry 5: its connection left HTTP (status 101); the entry is left out",
            "entry 6: its method is invalid; the entry is left out",
            "entry 7: a head has 1001 fields, more than 1000; the entry is left out",
            "entry 8: a head has more than 1000 fields; the entry is left out",
            "entry 9: a head has more than 1048576 bytes; the entry is left out",
        ]
    );
    let urls: Vec<_> = import.archive.exchanges.iter().map(|e| e.request.url.as_str()).collect();
    assert_eq!((urls, import.left_out), (vec!["http://a.example/1", "http://a.example/7"], 8));
}

#[test]
fn damage_in_the_fields_beyond_har_names_the_entry() {
    let good =
        import(vec![entry("http://a.example/", &[("/response/content/text", json!("hello"))])]);
    let file: Value = serde_json::from_slice(&written(&good.archive)).unwrap();
    let extra = "/log/entries/0/_manyways";
    for (pointer, value, expected) in [
        (
            "/log/_manyways/connections/0/protocol",
            json!("HTTP/9"),
            "its field _manyways is damaged: `HTTP/9` is unknown",
        ),
        (extra, Value::Null, "entry 1: it has no field _manyways"),
        (&format!("{extra}/connection"), json!(1), "entry 1: it has the connection 1 of 1"),
        (&format!("{extra}/abort"), json!("x"), "entry 1: `x` is unknown"),
        (
            &format!("{extra}/response/body/digest"),
            json!("00"),
            "entry 1: the digest of its body is damaged",
        ),
        (
            &format!("{extra}/response/body/encoded"),
            json!("*"),
            "entry 1: its encoded body is not base64",
        ),
        (
            &format!("{extra}/response/body/encoded"),
            json!("AAAA"),
            "entry 1: its encoded body does not match its digest and length",
        ),
        (
            &format!("{extra}/response/interim"),
            json!([{"status": 200, "fields": []}]),
            "entry 1: an interim response has the status 200",
        ),
        (
            "/log/entries/0/request/headers",
            json!([{"name": "a b", "value": ""}]),
            "entry 1: the field `a b` has an invalid name or value",
        ),
        (
            "/log/entries/0/response/headers",
            json!([{"name": "a", "value": "b\r\nc: d"}]),
            "entry 1: the field `a` has an invalid name or value",
        ),
        ("/log/entries/0/response/status", json!(100), "entry 1: its status is not a final one"),
        (
            "/log/entries/0/request/url",
            json!("file:///etc/passwd"),
            "entry 1: its URL begins with `file:`",
        ),
    ] {
        let mut damaged = file.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        damaged.pointer_mut(parent).unwrap()[name] = value;
        assert_eq!(read(damaged.to_string().as_bytes()).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_body_that_was_decoded_or_edited_replaces_the_recorded_one() {
    let fields = json!([{"name": "Content-Encoding", "value": "gzip"}, {"name": "Content-Length", "value": "3"}]);
    let entry = entry("http://a.example/", &[("/response/headers", fields)]);
    let mut archive = import(vec![entry]).archive;
    let response = archive.exchanges[0].response.as_mut().unwrap();
    response.body.as_mut().unwrap().digest = Some(Digest::of(b"\x1f\x8b\x08"));
    let mut out = Vec::new();
    let decoded = || Content::Embedded { decoded: b"hello"[..].into(), encoded: None };
    write(&archive, |_, _| decoded(), &mut out).unwrap();
    let import = read(&out).unwrap();
    let response = import.archive.exchanges[0].response.as_ref().unwrap();
    assert_eq!(response.body.unwrap().digest, Some(Digest::of(b"hello")));
    assert_eq!(
        response.fields,
        [crate::archive::Field { name: "Content-Length".into(), value: b"5".into() }]
    );
    assert_eq!(import.bodies, [(Digest::of(b"hello"), b"hello".to_vec())]);
    assert_eq!(
        warnings(&import),
        ["entry 1: its body is decoded; it is stored without content coding"]
    );
}

proptest! {
    /// Changes one value of a good file to another one of any type.
    #[test]
    fn a_value_of_any_type_in_any_place_does_not_panic(
        place in 0_usize..60,
        value in prop_oneof![
            Just(json!(null)), Just(json!(-1)), Just(json!(1e300)), Just(json!("")), Just(json!("\u{0}é")),
            Just(json!([])), Just(json!([[]])), Just(json!({})), Just(json!(true)), Just(json!("-1")),
        ],
        is_own: bool,
    ) {
        let mut file: Value = if is_own {
            let import = import(vec![entry("http://a.example/", &[])]);
            serde_json::from_slice(&written(&import.archive)).unwrap()
        } else {
            serde_json::from_slice(&file(vec![entry("http://a.example/", &[])])).unwrap()
        };
        replace(&mut file, &mut place.clone(), &value);
        if let Ok(import) = read(file.to_string().as_bytes()) {
            let again = read(&written(&import.archive)).unwrap();
            prop_assert_eq!(again.archive, import.archive);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }
}

/// Replaces the value at a place, counted in depth-first order.
fn replace(file: &mut Value, place: &mut usize, value: &Value) {
    if *place == 0 {
        *file = value.clone();
    }
    *place = place.wrapping_sub(1);
    match file {
        Value::Array(values) => values.iter_mut().for_each(|one| replace(one, place, value)),
        Value::Object(values) => values.values_mut().for_each(|one| replace(one, place, value)),
        _ => (),
    }
}
