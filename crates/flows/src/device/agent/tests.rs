use proptest::prelude::*;

use super::*;

type Observed = (Option<System>, Option<bool>, Option<(u16, u16)>);

type Expected = (&'static str, Option<System>, Option<bool>, Option<(u16, u16)>);

/// Public user agents with the expected system, handheld flag and version.
#[rustfmt::skip]
const AGENTS: &[Expected] = {
    use System::*;
    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);
    &[
    // iOS
    ("Mozilla/5.0 (iPhone; CPU iPhone OS 16_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/16.5 Mobile/15E148 Safari/604.1", Some(Ios), YES, Some((16, 5))),
    ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1", Some(Ios), YES, None),
    ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_1_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/119.0.6045.169 Mobile/15E148 Safari/604.1", Some(Ios), YES, Some((17, 1))),
    ("Mozilla/5.0 (iPad; CPU OS 9_3_5 like Mac OS X) AppleWebKit/601.1.46 (KHTML, like Gecko) Version/9.0 Mobile/13G36 Safari/601.1", Some(Ios), YES, Some((9, 3))),
    ("Mozilla/5.0 (iPod; U; CPU iPhone OS 4_3_3 like Mac OS X; en-us) AppleWebKit/533.17.9 (KHTML, like Gecko) Version/5.0.2 Mobile/8J2 Safari/6533.18.5", Some(Ios), YES, None),
    ("Mozilla/5.0 (iPhone; U; CPU like Mac OS X; en) AppleWebKit/420+ (KHTML, like Gecko) Version/3.0 Mobile/1A543 Safari/419.3", Some(Ios), YES, None),
    ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/119 Version/11.1.1 Safari/605.1.15", Some(Ios), YES, None),
    ("Mozilla/5.0 (iPhone; CPU iPhone OS 16_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/20G75 [FBAN/FBIOS;FBDV/iPhone14,5;FBMD/iPhone;FBSN/iOS;FBSV/16.6;FBSS/3]", Some(Ios), YES, Some((16, 6))),
    ("Instagram 219.0.0.12.117 (iPhone12,1; iOS 15_4; en_US; en-US; scale=2.00; 828x1792; 346138365)", Some(Ios), YES, Some((15, 4))),
    ("Example/3.1 (com.example.app; build:42; iOS 16.5.0) Alamofire/5.6.2", Some(Ios), YES, Some((16, 5))),
    ("Example/7.2 (iPad; iOS 15.7; Scale/2.00)", Some(Ios), YES, Some((15, 7))),
    ("Example/8.7.30 iOS/15.4 (iPhone12,1)", Some(Ios), YES, Some((15, 4))),
    ("AppleCoreMedia/1.0.0.20G75 (iPhone; U; CPU OS 16_6 like Mac OS X; en_us)", Some(Ios), YES, Some((16, 6))),
    ("itunesstored/1.0 iOS/12.5 model/iPhone7,2 hwp/t7000 build/16H62 (6; dt:106)", Some(Ios), YES, Some((12, 5))),
    // Other systems of Apple
    ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/16.5 Safari/605.1.15", Some(MacOs), NO, None),
    ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_13_6) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.1.2 Safari/605.1.15", Some(MacOs), NO, Some((10, 13))),
    ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36", Some(MacOs), NO, None),
    ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:120.0) Gecko/20100101 Firefox/120.0", Some(MacOs), NO, None),
    ("Mozilla/5.0 (Macintosh; U; PPC Mac OS X 10_5_8; en-us) AppleWebKit/533.21.1 (KHTML, like Gecko) Version/5.0.5 Safari/533.21.1", Some(MacOs), NO, Some((10, 5))),
    ("AppleCoreMedia/1.0.0.22G74 (Macintosh; U; Intel Mac OS X 13_5; en_us)", Some(MacOs), NO, Some((13, 5))),
    ("Software%20Update (unknown version) CFNetwork/807.3 Darwin/16.7.0 (x86_64)", Some(MacOs), NO, None),
    ("curl/7.64.1 (x86_64-apple-darwin19.0) libcurl/7.64.1", Some(MacOs), NO, None),
    ("Example/100 CFNetwork/1410.0.3 Darwin/22.6.0", Some(Apple), None, Some((22, 6))),
    ("Example/2 CFNetwork/548.0.4", Some(Apple), None, None),
    ("com.apple.trustd/2.2", Some(Apple), None, None),
    ("AppleCoreMedia/1.0.0.17L256 (Apple TV; U; CPU OS 13_4 like Mac OS X; en_us)", Some(TvOs), NO, None),
    ("AppleTV11,1/16.1", Some(TvOs), NO, None),
    ("Example/5 (tvOS 16.4)", Some(TvOs), NO, Some((16, 4))),
    ("Example/42 watchOS/9.5 (Watch6,1)", Some(WatchOs), None, Some((9, 5))),
    ("AppleCoreMedia/1.0.0.17L562 (HomePod; U; CPU OS 13_4_5 like Mac OS X; en_us)", Some(Apple), NO, None),
    // Android
    ("Mozilla/5.0 (Linux; Android 13; Pixel 7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/116.0.0.0 Mobile Safari/537.36", Some(Android), YES, Some((13, 0))),
    ("Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Mobile Safari/537.36", Some(Android), YES, None),
    ("Mozilla/5.0 (Linux; U; Android 2.3.6; en-us; GT-I9000 Build/GINGERBREAD) AppleWebKit/533.1 (KHTML, like Gecko) Version/4.0 Mobile Safari/533.1", Some(Android), YES, Some((2, 3))),
    ("Mozilla/5.0 (Linux; Android 12; SM-T870) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/110.0.0.0 Safari/537.36", Some(Android), YES, Some((12, 0))),
    ("Mozilla/5.0 (Android 11; Mobile; rv:109.0) Gecko/114.0 Firefox/114.0", Some(Android), YES, Some((11, 0))),
    ("Mozilla/5.0 (Linux; Android 9; KFMAWI) AppleWebKit/537.36 (KHTML, like Gecko) Silk/108.4.6 like Chrome/108.0.5359.160 Safari/537.36", Some(Android), YES, Some((9, 0))),
    ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Silk/108.4.6 like Chrome/108.0.5359.160 Safari/537.36", Some(Android), YES, None),
    ("Dalvik/2.1.0 (Linux; U; Android 13; SM-S908B Build/TP1A.220624.014)", Some(Android), YES, Some((13, 0))),
    ("Dalvik/1.6.0", Some(Android), YES, None),
    ("Instagram 255.1.0.17.102 Android (31/12; 420dpi; 1080x2177; samsung; SM-A525F; a52q; qcom; en_GB)", Some(Android), YES, None),
    ("Example/8.8.12.545 Android/31 (SM-G991U)", Some(Android), YES, None),
    ("com.google.android.youtube/17.36.4 (Linux; U; Android 12; de_DE; Pixel 5) gzip", Some(Android), YES, Some((12, 0))),
    ("stagefright/1.2 (Linux;Android 7.1.2)", Some(Android), YES, Some((7, 1))),
    ("TwitterAndroid/9.80.0-release.0 (29800000-r-0) Pixel+4/12", Some(Android), YES, None),
    ("Mozilla/5.0 (Linux; Android 9; CUBOT X19 ) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/90.0.4430.91 Mobile Safari/537.36", Some(Android), YES, Some((9, 0))),
    ("Aftenposten/3.1 (Android 13)", Some(Android), YES, Some((13, 0))),
    ("Mozilla/5.0 (Linux; Android 10; Quest 2) AppleWebKit/537.36 (KHTML, like Gecko) OculusBrowser/18.1 SamsungBrowser/4.0 Chrome/95.0 VR Safari/537.36", Some(Android), None, Some((10, 0))),
    ("Mozilla/5.0 (Linux; Android 9; BRAVIA 4K UR2) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/110.0.0.0 Safari/537.36", Some(Android), NO, Some((9, 0))),
    ("Dalvik/2.1.0 (Linux; U; Android 7.1.2; AFTMM Build/NS6265)", Some(Android), NO, Some((7, 1))),
    ("Dalvik/2.1.0 (Linux; U; Android 9; Eve Chromebook Build/R91)", Some(ChromeOs), NO, None),
    // Other phones
    ("Mozilla/5.0 (Mobile; Windows Phone 8.1; Android 4.0; ARM; Trident/7.0; Touch; rv:11.0; IEMobile/11.0; NOKIA; Lumia 930) like iPhone OS 7_0_3 Mac OS X AppleWebKit/537 (KHTML, like Gecko) Mobile Safari/537", Some(WindowsPhone), YES, Some((8, 1))),
    ("Mozilla/5.0 (compatible; MSIE 9.0; Windows Phone OS 7.5; Trident/5.0; IEMobile/9.0)", Some(WindowsPhone), YES, Some((7, 5))),
    ("Mozilla/5.0 (BlackBerry; U; BlackBerry 9900; en) AppleWebKit/534.11+ (KHTML, like Gecko) Version/7.1.0.346 Mobile Safari/534.11+", Some(BlackBerry), YES, None),
    ("Mozilla/5.0 (BB10; Touch) AppleWebKit/537.10+ (KHTML, like Gecko) Version/10.0.9.2372 Mobile Safari/537.10+", Some(BlackBerry), YES, None),
    ("Mozilla/5.0 (SymbianOS/9.4; Series60/5.0 NokiaN97-1/20.0.019; Profile/MIDP-2.1) AppleWebKit/525 (KHTML, like Gecko)", Some(Symbian), YES, None),
    ("Mozilla/5.0 (Mobile; Nokia_8110_4G; rv:48.0) Gecko/48.0 Firefox/48.0 KAIOS/2.5", Some(KaiOs), YES, Some((2, 5))),
    ("Mozilla/5.0 (Phone; OpenHarmony 4.1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/114.0.0.0 ArkWeb/4.1 Mobile", Some(HarmonyOs), YES, Some((4, 1))),
    ("Mozilla/5.0 (Linux; Android 10; HarmonyOS; NOH-AN00) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/92.0 Mobile Safari/537.36", Some(HarmonyOs), YES, None),
    ("Opera/9.80 (J2ME/MIDP; Opera Mini/9.80 (S60; SymbOS) Presto/2.5.25)", None, YES, None),
    ("Mozilla/5.0 (Linux; Tizen 2.3; SAMSUNG SM-Z130H) AppleWebKit/537.3 (KHTML, like Gecko) Version/2.3 Mobile Safari/537.3", Some(Tizen), YES, Some((2, 3))),
    // Televisions and consoles
    ("Mozilla/5.0 (SMART-TV; Linux; Tizen 6.0) AppleWebKit/537.36 (KHTML, like Gecko) 76.0.3809.146/6.0 TV Safari/537.36", Some(Tizen), NO, Some((6, 0))),
    ("Mozilla/5.0 (Web0S; Linux/SmartTV) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/79.0.3945.79 Safari/537.36", Some(WebOs), NO, None),
    ("Roku/DVP-9.10 (519.10E04111A)", Some(Roku), NO, None),
    ("Mozilla/5.0 (X11; Linux armv7l) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/98.0 Safari/537.36 CrKey/1.56.500000", None, NO, None),
    ("HbbTV/1.5.1 (+DRM;Example;TV;1.0;;;) Presto/2.12", None, NO, None),
    ("Mozilla/5.0 (PlayStation; PlayStation 5/2.26) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.0 Safari/605.1.15", Some(PlayStation), NO, None),
    ("Mozilla/5.0 (PlayStation Vita 3.61) AppleWebKit/537.73 (KHTML, like Gecko) Silk/3.2", Some(PlayStation), None, None),
    ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; Xbox; Xbox One) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/58.0 Safari/537.36 Edge/18.19041", Some(Xbox), NO, None),
    ("Mozilla/5.0 (Nintendo Switch; WifiWebAuthApplet) AppleWebKit/606.4 (KHTML, like Gecko) NF/6.0.1.15.4 NintendoBrowser/5.1.0.20393", Some(Nintendo), None, None),
    // Computers
    ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36 Edg/120.0.0.0", Some(Windows), NO, Some((10, 0))),
    ("Mozilla/5.0 (Windows NT 6.1; WOW64; Trident/7.0; rv:11.0) like Gecko", Some(Windows), NO, Some((6, 1))),
    ("Mozilla/4.0 (compatible; MSIE 6.0; Windows 98)", Some(Windows), NO, None),
    ("Microsoft-CryptoAPI/10.0", Some(Windows), NO, None),
    ("Windows-Update-Agent/10.0.10011.16384 Client-Protocol/2.50", Some(Windows), NO, None),
    ("Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0.0.0 Safari/537.36", Some(ChromeOs), NO, None),
    ("Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0", Some(Linux), NO, None),
    ("Debian APT-HTTP/1.3 (2.6.1)", Some(Linux), NO, None),
    ("Mozilla/5.0 (X11; OpenBSD amd64; rv:99.0) Gecko/20100101 Firefox/99.0", Some(Bsd), NO, None),
    ("Wget/1.13.4 (linux-gnu)", Some(Linux), None, None),
    ("Mozilla/5.0 (X11; U; Linux armv7l like Android; en-us) AppleWebKit/531.2+ (KHTML, like Gecko) Version/5.0 Safari/533.2+ Kindle/3.0+", Some(Linux), None, None),
    ]
};

