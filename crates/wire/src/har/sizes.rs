//! Lengths of bodies whose bytes are not in the file.

/// Sizes that programs write about a response; `None` if missing or negative.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    /// Whether the response has a content coding.
    pub(super) is_coded: bool,
    /// `content.size`: by the standard decoded, in WebPagetest encoded.
    pub(super) content: Option<u64>,
    /// `content.compression`: bytes that the content coding saves.
    pub(super) saved: Option<u64>,
    /// `bodySize`: encoded bytes; in some browsers with the head, and 0 if they came from the cache.
    pub(super) body: Option<u64>,
    /// `headersSize`.
    pub(super) head: Option<u64>,
    /// `_transferSize`: encoded bytes with the head.
    pub(super) transfer: Option<u64>,
    /// `_objectSize`: encoded bytes.
    pub(super) object: Option<u64>,
    /// `_objectSizeUncompressed`: decoded bytes.
    pub(super) decoded_object: Option<u64>,
    /// The field `Content-Length`.
    pub(super) announced: Option<u64>,
}

impl Sizes {
    /// Returns the most probable encoded length, and the decoded one if it is known.
    pub(super) fn lengths(&self) -> (u64, Option<u64>) {
        if self.is_coded || self.saves_bytes() {
            let encoded = self.encoded();
            let content = self.content.filter(|content| *content > 0 && *content != encoded);
            return (encoded, known(self.decoded_object).or(content));
        }
        let identity = self.identity();
        (identity, Some(identity))
    }

    /// Whether the sizes prove a content coding. Some programs leave its field out, or write the head
    /// of a redirect.
    fn saves_bytes(&self) -> bool {
        let saved = self.content.zip(known(self.saved));
        let encoded = saved.and_then(|(content, saved)| content.checked_sub(saved));
        known(encoded).is_some() && encoded == self.body
    }

    fn identity(&self) -> u64 {
        // Old Firefox writes 0 or -1 for images, and their size with the head in `bodySize`.
        let announced = self.announced.filter(|length| {
            self.content.is_none() || self.body.is_some_and(|body| *length <= body)
        });
        let body = self.body.filter(|_| self.content.is_none());
        known(self.content).or(known(self.object)).or(announced).or(body).unwrap_or(0)
    }

    fn encoded(&self) -> u64 {
        let without_saved = self
            .content
            .zip(known(self.saved))
            .and_then(|(content, saved)| content.checked_sub(saved));
        let without_head =
            self.transfer.zip(self.head).and_then(|(all, head)| all.checked_sub(head));
        [self.object, without_saved, self.body, self.announced, without_head, self.content]
            .into_iter()
            .find_map(known)
            .unwrap_or(0)
    }
}

/// Zero often means unknown.
fn known(size: Option<u64>) -> Option<u64> {
    size.filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_writes_sizes_in_its_way() {
        let sizes = Sizes::default();
        let coded = Sizes { is_coded: true, ..sizes };
        for (who, sizes, expected) in [
            (
                "chrome-har, gzip",
                Sizes {
                    content: Some(231_946),
                    saved: Some(182_922),
                    body: Some(49_024),
                    transfer: Some(49_024),
                    ..coded
                },
                (49_024, Some(231_946)),
            ),
            (
                "chrome-har, gzip without its field",
                Sizes { content: Some(120_318), saved: Some(88_341), body: Some(31_977), ..sizes },
                (31_977, Some(120_318)),
            ),
            (
                "chrome-har, size with head",
                Sizes { content: Some(500), body: Some(800), transfer: Some(800), ..sizes },
                (500, Some(500)),
            ),
            (
                "WebPagetest",
                Sizes {
                    content: Some(504_079),
                    body: Some(504_079),
                    object: Some(504_079),
                    decoded_object: Some(1_351_462),
                    ..coded
                },
                (504_079, Some(1_351_462)),
            ),
            (
                "old WebPagetest",
                Sizes { content: Some(45_498), body: Some(45_498), object: Some(45_498), ..coded },
                (45_498, None),
            ),
            (
                "Firefox, unknown",
                Sizes { body: Some(1_789), announced: Some(1_700), ..sizes },
                (1_700, Some(1_700)),
            ),
            (
                "Firefox, unknown and no field",
                Sizes { body: Some(1_789), ..sizes },
                (1_789, Some(1_789)),
            ),
            (
                "Firefox, redirect",
                Sizes { content: Some(0), body: Some(600), ..sizes },
                (0, Some(0)),
            ),
            (
                "WebInspector, from its cache",
                Sizes { content: Some(27_151), body: Some(0), transfer: Some(0), ..coded },
                (27_151, None),
            ),
            (
                "Chrome, transfer only",
                Sizes { content: Some(900), transfer: Some(700), head: Some(300), ..coded },
                (400, Some(900)),
            ),
            (
                "cached with a saving of more than all",
                Sizes { content: Some(72_413), saved: Some(72_430), ..sizes },
                (72_413, Some(72_413)),
            ),
            ("nothing", sizes, (0, Some(0))),
        ] {
            assert_eq!(sizes.lengths(), expected, "{who}");
        }
    }
}
