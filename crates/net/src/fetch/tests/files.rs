//! Part files, continued downloads, and files that cannot be written.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::server::{AfterBody, Reply, Server, correct_reply};
use super::*;
use crate::fetch::{Cause, Checksum, VersionProof};

/// Creates an object, and a server that never sends more than 400 KB of a response.
async fn limited_server() -> (Server, Vec<u8>) {
    let object = object(1_000_000);
    let served = object.clone();
    let server = Server::start(move |request| {
        let mut reply = correct_reply(request, &served, ETAG);
        if request.header("x-stingy").is_some() {
            (reply.sent_length, reply.after_body) =
                (400_000.min(reply.body.len()), AfterBody::Stall);
        }
        reply
    })
    .await;
    (server, object)
}

fn one_path() -> ClientBuilder {
    Client::builder().config(quick()).paths([path(1)])
}

/// Stops a transfer after 400 KB.
async fn stopped(server: &Server, target: &Path) -> FetchError {
    let mut client = one_path()
        .config(Config { last_path_stall_timeout: Span::from_secs(600), ..quick() })
        .header("X-Stingy: yes")
        .build()
        .unwrap();
    let job = Job::new(&server.url("/x"), target).unwrap();
    let enough = Semaphore::new(0);
    let mut listen = |event: Event<'_>| {
        if let Event::Progress(progress) = event
            && progress.done >= Size::from_bytes(400_000)
        {
            enough.add_permits(1);
        }
    };
    let stop = async { enough.acquire().await.unwrap().forget() };
    client.fetch(&job, &mut listen, stop).await.unwrap_err()
}

#[tokio::test]
async fn a_stopped_transfer_goes_on_later() {
    let (server, object) = limited_server().await;
    let (_folder, target) = target();
    let error = stopped(&server, &target).await;
    assert!(matches!(error.cause, Cause::Stopped));
    let kept = error.part_file.as_ref().unwrap();
    assert_eq!(kept.received, Size::from_bytes(400_000));
    assert!(error.hint().unwrap().contains("-c"), "{:?}", error.hint());
    assert_eq!(names(&target), ["file.manyways", "file.manyways-part"]);
    // An existing file of that name is unchanged until the end.
    std::fs::write(&target, "older").unwrap();
    let job = Job::new(&server.url("/x"), &target).unwrap().resume(true);
    let result = get(&mut one_path().build().unwrap(), &job).await;
    assert_eq!(result.report().bytes, Size::from_bytes(600_000));
    assert_eq!(result.report().length, Some(Size::from_bytes(1_000_000)));
    assert_complete(&target, &object);
    let mut asked = server.requests();
    for range in [(999_999, Some(1_000_000)), (400_000, Some(1_000_000))] {
        let last = asked.pop().unwrap();
        assert_eq!((last.range, last.header("if-range")), (Some(range), Some(ETAG)));
    }
    assert_eq!(result.report().version, Some(VersionProof::Verified));
}

#[tokio::test]
async fn a_resumed_object_must_be_the_same() {
    let (server, _) = limited_server().await;
    let (_folder, target) = target();
    stopped(&server, &target).await;
    let resume_file = target.with_file_name("file.manyways");
    let saved = std::fs::read_to_string(&resume_file).unwrap();
    // The first run is made to look as if it had received another version.
    std::fs::write(&resume_file, saved.replace("\\\"one", "\\\"two")).unwrap();
    let job = Job::new(&server.url("/x"), &target).unwrap().resume(true);
    let result = get(&mut one_path().build().unwrap(), &job).await;
    assert!(result.error().contains("has changed on the server"), "{}", result.error());
    assert_eq!(names(&target), ["file.manyways", "file.manyways-part"]);
    // Without -c the download begins from the start.
    let job = Job::new(&server.url("/x"), &target).unwrap();
    get(&mut one_path().build().unwrap(), &job).await.report();
    assert_eq!(names(&target), ["file"]);
}

