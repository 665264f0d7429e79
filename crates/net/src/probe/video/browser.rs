//! The shell of a player in a browser: dash.js in a headless Chromium.
//!
//! The page is empty, and has only the player and our script, which records what the player does. This
//! module asks it for news ([`Taken`]), until the film is over or a limit is reached, and [`Course`]
//! makes a session of them.

mod course;

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use manyways_model::qoe::abr::RuleName;
use manyways_model::qoe::film::Film;
use manyways_model::qoe::player::{Abandoning, Config, Ending};
use manyways_unit::Span;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use self::course::{Course, Taken};
use super::super::browsing::{self, Meter};
use super::super::contract::{ProbeError, Run};
use super::super::report::Measurement;
use super::Video;
use super::report::{Carried, VideoReport};
use super::source::Source;
use crate::browser::{Browser, BrowserError, Options, Proxy};

/// The function that plays and records, in the page.
const SCRIPT: &str = include_str!("browser/play.js");
/// From one question to the page to the next.
const INTERVAL: Duration = Duration::from_millis(500);
/// From one look at the counters to the next, and so the excess over a limit.
const LOOK: Duration = Duration::from_millis(20);
/// A picture that has stood still for so long after an error of the player will not move again.
const GRACE: Duration = Duration::from_secs(2);

/// dash.js in a headless Chromium.
#[derive(Clone, Debug)]
pub struct DashJs {
    /// The browser; if it is missing, the first one in `PATH`.
    pub browser: Option<PathBuf>,
    /// The script `dash.all.min.js` of dash.js 5.
    pub script: Arc<str>,
}

impl DashJs {
    /// Time for the start and the end of the browser, beside that for the film.
    pub(super) const OVERHEAD: Span = Span::from_secs(30);
    /// Rules that it has, in words.
    pub const RULES: &str = "throughput, bola, dynamic and fixed:RUNG";

    /// Whether it has a rule of this name.
    pub fn has_rule(rule: RuleName) -> bool {
        use RuleName::{Bola, Dynamic, Fixed, Throughput};
        matches!(rule, Throughput | Bola | Dynamic | Fixed(_))
    }
}

/// Plays the film of a manifest, which was read before.
pub(super) async fn play(
    video: &Video,
    dash: &DashJs,
    run: &mut Run,
    source: &Source,
    report: VideoReport,
) -> Result<(), ProbeError> {
    if source.facts.format != "dash" {
        let text = "dash.js plays MPEG-DASH only, and the film is HLS";
        return Err(ProbeError::Video(text.to_owned()));
    }
    let meter = Meter::start(run);
    let proxy = browsing::proxy(run).await?;
    let options = Options {
        browser: dash.browser.clone(),
        proxy: proxy.as_ref().map(Proxy::address),
        flags: vec![
            // Servers of films need not permit other pages to read them, as a measurement does. The
            // profile is new, and the page is ours, so that there is nothing to protect.
            "--disable-web-security".to_owned(),
            // No user clicks.
            "--autoplay-policy=no-user-gesture-required".to_owned(),
        ],
        ..Options::default()
    };
    let mut browser = Browser::launch(&options).await?;
    let name = run.path().name.clone();
    let before = report.carried.get(&name).copied().unwrap_or_default();
    let mut watch = Watch { run, meter, source, report, name, before, course: Course::default() };
    let ended = watch.play(video, dash, &mut browser).await;
    browser.close().await;
    // The last bytes.
    ended.and(watch.meter.look(watch.run))
}

/// A film that plays in a browser.
struct Watch<'a> {
    run: &'a mut Run,
    meter: Meter,
    source: &'a Source,
    report: VideoReport,
    /// The network, and what it carried before the player.
    name: String,
    before: Carried,
    course: Course,
}

impl Watch<'_> {
    async fn play(
        &mut self,
        video: &Video,
        dash: &DashJs,
        browser: &mut Browser,
    ) -> Result<(), ProbeError> {
        let version = load(&dash.script, browser).await?;
        self.report.player = Some(format!("dash.js {version}"));
        let settings = settings(video, &self.source.film);
        // Not the value, which JSON does not have.
        let start = format!("globalThis.manyways = ({SCRIPT})({settings}); 0");
        browser.evaluate(&start).await.map_err(broken)?;
        let limit = Instant::now() + Duration::from(video.timeout);
        // The position after an error, and since when it is this.
        let mut still: Option<(Option<f64>, Instant)> = None;
        loop {
            let news = browser.evaluate("manyways.take()");
            let news = self.counting(news, limit, video.timeout).await?.map_err(broken)?;
            self.course.extend(read(&news)?).map_err(ProbeError::Video)?;
            self.publish();
            if self.course.has_ended() {
                self.report.ending = Some(Ending::Played);
                self.publish();
                return Ok(());
            }
            let position = self.course.position();
            match (self.course.error(), still) {
                (Some(error), Some((at, since))) if at == position => {
                    if since.elapsed() >= GRACE {
                        let error = format!("dash.js cannot play the film: {error}");
                        return Err(self.fail(error));
                    }
                }
                (Some(_), _) => still = Some((position, Instant::now())),
                (None, _) => {}
            }
            self.counting(sleep(INTERVAL), limit, video.timeout).await?;
        }
    }

    fn fail(&mut self, sentence: String) -> ProbeError {
        let fetched = self.report.session.as_ref().map(|session| session.segments.len());
        self.report.ending = Some(Ending::Failed { segment: fetched.unwrap_or_default() });
        self.publish();
        ProbeError::Video(sentence)
    }

    /// Reports the session so far.
    fn publish(&mut self) {
        let more = self.course.carried();
        let carried = Carried {
            bytes: self.before.bytes + more.bytes,
            requests: self.before.requests + more.requests,
        };
        self.report.carried.insert(self.name.clone(), carried);
        self.report.session = Some(self.course.session(&self.source.film));
        self.run.report(Measurement::Video(self.report.clone()));
    }

    /// Waits for a task until `limit`, and counts the bytes meanwhile.
    async fn counting<T>(
        &mut self,
        task: impl Future<Output = T>,
        limit: Instant,
        timeout: Span,
    ) -> Result<T, ProbeError> {
        let mut task = pin!(task);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut task => return Ok(done),
                _ = looks.tick() => self.meter.look(self.run)?,
                () = sleep_until(limit) => {
                    let text = format!("the film has not ended after {timeout}");
                    return Err(ProbeError::Video(text));
                }
            }
        }
    }
}

