use super::*;

/// All keys of the format.
const ALL_KEYS: &str = r#"
[default]
scheduler = "ecf"
paths = ["wifi", "!metered"]
primary = "lowest-latency"
priority = "low"

[paths.lte]
metered = true
monthly = "10GB"
from-day = 15

[[rule]]
name = "calls"
match = { process = ["zoom", "teams*"], user = ["ann", 1000, "1001"], cgroup = "/user.slice", domain = [".zoom.us"], address = ["10.0.0.0/8", "::1"], port = ["3478-3497", 8801], protocol = ["udp", "tcp"], bytes = ["<1MB", "2MB-3MB"] }
not = [{ user = "bob" }, { port = 443, protocol = "tcp" }]
use = { scheduler = "single", paths = "wifi", primary = "wifi", priority = 7 }

[rule.when]
battery = ">20%"
charging = false
hold = "5s"
margin = "10%"
wifi = { up = true, metered = false, rate = ">=1mbit", load = "<90%", rtt = "<150ms", loss = "<=2%" }
lte.left = ">1GB"
primary.rate = ">2mbit"

[[rule]]
name = "past"
use = { direct = true }

[[rule]]
name = "stop"
use = { block = true }
"#;

#[test]
fn every_key_reads() {
    let policy = Policy::parse(ALL_KEYS).unwrap();
    assert_eq!(policy.rules().collect::<Vec<_>>(), ["calls", "past", "stop"]);
    let plan = DataPlan { monthly: Size::from_bytes(10_000_000_000), reset_day: 15 };
    assert_eq!(policy.data_plan("lte", "cellular"), Some(plan));
    assert_eq!(policy.data_plan("wifi", "wifi"), None);
    let rule = &policy.rules[0];
    assert_eq!(rule.line, 14);
    let words: Vec<String> = rule.conditions.iter().map(ToString::to_string).collect();
    let expected = [
        "battery >20%",
        "charging false",
        "wifi.up true",
        "wifi.metered false",
        "wifi.rate >=1mbit",
        "wifi.load <90%",
        "wifi.rtt <150ms",
        "wifi.loss <=2%",
        "lte.left >1GB",
        "primary.rate >2mbit",
    ];
    assert_eq!(words, expected);
    assert_eq!(
        rule.action.text(&Environment::default()),
        "single over wifi, wifi first, priority 7"
    );
    assert_eq!(
        policy.default.text(&Environment::default()),
        "ecf over wifi, !metered, the lowest latency first, priority 0"
    );
    assert_eq!(policy.rules[1].action, Action::Direct);
    assert_eq!(policy.rules[2].action, Action::Block);
}

#[test]
fn nothing_at_all_is_a_policy_that_uses_every_path() {
    assert_eq!(Policy::parse("").unwrap(), Policy::default());
    let verdict = engine("").decide(&web("a.example")).decision;
    assert_eq!(verdict, Decision::Bond(StreamPolicy::default()));
}

#[test]
fn what_a_rule_leaves_out_is_as_in_the_default() {
    let engine = engine(
        "[default]\npaths = 'unmetered'\n[[rule]]\nname = 'a'\nuse = { scheduler = 'minrtt' }",
    );
    let policy = stream_policy(engine.decide(&web("a.example")).decision);
    assert_eq!(policy.paths, set([WIFI]));
    assert_eq!(policy.scheduler, SchedulerKind::MinRtt);
}

/// A rule with this text on the third line.
fn rule(text: &str) -> String {
    format!("[[rule]]\nname = \"a\"\n{text}\n")
}

#[track_caller]
fn refused(text: &str, line: usize, message: &str, hint: &str) {
    let error = Policy::parse(text).expect_err(text);
    let got = (error.line, error.message.as_str(), error.hint.as_deref().unwrap_or(""));
    assert_eq!(got, (line, message, hint));
}

#[test]
fn all_errors_of_a_file_are_listed_in_their_order() {
    let text = "\
[paths.lte]
from-day = 3
[default]
scheduler = 'minrt'
[[rule]]
name = 'a'
match = { proces = 'x' }
use = { path = 'wifi' }
when = { batery = '<20%' }
[[rule]]
use = {}
[[rule]]
name = 'b'
ues = {}
";
    let errors = Policy::parse_all(text).unwrap_err();
    let got: Vec<(usize, &str)> =
        errors.iter().map(|error| (error.line, error.message.as_str())).collect();
    let schedulers = "scheduler: there are the schedulers minrtt, round-robin, redundant, single, \
                      ecf, buffer-aware, minpad, pams-print and pams, and no other";
    let expected = [
        (2, "`from-day` belongs to a data plan"),
        (4, schedulers),
        (7, "`match` has no `proces`"),
        (8, "`use` has no `path`"),
        (10, "a rule needs `name`"),
        (12, "a rule needs `use`"),
        (14, "a rule has no `ues`"),
    ];
    assert_eq!(got, expected);
    let many = "[[rule]]\n".repeat(50);
    assert_eq!(Policy::parse_all(&many).unwrap_err().len(), MAX_ERRORS);
    assert_eq!(Policy::parse_all("[[rule\n[[rule").unwrap_err().len(), 1);
    assert_eq!(Policy::parse(text).unwrap_err(), errors[0]);
}

