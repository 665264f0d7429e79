//! A lab with an internet beyond it: device, gateway and internet are network namespaces. A test
//! opens sockets and starts programs in them.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use manyways_tests::{Finished, Running, Server, Site, finish, folder, manyways, object};
use nix::sched::{CloneFlags, setns, unshare};
use tempfile::TempDir;

/// Deadline of all waits, far above the expected times.
pub const PATIENCE: Duration = Duration::from_secs(100);
/// Links without a rate limit.
pub const TWO_LINKS: [&str; 2] = ["wifi:delay=2ms", "lte:delay=5ms"];
/// Links that are slow enough for changes during a transfer.
pub const SLOW_LINKS: [&str; 2] =
    ["wifi:down=6mbit,up=3mbit,delay=4ms", "lte:down=4mbit,up=2mbit,delay=9ms"];
/// Address of the gateway for the device.
pub const GATEWAY: &str = "198.18.0.1";
/// Address of the gateway for the internet: the source address of connections through the bond.
pub const OUTSIDE: [&str; 2] = ["203.0.113.1", "2001:db8:113::1"];
/// IPv4 and IPv6 address of a server, and the address of another server.
pub const SERVER: [&str; 2] = ["203.0.113.2", "2001:db8:113::2"];
pub const OTHER_SERVER: &str = "203.0.113.3";
/// A server on a private network next to the gateway.
pub const PRIVATE: &str = "192.168.77.2";
/// Length of the web server's object in bytes.
pub const LENGTH: u64 = 1_000_003;

/// A socket address, for example of [`SERVER`].
pub fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().expect("an address"), port)
}

/// Polls until `look` returns a value, for at most [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Accepts the next connection, with timeouts for reads and writes.
#[track_caller]
pub fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    listener.set_nonblocking(true).expect("a socket can be told");
    let (stream, from) = eventually("a connection comes", || listener.accept().ok());
    stream.set_nonblocking(false).expect("a socket can be told");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket can be told");
    (stream, from)
}

/// A network namespace that exists as long as this value.
struct Namespace(File);

impl Namespace {
    fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root may make a namespace");
            File::open("/proc/thread-self/ns/net").expect("it has a file")
        });
        Self(made.join().expect("making a namespace does not panic"))
    }

    /// Runs `act` in the namespace: its sockets and programs stay there.
    fn act<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        let done = thread::scope(|scope| {
            let within = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).expect("root may enter a namespace");
                act()
            });
            within.join()
        });
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// A device with links to a host for the gateway, and an internet beyond that host.
pub struct World {
    device: Namespace,
    host: Namespace,
    internet: Namespace,
    pub lab: String,
    files: TempDir,
    /// Keeps the lab running; the lock makes the type `Sync`.
    _process: Mutex<Running>,
}

impl World {
    #[track_caller]
    pub fn new(links: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let lab = format!("bond-{}-{count}", std::process::id());
        let files = folder();
        let stderr = File::create(files.path().join("lab")).expect("room for a log");
        let mut command = manyways();
        command.args(["lab", "shell", "--name", &lab]);
        command.args(links.iter().flat_map(|link| ["--link", link]));
        command.args(["--", "sh", "-c", "readlink /proc/self/ns/net; exec sleep 1000"]);
        let mut process = Running::start(command.stdout(Stdio::piped()).stderr(stderr));
        let mut device = String::new();
        let stdout = process.stdout().expect("piped above");
        BufReader::new(stdout).read_line(&mut device).expect("a pipe can be read");
        let said = fs::read_to_string(files.path().join("lab")).unwrap_or_default();
        assert!(device.starts_with("net:"), "the lab does not start: {said}");
        let readlink = ["lab", "enter", &lab, "--host", "origin", "--", "readlink"];
        let host = finish(manyways().args(readlink).arg("/proc/self/ns/net")).succeeded().stdout;
        let open = |name: &str| Namespace(namespace_of(process.pid(), name.trim()));
        let (device, host) = (open(&device), open(&host));
        let (internet, _process) = (Namespace::new(), Mutex::new(process));
        let world = Self { device, host, internet, lab, files, _process };
        world.connect();
        world
    }

