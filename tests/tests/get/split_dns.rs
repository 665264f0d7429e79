//! Networks with different views of a server: each has separate name servers and routes.

use std::fs;

use manyways_tests::{Authority, Finished};

use crate::needs_far;
use crate::testbed::{Testbed, Transfer};

/// Runs a script in a scenario in which `www.lab` is a different host for each network.
fn two_hosts(testbed: &Testbed, hosts: &str, script: &str) -> Finished {
    let links = "name = \"unlike\"\n[link.wifi]\ndown = \"24mbit\"\ndelay = \"4ms\"\n\
                 [link.lte]\ndown = \"12mbit\"\ndelay = \"9ms\"\n";
    let path = testbed.path("scenario.toml");
    fs::write(&path, format!("{links}{hosts}")).expect("room for a scenario");
    testbed.run_with(&["--scenario", &path.display().to_string()], script)
}

fn host(name: &str, names: &str, serve: &str) -> String {
    format!("[host.{name}]\nnames = [{names}]\nserve = ['{serve}']\n")
}

#[test]
fn a_wrong_certificate_on_one_network() {
    needs_far!();
    let testbed = Testbed::new();
    let other = testbed.path("other");
    fs::create_dir(&other).expect("room for a folder");
    let other = Authority::new(&other, &["www.lab"]).expect("a certificate");
    let right = host("right", "\"www.lab@wifi\"", &testbed.nginx());
    let wrong = host("wrong", "\"www.lab@lte\"", &testbed.nginx_of("wrong", &other));
    let fetch = "get --json https://www.lab/object 2>said && whole && \
                 get --json --via lte,wifi https://www.lab/object 2>first && whole && \
                 ! get --via lte https://www.lab/object 2>alone";
    let finished = two_hosts(&testbed, &format!("{right}{wrong}"), fetch).expect_success();
    for transfer in Transfer::all(&finished.stdout) {
        transfer.assert_paths(&["wifi"]);
    }
    let reason = "the certificate of [fd00:18::2]:443 is not accepted: its signature is wrong";
    for said in ["said", "first"] {
        let output = testbed.read(said);
        assert!(output.contains("lte is no longer used") && output.contains(reason), "{output}");
    }
    let alone = testbed.read("alone");
    assert!(alone.contains("the only network failed (lte:") && alone.contains(reason), "{alone}");
    assert!(alone.contains("--cacert"), "{alone}");
}

#[test]
fn each_network_asks_its_own_server() {
    needs_far!();
    let testbed = Testbed::new();
    let certificate = Authority::new(&testbed.path("out"), &["www.lab"]).expect("a certificate");
    let near = host("near", "\"www.lab@wifi\"", &testbed.nginx_of("near", &certificate));
    let node = host("node", "\"www.lab@lte\"", &testbed.nginx_of("node", &certificate));
    let fetch = "both manyways get --cacert authority.pem --json https://www.lab/object && whole";
    let finished = two_hosts(&testbed, &format!("{near}{node}"), fetch).expect_success();
    let transfer = Transfer::only(&finished.stdout);
    transfer.assert_paths(&["wifi", "lte"]);
    assert_eq!(transfer.path("wifi")["server"], "fd00:18::1");
    assert_eq!(transfer.path("lte")["server"], "fd00:18::2");
}

/// The servers of one name have different files: the file never has bytes of both.
#[test]
fn another_object_behind_each_network() {
    needs_far!("touch");
    let others = [
        // Another length, other content of the same length, and the same content with another date.
        ("longer", "head -c 2000002 /dev/urandom"),
        ("other", "head -c 2000001 /dev/urandom"),
        ("later", "cat $FILES/root/object"),
    ];
    for (name, content) in others {
        let testbed = Testbed::new();
        fs::create_dir(testbed.path(name)).expect("room for a folder");
        let certificate =
            Authority::new(&testbed.path("out"), &["www.lab"]).expect("a certificate");
        let near = host("near", "\"www.lab@wifi\"", &testbed.nginx_of("near", &certificate));
        let node = host("node", "\"www.lab@lte\"", &testbed.nginx_with("node", &certificate, name));
        let fetch = format!(
            "umask 022; {content} >$FILES/{name}/object; touch -d '-2 hours' $FILES/{name}/object; \
             GET='manyways get --cacert authority.pem --json'; \
             over() {{ said=$1; shift; $GET \"$@\" https://www.lab/object 2>$said; }}; \
             told first wifi 'lte is no longer used' over first && whole && \
             told second lte 'wifi is no longer used' over second && \
             same object $FILES/{name}/object && \
             both $GET --single-server https://www.lab/object 2>single && whole"
        );
        let finished = two_hosts(&testbed, &format!("{near}{node}"), &fetch).expect_success();
        let [first, second, single] = &Transfer::all(&finished.stdout)[..] else {
            panic!("{}", finished.stdout)
        };
        first.assert_paths(&["wifi"]);
        let reason = "is no longer used: the server has another version of the object there";
        assert!(
            testbed.read("first").contains(&format!("lte {reason}")),
            "{}",
            testbed.read("first")
        );
        assert_eq!(second.bytes("wifi"), 0, "{second:?}");
        assert!(
            testbed.read("second").contains(&format!("wifi {reason}")),
            "{}",
            testbed.read("second")
        );
        single.assert_paths(&["wifi", "lte"]);
        assert_eq!(single.path("lte")["server"], single.path("wifi")["server"]);
    }
}