/// Loads dash.js into the page, and returns its version.
async fn load(script: &str, browser: &mut Browser) -> Result<String, ProbeError> {
    const VERSION: &str = "globalThis.dashjs?.MediaPlayer ? String(dashjs.Version) : null";
    let other = |what: &str| ProbeError::Video(format!("the script of the player is {what}"));
    // The value of the script itself is of no interest, and may be too large.
    match browser.evaluate(&format!("{script}\n;0")).await {
        Err(BrowserError::Script(error)) => return Err(other(&format!("not dash.js: {error}"))),
        loaded => loaded?,
    };
    let version = browser.evaluate(VERSION).await.map_err(broken)?;
    let Some(version) = version.as_str() else { return Err(other("not dash.js")) };
    let is_number = version.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    match version.starts_with("5.") && is_number && version.len() <= 20 {
        true => Ok(version.to_owned()),
        false => Err(other("not dash.js 5, the only one whose settings and events are known")),
    }
}

/// The argument of the script.
fn settings(video: &Video, film: &Film) -> Value {
    let rates: Vec<u64> = film.rungs().iter().map(|rate| rate.as_bps()).collect();
    let Config { rule, max_buffer, abandoning, .. } = video.player;
    let fixed = match rule {
        RuleName::Fixed(rung) => rates.get(rung.min(film.highest())).copied(),
        _ => None,
    };
    json!({
        "manifest": video.url(),
        "rates": rates,
        "end": film.duration().as_secs_f64(),
        "buffer": max_buffer.as_secs_f64(),
        "throughput": rule != RuleName::Bola,
        "bola": rule != RuleName::Throughput,
        "fixed": fixed,
        "abandon": abandoning != Abandoning::Never,
    })
}

/// Reads the news of the page.
fn read(news: &Value) -> Result<Taken, ProbeError> {
    let read = serde_json::from_str(news.as_str().unwrap_or_default());
    read.map_err(|error| ProbeError::Video(format!("the page of the player is broken: {error}")))
}

/// The script of the page is a part of this program, not of what the user named.
fn broken(error: BrowserError) -> ProbeError {
    match error {
        BrowserError::Script(error) => {
            ProbeError::Video(format!("the page of the player is broken: {error}"))
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use manyways_model::qoe::film::Segment;
    use manyways_unit::Rate;

    use super::*;
    use crate::fetch::Location;

    #[test]
    fn options_become_settings_of_dash_js() {
        let rungs = vec![Rate::from_kbps(300), Rate::from_kbps(900)];
        let segment = Segment { duration: Span::from_secs(2), sizes: vec![None; 2] };
        let film = Film::new(rungs, vec![segment; 3]).unwrap();
        let mut video = Video::new(Location::parse("http://origin.lab/film.mpd").unwrap());
        let settings = |video: &Video| settings(video, &film);
        let usual = json!({
            "manifest": "http://origin.lab/film.mpd", "rates": [300_000, 900_000], "end": 6.0,
            "buffer": 30.0, "throughput": true, "bola": true, "fixed": null, "abandon": true,
        });
        assert_eq!(settings(&video), usual);
        for (rule, throughput, bola, fixed) in [
            (RuleName::Throughput, true, false, json!(null)),
            (RuleName::Bola, false, true, json!(null)),
            (RuleName::Fixed(0), true, true, json!(300_000)),
            (RuleName::Fixed(7), true, true, json!(900_000)),
        ] {
            video.player.rule = rule;
            let made = settings(&video);
            assert_eq!((&made["throughput"], &made["bola"]), (&throughput.into(), &bola.into()));
            assert_eq!(made["fixed"], fixed, "{rule}");
        }
        video.player.max_buffer = Span::from_secs(12);
        video.player.abandoning = Abandoning::Never;
        let made = settings(&video);
        assert_eq!((&made["buffer"], &made["abandon"]), (&12.0.into(), &false.into()));
        assert!(!DashJs::has_rule(RuleName::Bba) && DashJs::has_rule(RuleName::Dynamic));
    }

    #[test]
    fn news_that_are_no_report_are_refused() {
        for news in [json!(null), json!({}), json!("{"), json!(r#"{"loads": 3}"#)] {
            let error = read(&news).unwrap_err().to_string();
            assert!(error.starts_with("the page of the player is broken"), "{error}");
        }
        assert!(read(&json!("{}")).is_ok());
    }
}
