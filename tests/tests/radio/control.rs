//! `manyways radio control` on a veth pair, with a check of every packet.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use manyways_tests::testbed::{Namespace, PATIENCE, ip};
use manyways_tests::{
    Folder, Need, RADIO, Running, finish, folder, manyways, manyways_path, needs,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Both ends of a veth pair in a network namespace without other traffic.
struct Cable {
    namespace: Namespace,
    folder: Folder,
}

/// Packets to this address leave over `near`; packets to the other one arrive there. No host has
/// either address, and there are no answers.
const OUTGOING: &str = "192.0.2.2:9";
const INCOMING: &str = "198.51.100.1:9";
const CABLE: &str = r#"set -e
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
ip link add near address 02:00:00:00:00:01 type veth peer name far address 02:00:00:00:00:02
ip addr add 192.0.2.1/24 dev near; ip link set near up; ip link set far up
ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev near nud permanent
ip route add 198.51.100.1 dev far src 192.0.2.1
ip neigh add 198.51.100.1 lladdr 02:00:00:00:00:01 dev far nud permanent"#;

/// The programs and rights that a [`Cable`] needs.
const NEEDS: Need = Need::All(&[Need::Root, Need::Command("ip"), Need::Command("setpriv")]);

impl Cable {
    fn new() -> Self {
        let (namespace, folder) = (Namespace::new(), folder());
        fs::write(folder.path().join("radio.toml"), RADIO).expect("room for a profile");
        namespace.finish(Command::new("sh").args(["-c", CABLE])).expect_success();
        Self { namespace, folder }
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("radio.toml")
    }

    fn socket(&self) -> UdpSocket {
        self.namespace.bind(([0, 0, 0, 0], 0).into())
    }

    /// Runs `radio control` on the near end.
    #[track_caller]
    fn control(&self, arguments: &[&str]) -> Control {
        let mut command = Command::new("sh");
        // The output stays open while a process has one of the two streams.
        command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(manyways_path());
        command.args(["radio", "control", "--interface", "near", "--json", "--profile"]);
        command.arg(self.profile()).args(arguments);
        let mut running = self.namespace.start(command.stdout(Stdio::piped()));
        let out = BufReader::new(running.stdout().expect("piped"));
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        let control = Control { running, lines, time: Cell::new(0.0) };
        assert_eq!(control.line()["schema"], "manyways.events/2");
        assert_eq!(control.line()["event"], "radio-begin");
        control
    }
}

/// A running `radio control`.
struct Control {
    running: Running,
    lines: Receiver<String>,
    /// Time of the last event.
    time: Cell<f64>,
}

impl Control {
    /// The next line as JSON, or as a string if the line is not JSON.
    #[track_caller]
    fn line(&self) -> Value {
        self.parse(self.lines.recv_timeout(PATIENCE).expect("it goes on"))
    }

    /// Also checks that times do not go back.
    #[track_caller]
    fn parse(&self, line: String) -> Value {
        let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
        if let Some(time) = value["time"].as_f64() {
            assert!(time >= self.time.replace(time), "{value}");
        }
        value
    }

    #[track_caller]
    fn event(&self, kind: &str) -> Value {
        let event = self.line();
        assert_eq!(event["event"], kind, "{event}");
        event
    }

    /// The next line, which is the output of a command.
    #[track_caller]
    fn text(&self) -> String {
        let line = self.line();
        line.as_str().unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Sends the signal, and waits until the output is closed.
    #[track_caller]
    fn end(mut self, signal: Signal) -> Vec<Value> {
        self.running.signal(signal);
        let status = self.running.wait(PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(0));
        self.remaining_events()
    }

    #[track_caller]
    fn remaining_events(&self) -> Vec<Value> {
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => said.push(self.parse(line)),
                Err(mpsc::RecvTimeoutError::Disconnected) => return said,
                Err(error) => panic!("the output is still open: {error}, {said:?}"),
            }
        }
    }
}

#[track_caller]
fn number(event: &Value, field: &str) -> f64 {
    event[field].as_f64().unwrap_or_else(|| panic!("{field}: {event}"))
}