/// Each network follows the redirect and resolves the new name separately.
#[test]
fn a_redirect_to_another_host() {
    needs_far!();
    let testbed =
        Testbed::new().with_config("location = /film { return 302 https://www.lab/object; }");
    let certificate =
        Authority::new(&testbed.path("out"), &["www.lab", "first.lab"]).expect("a certificate");
    let door = host("door", "\"first.lab\"", &testbed.nginx_of("door", &certificate));
    let near = host("near", "\"www.lab@wifi\"", &testbed.nginx_of("near", &certificate));
    let node = host("node", "\"www.lab@lte\"", &testbed.nginx_of("node", &certificate));
    // The second time LTE begins when Wi-Fi is paused, so that it cannot ask there.
    let fetch = "GET='manyways get --cacert authority.pem --json -o object'; \
                 both $GET https://first.lab/film && whole && \
                 change --when 'wifi.down_bytes >= 200KB' --until 'lte.down_bytes >= 20KB' \
                   wifi state=paused && \
                 change --until 'wifi.down_bytes >= 200KB' lte state=paused && \
                 $GET --single-server https://first.lab/film && whole";
    let finished = two_hosts(&testbed, &format!("{door}{near}{node}"), fetch).expect_success();
    let [each, single] = &Transfer::all(&finished.stdout)[..] else {
        panic!("{}", finished.stdout)
    };
    each.assert_paths(&["wifi", "lte"]);
    assert_eq!(each.path("wifi")["server"], "fd00:18::2");
    assert_eq!(each.path("lte")["server"], "fd00:18::3");
    single.assert_paths(&["wifi", "lte"]);
    assert_eq!(single.path("lte")["server"], single.path("wifi")["server"]);
}

#[test]
fn a_name_that_no_network_knows() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "! get --json https://nowhere.lab/object 2>said; ls | grep object; true";
    let finished = testbed.run(&crate::testbed::TWO_LINKS, script).expect_success();
    let failed = Transfer::only(&finished.stdout);
    let said = failed.0["error"]["message"].as_str().expect("an error");
    assert!(said.contains("the name nowhere.lab does not exist"), "{said}");
    assert!(failed.0["error"]["hint"].is_string(), "{failed:?}");
    assert_eq!(testbed.fetched(), [""; 0]);
}

#[test]
fn a_name_that_one_network_does_not_know() {
    needs_far!();
    let testbed = Testbed::new();
    let known = host("origin", "\"www.lab@lte\"", &testbed.nginx());
    let fetch = "get --json https://www.lab/object 2>said && whole && \
                 ! get --via wifi https://www.lab/object 2>alone";
    let finished = two_hosts(&testbed, &known, fetch).expect_success();
    Transfer::only(&finished.stdout).assert_paths(&["lte"]);
    let alone = testbed.read("alone");
    assert!(alone.contains("the only network failed (wifi: the name www.lab "), "{alone}");
}

/// The portal's page is not the file, although the server of that network answers first.
#[test]
fn a_captive_portal_on_one_network() {
    needs_far!();
    let wifi = "if ($remote_addr ~ ':64:1::2|10.64.1.2')";
    let testbed = Testbed::new().with_config(&format!(
        "location = /login {{ default_type text/html; add_header Cache-Control no-store; \
           return 200 '<html>Please log in</html>'; }}\n\
         location /redirect/ {{ alias ROOT/; {wifi} {{ return 302 http://198.18.0.1/login; }} }}\n\
         location /page/ {{ alias ROOT/; {wifi} {{ rewrite ^ /login last; }} }}\n"
    ));
    // More than the answers of the name server, and less than those with the page.
    let script = "first_bytes=600; for kind in redirect page; do \
                    first wifi get --json http://origin.lab/$kind/object 2>said-$kind && whole || exit 1; \
                  done";
    let finished = testbed.run(&crate::testbed::TWO_LINKS, script).expect_success();
    let transfers = Transfer::all(&finished.stdout);
    for (transfer, (kind, host)) in
        transfers.iter().zip([("redirect", ", from 198.18.0.1,"), ("page", "")])
    {
        transfer.assert_paths(&["lte"]);
        let output = testbed.read(&format!("said-{kind}"));
        let words = format!("wifi is no longer used: its answer{host} looks like a login page");
        assert!(output.contains(&words), "{output}");
    }
}

#[test]
fn a_refusal_on_one_network() {
    needs_far!();
    let refuse = |status: u16, link: u8| {
        format!(
            "location /no{status}-{link}/ {{ alias ROOT/; \
             if ($remote_addr ~ ':64:{link}::2|10.64.{link}.2') {{ return {status}; }} }}\n"
        )
    };
    let all = [(403, 1), (404, 1), (403, 2), (404, 2)];
    let testbed =
        Testbed::new().with_config(&all.map(|(status, link)| refuse(status, link)).concat());
    let kinds = all.map(|(status, link)| format!("no{status}-{link}")).join(" ");
    let finished = testbed.run(
        &crate::testbed::TWO_LINKS,
        &format!(
            "for kind in {kinds}; do \
               get --json http://origin.lab/$kind/object 2>said-$kind && whole || exit 1; \
             done; ! get http://origin.lab/nothing 2>nothing && ! test -e nothing.manyways-part"
        ),
    );
    let finished = finished.expect_success();
    for (transfer, (status, link)) in Transfer::all(&finished.stdout).iter().zip(all) {
        let (left_out, used) = if link == 1 { ("wifi", "lte") } else { ("lte", "wifi") };
        transfer.assert_paths(&[used]);
        let output = testbed.read(&format!("said-no{status}-{link}"));
        let words =
            format!("{left_out} is no longer used: the server answered with status {status}");
        assert!(output.contains(&words), "{output}");
    }
    let nothing = testbed.read("nothing");
    assert!(nothing.contains("the server answered 404 Not Found"), "{nothing}");
    assert!(!nothing.contains("no longer used"), "{nothing}");
}