/// A fresh signature in the query leads to the same object, or to another one.
#[tokio::test]
async fn a_download_goes_on_with_another_query() {
    let (server, object) = limited_server().await;
    let (_folder, target) = target();
    stopped(&server, &target).await;
    let other = Server::start(|request| correct_reply(request, &[7; 1_000_000], "\"two\"")).await;
    let resume_file = target.with_file_name("file.manyways");
    let saved = std::fs::read_to_string(&resume_file).unwrap();
    let moved = saved.replace(&server.address.to_string(), &other.address.to_string());
    std::fs::write(&resume_file, moved).unwrap();
    let job = Job::new(&other.url("/x?signature=2"), &target).unwrap().resume(true);
    let result = get(&mut one_path().build().unwrap(), &job).await;
    assert!(result.error().contains("has changed on the server"), "{}", result.error());
    assert_eq!(names(&target), ["file.manyways", "file.manyways-part"]);

    std::fs::write(&resume_file, saved).unwrap();
    let job = Job::new(&server.url("/x?signature=2"), &target).unwrap().resume(true);
    let result = get(&mut one_path().build().unwrap(), &job).await;
    assert_eq!(result.report().bytes, Size::from_bytes(600_000));
    result.notes(&["of this URL with another query"]);
    assert_complete(&target, &object);
}

#[tokio::test]
async fn a_resume_file_that_does_not_match_is_refused() {
    let (server, _) = limited_server().await;
    let (_folder, target) = target();
    stopped(&server, &target).await;
    let resume_file = target.with_file_name("file.manyways");
    let saved = std::fs::read_to_string(&resume_file).unwrap();
    let asked = server.requests().len();
    for (text, words) in [
        (saved.replace("/x", "/y"), "of another URL"),
        (saved.replace("400000", "500000"), "shorter than its resume file states"),
        (saved.replace("[0,", "[9999999,"), "contradict"),
        ("{".to_owned(), "damaged"),
        (saved.replace("resume/1", "resume/9"), "format"),
    ] {
        std::fs::write(&resume_file, text).unwrap();
        let job = Job::new(&server.url("/x"), &target).unwrap().resume(true);
        let result = get(&mut one_path().build().unwrap(), &job).await;
        assert!(result.error().contains(words), "{}", result.error());
        assert!(result.outcome.unwrap_err().hint().unwrap().contains("without -c"));
        assert_eq!(names(&target), ["file.manyways", "file.manyways-part"]);
    }
    assert_eq!(server.requests().len(), asked);
}

#[tokio::test]
async fn nothing_to_resume_begins_anew() {
    let (server, object) = limited_server().await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap().resume(true);
    let result = get(&mut one_path().build().unwrap(), &job).await;
    result.report();
    result.notes(&["no unfinished download"]);
    assert_complete(&target, &object);
}

#[tokio::test]
async fn all_paths_gone_leaves_something_to_go_on_with() {
    let object = object(1_000_000);
    let server = Server::start(move |request| {
        let mut reply = correct_reply(request, &object, ETAG);
        let upto = if request.range.is_none() { 200_000 } else { 0 };
        (reply.sent_length, reply.after_body) = (upto, AfterBody::Close);
        reply
    })
    .await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let config =
        Config { idle_timeout: Span::from_secs(2), connect_timeout: Span::from_secs(2), ..quick() };
    let result = get(&mut builder().config(config).build().unwrap(), &job).await;
    assert!(result.error().starts_with("every network failed ("), "{}", result.error());
    let error = result.outcome.unwrap_err();
    assert_eq!(error.part_file.as_ref().unwrap().received, Size::from_bytes(200_000));
    assert_eq!(names(&target), ["file.manyways", "file.manyways-part"]);
}

