//! Users other than root, and the host's own network for root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use manyways_tests::testbed::Namespace;
use manyways_tests::{Finished, Need, finish, folder, manyways_path, missing, needs};

use crate::running::{nginx_script, shared_host};

const ALLOWED_CC: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Runs a script as an unprivileged user. `tun` selects whether the user may open `/dev/net/tun`,
/// as on most machines. The binary and the server script are copied to a readable folder; the
/// script has them as `$manyways` and `$nginx`.
fn as_nobody(tun: bool, script: &str) -> Finished {
    let files = folder();
    let file = |name: &str| files.path().join(name).display().to_string();
    fs::copy(manyways_path(), file("manyways")).expect("room for the binary");
    fs::copy(nginx_script(), file("nginx.sh")).expect("room for a script");
    fs::create_dir(file("run")).expect("room for a folder");
    fs::set_permissions(file("run"), fs::Permissions::from_mode(0o777)).expect("its permissions");
    fs::write(file("script"), script).expect("room for a script");
    // In a separate mount namespace, because the host's device file must not change.
    let mode = if tun { "666" } else { "600" };
    let prepare = format!(
        "mknod -m {mode} {tun} c 10 200 && mount --bind {tun} /dev/net/tun && cd / && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
         env XDG_RUNTIME_DIR={run} manyways={manyways} nginx={nginx} sh {script}",
        tun = file("tun"),
        run = file("run"),
        manyways = file("manyways"),
        nginx = file("nginx.sh"),
        script = file("script"),
    );
    let _guard = shared_host();
    finish(Command::new("unshare").args(["--mount", "sh", "-c", &prepare]))
}

#[test]
fn a_user_without_rights_gets_a_lab() {
    needs!(
        Need::Root,
        Need::UserNamespaces,
        Need::Command("nginx"),
        Need::Command("curl"),
        Need::Command("ping")
    );
    let done = as_nobody(
        true,
        "$manyways lab shell --name mine --cc reno --link wifi:down=20mbit,delay=1ms \
         --link lte:delay=2ms,middlebox=nat --far \"sh $nginx origin\" -- sh -c '\n\
         curl -sS --interface lte http://198.18.0.1/address\n\
         curl -sS --interface wifi -o /dev/null -w \"%{size_download}\\n\" http://origin.lab/1M\n\
         cat /proc/sys/net/ipv4/tcp_congestion_control\n\
         ls /sys/class/net | grep -v lo; $manyways lab list; $manyways lab set wifi delay=3ms\n\
         ping -q -c 1 -I wifi origin.lab >/dev/null && sleep 1000 & exit 6'\n\
         echo $?; $manyways lab list; ls $XDG_RUNTIME_DIR/manyways; \
         cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c LAB_NAME=mine",
    );
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[..5], ["100.64.2.1", "1000000", "reno", "lte", "wifi"], "{}", done.stderr);
    assert!(lines[5].starts_with("mine "), "{}", done.stdout);
    assert_eq!(lines[6..], ["6", "no lab is running", "lock", "0"], "{}", done.stderr);
}

#[test]
fn a_user_can_enter_and_gc() {
    needs!(Need::Root, Need::UserNamespaces, Need::Command("ip"));
    let done = as_nobody(
        true,
        "mkfifo $XDG_RUNTIME_DIR/ready\n\
         $manyways lab shell --name mine --cc reno --link wifi -- \
         sh -c 'echo > $XDG_RUNTIME_DIR/ready; exec sleep 1000' &\n\
         read x < $XDG_RUNTIME_DIR/ready\n\
         $manyways lab enter mine --host origin -- ip -o -4 addr show lo | grep -c 198.18.0.1/32\n\
         kill -9 $!; wait $!; $manyways lab gc; $manyways lab gc",
    );
    assert_eq!(done.stdout, "1\nremoved mine\nnothing to remove\n", "{}", done.stderr);
}

#[test]
fn what_a_user_may_not_is_one_sentence() {
    needs!(Need::Root, Need::Command("ip"));
    let shell = "$manyways lab shell --link wifi";
    let run = |tun: bool, command: &str| as_nobody(tun, &format!("{command} -- true"));
    let said = |done: Finished| {
        assert_eq!(done.code(), 1, "{}", done.stderr);
        let lines = done.stderr.lines().count();
        assert!((1..=2).contains(&lines), "{}", done.stderr);
        done.stderr
    };
    // The host may allow it, and so does each lab of root that uses it, as long as it runs. The
    // command line of a test must not change the setting.
    let is_allowed = || fs::read_to_string(ALLOWED_CC).unwrap().contains("cubic");
    let mut unrefused = 0;
    while !is_allowed() {
        let done = run(true, shell);
        if done.code() != 0 {
            let stderr = said(done);
            assert!(stderr.contains("TCP congestion control `cubic` cannot be used"), "{stderr}");
            assert!(stderr.contains("hint: "), "{stderr}");
            break;
        }
        // Another lab may have run at the same time, but hardly three times.
        unrefused += 1;
        assert!(unrefused < 3, "a user got what the host does not allow");
    }
    if missing(&[Need::UserNamespaces]).is_none() {
        let stderr = said(run(false, &format!("{shell} --cc reno")));
        assert!(stderr.contains("cannot open /dev/net/tun: Permission denied"), "{stderr}");
        assert!(stderr.contains("hint: run it as root, or let all users open it"), "{stderr}");
    }
}

