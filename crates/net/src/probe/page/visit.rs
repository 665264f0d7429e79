//! One load of a page in a new browser.

use std::time::Duration;

use manyways_unit::Span;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::fault::PageError;
use super::recorder::{MAX_DOCUMENTS, Recorder};
use super::timings::{Answer, PageTimings, SCRIPT, hops};
use super::trace::CATEGORIES;
use super::{Page, PageRun, through_proxy};
use crate::browser::{Browser, BrowserError, Event, Options, Proxy};
use crate::probe::browsing::{self, Meter};
use crate::probe::contract::{ProbeError, Run};

/// The browser is busy with its own start for so long.
const WARM_UP: Duration = Duration::from_millis(500);
/// A page that never is quiet has ended so long after its load event.
const MAX_QUIET: Duration = Duration::from_secs(3);
/// Time for the page's own times.
const ANSWER: Duration = Duration::from_secs(5);
/// Time for the rest of the trace.
const TRACE: Duration = Duration::from_secs(10);
/// From one look at the counters to the next, and so the excess over a limit.
const INTERVAL: Duration = Duration::from_millis(20);

/// A load, also an incomplete one, and why it is.
pub struct Visit {
    pub browser: Option<String>,
    pub run: Option<PageRun>,
    pub ended: Result<(), ProbeError>,
}

/// Loads the page in a new browser.
pub async fn visit(page: &Page, run: &mut Run, meter: &mut Meter) -> Visit {
    let (mut name, mut recorded) = (None, None);
    let ended = load(page, run, meter, &mut name, &mut recorded).await;
    // The last bytes.
    let ended = ended.and(meter.look(run));
    Visit { browser: name, run: recorded, ended }
}

async fn load(
    page: &Page,
    run: &mut Run,
    meter: &mut Meter,
    name: &mut Option<String>,
    recorded: &mut Option<PageRun>,
) -> Result<(), ProbeError> {
    let proxy = browsing::proxy(run).await?;
    let options = Options {
        browser: page.browser.clone(),
        proxy: proxy.as_ref().map(Proxy::address),
        // One process for all frames, thus one main thread.
        flags: vec!["--disable-site-isolation-trials".to_owned()],
        ..Options::default()
    };
    let mut browser = Browser::launch(&options).await.map_err(PageError::from)?;
    let loaded = watch(page, run, meter, &mut browser, name).await;
    let (ended, recorder) = match loaded {
        Ok((ended, recorder)) => (ended, recorder),
        Err(error) => {
            browser.close().await;
            return Err(PageError::from(error).into());
        }
    };
    let (answer, recorder) = finish(&mut browser, recorder).await;
    let dialogs = browser.dialogs();
    browser.close().await;
    let (mut load, shown) = recorder.load();
    answer.complete(&mut load.marks);
    let connections = proxy.as_ref().map(Proxy::connections).unwrap_or_default();
    through_proxy::correct(&mut load, recorder.start(), &connections);
    let ended = ended.map_err(|error| match error {
        ProbeError::Page(error) => error.explained(&connections).into(),
        error => error,
    });
    if !load.requests.is_empty() {
        let name = answer.name();
        let index = hops(&load).last().and_then(|hop| shown.get(*hop));
        let response = index.and_then(|index| recorder.records[*index].response.as_ref());
        let archive = recorder.archive(&load, &shown, &name, proxy.is_some());
        *recorded = Some(PageRun {
            name,
            status: response.map(|response| response.status as u16),
            protocol: response.map(|response| response.protocol.clone()),
            timings: PageTimings::of(&load),
            load,
            archive,
            dialogs,
            is_proxied: proxy.is_some(),
            is_cut: recorder.trace.is_cut(),
        });
    }
    ended
}

