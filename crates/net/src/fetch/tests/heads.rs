//! Response heads that violate the standards but are read by browsers and curl, and their limits.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::server::{BeforeHead, certificate, trust_in};
use super::*;

const START: &[u8] = b"HTTP/1.1 200 OK\r\n";
const TAG: &[u8] = b"ETag: \"a\"\r\n";
const LENGTH: &[u8] = b"Content-Length: 5\r\n";
const BODY: &[u8] = b"\r\nhello";

/// Fetches from a server that answers each request with these bytes.
async fn fetch_raw(parts: &[&[u8]]) -> (FetchResult, TempDir, PathBuf) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let response = parts.concat();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = response.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    request.push(byte);
                }
                // The client may close the connection early.
                let _ = stream.write_all(&response).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut request).await;
            });
        }
    });
    let (folder, target) = target();
    let mut client = Client::builder().paths([path(1), path(2)]).build().unwrap();
    let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
    (result, folder, target)
}

fn fields(number: usize) -> Vec<u8> {
    (0..number).flat_map(|at| format!("X-{at}: y\r\n").into_bytes()).collect()
}

#[tokio::test]
async fn heads_that_browsers_read_are_read() {
    let with = |field: &[u8]| [START, TAG, LENGTH, field, BODY].concat();
    let cookie = [b"Set-Cookie: ", vec![b'c'; 64 << 10].as_slice(), b"\r\n"].concat();
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    for (name, response) in [
        ("folded", with(b"Policy: default-src 'self';\r\n\t img-src *\r\n")),
        ("folded length", [START, TAG, b"Content-Length:\r\n 5\r\n", BODY].concat()),
        ("folded first line", [START, b" X: y\r\n", TAG, LENGTH, BODY].concat()),
        ("space before colon", [START, b"ETag : \"a\"\r\nContent-Length\t: 5\r\n", BODY].concat()),
        ("space in a name", with(b"Set Cookie: a=b\r\n")),
        ("no name", with(b": y\r\n")),
        ("no colon", with(b"nonsense\r\n")),
        ("control character", with(b"X: a\x01b\r\n")),
        ("many fields", with(&fields(4_998))),
        ("long field", with(&cookie)),
        ("bytes above 127", with(b"X-\xe9: y\r\nY: \xff\xe9\r\n")),
        ("tag above 127", [START, b"ETag: \"\xc3\xa9\"\r\n", LENGTH, BODY].concat()),
        ("line feeds", with(b"X: y\r\n").into_iter().filter(|byte| *byte != b'\r').collect()),
        ("raw reason", [b"HTTP/1.1 200 \xff\t\xc3\xa9\r\n", TAG, LENGTH, BODY].concat()),
        ("no reason", [b"HTTP/1.1 200\r\n", TAG, LENGTH, BODY].concat()),
        ("length twice", with(LENGTH)),
        ("list of lengths", [START, TAG, b"Content-Length: 5, 5\r\n", BODY].concat()),
        ("informational", [interim, with(b"").as_slice()].concat()),
    ] {
        let (result, _folder, target) = fetch_raw(&[&response]).await;
        assert!(result.outcome.is_ok(), "{name}: {}", result.error());
        // Other networks can help only if length and validator were read too.
        assert_eq!(result.notes, [""; 0], "{name}");
        assert_complete(&target, b"hello");
    }
}

#[tokio::test]
async fn a_transfer_coding_takes_precedence_over_the_length() {
    let coding = b"Transfer-Encoding: chunked\r\n";
    let chunks = b"\r\n7\r\nchunked\r\n0\r\n\r\n";
    let (result, _folder, target) = fetch_raw(&[START, TAG, LENGTH, coding, chunks]).await;
    result.notes(&["does not tell the length"]);
    assert_complete(&target, b"chunked");
}

#[tokio::test]
async fn larger_heads_are_refused() {
    let words = "the response head is larger than 400 KB or has more than 5000 fields";
    let long = [b"X: ", vec![b'x'; 1_000_000].as_slice(), b"\r\n"].concat();
    // The last head does not end.
    for (head, end) in [(&fields(4_999), BODY), (&long, BODY), (&long, b"")] {
        let (result, _folder, target) = fetch_raw(&[START, TAG, LENGTH, head, end]).await;
        assert!(result.error().contains(words), "{}", result.error());
        assert_no_files(&target);
    }
}

#[tokio::test]
async fn http2_heads_have_a_limit_too() {
    for (length, words) in [
        (100_000, None),
        (500_000, Some("the response head violates HTTP/2 or is larger than 400 KB")),
        (2_000_000, Some("the response head is larger than 400 KB or consists of too many")),
    ] {
        let (pem, tls) = certificate(&["127.0.0.1"], true);
        let server = Server::start_at("127.0.0.1:0", Some(tls), move |request| {
            let mut reply = correct_reply(request, b"hello", ETAG);
            reply.set("content-security-policy", &"x".repeat(length));
            reply.before_head = BeforeHead::Informational(103);
            reply
        })
        .await;
        let (_authority, trust) = trust_in(pem);
        let (_folder, target) = target();
        let client = Client::builder().paths([path(1)]).trust(trust);
        let mut client = client.build().unwrap();
        let job = Job::new(&format!("https://{}/x", server.address), &target).unwrap();
        let result = get(&mut client, &job).await;
        match words {
            None => assert_complete(&target, b"hello"),
            Some(words) => assert!(result.error().contains(words), "{}", result.error()),
        }
    }
}
