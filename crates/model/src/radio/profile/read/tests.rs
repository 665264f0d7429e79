use super::*;
use crate::radio::profiles;

const GOOD: &str = r#"title = "test"
technology = "lte"
[transfer]
send = "2W"
receive = "1W"
source = "a meter"
[[state]]
name = "on"
power = "1W"
timer = "10s"
source = "a meter"
[[state]]
name = "off"
power = "20mW"
promotion = "300mJ"
source = "a meter"
"#;

fn error(good: &str, bad: &str) -> (usize, String, Option<String>) {
    assert_eq!(GOOD.matches(good).count(), 1, "{good}");
    let error = parse(&GOOD.replace(good, bad)).unwrap_err();
    (error.line, error.message, error.hint)
}

#[test]
fn a_profile_reads() {
    let profile = parse(GOOD).unwrap();
    assert_eq!(profile.transfer.burst_gap, Span::from_millis(500));
    assert_eq!(profile.states[1].promotion, Energy::joules(0.3));
    assert!(!profile.states[0].is_idle && profile.states[1].is_idle);
    assert_eq!(profile.dormant, 1);
    assert_eq!(profile.states[0].timer, Some(Span::from_secs(10)));
}

#[test]
fn errors_name_their_line() {
    for (good, bad, line, message) in [
        ("power = \"1W\"\n", "", 7, "a state needs `power`"),
        ("timer = \"10s\"\n", "", 7, "a state needs `timer`"),
        ("send = \"2W\"", "send = 2", 4, "send: a string in quotes was expected, not a number"),
        ("\"2W\"", "\"-2W\"", 4, "send: `-2W` is not a power; write 916mW or 1.2W"),
        ("\"2W\"", "\"2kW\"", 4, "send: `2kW` is not a power; write 916mW or 1.2W"),
        ("\"2W\"", "\"2000W\"", 4, "send: the maximum is 1000 W"),
        ("\"10s\"", "\"9000h\"", 10, "timer: the maximum is 86400 s"),
        ("timer = \"10s\"", "timer = \"-1s\"", 10, "timer: `-1s` is not a time; write"),
        ("\"lte\"", "\"umts\"", 2, "technology: there is no `umts`"),
        ("\"20mW\"", "\"20mW\"\ntimer = \"1s\"", 15, "timer: the last state has no timer"),
        ("\"20mW\"", "\"20mW\"\nreleased = false", 12, "the last state must be released"),
        (
            "\"1W\"\ntimer",
            "\"1W\"\nreleased = true\ntimer",
            7,
            "the first state transfers data and",
        ),
        ("\"off\"", "\"on\"", 12, "two states have the name `on`"),
        ("\"1W\"\ntimer", "\"1W\"\nlisten-for = \"1s\"\ntimer", 7, "a state needs `listen-every`"),
        ("\"test\"", "\" \"", 1, "title: the text is empty"),
        (
            "\"300mJ\"\nsource = \"a meter\"",
            "\"0\"\nsource = \"\"",
            16,
            "source: the text is empty",
        ),
        ("receive =", "recieve =", 5, "the transfer has no `recieve`"),
    ] {
        let (at, said, _) = error(good, bad);
        assert!(said.starts_with(message), "{said}");
        assert_eq!(at, line, "{said}");
    }
    assert_eq!(error("\"lte\"", "\"lt\"").2.as_deref(), Some("did you mean `lte`?"));
}

#[test]
fn too_few_and_too_many_states_are_refused() {
    let few = GOOD.split("[[state]]\nname = \"off\"").next().unwrap();
    assert!(parse(few).unwrap_err().message.contains("2 to 8 states"));
    let state = |number| {
        format!("[[state]]\nname = \"s{number}\"\npower = \"0\"\ntimer = \"1s\"\nsource = \"x\"\n")
    };
    let many: String = (0..8).map(state).collect();
    let many =
        GOOD.replace("[[state]]\nname = \"off\"", &format!("{many}[[state]]\nname = \"off\""));
    assert!(parse(&many).unwrap_err().message.contains("2 to 8 states"));
    assert!(parse(&" ".repeat(MAX_TEXT + 1)).is_err());
}

#[test]
fn broken_text_is_refused_and_never_panics() {
    for (_, text) in profiles::all() {
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = parse(&text[..end]);
            let _ = parse(&text[end..]);
        }
    }
}
