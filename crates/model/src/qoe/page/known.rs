//! Web pages whose dependency graph is known, to measure how well [`Graph`](super::Graph) finds it.
//!
//! A page has style sheets with imports, fonts and images, scripts that block the parser, are deferred or
//! asynchronous, or are inserted by other scripts, and images of the document and of scripts. Every
//! object has a size and a time that the server takes. Equal seeds give equal pages.
//! The parameters were fixed before the first measurement.

use std::fmt::Write as _;

use manyways_unit::{Random, Span};

use super::{Edge, EdgeKind};

/// Number of origins, each a port of the server. The document and the style sheets are at the first.
pub const ORIGINS: usize = 3;
/// Numbers of objects of a page, by kind: least and greatest.
const COUNTS: [(Kind, (u64, u64)); 10] = [
    (Kind::Style, (2, 5)),
    (Kind::Import, (0, 2)),
    (Kind::Font, (0, 2)),
    (Kind::StyleImage, (2, 8)),
    (Kind::Blocking, (3, 7)),
    (Kind::Deferred, (1, 5)),
    (Kind::Async, (1, 4)),
    (Kind::Injected, (2, 6)),
    (Kind::ScriptImage, (5, 12)),
    (Kind::Image, (36, 48)),
];
/// Bytes of text between the elements of the document.
const TEXT: (u64, u64) = (20_000, 90_000);
/// Time that the server takes for an object: most take less than the greatest.
const MAX_SERVER_TIME: Span = Span::from_millis(80);
/// Time that a script computes.
const MAX_COMPUTATION: Span = Span::from_millis(12);

/// A page. The first object is the document.
pub struct KnownPage {
    seed: u64,
    objects: Vec<Object>,
    /// Objects that the document names, in its order, and whether in its head.
    elements: Vec<(usize, bool)>,
    text: usize,
}

struct Object {
    kind: Kind,
    origin: usize,
    bytes: usize,
    server_time: Span,
    computation: Span,
    /// The object that names this one.
    found_by: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Document,
    Style,
    /// A style sheet that another one imports.
    Import,
    Font,
    StyleImage,
    /// A script of the document for which the parser waits.
    Blocking,
    Deferred,
    Async,
    /// A script that a script inserts.
    Injected,
    /// An image that a script inserts.
    ScriptImage,
    Image,
}

impl Kind {
    /// Least and greatest size in bytes.
    fn sizes(self) -> (u64, u64) {
        match self {
            Self::Document => (0, 0),
            Self::Style => (2_000, 20_000),
            Self::Import => (500, 4_000),
            Self::Font => (8_000, 30_000),
            Self::Blocking | Self::Deferred | Self::Async | Self::Injected => (2_000, 40_000),
            Self::StyleImage | Self::ScriptImage | Self::Image => (600, 30_000),
        }
    }

    fn is_script(self) -> bool {
        matches!(self, Self::Blocking | Self::Deferred | Self::Async | Self::Injected)
    }

    fn finder(self) -> fn(Self) -> bool {
        match self {
            Self::Import | Self::Font | Self::StyleImage => |kind| kind == Self::Style,
            Self::Injected | Self::ScriptImage => Self::is_script,
            _ => |kind| kind == Self::Document,
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Document => "text/html; charset=utf-8",
            Self::Style | Self::Import => "text/css",
            Self::Font => "font/woff2",
            Self::StyleImage | Self::ScriptImage | Self::Image => "image/gif",
            _ => "text/javascript",
        }
    }
}

/// An object as a server answers it.
pub struct Answer {
    pub path: String,
    /// Less than [`ORIGINS`].
    pub origin: usize,
    pub media_type: &'static str,
    pub body: Vec<u8>,
    /// Time between the request and the response.
    pub server_time: Span,
}

