use std::cell::Cell;

use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::BufReader;
use tokio::task::{LocalSet, spawn_blocking};

use super::*;

const SOLE: Service = Service::only("sole", "`manyways sole`");
/// Above what a busy machine needs.
const LIMIT: Span = Span::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
enum Greeting {
    /// Is returned.
    Echo(String),
    /// Keeps the connection open, which then returns each byte.
    Stay,
    /// Is never answered.
    Ignore,
}

#[derive(PartialEq, Debug, Serialize, Deserialize)]
enum Answer {
    Echo(String),
    Stays,
    Refused { message: String, hint: Option<String> },
}

impl Request for Greeting {
    type Response = Answer;
}

impl Response for Answer {
    fn refused(message: String, hint: Option<String>) -> Self {
        Self::Refused { message, hint }
    }
}

async fn return_bytes(mut stream: UnixStream) -> io::Result<()> {
    let (mut read, mut write) = stream.split();
    tokio::io::copy(&mut read, &mut write).await.map(drop)
}

fn start(folder: &TempDir, service: &Service) -> Result<ControlServer, ControlSocketError> {
    ControlServer::start_in(folder.path(), service, None, |request| async {
        match request {
            Greeting::Echo(text) => Answer::Echo(text).into(),
            Greeting::Stay => Reply::keep_open(Answer::Stays, return_bytes),
            Greeting::Ignore => std::future::pending().await,
        }
    })
}

/// Sends bytes to the sole service. Returns the response, and the connection.
async fn send(folder: &TempDir, bytes: &[u8]) -> (Answer, BufReader<UnixStream>) {
    let stream = UnixStream::connect(SOLE.socket_in(folder.path())).await.unwrap();
    let mut stream = BufReader::new(stream);
    stream.write_all(bytes).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    (serde_json::from_str(&line).unwrap(), stream)
}

async fn refusal(folder: &TempDir, bytes: &[u8]) -> String {
    match send(folder, bytes).await {
        (Answer::Refused { message, hint: None }, _) => message,
        (other, _) => panic!("{other:?}"),
    }
}

macro_rules! local {
    ($body:expr) => {
        LocalSet::new().run_until(async { $body }).await
    };
}

#[tokio::test(flavor = "current_thread")]
async fn a_service_answers_while_it_runs() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_owned();
        let ask = || {
            let at = at.clone();
            spawn_blocking(move || {
                ask_in(&at, &SOLE, &Greeting::Echo("good day".to_owned()), LIMIT)
            })
        };
        let is_absent = |asked| matches!(asked, Err(ControlSocketError::NotRunning(SOLE)));
        assert!(is_absent(ask().await.unwrap()));
        let server = start(&folder, &SOLE).unwrap();
        assert_eq!(ask().await.unwrap().unwrap(), Answer::Echo("good day".to_owned()));
        drop(server);
        assert!(is_absent(ask().await.unwrap()));
        // A killed process leaves its socket.
        drop(UnixListener::bind(SOLE.socket_in(folder.path())).unwrap());
        assert!(is_absent(ask().await.unwrap()));
        let _server = start(&folder, &SOLE).unwrap();
        assert_eq!(ask().await.unwrap().unwrap(), Answer::Echo("good day".to_owned()));
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_socket_in_a_folder_for_another_user_is_found() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let server = start(&folder, &SOLE).unwrap();
        let socket = SOLE.socket_in(folder.path());
        fs::create_dir(socket.with_extension("")).unwrap();
        fs::rename(&socket, handed_over_socket(&socket)).unwrap();
        let at = folder.path().to_owned();
        let asked =
            spawn_blocking(move || ask_in(&at, &SOLE, &Greeting::Echo(String::new()), LIMIT));
        assert_eq!(asked.await.unwrap().unwrap(), Answer::Echo(String::new()));
        drop(server);
    });
}

#[tokio::test(flavor = "current_thread")]
async fn only_one_process_is_a_service() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let named = |name| Service::named("many", "example", name).unwrap();
        let first = start(&folder, &SOLE).unwrap();
        let error = start(&folder, &SOLE).unwrap_err();
        assert!(matches!(error, ControlSocketError::AlreadyRunning(SOLE)));
        // The socket of the first one remains.
        assert_eq!(send(&folder, b"\"Stay\"\n").await.0, Answer::Stays);
        let _one = start(&folder, &named("one")).unwrap();
        let _two = start(&folder, &named("two")).unwrap();
        let error = start(&folder, &named("one")).unwrap_err();
        assert!(matches!(error, ControlSocketError::AlreadyRunning(one) if one == named("one")));
        drop(first);
        start(&folder, &SOLE).unwrap();
    });
}

