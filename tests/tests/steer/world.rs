//! A device with Wi-Fi and LTE, and a server that returns the address from which a connection comes.

use std::fs;

use manyways_tests::{Finished, Folder, SHELL, finish, folder, manyways, manyways_path};

/// Answers on port 7777 with the address of the peer, and on 80 with a page of status 204, or over Wi-Fi with a
/// login page while there is a file `portal`.
const SERVER: &str = r#"
import os, socketserver, threading

def server(port, answer):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(answer(self))
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
    threading.Thread(target=Server(("0.0.0.0", port), Handler).serve_forever).start()

def page(handler):
    handler.request.recv(4096)
    if handler.client_address[0].startswith("10.64.1.") and os.path.exists("FILES/portal"):
        head = b"302 Found\r\nLocation: http://login.example/"
    else:
        head = b"204 No Content"
    return b"HTTP/1.1 " + head + b"\r\nContent-Length: 0\r\n\r\n"

server(80, page)
server(7777, lambda handler: handler.client_address[0].encode() + b"\n")
"#;

/// Definitions for scripts: `$M` is manyways, `$G` the server's address. `steer ARGS` starts a run and
/// waits for its first choice; `over NETWORK` waits until new connections use it; `end` ends the run.
const PRELUDE: &str = r#"
cd "$FILES" || exit 1
export XDG_STATE_HOME="$FILES/state"
trap '[ $? = 0 ] || { "$M" steer status; nft list ruleset; tail -n 40 run.log events; } >&2' EXIT
G=$(getent ahostsv4 origin.lab | head -1 | cut -d' ' -f1)
rules() { ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset; }
who() {
    case "$(python3 -c "
import socket
print(socket.create_connection(('$G', 7777), 10).recv(99).decode(), end='')" 2>/dev/null)" in
    10.64.1.*) echo wifi ;;
    10.64.2.*) echo lte ;;
    *) echo nothing ;;
    esac
}
is_over() { [ "$(who)" = "$1" ]; }
over() { eventually is_over "$1"; }
has() { grep -q "$2" "$1"; }
steer() {
    rm -f run.log events
    "$M" steer run --events events "$@" > run.log 2>&1 &
    STEER=$!
    eventually has events steer-choice
}
end() { kill -INT $STEER; wait $STEER || fault "the run ends with $?"; }
eventually is_over wifi
"#;

pub struct World(Folder);

impl World {
    pub fn new() -> Self {
        let world = Self(folder());
        world.write("server.py", SERVER);
        world
    }

    pub fn write(&self, name: &str, text: &str) {
        let text = text.replace("FILES", &self.0.path().display().to_string());
        fs::write(self.0.path().join(name), text).expect("room for a file");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }

    /// Runs a script on the device. Wi-Fi is nearer, and the host's own choice.
    #[track_caller]
    pub fn run(&self, script: &str) -> Finished {
        let files = self.0.path().display().to_string();
        let mut command = manyways();
        command.args(["lab", "shell"]);
        command.args(["--link", "wifi:down=10mbit,up=5mbit,delay=5ms"]);
        command.args(["--link", "lte:down=10mbit,up=5mbit,delay=25ms"]);
        command.args(["--far", &format!("python3 {files}/server.py")]);
        command.env("FILES", &files).env("M", manyways_path());
        finish(command.args(["--", "bash", "-c", &format!("{SHELL}{PRELUDE}{script}")]))
    }
}
