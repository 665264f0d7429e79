//! The web servers of other people that `manyways get` is measured with and tested on.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::need::Need;
use crate::programs::{program, quoted, version};
use crate::server::{Server, ServerConfig, ServerError};

/// The module with which lighttpd speaks TLS; a separate Debian package.
const LIGHTTPD_TLS: &str = "/usr/lib/lighttpd/mod_openssl.so";

/// A web server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebServer {
    Nginx,
    Apache,
    Caddy,
    H2o,
    Lighttpd,
    /// HAProxy in front of nginx, which has no address of its own.
    Haproxy,
}

impl WebServer {
    pub const ALL: [Self; 6] =
        [Self::Nginx, Self::Apache, Self::Caddy, Self::H2o, Self::Lighttpd, Self::Haproxy];

    /// The name that the project of the server uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Apache => "Apache",
            Self::Caddy => "Caddy",
            Self::H2o => "h2o",
            Self::Lighttpd => "lighttpd",
            Self::Haproxy => "HAProxy",
        }
    }

    /// The programs and files that the server needs.
    pub fn needs(self) -> Need<'static> {
        match self {
            Self::Nginx => Need::Command("nginx"),
            Self::Apache => Need::Command("apache2"),
            Self::Caddy => Need::Command("caddy"),
            Self::H2o => Need::Command("h2o"),
            Self::Lighttpd => Need::All(&[Need::Command("lighttpd"), Need::File(LIGHTTPD_TLS)]),
            Self::Haproxy => Need::All(&[Need::Command("haproxy"), Need::Command("nginx")]),
        }
    }

    /// Name and version of the installed server; `None` if it is not installed.
    pub fn version(self) -> Option<String> {
        let (name, option) = match self {
            Self::Nginx => ("nginx", "-v"),
            Self::Apache => ("apache2", "-v"),
            Self::Caddy => ("caddy", "version"),
            Self::H2o => ("h2o", "--version"),
            Self::Lighttpd => ("lighttpd", "-v"),
            Self::Haproxy => ("haproxy", "-v"),
        };
        let version = version(&program(name)?, option)?;
        // Caddy prints only the number.
        let is_named = version.to_lowercase().starts_with(&self.name().to_lowercase());
        Some(if is_named { version } else { format!("{} {version}", self.name()) })
    }

    /// Configures the server; it stays in the foreground, writes only into `folder`, and listens
    /// only on the addresses of the site.
    ///
    /// # Errors
    /// If the server is not installed, or its configuration cannot be written.
    pub fn configure(self, folder: &Path, site: &ServerConfig<'_>) -> Result<Server, ServerError> {
        match self {
            Self::Nginx => Server::nginx(folder, site),
            Self::Apache => Server::apache(folder, site),
            Self::Caddy => caddy(folder, site),
            Self::H2o => h2o(folder, site),
            Self::Lighttpd => lighttpd(folder, site),
            Self::Haproxy => haproxy(folder, site),
        }
    }
}

/// The certificate and the key of a site for an address with TLS.
fn certificate(site: &ServerConfig<'_>) -> Option<(String, String)> {
    let authority = site.authority?;
    Some((authority.certificate().display().to_string(), authority.key().display().to_string()))
}

/// Every address, with the certificate and the key if it is one with TLS.
fn addresses<'a>(
    site: &'a ServerConfig<'_>,
) -> impl Iterator<Item = (&'a SocketAddr, Option<(String, String)>)> {
    let plain = site.plain.iter().map(|address| (address, None));
    plain.chain(site.secure.iter().map(|address| (address, certificate(site))))
}

/// The host of an address, as it stands before the port.
fn host(address: &SocketAddr) -> String {
    let ip = address.ip();
    if address.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}

fn caddy(folder: &Path, site: &ServerConfig<'_>) -> Result<Server, ServerError> {
    let (dir, root) = (folder.display(), site.root.display());
    // HTTP/3 would be another socket for each address, and the API one more.
    let mut config = format!(
        "{{\n  admin off\n  auto_https off\n  log {{\n    output file \"{dir}/error.log\"\n  }}\n  \
         servers {{\n    protocols h1 h2\n  }}\n}}\n"
    );
    for (address, certificate) in addresses(site) {
        let scheme = if certificate.is_some() { "https" } else { "http" };
        // A wildcard address is one family only, as with the other servers.
        let family = if address.is_ipv4() { "tcp4" } else { "tcp6" };
        let (host, port) = (host(address), address.port());
        let _ = writeln!(config, "{scheme}://:{port} {{\n  bind {family}/{host}");
        if let Some((certificate, key)) = certificate {
            let _ = writeln!(config, "  tls \"{certificate}\" \"{key}\"");
        }
        let _ = writeln!(config, "  root * \"{root}\"\n  file_server\n{}\n}}", site.extra_config);
    }
    // Caddy keeps a copy of its configuration in the folders of these variables.
    let caddy = program("caddy").ok_or(ServerError::Missing("caddy"))?;
    let (home, data) = (format!("XDG_CONFIG_HOME={dir}"), format!("XDG_DATA_HOME={dir}"));
    let (caddy, pid) = (caddy.display().to_string(), format!("{dir}/pid"));
    let words = [&*home, &data, &caddy, "run", "--pidfile", &pid, "--config"];
    Server::write_config("env", folder, &words, &folder.join("Caddyfile"), &config)
}