/// User agents that do not identify a device.
const SILENT: &[&str] = &[
    "",
    "okhttp/4.9.0",
    "curl/8.4.0",
    "python-requests/2.31.0",
    "Go-http-client/1.1",
    "Mozilla/5.0",
    "WhatsApp/2.23.20.0 A",
    "Cisco IOS/15.2",
    "axios/1.6.2",
    "\u{fc}\u{fc}",
];

const ROBOTS: &[&str] = &[
    "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "facebookexternalhit/1.1",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/119.0 Safari/537.36",
];

fn observed(text: &str) -> Option<Observed> {
    user_agent(text).map(|properties| (properties.system, properties.handheld, properties.version))
}

#[test]
fn agents_tell_what_they_run_on() {
    assert!(AGENTS.len() >= 60);
    for (text, system, handheld, version) in AGENTS {
        assert_eq!(observed(text), Some((*system, *handheld, *version)), "{text}");
    }
}

#[test]
fn what_tells_nothing_is_nothing() {
    for text in SILENT {
        assert_eq!(observed(text), None, "{text}");
    }
}

#[test]
fn a_robot_is_no_device() {
    for text in ROBOTS {
        let properties = user_agent(text).unwrap();
        assert!(
            properties.robot && properties.system.is_none() && properties.handheld.is_none(),
            "{text}"
        );
    }
}

