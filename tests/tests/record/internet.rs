//! A lab that stands for the internet: servers at real addresses, each at its own distance. The
//! recorder runs on its device, and has a lab of its own.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use manyways_tests::{
    Authority, Finished, Folder, SHELL, ServerConfig, WebServer, finish, folder, manyways,
    shared_host,
};
use serde_json::Value;

pub const NGINX: &str = "203.0.113.10";
pub const NGINX_V6: &str = "2001:db8:10::1";
pub const CADDY: &str = "203.0.113.20";
/// For the server of a test.
pub const OTHER: &str = "203.0.113.30";
/// Names of these servers.
pub const NAMES: [&str; 3] = ["www.example.test", "cdn.example.test", "other.example.test"];

/// The internet, and the files of a test.
pub struct Internet {
    folder: Folder,
    options: Vec<String>,
}

impl Internet {
    /// nginx and Caddy, with the files in `root`, over one link with this delay.
    pub fn new(delay: &str) -> Self {
        let folder = folder();
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("room for files");
        let authority = Authority::new(folder.path(), &NAMES).expect("an authority");
        let mut options = vec!["--link".to_owned(), format!("wan:delay={delay}")];
        for host in [
            format!("{NGINX},name={}", NAMES[0]),
            format!("{NGINX_V6},name={}", NAMES[0]),
            format!("{CADDY},name={},extra-rtt=10ms", NAMES[1]),
            format!("{OTHER},name={}", NAMES[2]),
        ] {
            options.extend(["--far-host".to_owned(), host]);
        }
        for (server, addresses) in
            [(WebServer::Nginx, &[NGINX, NGINX_V6][..]), (WebServer::Caddy, &[CADDY])]
        {
            let own = folder.path().join(server.name());
            fs::create_dir(&own).expect("room for files");
            let at = |port| -> Vec<SocketAddr> {
                addresses
                    .iter()
                    .map(|address| SocketAddr::new(address.parse().expect("an address"), port))
                    .collect()
            };
            let (plain, secure) = (at(80), at(443));
            let extra_config = match server {
                WebServer::Nginx => {
                    "gzip on; gzip_types text/plain; types { text/plain txt; text/html html; }"
                }
                _ => "encode gzip zstd",
            };
            let site = ServerConfig {
                root: &root,
                plain: &plain,
                secure: &secure,
                authority: Some(&authority),
                extra_config,
            };
            let server = server.configure(&own, &site).expect("it is installed");
            let quoted = |word: &String| format!("'{word}'");
            let words: Vec<String> = server.command().iter().map(quoted).collect();
            options.extend(["--far".to_owned(), format!("exec {}", words.join(" "))]);
        }
        Self { folder, options }
    }

    /// Adds a server, a script for Python. It runs in the folder of the test, in which
    /// `server.pem` and `server.key` are its certificate and key.
    pub fn with_server(mut self, script: &str) -> Self {
        fs::write(self.path("server.py"), script).expect("room for a script");
        self.options.extend([
            "--far".to_owned(),
            format!("cd {}; exec python3 server.py", self.folder.path().display()),
        ]);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that the servers have.
    pub fn put(&self, name: &str, content: &[u8]) {
        let path = self.path("root").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room for files");
        fs::write(path, content).expect("room for files");
    }

    /// Runs a shell script on the device, in the folder of the test. `$RECORD` begins a recording.
    #[track_caller]
    pub fn run(&self, script: &str) -> Finished {
        let _guard = shared_host();
        let record = "manyways record --internet --origin-ca authority.pem";
        let folder = self.folder.path().display();
        let script = format!("{SHELL}\ncd {folder}; RECORD='{record}'\n{script}");
        let mut command = manyways();
        command.args(["lab", "shell"]).args(&self.options).args(["--", "sh", "-c", &script]);
        // The bundles of this machine have nothing to do with the test.
        for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT"] {
            command.env_remove(name);
        }
        finish(&mut command)
    }

    /// Runs a shell script in a replay of an archive, outside of this internet, and returns the report.
    #[track_caller]
    pub fn replay(&self, archive: &str, options: &[&str], script: &str) -> (Finished, Value) {
        let _guard = shared_host();
        let mut command = manyways();
        command.current_dir(self.folder.path()).args(["replay", archive]).args(options);
        command.args(["--json", "report.json", "--html", "report.html", "--", "sh", "-c", script]);
        let done = finish(&mut command);
        let report = fs::read(self.path("report.json")).unwrap_or_default();
        (done, serde_json::from_slice(&report).unwrap_or_default())
    }

    /// The document of `record show` about an archive.
    #[track_caller]
    pub fn show(&self, archive: &str) -> Value {
        let mut command = manyways();
        command.args(["record", "show", "--exchanges", "--json"]).arg(self.path(archive));
        let shown = finish(&mut command).expect_success().stdout;
        serde_json::from_str(&shown).expect("it is JSON")
    }

    /// The content of an archive as HAR, with credentials.
    #[track_caller]
    pub fn har(&self, archive: &str) -> Value {
        let har = self.path(&format!("{archive}.har"));
        let mut command = manyways();
        command.args(["record", "export", "--with-credentials"]).arg(self.path(archive));
        finish(command.arg("-o").arg(&har)).expect_success();
        serde_json::from_slice(&fs::read(&har).expect("it was written")).expect("it is JSON")
    }
}

/// The exchanges of `record show`, by URL: the field of each.
pub fn by_url<'s>(shown: &'s Value, field: &str) -> BTreeMap<&'s str, &'s Value> {
    let list = shown["list"].as_array().expect("a list");
    list.iter().map(|one| (one["url"].as_str().expect("a URL"), &one[field])).collect()
}

/// The entry of a HAR with this URL.
#[track_caller]
pub fn entry<'h>(har: &'h Value, url: &str) -> &'h Value {
    let entries = har["log"]["entries"].as_array().expect("entries");
    let found = entries.iter().find(|entry| entry["request"]["url"] == url);
    found.unwrap_or_else(|| panic!("no entry for {url}"))
}