    /// Makes the host a router between its links and the internet.
    fn connect(&self) {
        self.host(|| {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("root may");
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").expect("root may");
            let here = nix::unistd::gettid();
            self.internet(|| {
                ip(&format!("link add inside type veth peer name outside netns {here}"));
                for address in [SERVER[0], OTHER_SERVER, PRIVATE] {
                    ip(&format!("addr add {address}/24 dev inside"));
                }
                ip(&format!("addr add {}/64 dev inside nodad", SERVER[1]));
                ip("link set lo up");
                ip("link set inside up");
                ip(&format!("route add default via {}", OUTSIDE[0]));
                ip(&format!("-6 route add default via {}", OUTSIDE[1]));
            });
            ip(&format!("addr add {}/24 dev outside", OUTSIDE[0]));
            ip("addr add 192.168.77.1/24 dev outside");
            ip(&format!("addr add {}/64 dev outside nodad", OUTSIDE[1]));
            ip("link set outside up");
            ip(&format!("route add default via {}", SERVER[0]));
            ip(&format!("-6 route add default via {}", SERVER[1]));
        });
    }

    /// Adds another device with this one as its router. It is connected to an interface of this
    /// name, and the device translates its addresses.
    #[track_caller]
    pub fn guest(&self, interface: &str) -> Guest {
        let guest = Namespace::new();
        // Any number that is unique among the guests' interfaces.
        let number: u32 = interface.bytes().map(u32::from).sum::<u32>() % 200;
        self.device(|| {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("root may");
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").expect("root may");
            let here = nix::unistd::gettid();
            guest.act(|| {
                ip(&format!("link add uplink type veth peer name {interface} netns {here}"));
                ip(&format!("addr add 172.20.{number}.2/24 dev uplink"));
                ip(&format!("addr add fd00:{number}::2/64 dev uplink nodad"));
                ip("link set uplink up");
                ip(&format!("route add default via 172.20.{number}.1"));
                ip(&format!("-6 route add default via fd00:{number}::1"));
            });
            ip(&format!("addr add 172.20.{number}.1/24 dev {interface}"));
            ip(&format!("addr add fd00:{number}::1/64 dev {interface} nodad"));
            ip(&format!("link set {interface} up"));
            nft(&format!(
                "table inet home-{interface} {{ chain out {{ type nat hook postrouting priority \
                 srcnat; iifname {interface} masquerade; }}; }}"
            ));
        });
        Guest(guest)
    }

