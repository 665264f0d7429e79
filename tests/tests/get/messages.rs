//! Error messages: each reason once, with a useful hint.

use crate::needs_far;
use crate::testbed::{TWO_LINKS, Testbed};

#[test]
fn a_reason_that_all_networks_share_is_said_once_with_its_hint() {
    needs_far!();
    let testbed =
        Testbed::new().with_config("location /down { return 302 http://origin.lab/object; }");
    let cases = [
        ("http://198.18.0.1:81/object", "connection refused", "check the port in the URL"),
        ("http://nowhere.lab/object", "nowhere.lab does not exist", "check the spelling"),
        ("https://198.18.0.1:80/object", "does not speak TLS", "check the port"),
        ("https://origin.lab/down", "redirects from https to", "if you trust the network"),
        ("http://origin.lab/none", "404 Not Found", "check the URL"),
    ];
    let script: String = cases
        .iter()
        .enumerate()
        .map(|(number, (url, ..))| format!("get {url} 2>said-{number} && exit 1; "))
        .collect();
    testbed.run(&TWO_LINKS, &format!("{script} true")).expect_success();
    for (number, (url, reason, hint)) in cases.iter().enumerate() {
        let output = testbed.read(&format!("said-{number}"));
        assert_eq!(output.matches(reason).count(), 1, "{url}: {output}");
        assert!(output.contains(&format!("hint: {hint}")), "{url}: {output}");
        assert_eq!(output.lines().count(), 2, "{url}: {output}");
    }
}

#[test]
fn sizes_are_counted_by_thousands() {
    needs_far!();
    let testbed = Testbed::new();
    testbed.run(&TWO_LINKS, "get http://origin.lab/object 2>said && whole").expect_success();
    let output = testbed.read("said");
    assert!(output.contains("object: 2 MB in ") && !output.contains("iB"), "{output}");
}
