//! The network environment of a command in a lab.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use manyways_tests::{Need, finish, folder, manyways_path, needs};

use crate::running::{TWO_LINKS, lab_shell, nginx, script_in};

#[test]
fn every_link_has_addresses_a_table_and_rules() {
    needs!(Need::Root, Need::Command("ip"));
    let seen = script_in(
        &TWO_LINKS,
        "ip -o addr; ip -4 rule; ip -6 rule; ip -4 route show table 102; ip -6 route show table 102; \
         ip route show default; ip -6 route show default; cat /etc/resolv.conf",
    )
    .expect_success()
    .stdout;
    for part in [
        "wifi    inet 10.64.1.2/24",
        "wifi    inet6 fd00:64:1::2/64",
        "lte    inet 10.64.2.2/24",
        "lte    inet6 fd00:64:2::2/64",
        "from 10.64.2.2 lookup 102",
        "from fd00:64:2::2 lookup 102",
        "oif wifi lookup 101",
        "oif lte lookup 102",
        "default via 10.64.2.1 dev lte \n",
        "default via fd00:64:2::1 dev lte metric 1024",
        "default via 10.64.1.1 dev wifi metric 100",
        "default via fd00:64:2::1 dev lte metric 101",
        "nameserver 10.64.1.1\nnameserver 10.64.2.1\n",
    ] {
        assert!(seen.contains(part), "no `{part}` in\n{seen}");
    }
}

#[test]
fn the_kernel_is_set_for_several_networks() {
    needs!(Need::Root, Need::Command("ip"));
    let options = [&TWO_LINKS[..], &["--cc", "reno"]].concat();
    let finished = script_in(
        &options,
        "cd /proc/sys/net/ipv4; cat conf/all/rp_filter conf/wifi/rp_filter conf/lte/rp_filter \
         tcp_congestion_control; cut -f 3 tcp_rmem; cut -f 3 tcp_wmem",
    )
    .expect_success();
    assert_eq!(finished.stdout, "2\n2\n2\nreno\n67108864\n67108864\n");
    assert!(finished.stderr.contains("congestion control reno"), "{}", finished.stderr);
}

#[test]
fn names_resolve_in_both_families() {
    needs!(Need::Root, Need::Command("ip"));
    let lookup = "getent ahostsv4 origin.lab; getent ahostsv6 origin.lab; \
                  getent ahosts nobody.lab || echo none";
    let seen = script_in(&TWO_LINKS, lookup).expect_success().stdout;
    assert!(seen.contains("198.18.0.1 "), "{seen}");
    assert!(seen.contains("fd00:18::1 "), "{seen}");
    assert!(seen.ends_with("none\n"), "{seen}");
}

/// The address that the server sees is decisive, because the server has another network stack.
#[test]
fn a_bound_socket_takes_its_link_there_and_back() {
    needs!(Need::Root, Need::Command("nginx"), Need::Command("curl"));
    let [far, command] = nginx();
    let options = [&TWO_LINKS[..], &[&far, &command]].concat();
    let seen = script_in(
        &options,
        "for to in 198.18.0.1 '[fd00:18::1]'; do \
           for from in wifi lte 10.64.2.2 fd00:64:2::2; do \
             case $to$from in 198*fd00*|*::1*10.64*) continue;; esac; \
             curl -sS --interface $from http://$to/address || exit 1; \
           done; \
         done; \
         sent() { cat /sys/class/net/lte/statistics/tx_packets; }; \
         for from in wifi lte 10.64.1.2 10.64.2.2; do before=$(sent); \
           curl -sS --interface $from http://198.18.0.1/8M -o /dev/null; \
           echo $from $(($(sent) - before > 30)); done",
    )
    .expect_success()
    .stdout;
    assert_eq!(
        seen,
        "10.64.1.2\n10.64.2.2\n10.64.2.2\nfd00:64:1::2\nfd00:64:2::2\nfd00:64:2::2\n\
         wifi 0\nlte 1\n10.64.1.2 0\n10.64.2.2 1\n"
    );
}

#[test]
fn exit_codes_and_signals_pass_through() {
    needs!(Need::Root, Need::Command("ip"));
    assert_eq!(script_in(&TWO_LINKS, "exit 7").code(), 7);
    assert_eq!(script_in(&TWO_LINKS, "kill -TERM $$").code(), 143);
    assert_eq!(script_in(&TWO_LINKS, "true").code(), 0);
}

#[test]
fn input_and_output_pass_through() {
    needs!(Need::Root, Need::Command("ip"));
    let _guard = crate::running::shared_host();
    let mut child = lab_shell(&TWO_LINKS)
        .args(["--", "sh", "-c", "tr a-z A-Z; echo done >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("piped above").write_all(b"every byte\n").expect("somebody reads");
    let output = child.wait_with_output().expect("a child can be waited for");
    assert_eq!(output.stdout, b"EVERY BYTE\n");
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("done\n"));
}

/// Entering a mount namespace changes to its root; the command must start in the caller's folder.
#[test]
fn a_command_starts_where_its_caller_is() {
    needs!(Need::Root, Need::Command("ip"));
    let here = folder();
    fs::write(here.path().join("note"), "found\n").expect("room for a word");
    let _guard = crate::running::shared_host();
    let command = ["lab", "shell", "--link", "wifi", "--", "cat", "note"];
    let mut command_here = Command::new(manyways_path());
    let done = finish(command_here.args(command).current_dir(here.path())).expect_success();
    assert_eq!(done.stdout, "found\n");
}

/// A workload that calls `manyways` gets the binary that created the lab.
#[test]
fn the_lab_runs_its_own_binary() {
    needs!(Need::Root, Need::Command("ip"));
    let done = script_in(&TWO_LINKS, "command -v manyways && manyways paths").expect_success();
    assert_eq!(done.stdout.lines().next(), manyways_path().to_str());
    for name in ["wifi", "lte"] {
        assert!(done.stdout.contains(name), "{}", done.stdout);
    }
}

/// Commands in a lab can change the lab itself.
#[test]
fn a_lab_can_be_listed_and_set_from_within() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let done = script_in(
        &[&TWO_LINKS[..], &["--name", &crate::running::name("within")]].concat(),
        "manyways lab list | grep -o $LAB_NAME; manyways lab gc >/dev/null; ls $LAB_DIR/hosts >/dev/null && \
         manyways lab set --lab $LAB_NAME wifi state=silent && \
         ! ping -q -c 1 -W 1 -I wifi 198.18.0.1 >/dev/null && \
         manyways lab set --lab $LAB_NAME wifi state=up && \
         ping -q -c 1 -W 30 -I wifi 198.18.0.1 >/dev/null && echo back",
    )
    .expect_success();
    assert!(done.stdout.starts_with("within-") && done.stdout.ends_with("back\n"), "{done:?}");
}
