//! Web pages: the number and sizes of objects, their origins and their dependencies.
//!
//! The shapes approximate the median page of the HTTP Archive (httparchive.org, reports "State of
//! the Web" and "Page Weight"): about 70 requests and 2 MB, a third of them scripts, an eighth
//! style sheets, most others images. Sizes are log-normal with tails like those of the web; their
//! medians give 70 objects this total size. The execution of scripts is not modelled, only the
//! objects that they load.

use std::fmt::Write as _;

use manyways_rig::order::{below, normal};
use manyways_unit::Random;

use super::browser::reporting_script;

/// Number of origins of a page, each a port of the server. With a browser's six connections to
/// each, the total of 30 is below the 32 that Chromium opens through one proxy.
pub const ORIGINS: usize = 5;
/// Minimum and maximum size of an object in bytes.
const SIZE_RANGE: (f64, f64) = (1_000.0, 200_000.0);
/// Depth at which an object no longer loads further objects.
const MAX_DEPTH: u32 = 3;

/// A page. The first object is the document.
pub struct Page {
    objects: Vec<Object>,
}

struct Object {
    kind: Kind,
    /// Minimum size; references to other objects can increase it.
    bytes: usize,
    /// Index of the origin, less than [`ORIGINS`].
    origin: usize,
    /// Number of objects on the dependency chain before this one; 0 for the document.
    depth: u32,
    /// Indices of the objects that this object loads.
    loads: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Document,
    Style,
    Script,
    Image,
}

impl Kind {
    /// Median of the sizes in bytes, and standard deviation of their logarithms.
    fn shape(self) -> (f64, f64) {
        match self {
            Self::Document => (25_000.0, 0.3),
            Self::Style => (8_000.0, 1.0),
            Self::Script => (14_000.0, 1.1),
            Self::Image => (10_000.0, 1.3),
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Document => "text/html; charset=utf-8",
            Self::Style => "text/css",
            Self::Script => "text/javascript",
            Self::Image => "image/gif",
        }
    }
}

impl Page {
    /// Creates a page of `count` objects; equal counts give equal pages.
    pub fn new(count: usize) -> Self {
        let mut random = Random::new(count as u64);
        let kinds = |index: usize| match index * 100 / count.max(1) {
            _ if index == 0 => Kind::Document,
            0..12 => Kind::Style,
            12..45 => Kind::Script,
            _ => Kind::Image,
        };
        let mut page = Self { objects: Vec::with_capacity(count) };
        for index in 0..count {
            let kind = kinds(index);
            let (median, deviation) = kind.shape();
            let size = median * (deviation * normal(&mut random)).exp();
            let bytes = size.clamp(SIZE_RANGE.0, SIZE_RANGE.1) as usize;
            let origin = match kind {
                // Resource timing does not report the resources that style sheets of other origins
                // load.
                Kind::Document | Kind::Style => 0,
                Kind::Script | Kind::Image => below(&mut random, ORIGINS),
            };
            let parent = page.parent(kind, &mut random);
            let depth = parent.map_or(0, |parent| page.objects[parent].depth + 1);
            page.objects.push(Object { kind, bytes, origin, depth, loads: Vec::new() });
            if let Some(parent) = parent {
                page.objects[parent].loads.push(index);
            }
        }
        page
    }

    /// The object that loads the next object. The document loads all style sheets, two thirds of
    /// the scripts and half of the images; scripts load most of the others.
    fn parent(&self, kind: Kind, random: &mut Random) -> Option<usize> {
        let finder = match (kind, random.uniform()) {
            (Kind::Document, _) => return None,
            (Kind::Script, 0.67..) | (Kind::Image, 0.65..) => Kind::Script,
            (Kind::Image, 0.5..) => Kind::Style,
            _ => return Some(0),
        };
        let fits = |index: &usize| {
            let object = &self.objects[*index];
            object.kind == finder && object.depth < MAX_DEPTH
        };
        let finders: Vec<usize> = (0..self.objects.len()).filter(fits).collect();
        Some(finders.get(below(random, finders.len().max(1))).copied().unwrap_or_default())
    }

    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// An object as `(media type, body)`. `base` returns the URL prefix of an origin.
    pub fn object(&self, index: usize, base: &dyn Fn(usize) -> String) -> Option<(&str, Vec<u8>)> {
        let object = self.objects.get(index)?;
        let body = match object.kind {
            Kind::Document => self.document(object, base).into_bytes(),
            Kind::Style => self.style(object, base).into_bytes(),
            Kind::Script => self.script(object, base).into_bytes(),
            Kind::Image => image(object.bytes),
        };
        Some((object.kind.media_type(), body))
    }

    /// Total size of all bodies in bytes.
    pub fn bytes(&self, base: &dyn Fn(usize) -> String) -> u64 {
        let all = (0..self.count()).filter_map(|index| self.object(index, base));
        all.map(|(_, body)| body.len() as u64).sum()
    }

    fn url(&self, index: usize, base: &dyn Fn(usize) -> String) -> String {
        let origin = self.objects.get(index).map_or(0, |object| object.origin);
        format!("{}{}", base(origin), path(self.count(), index))
    }

