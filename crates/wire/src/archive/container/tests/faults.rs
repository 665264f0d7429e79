//! Disks that are full, writes that fail, and files that are cut.

use super::*;

/// Records bodies; returns the digests of those that were stored.
fn record(writer: &mut Writer<Disk>) -> Vec<Digest> {
    bodies().iter().filter_map(|body| writer.add_body(body).ok()).collect()
}

#[test]
fn a_disk_that_is_full_at_any_byte_keeps_all_that_fits() {
    let whole = archive(&bodies()).len();
    let least = archive(&[]).len();
    for limit in 0..=whole {
        let mut writer = writer(Disk::limited(limit));
        let mut stored = Vec::new();
        for body in bodies() {
            let before = writer.length();
            match writer.add_body(&body) {
                Ok(digest) => stored.push(digest),
                Err(error) => {
                    assert!(matches!(error, BodyError::File(_)), "{error}");
                    let file = &writer.file.bytes;
                    assert_eq!((writer.length(), file.len() as u64), (before, before));
                    let length = archive(&[body]).len() - least - (46 + 71);
                    assert!(before as usize + length > limit, "{limit}: the body fits");
                }
            }
        }
        let result = writer.finish(|_| HAR.into());
        let bytes = writer.into_inner().bytes;
        assert!(bytes.len() <= limit);
        let Ok(dropped) = result else {
            assert!(limit < least, "{limit}");
            let recovered = recover(&mut Cursor::new(&bytes)).unwrap();
            assert!(recovered.digests().eq(&stored), "{limit}: bodies were dropped");
            assert_eq!(recovered.length(), bytes.len() as u64);
            continue;
        };
        let remaining = stored.len() - dropped.len();
        assert_eq!(dropped, stored[remaining..].iter().copied().collect());
        assert_eq!(whole_bodies(&bytes), stored[..remaining].iter().copied().collect());
        assert_eq!(open(&bytes).unwrap().har().unwrap(), HAR);
        let all = bodies();
        let body_of = |one: &Digest| all.iter().find(|body| digest(body) == *one).unwrap().clone();
        let one_more: Vec<_> = stored.iter().take(remaining + 1).map(body_of).collect();
        assert!(dropped.is_empty() || archive(&one_more).len() > limit, "{limit}: one more fits");
        assert!(limit < whole || dropped.is_empty() && stored.len() == all.len());
    }
}

#[test]
fn a_har_without_dropped_bodies_is_written_if_only_that_fits() {
    let har = |dropped: &BTreeSet<Digest>| noise_text(600 - 100 * dropped.len());
    let full = |limit| {
        let mut writer = writer(Disk::limited(limit));
        let stored = record(&mut writer);
        let result = writer.finish(har);
        (stored, result, writer.into_inner().bytes)
    };
    for limit in (400..2000).step_by(3) {
        let (stored, result, bytes) = full(limit);
        match result {
            Ok(dropped) => {
                assert_eq!(open(&bytes).unwrap().har().unwrap(), har(&dropped));
                assert_eq!(whole_bodies(&bytes).len(), stored.len() - dropped.len());
            }
            Err(_) => {
                let mut all_hollow = writer(Disk::limited(usize::MAX));
                all_hollow.finish(|_| har(&stored.iter().copied().collect())).unwrap();
                assert!(all_hollow.into_inner().bytes.len() > limit, "{limit}");
            }
        }
    }
}

/// Text that cannot be compressed much.
fn noise_text(length: usize) -> String {
    noise(length, 9).iter().map(|byte| char::from(b' ' + byte % 90)).collect()
}

#[test]
fn a_failure_of_any_one_call_costs_at_most_its_body() {
    let mut calm = writer(Disk::limited(usize::MAX));
    record(&mut calm);
    calm.finish(|_| HAR.into()).unwrap();
    for failing in 1..=calm.into_inner().calls {
        let disk = Disk { failing_call: Some(failing), ..Disk::limited(usize::MAX) };
        let mut writer = writer(disk);
        let stored = record(&mut writer);
        assert!(stored.len() >= bodies().len() - 1);
        if writer.finish(|_| HAR.into()).is_err() {
            // Not for lack of space: no body gives way, and the next attempt succeeds.
            assert!(writer.finish(|_| HAR.into()).unwrap().is_empty());
        }
        let bytes = writer.into_inner().bytes;
        assert_eq!(whole_bodies(&bytes), stored.into_iter().collect(), "call {failing}");
    }
}

#[test]
fn a_cut_that_fails_leaves_no_bytes_behind_the_end() {
    // The body and the cut after it fail.
    fn unable(_: &mut Disk, _: u64) -> io::Result<()> {
        Err(ErrorKind::PermissionDenied.into())
    }
    let mut failing = writer(Disk::limited(1500));
    failing.cut = unable;
    assert!(failing.add_body(&noise(2000, 1)).is_err());
    assert_eq!(failing.file.bytes.len(), 1500);
    assert!(failing.finish(|_| HAR.into()).is_err());
    failing.cut = Disk::cut;
    failing.add_body(b"short").unwrap();
    failing.finish(|_| HAR.into()).unwrap();
    assert_eq!(failing.into_inner().bytes, archive(&[b"short".to_vec()]));
}

