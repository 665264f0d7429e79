use h2::client::SendRequest;
use manyways_unit::Span;
use manyways_wire::archive::{Abort, Exchange};
use tokio::io::duplex;

use super::super::sample::{Sample, aborted, field, hollow, interim, peer, run, same, service};
use super::super::{Miss, Options, Outcome};
use super::*;

const A: &str = "https://a.example/a";
type Recorded = manyways_wire::archive::Response;

/// A response as a client sees it.
#[derive(Debug, Default)]
struct Seen {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
    reset: Option<Reason>,
}

/// Connects a client with a small window.
async fn connect(service: &Arc<Service>) -> SendRequest<Bytes> {
    let (client, server) = duplex(1 << 14);
    let service = service.clone();
    tokio::spawn(async move { serve(&service, &peer("https"), server).await });
    let (sender, connection) = h2::client::handshake(client).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap() });
    sender.ready().await.unwrap()
}

fn pairs(map: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
    map.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

async fn read(response: h2::client::ResponseFuture) -> Seen {
    let mut seen = Seen::default();
    let response = match response.await {
        Ok(response) => response,
        Err(error) => return Seen { reset: error.reason(), ..seen },
    };
    seen.status = response.status().as_u16();
    seen.fields = pairs(response.headers());
    let mut body = response.into_body();
    while let Some(piece) = body.data().await {
        match piece {
            Ok(piece) => {
                seen.body.extend_from_slice(&piece);
                body.flow_control().release_capacity(piece.len()).unwrap();
            }
            Err(error) => return Seen { reset: error.reason(), ..seen },
        }
    }
    if let Some(trailers) = body.trailers().await.unwrap() {
        seen.trailers = pairs(&trailers);
    }
    seen
}

async fn get(sender: &mut SendRequest<Bytes>, method: &str, url: &str) -> Seen {
    let request = http::Request::builder().method(method).uri(url).body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    read(response).await
}

/// The response to one request, and its entry in the log.
fn ask(sample: Sample, options: Options, method: &str, url: &str) -> (Seen, Served) {
    let mut result = None;
    run(async {
        let service = service(sample.responder(options));
        let mut sender = connect(&service).await;
        let seen = get(&mut sender, method, url).await;
        let mut log = service.log.take().0;
        while log.is_empty() {
            tokio::task::yield_now().await;
            log = service.log.take().0;
        }
        result = Some((seen, log.remove(0)));
    });
    result.unwrap()
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn head_body_and_trailers_are_the_recorded_ones() {
    let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let trailers = |_: &mut Exchange, response: &mut Recorded| {
        response.trailers.push(field("grpc-status", "0"));
    };
    let fields =
        [("server", "x"), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-odd", "1,  2")];
    let sample = Sample::default().get(A, &fields, &body, &trailers);
    let (seen, served) = ask(sample, Options::default(), "GET", A);
    assert_eq!((seen.status, seen.fields), (200, owned(&fields)));
    assert!(seen.body == body);
    assert_eq!(seen.trailers, owned(&[("grpc-status", "0")]));
    assert_eq!((served.bytes, served.url.as_str()), (400_000, A));
    assert_eq!((served.protocol, served.outcome), (Protocol::Http2, Outcome::Hit { exchange: 0 }));
    assert!(served.last_byte >= served.first_byte && served.first_byte >= Some(served.at));
}

#[test]
fn fields_of_a_connection_of_http1_are_left_out() {
    let fields = [("Transfer-Encoding", "chunked"), ("Connection", "keep-alive"), ("X-A", "1")];
    let (seen, _) =
        ask(Sample::default().get(A, &fields, b"x", &same), Options::default(), "GET", A);
    assert_eq!((seen.fields, seen.body), (owned(&[("x-a", "1")]), b"x".to_vec()));
    let (seen, served) =
        ask(Sample::default().get(A, &fields, b"x", &same), Options::default(), "HEAD", A);
    assert_eq!((seen.status, seen.body.len(), served.bytes), (200, 0, 0));
    assert!(served.last_byte.is_some());
}

#[test]
fn an_abort_is_a_reset_after_the_bytes_that_had_arrived() {
    let body = vec![7; 200_000];
    let sample =
        Sample::default().get(A, &[("content-length", "999999")], &body, &aborted(Abort::Server));
    let (seen, served) = ask(sample, Options::default(), "GET", A);
    assert_eq!((seen.reset, seen.body.len()), (Some(Reason::INTERNAL_ERROR), 200_000));
    assert_eq!(served.bytes, 200_000);
    let mut sample = Sample::default().get(A, &[], b"", &same);
    sample.0.archive.exchanges[0].response = None;
    let (seen, served) = ask(sample, Options::default(), "GET", A);
    assert_eq!((seen.reset, served.first_byte), (Some(Reason::INTERNAL_ERROR), None));
}

#[test]
fn a_long_body_is_sent_in_pieces() {
    for trailer in [false, true] {
        let long = move |_: &mut Exchange, response: &mut Recorded| {
            response.body = hollow(1_000_000);
            if trailer {
                response.trailers.push(field("x-end", "1"));
            }
        };
        let sample = Sample::default().get(A, &[("content-type", "text/css")], b"", &long);
        let (seen, served) = ask(sample, Options::default(), "GET", A);
        assert!(seen.body == vec![b' '; 1_000_000]);
        assert_eq!((served.bytes, seen.trailers.len()), (1_000_000, usize::from(trailer)));
        assert!(served.last_byte.is_some());
    }
}

#[test]
fn a_response_that_had_not_ended_ends_with_the_client() {
    run(async {
        let sample = Sample::default().get(A, &[], b"event", &aborted(Abort::Client));
        let service = service(sample.responder(Options::default()));
        let mut sender = connect(&service).await;
        let request = http::Request::get(A).body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "event");
        while service.log.take().0.is_empty() {
            tokio::task::yield_now().await;
        }
        let end = std::pin::pin!(body.data());
        assert!(matches!(futures_poll(end).await, std::task::Poll::Pending));
    });
}

/// Polls a future once.
async fn futures_poll<T>(
    mut future: std::pin::Pin<&mut impl Future<Output = T>>,
) -> std::task::Poll<T> {
    poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context))).await
}

