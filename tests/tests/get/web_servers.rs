//! `get` on the web servers of other people: ranges, validators, flow control and resets as they do
//! them. A server that is not installed is skipped.

use manyways_tests::{WebServer, needs};

use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, Testbed, Transfer};
use crate::{for_each_web_server, needs_far};

/// A whole download over both links; one that is stopped in the middle; its rest with `-c`; and
/// `-c` after the object has changed. Some servers need a second to see a change.
const SCRIPT: &str = "\
url=https://origin.lab/object
both get --json $url && whole && rm object || exit 1

before=$(cat /sys/class/net/wifi/statistics/rx_bytes)
stop_at wifi 400000 lte 400000
$GET $url 2>said & pid=$!
come wifi 400000 $before; until_kept object.manyways 360000
kill -TERM $pid; wait $pid; go_on wifi lte
mkdir kept; cp object.manyways* kept
get -c --json $url && whole && rm object || exit 1

tag() { curl -sSI --noproxy '*' --cacert $FILES/authority.pem $url | grep -i '^etag:'; }
old=$(tag)
is_new() { new=$(tag) && [ \"$new\" != \"$old\" ]; }
head -c 2000001 /dev/urandom >$FILES/root/new; touch -d '-30 minutes' $FILES/root/new
mv $FILES/root/new $FILES/root/object; eventually is_new
cp kept/* .
get -c $url 2>changed; echo $? >code";

fn is_a_good_source(server: WebServer) {
    needs_far!("curl");
    needs!(server.needs());
    let testbed = Testbed::new();
    let far = testbed.web_server(server);
    let done = testbed.run_with(&[&SLOW_LINKS[..], &["--far", &far]].concat(), SCRIPT);
    let transfers = Transfer::all(&done.expect_success().stdout);
    let [whole, rest] = &transfers[..] else { panic!("{transfers:?}") };
    whole.assert_paths(&["wifi", "lte"]);
    for transfer in [whole, rest] {
        assert_eq!(transfer.path("wifi")["protocol"], "h2");
    }
    assert!(rest.number("bytes") <= OBJECT_LENGTH - 360_000, "{rest:?}");
    assert_eq!(testbed.read("code"), "1\n");
    let changed = testbed.read("changed");
    assert!(changed.contains("the object has changed on the server"), "{changed}");
}

for_each_web_server!(is_a_good_source);
