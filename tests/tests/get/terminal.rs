//! What is seen on a terminal, and what on a pipe.

use crate::far::{Far, SLOW_LINKS, TWO_LINKS, Transfer};
use crate::needs_far;

#[test]
fn a_line_for_each_network_on_a_terminal() {
    needs_far!("script");
    let far = Far::new();
    let script = "TERM=xterm script -qec \"stty cols 100 rows 30; \
                    $GET --json https://origin.lab/object >json\" typescript >/dev/null && whole";
    far.run(&SLOW_LINKS, script).succeeded();
    let seen = far.read("typescript");
    for part in ["wifi [", "lte [", "all [", "Mbit/s"] {
        assert!(seen.contains(part), "no {part} in {seen}");
    }
    // The line of JSON is where it was sent to and not among the bars.
    assert!(!seen.contains("manyways.get/1"), "{seen}");
    Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
}

#[test]
fn a_pipe_gets_json_and_nothing_else() {
    needs_far!();
    let far = Far::new();
    let seen = far.run(
        &TWO_LINKS,
        "get --json https://origin.lab/object 2>said && get https://origin.lab/object 2>plain && \
         get -q https://origin.lab/object 2>quiet; get --json -q http://origin.lab/none 2>failed",
    );
    assert_eq!(seen.code(), 1);
    let [done, failed] = &Transfer::all(&seen.stdout)[..] else { panic!("{}", seen.stdout) };
    done.came_over(&["wifi", "lte"]);
    assert_eq!(failed.0["error"]["message"], "the server answered 404 Not Found");
    assert_eq!(failed.0["error"]["resumable"], false);
    for file in ["said", "plain"] {
        let said = far.read(file);
        assert!(said.contains("wifi") && said.contains("lte") && !said.contains('['), "{said}");
    }
    assert_eq!(far.read("quiet"), "");
    assert!(far.read("failed").contains("404 Not Found"), "{}", far.read("failed"));
}