impl KnownPage {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let text = between(&mut random, TEXT) as usize;
        let document = Object {
            kind: Kind::Document,
            origin: 0,
            bytes: 0,
            server_time: part(MAX_SERVER_TIME, random.uniform()),
            computation: Span::ZERO,
            found_by: None,
        };
        let mut page = Self { seed, objects: vec![document], elements: Vec::new(), text };
        for (kind, counts) in COUNTS {
            for _ in 0..between(&mut random, counts) {
                let finder = kind.finder();
                let finders: Vec<usize> = (0..page.objects.len())
                    .filter(|index| finder(page.objects[*index].kind))
                    .collect();
                let found_by = finders[random.up_to(finders.len() as u64 - 1) as usize];
                let at_first = matches!(kind, Kind::Style | Kind::Import | Kind::Font);
                let origin = if at_first { 0 } else { random.up_to(ORIGINS as u64 - 1) as usize };
                let computes = if kind.is_script() { random.uniform() } else { 0.0 };
                page.objects.push(Object {
                    kind,
                    origin,
                    bytes: between(&mut random, kind.sizes()) as usize,
                    // Most answers are fast.
                    server_time: part(MAX_SERVER_TIME, random.uniform().powi(3)),
                    computation: part(MAX_COMPUTATION, computes),
                    found_by: Some(found_by),
                });
            }
        }
        page.arrange(&mut random);
        page
    }

    /// Places the elements: sheets and asynchronous scripts in the head, half of the other scripts as well.
    fn arrange(&mut self, random: &mut Random) {
        for (index, object) in self.objects.iter().enumerate() {
            if object.found_by == Some(0) {
                let head = match object.kind {
                    Kind::Style => true,
                    Kind::Image => false,
                    _ => random.chance(0.5),
                };
                self.elements.push((index, head));
            }
        }
        for last in (1..self.elements.len()).rev() {
            self.elements.swap(last, random.up_to(last as u64) as usize);
        }
        self.elements.sort_by_key(|(_, head)| !head);
    }

    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// Path of an object at its origin, unique among all pages.
    pub fn path(&self, index: usize) -> String {
        format!("/graph/{}/{index}", self.seed)
    }

    /// The edges that a browser's load of this page has, by the standards of HTML and CSS: the kinds
    /// [`EdgeKind::Found`], [`EdgeKind::BlocksParser`] and [`EdgeKind::StyleBeforeScript`], ordered.
    pub fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (to, object) in self.objects.iter().enumerate() {
            edges.extend(object.found_by.map(|from| Edge { kind: EdgeKind::Found, from, to }));
        }
        let mut sheets = Vec::new();
        for (index, _) in &self.elements {
            match self.objects[*index].kind {
                Kind::Style => {
                    sheets.push(*index);
                    sheets.extend(self.found_by(*index, Kind::Import));
                }
                Kind::Blocking => {
                    edges.push(Edge { kind: EdgeKind::BlocksParser, from: *index, to: 0 });
                    let waits = |from| Edge { kind: EdgeKind::StyleBeforeScript, from, to: *index };
                    edges.extend(sheets.drain(..).map(waits));
                }
                _ => (),
            }
        }
        edges.sort_unstable();
        edges
    }

    fn found_by(&self, finder: usize, kind: Kind) -> impl Iterator<Item = usize> {
        let all = self.objects.iter().enumerate();
        all.filter(move |(_, object)| object.found_by == Some(finder) && object.kind == kind)
            .map(|(index, _)| index)
    }

    /// An object as its server answers it. `base` returns the URL prefix of an origin.
    pub fn answer(&self, index: usize, base: &dyn Fn(usize) -> String) -> Option<Answer> {
        let object = self.objects.get(index)?;
        let body = match object.kind {
            Kind::Document => self.document(base).into_bytes(),
            Kind::Style => padded(self.style(index, base), object.bytes).into_bytes(),
            Kind::Import => padded(".import{color:red}".into(), object.bytes).into_bytes(),
            Kind::Font => filler(object.bytes).into_bytes(),
            Kind::Image | Kind::StyleImage | Kind::ScriptImage => image(object.bytes),
            _ => padded(self.script(index, base), object.bytes).into_bytes(),
        };
        Some(Answer {
            path: self.path(index),
            origin: object.origin,
            media_type: object.kind.media_type(),
            body,
            server_time: object.server_time,
        })
    }

    fn url(&self, index: usize, base: &dyn Fn(usize) -> String) -> String {
        format!("{}{}", base(self.objects[index].origin), self.path(index))
    }

    fn document(&self, base: &dyn Fn(usize) -> String) -> String {
        let mut out = String::from(
            "<!doctype html>\n<html><head><meta charset=utf-8><title>page</title>\
             <link rel=icon href=\"data:,\">\n\
             <style>i{display:inline-block;width:9px;height:9px}</style>\n",
        );
        let mut in_head = true;
        let text = self.text / self.elements.len().max(1);
        for (index, head) in &self.elements {
            if in_head && !head {
                in_head = false;
                out.push_str("</head><body>\n");
                // Rules of the sheets apply to these.
                for (index, object) in self.objects.iter().enumerate() {
                    match object.kind {
                        Kind::StyleImage => _ = write!(out, "<i id=b{index}></i>"),
                        Kind::Font => _ = write!(out, "<p id=f{index}>text</p>"),
                        _ => (),
                    }
                }
            }
            let url = self.url(*index, base);
            let _ = match self.objects[*index].kind {
                Kind::Style => writeln!(out, "<link rel=stylesheet href=\"{url}\">"),
                Kind::Blocking => writeln!(out, "<script src=\"{url}\"></script>"),
                Kind::Deferred => writeln!(out, "<script defer src=\"{url}\"></script>"),
                Kind::Async => writeln!(out, "<script async src=\"{url}\"></script>"),
                _ => writeln!(out, "<img width=32 height=32 src=\"{url}\">"),
            };
            if !in_head {
                let _ = writeln!(out, "<p>{}</p>", filler(text));
            }
        }
        out.push_str("</body></html>\n");
        out
    }

    fn style(&self, index: usize, base: &dyn Fn(usize) -> String) -> String {
        let mut out = String::new();
        for import in self.found_by(index, Kind::Import) {
            let _ = write!(out, "@import url({});", self.url(import, base));
        }
        for font in self.found_by(index, Kind::Font) {
            let url = self.url(font, base);
            let _ = write!(out, "@font-face{{font-family:f{font};src:url({url})}}");
            let _ = write!(out, "#f{font}{{font-family:f{font}}}");
        }
        for image in self.found_by(index, Kind::StyleImage) {
            let _ = write!(out, "#b{image}{{background:url({})}}", self.url(image, base));
        }
        out
    }

    fn script(&self, index: usize, base: &dyn Fn(usize) -> String) -> String {
        let millis = self.objects[index].computation.as_millis_f64();
        let mut out =
            format!("{{const t=performance.now()+{millis:.2};while(performance.now()<t);}}");
        for image in self.found_by(index, Kind::ScriptImage) {
            let _ = write!(out, "new Image().src='{}';", self.url(image, base));
        }
        for script in self.found_by(index, Kind::Injected) {
            let url = self.url(script, base);
            let _ = write!(
                out,
                "{{const e=document.createElement('script');e.src='{url}';document.head.append(e)}}"
            );
        }
        out
    }
}