#[test]
fn interim_responses_precede_the_response_and_think_is_waited_for() {
    let early = |exchange: &mut Exchange, response: &mut Recorded| {
        exchange.think = Some(Span::from_millis(3));
        response.interim.push(interim(103, &[("Link", "</x>")], Span::from_micros(100)));
    };
    run(async {
        let sample = Sample::default().get(A, &[], b"x", &early);
        let service = service(sample.responder(Options::default()));
        let mut sender = connect(&service).await;
        let request = http::Request::get(A).body(()).unwrap();
        let (mut response, _) = sender.send_request(request, true).unwrap();
        let hint = poll_fn(|context| response.poll_informational(context)).await;
        let hint = hint.unwrap().unwrap();
        assert_eq!(
            (hint.status().as_u16(), &hint.headers()["link"]),
            (103, &"</x>".parse().unwrap())
        );
        assert_eq!(read(response).await.body, b"x");
        let served = service.log.take().0.remove(0);
        assert!(served.first_byte.unwrap().since(served.at) >= Span::from_millis(3));
    });
}

#[test]
fn a_body_of_a_request_is_matched() {
    let mut sample = Sample::default();
    let body = sample.body(br#"{"id":1}"#);
    let post = |exchange: &mut Exchange, _: &mut Recorded| {
        exchange.request.method = "POST".to_owned();
        exchange.request.body = body;
    };
    let sample = sample.get(A, &[], b"x", &post);
    run(async {
        let service = service(sample.responder(Options::default()));
        let mut sender = connect(&service).await;
        for (body, status) in [(&br#"{"id":1}"#[..], 200), (br#"{"id":2}"#, 404)] {
            let request = http::Request::post(A).body(()).unwrap();
            let (response, mut sending) = sender.send_request(request, false).unwrap();
            sending.send_data(Bytes::copy_from_slice(body), true).unwrap();
            assert_eq!(read(response).await.status, status);
        }
    });
}

#[test]
fn a_body_of_a_request_may_be_longer_than_the_windows() {
    run(async {
        let service = service(Sample::default().responder(Options::default()));
        let mut sender = connect(&service).await;
        let request = http::Request::post(A).body(()).unwrap();
        let (response, mut sending) = sender.send_request(request, false).unwrap();
        let length = MAX_MATCHED_BODY + STREAM_WINDOW as usize;
        sending.send_data(Bytes::from(vec![0; length]), true).unwrap();
        assert_eq!(read(response).await.status, 404);
    });
}

#[test]
fn a_client_that_resets_its_stream_has_not_got_all_bytes() {
    run(async {
        let sample = Sample::default().get(A, &[], &vec![7; 300_000], &same);
        let service = service(sample.responder(Options::default()));
        let mut sender = connect(&service).await;
        let request = http::Request::get(A).body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        body.data().await.unwrap().unwrap();
        drop(body);
        let mut log = Vec::new();
        while log.is_empty() {
            tokio::task::yield_now().await;
            log = service.log.take().0;
        }
        assert!(log[0].bytes < 300_000, "{}", log[0].bytes);
        assert!(log[0].first_byte.is_some() && log[0].last_byte.is_none());
    });
}

#[test]
fn a_miss_is_404_or_a_reset() {
    let url = "https://a.example/other";
    let sample = || Sample::default().get(A, &[], b"x", &same);
    let (seen, served) = ask(sample(), Options::default(), "GET", url);
    assert_eq!((seen.status, seen.reset), (404, None));
    assert!(seen.fields.contains(&("manyways-replay".to_owned(), "miss".to_owned())));
    assert_eq!(served.outcome, Outcome::Miss { nearest: Some(0) });
    let close = Options { miss: Miss::Close, ..Options::default() };
    assert_eq!(ask(sample(), close, "GET", url).0.reset, Some(Reason::INTERNAL_ERROR));
}

#[test]
fn streams_and_heads_have_limits() {
    run(async {
        let open = |exchange: &mut Exchange, _: &mut Recorded| {
            exchange.think = Some(Span::from_secs(3_600));
        };
        let sample = Sample::default().get(A, &[], b"x", &open);
        let service = service(sample.responder(Options::default()));
        let mut sender = connect(&service).await;
        assert_eq!(get(&mut sender, "GET", "https://a.example/b").await.status, 404);
        assert_eq!(sender.current_max_send_streams(), MAX_STREAMS as usize);
        let long = "a".repeat(MAX_HEAD);
        let request = http::Request::get(A).header("long", long).body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let refused = response.await;
        assert!(refused.is_err() || refused.unwrap().status() == 431);
    });
}

#[test]
fn malformed_frames_end_the_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    run(async {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings = b"\0\0\0\x04\0\0\0\0\0";
        for frames in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[&preface[..], b"garbage that is no frame at all"].concat(),
            &[&preface[..], settings, b"\0\0\x04\x01\x05\0\0\0\x01\xff\xff\xff\xff"].concat(),
            &[&preface[..], settings, b"\xff\xff\xff\0\0\0\0\0\x01"].concat(),
        ] {
            let service = service(Sample::default().responder(Options::default()));
            let (mut client, server) = duplex(1 << 14);
            let task = tokio::spawn(async move {
                serve(&service, &peer("https"), server).await;
            });
            client.write_all(frames).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            task.await.unwrap();
        }
    });
}
