//! Which paths a fetch uses if another program advises some of them, and when to ask that program.
//!
//! ```text
//! Unused ──advised, and its interface is present──▶ Used
//! Used ──no longer advised, and an advised path has delivered bytes──▶ Unused
//! ```
//!
//! The advice is a prediction, which may be wrong: the server may be unreachable over an advised path, or
//! ignore range requests. So a path is left only after an advised one has delivered bytes, and all
//! paths are used if no advised one is present.

use manyways_unit::{Span, Time};

/// Intervals of questions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AdviceConfig {
    /// From an answer to the next question.
    pub interval: Span,
}

impl Default for AdviceConfig {
    fn default() -> Self {
        Self { interval: Span::from_secs(2) }
    }
}

/// A change of the paths that a fetch uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathUse {
    /// The path is used from now on.
    Begins { path: usize },
    /// The path is no longer advised, and not used from now on.
    Ends { path: usize },
}

/// Decides which paths a fetch uses. Paths are numbered in the order in which they were added.
#[derive(Debug)]
pub struct AdvisedPaths {
    config: AdviceConfig,
    paths: Vec<Path>,
    /// Names of the advised paths, in the order of the advice; empty: all paths are used.
    advised: Vec<String>,
    question: Question,
    /// Whether the length was known when the latest question was asked.
    knew_length: bool,
}

#[derive(Debug)]
struct Path {
    name: String,
    is_present: bool,
    is_advised: bool,
    /// Useful bytes that the path had delivered when its use began; `None` while it is not used.
    used_from: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// No program is asked.
    Never,
    Due(Time),
    /// The answer has not come yet.
    Asked,
}

impl AdvisedPaths {
    /// Creates paths that are all used; no program is asked.
    pub fn all() -> Self {
        Self {
            config: AdviceConfig::default(),
            paths: Vec::new(),
            advised: Vec::new(),
            question: Question::Never,
            knew_length: false,
        }
    }

    /// Creates paths about which another program is asked, for the first time at `now`.
    pub fn asked(now: Time, config: AdviceConfig) -> Self {
        Self { config, question: Question::Due(now), ..Self::all() }
    }

    /// Whether another program is asked.
    pub fn is_asked(&self) -> bool {
        self.question != Question::Never
    }

    /// Adds a path whose interface is present.
    pub fn add_path(&mut self, name: &str) {
        let is_advised = self.advised.iter().any(|advised| advised == name);
        let name = name.to_owned();
        self.paths.push(Path { name, is_present: true, is_advised, used_from: None });
    }

    /// Notes that the interface of a path has appeared or disappeared. A path without its interface
    /// is not used; there is no [`PathUse::Ends`].
    pub fn set_present(&mut self, now: Time, path: usize, is_present: bool) {
        let Some(path) = self.paths.get_mut(path) else { return };
        path.is_present = is_present;
        if !is_present {
            path.used_from = None;
        }
        // The advice is about the previous networks.
        if let Question::Due(_) = self.question {
            self.question = Question::Due(now);
        }
    }

    /// Whether a path is used.
    pub fn is_used(&self, path: usize) -> bool {
        self.paths.get(path).is_some_and(|path| path.used_from.is_some())
    }

    /// Whether to ask now. `remaining` is the number of missing bytes, if it is known. One question
    /// is asked at a time; its end is [`AdvisedPaths::on_advice`] or [`AdvisedPaths::on_no_advice`].
    pub fn wants_advice(&mut self, now: Time, remaining: Option<u64>) -> bool {
        let Question::Due(at) = self.question else { return false };
        let is_length_new = remaining.is_some() && !self.knew_length;
        if now < at && !is_length_new {
            return false;
        }
        if remaining == Some(0) {
            self.question = Question::Due(now + self.config.interval);
            return false;
        }
        self.question = Question::Asked;
        true
    }

    /// The advice that is followed at a question, which is now asked; empty if there is none, or if it
    /// was given before the length was known.
    pub fn followed(&mut self, remaining: Option<u64>) -> Vec<String> {
        let is_length_new = remaining.is_some() && !self.knew_length;
        self.knew_length = remaining.is_some();
        if is_length_new { Vec::new() } else { self.advised.clone() }
    }