#[tokio::test(flavor = "current_thread")]
async fn only_its_user_can_open_a_socket_which_is_removed_at_the_end() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let server = start(&folder, &SOLE).unwrap();
        let socket = SOLE.socket_in(folder.path());
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o7777, 0o600);
        drop(server);
        assert!(!socket.exists());
    });
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_not_a_request_is_refused() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let _server = start(&folder, &SOLE).unwrap();
        for bytes in [&b"good day\n"[..], b"\n", b"{\"Echo\": 1}\n", b"\xff\xfe\n", b"\"Leave\"\n"]
        {
            let message = refusal(&folder, bytes).await;
            assert!(message.starts_with("cannot parse the request: "), "{message}");
        }
        // The end of the connection also ends a request.
        let mut stream = UnixStream::connect(SOLE.socket_in(folder.path())).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("{\"Refused\":{\"message\":\"cannot parse"), "{text}");
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_request_has_a_maximum_length() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let _server = start(&folder, &SOLE).unwrap();
        let frame = "{\"Echo\":\"\"}\n".len();
        let of_length =
            |length: usize| format!("{{\"Echo\":\"{}\"}}\n", "x".repeat(length - frame));
        let (answer, _) = send(&folder, of_length(MAX_REQUEST).as_bytes()).await;
        assert_eq!(answer, Answer::Echo("x".repeat(MAX_REQUEST - frame)));
        for length in [MAX_REQUEST + 1, MAX_REQUEST + 1_000, 70_000, 8 << 20] {
            let message = refusal(&folder, of_length(length).as_bytes()).await;
            assert_eq!(message, "a request has at most 65536 bytes");
        }
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_connection_can_stay_open() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let _server = start(&folder, &SOLE).unwrap();
        let (answer, mut stream) = send(&folder, b"\"Stay\"\n").await;
        assert_eq!(answer, Answer::Stays);
        let mut line = String::new();
        stream.write_all(b"more\n").await.unwrap();
        stream.read_line(&mut line).await.unwrap();
        assert_eq!(line, "more\n");
        let (_, mut stream) = send(&folder, b"{\"Echo\":\"\"}\n").await;
        assert_eq!(stream.read_line(&mut line).await.unwrap(), 0);
    });
}

#[tokio::test(flavor = "current_thread")]
async fn the_function_of_a_connection_is_dropped_at_its_end() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let owned = Rc::new(Cell::new(0));
        let given = Rc::clone(&owned);
        let respond = move |_: Greeting| {
            let given = Rc::clone(&given);
            async move {
                Reply::keep_open(Answer::Stays, move |stream| async move {
                    let end = return_bytes(stream).await;
                    given.set(given.get() + 1);
                    end
                })
            }
        };
        let _server = ControlServer::start_in(folder.path(), &SOLE, None, respond).unwrap();
        let (_, stream) = send(&folder, b"\"Stay\"\n").await;
        assert_eq!((owned.get(), Rc::strong_count(&owned)), (0, 3));
        drop(stream);
        while Rc::strong_count(&owned) > 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(owned.get(), 1);
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_connection_without_a_request_or_a_response_ends() {
    local!({
        let folder = tempfile::tempdir().unwrap();
        let _server = start(&folder, &SOLE).unwrap();
        for bytes in [&b""[..], b"\"Ignore", b"\"Ignore\"\n"] {
            let began = tokio::time::Instant::now();
            let mut stream = UnixStream::connect(SOLE.socket_in(folder.path())).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            assert_eq!(rest, b"");
            let limit = Duration::from(IoLimits::default().control_request);
            assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
        }
    });
}

#[test]
fn names_are_safe_in_file_names() {
    let named = |name: &str| Service::named("many", "example", name);
    for name in ["a", "default", "A-b_9", &"x".repeat(MAX_NAME)] {
        let socket = named(name).unwrap().socket_in(Path::new("/run"));
        assert_eq!(socket, Path::new("/run").join(format!("many-{name}.socket")));
    }
    for name in ["", "../default", "a/b", "a.b", "ä", "a\0", &"x".repeat(MAX_NAME + 1)] {
        assert!(matches!(named(name), Err(ControlSocketError::InvalidName(same)) if same == name));
    }
    assert_eq!(SOLE.socket_in(Path::new("/run")), Path::new("/run/sole.socket"));
}

#[test]
fn errors_name_the_service() {
    let named = Service::named("many", "example", "one").unwrap();
    let text = |error: ControlSocketError| error.to_string();
    let running = ControlSocketError::AlreadyRunning;
    assert_eq!(text(running(SOLE)), "`manyways sole` runs here already");
    assert_eq!(text(running(named.clone())), "another example that is named one runs already");
    let absent = ControlSocketError::NotRunning;
    assert_eq!(text(absent(SOLE)), "`manyways sole` does not run here");
    assert_eq!(text(absent(named)), "no example that is named one runs here");
}

#[test]
fn a_socket_or_a_folder_for_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name| Service::named("many", "example", name).unwrap();
    let is_found = |service: &Service| has_socket_in(folder.path(), service);
    let services = [SOLE, named("one"), named("two")];
    assert!(!services.iter().any(is_found));
    File::create(folder.path().join("sole.socket")).unwrap();
    fs::create_dir(folder.path().join("many-one")).unwrap();
    assert_eq!(services.each_ref().map(is_found), [true, true, false]);
}
