//! Replacement of the URLs in a manifest.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

use super::Format;
use super::playlist::{self, Line};
use super::source::{Edited, Source, SyntaxError};
use super::xml::{Attribute, Tag, Token, XmlReader};

/// Elements with a URL as their text.
const TEXT_URLS: [&str; 5] =
    ["BaseURL", "Location", "PatchLocation", "ContentSteering", "ImportedMPD"];
/// Attributes of playlists with a URL; `URI` in most tags, the others in one tag each.
const PLAYLIST_URLS: [&str; 4] = ["URI", "SERVER-URI", "X-ASSET-URI", "X-ASSET-LIST"];

/// Returns a manifest with replaced URLs; all other bytes remain.
///
/// `replace` gets each URL of media, keys, indexes and other manifests, in the order of the manifest,
/// as it is written except for the escapes of XML and spaces around it: absolute, or relative in any
/// form, and in templates with identifiers such as `$Number$`, which a replacement must contain as
/// well. It returns `None` if the URL is to remain. Empty references are left out.
///
/// A replacement is escaped where the format needs it: `&` in XML; quotes and control characters in
/// a playlist are percent-encoded.
///
/// - In an MPD: the texts of `BaseURL`, `Location`, `PatchLocation`, `ContentSteering` and
///   `ImportedMPD`; templates, `media`, `index`, `initialization`, `sourceURL` and the like; `href` of
///   XLink; time servers that are asked by HTTP (`UTCTiming`). Licence servers of content protection
///   and addresses for people remain.
/// - In a playlist: lines with URLs; `URI` in all tags; the server of content steering; assets of
///   interstitials. A URL with variables (`{$name}`) has them as they are written.
pub fn rewrite(
    format: Format,
    manifest: &[u8],
    replace: impl FnMut(&str) -> Option<String>,
) -> Result<Vec<u8>, SyntaxError> {
    let source = Source::new(manifest)?;
    match format {
        Format::Dash => MpdRewriter { source, output: Edited::new(source), replace }.run(),
        Format::Hls => rewrite_playlist(source, replace),
    }
}

/// Calls `replace`; `None` if nothing changes.
fn changed(url: &str, replace: &mut impl FnMut(&str) -> Option<String>) -> Option<String> {
    if url.is_empty() {
        return None;
    }
    replace(url).filter(|new| new != url)
}

struct MpdRewriter<'t, F> {
    source: Source<'t>,
    output: Edited<'t>,
    replace: F,
}

impl<F: FnMut(&str) -> Option<String>> MpdRewriter<'_, F> {
    fn run(mut self) -> Result<Vec<u8>, SyntaxError> {
        let mut reader = XmlReader::new(self.source);
        // Offset and text of the content, while the reader is in an element of `TEXT_URLS`.
        let mut content: Option<(usize, String)> = None;
        while let Some(token) = reader.next()? {
            match token {
                Token::Open(tag) => {
                    self.rewrite_attributes(&tag)?;
                    let is_url = TEXT_URLS.contains(&tag.name);
                    content = is_url.then(|| (reader.range().end, String::new()));
                }
                Token::Text(text) => {
                    if let Some((_, content)) = &mut content {
                        content.push_str(&text);
                    }
                }
                Token::Close => {
                    if let Some((start, content)) = content.take() {
                        self.rewrite_text(start..reader.range().start, content.trim_ascii());
                    }
                }
            }
        }
        Ok(self.output.finish())
    }

    fn rewrite_text(&mut self, range: Range<usize>, url: &str) {
        if let Some(new) = changed(url, &mut self.replace) {
            let range = trimmed(self.source.text, range);
            self.output.replace(range, &quick_xml::escape::escape(new));
        }
    }

    fn rewrite_attributes(&mut self, tag: &Tag<'_>) -> Result<(), SyntaxError> {
        for attribute in &tag.attributes {
            let range = attribute.offset..attribute.offset + attribute.raw.len();
            if is_url(tag, attribute) {
                self.rewrite_value(trimmed(self.source.text, range))?;
            } else if is_list_of_time_servers(tag, attribute) {
                let mut start = range.start;
                for part in attribute.raw.split([' ', '\t', '\r', '\n']) {
                    self.rewrite_value(start..start + part.len())?;
                    start += part.len() + 1;
                }
            }
        }
        Ok(())
    }

    fn rewrite_value(&mut self, range: Range<usize>) -> Result<(), SyntaxError> {
        let raw = &self.source.text[range.clone()];
        let url = Attribute::unescape(self.source, raw, range.start)?;
        if let Some(new) = changed(&url, &mut self.replace) {
            self.output.replace(range, &quick_xml::escape::escape(new));
        }
        Ok(())
    }
}

