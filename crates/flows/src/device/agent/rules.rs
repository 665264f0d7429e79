//! Patterns of user agents. The first rule that matches applies, so that a program which imitates
//! another one precedes it.

use crate::device::System;

/// One pattern. All words are in lower case. A word with a leading space matches only at the start
/// of a word of the text, after a byte that is neither a letter nor a digit.
pub(super) struct Rule {
    /// At least one of these is in the text.
    any: &'static [&'static str],
    /// If not empty: at least one of these is in the text, too.
    and: &'static [&'static str],
    /// None of these is in the text.
    none: &'static [&'static str],
    pub(super) handheld: Option<bool>,
    pub(super) system: Option<System>,
    /// Words that precede the version.
    pub(super) version: &'static [&'static str],
    pub(super) robot: bool,
    pub(super) confidence: f64,
}

impl Rule {
    pub(super) fn matches(&self, text: &str) -> bool {
        let there = |words: &[&str]| words.iter().any(|word| has(text, word));
        there(self.any) && (self.and.is_empty() || there(self.and)) && !there(self.none)
    }

    const fn and(self, and: &'static [&'static str]) -> Self {
        Self { and, ..self }
    }

    const fn none(self, none: &'static [&'static str]) -> Self {
        Self { none, ..self }
    }

    const fn version(self, version: &'static [&'static str]) -> Self {
        Self { version, ..self }
    }
}

fn has(text: &str, word: &str) -> bool {
    after_word(text, word).next().is_some()
}

/// Returns the rest of the text after each occurrence of `word`.
pub(super) fn after_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    let inner = word.strip_prefix(' ');
    let begins =
        move |at| inner.is_none() || !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let word = inner.unwrap_or(word);
    text.match_indices(word)
        .filter(move |(at, _)| begins(*at))
        .map(move |(at, _)| &text[at + word.len()..])
}

const fn rule(
    any: &'static [&'static str],
    system: Option<System>,
    handheld: Option<bool>,
    confidence: f64,
) -> Rule {
    Rule { any, and: &[], none: &[], handheld, system, version: &[], robot: false, confidence }
}

const HANDHELD: Option<bool> = Some(true);
const NOT_HANDHELD: Option<bool> = Some(false);

/// Words that occur only in user agents of televisions and their plug-in devices.
const TELEVISION: &[&str] = &[
    "smart-tv",
    "smarttv",
    "smart tv",
    "android tv",
    "googletv",
    "google tv",
    "hbbtv",
    "netcast",
    "viera",
    "bravia",
    "crkey",
    "chromecast",
    "mibox",
    "mitv",
    "shield android tv",
    "cobalt/",
    // Models of Amazon Fire TV: AFTMM, AFTKA.
    "; aft",
];
const IOS: &[&str] = &[" iphone os ", " cpu os ", " ios ", " ios/", " iphone os/", " ipados "];
const MAC: &[&str] = &[" mac os x ", " mac os x/", " os x/", " macos/", " macos ", " os x "];
const ANDROID: &[&str] = &[" android "];
/// Browsers that have another name on iPads.
const NOT_ON_IPADS: &[&str] = &["chrome/", "firefox/", "applecoremedia/", "cfnetwork/"];