/// The files of the download are beside the target of the link, where `-c` finds them.
#[tokio::test]
async fn the_target_of_a_link_is_replaced() {
    let (server, object) = limited_server().await;
    let (folder, target) = target();
    let links = folder.path().join("links");
    let link = links.join("link");
    std::fs::create_dir(&links).unwrap();
    symlink("../file", &link).unwrap();
    // The link dangles at first.
    stopped(&server, &link).await;
    assert_eq!(names(&link), ["link"]);
    assert_eq!(names(&target), ["file.manyways", "file.manyways-part", "links"]);
    let job = Job::new(&server.url("/x"), &link).unwrap().resume(true);
    for bytes in [600_000, 1_000_000] {
        let result = get(&mut one_path().build().unwrap(), &job).await;
        assert_eq!(result.report().bytes, Size::from_bytes(bytes));
        assert!(std::fs::read(&target).unwrap() == object);
        assert_eq!(names(&target), ["file", "links"]);
        assert!(link.is_symlink());
    }
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_and_other_links_are_reported() {
    let (server, object) = limited_server().await;
    let (folder, target) = target();
    let other = folder.path().join("other");
    std::fs::write(&target, "older").unwrap();
    std::fs::hard_link(&target, &other).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o4660)).unwrap();
    stopped(&server, &target).await;
    assert_eq!(mode(&target.with_file_name("file.manyways-part")), 0o600);
    let job = Job::new(&server.url("/x"), &target).unwrap().resume(true);
    let result = get(&mut one_path().build().unwrap(), &job).await;
    result.notes(&["file had another hard link, which keeps the older content"]);
    assert!(std::fs::read(&target).unwrap() == object);
    assert_eq!((mode(&target), mode(&other)), (0o660, 0o4660));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "older");
    // The new file has one name.
    get(&mut one_path().build().unwrap(), &job).await.notes(&["no unfinished download"]);
}

#[tokio::test]
async fn a_name_that_leaves_no_room_for_a_suffix() {
    let (server, object) = limited_server().await;
    let (folder, _) = target();
    let target = folder.path().join("é".repeat(125));
    stopped(&server, &target).await;
    assert_eq!(names(&target).len(), 2);
    let job = Job::new(&server.url("/x"), &target).unwrap().resume(true);
    let result = get(&mut one_path().build().unwrap(), &job).await;
    assert_eq!(result.report().bytes, Size::from_bytes(600_000));
    assert!(std::fs::read(&target).unwrap() == object);
    assert_eq!(names(&target).len(), 1);
    let job = Job::new(&server.url("/x"), folder.path().join("é".repeat(130))).unwrap();
    let error = get(&mut one_path().build().unwrap(), &job).await.outcome.unwrap_err();
    let words = "the file name is too long: 260 bytes, and at most 255 are allowed";
    assert_eq!(error.to_string(), words);
    assert!(error.hint().unwrap().contains("-o"));
}

/// An exbibyte fits on no disk. Nothing of an earlier download is lost.
#[tokio::test]
async fn a_disk_that_is_too_small() {
    let huge = Size::from_mib(1 << 40);
    let (folder, target) = target();
    let probe = std::fs::File::create(folder.path().join("probe")).unwrap();
    if manyways_sys::filesystem::free_bytes(&probe).unwrap().is_none() {
        println!("skipped: the free space of this file system is unknown");
        return;
    }
    std::fs::remove_file(folder.path().join("probe")).unwrap();
    let server = Server::start(move |_| {
        let mut reply = Reply::plain(200, &[("etag", ETAG), ("accept-ranges", "bytes")], b"x");
        reply.set("content-length", &huge.as_bytes().to_string());
        (reply.sent_length, reply.after_body) = (0, AfterBody::Stall);
        reply
    })
    .await;
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let error = get(&mut one_path().build().unwrap(), &job).await.outcome.unwrap_err();
    assert!(error.to_string().contains(&format!("{huge} are needed, and ")), "{error}");
    assert!(error.hint().unwrap().contains("-o"), "{:?}", error.hint());
    assert_no_files(&target);

    let (limited, _) = limited_server().await;
    stopped(&limited, &target).await;
    let part = target.with_file_name("file.manyways-part");
    let before = std::fs::read(&part).unwrap();
    let result = get(&mut one_path().build().unwrap(), &job).await;
    assert!(result.error().contains("the disk is too small"), "{}", result.error());
    result.notes(&[]);
    assert!(std::fs::read(&part).unwrap() == before);

    // The length is known before the first request.
    let resume_file = target.with_file_name("file.manyways");
    let saved = std::fs::read_to_string(&resume_file).unwrap();
    let longer = saved.replace("1000000", &huge.as_bytes().to_string());
    std::fs::write(&resume_file, longer).unwrap();
    let asked = limited.requests().len();
    let job = Job::new(&limited.url("/x"), &target).unwrap().resume(true);
    let error = get(&mut one_path().build().unwrap(), &job).await.outcome.unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("free some space, then run the same command with -c"), "{hint}");
    assert_eq!(limited.requests().len(), asked);
    assert!(std::fs::read(&part).unwrap() == before);
}

