//! The observer of HTTP/2 connections (`wire::exchange::http2`) reports the exchanges of a client
//! and a server of the library h2, between which the bytes pass in pieces of any size.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, client, server};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use manyways_wire::archive::Field;
use manyways_wire::exchange::{Event, RequestHead, ResponseHead, http2};
use manyways_wire::stream::Endpoint;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinSet;

/// Name of the field with the index of a plan.
const INDEX: &str = "x-index";
const TUNED: [u32; 4] = [0, 100, 4_096, 65_536];

#[derive(Clone, Debug)]
struct Message {
    fields: HeaderMap,
    /// The parts of the body, by their lengths.
    parts: Vec<usize>,
    trailers: Option<HeaderMap>,
}

/// An exchange to be made.
#[derive(Clone, Debug)]
struct Plan {
    method: Method,
    path: String,
    request: Message,
    interim: Vec<HeaderMap>,
    response: Message,
    /// A response that is pushed before.
    pushed: Option<Message>,
    /// Resets the stream after the head of the response.
    reset_by: Option<Endpoint>,
}

/// An exchange that was sent or observed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Exchange {
    /// Method, scheme, authority and target, separated by spaces.
    line: String,
    request: HeaderMap,
    interim: Vec<HeaderMap>,
    response: Option<(u16, HeaderMap)>,
    bodies: BTreeMap<Endpoint, Vec<u8>>,
    trailers: BTreeMap<Endpoint, HeaderMap>,
    abort: Option<Endpoint>,
}

/// Exchanges by the number of their stream.
type Log = Arc<Mutex<BTreeMap<u64, Exchange>>>;

fn body(message: &Message) -> Vec<u8> {
    message.parts.iter().flat_map(|length| vec![*length as u8; *length]).collect()
}

fn expected(line: String, request: &Message, response: &Message) -> Exchange {
    let messages = [(Endpoint::Client, request), (Endpoint::Server, response)];
    let bodies = messages.map(|(from, message)| (from, body(message)));
    let trailers =
        messages.map(|(from, message)| (from, message.trailers.clone().unwrap_or_default()));
    Exchange {
        line,
        request: request.fields.clone(),
        response: Some((200, response.fields.clone())),
        bodies: bodies.into_iter().filter(|(_, body)| !body.is_empty()).collect(),
        trailers: trailers.into(),
        ..Exchange::default()
    }
}

fn is_empty(message: &Message) -> bool {
    message.parts.is_empty() && message.trailers.is_none()
}

/// Sends a message behind its head.
fn send(stream: &mut SendStream<Bytes>, message: &Message) {
    if is_empty(message) {
        return;
    }
    let last = message.parts.len().saturating_sub(1);
    for (index, length) in message.parts.iter().enumerate() {
        let is_last = index == last && message.trailers.is_none();
        stream.send_data(vec![*length as u8; *length].into(), is_last).unwrap();
    }
    if let Some(trailers) = &message.trailers {
        stream.send_trailers(trailers.clone()).unwrap();
    }
}

/// Receives a body up to its end, or to a reset.
async fn drain(mut body: RecvStream) {
    while let Some(Ok(bytes)) = body.data().await {
        let _ = body.flow_control().release_capacity(bytes.len());
    }
    let _ = body.trailers().await;
}

