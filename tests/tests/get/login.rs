//! Servers that require a user name and a password.

use std::fs;

use manyways_tests::{finish, manyways};

use crate::needs_far;
use crate::testbed::{TWO_LINKS, Testbed, Transfer};

/// The password of user `me` for `/closed/object`.
const PASSWORD: &str = "open sesame@9";

fn testbed() -> Testbed {
    let testbed = Testbed::new().with_config(
        "location /closed/ { alias ROOT/; auth_basic closed; \
         auth_basic_user_file ROOT/../htpasswd; }\n\
         location = /moved { return 302 http://198.18.0.1/closed/object; }\n\
         location = /near/object { return 302 http://origin.lab/closed/object; }",
    );
    fs::write(testbed.path("htpasswd"), format!("me:{{PLAIN}}{PASSWORD}\n"))
        .expect("room for a file");
    testbed
}

#[test]
fn whoever_says_who_they_are_gets_it_over_all_networks() {
    needs_far!();
    let testbed = testbed();
    let netrc = format!(
        "machine other.lab login me password wrong\nmachine origin.lab login you password wrong\n\
         machine origin.lab login me password \"{PASSWORD}\"\n"
    );
    fs::write(testbed.path("out/netrc"), &netrc).expect("room for a file");
    let mine = format!("machine origin.lab login me password \"{PASSWORD}\"");
    fs::write(testbed.path("out/.netrc"), mine).expect("room for a file");
    let script = format!(
        "url=http://origin.lab/closed/object; \
         fetch() {{ both get --json --events log \"$@\" 2>said && whole && rm object || exit 1; }}; \
         fetch -u 'me:{PASSWORD}' $url; \
         fetch http://me:open%20sesame%409@origin.lab/closed/object; \
         fetch --netrc=netrc http://me@origin.lab/closed/object; \
         HOME=$PWD; export HOME; fetch --netrc $url; \
         fetch -u 'me:{PASSWORD}' http://origin.lab/near/object; \
         ! grep -s -q sesame said log *.manyways"
    );
    let finished = testbed.run(&TWO_LINKS, &script).expect_success();
    for transfer in Transfer::all(&finished.stdout) {
        transfer.assert_paths(&["wifi", "lte"]);
    }
    assert!(
        !finished.stdout.contains("sesame") && !finished.stderr.contains("sesame"),
        "{finished:?}"
    );
}

#[test]
fn nobody_else_gets_the_password() {
    needs_far!();
    let testbed = testbed();
    let script = format!(
        "get http://origin.lab/closed/object 2>none; echo $? >code; \
         get -u me:wrong http://origin.lab/closed/object 2>wrong; \
         MANYWAYS_LOG=trace get -u 'me:{PASSWORD}' http://origin.lab/moved 2>moved; \
         MANYWAYS_LOG=trace get http://me:open%20sesame%409@origin.lab/moved 2>moved-too; true"
    );
    testbed.run(&TWO_LINKS, &script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    for file in ["none", "wrong", "moved", "moved-too"] {
        let output = testbed.read(file);
        let last = output.lines().rev().take(2).collect::<String>();
        assert!(last.contains("the server answered 401 Unauthorized"), "{file}: {output}");
        assert!(last.contains("-u USER:PASSWORD"), "{file}: {output}");
        assert!(!output.contains("sesame"), "{file}: {output}");
    }
}

#[test]
fn a_password_is_never_repeated() {
    for (words, reason) in [
        (&["-u", ":secret", "http://a/b"][..], "-u needs a user name"),
        (&["http://me:secret@a:99999/b"], "the port in the URL http://a:99999/b is not valid"),
        (&["http://me:sec/secret@a/b"], "the port in the URL http://…@a/b is not valid"),
        (&["ftp://me:secret@a/b"], "ftp://a/b is not an http:// or https:// URL"),
        (&["http://me:secret@a/"], "the URL http://a/ contains no file name"),
        (&["--netrc=/nowhere/netrc", "http://a/b"], "/nowhere/netrc cannot be read"),
    ] {
        let done = finish(manyways().arg("get").args(words));
        assert!([1, 2].contains(&done.code()), "{words:?}");
        assert!(done.stderr.contains(reason), "{words:?}: {}", done.stderr);
        assert!(!done.stderr.contains("secret"), "{words:?}: {}", done.stderr);
    }
}
