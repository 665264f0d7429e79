//! A lab with communicating programs and a capture by tcpdump.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manyways_tests::{Folder, Need, Outcome, SHELL, finish, folder, manyways, max_lateness};

use crate::rows::Tables;

/// Configuration of a run, with defaults.
pub struct Testbed<'a> {
    /// The links between the capture point and the server, or all links.
    pub links: Vec<String>,
    /// The links between the client and the capture point; empty if the capture point is at an
    /// endpoint.
    pub client_links: &'a [&'a str],
    /// The congestion control of both endpoints.
    pub cc: &'a str,
    /// A command on the server's side before the server starts.
    pub server_setup: &'a str,
    /// Additional arguments of tcpdump.
    pub tcpdump: &'a str,
    /// Arguments of `peer.py serve`.
    pub serve: &'a str,
    /// Whether the server's side captures as well.
    pub captures_at_server: bool,
    pub seed: u32,
}

impl Default for Testbed<'_> {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            client_links: &[],
            cc: "cubic",
            server_setup: "true",
            tcpdump: "-s 128",
            serve: "",
            captures_at_server: false,
            seed: 1,
        }
    }
}

/// `listening LOG` waits for tcpdump. `captured LINK FILE...` waits until captures contain a packet
/// that it sends over a link: everything before is in them, too.
const CAPTURES: &str = r#"
listening() { eventually grep -qs listening "$1"; }
has_sentinel() {
  # The answer is the last packet of the other direction.
  ping -q -n -c 1 -W 1 -p 6d616e7977617973 -I "$1" "$SERVER" >/dev/null || return 1
  shift
  for file in "$@"; do grep -qs manywaysmanyways "$file" || return 1; done
}
captured() { eventually has_sentinel "$@"; }
"#;

/// The captures of a run, and the output of the lab and the programs.
pub struct Captured {
    folder: Folder,
    /// Standard output of the script.
    pub stdout: String,
}

/// The programs and rights that a [`Testbed`] needs.
pub const NEEDS: Need = Need::All(&[
    Need::Root,
    Need::Command("tcpdump"),
    Need::Command("python3"),
    Need::Command("nft"),
]);

fn peer() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flows/peer.py").to_owned()
}

impl Testbed<'_> {
    /// Runs a script on the client's side. `$PEER` is the program of both endpoints; the server is
    /// `198.18.0.1`, or `198.18.0.2` if the capture point is in the middle.
    #[track_caller]
    pub fn run(&self, script: &str) -> Captured {
        let folder = folder();
        let out = folder.path().display().to_string();
        let names: Vec<&str> =
            self.links.iter().filter_map(|link| link.split(':').next()).collect();
        let dump = |name: &str, file: &str| {
            format!(
                "tcpdump -i {name} {} --immediate-mode -B 8192 -U -w {out}/{file}.pcap 2>{out}/{file}.log & \
                 DUMPS=\"$DUMPS $!\"; listening {out}/{file}.log; ",
                self.tcpdump
            )
        };
        let serve = format!("exec python3 {} serve {}", peer(), self.serve);
        let at_server: String = match self.captures_at_server {
            true => names.iter().map(|name| dump(name, &format!("{name}-server"))).collect(),
            false => String::new(),
        };
        let far = format!("{SHELL}{CAPTURES}{} ; {at_server} {serve}", self.server_setup);
        // With a lab at the client, its host without a server has the first address.
        let server = if self.client_links.is_empty() { "198.18.0.1" } else { "198.18.0.2" };
        let captured: String = names
            .iter()
            .map(|name| match self.captures_at_server {
                true => format!("captured {name} {out}/{name}.pcap {out}/{name}-server.pcap; "),
                false => format!("captured {name} {out}/{name}.pcap; "),
            })
            .collect();
        let near: String = self.client_links.iter().map(|link| format!(" --link {link}")).collect();
        let inner = match self.client_links {
            [] => format!("sh {out}/script"),
            _ => format!(
                "{} lab shell --seed {} {near} --internet --cc {} --pcap {out}/pcap-near -- \
                 sh -c 'sh {out}/script; code=$?; manyways lab status --json >{out}/near.json; exit $code'",
                manyways_tests::manyways_path().display(),
                self.seed + 7,
                self.cc
            ),
        };
        let head = format!(
            "{SHELL}{CAPTURES}PEER='python3 {}'; OUT={out}; SERVER={server}; set -e\n",
            peer()
        );
        fs::write(folder.path().join("script"), head + script).expect("room for a script");
        let dumps: String = names.iter().map(|name| dump(name, name)).collect();
        let all = format!(
            "{SHELL}{CAPTURES}SERVER={server}\n{dumps} {inner}; code=$?; {captured} \
                 manyways lab status --json >{out}/status.json; kill -INT $DUMPS; wait; exit $code"
        );
        let mut command = manyways();
        command.args(["lab", "shell", "--cc", self.cc, "--seed", &self.seed.to_string()]);
        command.args(["--pcap", &format!("{out}/pcap")]);
        for link in &self.links {
            command.args(["--link", link]);
        }
        match self.client_links {
            // The far host of the near lab has the first address.
            [] => {
                command.args(["--far", &far]);
            }
            _ => {
                command.args(["--host", "nobody", "--host", "server", "--far"]);
                command.arg(format!("@server {far}"));
            }
        }
        let done = finish(command.args(["--", "sh", "-c", &all])).expect_success();
        Captured { folder, stdout: done.stdout }
    }
}

