//! A page like one that a HAR file describes, without its content: the same origins, protocols, addresses,
//! distances, paths, sizes and order of objects, with bodies that lead to each other.
//!
//! - **Objects** are those that were asked for with GET before the load event, answered with 200 and not
//!   empty. All others than style sheets and scripts are pictures.
//! - **Structure**: an object that began before the first script had ended is one of the document. Each
//!   later one is loaded by the script that had ended last when it began.
//! - **Names** end in `.test`, because browsers have lists of names that they treat in another way:
//!   `www.example.com` becomes `www.example-com.test`.
//! - **Think times** are drawn, because those of a HAR depend on the network of its author.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use manyways_lab::far_host::FarHost;
use manyways_rig::order::normal;
use manyways_unit::{Random, Span, Time};
use manyways_wire::archive::{Archive, Exchange, Protocol};

pub use crate::traffic::page::Kind;

/// Fewest origins of a page.
const MIN_ORIGINS: usize = 20;
/// Addresses of servers whose address is unknown: a block for documentation (RFC 5737).
const MADE_UP: [u8; 3] = [203, 0, 113];
/// Think times: median and greatest one in seconds, and standard deviation of their logarithms.
const THINK: (f64, f64, f64) = (0.060, 0.400, 1.0);
/// Round-trip times: median of drawn ones, and greatest one, in seconds.
const RTT: (f64, f64) = (0.030, 0.200);

/// A page. The first object is the document.
#[derive(Clone, Debug)]
pub struct Site {
    pub servers: Vec<Server>,
    pub objects: Vec<Object>,
}

/// A server address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: IpAddr,
    pub names: Vec<String>,
    pub is_http2: bool,
    /// Round-trip time in addition to that of the nearest server.
    pub extra_rtt: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    pub url: String,
    /// Minimum size; references to other objects can increase it.
    pub bytes: usize,
    /// Between the request and the response.
    pub think: Span,
    /// Indices of the objects that this object loads.
    pub loads: Vec<usize>,
}

impl Site {
    /// Makes a page like that of a HAR; equal arguments give equal pages.
    ///
    /// # Errors
    /// One sentence, if the HAR has no page of enough origins.
    pub fn new(archive: &Archive, seed: u64) -> Result<Self, String> {
        let found = found(archive);
        let first = found.iter().position(|one| one.kind == Kind::Document);
        let found = found.get(first.ok_or("the HAR has no document")?..).unwrap_or_default();
        let servers = servers(archive, found, &mut Random::for_purpose(seed, 1))?;
        let mut random = Random::for_purpose(seed, 2);
        let mut objects: Vec<Object> = Vec::with_capacity(found.len());
        for (index, one) in found.iter().enumerate() {
            // The first document has the others in it as pictures: their own objects are not in the
            // timing of its resources.
            let kind = match one.kind {
                Kind::Document if index > 0 => Kind::Image,
                kind => kind,
            };
            let (url, bytes, think) = (one.url.clone(), one.bytes, think(&mut random));
            objects.push(Object { kind, url, bytes, think, loads: Vec::new() });
            if let Some(parent) = parent(found, index).and_then(|parent| objects.get_mut(parent)) {
                parent.loads.push(index);
            }
        }
        Ok(Self { servers, objects })
    }

    /// URL of the document.
    pub fn url(&self) -> &str {
        self.objects.first().map_or("", |object| &object.url)
    }
}

/// An object of the HAR.
struct Found<'a> {
    exchange: &'a Exchange,
    kind: Kind,
    /// With the names of this page.
    url: String,
    /// Of the URL.
    name: String,
    bytes: usize,
    started: Time,
    ended: Time,
}

/// The objects in the order of their requests, each URL once.
fn found(archive: &Archive) -> Vec<Found<'_>> {
    let loaded = archive.pages.first().and_then(|page| Some(page.started + page.loaded?));
    let loaded = loaded.unwrap_or(Time::MAX);
    let mut urls = BTreeSet::new();
    let all = archive.exchanges.iter().filter_map(|exchange| {
        let response = exchange.response.as_ref()?;
        let bytes = response.body.as_ref().map_or(0, |body| body.length);
        let is_object = exchange.request.method == "GET" && response.status == 200 && bytes > 0;
        let (url, name) = renamed(&exchange.request.url)?;
        if !is_object || exchange.started > loaded || !urls.insert(url.clone()) {
            return None;
        }
        let fields = &response.fields;
        let kind = fields.iter().find(|field| field.name.eq_ignore_ascii_case("content-type"));
        let kind =
            kind.map_or(Kind::Image, |field| kind_of(&String::from_utf8_lossy(&field.value)));
        let timings = &exchange.timings;
        let parts = [
            timings.blocked,
            timings.dns,
            timings.connect,
            timings.send,
            timings.wait,
            timings.receive,
        ];
        let took = parts.into_iter().flatten().fold(Span::ZERO, |all, part| all + part);
        let (started, ended) = (exchange.started, exchange.started + took);
        Some(Found { exchange, kind, url, name, bytes: bytes as usize, started, ended })
    });
    all.collect()
}

