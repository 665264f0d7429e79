//! Boxes of ISO/IEC 14496-12.

use super::TIMESCALE;
use super::h264::Picture;

/// Identity matrix of `mvhd` and `tkhd`: no rotation.
const MATRIX: [u32; 9] = [0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000];
/// The language `und`, three times five bits.
const UNDETERMINED: u16 = 0x55c4;
/// Flags of `trun`: an offset of the data, and a duration, a length and flags of each sample.
const TRUN_FLAGS: u32 = 0x701;

/// Returns a box: its length, its kind and the parts of its content.
pub fn boxed(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = 8 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend(kind);
    parts.iter().for_each(|part| bytes.extend(*part));
    bytes
}

/// Returns a box with a version and flags.
pub fn full_box(kind: &[u8; 4], version: u8, flags: u32, parts: &[&[u8]]) -> Vec<u8> {
    let head = (u32::from(version) << 24 | flags).to_be_bytes();
    boxed(kind, &[&[&head[..]], parts].concat())
}

/// `ftyp` and `moov` of a track of this duration, in units of [`TIMESCALE`].
pub fn init(picture: &Picture, duration: u64) -> Vec<u8> {
    let track = boxed(b"trak", &[&track_header(picture), &media(picture)]);
    let extends = words(&[1, 1, 0, 0, 0]);
    let mvex = boxed(
        b"mvex",
        &[
            &full_box(b"mehd", 1, 0, &[&duration.to_be_bytes()]),
            &full_box(b"trex", 0, 0, &[&extends]),
        ],
    );
    let moov = boxed(b"moov", &[&movie_header(), &track, &mvex]);
    let ftyp = boxed(b"ftyp", &[b"iso6", &[0; 4], b"iso6", b"mp41", b"dash"]);
    [ftyp, moov].concat()
}

/// `moof` and `mdat`. A sample is its duration, its length and its flags.
pub fn fragment(number: u32, start: u64, samples: &[[u32; 3]], data: &[u8]) -> Vec<u8> {
    let head = full_box(b"mfhd", 0, 0, &[&number.to_be_bytes()]);
    // Offsets count from the start of `moof`.
    let track = full_box(b"tfhd", 0, 0x2_0000, &[&1_u32.to_be_bytes()]);
    let time = full_box(b"tfdt", 1, 0, &[&start.to_be_bytes()]);
    let table = words(&samples.concat());
    let moof = |offset: u32| {
        let count = (samples.len() as u32).to_be_bytes();
        let run = full_box(b"trun", 0, TRUN_FLAGS, &[&count, &offset.to_be_bytes(), &table]);
        boxed(b"moof", &[&head, &boxed(b"traf", &[&track, &time, &run])])
    };
    let offset = moof(0).len() as u32 + 8;
    [moof(offset), boxed(b"mdat", &[data])].concat()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// `mvhd`. Its duration is 0: that of the fragments is in `mehd`.
fn movie_header() -> Vec<u8> {
    let times = words(&[0, 0, TIMESCALE, 0]);
    // Rate 1, volume 1.
    let speed = [0, 1, 0, 0, 1, 0];
    // Six reserved words, and the number of the next track.
    let rest = words(&[0, 0, 0, 0, 0, 0, 2]);
    full_box(b"mvhd", 0, 0, &[&times, &speed, &[0; 10], &words(&MATRIX), &rest])
}

/// `tkhd` of a track that is enabled and part of the film.
fn track_header(picture: &Picture) -> Vec<u8> {
    let times = words(&[0, 0, 1, 0, 0]);
    let [width, height] = [picture.width, picture.height].map(|side| u32::from(side) << 16);
    full_box(b"tkhd", 0, 3, &[&times, &[0; 16], &words(&MATRIX), &words(&[width, height])])
}

fn media(picture: &Picture) -> Vec<u8> {
    let times = words(&[0, 0, TIMESCALE, 0]);
    let language = [UNDETERMINED.to_be_bytes(), [0; 2]].concat();
    let header = full_box(b"mdhd", 0, 0, &[&times, &language]);
    let handler = full_box(b"hdlr", 0, 0, &[&[0; 4], b"vide", &[0; 12], b"video\0"]);
    let here = full_box(b"url ", 0, 1, &[]);
    let data = boxed(b"dinf", &[&full_box(b"dref", 0, 0, &[&words(&[1]), &here])]);
    let video = full_box(b"vmhd", 0, 1, &[&[0; 8]]);
    let information = boxed(b"minf", &[&video, &data, &sample_table(picture)]);
    boxed(b"mdia", &[&header, &handler, &information])
}

/// `stbl`: the codec, and no samples, because they are in the fragments.
fn sample_table(picture: &Picture) -> Vec<u8> {
    let size = [picture.width, picture.height].map(u16::to_be_bytes).concat();
    // 72 dots per inch, reserved, one picture per sample.
    let resolution = [&words(&[0x48_0000, 0x48_0000, 0])[..], &[0, 1]].concat();
    // No name of the encoder; 24 bits of colour; -1 where there was a colour table.
    let tail = [0, 24, 0xff, 0xff];
    let avc1 = boxed(
        b"avc1",
        &[
            &[0, 0, 0, 0, 0, 0, 0, 1],
            &[0; 16],
            &size,
            &resolution,
            &[0; 32],
            &tail,
            &decoder_configuration(picture),
        ],
    );
    let empty = |kind: &[u8; 4]| full_box(kind, 0, 0, &[&[0; 4]]);
    boxed(
        b"stbl",
        &[
            &full_box(b"stsd", 0, 0, &[&words(&[1]), &avc1]),
            &empty(b"stts"),
            &empty(b"stsc"),
            &full_box(b"stsz", 0, 0, &[&[0; 8]]),
            &empty(b"stco"),
        ],
    )
}

/// `avcC` (ISO/IEC 14496-15, 5.3.3.1): one sequence and one picture parameter set, lengths of NAL
/// units in four bytes.
fn decoder_configuration(picture: &Picture) -> Vec<u8> {
    let set = |unit: Vec<u8>| [(unit.len() as u16).to_be_bytes().to_vec(), unit].concat();
    let sequence = set(picture.sequence_parameters());
    let parameters = set(picture.picture_parameters());
    let head = [&[1], &picture.profile()[..], &[0xff, 0xe1]].concat();
    boxed(b"avcC", &[&head, &sequence, &[1], &parameters])
}