pub(super) const RULES: &[Rule] = &[
    // Robots imitate phones and computers, to receive the same pages. Cubot is a brand of phones.
    Rule {
        robot: true,
        ..rule(
            &[
                "bot/",
                "bot;",
                "bot)",
                "bot ",
                "spider",
                "crawler",
                "+http",
                "slurp",
                "facebookexternalhit",
                "mediapartners-google",
                "headlesschrome",
            ],
            None,
            None,
            0.9,
        )
        .none(&["cubot"])
    },
    // Consoles and televisions.
    rule(&[" xbox"], Some(System::Xbox), NOT_HANDHELD, 0.95),
    rule(&["playstation vita", "playstation portable"], Some(System::PlayStation), None, 0.9),
    rule(&["playstation"], Some(System::PlayStation), NOT_HANDHELD, 0.95),
    rule(&[" nintendo "], Some(System::Nintendo), None, 0.9),
    rule(&[" apple tv", " appletv", " tvos"], Some(System::TvOs), NOT_HANDHELD, 0.95)
        .version(&[" tvos ", " tvos/"]),
    rule(&[" apple watch", " watchos"], Some(System::WatchOs), None, 0.95)
        .version(&[" watchos ", " watchos/"]),
    rule(&["homepod", "audioos"], Some(System::Apple), NOT_HANDHELD, 0.9),
    rule(&["web0s", " webos; linux", "webos.tv"], Some(System::WebOs), NOT_HANDHELD, 0.95),
    rule(&[" tizen"], Some(System::Tizen), NOT_HANDHELD, 0.95)
        .and(TELEVISION)
        .version(&[" tizen "]),
    rule(&[" tizen"], Some(System::Tizen), HANDHELD, 0.9).and(&[" mobile"]).version(&[" tizen "]),
    rule(&[" tizen"], Some(System::Tizen), None, 0.8).version(&[" tizen "]),
    rule(&[" roku"], Some(System::Roku), NOT_HANDHELD, 0.95),
    rule(&[" android"], Some(System::Android), NOT_HANDHELD, 0.9).and(TELEVISION).version(ANDROID),
    rule(TELEVISION, None, NOT_HANDHELD, 0.85),
    // Systems of phones whose user agents mention other systems.
    rule(
        &["windows phone", "windows mobile", "iemobile", "windows ce"],
        Some(System::WindowsPhone),
        HANDHELD,
        0.95,
    )
    .version(&[" windows phone os ", " windows phone ", " windows mobile "]),
    rule(&["blackberry", " bb10", "playbook"], Some(System::BlackBerry), HANDHELD, 0.95),
    rule(&["harmonyos", "openharmony"], Some(System::HarmonyOs), HANDHELD, 0.9)
        .and(&["mobile", " phone", " tablet"])
        .version(&[" openharmony ", " harmonyos "]),
    rule(&["harmonyos", "openharmony"], Some(System::HarmonyOs), None, 0.8)
        .version(&[" openharmony ", " harmonyos "]),
    rule(&[" kaios"], Some(System::KaiOs), HANDHELD, 0.95).version(&[" kaios/"]),
    rule(&["symbian", "series60", "series40"], Some(System::Symbian), HANDHELD, 0.95),
    // Apple. The user agents of all its systems mention Mac OS X.
    rule(&["iphone", " ipod", " ipad", "ipados"], Some(System::Ios), HANDHELD, 0.95)
        .none(&["like iphone"])
        .version(IOS),
    // Browser names that exist only on iOS. In desktop mode these browsers send Macintosh.
    rule(&[" crios/", " fxios/", " edgios/", " opios/"], Some(System::Ios), HANDHELD, 0.9),
    rule(&[" ios ", " ios/", " ios;"], Some(System::Ios), HANDHELD, 0.9)
        .none(&["cisco", "macintosh"])
        .version(IOS),
    rule(&["like mac os x"], Some(System::Apple), None, 0.8),
    // An iPad sends the same, so the confidence is low; the next rules match only Macs.
    rule(&[" macintosh"], Some(System::MacOs), NOT_HANDHELD, 0.7)
        .and(&["applewebkit"])
        .none(NOT_ON_IPADS)
        .version(MAC),
    rule(
        &[" macintosh", " mac os x", " macos", " os x", "mac_powerpc", "apple-darwin"],
        Some(System::MacOs),
        NOT_HANDHELD,
        0.9,
    )
    .version(MAC),
    // Applications that use the library of all systems of Apple; old ones on Macs add the
    // processor.
    rule(&[" darwin/"], Some(System::MacOs), NOT_HANDHELD, 0.9).and(&["(x86_64)", "(i386)"]),
    rule(&[" darwin/"], Some(System::Apple), None, 0.9).version(&[" darwin/"]),
    rule(&[" cfnetwork/", " com.apple."], Some(System::Apple), None, 0.8),
    // Android, after Kindle readers, which are similar.
    rule(&[" kindle/"], Some(System::Linux), None, 0.8),
    rule(&["chromebook", "cheets"], Some(System::ChromeOs), NOT_HANDHELD, 0.85).and(&[" android"]),
    rule(&["oculusbrowser", " quest "], Some(System::Android), None, 0.85)
        .and(&[" android"])
        .version(ANDROID),
    rule(&[" android"], Some(System::Android), HANDHELD, 0.95)
        .and(&[" mobile"])
        .none(&["like android"])
        .version(ANDROID),
    // Browsers on tablets and in cars omit "Mobile".
    rule(&[" android"], Some(System::Android), HANDHELD, 0.8)
        .and(&[" mozilla/"])
        .none(&["like android"])
        .version(ANDROID),
    // User agents of applications omit the form factor, and most applications run on phones.
    rule(&["android"], Some(System::Android), HANDHELD, 0.85)
        .none(&["like android"])
        .version(ANDROID),
    rule(&[" silk/"], Some(System::Android), HANDHELD, 0.7),
    rule(&[" dalvik/"], Some(System::Android), HANDHELD, 0.7),
    // Old phones.
    rule(&["opera mini", "opera mobi", "j2me", "midp-", " nokia", "ucweb"], None, HANDHELD, 0.85),
    // Computers.
    rule(&[" cros "], Some(System::ChromeOs), NOT_HANDHELD, 0.95),
    rule(&["windows nt "], Some(System::Windows), NOT_HANDHELD, 0.95).version(&["windows nt "]),
    rule(
        &[
            " windows",
            "win32",
            "win64",
            "microsoft-cryptoapi",
            "microsoft ncsi",
            "microsoft bits",
            "microsoft-delivery-optimization",
            "microsoft-wns",
        ],
        Some(System::Windows),
        NOT_HANDHELD,
        0.85,
    ),
    // An Android browser in desktop mode sends the same.
    rule(&[" x11"], Some(System::Linux), NOT_HANDHELD, 0.8).and(&["linux"]),
    rule(&[" apt-http"], Some(System::Linux), NOT_HANDHELD, 0.9),
    rule(&["freebsd", "openbsd", "netbsd"], Some(System::Bsd), NOT_HANDHELD, 0.9),
    // A program on any device from a server to a lamp.
    rule(&["linux"], Some(System::Linux), None, 0.6),
];