    /// When to call [`AdvisedPaths::wants_advice`] again; `None` while nothing is asked.
    pub fn next_wakeup(&self) -> Option<Time> {
        match self.question {
            Question::Due(at) => Some(at),
            Question::Never | Question::Asked => None,
        }
    }

    /// Takes the names of the advised paths. Returns whether one of them is present; otherwise the
    /// paths in use stay.
    pub fn on_advice(&mut self, now: Time, names: Vec<String>) -> bool {
        self.on_no_advice(now);
        let is_named = |path: &Path| names.contains(&path.name);
        if !self.paths.iter().any(|path| path.is_present && is_named(path)) {
            return false;
        }
        for path in &mut self.paths {
            path.is_advised = names.contains(&path.name);
        }
        self.advised = names;
        true
    }

    /// Notes that there was no answer: the paths in use stay.
    pub fn on_no_advice(&mut self, now: Time) {
        self.question = Question::Due(now + self.config.interval);
    }

    /// Returns the next change; `None` if there is none. `useful` is the number of useful bytes that a
    /// path has delivered until now.
    pub fn poll(&mut self, useful: impl Fn(usize) -> u64) -> Option<PathUse> {
        // Without an advised path, every path is as good as any.
        let follows = self.paths.iter().any(|path| path.is_present && path.is_advised);
        let is_wanted = |path: &Path| path.is_present && (path.is_advised || !follows);
        let is_new = |path: &Path| is_wanted(path) && path.used_from.is_none();
        if let Some(path) = self.paths.iter().position(is_new) {
            self.paths[path].used_from = Some(useful(path));
            return Some(PathUse::Begins { path });
        }
        let is_over = |path: &Path| path.used_from.is_some() && !is_wanted(path);
        let over = self.paths.iter().position(is_over)?;
        let delivers = |(index, path): (usize, &Path)| {
            is_wanted(path) && path.used_from.is_some_and(|from| useful(index) > from)
        };
        self.paths.iter().enumerate().any(delivers).then(|| {
            self.paths[over].used_from = None;
            PathUse::Ends { path: over }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIFI: usize = 0;
    const LTE: usize = 1;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn paths() -> AdvisedPaths {
        let mut paths = AdvisedPaths::asked(Time::ZERO, AdviceConfig::default());
        paths.add_path("wifi");
        paths.add_path("lte");
        paths
    }

    /// All changes that are due.
    fn changes(paths: &mut AdvisedPaths, useful: [u64; 3]) -> Vec<PathUse> {
        std::iter::from_fn(|| paths.poll(|path| useful[path])).collect()
    }

    fn begins(path: usize) -> PathUse {
        PathUse::Begins { path }
    }

    fn ends(path: usize) -> PathUse {
        PathUse::Ends { path }
    }

    #[test]
    fn without_a_question_all_paths_are_used_while_they_are_present() {
        let mut paths = AdvisedPaths::all();
        paths.add_path("wifi");
        paths.add_path("lte");
        assert!(!paths.is_asked() && !paths.wants_advice(Time::ZERO, None));
        assert_eq!(paths.next_wakeup(), None);
        assert_eq!(changes(&mut paths, [0; 3]), [begins(WIFI), begins(LTE)]);
        paths.set_present(Time::ZERO, LTE, false);
        assert!(paths.is_used(WIFI) && !paths.is_used(LTE));
        assert_eq!(changes(&mut paths, [9; 3]), []);
        paths.set_present(Time::ZERO, LTE, true);
        assert_eq!(changes(&mut paths, [9; 3]), [begins(LTE)]);
    }

    #[test]
    fn only_advised_paths_begin_and_all_without_an_answer() {
        let mut told = paths();
        assert!(told.on_advice(Time::ZERO, names(&["lte"])));
        assert_eq!(changes(&mut told, [0; 3]), [begins(LTE)]);
        let mut silent = paths();
        silent.on_no_advice(Time::ZERO);
        assert_eq!(changes(&mut silent, [0; 3]), [begins(WIFI), begins(LTE)]);
        for useless in [names(&[]), names(&["vpn"])] {
            let mut paths = paths();
            assert!(!paths.on_advice(Time::ZERO, useless));
            assert_eq!(changes(&mut paths, [0; 3]), [begins(WIFI), begins(LTE)]);
        }
    }

    #[test]
    fn a_path_leaves_when_an_advised_one_has_delivered_since_it_joined() {
        let mut paths = paths();
        paths.on_advice(Time::ZERO, names(&["lte"]));
        changes(&mut paths, [0; 3]);
        paths.on_advice(Time::ZERO, names(&["wifi"]));
        assert_eq!(changes(&mut paths, [0, 500, 0]), [begins(WIFI)]);
        assert_eq!(changes(&mut paths, [0, 900, 0]), [], "wifi has delivered nothing");
        assert_eq!(changes(&mut paths, [1, 900, 0]), [ends(LTE)]);
        // Bytes of LTE from an earlier use do not count.
        paths.on_advice(Time::ZERO, names(&["lte"]));
        assert_eq!(changes(&mut paths, [5, 900, 0]), [begins(LTE)]);
        assert_eq!(changes(&mut paths, [9, 901, 0]), [ends(WIFI)]);
        // One of two leaves at once.
        paths.on_advice(Time::ZERO, names(&["lte", "wifi"]));
        assert_eq!(changes(&mut paths, [9, 902, 0]), [begins(WIFI)]);
        paths.on_advice(Time::ZERO, names(&["lte"]));
        assert_eq!(changes(&mut paths, [9, 902, 0]), [ends(WIFI)]);
    }

    #[test]
    fn other_paths_are_used_while_the_advised_one_is_gone() {
        let mut paths = paths();
        paths.on_advice(Time::ZERO, names(&["lte"]));
        changes(&mut paths, [0; 3]);
        paths.set_present(Time::from_millis(100), LTE, false);
        assert_eq!(paths.next_wakeup(), Some(Time::from_millis(100)), "it is asked at once");
        assert_eq!(changes(&mut paths, [0, 7, 0]), [begins(WIFI)]);
        paths.set_present(Time::from_millis(200), LTE, true);
        assert_eq!(changes(&mut paths, [3, 7, 0]), [begins(LTE)]);
        assert_eq!(changes(&mut paths, [4, 8, 0]), [ends(WIFI)]);
        // A network that appears is used if it was advised.
        paths.on_advice(Time::ZERO, names(&["lte", "cable"]));
        paths.add_path("cable");
        assert_eq!(changes(&mut paths, [4, 8, 0]), [begins(2)]);
    }

    #[test]
    fn an_answer_is_kept_until_the_next_one() {
        let mut paths = paths();
        paths.on_advice(Time::ZERO, names(&["lte"]));
        changes(&mut paths, [0; 3]);
        paths.on_no_advice(Time::from_millis(2_000));
        assert!(!paths.on_advice(Time::from_millis(4_000), names(&[])));
        assert_eq!(changes(&mut paths, [0, 9, 0]), []);
        assert_eq!(paths.followed(None), ["lte"]);
    }

    #[test]
    fn it_is_asked_at_the_start_with_the_length_and_at_intervals() {
        let (mut paths, ms) = (paths(), Time::from_millis);
        assert!(paths.wants_advice(ms(0), None));
        assert_eq!(paths.followed(None), [""; 0]);
        assert!(!paths.wants_advice(ms(10), Some(900)), "one question at a time");
        assert_eq!(paths.next_wakeup(), None);
        paths.on_advice(ms(20), names(&["lte"]));
        assert_eq!(paths.next_wakeup(), Some(ms(2_020)));
        assert!(!paths.wants_advice(ms(30), None));
        assert!(paths.wants_advice(ms(40), Some(900)));
        // Advice for an unknown length does not bind the one for a known length.
        assert_eq!(paths.followed(Some(900)), [""; 0]);
        paths.on_advice(ms(50), names(&["wifi"]));
        assert!(!paths.wants_advice(ms(2_049), Some(800)));
        assert!(paths.wants_advice(ms(2_050), Some(800)));
        assert_eq!(paths.followed(Some(800)), ["wifi"]);
        paths.on_no_advice(ms(2_060));
        // Nothing is left.
        assert!(!paths.wants_advice(ms(5_000), Some(0)));
        assert_eq!(paths.next_wakeup(), Some(ms(7_000)));
    }
}