/// Whether the value is one URL, or a template of URLs. Some names have another meaning in other
/// elements, for example `bitstreamSwitching`.
fn is_url(tag: &Tag<'_>, attribute: &Attribute<'_>) -> bool {
    match attribute.name {
        "href" => true,
        _ if attribute.has_prefix => false,
        "initialization" | "sourceURL" | "mediaURL" | "indexURL" => true,
        "media" | "index" => matches!(tag.name, "SegmentTemplate" | "SegmentURL"),
        "bitstreamSwitching" => tag.name == "SegmentTemplate",
        _ => false,
    }
}

/// Whether the value is a list of URLs (ISO/IEC 23009-1, 5.8.4.11); other schemes of `UTCTiming` have
/// a time or host names.
fn is_list_of_time_servers(tag: &Tag<'_>, attribute: &Attribute<'_>) -> bool {
    let scheme = tag.attributes.iter().find(|one| one.name == "schemeIdUri");
    tag.name == "UTCTiming"
        && attribute.name == "value"
        && scheme.is_some_and(|scheme| scheme.raw.contains(":utc:http-"))
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let whole = &text[range.clone()];
    let start = range.start + (whole.len() - whole.trim_ascii_start().len());
    start..start + whole.trim_ascii().len()
}

fn rewrite_playlist(
    source: Source<'_>,
    mut replace: impl FnMut(&str) -> Option<String>,
) -> Result<Vec<u8>, SyntaxError> {
    let mut output = Edited::new(source);
    for (number, line) in playlist::lines(source)? {
        match line {
            Line::Url { url, offset } => {
                if let Some(new) = changed(url, &mut replace) {
                    output.replace(offset..offset + url.len(), &playlist_text(&new));
                }
            }
            Line::Tag { name, value, offset } if has_url(name, value) => {
                for attribute in playlist::attributes(value, number)? {
                    if !attribute.is_quoted || !PLAYLIST_URLS.contains(&attribute.name) {
                        continue;
                    }
                    if let Some(new) = changed(attribute.value, &mut replace) {
                        let start = offset + attribute.offset;
                        output.replace(start..start + attribute.value.len(), &playlist_text(&new));
                    }
                }
            }
            Line::Tag { .. } => {}
        }
    }
    Ok(output.finish())
}

/// Whether the value of a tag is an attribute list that may have a URL. Other values have another
/// form, for example the title in `EXTINF`.
fn has_url(name: &str, value: &str) -> bool {
    name != "EXTINF" && PLAYLIST_URLS.iter().any(|attribute| value.contains(attribute))
}

/// Percent-encodes characters that would end a line or a quoted text.
fn playlist_text(url: &str) -> Cow<'_, str> {
    let is_bad = |letter: char| letter == '"' || letter.is_ascii_control();
    if !url.contains(is_bad) {
        return Cow::Borrowed(url);
    }
    let mut text = String::with_capacity(url.len() + 8);
    for letter in url.chars() {
        if is_bad(letter) {
            // Writing to a String does not fail.
            let _ = write!(text, "%{:02X}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
    Cow::Owned(text)
}