    fn document(&self, object: &Object, base: &dyn Fn(usize) -> String) -> String {
        let of = |kind: Kind| {
            let all = object.loads.iter().copied();
            all.filter(move |index| self.objects[*index].kind == kind)
        };
        let mut out = String::from(
            "<!doctype html><html><head><meta charset=utf-8><title>page</title>\
             <link rel=icon href=\"data:,\"><style>i{display:inline-block;width:9px;height:9px}\
             </style>",
        );
        out.push_str(&reporting_script());
        for index in of(Kind::Style) {
            let _ = write!(out, "<link rel=stylesheet href=\"{}\">", self.url(index, base));
        }
        // Half of the scripts are deferred, the others block the parser at the end of the document.
        for index in of(Kind::Script).filter(|index| index % 2 == 0) {
            let _ = write!(out, "<script defer src=\"{}\"></script>", self.url(index, base));
        }
        out.push_str("</head><body>");
        for (index, _) in self.objects.iter().enumerate().filter(|one| one.1.kind == Kind::Image) {
            let _ = write!(out, "<i id=b{index}></i>");
        }
        let images: Vec<usize> = of(Kind::Image).collect();
        let text = object.bytes.saturating_sub(out.len()) / images.len().max(1);
        for index in images {
            let picture = format!("<img width=32 height=32 src=\"{}\">", self.url(index, base));
            let text = filler(text.saturating_sub(picture.len() + 7));
            let _ = write!(out, "<p>{text}</p>{picture}");
        }
        for index in of(Kind::Script).filter(|index| index % 2 != 0) {
            let _ = write!(out, "<script src=\"{}\"></script>", self.url(index, base));
        }
        out.push_str("</body></html>");
        out
    }

    /// Background images for the document's placeholders.
    fn style(&self, object: &Object, base: &dyn Fn(usize) -> String) -> String {
        let mut out = String::new();
        for index in &object.loads {
            let _ = write!(out, "#b{index}{{background:url({})}}", self.url(*index, base));
        }
        padded(out, object.bytes)
    }

    fn script(&self, object: &Object, base: &dyn Fn(usize) -> String) -> String {
        let mut out = String::new();
        for index in &object.loads {
            let name = if self.objects[*index].kind == Kind::Script { "script" } else { "img" };
            let url = self.url(*index, base);
            let _ = write!(
                out,
                "{{const e=document.createElement('{name}');e.src='{url}';\
                 document.documentElement.append(e)}}"
            );
        }
        padded(out, object.bytes)
    }
}

/// Path of an object at its origin.
pub fn path(count: usize, index: usize) -> String {
    format!("/{count}/{index}")
}

/// Appends a comment that extends the text to `bytes` bytes.
pub fn padded(mut text: String, bytes: usize) -> String {
    let room = bytes.saturating_sub(text.len() + 4);
    text.push_str("/*");
    text.push_str(&filler(room));
    text.push_str("*/");
    text
}

/// Pseudo-random letters.
pub fn filler(length: usize) -> String {
    let mut random = Random::new(length as u64);
    (0..length).map(|_| char::from(b'a' + below(&mut random, 26) as u8)).collect()
}

/// A GIF with one transparent pixel, padded with letters after its end.
pub fn image(bytes: usize) -> Vec<u8> {
    let mut out =
        b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\
                    \x01\0\0\x02\x02D\x01\0;"
            .to_vec();
    out.extend(filler(bytes.saturating_sub(out.len())).into_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(origin: usize) -> String {
        format!("http://192.0.2.1:{}", 7110 + origin)
    }

    #[test]
    fn every_object_is_led_to_once_and_the_document_to_the_first_of_each_kind() {
        let page = Page::new(70);
        let mut led_to: Vec<usize> =
            page.objects.iter().flat_map(|object| object.loads.clone()).collect();
        led_to.sort_unstable();
        assert_eq!(led_to, (1..70).collect::<Vec<_>>());
        let deepest = page.objects.iter().map(|object| object.depth).max();
        assert!((2..=MAX_DEPTH + 1).contains(&deepest.unwrap_or_default()), "{deepest:?}");
        let origins = |origin| page.objects.iter().any(|object| object.origin == origin);
        assert!((0..ORIGINS).all(origins));
    }

    #[test]
    fn a_body_names_what_it_leads_to_and_is_as_long_as_it_shall_be() {
        let page = Page::new(40);
        for (index, object) in page.objects.iter().enumerate() {
            let (_, body) = page.object(index, &base).unwrap();
            let text = String::from_utf8_lossy(&body);
            for next in &object.loads {
                let url = page.url(*next, &base);
                let ends = ["\"", "'", ")"].map(|end| text.contains(&format!("{url}{end}")));
                assert!(ends.contains(&true), "{index} does not lead to {url}");
            }
            if matches!(object.kind, Kind::Image) {
                assert_eq!(body.len(), object.bytes);
            }
        }
        assert_eq!(page.bytes(&base), Page::new(40).bytes(&base));
        assert!(page.object(40, &base).is_none());
    }
}