#[tokio::test]
async fn a_full_disk() {
    let (server, _) = limited_server().await;
    let job = Job::new(&server.url("/x"), "/dev/full").unwrap();
    let result = get(&mut builder().build().unwrap(), &job).await;
    assert_eq!(result.error(), "the disk is full: /dev/full cannot grow");
}

#[tokio::test]
async fn targets_that_cannot_be_written() {
    let (server, _) = limited_server().await;
    let (folder, target) = target();
    for (output, words) in [
        (folder.path().to_owned(), "is not a regular file"),
        (folder.path().join("none/file"), "no such file or directory"),
    ] {
        let job = Job::new(&server.url("/x"), &output).unwrap();
        let result = get(&mut builder().build().unwrap(), &job).await;
        assert!(result.error().contains(words), "{}", result.error());
    }
    // A device that creates a terminal.
    if Path::new("/dev/ptmx").exists() {
        let job = Job::new(&server.url("/x"), "/dev/ptmx").unwrap();
        let error = get(&mut builder().build().unwrap(), &job).await.outcome.unwrap_err();
        assert!(error.to_string().contains("/dev/ptmx is not seekable"), "{error}");
        assert!(error.hint().unwrap().contains("-o -"), "{:?}", error.hint());
    }
    assert!(server.requests().is_empty());
    // Two concurrent downloads to one file.
    let lock = std::fs::File::create(target.with_file_name("file.manyways-part")).unwrap();
    lock.lock().unwrap();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let result = get(&mut builder().build().unwrap(), &job).await;
    assert!(result.error().contains("another download is writing"), "{}", result.error());
}

#[tokio::test]
async fn checksums_are_checked_before_the_file_gets_its_name() {
    let served = b"abc".to_vec();
    let server = Server::start(move |request| correct_reply(request, &served, ETAG)).await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let mut client = builder().build().unwrap();
    let result = get(&mut client, &job.clone().checksum(Checksum::Report)).await;
    // FIPS 180-2, appendix B.1.
    let hash = result.report().sha256.unwrap();
    assert!(
        super::super::transfer::hex(&hash).starts_with("ba7816bf8f01cfea414140de5dae2223"),
        "{hash:?}"
    );
    get(&mut client, &job.clone().checksum(Checksum::Check(hash))).await.report();
    assert_complete(&target, b"abc");
    std::fs::remove_file(&target).unwrap();
    let result = get(&mut client, &job.checksum(Checksum::Check([0; 32]))).await;
    assert!(result.error().contains("the checksum is wrong"), "{}", result.error());
    assert_no_files(&target);
}

#[tokio::test]
async fn an_object_without_a_version_leaves_nothing_behind() {
    let gate = Arc::new(Semaphore::new(0));
    let server = Server::start(move |_| {
        let mut reply = Reply::plain(200, &[], &[1; 100_000]);
        reply.gate = Some((50_000, Arc::clone(&gate)));
        reply
    })
    .await;
    let (_folder, target) = target();
    let mut client = builder().build().unwrap();
    let enough = Semaphore::new(0);
    let mut listen = |event: Event<'_>| {
        if let Event::Progress(progress) = event
            && progress.done >= Size::from_bytes(50_000)
        {
            enough.add_permits(1);
        }
    };
    let stop = async { enough.acquire().await.unwrap().forget() };
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let error = client.fetch(&job, &mut listen, stop).await.unwrap_err();
    assert_eq!(error.part_file, None);
    assert_no_files(&target);
}

