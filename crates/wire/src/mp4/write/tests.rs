use super::*;

/// A box: its kind and its content.
type Part<'a> = ([u8; 4], &'a [u8]);

/// The boxes of these bytes, which must end with the last one.
fn parts(mut bytes: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let length = number(bytes, 0) as usize;
        parts.push((bytes[4..8].try_into().unwrap(), &bytes[8..length]));
        bytes = &bytes[length..];
    }
    parts
}

/// The content of a box within others; `skipped` are the bytes of each before its boxes.
fn within<'a>(bytes: &'a [u8], path: &[(&[u8; 4], usize)]) -> &'a [u8] {
    path.iter().fold(bytes, |bytes, (kind, skipped)| {
        let found = parts(bytes).into_iter().find(|(found, _)| found == *kind);
        &found.unwrap_or_else(|| panic!("there is no {kind:?}")).1[*skipped..]
    })
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn whole(segment: Segment) -> Vec<u8> {
    let padding = vec![0; segment.padding.as_bytes() as usize];
    [segment.head, padding, segment.tail].concat()
}

fn kinds(bytes: &[u8]) -> Vec<[u8; 4]> {
    parts(bytes).into_iter().map(|(kind, _)| kind).collect()
}

const SECONDS: Span = Span::from_secs(60);

#[test]
fn a_segment_has_exactly_its_length_and_its_samples_the_times() {
    for (width, height) in [(16, 16), (320, 180), (1_920, 1_080)] {
        let track = Track::new(width, height, SECONDS);
        let duration = Span::from_millis(2_500);
        let minimum = track.min_segment(duration).as_bytes();
        for length in [minimum, minimum + 1, minimum + 7, minimum + 8, 100_000] {
            let (start, length) = (Span::from_secs(5), Size::from_bytes(length));
            let bytes = whole(track.segment(3, start, duration, length).unwrap());
            assert_eq!(bytes.len() as u64, length.as_bytes());
            assert_eq!(kinds(&bytes), [*b"styp", *b"free", *b"moof", *b"mdat"]);
            let moof = within(&bytes, &[(b"moof", 0)]);
            assert_eq!(number(within(moof, &[(b"mfhd", 4)]), 0), 3);
            assert_eq!(number(within(moof, &[(b"traf", 0), (b"tfdt", 8)]), 0), 5_000);
            let run = within(moof, &[(b"traf", 0), (b"trun", 4)]);
            let sample = |index: usize| [0, 4, 8].map(|at| number(run, 8 + 12 * index + at));
            let samples: Vec<_> = (0..number(run, 0) as usize).map(sample).collect();
            assert_eq!(samples.iter().map(|[span, ..]| span).sum::<u32>(), 2_500);
            // 62 pictures of 40 ms and one of 20 ms.
            assert_eq!(samples.len(), 63);
            let data = within(&bytes, &[(b"mdat", 0)]);
            assert_eq!(
                samples.iter().map(|[_, size, _]| *size as usize).sum::<usize>(),
                data.len()
            );
            // From `moof` to the first sample.
            assert_eq!(number(run, 4) as usize, moof.len() + 8 + 8);
        }
    }
}

#[test]
fn a_length_without_room_for_the_pictures_is_refused() {
    let track = Track::new(320, 180, SECONDS);
    let minimum = track.min_segment(SECONDS);
    let less = Size::from_bytes(minimum.as_bytes() - 1);
    let segment = |length| track.segment(1, Span::ZERO, SECONDS, length).map(drop);
    assert_eq!(segment(minimum), Ok(()));
    assert_eq!(segment(less), Err(LengthError::TooShort(minimum)));
    assert_eq!(segment(MAX_SEGMENT), Ok(()));
    assert_eq!(segment(Size::from_bytes(1 << 31)), Err(LengthError::TooLong));
}

#[test]
fn every_sample_is_one_unit_and_the_first_one_is_complete_in_itself() {
    let track = Track::new(640, 360, SECONDS);
    let length = Size::from_bytes(10_000);
    let segment = track.segment(1, Span::ZERO, Span::from_secs(4), length).unwrap();
    let mut data = within(&segment.tail, &[(b"mdat", 0)]);
    let mut kinds = Vec::new();
    while !data.is_empty() {
        let length = number(data, 0) as usize;
        kinds.push(data[4] & 0x1f);
        data = &data[4 + length..];
    }
    assert_eq!(kinds[0], 5);
    assert_eq!(kinds[1..], [1; 99]);
    // Two IDR pictures in succession have different identifiers, and the same length.
    let [even, odd] = &track.intra;
    assert_eq!(even.len(), odd.len());
    assert_ne!(even, odd);
}

#[test]
fn the_track_declares_its_picture() {
    for (width, height, codec) in [
        (16, 16, "avc1.42c00b"),
        (320, 180, "avc1.42c00d"),
        (640, 360, "avc1.42c01e"),
        (1_280, 720, "avc1.42c01f"),
        (1_920, 1_080, "avc1.42c028"),
        (3_840, 2_160, "avc1.42c033"),
    ] {
        let track = Track::new(width, height, SECONDS);
        assert_eq!(track.codec(), codec);
        let init = track.init();
        assert_eq!(kinds(&init), [*b"ftyp", *b"moov"]);
        let moov = within(&init, &[(b"moov", 0)]);
        let header = within(moov, &[(b"trak", 0), (b"tkhd", 0)]);
        let sides = [76, 80].map(|at| number(header, at) >> 16);
        assert_eq!(sides, [u32::from(width), u32::from(height)]);
        assert_eq!(number(within(moov, &[(b"mvex", 0), (b"mehd", 8)]), 0), 60_000);
        let table = [(b"trak", 0), (b"mdia", 0), (b"minf", 0), (b"stbl", 0), (b"stsd", 8)];
        let entry = [(b"avc1", 78), (b"avcC", 0)];
        let configuration = within(within(moov, &table), &entry);
        let hex: String = configuration[1..4].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(format!("avc1.{hex}"), codec);
    }
}

#[test]
fn an_odd_side_is_rounded_down() {
    let track = Track::new(427, 241, SECONDS);
    let init = track.init();
    let header = within(&init, &[(b"moov", 0), (b"trak", 0), (b"tkhd", 0)]);
    assert_eq!([76, 80].map(|at| number(header, at) >> 16), [426, 240]);
}

#[test]
fn an_index_has_the_length_and_the_duration_of_each_segment() {
    let segments = [(1_000, 4_000), (2_000, 4_000), (500, 1_500)];
    let spans =
        segments.map(|(length, millis)| (Size::from_bytes(length), Span::from_millis(millis)));
    let bytes = index(&spans);
    let content = within(&bytes, &[(b"sidx", 0)]);
    assert_eq!(number(content, 0), 1 << 24);
    assert_eq!([4, 8].map(|at| number(content, at)), [1, TIMESCALE]);
    // No distance from the index to the first segment.
    assert_eq!(content[12..28], [0; 16]);
    assert_eq!(number(content, 28), 3);
    let entry = |index: usize| [0, 4, 8].map(|at| number(content, 32 + 12 * index + at));
    for (at, (length, millis)) in segments.into_iter().enumerate() {
        assert_eq!(entry(at), [length as u32, millis as u32, 0x9000_0000]);
    }
    assert_eq!(content.len(), 32 + 3 * 12);
}