#[test]
fn every_error_points_at_its_line_and_says_what_to_do() {
    refused("rules = 1", 1, "the policy has no `rules`", "did you mean `rule`?");
    refused(&rule("use = { path = 'wifi' }"), 3, "`use` has no `path`", "did you mean `paths`?");
    refused(
        &rule("match = { proces = 'x' }\nuse = {}"),
        3,
        "`match` has no `proces`",
        "did you mean `process`?",
    );
    refused(
        &rule("use = { scheduler = 'minrt' }"),
        3,
        "scheduler: there are the schedulers minrtt, round-robin, redundant, single, ecf, \
         buffer-aware, minpad, pams-print and pams, and no other",
        "did you mean `minrtt`?",
    );
    refused(
        &rule("match = { port = [] }\nuse = {}"),
        3,
        "port: the list is empty and would fit nothing",
        "leave the key out",
    );
    refused(
        &rule("match = { process = ['a', 'b[c]'] }\nuse = {}"),
        3,
        "process: `b[c]` is not a pattern; write a name of up to 255 bytes, where only `*` is \
         special, like firefox or teams*",
        "",
    );
    refused(
        &rule("use = {}\nwhen = { batery = '<20%' }"),
        4,
        "`when` has no `batery`",
        "did you mean `battery`?",
    );
    refused(
        &rule("use = {}\nwhen = { wifi = '<1mbit' }"),
        4,
        "`when` has no `wifi`",
        "the keys are battery, charging, hold, margin, and paths, like wifi.rate = \"<1mbit\"",
    );
    refused(
        &rule("use = {}\nwhen = { wifi.rat = '<1mbit' }"),
        4,
        "a path in `when` has no `rat`",
        "did you mean `rate`?",
    );
    refused(
        &rule("use = {}\nwhen = { wifi.rate = '1mbit' }"),
        4,
        "rate: `1mbit` is not a comparison; write <, <=, > or >= and a value, like \"<1mbit\"",
        "",
    );
    refused(
        &rule("use = {}\nwhen = { battery = '20' }"),
        4,
        "battery: `20` is not a comparison; write <, <=, > or >= and a share, like \"<20%\"",
        "",
    );
    refused(
        &rule("use = {}\nwhen = { primary.rate = '<1mbit' }"),
        4,
        "this rule has no primary path",
        "name it, like use = { primary = \"wifi\" }, or ask about the path by its name",
    );
    refused(
        &rule("use = {}\nwhen = { battery = '<20%', hold = '3s' }"),
        4,
        "`hold` is for up, rate, load, rtt and loss, and none is asked for",
        "leave it out",
    );
    refused(
        &rule("use = { direct = true, paths = 'wifi' }"),
        3,
        "`paths` has no effect next to `direct`",
        "leave one of them out",
    );
    refused(
        &rule(""),
        1,
        "a rule needs `use`",
        "add an action, like use = { paths = \"wifi\" } or use = {}",
    );
    refused(
        &[rule("use = {}"), rule("use = {}")].concat(),
        5,
        "there are two rules `a`",
        "give each its own name: it is how a decision is explained",
    );
    refused(
        "[paths.lte]\nfrom-day = 3",
        2,
        "`from-day` belongs to a data plan",
        "add one, like monthly = \"10GB\"",
    );
}

#[test]
fn what_means_nothing_is_refused() {
    let in_rule = [
        "match = {}\nuse = {}",
        "match = []\nuse = {}",
        "not = { }\nuse = {}",
        "when = {}\nuse = {}",
        "when = { wifi = {} }\nuse = {}",
        "when = { hold = '1s' }\nuse = {}",
        "when = { wifi.rate = '<1mbit', margin = '95%' }\nuse = {}",
        "when = { wifi.rate = '<1mbit', hold = '2h' }\nuse = {}",
        "when = { wifi.rate = '<1mbps' }\nuse = {}",
        "when = { wifi.up = '<1' }\nuse = {}",
        "when = { battery = '<20' }\nuse = {}",
        "when = { charging = 'no' }\nuse = {}",
        "when = { '' = { up = true } }\nuse = {}",
        "match = { protocol = 'icmp' }\nuse = {}",
        "match = { port = 65536 }\nuse = {}",
        "match = { process = 7 }\nuse = {}",
        "match = { address = '10.0.0.1/8' }\nuse = {}",
        "match = { bytes = '1MB' }\nuse = {}",
        "match = 3\nuse = {}",
        "use = { block = false }",
        "use = { direct = true, block = true }",
        "use = { paths = [] }",
        "use = { paths = ['!'] }",
        "use = { priority = 256 }",
        "use = { priority = 'urgent' }",
        "use = { primary = ['wifi'] }",
    ];
    for text in in_rule {
        assert!(Policy::parse(&rule(text)).is_err(), "{text}");
    }
    for text in [
        "[[rule]]\nuse = {}",
        "[[rule]]\nname = ''\nuse = {}",
        "[[rule]]\nname = \"a\\nb\"\nuse = {}",
        "[paths.'wl*']\nmetered = true",
        "[paths.lte]\nmonthly = '10GB'\nfrom-day = 31",
        "[paths.lte]\nmonthly = 10",
        "rule = 1",
        "[rule]\nname = 'a'",
        "not toml",
    ] {
        assert!(Policy::parse(text).is_err(), "{text}");
    }
}

#[test]
fn limits() {
    let many = |count: usize| {
        (0..count).map(|n| format!("[[rule]]\nname='{n}'\nuse={{}}\n")).collect::<String>()
    };
    assert!(Policy::parse(&many(MAX_RULES)).is_ok());
    refused(&many(MAX_RULES + 1), 3 * MAX_RULES + 1, "a policy has at most 1000 rules", "");
    let ports =
        |count: usize| rule(&format!("match = {{ port = {:?} }}\nuse = {{}}", vec![443; count]));
    assert!(Policy::parse(&ports(MAX_PATTERNS)).is_ok());
    refused(&ports(MAX_PATTERNS + 1), 3, "port: a list has at most 1000 entries", "");
    let long = format!("#{}", "x".repeat(MAX_TEXT));
    refused(&long, 1, "a policy has at most 262144 bytes", "");
}
