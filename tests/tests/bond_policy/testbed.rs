//! A device with Wi-Fi and LTE, a client with a policy on the device, and a gateway that is also a
//! web server.

use std::fs;

use manyways_tests::{Finished, Folder, SHELL, finish, folder, manyways, manyways_path};

/// Definitions for scripts: `$M` is manyways, `$G` the gateway's address; `client ARGS` starts a
/// client and waits until both networks are up. A script that fails prints the logs.
const PRELUDE: &str = r#"
cd "$FILES" || exit 1
trap '[ $? = 0 ] || tail -n 40 wait.log client.log gateway.log >&2' EXIT
G=$(getent ahostsv4 origin.lab | head -1 | cut -d' ' -f1)
quiet() { eval "$1" > wait.log 2>&1; }
wait_for() { eventually quiet "$1"; }
client() {
    # It is made anew behind the shell's back.
    rm -f client.log
    "$M" bond client --gateway "$G:4433" --gateway-key "$(cat gateway.pub)" --key client.key \
        --intercept none --socks "${SOCKS:-127.0.0.1:1080}" "$@" > client.log 2>&1 &
    CLIENT=$!
    wait_for '[ "$(grep -c " is up" client.log)" -ge 2 ]'
}
end() { kill $CLIENT; wait $CLIENT; }
fetch() { curl -sS --max-time 300 -x socks5h://127.0.0.1:1080 "$@"; }
# Bytes that came over a network's interface, whoever brought them.
came() { ip -s -j link show "$1" | sed 's/.*"rx":{"bytes":\([0-9]*\).*/\1/'; }
"#;

/// Files of a test, and keys for both endpoints.
pub struct Testbed(Folder);

impl Testbed {
    #[track_caller]
    pub fn new() -> Self {
        let files = folder();
        let mut allowed = String::new();
        for name in ["gateway", "client"] {
            let key = files.path().join(format!("{name}.key"));
            let made = finish(manyways().args(["bond", "keygen"]).arg(key)).expect_success();
            let public = made.stdout.trim();
            fs::write(files.path().join(format!("{name}.pub")), public).expect("room for a key");
            allowed = format!("{public} device\n");
        }
        fs::write(files.path().join("allow"), allowed).expect("room for a line");
        Self(files)
    }

    /// Writes a file into the folder of the scripts.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("room for a file");
        path.display().to_string()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }

    /// Runs a script on the device.
    #[track_caller]
    pub fn run(&self, script: &str) -> Finished {
        let web = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/nginx.sh");
        let program = manyways_path().display().to_string();
        let files = self.0.path().display().to_string();
        // The gateway denies its own addresses and those of the lab by default.
        let gateway = format!(
            "cd {files} && exec {program} bond gateway --listen 0.0.0.0:4433 --key gateway.key \
             --allow allow --permit 0.0.0.0/0 > gateway.log 2>&1"
        );
        let mut command = manyways();
        command.args(["lab", "shell"]);
        command.args(["--link", "wifi:down=10mbit,up=5mbit,delay=5ms,queue=150ms"]);
        command.args(["--link", "lte:down=10mbit,up=5mbit,delay=15ms,queue=150ms"]);
        command.args(["--far", &gateway, "--far", &format!("sh {web} origin")]);
        command.env("FILES", &files).env("M", &program);
        finish(command.args(["--", "sh", "-c", &format!("{SHELL}{PRELUDE}{script}")]))
    }
}

/// Skips the test if a requirement of these tests is missing.
#[macro_export]
macro_rules! needs_world {
    () => {
        manyways_tests::needs!(
            manyways_tests::Need::Root,
            manyways_tests::Need::Command("nginx"),
            manyways_tests::Need::Command("curl")
        )
    };
}