/// Rounds of a request and its answer, with a dormancy after each.
fn sleeps_between(arguments: &[&str], header: u64) {
    needs!(NEEDS);
    const ROUNDS: u64 = 3;
    let cable = Cable::new();
    let socket = cable.socket();
    let control =
        cable.control(&[&["--policy", "fixed:0.05", "--min-interval", "1ms"], arguments].concat());
    let (mut sent, mut received, mut slept, mut idle) = (0, 0, 0.0, 0.0);
    for round in 0..ROUNDS {
        let (away, back) = ([0; 100], [0; 1_000]);
        socket.send_to(&away, OUTGOING).expect("it is sent");
        sent += 28 + header + 100;
        if round > 0 {
            slept += number(&control.event("radio-wake"), "slept_seconds");
        }
        let sleep = control.event("radio-sleep");
        assert!(number(&sleep, "idle_seconds") > 0.05, "{sleep}");
        assert_eq!(number(&sleep, "wait_seconds"), 0.05);
        socket.send_to(&back, INCOMING).expect("it is sent");
        received += 28 + header + 1_000;
        slept += number(&control.event("radio-wake"), "slept_seconds");
        idle = number(&control.event("radio-sleep"), "idle_seconds");
    }
    let last = control.end(Signal::SIGINT);
    let [summary] = last.as_slice() else { panic!("{last:?}") };
    for (field, expected) in [
        ("packets", 2 * ROUNDS),
        ("sent_bytes", sent),
        ("received_bytes", received),
        ("missed_packets", 0),
        ("sleeps", 2 * ROUNDS),
        ("switches", 2 * ROUNDS),
        ("status_quo_switches", 1),
        ("commands", 0),
    ] {
        assert_eq!(summary[field], expected, "{field}: {summary}");
    }
    // The saving is 1 W while dormant, and the rest of the tail at the end; each switch took 2 mJ.
    let saved = number(summary, "status_quo_joules") - number(summary, "joules");
    let expected = slept + 600.0 - idle - 2e-3 * (2.0 * ROUNDS as f64 - 1.0);
    assert!((saved - expected).abs() < 1e-6, "{saved} {expected}: {summary}");
}

#[test]
fn dormancy_follows_captured_packets() {
    sleeps_between(&[], 0);
}

/// Counters include the link header of a packet.
#[test]
fn dormancy_follows_counted_packets() {
    sleeps_between(&["--counters", "--step", "5ms"], 14);
}

#[test]
fn the_status_quo_sleeps_never_and_sees_all() {
    needs!(NEEDS);
    let cable = Cable::new();
    let socket = cable.socket();
    let control = cable.control(&["--policy", "status-quo"]);
    for _ in 0..500 {
        socket.send_to(&[0; 10], OUTGOING).unwrap();
    }
    let last = control.end(Signal::SIGTERM);
    let [summary] = last.as_slice() else { panic!("{last:?}") };
    assert_eq!((&summary["packets"], &summary["sleeps"]), (&500.into(), &0.into()), "{summary}");
    assert_eq!(summary["joules"], summary["status_quo_joules"]);
    assert_eq!(summary["saved_share"], 0.0);
}

/// The radio goes idle whenever possible, and never while a packet is unreported.
#[test]
fn every_packet_is_reported_before_a_dormancy() {
    needs!(NEEDS);
    let cable = Cable::new();
    let socket = cable.socket();
    let control = cable.control(&["--policy", "fixed:0", "--min-interval", "0s"]);
    const PACKETS: usize = 3_000;
    for round in 0..PACKETS {
        socket.send_to(&[0; 10], OUTGOING).unwrap();
        // Sometimes there is time for a dormancy.
        if round % 100 == 0 {
            while control.line()["event"] != "radio-sleep" {}
        }
    }
    let last = control.end(Signal::SIGINT);
    let summary = last.last().expect("there is a summary");
    assert_eq!(summary["packets"], PACKETS, "{summary}");
    // The kernel counts a packet shortly after its timestamp.
    assert!(number(summary, "late_packets") < 30.0, "{summary}");
}

#[test]
fn time_is_up() {
    needs!(NEEDS);
    let cable = Cable::new();
    let mut control = cable.control(&["--for", "50ms"]);
    assert_eq!(control.running.wait(PATIENCE).and_then(|status| status.code()), Some(0));
    let last = control.remaining_events();
    assert!(number(&last[0], "seconds") >= 0.05 && last.len() == 1, "{last:?}");
    assert_eq!(last[0]["saved_share"], Value::Null, "nothing passed");
}