fn between(random: &mut Random, (least, greatest): (u64, u64)) -> u64 {
    least + random.up_to(greatest - least)
}

fn part(span: Span, part: f64) -> Span {
    Span::from_secs_f64(span.as_secs_f64() * part)
}

/// Appends a comment that extends the text to `bytes` bytes.
fn padded(mut text: String, bytes: usize) -> String {
    let room = bytes.saturating_sub(text.len() + 4);
    let _ = write!(text, "/*{}*/", filler(room));
    text
}

/// Pseudo-random letters.
fn filler(length: usize) -> String {
    let mut random = Random::new(length as u64);
    (0..length).map(|_| char::from(b'a' + random.up_to(25) as u8)).collect()
}

/// A GIF with one transparent pixel, padded with letters after its end.
fn image(bytes: usize) -> Vec<u8> {
    let mut out = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;".to_vec();
    out.extend(filler(bytes.saturating_sub(out.len())).into_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_named_by_the_one_that_finds_it() {
        let base = |origin: usize| format!("http://192.0.2.1:{}", 7110 + origin);
        for seed in 0..20 {
            let page = KnownPage::new(seed);
            assert!((60..100).contains(&page.count()), "{}", page.count());
            let bodies: Vec<Answer> =
                (0..page.count()).filter_map(|index| page.answer(index, &base)).collect();
            let named: Vec<_> =
                page.edges().into_iter().filter(|edge| edge.kind == EdgeKind::Found).collect();
            assert_eq!(named.len(), page.count() - 1);
            for edge in named {
                let text = String::from_utf8_lossy(&bodies[edge.from].body);
                let url = page.url(edge.to, &base);
                let ends = ["\"", "'", ")"].map(|end| text.contains(&format!("{url}{end}")));
                assert!(ends.contains(&true), "{} does not name {url}", edge.from);
            }
        }
    }

    #[test]
    fn a_script_waits_for_the_sheets_before_it() {
        let page = KnownPage::new(3);
        let base = |_| String::new();
        let document = String::from_utf8(page.answer(0, &base).unwrap().body).unwrap();
        let place = |index: usize| document.find(&format!("\"{}\"", page.path(index)));
        let mut waits = 0;
        for edge in page.edges() {
            if edge.kind == EdgeKind::StyleBeforeScript
                && page.objects[edge.from].kind == Kind::Style
            {
                assert!(place(edge.from).unwrap() < place(edge.to).unwrap());
                waits += 1;
            }
        }
        assert!(waits > 0);
    }
}
