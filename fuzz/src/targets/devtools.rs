//! Events of a browser that loads a page.

use manyways_net::probe::read_page_load;
use manyways_wire::har::{self, Content};

pub(super) const WORDS: &[&str] = &[
    "\n",
    "{\"method\":\"Network.requestWillBeSent\",\"params\":{",
    "\"requestId\":\"1\",\"loaderId\":\"1\",\"frameId\":\"f\",",
    "\"redirectResponse\":{\"status\":302},",
    "\"timing\":{\"requestTime\":1.0,\"sendStart\":",
    "{\"method\":\"Page.loadEventFired\"}",
    "{\"method\":\"Tracing.dataCollected\",\"params\":{\"value\":[",
    "{\"name\":\"navigationStart\",\"ph\":\"R\",\"ts\":",
    "\"ph\":\"X\",\"dur\":",
    "\"timestamp\":",
    "1e300",
    "-1",
    "null",
    "}]}}",
];

/// A stream of messages, of which lines are the ends, as in the seeds.
pub(super) fn devtools_events(bytes: &[u8]) {
    let stream: Vec<u8> = bytes.iter().map(|byte| if *byte == b'\n' { 0 } else { *byte }).collect();
    let Ok((load, archive)) = read_page_load(&stream) else { return };
    assert_eq!(load.requests.len(), archive.exchanges.len());
    assert!(load.tasks.is_sorted_by(|one, next| one.end <= next.start), "{:?}", load.tasks);
    let mut file = Vec::new();
    har::write(&archive, |_, _| Content::Omitted, &mut file).expect("memory");
    // A browser has valid URLs; those of an input need not be.
    let _ = har::read(&file);
}