#[test]
fn a_command_is_run_for_each_sleep_and_may_fail() {
    needs!(NEEDS);
    let cable = Cable::new();
    let socket = cable.socket();
    let marker = cable.folder.path().join("second");
    // The command fails the first time only.
    let command = format!(
        "echo $MANYWAYS_INTERFACE $MANYWAYS_POLICY $MANYWAYS_PROFILE $MANYWAYS_WAIT_SECONDS; \
         [ -e {0} ] || {{ touch {0}; exit 3; }}",
        marker.display()
    );
    let control = cable.control(&[
        "--policy",
        "fixed:0.02",
        "--min-interval",
        "0s",
        "--actuator",
        "exec",
        "--command",
        &command,
    ]);
    for (round, exit) in [3, 0, 0].into_iter().enumerate() {
        socket.send_to(&[0; 10], OUTGOING).unwrap();
        // The first command failed, so that there was no dormancy.
        if round == 2 {
            control.event("radio-wake");
        }
        control.event("radio-sleep");
        let profile = cable.folder.path().join("radio.toml");
        assert_eq!(control.text(), format!("near fixed:0.02 {} 0.020", profile.display()));
        let done = control.event("radio-command");
        assert_eq!((&done["ended"], &done["exit"]), (&"exit".into(), &exit.into()));
    }
    let last = control.end(Signal::SIGINT);
    assert_eq!((&last[0]["commands"], &last[0]["failed_commands"]), (&3.into(), &1.into()));
    assert_eq!(last[0]["sleeps"], 2, "one that fails is none");
}

#[test]
fn a_command_that_hangs_is_killed_and_the_next_one_runs() {
    needs!(NEEDS);
    let cable = Cable::new();
    let socket = cable.socket();
    let control = cable.control(&[
        "--policy",
        "fixed:0.02",
        "--min-interval",
        "0s",
        "--actuator",
        "exec",
        "--timeout",
        "2s",
        // The command ignores signals, and has a child with the same output.
        "--command",
        "trap '' INT TERM HUP; sleep 1000 & wait; wait; sleep 1000",
    ]);
    for _ in 0..2 {
        socket.send_to(&[0; 10], OUTGOING).unwrap();
        control.event("radio-sleep");
        let killed = control.event("radio-command");
        assert_eq!(killed["ended"], "timed-out");
        assert!(number(&killed, "seconds") >= 2.0, "{killed}");
    }
    // Waits until the output is closed.
    let last = control.end(Signal::SIGTERM);
    assert_eq!((&last[0]["failed_commands"], &last[0]["sleeps"]), (&2.into(), &0.into()));
}

#[test]
fn no_command_begins_while_another_one_runs() {
    needs!(NEEDS);
    let cable = Cable::new();
    let socket = cable.socket();
    // Time: of a command during which packets arrive, however long that takes.
    let control = cable.control(&[
        "--policy",
        "fixed:0.02",
        "--min-interval",
        "0s",
        "--actuator",
        "exec",
        "--command",
        "sleep 0.3",
    ]);
    let (mut sleeps, mut over) = (0, 0);
    socket.send_to(&[0; 10], OUTGOING).unwrap();
    while over < 2 {
        let event = control.line();
        match event["event"].as_str() {
            Some("radio-sleep") => {
                sleeps += 1;
                // For another command, which could be reported before this one is over.
                socket.send_to(&[0; 10], OUTGOING).unwrap();
            }
            Some("radio-command") => over += 1,
            _ => {}
        }
        assert!(sleeps <= over + 1, "{event}");
    }
    control.end(Signal::SIGINT);
}

#[test]
fn a_command_does_not_outlive_the_control() {
    needs!(NEEDS);
    let cable = Cable::new();
    let socket = cable.socket();
    let control = cable.control(&[
        "--policy",
        "fixed:0.02",
        "--actuator",
        "exec",
        "--timeout",
        "1h",
        "--command",
        "trap '' INT TERM HUP; sleep 1000 & echo began; wait; wait; sleep 1000",
    ]);
    socket.send_to(&[0; 10], OUTGOING).unwrap();
    control.event("radio-sleep");
    assert_eq!(control.text(), "began");
    // One command at a time: this packet would cause another dormancy, but no other event follows.
    socket.send_to(&[0; 10], OUTGOING).unwrap();
    control.event("radio-wake");
    let last = control.end(Signal::SIGINT);
    assert_eq!(
        (&last[0]["event"], &last[0]["ended"]),
        (&"radio-command".into(), &"stopped".into())
    );
    assert_eq!((&last[1]["commands"], last.len()), (&1.into(), 2));
}

#[test]
fn an_interface_that_goes_away_ends_it() {
    needs!(NEEDS);
    for counters in [&[][..], &["--counters"]] {
        let cable = Cable::new();
        let mut control = cable.control(counters);
        cable.namespace.run(|| ip("link set near down"));
        if counters.is_empty() {
            control.event("radio-down");
        }
        cable.namespace.run(|| ip("link del near"));
        assert_eq!(control.running.wait(PATIENCE).and_then(|status| status.code()), Some(1));
        let last = control.remaining_events();
        assert_eq!(last[0]["error"], "the interface was removed");
        assert_eq!(last[1], "manyways: near: the interface was removed");
    }
}