/// No other part of the user agent distinguishes a Mac from an iPad.
#[test]
fn what_may_be_an_ipad_is_less_sure() {
    let mac = |rest: &str| {
        let text = format!("Mozilla/5.0 (Macintosh; Intel Mac OS X {rest}");
        user_agent(&text).unwrap().confidence
    };
    let webkit = ") AppleWebKit/605.1.15 (KHTML, like Gecko)";
    assert_eq!(mac(&format!("10_15_7{webkit} Version/16.5 Safari/605.1.15")), 0.7);
    assert_eq!(mac(&format!("10_15_6{webkit}")), 0.7);
    assert_eq!(mac(&format!("10_13_6{webkit} Version/13.1.2 Safari/605.1.15")), 0.9);
    assert_eq!(mac("10_15_7) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36"), 0.9);
    assert_eq!(mac("10.15; rv:120.0) Gecko/20100101 Firefox/120.0"), 0.9);
}

#[test]
fn the_end_of_a_long_agent_is_not_read() {
    let padded = |count: usize| user_agent(&format!("{}Android 13", "\u{fc}".repeat(count)));
    assert!(padded(500).is_some());
    assert_eq!(padded(600), None);
    assert_eq!(user_agent("Android 99999999999").unwrap().version, None);
}

proptest! {
    #[test]
    fn any_text_is_read(
        words in prop::collection::vec((0..AGENTS.len(), any::<u16>(), any::<u16>()), 0..4),
        noise in ".{0,40}",
    ) {
        let mut text = noise;
        for (agent, from, to) in words {
            let agent = AGENTS[agent].0;
            let (from, to) = (from as usize % agent.len(), to as usize % agent.len());
            text += &agent[from.min(to)..from.max(to)];
        }
        if let Some(properties) = user_agent(&text) {
            prop_assert!((0.0..=1.0).contains(&properties.confidence));
            prop_assert!(properties.robot || properties.system.is_some() || properties.handheld.is_some());
        }
    }
}
