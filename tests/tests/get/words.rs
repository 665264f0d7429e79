//! Error messages: each reason once, with a useful hint.

use crate::far::{Far, TWO_LINKS};
use crate::needs_far;

#[test]
fn a_reason_that_all_networks_share_is_said_once_with_its_hint() {
    needs_far!();
    let far = Far::new().more("location /down { return 302 http://origin.lab/object; }");
    let cases = [
        ("http://198.18.0.1:81/object", "connection refused", "check the port in the URL"),
        ("http://nowhere.lab/object", "nowhere.lab does not exist", "check the spelling"),
        ("https://198.18.0.1:80/object", "does not speak TLS", "check the port"),
        ("https://origin.lab/down", "redirects from https to", "where you trust the network"),
        ("http://origin.lab/none", "404 Not Found", "check the URL"),
    ];
    let script: String = cases
        .iter()
        .enumerate()
        .map(|(number, (url, ..))| format!("get {url} 2>said-{number} && exit 1; "))
        .collect();
    far.run(&TWO_LINKS, &format!("{script} true")).succeeded();
    for (number, (url, reason, hint)) in cases.iter().enumerate() {
        let said = far.read(&format!("said-{number}"));
        assert_eq!(said.matches(reason).count(), 1, "{url}: {said}");
        assert!(said.contains(&format!("hint: {hint}")), "{url}: {said}");
        assert_eq!(said.lines().count(), 2, "{url}: {said}");
    }
}

#[test]
fn sizes_are_counted_by_thousands() {
    needs_far!();
    let far = Far::new();
    far.run(&TWO_LINKS, "get http://origin.lab/object 2>said && whole").succeeded();
    let said = far.read("said");
    assert!(said.contains("object: 2 MB in ") && !said.contains("iB"), "{said}");
}