fn kind_of(media_type: &str) -> Kind {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "text/html" => Kind::Document,
        "text/css" => Kind::Style,
        _ if media_type.contains("javascript") => Kind::Script,
        _ => Kind::Image,
    }
}

/// The URL with the name of this page, and the name. Characters that a browser would encode, or that have
/// a meaning in a script, are replaced, and `;`: mitmproxy takes URLs that differ only after it for equal,
/// and pages with the wrong objects do not end. `None` for a URL with a port.
fn renamed(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    if host.contains([':', '[']) {
        return None;
    }
    let host = host.to_ascii_lowercase().replace('_', "-");
    let (name, top) = host.rsplit_once('.')?;
    let name = format!("{name}-{top}.test");
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "-._~/?&=%+,:@!*()$".contains(one);
    let path: String = path.chars().map(|one| if is_plain(one) { one } else { '_' }).collect();
    Some((format!("{scheme}://{name}{path}"), name))
}

/// The object that loads the one at `index`; `None` for the document.
fn parent(found: &[Found<'_>], index: usize) -> Option<usize> {
    let started = found.get(index)?.started;
    let earlier = found.iter().enumerate().take(index);
    let ended = earlier.filter(|(_, one)| one.kind == Kind::Script && one.ended <= started);
    let last = ended.max_by_key(|(_, one)| one.ended).map(|(number, _)| number);
    last.or((index > 0).then_some(0))
}

fn servers(
    archive: &Archive,
    found: &[Found<'_>],
    random: &mut Random,
) -> Result<Vec<Server>, String> {
    let mut names: BTreeMap<&str, IpAddr> = BTreeMap::new();
    let mut servers: BTreeMap<IpAddr, (Server, Option<Span>)> = BTreeMap::new();
    for one in found {
        let connection = archive.connection_of(one.exchange);
        let known = connection.and_then(|connection| connection.server).map(|server| server.ip());
        let known = known.filter(|address| FarHost::new(*address).check().is_ok());
        let made_up = || {
            let [a, b, c] = MADE_UP;
            let last = u8::try_from(names.len() + 1).map_err(|_| "the HAR has too many origins")?;
            Ok::<_, String>(IpAddr::from(Ipv4Addr::new(a, b, c, last)))
        };
        let address = match names.get(one.name.as_str()) {
            Some(address) => *address,
            None => known.map_or_else(made_up, Ok)?,
        };
        names.insert(&one.name, address);
        let (server, rtt) = servers.entry(address).or_insert_with(|| {
            let (names, is_http2, extra_rtt) = (Vec::new(), false, Span::ZERO);
            (Server { address, names, is_http2, extra_rtt }, None)
        });
        if !server.names.contains(&one.name) {
            server.names.push(one.name.clone());
        }
        let protocol = one.exchange.request.protocol;
        server.is_http2 |= matches!(protocol, Protocol::Http2 | Protocol::Http3);
        let measured = connection.and_then(|connection| connection.rtt);
        *rtt = [*rtt, measured.filter(|rtt| !rtt.is_zero())].into_iter().flatten().min();
    }
    if names.len() < MIN_ORIGINS {
        return Err(format!("the HAR has {} origins, fewer than {MIN_ORIGINS}", names.len()));
    }
    let (median, most) = RTT;
    let mut drawn = || Span::from_secs_f64((median * normal(random).exp()).min(most));
    let servers = servers.into_values().map(|(server, rtt)| {
        // Drawn for each, so that one more measured one does not change the others.
        let drawn = drawn();
        (server, rtt.map_or(drawn, |rtt| rtt.min(Span::from_secs_f64(most))))
    });
    let servers: Vec<(Server, Span)> = servers.collect();
    let nearest = servers.iter().map(|(_, rtt)| *rtt).min().unwrap_or_default();
    let far = |(server, rtt): (Server, Span)| Server { extra_rtt: rtt - nearest, ..server };
    Ok(servers.into_iter().map(far).collect())
}

fn think(random: &mut Random) -> Span {
    let (median, most, deviation) = THINK;
    Span::from_secs_f64((median * (deviation * normal(random)).exp()).min(most))
}

#[cfg(test)]
mod tests {
    use manyways_wire::har;
    use serde_json::{Value, json};

    use super::*;

    /// An entry that starts after `start` ms, and takes `took`.
    fn entry(url: &str, media_type: &str, bytes: u64, (start, took): (u64, u64)) -> Value {
        json!({
            "startedDateTime": format!("2024-05-01T10:00:{:02}.{:03}Z", start / 1000, start % 1000),
            "pageref": "p", "time": took,
            "timings": {"connect": 25, "ssl": 10, "send": 0, "wait": took - 25, "receive": 0},
            "request": {"method": "GET", "url": url, "httpVersion": "h2", "headers": []},
            "response": {
                "status": 200, "statusText": "", "httpVersion": "h2", "bodySize": bytes,
                "headers": [{"name": "Content-Type", "value": media_type}],
                "content": {"size": bytes, "mimeType": media_type}
            }
        })
    }

    fn site(mut entries: Vec<Value>) -> Result<Site, String> {
        let more = (0..MIN_ORIGINS).map(|number| {
            entry(&format!("https://{number}.example/"), "image/png", 700, (900, 30))
        });
        entries.extend(more);
        let har = json!({"log": {
            "version": "1.2", "creator": {"name": "a", "version": "1"}, "entries": entries,
            "pages": [{"id": "p", "title": "", "startedDateTime": "2024-05-01T10:00:00.000Z",
                "pageTimings": {"onLoad": 1000}}]
        }});
        Site::new(&har::read(har.to_string().as_bytes()).unwrap().archive, 1)
    }

    fn page() -> Vec<Value> {
        let mut entries = vec![
            entry("https://www.example/", "text/html", 9_000, (0, 100)),
            entry("https://www.example/a.css?x='1'&y=2;3", "text/css", 500, (110, 90)),
            entry("https://cdn.example/b.js", "text/javascript", 4_000, (120, 80)),
            entry("https://www.example/early.png", "image/png", 800, (190, 80)),
            entry("https://cdn.example/late.png", "image/png", 900, (250, 80)),
            entry("https://cdn.example/c.js", "application/javascript", 400, (260, 80)),
            entry("https://cdn.example/frame", "text/html", 1_500, (400, 80)),
            entry("https://cdn.example/after.png", "image/png", 900, (1_100, 80)),
        ];
        let mut other = entry("https://cdn.example/none", "image/png", 10, (300, 30));
        other["response"]["status"] = json!(404);
        entries.push(other);
        for (index, name) in [(0, "203.0.113.7"), (2, "93.184.216.34")] {
            entries[index]["serverIPAddress"] = json!(name);
            entries[index]["connection"] = json!(index.to_string());
        }
        entries
    }

    #[test]
    fn the_last_script_that_ended_loads_what_began_after_it() {
        let site = site(page()).unwrap();
        let loads = |index: usize| {
            site.objects[index].loads.iter().map(|one| &*site.objects[*one].url).collect::<Vec<_>>()
        };
        assert_eq!(site.url(), "https://www-example.test/");
        let document = [
            "www-example.test/a.css?x=_1_&y=2_3",
            "cdn-example.test/b.js",
            "www-example.test/early.png",
        ];
        assert_eq!(loads(0), document.map(|rest| format!("https://{rest}")));
        let script = ["cdn-example.test/late.png", "cdn-example.test/c.js"];
        assert_eq!(loads(2), script.map(|rest| format!("https://{rest}")));
        // The last one is without those that began after the load event, and that failed.
        assert_eq!(loads(5).len(), 1 + MIN_ORIGINS);
        assert_eq!(site.objects[6].kind, Kind::Image);
        assert!(site.objects.iter().all(|object| object.think <= Span::from_millis(400)));
    }

    #[test]
    fn servers_have_the_addresses_and_distances_of_the_recorded_ones() {
        let site = site(page()).unwrap();
        let named = |name: &str| {
            let is_meant = |server: &&Server| server.names.iter().any(|one| one == name);
            site.servers.iter().find(is_meant).unwrap()
        };
        assert_eq!(named("cdn-example.test").address.to_string(), "93.184.216.34");
        assert!(site.servers.iter().all(|server| server.is_http2));
        assert!(site.servers.iter().any(|server| server.extra_rtt.is_zero()));
        assert!(Site::new(&Archive::default(), 1).is_err());
    }

    #[test]
    fn a_body_names_what_it_loads_and_is_as_long_as_it_shall_be() {
        let site = site(page()).unwrap();
        for object in &site.objects {
            let (_, body) = site.content(object);
            let text = String::from_utf8_lossy(&body).replace("&amp;", "&");
            for next in &object.loads {
                let url = &site.objects[*next].url;
                let ends = ["\"", "'"].map(|end| text.contains(&format!("{url}{end}")));
                assert!(ends.contains(&true), "{} does not lead to {url}", object.url);
            }
            // The references of a small script need more.
            assert!(body.len() == object.bytes || object.bytes == 400, "{object:?}");
        }
    }
}
