use super::*;

fn warnings(text: &str, known: &[PathFacts]) -> Vec<String> {
    Policy::parse(text).unwrap().lint(known).iter().map(ToString::to_string).collect()
}

#[test]
fn a_rule_that_an_earlier_one_hides_is_named() {
    let hides = |first: &str, second: &str| {
        let text = format!(
            "[[rule]]\nname = 'a'\n{first}\nuse = {{}}\n[[rule]]\nname = 'b'\n{second}\nuse = {{}}\n"
        );
        let warnings = warnings(&text, &[]);
        if let Some(warning) = warnings.first() {
            let expected = "the rule `b` never decides: `a` (line 2) takes all that it matches";
            assert_eq!(warning.split_once(": ").unwrap().1, expected);
        }
        !warnings.is_empty()
    };
    assert!(hides("", "match = { port = 443 }"));
    assert!(!hides("match = { port = 443 }", ""));
    assert!(hides("match = { port = '1-1000' }", "match = { port = [22, '80-443'], user = 'a' }"));
    assert!(!hides("match = { port = '1-1000' }", "match = { port = [22, 1001] }"));
    assert!(hides("match = { domain = '.a.com' }", "match = { domain = '*.b.a.com' }"));
    assert!(!hides("match = { domain = '*.a.com' }", "match = { domain = 'a.com' }"));
    assert!(hides("match = { address = '10.0.0.0/8' }", "match = { address = '10.1.0.0/16' }"));
    assert!(hides("match = { process = 'te*' }", "match = { process = 'teams' }"));
    assert!(hides("match = [{ port = 1 }, { port = 2 }]", "match = { port = 2 }"));
    assert!(!hides("match = { port = 1 }\nnot = { user = 'x' }", "match = { port = 1 }"));
    let but = |not: &str| format!("match = {{ port = 1 }}\nnot = {not}");
    let (narrow, wide) = (but("{ user = 'x', domain = '*.a' }"), but("{ domain = '.a' }"));
    assert!(hides(&narrow, &wide) && !hides(&wide, &narrow));
    assert!(!hides("when = { battery = '<20%' }", ""));
    assert!(hides("when = { battery = '<20%' }", "when = { battery = '<20%', charging = true }"));
}

#[test]
fn paths_that_this_host_lacks_are_named_unless_it_has_none() {
    let text = "[paths.wlan1]\nmetered = true\n[[rule]]\nname = 'a'\n\
                when = { ethernet.rate = '<1mbit' }\nuse = { paths = ['wfi', 'celular'] }\n";
    assert_eq!(warnings(text, &[]), Vec::<String>::new());
    let policy = Policy::parse(text).unwrap();
    let warnings = policy.lint(&phone_environment().paths);
    let found: Vec<(usize, &str, &str)> = warnings
        .iter()
        .map(|one| (one.line, one.message.as_str(), one.hint.as_deref().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            (1, "no path here is named or of the kind `wlan1`", "did you mean `wlan0`?"),
            (4, "no path here is named or of the kind `wfi`", "did you mean `wifi`?"),
            (4, "no path here is named or of the kind `celular`", "did you mean `cellular`?"),
            (
                4,
                "no path here is named or of the kind `ethernet`",
                "there is cellular, wifi, wlan0, wwan0"
            ),
        ]
    );
}

#[test]
fn a_plan_that_is_missing_and_a_primary_path_that_is_not_allowed() {
    let left = "[[rule]]\nname = 'a'\nwhen = { cellular.left = '>1GB' }\nuse = {}\n";
    let expected = "line 2: `cellular.left >1GB` never holds: its path has no data plan";
    assert_eq!(warnings(left, &[]), [expected]);
    assert_eq!(warnings(left, &phone_environment().paths), [expected]);
    let hint =
        Policy::parse(left).unwrap().lint(&phone_environment().paths).remove(0).hint.unwrap();
    assert_eq!(hint, "say how much there is, like monthly = \"10GB\" under [paths.wwan0]");
    let plan = format!("{left}[paths.wwan0]\nmonthly = '10GB'");
    assert_eq!(warnings(&plan, &phone_environment().paths), Vec::<String>::new());
    let primary = "[[rule]]\nname = 'a'\nuse = { paths = 'cellular', primary = 'wlan0' }";
    assert_eq!(
        warnings(primary, &phone_environment().paths),
        ["line 2: the primary path wlan0 is not among the paths of `a`"]
    );
}

#[test]
fn a_program_is_known_by_its_file_name_alone() {
    let of = |selector: &str| {
        let text = format!("[[rule]]\nname = 'a'\n{selector}\nuse = {{}}");
        let warnings = Policy::parse(&text).unwrap().lint(&[]);
        warnings.into_iter().map(|one| (one.message, one.hint.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(of("match = { process = ['curl', 'team*'] }"), []);
    for selector in ["match", "not"] {
        let [(sentence, hint)] = &of(&format!("{selector} = {{ process = '/usr/bin/curl' }}"))[..]
        else {
            panic!("one warning was expected");
        };
        assert_eq!(
            sentence,
            "the process `/usr/bin/curl` of `a` fits no program: their file names are compared, \
             without folders"
        );
        assert_eq!(hint, "write `curl`");
    }
    let folder = of("match = { process = '/opt/teams/*' }");
    assert_eq!(folder[0].1, "write the program's file name, like firefox or teams*");
}

#[test]
fn bytes_do_not_send_anything_past_the_bond_later() {
    let of = |selectors: &str, action: &str| {
        warnings(&format!("[[rule]]\nname = 'a'\n{selectors}\nuse = {action}"), &[])
    };
    let late = ["line 2: the rule `a` comes too late: what the bond carries by then stays there"];
    assert_eq!(of("match = { bytes = '>1MB' }", "{ direct = true }"), late);
    assert_eq!(of("match = { bytes = '>0B' }", "{ direct = true }"), late);
    assert_eq!(of("match = [{ port = 1 }, { bytes = '1MB-2MB' }]", "{ direct = true }"), late);
    assert_eq!(of("not = { bytes = '<1MB' }", "{ direct = true }"), late);
    let early = "line 2: `bytes` ends nothing in the rule `a`: a connection that goes past the \
                 bond stays there";
    assert_eq!(of("match = { bytes = '<1MB' }", "{ direct = true }"), [early]);
    assert_eq!(of("match = { bytes = '>1MB' }", "{ block = true }"), Vec::<String>::new());
    assert_eq!(of("match = { port = 1 }", "{ direct = true }"), Vec::<String>::new());
}

#[test]
fn paths_that_take_all_of_them_away_are_told() {
    let rule = |paths: &str| format!("[[rule]]\nname = 'a'\nuse = {{ {paths} }}\n");
    let words = "allows no path, ever: its flows wait and never go anywhere";
    let none = "paths = '!all'";
    assert_eq!(warnings(&rule(none), &[]), [format!("line 2: the rule `a` {words}")]);
    let default = format!("[default]\n{none}\n{}", rule(""));
    assert_eq!(warnings(&default, &[]), [format!("the default: it {words}")]);
    assert_eq!(
        warnings(&rule("paths = '!wifi'"), &phone_environment().paths),
        Vec::<String>::new()
    );
}