/// The data of a failed test cannot be reproduced: it is kept, and its path printed.
impl Drop for Captured {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("the captures are in {}", self.folder.path().display());
        }
    }
}

impl Captured {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The result of an experiment, with the lateness of the lab.
    #[track_caller]
    pub fn outcome(&self, wrong: Vec<String>) -> Outcome {
        Outcome { wrong, lateness: self.lateness() }
    }

    /// Longest time that a lab released a packet too late.
    #[track_caller]
    pub fn lateness(&self) -> Duration {
        // The second one, if there is one, is at the client.
        let labs = [self.path("status.json"), self.path("near.json")];
        let late = labs.iter().filter_map(|file| fs::read_to_string(file).ok());
        late.map(|status| max_lateness(&status)).max().expect("the lab has a status")
    }

    /// The capture of this link.
    #[track_caller]
    pub fn tables(&self, link: &str) -> Tables {
        Tables::of(&self.path(&format!("{link}.pcap")))
    }

    /// Output of the clients, in the order in which they ended.
    pub fn outputs(&self) -> Vec<serde_json::Value> {
        self.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The ports of the clients.
    pub fn ports(&self) -> Vec<u16> {
        self.outputs().iter().filter_map(|told| told["port"].as_u64()?.try_into().ok()).collect()
    }

    /// Data segments that a link of the far lab (`pcap/NAME`) or of the near one (`pcap-near/NAME`)
    /// dropped on their way down, to this port or to any. Returns the number of offsets with at
    /// least one dropped copy, and of copies.
    pub fn dropped(&self, link: &str, port: Option<u16>) -> (BTreeSet<String>, u64) {
        let file = self.path(&format!("{link}-dropped.pcapng"));
        if !file.exists() {
            return (BTreeSet::new(), 0);
        }
        let to = port.map_or(String::new(), |port| format!(" and dst port {port}"));
        let mut tcpdump = std::process::Command::new("tcpdump");
        let filter = format!("tcp and src port 80 and greater 100{to}");
        let done = finish(tcpdump.args(["-nn", "-S", "-r"]).arg(file).arg(filter)).expect_success();
        let place = |line: &str| Some(line.split_once("seq ")?.1.split(':').next()?.to_owned());
        let places: Vec<String> = done.stdout.lines().filter_map(place).collect();
        let copies = places.len() as u64;
        (places.into_iter().collect(), copies)
    }
}

/// Number of packets of a file that match a filter of tcpdump.
pub fn packets(file: &Path, filter: &str) -> u64 {
    let mut tcpdump = std::process::Command::new("tcpdump");
    let done = finish(tcpdump.args(["-nn", "-q", "-r"]).arg(file).arg(filter)).expect_success();
    done.stdout.lines().count() as u64
}