/// Loads the page, until it is quiet or a limit is reached. Returns what happened until then.
async fn watch(
    page: &Page,
    run: &mut Run,
    meter: &mut Meter,
    browser: &mut Browser,
    name: &mut Option<String>,
) -> Result<(Result<(), ProbeError>, Recorder), BrowserError> {
    let version = browser.send_to_browser("Browser.getVersion", json!({})).await?;
    *name = version["product"].as_str().map(str::to_owned);
    let tree = browser.send("Page.getFrameTree", json!({})).await?;
    let frame = tree["frameTree"]["frame"]["id"].as_str().unwrap_or_default().to_owned();
    let mut recorder = Recorder::new(frame);
    // Bodies are not kept for later questions.
    let network =
        json!({"maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0});
    browser.send("Network.enable", network).await?;
    tokio::time::sleep(WARM_UP).await;
    let trace = json!({
        "transferMode": "ReportEvents",
        "traceConfig": {"recordMode": "recordUntilFull", "includedCategories": CATEGORIES},
    });
    browser.send_to_browser("Tracing.start", trace).await?;
    browser.post("Page.navigate", json!({"url": page.url()}));
    let mut wait = Wait {
        recorder: &mut recorder,
        quiet_time: page.quiet.into(),
        navigation: None,
        loaded: None,
        quiet: None,
    };
    let limit = Instant::now() + Duration::from(page.timeout);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        let until = wait.end().map_or(limit, |end| end.min(limit));
        tokio::select! {
            event = browser.event() => match event {
                Ok(event) => if let Err(error) = wait.handle(&event) {
                    break Err(error.into());
                },
                Err(error) => break Err(PageError::from(error).into()),
            },
            _ = ticks.tick() => if let Err(error) = meter.look(run) {
                break Err(error);
            },
            () = sleep_until(until) => break match wait.loaded {
                Some(_) => Ok(()),
                None => Err(PageError::TimedOut(page.timeout).into()),
            },
        }
        if wait.recorder.has_left() {
            break Ok(());
        }
    };
    Ok((ended, recorder))
}

/// The events that a load still waits for.
struct Wait<'a> {
    recorder: &'a mut Recorder,
    quiet_time: Duration,
    /// Answer to the command to load the page.
    navigation: Option<Value>,
    loaded: Option<Instant>,
    /// When the last open request ended, or the page was loaded.
    quiet: Option<Instant>,
}

impl Wait<'_> {
    /// When the load has ended, if no event comes before.
    fn end(&self) -> Option<Instant> {
        let latest = self.loaded? + MAX_QUIET;
        Some(self.quiet.map_or(latest, |quiet| latest.min(quiet + self.quiet_time)))
    }

    fn handle(&mut self, event: &Event) -> Result<(), PageError> {
        self.recorder.handle(event);
        match event.method.as_str() {
            "Page.downloadWillBegin" => return Err(PageError::Download),
            "Page.navigate" => {
                if event.params["isDownload"] == true {
                    return Err(PageError::Download);
                }
                if let Some(code) =
                    event.params["errorText"].as_str().filter(|text| !text.is_empty())
                {
                    return Err(PageError::Unreachable { code: code.to_owned(), reason: None });
                }
                self.navigation = Some(event.params.clone());
            }
            _ => {}
        }
        if self.recorder.documents() > MAX_DOCUMENTS {
            return Err(PageError::Wanders(MAX_DOCUMENTS));
        }
        if self.recorder.is_overfull() {
            return Err(PageError::TooManyRequests);
        }
        // The page that shows an error has a load event, too.
        let is_loaded = self.recorder.is_loaded() && self.navigation.is_some();
        if is_loaded {
            let now = Instant::now();
            self.loaded.get_or_insert(now);
            match self.recorder.is_idle() {
                true => drop(self.quiet.get_or_insert(now)),
                false => self.quiet = None,
            }
        }
        Ok(())
    }
}

/// Asks the page for its times, and collects the trace. A browser that has ended has neither.
async fn finish(browser: &mut Browser, mut recorder: Recorder) -> (Answer, Recorder) {
    let mut answer = Answer::default();
    if recorder.is_loaded() && !recorder.has_left() {
        match timeout(ANSWER, browser.evaluate(SCRIPT)).await {
            Ok(Ok(value)) => answer = Answer::of(&value),
            Ok(Err(error)) => tracing::debug!("the page does not tell its times: {error}"),
            Err(_) => tracing::debug!("the page does not tell its times soon"),
        }
    }
    let rest = async {
        browser.send_to_browser("Tracing.end", json!({})).await?;
        loop {
            let event = browser.event().await?;
            if event.method == "Tracing.tracingComplete" {
                return Ok::<(), BrowserError>(());
            }
            if event.method == "Tracing.dataCollected" {
                recorder.handle(&event);
            }
        }
    };
    match timeout(TRACE, rest).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("the trace is not complete: {error}"),
        Err(_) => tracing::debug!("the trace does not come soon"),
    }
    (answer, recorder)
}

/// Time for the start and the end of a browser, beside that for the load.
pub const OVERHEAD: Span = Span::from_secs(30);