#[test]
fn counters_need_no_privileges() {
    needs!(NEEDS);
    let cable = Cable::new();
    let without = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"]);
        command.arg(manyways_path()).args(["radio", "control", "--interface", "near"]);
        command.arg("--profile").arg(cable.profile()).args(["--for", "1ms"]).args(arguments);
        cable.namespace.finish(&mut command)
    };
    let refused = without(&[]);
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("capturing packets is not allowed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--counters"), "{}", refused.stderr);
    assert!(without(&["--counters"]).expect_success().stdout.contains("Dormancy   none"));
}

#[test]
fn invalid_arguments_are_reported() {
    let control = |arguments: &[&str]| {
        let usual = ["radio", "control", "--interface", "no-such0", "--profile", "lte"];
        finish(manyways().args(usual).args(arguments))
    };
    for (arguments, code, words) in [
        (&[][..], 1, "there is no interface no-such0"),
        (&["--policy", "makeidel"], 2, "did you mean `makeidle`?"),
        (&["--policy", "oracle"], 2, "oracle needs the whole trace in advance"),
        (&["--policy", "makeidle+makeactive"], 2, "--hold names no rules"),
        (
            &["--policy", "makeactive-fixed", "--hold", "mail"],
            2,
            "needs the whole trace in advance",
        ),
        (&["--hold", "mail"], 2, "--hold has no effect"),
        (
            &["--policy", "makeactive", "--hold", "mail", "--counters", "--step", "1s"],
            2,
            "--step is at most 250ms",
        ),
        (&["--actuator", "exec"], 2, "--command"),
        (&["--command", "true"], 2, "--actuator exec"),
        (&["--counters", "--step", "0s"], 2, "at least 1ms"),
        (&["--step", "10ms"], 2, "--counters"),
        (&["--timeout", "3s"], 2, "--command"),
        (&["--bond", "mine"], 2, "--hold"),
        (
            &["--policy", "makeactive", "--hold", "mail", "--min-interval", "2s"],
            2,
            "--min-interval has no effect",
        ),
        (
            &["--policy", "status-quo", "--actuator", "exec", "--command", "true"],
            2,
            "--command has no effect with this policy",
        ),
        (&["--for", "soon"], 2, "--for"),
    ] {
        let said = control(arguments);
        assert_eq!(said.code(), code, "{arguments:?}: {}", said.stderr);
        assert!(said.stderr.contains(words), "{arguments:?}: {}", said.stderr);
    }
}

/// Two requests over a link with a radio, the second one after fast dormancy.
const DEVICE: &str = r#"set -e
"$MANYWAYS" radio control --interface cell --profile "$OUT/radio.toml" --policy fixed:0.05 --json \
    --min-interval 0s --actuator exec --command '"$MANYWAYS" lab set --lab radio-control cell rrc=dormant' \
    >"$OUT/events" & CONTROL=$!
until grep -qs radio-begin "$OUT/events"; do :; done
for round in 1 2; do
    ping -q -c 1 origin.lab >/dev/null
    until [ "$(grep -c radio-command "$OUT/events")" = $round ]; do :; done
done
kill -INT $CONTROL
wait $CONTROL
exec "$MANYWAYS" lab status --json radio-control"#;

#[test]
fn a_command_sends_the_radio_of_a_lab_to_sleep() {
    needs!(NEEDS, Need::Command("ping"));
    let folder = folder();
    let profile = RADIO.replace("promotion =", "promotion-delay = \"300ms\"\npromotion =");
    fs::write(folder.path().join("radio.toml"), profile).unwrap();
    let link = format!("cell:delay=1ms,rrc={}", folder.path().join("radio.toml").display());
    let mut lab = manyways();
    lab.args([
        "lab",
        "shell",
        "--name",
        "radio-control",
        "--link",
        &link,
        "--",
        "sh",
        "-c",
        DEVICE,
    ]);
    lab.env("MANYWAYS", manyways_path()).env("OUT", folder.path());
    let done = finish(&mut lab).expect_success();
    let status: Value = serde_json::from_str(&done.stdout).unwrap();
    let radio = &status["links"][0]["radio"];
    assert_eq!((&radio["sleeps"], &radio["state"]), (&2.into(), &"IDLE".into()), "{status}");
    assert_eq!(radio["promotions"], 2, "{status}");
    let events = fs::read_to_string(folder.path().join("events")).unwrap();
    let summary: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    for (field, expected) in [("sleeps", 2), ("switches", 2), ("failed_commands", 0)] {
        assert_eq!(summary[field], expected, "{events}");
    }
}
