//! Real servers with restrictive configurations.

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, TWO_LINKS, Testbed, Transfer};

/// The server sends GOAWAY over HTTP/2 and closes over HTTP/1.1.
#[test]
fn a_server_that_ends_connections_after_three_requests() {
    needs_far!();
    let testbed = Testbed::new().with_config("keepalive_requests 3;");
    let script = "for url in http://origin.lab https://origin.lab https://origin.lab:444; do \
                    for how in mp-h2 fixed-chunk=64KiB; do \
                      both get --scheduler $how --json $url/object 2>said && whole && rm object || exit 1; \
                    done; \
                  done";
    let finished = testbed.run(&TWO_LINKS, script).expect_success();
    let transfers = Transfer::all(&finished.stdout);
    assert_eq!(transfers.len(), 6);
    for transfer in transfers {
        transfer.assert_paths(&["wifi", "lte"]);
    }
}

#[test]
fn a_server_that_allows_one_stream_at_a_time() {
    needs_far!();
    let testbed = Testbed::new().with_config("http2_max_concurrent_streams 1;");
    let finished = testbed
        .run(&TWO_LINKS, "both get --json https://origin.lab/object && whole")
        .expect_success();
    Transfer::only(&finished.stdout).assert_paths(&["wifi", "lte"]);
}

/// After an ENHANCE_YOUR_CALM because of PINGs, the client sends no more PINGs on any connection.
#[test]
fn a_server_that_takes_few_pings() {
    needs_far!();
    let testbed = Testbed::new();
    let server = testbed.faulty();
    let links = ["--link", "wifi:down=3mbit,delay=4ms", "--link", "lte:down=2mbit,delay=9ms"];
    let links = [&links[..], &["--far", &server]].concat();
    let script = "both get --json https://origin.lab:445/always/good/object 2>said && whole";
    let finished = testbed.run_with(&links, script).expect_success();
    Transfer::only(&finished.stdout).assert_paths(&["wifi", "lte"]);
    let log = std::fs::read_to_string(testbed.path("faulty.log")).expect("the server has a log");
    for link in ["445 1 calm", "445 2 calm"] {
        assert_eq!(log.matches(link).count(), 1, "{log}");
    }
}

#[test]
fn an_empty_object() {
    needs_far!("apache2");
    let testbed = Testbed::new();
    std::fs::write(testbed.path("root/empty"), "").expect("room for nothing");
    let script = "for url in $URLS; do \
                    get --json --sha256 -o object $url && test -e object && ! test -s object || exit 1; \
                    get -c --json -o object $url && ! test -s object || exit 2; rm object; \
                  done";
    let nginx = "URLS='http://origin.lab/empty https://origin.lab/empty'; ";
    let apache = "URLS='http://origin.lab:8080/empty https://origin.lab:8443/empty'; ";
    for (server, urls) in [(testbed.nginx(), nginx), (testbed.apache(), apache)] {
        let links = [&TWO_LINKS[..], &["--far", &server]].concat();
        let finished = testbed.run_with(&links, &format!("{urls}{script}")).expect_success();
        let transfers = Transfer::all(&finished.stdout);
        assert_eq!(transfers.len(), 4, "{}", finished.stdout);
        for transfer in transfers {
            assert_eq!(transfer.number("bytes"), 0, "{transfer:?}");
            assert!(transfer.0["error"].is_null(), "{transfer:?}");
        }
        assert_eq!(testbed.fetched(), [""; 0]);
    }
}

// Slow: 80 downloads, one after the other.
#[test]
fn objects_of_a_few_bytes() {
    needs_far!();
    let testbed = Testbed::new();
    for bytes in [1, 2, 3, 100, 16_384] {
        manyways_tests::object(&testbed.path("root"), &format!("object-{bytes}"), bytes, 5);
    }
    let script = "for bytes in 1 2 3 100 16384; do \
                    for url in http://origin.lab https://origin.lab; do \
                      for how in mp-h2 equal-split msplayer fixed-chunk=64KiB; do \
                        for size in '' \"--size $bytes\"; do \
                          get --scheduler $how $size -o object $url/object-$bytes && \
                          same object $FILES/root/object-$bytes && rm object || exit 1; \
                        done; \
                      done; \
                    done; \
                  done";
    testbed.run(&TWO_LINKS, script).expect_success();
}