async fn run_client(io: DuplexStream, plans: Arc<Vec<Plan>>, sent: Log, table_size: u32) {
    let mut builder = client::Builder::new();
    builder.header_table_size(table_size).max_frame_size(16_384 + table_size);
    let (mut sender, connection) = builder.handshake::<_, Bytes>(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut tasks = JoinSet::new();
    for (index, plan) in plans.iter().enumerate() {
        sender = sender.ready().await.unwrap();
        let plan = plan.clone();
        let mut request = Request::builder()
            .method(plan.method.clone())
            .uri(format!("https://a.example{}", plan.path))
            .body(())
            .unwrap();
        *request.headers_mut() = plan.request.fields.clone();
        request.headers_mut().insert(INDEX, index.into());
        let fields = request.headers().clone();
        let (mut response, mut stream) =
            sender.send_request(request, is_empty(&plan.request)).unwrap();
        let line = format!("{} https a.example {}", plan.method, plan.path);
        let exchange = Exchange {
            request: fields,
            interim: plan.interim.clone(),
            abort: plan.reset_by,
            ..expected(line, &plan.request, &plan.response)
        };
        sent.lock().unwrap().insert(response.stream_id().as_u32().into(), exchange);
        tasks.spawn(async move {
            let mut pushes = response.push_promises();
            let get_pushes = async {
                while let Some(Ok(push)) = pushes.push_promise().await {
                    drain(push.into_parts().1.await.unwrap().into_body()).await;
                }
            };
            send(&mut stream, &plan.request);
            let get_response = async {
                let Ok(response) = response.await else { return };
                if plan.reset_by == Some(Endpoint::Client) {
                    stream.send_reset(Reason::CANCEL);
                }
                drain(response.into_body()).await;
            };
            tokio::join!(get_pushes, get_response);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}

async fn run_server(io: DuplexStream, plans: Arc<Vec<Plan>>, sent: Log, table_size: u32) {
    let mut builder = server::Builder::new();
    builder.header_table_size(table_size).max_frame_size(16_384 + table_size);
    let mut connection = builder.handshake::<_, Bytes>(io).await.unwrap();
    let mut tasks = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted.unwrap();
        let index: usize = request.headers()[INDEX].to_str().unwrap().parse().unwrap();
        let (plan, sent) = (plans[index].clone(), Arc::clone(&sent));
        tasks.spawn(async move {
            let head = |message: &Message| {
                let mut response = Response::new(());
                *response.headers_mut() = message.fields.clone();
                response
            };
            for fields in &plan.interim {
                let mut interim = Response::builder().status(103).body(()).unwrap();
                *interim.headers_mut() = fields.clone();
                respond.send_informational(interim).unwrap();
            }
            if let Some(message) = &plan.pushed {
                let mut request = Request::get("https://a.example/pushed").body(()).unwrap();
                *request.headers_mut() = message.fields.clone();
                let mut push = respond.push_request(request).unwrap();
                let request =
                    Message { parts: Vec::new(), trailers: None, fields: message.fields.clone() };
                let line = "GET https a.example /pushed".to_owned();
                let id = push.stream_id().as_u32().into();
                sent.lock().unwrap().insert(id, expected(line, &request, message));
                let mut stream = push.send_response(head(message), is_empty(message)).unwrap();
                send(&mut stream, message);
            }
            let (message, is_reset) = (&plan.response, plan.reset_by.is_some());
            let mut stream =
                respond.send_response(head(message), is_empty(message) && !is_reset).unwrap();
            match plan.reset_by {
                None => send(&mut stream, message),
                Some(Endpoint::Server) => stream.send_reset(Reason::INTERNAL_ERROR),
                Some(Endpoint::Client) => {
                    poll_fn(|context| stream.poll_reset(context)).await.unwrap();
                }
            }
            drain(request.into_body()).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

struct Tap {
    observer: http2::Observer,
    exchanges: BTreeMap<u64, Exchange>,
}

fn map(fields: Vec<Field>) -> HeaderMap {
    let pair = |field: Field| {
        let name = HeaderName::from_bytes(field.name.as_bytes()).unwrap();
        (name, HeaderValue::from_bytes(&field.value).unwrap())
    };
    let mut map = HeaderMap::new();
    for (name, value) in fields.into_iter().map(pair) {
        map.append(name, value);
    }
    map
}

impl Tap {
    fn handle(&mut self, from: Endpoint, bytes: &[u8]) {
        let Self { observer, exchanges } = self;
        observer.handle(from, bytes, &mut |event| add(exchanges, event)).unwrap();
    }

    fn end(&mut self, from: Endpoint) {
        let Self { observer, exchanges } = self;
        observer.end(from, &mut |event| add(exchanges, event));
    }
}

fn add(exchanges: &mut BTreeMap<u64, Exchange>, event: Event<'_>) {
    let (Event::Request(id, _)
    | Event::Interim(id, ..)
    | Event::Response(id, _)
    | Event::Body(id, ..)
    | Event::End(id, ..)
    | Event::Abort(id, _)
    | Event::Upgraded(id)) = event;
    let exchange = exchanges.entry(id).or_default();
    match event {
        Event::Request(_, RequestHead { method, target, scheme, authority, fields, .. }) => {
            let [scheme, authority] = [scheme, authority].map(Option::unwrap_or_default);
            exchange.line = format!("{method} {scheme} {authority} {target}");
            exchange.request = map(fields);
        }
        Event::Interim(_, status, fields) => {
            assert_eq!(status, 103);
            exchange.interim.push(map(fields));
        }
        Event::Response(_, ResponseHead { status, fields, .. }) => {
            exchange.response = Some((status, map(fields)));
        }
        Event::Body(_, from, bytes) => exchange.bodies.entry(from).or_default().extend(bytes),
        Event::End(_, from, trailers) => {
            assert!(exchange.trailers.insert(from, map(trailers)).is_none());
        }
        Event::Abort(_, by) => exchange.abort = Some(by),
        Event::Upgraded(_) => panic!("no request is CONNECT"),
    }
}

/// Passes on one direction in pieces of at most `max` bytes.
async fn pass(
    from: Endpoint,
    mut source: ReadHalf<DuplexStream>,
    mut sink: WriteHalf<DuplexStream>,
    tap: Arc<Mutex<Tap>>,
    max: usize,
) {
    let mut buffer = vec![0; max];
    loop {
        let length = source.read(&mut buffer).await.unwrap_or_default();
        if length == 0 {
            tap.lock().unwrap().end(from);
            let _ = sink.shutdown().await;
            return;
        }
        tap.lock().unwrap().handle(from, &buffer[..length]);
        // An endpoint may be closed before it has read everything.
        let _ = sink.write_all(&buffer[..length]).await;
    }
}

/// Makes the exchanges. Returns those that were sent, and those that were observed.
async fn exchange(
    plans: Vec<Plan>,
    table_sizes: (u32, u32),
    max: usize,
) -> (BTreeMap<u64, Exchange>, BTreeMap<u64, Exchange>) {
    let (sent, plans) = (Log::default(), Arc::new(plans));
    let tap = Tap { observer: http2::Observer::default(), exchanges: BTreeMap::new() };
    let tap = Arc::new(Mutex::new(tap));
    let ((client, to_client), (server, to_server)) = (duplex(4_096), duplex(4_096));
    let (from_client, to_client) = split(to_client);
    let (from_server, to_server) = split(to_server);
    tokio::join!(
        run_client(client, Arc::clone(&plans), Arc::clone(&sent), table_sizes.0),
        run_server(server, plans, Arc::clone(&sent), table_sizes.1),
        pass(Endpoint::Client, from_client, to_server, Arc::clone(&tap), max),
        pass(Endpoint::Server, from_server, to_client, Arc::clone(&tap), max),
    );
    let observed = std::mem::take(&mut tap.lock().unwrap().exchanges);
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (sent, observed)
}

fn fields() -> impl Strategy<Value = HeaderMap> {
    let name = prop_oneof![
        prop::sample::select(vec!["cookie", "etag", "user-agent", "content-type", "x-a"])
            .prop_map(str::to_owned),
        "x-[a-z0-9_-]{1,20}",
    ];
    let byte = prop_oneof![4 => b' '..=b'~', 1 => 0x80..=0xff_u8];
    let value = prop_oneof![
        4 => prop::collection::vec(byte, 0..60),
        1 => (b'a'..=b'z', 1_000_usize..20_000).prop_map(|(byte, length)| vec![byte; length]),
    ];
    prop::collection::vec((name, value), 0..8).prop_map(|fields| {
        map(fields.into_iter().map(|(name, value)| Field { name, value }).collect())
    })
}

fn message() -> impl Strategy<Value = Message> {
    let parts = prop::collection::vec(prop_oneof![1_usize..300, 1_000_usize..40_000], 0..3);
    (fields(), parts, prop::option::of(fields())).prop_map(|(fields, parts, trailers)| Message {
        fields,
        parts,
        trailers,
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        prop::sample::select(vec![Method::GET, Method::POST, Method::PUT]),
        "/[a-zA-Z0-9._~!$&'()*+,;=:@/?%-]{0,40}",
        message(),
        prop::collection::vec(fields(), 0..2),
        message(),
        prop::option::weighted(0.2, message()),
        prop_oneof![
            4 => Just(None),
            1 => prop::sample::select(vec![Endpoint::Client, Endpoint::Server]).prop_map(Some),
        ],
    )
        .prop_map(|(method, path, request, interim, response, pushed, reset_by)| {
            // A reset discards frames that are not sent yet.
            let is_complete = reset_by.is_none();
            let interim = interim.into_iter().filter(|_| is_complete).collect();
            let pushed = pushed.filter(|_| is_complete);
            Plan { method, path, request, interim, response, pushed, reset_by }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn observed_exchanges_are_those_of_a_client_and_a_server(
        mut plans in prop::collection::vec(plan(), 1..10),
        client_table in prop::sample::select(TUNED.to_vec()),
        server_table in prop::sample::select(TUNED.to_vec()),
        max in prop_oneof![1_usize..100, 1_000_usize..20_000],
    ) {
        // The server sends promises of several streams in any order, which HTTP/2 forbids.
        let mut pushing = plans.iter_mut().filter(|plan| plan.pushed.is_some());
        pushing.next();
        pushing.for_each(|plan| plan.pushed = None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let exchanging = exchange(plans, (client_table, server_table), max);
        let (sent, mut observed) = runtime.block_on(exchanging);
        for (id, expected) in &sent {
            let seen = observed.get_mut(id).unwrap();
            if expected.abort.is_some() {
                // The rest may not have been sent.
                prop_assert!(seen.response.is_none() || seen.response == expected.response);
                seen.response.clone_from(&expected.response);
                for (from, body) in &expected.bodies {
                    let observed = seen.bodies.remove(from).unwrap_or_default();
                    prop_assert!(body.starts_with(&observed));
                }
                seen.bodies.clone_from(&expected.bodies);
                prop_assert!(!seen.trailers.contains_key(&Endpoint::Server));
                seen.trailers.clone_from(&expected.trailers);
            }
            prop_assert_eq!(&*seen, expected, "stream {}", id);
        }
        prop_assert_eq!(observed.len(), sent.len());
    }
}
