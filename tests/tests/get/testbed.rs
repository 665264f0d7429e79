//! A server with an object to download, and scripts that download it.

use std::fs;
use std::path::PathBuf;

use manyways_tests::{
    Authority, Finished, Folder, SHELL, Server, ServerConfig, WebServer, finish, folder, manyways,
    object,
};
use serde_json::Value;

/// Links that together deliver the object in less than half a second.
pub const TWO_LINKS: [&str; 4] = [
    "--link",
    "wifi:down=24mbit,up=8mbit,delay=4ms",
    "--link",
    "lte:down=12mbit,up=4mbit,delay=9ms",
];
/// Links that are slow enough for changes during a transfer.
pub const SLOW_LINKS: [&str; 4] =
    ["--link", "wifi:down=8mbit,up=4mbit,delay=4ms", "--link", "lte:down=6mbit,up=4mbit,delay=9ms"];
/// Length of the object in bytes.
pub const OBJECT_LENGTH: u64 = 2_000_001;

/// Runs before every script, in a folder that any user can write to; the file `$FILES/preamble` has
/// it for shells within a script.
///
/// - `get` is the command with the authority of the server's certificate; `$GET` is the same
///   command for scripts that send it a signal, which a shell function would receive instead.
/// - `both COMMAND` runs a command with links `wifi` and `lte`, neither of which delivers more than
///   200 KB before the other one has delivered 20 KB: both take part, however slow the machine is.
/// - `first LINK COMMAND` runs a command with links `wifi` and `lte`, of which this one connects
///   first: the other one is paused until this one has delivered 150 KB (more than unread bytes can be),
///   or `first_bytes`.
/// - `told FILE LINK WORDS COMMAND` does the same, and pauses this link after 200 KB until a file has
///   words that the command writes.
/// - `stop_at LINK BYTES...` pauses each link after this number of bytes, so that a transfer cannot
///   end before the script acts; `go_on LINK...` continues.
/// - `come LINK BYTES` waits until a link has delivered this number of bytes.
/// - `until_kept FILE BYTES` waits until a resume file lists this many bytes.
/// - `whole` checks that the received object is correct. Wrong bytes are a fault.
const PREAMBLE: &str = r#"
cd "$FILES/out"
GET="manyways get --cacert $FILES/authority.pem"
get() { $GET "$@"; }
both() {
  change --when 'wifi.down_bytes >= 200KB' --until 'lte.down_bytes >= 20KB' wifi state=paused
  change --when 'lte.down_bytes >= 200KB' --until 'wifi.down_bytes >= 20KB' lte state=paused
  "$@"
}
first() {
  leader=$1; shift
  [ $leader = wifi ] && follower=lte || follower=wifi
  before=$(cat /sys/class/net/$leader/statistics/rx_bytes)
  change $follower state=paused
  "$@" & first=$!
  come $leader ${first_bytes:-150000} $before; change $follower state=up
  wait $first
}
told() {
  said=$1 link=$2 words=$3; shift 3
  change --when "$link.down_bytes >= 200KB" $link state=paused
  first $link "$@" & told=$!
  eventually grep -qs "$words" "$said"
  go_on $link; wait $told
}
stop_at() { while [ $# -gt 0 ]; do change --when "$1.down_bytes >= $2" $1 state=paused; shift 2; done; }
go_on() { for link in "$@"; do change --cancel $link state=up; done; }
# A busy lab delivers several packets as one, whose headers the kernel counts once: at most 52 of 1500
# bytes less than the lab.
has_come() { [ $(($(cat /sys/class/net/$1/statistics/rx_bytes) - start)) -ge $(($2 - $2 / 25)) ]; }
come() { start=${3:-0}; eventually has_come $1 $2; }
kept() { sed 's/.*"done"://; s/\],\[/\n/g; s/[^0-9,\n]//g' "$1" | awk -F, '{ n += $2 - $1 } END { print n + 0 }'; }
has_kept() { [ -e "$1" ] && [ $(kept "$1") -ge $2 ]; }
until_kept() { eventually has_kept "$1" $2; }
whole() { same object "$FILES/root/object"; }
"#;

/// An object on a web server, a certificate for the server, and a folder for downloads.
pub struct Testbed {
    files: Folder,
    authority: Authority,
    extra_config: String,
}

impl Testbed {
    /// Serves `/object` as `origin.lab`, `www.lab` and at the server's addresses.
    pub fn new() -> Self {
        let files = folder();
        let authority = Authority::new(
            files.path(),
            &["origin.lab", "www.lab", "198.18.0.1", "198.18.0.2", "fd00:18::1"],
        )
        .expect("a certificate");
        for name in ["root", "out", "nginx", "apache"] {
            fs::create_dir(files.path().join(name)).expect("room for a folder");
        }
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(files.path().join("out"), everybody).expect("its permissions");
        object(&files.path().join("root"), "object", OBJECT_LENGTH, 11);
        fs::write(files.path().join("preamble"), format!("{SHELL}{PREAMBLE}"))
            .expect("room for a file");
        Self { files, authority, extra_config: String::new() }
    }

    /// Adds lines to the configuration of nginx.
    pub fn with_config(mut self, lines: &str) -> Self {
        self.extra_config = lines.to_owned();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The command of nginx: HTTP/1.1 on port 80, HTTP/2 on 443, HTTP/1.1 over TLS on 444.
    pub fn nginx(&self) -> String {
        self.nginx_of("nginx", &self.authority)
    }

    /// The command of an nginx with a separate folder and a certificate of another authority.
    pub fn nginx_of(&self, folder: &str, authority: &Authority) -> String {
        self.nginx_with(folder, authority, "root")
    }

    /// The command of an nginx with the files of another folder.
    pub fn nginx_with(&self, folder: &str, authority: &Authority, root: &str) -> String {
        let root = self.path(root);
        let more = format!(
            "{}\n  }}\n  server {{\n    listen 444 ssl;\n    listen [::]:444 ssl;\n    \
             ssl_certificate {};\n    ssl_certificate_key {};\n    root {};",
            self.extra_config.replace("ROOT", &root.display().to_string()),
            authority.certificate().display(),
            authority.key().display(),
            root.display(),
        );
        let config = ServerConfig {
            root: &root,
            plain: &["0.0.0.0:80", "[::]:80"].map(|text| text.parse().expect("an address")),
            secure: &["0.0.0.0:443", "[::]:443"].map(|text| text.parse().expect("an address")),
            authority: Some(authority),
            extra_config: &more,
        };
        let _ = fs::create_dir(self.path(folder));
        Server::nginx(&self.path(folder), &config).expect("nginx").command().join(" ")
    }

    /// The command of Apache httpd: HTTP/1.1 on port 8080, HTTP/2 on 8443.
    pub fn apache(&self) -> String {
        self.apache_with("")
    }

    /// The command of Apache httpd with additional configuration lines.
    pub fn apache_with(&self, more: &str) -> String {
        let config = ServerConfig {
            root: &self.path("root"),
            plain: &["[::]:8080".parse().expect("an address")],
            secure: &["[::]:8443".parse().expect("an address")],
            authority: Some(&self.authority),
            extra_config: more,
        };
        Server::apache(&self.path("apache"), &config).expect("Apache").command().join(" ")
    }

    /// The command of a web server: HTTP/2 on port 443.
    pub fn web_server(&self, server: WebServer) -> String {
        let folder = self.path(server.name());
        fs::create_dir_all(&folder).expect("room for a folder");
        let config = ServerConfig {
            root: &self.path("root"),
            plain: &[],
            secure: &["0.0.0.0:443", "[::]:443"].map(|text| text.parse().expect("an address")),
            authority: Some(&self.authority),
            extra_config: "",
        };
        server.configure(&folder, &config).expect("a configuration").command().join(" ")
    }

    /// The command of the faulty server, whose faults depend on the URL: HTTP/1.1 on port 80,
    /// HTTP/2 on 443, HTTP/1.1 over TLS on 444, and the further ports of its table.
    pub fn faulty(&self) -> String {
        object(&self.path("root"), "other", OBJECT_LENGTH, 12);
        let server = env!("CARGO_BIN_EXE_faulty-server");
        format!("{server} {}", self.files.path().display())
    }

    /// Runs a script on the device of a lab with these options.
    #[track_caller]
    pub fn run_with(&self, options: &[&str], script: &str) -> Finished {
        finish(
            manyways()
                .args(["lab", "shell"])
                .args(options)
                .args(["--", "sh", "-c", &format!(". \"$FILES/preamble\"\n{script}")])
                .env("FILES", self.files.path()),
        )
    }

    /// Runs a script with nginx as the server.
    #[track_caller]
    pub fn run(&self, links: &[&str], script: &str) -> Finished {
        self.run_with(&[links, &["--far", &self.nginx()]].concat(), script)
    }

    /// Reads a file that a script wrote.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        let path = self.path("out").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Names of the downloaded files, complete or not.
    pub fn fetched(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).expect("a folder of the test");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("a readable folder").file_name())
            .map(|name| name.into_string().expect("names are ASCII"))
            .filter(|name| name.starts_with("object"))
            .collect();
        names.sort();
        names
    }

    /// Total length of the bodies that nginx has sent to this user agent so far, from its log.
    pub fn sent_to(&self, agent: &str) -> u64 {
        let log = fs::read_to_string(self.path("nginx/access.log")).expect("nginx has a log");
        // ADDRESS - - [TIME] "GET /object HTTP/2.0" 206 BYTES "-" "AGENT"
        let sent = log.lines().filter(|line| line.contains(agent)).map(|line| {
            let after = line.split('"').nth(2).and_then(|part| part.split_whitespace().nth(1));
            after.and_then(|bytes| bytes.parse::<u64>().ok()).expect("a line of the log")
        });
        sent.sum()
    }
}

/// The report of one transfer.
#[derive(Debug)]
pub struct Transfer(pub Value);

impl Transfer {
    /// The only transfer of each line of JSON.
    #[track_caller]
    pub fn all(stdout: &str) -> Vec<Self> {
        let lines = stdout.lines().map(|line| {
            let mut document: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(document["schema"], "manyways.get/2");
            assert_eq!(document["transfers"].as_array().map(Vec::len), Some(1), "{line}");
            Self(document["transfers"][0].take())
        });
        lines.collect()
    }

    /// The transfer of the only line of JSON.
    #[track_caller]
    pub fn only(stdout: &str) -> Self {
        let mut all = Self::all(stdout);
        assert_eq!(all.len(), 1, "{stdout}");
        all.remove(0)
    }

    #[track_caller]
    pub fn number(&self, field: &str) -> u64 {
        self.0[field].as_u64().unwrap_or_else(|| panic!("{field} in {self:?}"))
    }

    /// The useful bytes of a path.
    #[track_caller]
    pub fn bytes(&self, path: &str) -> u64 {
        self.path(path)["bytes"].as_u64().expect("a number")
    }

    /// The report of a path.
    #[track_caller]
    pub fn path(&self, name: &str) -> &Value {
        let paths = self.0["paths"].as_array().expect("a list");
        let found = paths.iter().find(|path| path["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Asserts that the whole object was received over each of these paths and over no other.
    #[track_caller]
    pub fn assert_paths(&self, paths: &[&str]) -> &Self {
        assert_eq!(self.number("bytes"), OBJECT_LENGTH, "{self:?}");
        for path in self.0["paths"].as_array().expect("a list") {
            let name = path["name"].as_str().expect("a name");
            assert_eq!(path["bytes"] != 0, paths.contains(&name), "{name}: {self:?}");
        }
        assert_eq!(
            paths.iter().map(|path| self.bytes(path)).sum::<u64>(),
            OBJECT_LENGTH,
            "{self:?}"
        );
        self
    }
}

/// Skips the test if a requirement of all tests in this folder is missing.
#[macro_export]
macro_rules! needs_far {
    ($($more:expr),*) => {
        manyways_tests::needs!(
            manyways_tests::Need::Root,
            manyways_tests::Need::Command("nginx"),
            $(manyways_tests::Need::Command($more)),*
        );
    };
}

/// Tests a property of each web server; a server that is not installed is skipped.
#[macro_export]
macro_rules! for_each_web_server {
    ($property:ident) => {
        $crate::for_each_web_server!($property: nginx Nginx, apache Apache, caddy Caddy, h2o H2o,
            lighttpd Lighttpd, haproxy Haproxy);
    };
    ($property:ident: $($name:ident $server:ident),*) => {
        $(#[test]
        fn $name() {
            $property(manyways_tests::WebServer::$server);
        })*
    };
}