    /// Runs `act` on the device.
    pub fn device<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        self.device.act(act)
    }

    /// Runs `act` on the host of the gateway.
    pub fn host<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        self.host.act(act)
    }

    /// Returns a function that connects from the host of the gateway, for a thread that outlives
    /// this call.
    pub fn within_host(
        &self,
    ) -> impl Fn(&(dyn Fn() -> io::Result<TcpStream> + Sync)) -> io::Result<TcpStream> + Send + use<>
    {
        let host = Namespace(self.host.0.try_clone().expect("a descriptor is free"));
        move |connect| host.act(connect)
    }

    /// Runs `act` in the namespace of the servers.
    pub fn internet<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        self.internet.act(act)
    }

    /// A listening server on the internet. A program that another thread starts holds the previous
    /// sockets for a short time.
    #[track_caller]
    pub fn listen(&self, address: &str, port: u16) -> TcpListener {
        let bind = || self.internet(|| TcpListener::bind(at(address, port)));
        eventually("the port is free", || bind().ok())
    }

    /// A UDP socket of a server on the internet.
    #[track_caller]
    pub fn datagrams(&self, address: &str, port: u16) -> UdpSocket {
        let bind = || self.internet(|| UdpSocket::bind(at(address, port)));
        eventually("the port is free", || bind().ok())
    }

    /// Path of a file of this test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Sets the wall clock of both endpoints that are started afterwards, relative to the real
    /// time: `+400d`, or `+0`. It can be changed while they run.
    pub fn set_clock(&self, difference: &str) {
        let path = self.path("clock");
        fs::write(path.with_extension("new"), difference).expect("room for a line");
        fs::rename(path.with_extension("new"), path).expect("the same folder");
    }

    /// Changes a link with `lab set`.
    #[track_caller]
    pub fn set(&self, link: &str, change: &str) {
        finish(manyways().args(["lab", "set", "--lab", &self.lab, link, change])).succeeded();
    }

    /// Starts a program in the namespace of the calling thread, with matching views of `/sys` and
    /// of name resolution. The returned process is the program itself.
    pub fn start(&self, log: &Path, program: &mut Command) -> Running {
        let words = std::iter::once(program.get_program()).chain(program.get_args());
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", VIEW, "view"]).arg(self.files.path()).args(words);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for (name, text) in [
            ("resolv.conf", format!("nameserver {}\noptions timeout:2\n", SERVER[0])),
            ("nsswitch.conf", "passwd: files\nhosts: files dns\n".to_owned()),
        ] {
            fs::write(self.path(name), text).expect("room for a line");
        }
        if !self.path("hosts").exists() {
            fs::write(self.path("hosts"), "127.0.0.1 localhost\n").expect("room for a line");
        }
        let log = File::create(log).expect("room for a log");
        let stdout = log.try_clone().expect("a descriptor is free");
        Running::start(command.stdout(stdout).stderr(log))
    }

    /// Starts a web server on port 80 of both addresses, with `/object` and with uploads below
    /// `/put/`.
    #[track_caller]
    pub fn web(&self) -> Running {
        for name in ["root", "nginx", "put"] {
            fs::create_dir_all(self.path(name)).expect("room for a folder");
        }
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(self.path("put"), everybody).expect("its permissions");
        object(&self.path("root"), "object", LENGTH, 7);
        let more = format!(
            "location /put/ {{ root {}; dav_methods PUT; client_max_body_size 100m; }}",
            self.files.path().display()
        );
        let site = Site {
            root: &self.path("root"),
            plain: &SERVER.map(|address| at(address, 80)),
            secure: &[],
            authority: None,
            more: &more,
        };
        let server = Server::nginx(&self.path("nginx"), &site).expect("nginx");
        self.internet(|| server.start(&[]))
    }

    /// Source addresses of the web server's requests.
    pub fn askers(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("nginx/access.log")).unwrap_or_default();
        log.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
    }
}

/// A device that is connected through the world's device.
pub struct Guest(Namespace);

impl Guest {
    /// Runs `act` on the guest.
    pub fn act<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        self.0.act(act)
    }
}

/// The first argument is a folder with files that replace those of the system.
const VIEW: &str = r#"
mkdir -p "$1/cgroup" && mount --rbind /sys/fs/cgroup "$1/cgroup"
mount -t sysfs -o ro sysfs /sys
mount --rbind "$1/cgroup" /sys/fs/cgroup
for name in resolv.conf hosts nsswitch.conf; do mount --bind "$1/$name" "/etc/$name"; done
shift; exec "$@"
"#;

/// Runs iproute2 in the namespace of the calling thread.
#[track_caller]
pub fn ip(words: &str) -> Finished {
    finish(Command::new("ip").args(words.split(' '))).succeeded()
}

/// Changes the packet filter in the namespace of the calling thread.
#[track_caller]
pub fn nft(words: &str) -> Finished {
    finish(Command::new("nft").arg(words)).succeeded()
}

/// Opens the namespace of this name, for which `process` has a descriptor.
#[track_caller]
fn namespace_of(process: i32, name: &str) -> File {
    let open = fs::read_dir(format!("/proc/{process}/fd")).expect("the lab runs");
    let paths = open.flatten().map(|entry| entry.path());
    let found = paths
        .into_iter()
        .find(|path| fs::read_link(path).is_ok_and(|link| link.as_os_str() == name))
        .unwrap_or_else(|| panic!("the lab has no namespace {name}"));
    File::open(found).expect("root may open it")
}
