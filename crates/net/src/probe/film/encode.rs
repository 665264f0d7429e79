//! Real films: noise that ffmpeg encodes with libx264.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, PipeReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use manyways_sys::command::RunningCommand;
use manyways_unit::{Size, Span};
use manyways_wire::film::{Film, Options, Rung};

use super::{FilmProgress, INIT, MakeError, of, segment_name};

/// Interval of the pictures: 25 a second.
pub const FRAME_INTERVAL: Span = Span::from_millis(40);
const ENCODER: &str = "ffmpeg";
/// Part of the rate by which an encoder may miss it.
const MAX_MISS: u64 = 5;
/// Bytes of ffmpeg's output that are a line.
const MAX_LINE: usize = 4_096;

/// The film without lengths, after a check of ffmpeg.
pub fn outline(options: &Options) -> Result<Film, MakeError> {
    let film = options.outline()?;
    for span in film.spans() {
        if !span.as_nanos().is_multiple_of(FRAME_INTERVAL.as_nanos()) {
            return Err(MakeError::Pictures(span));
        }
    }
    let mut command = Command::new(ENCODER);
    command.args(["-hide_banner", "-encoders"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => MakeError::NoEncoder,
        _ => of(Path::new(ENCODER))(error),
    })?;
    let encoders = String::from_utf8_lossy(&output.stdout);
    match encoders.split_whitespace().any(|word| word == "libx264") {
        true => Ok(film),
        false => Err(MakeError::NoCodec),
    }
}

/// The space of the film, with a margin for boxes and for rates that the encoder misses.
pub fn space(film: &Film) -> Size {
    let rungs = film.rungs.iter().map(|rung| rung.rate.size_in(film.duration).as_bytes());
    Size::from_bytes(rungs.sum::<u64>() / 10 * 11)
}

/// Encodes a rung into its folder; returns it with its codec and its lengths.
pub fn rung(
    film: &Film,
    rung: &Rung,
    folder: &Path,
    progress: &FilmProgress,
) -> Result<Rung, MakeError> {
    let failed = |message: String| MakeError::Encoder { rung: rung.name.clone(), message };
    let before = progress.segments.load(Ordering::Relaxed);
    let at = |time: Span| {
        let segments = time.as_nanos() / film.segment.as_nanos();
        progress.segments.store(before + segments, Ordering::Relaxed);
    };
    run(command(film, rung), folder, progress, at, failed)?;
    let length = |name: &str| {
        let path = folder.join(name);
        fs::metadata(&path).map(|file| Size::from_bytes(file.len())).map_err(of(&path))
    };
    let count = film.spans().len() as u32;
    let segments = (1..=count).map(|number| length(&segment_name(number)));
    let segments: Vec<Size> = segments.collect::<Result<_, _>>()?;
    if fs::exists(folder.join(segment_name(count + 1))).map_err(of(folder))? {
        return Err(failed(format!("it wrote more than {count} segments")));
    }
    progress.segments.store(before + u64::from(count), Ordering::Relaxed);
    let init = fs::read(folder.join(INIT)).map_err(of(folder))?;
    let codec = codec(&init).ok_or_else(|| failed("it wrote no codec".to_owned()))?;
    // That of ffmpeg, which has only this rung.
    fs::remove_file(folder.join(MANIFEST)).map_err(of(folder))?;
    let init = Size::from_bytes(init.len() as u64);
    let made = Rung { codec, init, segments, ..rung.clone() };
    // On a full disk, ffmpeg writes short files and succeeds.
    let mean = made.mean(film);
    match made.rate.as_bps().abs_diff(mean.as_bps()) > made.rate.as_bps() / MAX_MISS {
        true => Err(failed(format!("it reached {mean} instead of {}", made.rate))),
        false => Ok(made),
    }
}

const MANIFEST: &str = "encoder.mpd";

/// The command, for a process in the folder of the rung.
fn command(film: &Film, rung: &Rung) -> Command {
    let seconds = |span: Span| span.as_secs_f64().to_string();
    let pictures = film.segment.as_nanos() / FRAME_INTERVAL.as_nanos();
    let rate = rung.rate.as_bps().to_string();
    // Shapes that move, with as much noise as the highest rates need.
    let source = format!(
        "testsrc2=size={}x{}:rate=25,noise=alls=30:allf=t,format=yuv420p",
        rung.width, rung.height
    );
    let group = pictures.to_string();
    // Of one second: segments differ little. Filler data keeps the rate where the picture is easy.
    let buffer = format!("nal-hrd=cbr:filler=1:keyint={group}:min-keyint={group}:scenecut=0");
    let mut command = Command::new(ENCODER);
    command.args(["-hide_banner", "-nostdin", "-v", "error", "-progress", "pipe:1"]);
    command.args(["-f", "lavfi", "-i", &source, "-t", &seconds(film.duration)]);
    // Pictures that come out of order would shift the times of all segments.
    command.args(["-c:v", "libx264", "-preset", "veryfast", "-profile:v", "main", "-bf", "0"]);
    command.args(["-b:v", &rate, "-minrate", &rate, "-maxrate", &rate, "-bufsize", &rate]);
    command.args(["-x264-params", &buffer, "-g", &group]);
    command.args(["-f", "dash", "-seg_duration", &seconds(film.segment)]);
    command.args(["-format_options", "movflags=+skip_sidx"]);
    command.args(["-init_seg_name", INIT, "-media_seg_name", "$Number$.m4s", MANIFEST]);
    command
}

/// Runs ffmpeg in the folder until its end, and calls `at` with the time that it has reached.
fn run(
    mut command: Command,
    folder: &Path,
    progress: &FilmProgress,
    at: impl Fn(Span),
    failed: impl Fn(String) -> MakeError,
) -> Result<(), MakeError> {
    let system = of(Path::new(ENCODER));
    let (reader, writer) = std::io::pipe().map_err(&system)?;
    let errors = writer.try_clone().map_err(&system)?;
    command.current_dir(folder).stdin(Stdio::null()).stdout(writer).stderr(errors);
    let mut running = RunningCommand::start(command).map_err(&system)?;
    let mut message = String::new();
    let mut lines = BufReader::new(reader);
    while let Some(line) = line(&mut lines).map_err(&system)? {
        progress.check()?;
        match line.split_once('=') {
            Some(("out_time_us", micros)) => at(Span::from_micros(micros.parse().unwrap_or(0))),
            Some((key, _)) if !key.contains(' ') => {}
            _ => message = line,
        }
    }
    // Both ends of the output are closed: it has ended, or does so now.
    let status = running.wait().map_err(&system)?;
    match status.success() {
        true => Ok(()),
        false if message.is_empty() => Err(failed(status.to_string())),
        false => Err(failed(message)),
    }
}

/// The next line, or its first [`MAX_LINE`] bytes; `None` at the end.
fn line(reader: &mut BufReader<PipeReader>) -> std::io::Result<Option<String>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    reader.take(MAX_LINE as u64).read_until(b'\n', &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    Ok((!bytes.is_empty()).then_some(text))
}

/// The codec of RFC 6381 from the box `avcC`.
fn codec(init: &[u8]) -> Option<String> {
    let at = init.windows(4).position(|kind| kind == b"avcC")?;
    let [profile, constraints, level] = init.get(at + 5..at + 8)?.try_into().ok()?;
    Some(format!("avc1.{profile:02x}{constraints:02x}{level:02x}"))
}