#[test]
fn space_that_becomes_free_is_used() {
    let mut writer = writer(Disk::limited(150));
    assert!(writer.add_body(&noise(120, 1)).is_err());
    let mut parts = writer.begin_body();
    assert!(matches!(parts.write(&noise(300, 1)), Err(BodyError::File(_))));
    assert!(matches!(parts.write(b"more"), Err(BodyError::GivenUp)));
    assert!(matches!(parts.end(), Err(BodyError::GivenUp)));
    assert!(matches!(writer.finish(|_| HAR.into()), Err(FinishError::File(_))));
    writer.file.limit = usize::MAX;
    writer.add_body(&noise(120, 1)).unwrap();
    writer.finish(|_| HAR.into()).unwrap();
    assert_eq!(writer.into_inner().bytes, archive(&[noise(120, 1)]));
}

/// Position behind each body of the archive of [`bodies`], in the order of the file.
fn ends() -> Vec<usize> {
    let mut writer = writer(Disk::limited(usize::MAX));
    let mut add = |body: &Vec<u8>| {
        writer.add_body(body).unwrap();
        writer.length() as usize
    };
    bodies().iter().map(&mut add).collect()
}

#[test]
fn a_file_cut_at_any_byte_has_its_whole_bodies() {
    let (file, ends) = (archive(&bodies()), ends());
    for length in 0..=file.len() {
        let cut = &file[..length];
        let recovered = recover(&mut Cursor::new(cut)).unwrap();
        let whole = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(recovered.length() as usize, whole.checked_sub(1).map_or(0, |last| ends[last]));
        let expected: Vec<Digest> = bodies().iter().take(whole).map(|body| digest(body)).collect();
        assert!(recovered.digests().eq(&expected), "{length}");
        assert_eq!(open(cut).is_ok(), length == file.len(), "{length}");

        let disk = Disk { bytes: cut.to_vec(), ..Disk::limited(usize::MAX) };
        let mut resumed = Writer::resume(disk, Disk::cut, recovered).unwrap();
        resumed.memory = 200;
        record(&mut resumed);
        resumed.finish(|_| HAR.into()).unwrap();
        assert!(resumed.into_inner().bytes == file, "{length}");
    }
}

#[test]
fn a_body_that_is_still_written_is_no_member() {
    let mut writer = writer(Disk::limited(usize::MAX));
    writer.add_body(&noise(100, 1)).unwrap();
    let end = writer.length();
    let mut parts = writer.begin_body();
    parts.write(&noise(400, 2)).unwrap();
    // The program is killed: nothing is dropped.
    std::mem::forget(parts);
    let bytes = writer.into_inner().bytes;
    assert_eq!(bytes.len() as u64, end + 101 + 400);
    let recovered = recover(&mut Cursor::new(bytes)).unwrap();
    assert_eq!((recovered.length(), recovered.damaged()), (end, 0));
}

#[test]
fn a_damaged_body_does_not_hide_those_behind_it() {
    let (file, ends) = (archive(&bodies()), ends());
    for at in (ends[0] + 101)..ends[1] {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        let recovered = recover(&mut Cursor::new(&damaged)).unwrap();
        assert_eq!((recovered.digests().count(), recovered.damaged()), (4, 1));
        let disk = Disk { bytes: damaged, ..Disk::limited(usize::MAX) };
        let mut writer = Writer::resume(disk, Disk::cut, recovered).unwrap();
        writer.finish(|_| HAR.into()).unwrap();
        assert_eq!(whole_bodies(&writer.into_inner().bytes).len(), 4);
    }
}

#[test]
fn no_byte_of_a_header_can_be_changed_unnoticed() {
    let file = archive(&bodies());
    for at in 0..ends()[0] {
        let mut damaged = file.clone();
        damaged[at] ^= 0x11;
        let recovered = recover(&mut Cursor::new(&damaged)).unwrap();
        // Version, time and date do not matter.
        let is_free = [4, 5, 10, 11, 12, 13].contains(&at);
        assert_eq!(recovered.digests().count() == 5, is_free, "{at}");
    }
}

#[test]
fn a_body_with_another_hash_than_its_name_is_not_recovered() {
    let mut writer = writer(Disk::limited(usize::MAX));
    writer.add_body(b"short").unwrap();
    let mut bytes = writer.into_inner().bytes;
    let digit = &mut bytes[30 + "bodies/".len()];
    *digit = if *digit == b'0' { b'1' } else { b'0' };
    let recovered = recover(&mut Cursor::new(bytes)).unwrap();
    assert_eq!((recovered.length(), recovered.damaged()), (0, 1));
}

#[test]
fn a_finished_recording_that_continues_has_no_directory_until_its_end() {
    let mut writer = writer(Disk::limited(usize::MAX));
    writer.add_body(&noise(100, 1)).unwrap();
    writer.finish(|_| HAR.repeat(9)).unwrap();
    writer.add_body(b"short").unwrap();
    let length = writer.length();
    let bytes = writer.into_inner().bytes;
    assert_eq!(bytes.len() as u64, length);
    assert!(matches!(open(&bytes), Err(ContainerError::NoDirectory)));
    assert_eq!(recover(&mut Cursor::new(bytes)).unwrap().digests().count(), 2);
}

#[test]
fn a_recording_in_a_body_is_not_taken_for_the_file() {
    let inner = archive(&bodies());
    let mut writer = writer(Disk::limited(usize::MAX));
    writer.add_body(&inner).unwrap();
    // Cut behind the body: its last bytes are an end record.
    let bytes = writer.into_inner().bytes;
    assert!(bytes.ends_with(&inner));
    assert!(matches!(open(&bytes), Err(ContainerError::NoDirectory)));
}
