//! Paths that another program advises.

use std::sync::Mutex;

use super::*;
use crate::fetch::{AdviceRequest, NoAdvice};

/// Above what a busy machine needs.
const LIMIT: Span = Span::from_secs(60);

/// Fetches 1 MB over two paths with an advisor; returns the questions too.
async fn advised(
    limit: Span,
    answer: impl Fn(&AdviceRequest) -> Result<Vec<String>, NoAdvice> + Send + Sync + 'static,
) -> (FetchResult, Vec<AdviceRequest>, usize) {
    let object = object(1_000_000);
    let script = gated_server(&object, 1);
    let server = Server::start(move |request| Reply { gate: None, ..script(request) }).await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let questions = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&questions);
    let builder = builder().path_advisor(limit, move |request| {
        asked.lock().unwrap().push(request.clone());
        answer(request)
    });
    let result = get(&mut builder.build().unwrap(), &job).await;
    assert_complete(&target, &object);
    let from = |last| server.requests().iter().filter(|one| one.from == address(last)).count();
    let (questions, by_one) = (questions.lock().unwrap().clone(), from(1));
    (result, questions, by_one)
}

#[tokio::test]
async fn only_the_advised_path_sends_requests() {
    let (result, questions, by_one) = advised(LIMIT, |_| Ok(vec!["two".to_owned()])).await;
    result.notes(&["two is advised"]);
    assert_eq!(by_one, 0);
    let [one, two] = result.report().paths.as_slice() else { panic!() };
    assert_eq!((one.bytes.as_bytes(), two.bytes.as_bytes()), (0, 1_000_000));
    let first = AdviceRequest { host: "127.0.0.1".into(), remaining: None, followed: vec![] };
    assert_eq!(questions[0], first);
}

#[tokio::test]
async fn without_an_answer_all_paths_are_used() {
    let why = || NoAdvice("nobody advises".to_owned());
    let (result, ..) = advised(LIMIT, move |_| Err(why())).await;
    result.notes(&["nobody advises: all networks are used"]);
    let (result, ..) = advised(LIMIT, |_| Ok(vec!["vpn".to_owned()])).await;
    result.notes(&["no advised network leads to the server (vpn): all networks are used"]);
    let (answer, asked) = std::sync::mpsc::channel::<()>();
    let asked = Mutex::new(asked);
    // The answer comes after the end of the download.
    let silent = advised(Span::from_millis(1), move |_| {
        let _ = asked.lock().unwrap().recv();
        Ok(vec!["two".to_owned()])
    });
    let (result, ..) = silent.await;
    drop(answer);
    result.notes(&["no network was advised within 1 ms: all networks are used"]);
}

/// The second path begins to be advised when the length is known, and the first one is left when the
/// second one has delivered bytes.
#[tokio::test]
async fn a_known_length_changes_the_paths() {
    let object = object(1_000_000);
    let server = Server::start(gated_server(&object, 1)).await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let builder = builder().path_advisor(LIMIT, |request| {
        Ok(vec![if request.remaining.is_none() { "one" } else { "two" }.to_owned()])
    });
    let result = get(&mut builder.build().unwrap(), &job).await;
    assert_complete(&target, &object);
    assert_eq!(result.notes[..2], ["one is advised", "two joined as advised"]);
    let [_, two] = result.report().paths.as_slice() else { panic!() };
    assert!(!two.bytes.is_zero(), "{:?}", result.notes);
}

/// The bytes that an advised path cannot fetch stay with the others.
#[tokio::test]
async fn a_path_is_not_left_for_one_that_is_refused() {
    let object = object(1_000_000);
    let script = gated_server(&object, 1);
    let server = Server::start(move |request| match request.from == address(2) {
        true => {
            script(request);
            Reply::plain(404, &[], b"none")
        }
        false => script(request),
    })
    .await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let builder = builder().path_advisor(LIMIT, |request| {
        Ok(vec![if request.remaining.is_none() { "one" } else { "two" }.to_owned()])
    });
    let result = get(&mut builder.build().unwrap(), &job).await;
    assert_complete(&target, &object);
    assert!(!result.notes.iter().any(|note| note.contains("left")), "{:?}", result.notes);
}
