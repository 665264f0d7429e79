//! A lab with an internet beyond it: device, gateway and internet are network namespaces. A test
//! opens sockets and starts programs in them.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use manyways_tests::testbed::{Logged, Namespace};
pub use manyways_tests::testbed::{PATIENCE, accept, eventually, ip, nft};
use manyways_tests::{Folder, Lab, Running, Server, ServerConfig, folder, object};

/// Links without a rate limit.
pub const TWO_LINKS: [&str; 2] = ["wifi:delay=2ms", "lte:delay=5ms"];
/// Links that are slow enough for changes during a transfer.
pub const SLOW_LINKS: [&str; 2] =
    ["wifi:down=6mbit,up=3mbit,delay=4ms", "lte:down=4mbit,up=2mbit,delay=9ms"];
/// Address of the gateway for the device.
pub const GATEWAY: &str = "198.18.0.1";
/// Address of the gateway for the internet: the source address of connections through the bond.
pub const GATEWAY_OUTSIDE: [&str; 2] = ["203.0.113.1", "2001:db8:113::1"];
/// IPv4 and IPv6 address of a server, and the address of another server.
pub const SERVER: [&str; 2] = ["203.0.113.2", "2001:db8:113::2"];
pub const OTHER_SERVER: &str = "203.0.113.3";
/// A server on a private network next to the gateway.
pub const PRIVATE: &str = "192.168.77.2";
/// Length of the web server's object in bytes.
pub const OBJECT_LENGTH: u64 = 1_000_003;

/// A socket address, for example of [`SERVER`].
pub fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().expect("an address"), port)
}

/// A device with links to a host for the gateway, and an internet beyond that host.
pub struct Testbed {
    device: Namespace,
    host: Namespace,
    internet: Namespace,
    pub lab: Lab,
    files: Folder,
}

impl Testbed {
    #[track_caller]
    pub fn new(links: &[&str]) -> Self {
        Self::with_options(links, &[])
    }

    /// The same with further options of the lab.
    #[track_caller]
    pub fn with_options(links: &[&str], options: &[&str]) -> Self {
        let links = links.iter().flat_map(|link| ["--link", link]);
        let lab = Lab::start(&links.chain(options.iter().copied()).collect::<Vec<_>>());
        let (device, host) = (lab.namespace(None), lab.namespace(Some("origin")));
        let testbed = Self { device, host, internet: Namespace::new(), lab, files: folder() };
        testbed.connect();
        testbed
    }

    /// Makes the host a router between its links and the internet.
    fn connect(&self) {
        self.host.forward();
        let outside =
            format!("{}/24 192.168.77.1/24 {}/64", GATEWAY_OUTSIDE[0], GATEWAY_OUTSIDE[1]);
        let inside = format!("{}/24 {OTHER_SERVER}/24 {PRIVATE}/24 {}/64", SERVER[0], SERVER[1]);
        self.host.connect(("outside", &outside), &self.internet, ("inside", &inside));
        self.internet(|| ip("link set lo up"));
        for (namespace, [v4, v6]) in [(&self.internet, GATEWAY_OUTSIDE), (&self.host, SERVER)] {
            namespace.run(|| {
                ip(&format!("route add default via {v4}"));
                ip(&format!("-6 route add default via {v6}"));
            });
        }
    }

    /// Adds another device with this one as its router. It is connected to an interface of this
    /// name, and the device translates its addresses.
    #[track_caller]
    pub fn add_guest(&self, interface: &str) -> Namespace {
        let guest = Namespace::new();
        // Any number that is unique among the guests' interfaces.
        let number: u32 = interface.bytes().map(u32::from).sum::<u32>() % 200;
        let [v4, v6] = [format!("172.20.{number}."), format!("fd00:{number}::")];
        let (own, router) = (format!("{v4}2/24 {v6}2/64"), format!("{v4}1/24 {v6}1/64"));
        self.device.forward();
        self.device.connect((interface, &router), &guest, ("uplink", &own));
        guest.run(|| {
            ip(&format!("route add default via {v4}1"));
            ip(&format!("-6 route add default via {v6}1"));
        });
        self.device(|| {
            nft(&format!(
                "table inet home-{interface} {{ chain out {{ type nat hook postrouting priority \
                 srcnat; iifname {interface} masquerade; }}; }}"
            ));
        });
        guest
    }

    /// Runs `act` on the device.
    pub fn device<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        self.device.run(act)
    }

    /// Runs `act` on the host of the gateway.
    pub fn host<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        self.host.run(act)
    }

    /// The host of the gateway, for a thread that outlives this value.
    pub fn host_namespace(&self) -> Namespace {
        self.host.share()
    }

    /// Runs `act` in the namespace of the servers.
    pub fn internet<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        self.internet.run(act)
    }

    /// A listening server on the internet.
    #[track_caller]
    pub fn listen(&self, address: &str, port: u16) -> TcpListener {
        self.internet.listen(at(address, port))
    }

    /// A UDP socket of a server on the internet.
    #[track_caller]
    pub fn udp_server(&self, address: &str, port: u16) -> UdpSocket {
        self.internet.bind(at(address, port))
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
        self.lab.set(&[link, change]).expect_success();
    }

    /// Starts a program in the namespace of the calling thread, with matching views of `/sys` and
    /// of name resolution. The returned process is the program itself.
    pub fn start(&self, log: PathBuf, program: &mut Command) -> Logged {
        let words = std::iter::once(program.get_program()).chain(program.get_args());
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", VIEW_SCRIPT, "view"]).arg(self.files.path()).args(words);
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
        Logged::start(log, &mut command)
    }

    /// Starts a web server on port 80 of both addresses, with `/object` and with uploads below
    /// `/put/`.
    #[track_caller]
    pub fn web_server(&self) -> Running {
        for name in ["root", "nginx", "put"] {
            fs::create_dir_all(self.path(name)).expect("room for a folder");
        }
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(self.path("put"), everybody).expect("its permissions");
        object(&self.path("root"), "object", OBJECT_LENGTH, 7);
        let more = format!(
            "location /put/ {{ root {}; dav_methods PUT; client_max_body_size 100m; }}",
            self.files.path().display()
        );
        let config = ServerConfig {
            root: &self.path("root"),
            plain: &SERVER.map(|address| at(address, 80)),
            secure: &[],
            authority: None,
            extra_config: &more,
        };
        let server = Server::nginx(&self.path("nginx"), &config).expect("nginx");
        self.internet(|| server.start(&[]))
    }

    /// Source addresses of the web server's requests.
    pub fn web_clients(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("nginx/access.log")).unwrap_or_default();
        log.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
    }
}

/// The first argument is a folder with files that replace those of the system.
const VIEW_SCRIPT: &str = r#"
mkdir -p "$1/cgroup" && mount --rbind /sys/fs/cgroup "$1/cgroup"
mount -t sysfs -o ro sysfs /sys
mount --rbind "$1/cgroup" /sys/fs/cgroup
for name in resolv.conf hosts nsswitch.conf; do mount --bind "$1/$name" "/etc/$name"; done
shift; [ -z "$OPEN_FILES" ] || ulimit -n "$OPEN_FILES"
exec "$@"
"#;
