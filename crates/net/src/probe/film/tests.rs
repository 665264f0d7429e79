use std::os::unix::fs::MetadataExt as _;

use manyways_unit::Rate;
use manyways_wire::film::picture_for;

use super::*;

fn options() -> Options {
    let steps = [300, 10_000].map(|kbps| picture_for(Rate::from_kbps(kbps)));
    Options::new(steps.to_vec(), Span::from_secs(10), Span::from_secs(4))
}

fn make(folder: &Path, layout: Layout, progress: &FilmProgress) -> Result<Film, MakeError> {
    Maker { folder, layout, content: Content::Hollow, progress }.make(&options())
}

#[test]
fn files_have_the_lengths_of_the_plan_and_hardly_take_space() {
    let outer = tempfile::tempdir().unwrap();
    let (many, one) = (outer.path().join("many"), outer.path().join("one"));
    let progress = FilmProgress::default();
    let film = make(&many, Layout::Segments, &progress).unwrap();
    assert_eq!(progress.segments.load(Ordering::Relaxed), 6);
    assert_eq!(make(&one, Layout::SingleFile, &progress).unwrap(), film);
    for rung in &film.rungs {
        let read = |name: &str| fs::read(many.join(&rung.name).join(name)).unwrap();
        let mut joined = read(INIT);
        assert_eq!(joined.len() as u64, rung.init.as_bytes());
        joined.extend(index(&film, rung));
        for (number, length) in (1..).zip(&rung.segments) {
            let segment = read(&segment_name(number));
            assert_eq!(segment.len() as u64, length.as_bytes());
            joined.extend(segment);
        }
        let single = one.join(&rung.name).join(SINGLE);
        assert!(fs::read(&single).unwrap() == joined, "{} differs", single.display());
        // Where the file system has holes; the estimate is for blocks of 4 KiB.
        let file = fs::metadata(&single).unwrap();
        let taken = file.blocks() * 512;
        if taken < file.len() {
            assert!(taken <= hollow_space(&film, Layout::SingleFile).as_bytes(), "{taken}");
        }
    }
    for (folder, manifest) in [(&many, "film.mpd"), (&many, "list.mpd"), (&one, "base.mpd")] {
        assert!(fs::read(folder.join(manifest)).unwrap().ends_with(b"</MPD>\n"), "{manifest}");
    }
}

#[test]
fn a_film_that_is_stopped_leaves_nothing() {
    let outer = tempfile::tempdir().unwrap();
    let progress = FilmProgress { stop: AtomicBool::new(true), ..Default::default() };
    let new = outer.path().join("new");
    let error = make(&new, Layout::Segments, &progress).unwrap_err();
    assert!(matches!(error, MakeError::Stopped), "{error}");
    assert!(!new.exists());
    // A folder that was there remains.
    let error = make(outer.path(), Layout::SingleFile, &progress).unwrap_err();
    assert!(matches!(error, MakeError::Stopped), "{error}");
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_with_files_is_left_alone() {
    let outer = tempfile::tempdir().unwrap();
    let file = outer.path().join("300k");
    fs::write(&file, "text").unwrap();
    let progress = FilmProgress::default();
    let error = make(outer.path(), Layout::Segments, &progress).unwrap_err();
    assert!(matches!(error, MakeError::NotEmpty(_)), "{error}");
    let error = make(&file, Layout::Segments, &progress).unwrap_err();
    assert!(matches!(error, MakeError::NotFolder(_)), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"text");
}