fn h2o(folder: &Path, site: &ServerConfig<'_>) -> Result<Server, ServerError> {
    let dir = folder.display();
    // The user namespace of a lab may lack h2o's default user.
    let mut config = format!(
        "pid-file: \"{dir}/pid\"\nerror-log: \"{dir}/error.log\"\nuser: root\nnum-threads: 1\n"
    );
    for (address, certificate) in addresses(site) {
        let (ip, port) = (address.ip(), address.port());
        let _ = writeln!(config, "listen:\n  host: \"{ip}\"\n  port: {port}");
        if let Some((certificate, key)) = certificate {
            // h2o would run a script that asks the issuer about the certificate.
            let _ = writeln!(
                config,
                "  ssl:\n    certificate-file: \"{certificate}\"\n    key-file: \"{key}\"\n    \
                 ocsp-update-interval: 0\n    neverbleed: OFF"
            );
        }
    }
    let _ = writeln!(
        config,
        "hosts:\n  default:\n    paths:\n      \"/\":\n        file.dir: \"{}\"\n{}",
        site.root.display(),
        site.extra_config
    );
    Server::write_config("h2o", folder, &["-c"], &folder.join("h2o.conf"), &config)
}

fn lighttpd(folder: &Path, site: &ServerConfig<'_>) -> Result<Server, ServerError> {
    let (dir, root) = (folder.display(), site.root.display());
    // A file without a type gets neither ETag nor Last-Modified.
    let mut config = format!(
        "server.document-root = \"{root}\"\nserver.errorlog = \"{dir}/error.log\"\n\
         server.pid-file = \"{dir}/pid\"\n\
         mimetype.assign = (\"\" => \"application/octet-stream\")\n"
    );
    if !site.secure.is_empty() {
        config.push_str("server.modules = (\"mod_openssl\")\n");
    }
    // The first address is the server's own, and each other one has a section. Addresses without
    // TLS come first, so that no section has to turn it off.
    for (index, (address, certificate)) in addresses(site).enumerate() {
        let tls = certificate.map_or_else(String::new, |(certificate, key)| {
            format!(
                "ssl.engine = \"enable\"\nssl.pemfile = \"{certificate}\"\n\
                 ssl.privkey = \"{key}\"\n"
            )
        });
        let (host, port) = (host(address), address.port());
        let _ = match index {
            0 => writeln!(config, "server.bind = \"{host}\"\nserver.port = {port}\n{tls}"),
            _ => writeln!(config, "$SERVER[\"socket\"] == \"{address}\" {{\n{tls}}}"),
        };
    }
    config.push_str(site.extra_config);
    Server::write_config("lighttpd", folder, &["-D", "-f"], &folder.join("lighttpd.conf"), &config)
}

fn haproxy(folder: &Path, site: &ServerConfig<'_>) -> Result<Server, ServerError> {
    let (dir, behind) = (folder.display(), folder.join("nginx"));
    fs::create_dir_all(&behind).map_err(ServerError::file("make the server's folder"))?;
    let socket = behind.join("socket");
    let listen = format!("    listen \"unix:{}\";", socket.display());
    let files = ServerConfig { plain: &[], secure: &[], extra_config: &listen, ..*site };
    let nginx = Server::nginx(&behind, &files)?;

    let pem = format!("{dir}/haproxy.pem");
    if let Some(authority) = site.authority {
        let read = |path| fs::read_to_string(path).map_err(ServerError::file("read a certificate"));
        let both = read(authority.certificate())? + &read(authority.key())?;
        fs::write(&pem, both).map_err(ServerError::file("write a certificate"))?;
    }
    // The timeouts are those of the Debian package.
    let mut config = String::from(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 50s\n  timeout server 50s\n\
         frontend front\n",
    );
    for (address, certificate) in addresses(site) {
        let only = if address.is_ipv6() { " v6only" } else { "" };
        let tls = certificate.map(|_| format!(" ssl crt {pem} alpn h2,http/1.1"));
        let _ = writeln!(config, "  bind {address}{only}{}", tls.unwrap_or_default());
    }
    let _ = writeln!(
        config,
        "  default_backend files\n{}\nbackend files\n  server nginx unix@{}",
        site.extra_config,
        socket.display()
    );
    let path = folder.join("haproxy.conf");
    let pid = format!("{dir}/pid");
    let front = Server::write_config("haproxy", folder, &["-W", "-p", &pid, "-f"], &path, &config)?;

    // HAProxy answers 503 until nginx listens. Both are in one process group and end with it.
    let line = |server: &Server| {
        let words = server.command().iter().map(|word| quoted(OsStr::new(word)));
        words.collect::<Vec<_>>().join(" ")
    };
    let socket = quoted(socket.as_os_str());
    let script = format!(
        "rm -f {socket}\n{} &\nuntil [ -S {socket} ]; do kill -0 $! || exit 1; sleep 0.02; done\n\
         exec {}\n",
        line(&nginx),
        line(&front)
    );
    Server::write_config("sh", folder, &[], &folder.join("start.sh"), &script)
}