#[test]
fn redirects_of_a_real_server() {
    needs_far!();
    let testbed = Testbed::new().with_config(
        "location = /moved { return 302 https://origin.lab:444/object; }\n\
         location = /relative { return 307 object; }\n\
         location = /round { return 301 /round; }\n\
         location = /down { return 302 http://origin.lab/object; }",
    );
    let script = "both get --json -o object https://origin.lab/moved && whole && \
                  both get --json -o object http://origin.lab/relative && whole && rm object && \
                  ! get -o object https://origin.lab/round 2>round && \
                  ! get -o object https://origin.lab/down 2>down && ls | grep object; true";
    let finished = testbed.run(&TWO_LINKS, script).expect_success();
    for transfer in Transfer::all(&finished.stdout) {
        transfer.assert_paths(&["wifi", "lte"]);
    }
    assert!(testbed.read("round").contains("the server redirects more than 10 times"));
    assert!(
        testbed.read("down").contains("from https to http://origin.lab/object, which is not safe")
    );
    assert_eq!(testbed.fetched(), [""; 0]);
}

/// The error distinguishes the two cases.
#[test]
fn a_port_that_speaks_something_else() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "! get --json https://origin.lab:80/object 2>plain && \
                  ! get --json http://origin.lab:443/object 2>secure && \
                  ! get --json --http2-prior-knowledge http://origin.lab/object 2>older && \
                  ls | grep object; true";
    let finished = testbed.run(&TWO_LINKS, script).expect_success();
    let transfers = Transfer::all(&finished.stdout);
    assert_eq!(transfers.len(), 3, "{}", finished.stdout);
    for transfer in &transfers {
        assert!(transfer.0["error"]["hint"].is_string(), "{transfer:?}");
    }
    let output = testbed.read("plain");
    assert!(output.contains("the server does not speak TLS"), "{output}");
    let output = testbed.read("secure");
    assert!(output.contains("400 Bad Request"), "{output}");
    let output = testbed.read("older");
    assert!(output.contains("HTTP/2"), "{output}");
    assert_eq!(testbed.fetched(), [""; 0]);
}

/// Apache can disable ranges, and nginx can limit the number of connections to one.
#[test]
fn servers_with_little_to_give() {
    needs_far!("apache2");
    let testbed = Testbed::new().with_config(
        "limit_conn all 1;\n  }\n  limit_conn_zone $server_name zone=all:1m;\n  server {\n    listen 81;",
    );
    let finished = testbed.run(
        &TWO_LINKS,
        "for url in http://origin.lab https://origin.lab; do \
           get --json $url/object 2>>said && whole && rm object || exit 1; done",
    );
    for transfer in Transfer::all(&finished.expect_success().stdout) {
        assert_eq!(transfer.number("bytes"), OBJECT_LENGTH);
    }
    let testbed = Testbed::new();
    let apache = testbed.apache_with("MaxRanges none\n");
    let links = [&TWO_LINKS[..], &["--far", &apache]].concat();
    let script = "over() { get --json $url/object 2>now; }; \
                  for url in http://origin.lab:8080 https://origin.lab:8443; do \
                    told now wifi 'does not answer range requests' over && whole && \
                    cat now >>said && rm object now || exit 1; done";
    let finished = testbed.run_with(&links, script).expect_success();
    for transfer in Transfer::all(&finished.stdout) {
        transfer.assert_paths(&["wifi"]);
    }
    let output = testbed.read("said");
    assert_eq!(output.matches("does not answer range requests").count(), 2, "{output}");
}
