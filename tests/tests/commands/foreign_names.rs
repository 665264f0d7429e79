//! Names from outside (applications, servers, files, rules, interfaces) hold escape sequences. None
//! of them may reach a terminal, whichever command shows the name.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use manyways_tests::testbed::Namespace;
use manyways_tests::{Finished, Need, finish, folder, manyways, manyways_path, needs};

/// Red from here on, a new title of the window, and a line that the program did not write.
const HOSTILE_NAME: &str = "\u{1b}[31mred\u{1b}]0;title\u{7}\u{9b}2J";

#[track_caller]
fn is_harmless(done: &Finished) {
    for text in [&done.stdout, &done.stderr] {
        let acts = |one: char| one.is_control() && !matches!(one, '\n' | '\t');
        assert!(!text.contains(acts), "{text:?}");
    }
}

/// The same, and shows the name.
#[track_caller]
fn is_shown(done: &Finished) {
    is_harmless(done);
    let text = [done.stdout.as_str(), &done.stderr].concat();
    assert!(text.contains("\\u001b[31mred"), "{text}");
}

fn run(folder: &Path, words: &[&str]) -> Finished {
    finish(manyways().args(words).current_dir(folder))
}

#[test]
fn radio_shows_applications_and_files_with_escape_sequences() {
    let folder = folder();
    let file = format!("{HOSTILE_NAME}.csv");
    let trace = format!("time,bytes,direction,app\n0,100,up,{HOSTILE_NAME}\n900,1000,down,news\n");
    std::fs::write(folder.path().join(&file), trace).unwrap();
    let radio = |words: &[&str]| {
        let done = run(folder.path(), &[&["radio"], words, &[&file, "--profile", "lte"]].concat());
        is_shown(&done);
        done
    };
    radio(&["energy"]).expect_success();
    radio(&["energy", "--by", "flow"]).expect_success();
    radio(&["simulate", "--policy", "makeidle"]).expect_success();
    radio(&["whatif", "--batch", "1min"]).expect_success();
    radio(&["whatif", "--without", "--app", HOSTILE_NAME]).expect_success();
    // The hint lists the applications.
    assert!(
        radio(&["whatif", "--without", "--app", "mail"])
            .stderr
            .contains("the applications are: \\u001b")
    );
    let done = radio(&["energy", "--json"]).expect_success();
    let found: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let owners = found["radios"][0]["owners"].as_array().unwrap();
    assert!(owners.iter().any(|owner| owner["name"] == HOSTILE_NAME), "{found:#}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_harmlessly_by_every_command() {
    let folder = folder();
    let name = format!("{HOSTILE_NAME}\nmanyways: all is well");
    std::fs::write(folder.path().join(&name), "no capture").unwrap();
    for words in [
        &["flows"][..],
        &["flows", "align"],
        &["flows", "export"],
        &["radio", "energy", "--profile", "lte"],
        &["radio", "check"],
        &["radio", "infer", "--probes"],
        &["bond", "check"],
        &["bond", "keygen", "--show"],
        &["lab", "check"],
        &["lab", "run"],
        &["lab", "shell", "--scenario"],
    ] {
        let done = run(folder.path(), &[words, &[&name]].concat());
        assert!(!done.status.success(), "{words:?}");
        is_harmless(&done);
        assert!(!done.stderr.contains("\nmanyways: all is well"), "{words:?}: {}", done.stderr);
    }
}

#[test]
fn flows_shows_captures_and_servers_with_escape_sequences() {
    let folder = folder();
    let file = format!("{HOSTILE_NAME}.pcap");
    // A capture that ends within its second packet.
    let mut capture = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    capture.extend([65_535_u32, 101, 1_700_000_000, 0, 1, 1].map(u32::to_le_bytes).concat());
    capture.extend([0x45, 1, 2]);
    std::fs::write(folder.path().join(&file), capture).unwrap();
    is_shown(&run(folder.path(), &["flows", &file]));
    is_harmless(&run(folder.path(), &["flows", "align", &file, &file]));
    let done = run(folder.path(), &["flows", "--json", &file]);
    is_shown(&done);
    let found: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(found["captures"][0]["name"], *file);
}

#[test]
fn bond_shows_rules_and_clients_with_escape_sequences() {
    let folder = folder();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    let escaped = "\\u001b[31mred\\u0007";
    for text in [
        format!("[[rule]]\nname = \"a\"\nuse = {{ paths = \"{escaped}\" }}\n"),
        format!("[[rule]]\nname = \"a\"\nuse = {{ paths = \"wifi\" }}\n\"{escaped}\" = 1\n"),
    ] {
        write("a.toml", text);
        is_shown(&run(folder.path(), &["bond", "check", "a.toml"]));
        is_shown(&run(folder.path(), &["bond", "check", "--json", "a.toml"]));
    }
    run(folder.path(), &["bond", "keygen", "key"]).expect_success();
    write("allow", format!("no-key {HOSTILE_NAME}\n"));
    let words = ["bond", "gateway", "--key", "key", "--allow", "allow", "--listen", "127.0.0.1:0"];
    let done = run(folder.path(), &words);
    assert_eq!(done.code(), 1);
    is_harmless(&done);
}

#[test]
fn lab_shows_links_and_labs_with_escape_sequences() {
    let folder = folder();
    let text = "name = \"one\"\n[link.\"\\u001b[31mred\"]\n";
    std::fs::write(folder.path().join("a.toml"), text).unwrap();
    is_shown(&run(folder.path(), &["lab", "check", "a.toml"]));
    is_shown(&run(folder.path(), &["lab", "shell", "--link", HOSTILE_NAME]));
    is_shown(&run(folder.path(), &["lab", "shell", "--link", "wifi", "--name", HOSTILE_NAME]));
    is_shown(&run(folder.path(), &["lab", "enter", HOSTILE_NAME]));
    is_shown(&run(folder.path(), &["lab", "status", HOSTILE_NAME]));
    is_shown(&run(folder.path(), &["lab", "set", "--lab", HOSTILE_NAME, "wifi", "down=1mbit"]));
}

/// An interface may have any name without a slash or a space.
#[test]
fn paths_shows_interfaces_with_escape_sequences() {
    needs!(Need::Root, Need::Command("ip"));
    let name = "\u{1b}[31mred";
    let script = "ip link add \"$1\" type veth peer name veth0 && ip link set \"$1\" up && \"$0\" paths --all && \
                  \"$0\" paths --json";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(manyways_path()).arg(name);
    is_shown(&Namespace::new().finish(&mut command).expect_success());
}

/// Header fields of a server: HTTP allows only C1 control characters.
#[test]
fn get_shows_what_a_server_says_with_escape_sequences() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 302 \u{9b}31mred\r\nLocation: http://\u{9b}31mred/\r\n\
                          WWW-Authenticate: Basic realm=\"\u{9b}31mred\"\r\n\
                          Content-Length: 0\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let folder = folder();
    let url = format!("http://{address}/{HOSTILE_NAME}");
    for words in [
        &["get", &url, "-o", "a"][..],
        &["get", &format!("http://{address}/a"), "-o", "a"],
        &["get", &format!("http://{address}/a"), "-o", "a", "--json"],
        &["get", HOSTILE_NAME],
    ] {
        let done =
            finish(manyways().args(words).current_dir(folder.path()).env("MANYWAYS_LOG", "debug"));
        assert!(!done.status.success(), "{words:?}: {}", done.stderr);
        is_harmless(&done);
    }
}

/// Messages of the shell and of the command-line parser contain only the user's own text; but a
/// name from a file-name pattern must not be obeyed either.
#[test]
fn words_of_the_command_line_that_make_no_sense_are_shown_harmlessly() {
    for words in [
        &["paths", HOSTILE_NAME][..],
        &["paths", "--to", HOSTILE_NAME],
        &[HOSTILE_NAME],
        &["radio", HOSTILE_NAME],
    ] {
        let done = finish(manyways().args(words.iter().map(OsStr::new)));
        assert_eq!(done.code(), 2, "{words:?}");
        is_harmless(&done);
    }
}
