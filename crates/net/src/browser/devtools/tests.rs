//! A real browser; the tests are skipped where there is none.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::super::{BrowserError, Home, find};
use super::{Browser, Options};

/// Enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn launch() -> Option<Browser> {
    if let Err(missing) = find(None) {
        eprintln!("skipped: {missing}");
        return None;
    }
    let options = Options { home: Home::Empty, ..Options::default() };
    Some(Browser::launch(&options).await.unwrap())
}

async fn event(browser: &mut Browser, method: &str) -> serde_json::Value {
    let found = async {
        loop {
            let event = browser.event().await.unwrap();
            if event.method == method {
                return event.params;
            }
        }
    };
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{method} does not come"))
}

#[tokio::test]
async fn a_page_is_opened_and_asked_and_nothing_remains() {
    let Some(mut browser) = launch().await else { return };
    let folder = browser.processes.folder.path().to_owned();
    assert!(folder.exists());
    // A dialog would keep the page from its load event.
    let page = "data:text/html,<script>alert(1);confirm(2)</script><p id=a>hello";
    browser.post("Page.navigate", json!({"url": page}));
    event(&mut browser, "Page.navigate").await;
    event(&mut browser, "Page.loadEventFired").await;
    assert_eq!(browser.dialogs(), 2);
    let text = browser.evaluate("document.getElementById('a').innerText").await.unwrap();
    assert_eq!(text, "hello");
    let later = "new Promise(done => setTimeout(() => done({a: [1, null]}), 1))";
    assert_eq!(browser.evaluate(later).await.unwrap(), json!({"a": [1, null]}));
    let error = browser.evaluate("nothing.there").await.unwrap_err();
    assert_eq!(error.to_string(), "the script failed: ReferenceError: nothing is not defined");
    let error = browser.send("Page.noSuchCommand", json!({})).await.unwrap_err();
    assert!(matches!(error, BrowserError::Refused { .. }), "{error}");
    browser.close().await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_killed_browser_and_a_crashed_page_are_errors() {
    let Some(mut browser) = launch().await else { return };
    browser.post("Page.crash", json!({}));
    let crashed = async {
        loop {
            if let Err(error) = browser.event().await {
                return error;
            }
        }
    };
    let error = timeout(PATIENCE, crashed).await.unwrap();
    assert!(matches!(error, BrowserError::Crashed), "{error}");
    browser.processes.command.kill().unwrap();
    let error = browser.evaluate("1").await.unwrap_err();
    assert!(matches!(error, BrowserError::Ended(_)), "{error}");
}

#[tokio::test]
async fn a_program_that_is_no_browser_has_ended() {
    let options = Options { browser: Some("/bin/false".into()), ..Options::default() };
    let error = Browser::launch(&options).await.unwrap_err();
    assert!(matches!(error, BrowserError::Ended(_)), "{error}");
    assert!(error.to_string().starts_with("the browser has ended"), "{error}");
    let options = Options { browser: Some("/etc/passwd".into()), ..Options::default() };
    let error = Browser::launch(&options).await.unwrap_err();
    assert!(matches!(error, BrowserError::Start(..)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_browser_that_does_not_answer_is_given_up() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/src/browser/devtools/hangs.sh");
    let options = Options { browser: Some(program.into()), ..Options::default() };
    let error = Browser::launch(&options).await.unwrap_err();
    assert!(matches!(error, BrowserError::Hung), "{error}");
    assert!(error.hint().is_some());
}
