use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use manyways_model::drive::Ending;
use manyways_unit::Span;
use manyways_wire::archive::{Abort, Exchange, Field, Response};

use super::super::super::sample::{RECORDED, Sample, field};
use super::super::super::{Layout, Options, Served, Server};
use super::super::{Driven, Script, Way, run};
use super::*;
use crate::authority::Authority;

/// An exchange of the only connection, and where it starts, in milliseconds; it takes five.
fn at(millis: u64) -> impl Fn(&mut Exchange, &mut Response) {
    move |exchange, _| {
        exchange.connection = Some(0);
        exchange.started = RECORDED + Span::from_millis(millis);
        exchange.timings.wait = Some(Span::from_millis(5));
    }
}

/// Drives a recording of `https://a.example` at a server of this host. Returns also what it served.
fn drive(sample: impl FnOnce(&str, Sample) -> Sample) -> (Driven, Vec<Served>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let url = format!("https://a.example:{}", address.port());
    let connection = Sample::default().connection(&address.to_string(), Some(("a.example", "h2")));
    let contents = sample(&url, connection).contents();
    let authority = Arc::new(Authority::distrusted().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("authority.pem");
    std::fs::write(&trusted, authority.certificate_pem()).unwrap();
    let layout = Layout::new(contents.archive(), false, |_| true);
    let script = Script::new(&contents, &layout).unwrap();
    let certificates = Arc::clone(&authority);
    let server = Server::start(contents, Options::default(), certificates, vec![listener]).unwrap();
    let path = |last| PathSpec::from_address("lo", Ipv4Addr::new(127, 0, 0, last).into());
    let fetching = Fetching { paths: vec![path(1), path(2)], trust: Trust::File(trusted) };
    let way = Way { fetching: Some(fetching), ..Way::default() };
    let driven = run(&script, &way, authority.certificate()).unwrap();
    (driven, server.stop().0)
}

/// Numbers of the connections that served paths that begin so.
fn connections(served: &[Served], path: &str) -> BTreeSet<u64> {
    let served = served.iter().filter(|one| one.url.contains(path));
    served.map(|one| one.connection).collect()
}

#[test]
fn whole_objects_are_fetched_and_the_rest_goes_over_one_connection() {
    let etag = [("ETag", "\"a\""), ("Date", "Tue, 14 Nov 2023 22:13:20 GMT")];
    let (driven, served) = drive(|url, sample| {
        let other = |millis, status| {
            move |exchange: &mut Exchange, response: &mut Response| {
                at(millis)(exchange, response);
                response.status = status;
                if status == 200 {
                    exchange.request.method = "POST".to_owned();
                }
            }
        };
        sample
            .get(&format!("{url}/object/1"), &etag, &[b'x'; 300_000], &at(0))
            .get(&format!("{url}/rest/1"), &[], b"posted", &other(10, 200))
            .get(&format!("{url}/object/2"), &etag, b"two", &at(20))
            .get(&format!("{url}/rest/2"), &[], b"missing", &other(30, 404))
            .get(&format!("{url}/object/3"), &[], b"three", &at(40))
    });
    let exchanges = &driven.outcome.exchanges;
    assert!(driven.is_complete && driven.outcome.failed() == 0, "{exchanges:?}");
    let received: Vec<u64> = exchanges.iter().map(|one| one.received.as_bytes()).collect();
    assert_eq!(received, [300_000, 6, 3, 7, 5]);
    let (objects, rest) = (connections(&served, "/object/"), connections(&served, "/rest/"));
    // A client has one connection on each path, and keeps both.
    assert!(objects.len() <= 2, "{served:?}");
    assert!(rest.len() == 1 && objects.is_disjoint(&rest), "{served:?}");
}

#[test]
fn objects_at_a_time_have_their_own_clients_and_end_where_the_recorded_client_did() {
    let (driven, served) = drive(|url, sample| {
        let slow = |exchange: &mut Exchange, response: &mut Response| {
            at(0)(exchange, response);
            exchange.think = Some(Span::from_millis(100));
        };
        let aborted = |exchange: &mut Exchange, response: &mut Response| {
            at(0)(exchange, response);
            exchange.abort = Some(Abort::Client);
        };
        sample
            .get(&format!("{url}/slow/1"), &[], b"1", &slow)
            .get(&format!("{url}/slow/2"), &[], b"2", &slow)
            .get(&format!("{url}/aborted"), &[], &[b'x'; 100_000], &aborted)
    });
    let endings = driven.outcome.exchanges.iter().map(|one| one.ending.unwrap());
    let expected = [Ending::Complete, Ending::Complete, Ending::Cancelled];
    assert_eq!(endings.collect::<Vec<_>>(), expected, "{served:?}");
    assert!(connections(&served, "/slow/").len() >= 2, "{served:?}");
}

#[test]
fn a_client_sends_the_fields_that_all_of_its_requests_have() {
    let message = |fields: &[(&str, &str)]| Message {
        method: "GET".to_owned(),
        url: "https://a.example/".to_owned(),
        fields: fields.iter().map(|(name, value)| field(name, value)).collect(),
        body: None,
        is_whole_object: true,
    };
    let strange = Field { name: "X-B".to_owned(), value: vec![0xff] };
    let mut first = message(&[("User-Agent", "u"), ("Accept", "a"), ("Accept-Encoding", "br")]);
    let mut second = message(&[("Accept", "b"), ("User-Agent", "u"), ("Accept-Encoding", "br")]);
    first.fields.push(strange.clone());
    second.fields.push(strange);
    assert_eq!(common_headers([&first, &second].into_iter()), ["User-Agent: u"]);
    assert_eq!(common_headers([&first].into_iter()), ["User-Agent: u", "Accept: a"]);
    assert!(common_headers(std::iter::empty()).is_empty());
}

#[test]
fn a_recorded_body_of_a_request_is_sent_again() {
    let (driven, served) = drive(|url, mut sample| {
        let bodies = [&b"id=1"[..], b"id=2"].map(|bytes| sample.body(bytes));
        let posted = |number: usize| {
            move |exchange: &mut Exchange, response: &mut Response| {
                at(10 * number as u64)(exchange, response);
                exchange.request.method = "POST".to_owned();
                exchange.request.body = bodies.get(number).copied().flatten();
            }
        };
        let url = format!("{url}/rest");
        sample.get(&url, &[], b"one", &posted(0)).get(&url, &[], b"other", &posted(1))
    });
    let received = driven.outcome.exchanges.iter().map(|one| one.received.as_bytes());
    assert_eq!(received.collect::<Vec<_>>(), [3, 5], "{served:?}");
    let hits = served.iter().map(|one| one.outcome.exchange());
    assert_eq!(hits.collect::<Vec<_>>(), [Some(0), Some(1)]);
}