#[test]
fn the_hosts_network_is_for_root() {
    needs!(Need::Root, Need::UserNamespaces, Need::Command("ip"));
    let done = as_nobody(true, "$manyways lab shell --cc reno --internet --link wifi -- true");
    assert_eq!(done.code(), 2, "{}", done.stderr);
    assert_eq!(
        done.stderr,
        "manyways: only root can give a lab the host's network\n\
         hint: run it as root, or leave --internet out\n"
    );
}

/// A separate network namespace of the test stands for the host, so that the real host is not
/// affected.
#[test]
fn the_way_out_comes_and_goes() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nft"), Need::Command("curl"));
    needs!(Need::Command("nginx"), Need::File("/proc/sys/net/ipv4/ip_forward"));
    let files = folder();
    let script = files.path().join("script");
    // A server on an address of the host that is unknown in the lab.
    fs::write(
        &script,
        format!(
            "ip link set lo up; ip addr add 203.0.113.7/32 dev lo\n\
             state() {{ nft list ruleset; cat /proc/sys/net/ipv4/ip_forward; ip -br addr; }}\n\
             before=$(state)\n\
             LAB_DIR={dir} sh {nginx} outside & server=$!\n\
             until curl -sS -o /dev/null http://203.0.113.7/address 2>/dev/null; do \
               kill -0 $server || exit 1; done\n\
             lab='{manyways} lab shell --cc reno --internet --link wifi:delay=1ms --link lte'\n\
             $lab -- sh -c 'for link in wifi lte; do \
               curl -sS --interface $link http://203.0.113.7/address; done; \
               curl -sS -o /dev/null -w \"%{{size_download}}\\n\" http://203.0.113.7/1M; \
               getent hosts www.example.com || echo nobody'\n\
             [ \"$(state)\" = \"$before\" ] && echo as before\n\
             mkfifo {dir}/ready\n\
             $lab -- sh -c 'echo > {dir}/ready; exec sleep 1000' & pid=$!\n\
             read x < {dir}/ready\n\
             state | grep -c 'ip saddr 100.127.*masquerade'; cat /proc/sys/net/ipv4/ip_forward\n\
             kill -9 $pid; wait $pid; {manyways} lab gc >/dev/null\n\
             [ \"$(nft list ruleset)\" = '' ] && cat /proc/sys/net/ipv4/ip_forward\n\
             kill $server",
            dir = files.path().display(),
            nginx = nginx_script(),
            manyways = manyways_path().display(),
        ),
    )
    .expect("room for a script");
    let _guard = shared_host();
    let done = Namespace::new().finish(Command::new("sh").arg(&script));
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines.len() > 2, "{done:?}");
    for line in &lines[..2] {
        assert!(line.starts_with("100.127."), "the host sees one neighbour: {done:?}");
    }
    assert_eq!(lines[2..], ["1000000", "nobody", "as before", "1", "1", "0"], "{}", done.stderr);
}

/// Output of a test host before and after a lab, and the result of `inside` in the lab.
fn way_out_v6(prepare: &str, inside: &str) -> Finished {
    let files = folder();
    let script = files.path().join("script");
    let text = format!(
        "ip link set lo up; ip -6 addr add 2001:db8:7::7/128 dev lo nodad\n\
         ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up\n\
         {prepare}\n\
         state() {{ cd /proc/sys/net/ipv6/conf; grep . */accept_ra all/forwarding; ip -6 route; \
           nft list ruleset; }}\n\
         LAB_DIR={dir} sh {nginx} outside & server=$!\n\
         until curl -sS -o /dev/null 'http://[2001:db8:7::7]/address' 2>/dev/null; do \
           kill -0 $server || exit 1; done\n\
         before=$(state)\n\
         {manyways} lab shell --cc reno --internet --link wifi:delay=1ms -- sh -c '{inside}'\n\
         [ \"$(state)\" = \"$before\" ] && echo as before\n\
         kill $server",
        dir = files.path().display(),
        nginx = nginx_script(),
        manyways = manyways_path().display(),
    );
    fs::write(&script, text).expect("room for a script");
    let _guard = shared_host();
    Namespace::new().finish(Command::new("sh").arg(&script))
}

#[test]
fn the_way_out_has_ipv6_where_the_host_has_it() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nft"), Need::Command("curl"));
    needs!(Need::Command("nginx"), Need::File("/proc/sys/net/ipv6/conf/all/forwarding"));
    let done = way_out_v6(
        "ip -6 addr add 2001:db8:1::1/64 dev up0 nodad; ip -6 route add default via 2001:db8:1::2",
        "curl -sS --interface wifi http://[2001:db8:7::7]/address; \
         curl -sS -o /dev/null -w \"%{size_download}\\n\" http://[2001:db8:7::7]/1M",
    );
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines.first().is_some_and(|line| line.starts_with("fd00:127:")), "{done:?}");
    assert_eq!(lines[1..], ["1000000", "as before"], "{}", done.stderr);
    assert!(!done.stderr.contains("IPv6"), "{}", done.stderr);
}

/// IPv6 connections are refused immediately, so that clients need not wait for a timeout.
#[test]
fn the_way_out_says_that_the_host_has_no_ipv6() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nft"), Need::Command("curl"));
    needs!(Need::Command("nginx"), Need::File("/proc/sys/net/ipv6/conf/all/forwarding"));
    let done = way_out_v6("true", "curl -s -m 100 http://[2001:db8:9::9]/; echo $?");
    let said = "manyways: this machine has no IPv6 route to the internet";
    assert!(done.stderr.contains(said), "{}", done.stderr);
    // curl's exit code 7: cannot connect; 28 would be a timeout.
    assert_eq!(done.stdout, "7\nas before\n", "{}", done.stderr);
}