#[tokio::test]
async fn an_older_download_is_thrown_away_only_for_a_new_one_and_that_is_said() {
    let (server, object) = limited_server().await;
    let (_folder, target) = target();
    stopped(&server, &target).await;
    let part = target.with_file_name("file.manyways-part");
    let before = std::fs::read(&part).unwrap();

    let refusing = Server::start(|_| Reply::plain(404, &[], b"")).await;
    let job = Job::new(&refusing.url("/x"), &target).unwrap();
    let result = get(&mut one_path().build().unwrap(), &job).await;
    assert!(result.error().contains("404"), "{}", result.error());
    assert!(std::fs::read(&part).unwrap() == before);
    assert_eq!(names(&target), ["file.manyways", "file.manyways-part"]);

    let job = Job::new(&server.url("/x"), &target).unwrap();
    let result = get(&mut one_path().build().unwrap(), &job).await;
    result.notes(&["(400 KB of 1 MB) is discarded; -c would have continued it"]);
    assert_eq!(result.report().bytes, Size::from_bytes(1_000_000));
    assert_complete(&target, &object);
}

/// If the process is killed at this time, `-c` can continue the download.
#[tokio::test]
async fn a_resume_file_is_there_as_soon_as_the_object_is_known() {
    // The server sends the response head, and then no bytes.
    let object = object(1_000_000);
    let server = Server::start(move |request| {
        let mut reply = correct_reply(request, &object, ETAG);
        (reply.sent_length, reply.after_body) = (0, AfterBody::Stall);
        reply
    })
    .await;
    let (_folder, target) = target();
    let state = target.with_file_name("file.manyways");
    let config = Config { last_path_stall_timeout: Span::from_secs(600), ..quick() };
    let mut client = one_path().config(config).build().unwrap();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    // Progress is reported every 100 ms; the transfer itself never ends.
    let seen = Semaphore::new(0);
    let mut listen = |_: Event<'_>| {
        if state.exists() {
            seen.add_permits(1);
        }
    };
    tokio::select! {
        outcome = client.fetch(&job, &mut listen, pending()) => panic!("{outcome:?}"),
        permit = seen.acquire() => permit.unwrap().forget(),
    }
    // A dropped transfer leaves the same files as a killed one.
    let saved = crate::fetch::resume::ResumeState::parse(&std::fs::read(&state).unwrap()).unwrap();
    assert_eq!((saved.length, saved.done.total()), (1_000_000, 0));
}

/// A checkpoint once counted bytes that were received but not yet written: after a kill, `-c`
/// continued with a hole in the file.
#[tokio::test]
async fn a_resume_file_contains_only_bytes_that_are_in_the_file() {
    let object = object(1_000_000);
    let served = object.clone();
    let server = Server::start(move |request| {
        let mut reply = correct_reply(request, &served, ETAG);
        (reply.sent_length, reply.after_body) = (20_000, AfterBody::Stall);
        reply
    })
    .await;
    let (_folder, target) = target();
    let state = target.with_file_name("file.manyways");
    let part = target.with_file_name("file.manyways-part");
    let config = Config { last_path_stall_timeout: Span::from_secs(600), ..quick() };
    let mut client = one_path().config(config).build().unwrap();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let saved = || crate::fetch::resume::ResumeState::parse(&std::fs::read(&state).ok()?).ok();
    let seen = Semaphore::new(0);
    let mut listen = |_: Event<'_>| {
        if saved().is_some_and(|saved| !saved.done.is_empty()) {
            seen.add_permits(1);
        }
    };
    tokio::select! {
        outcome = client.fetch(&job, &mut listen, pending()) => panic!("{outcome:?}"),
        permit = seen.acquire() => permit.unwrap().forget(),
    }
    let written = std::fs::read(&part).unwrap();
    for range in saved().unwrap().done.iter() {
        let range = range.start as usize..range.end as usize;
        assert!(written.get(range.clone()) == object.get(range.clone()), "{range:?}");
    }
}
