//! Bodies of the objects of a page.

use std::fmt::Write as _;

use super::site::{Kind, Object, Site};
use crate::traffic::browser::reporting_script;
use crate::traffic::page::{filler, image, padded};

impl Site {
    /// An object as `(media type, body)`.
    pub fn content(&self, object: &Object) -> (&'static str, Vec<u8>) {
        let body = match object.kind {
            Kind::Document => self.document(object).into_bytes(),
            Kind::Style => padded(String::new(), object.bytes).into_bytes(),
            Kind::Script => self.script(object).into_bytes(),
            Kind::Image => image(object.bytes),
        };
        (object.kind.media_type(), body)
    }

    /// Total size of all bodies in bytes.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| self.content(object).1.len() as u64).sum()
    }

    fn loads<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = &'a Object> {
        object.loads.iter().filter_map(|index| self.objects.get(*index))
    }

    fn document(&self, object: &Object) -> String {
        let of = |kind: Kind| self.loads(object).filter(move |object| object.kind == kind);
        let mut out = String::from(
            "<!doctype html><html><head><meta charset=utf-8><title>page</title>\
             <link rel=icon href=\"data:,\">",
        );
        out.push_str(&reporting_script());
        for style in of(Kind::Style) {
            let _ = write!(out, "<link rel=stylesheet href=\"{}\">", attribute(&style.url));
        }
        // Half of the scripts are deferred, the others block the parser at the end of the document.
        for script in of(Kind::Script).step_by(2) {
            let _ = write!(out, "<script defer src=\"{}\"></script>", attribute(&script.url));
        }
        out.push_str("</head><body>");
        let mut end = String::new();
        for script in of(Kind::Script).skip(1).step_by(2) {
            let _ = write!(end, "<script src=\"{}\"></script>", attribute(&script.url));
        }
        end.push_str("</body></html>");
        // The text is between the pictures.
        let paragraph = |room: usize| format!("<p>{}</p>", filler(room.saturating_sub(7)));
        let room = object.bytes.saturating_sub(out.len() + end.len());
        let each = room / (of(Kind::Image).count() + 1);
        for image in of(Kind::Image) {
            let picture = format!("<img width=32 height=32 src=\"{}\">", attribute(&image.url));
            out.push_str(&paragraph(each.saturating_sub(picture.len())));
            out.push_str(&picture);
        }
        out.push_str(&paragraph(object.bytes.saturating_sub(out.len() + end.len())));
        out + &end
    }

    fn script(&self, object: &Object) -> String {
        let mut out = String::new();
        for next in self.loads(object) {
            let url = &next.url;
            let (name, set) = match next.kind {
                Kind::Script => ("script", format!("e.src='{url}'")),
                Kind::Style => ("link", format!("e.rel='stylesheet';e.href='{url}'")),
                Kind::Document | Kind::Image => ("img", format!("e.src='{url}'")),
            };
            let _ = write!(
                out,
                "{{const e=document.createElement('{name}');{set};\
                 document.documentElement.append(e)}}"
            );
        }
        padded(out, object.bytes)
    }
}

/// A URL as the value of an attribute.
fn attribute(url: &str) -> String {
    url.replace('&', "&amp;")
}
