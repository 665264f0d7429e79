//! Real web servers with a configuration for one test or benchmark.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use manyways_lab::{Lab, LabError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::certificate::Authority;
use crate::process::Running;
use crate::programs::{program, quoted};

/// Time limit for a server to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason why a web server is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error("{0} is not installed: run scripts/setup bench")]
    Missing(&'static str),
    #[error("cannot {0}: {1}")]
    File(&'static str, io::Error),
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The server ended during its start; the text is a line of its log.
    #[error("the web server does not start: {0}")]
    NotStarted(String),
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl ServerError {
    /// For `map_err`: `doing` is the failed operation on a file.
    pub(crate) fn file(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::File(doing, error)
    }
}

/// Content and addresses of a web server.
#[derive(Debug, Clone)]
pub struct ServerConfig<'a> {
    /// The document root. Any user must be able to read it, see [`crate::folder`].
    pub root: &'a Path,
    /// Addresses for `http://`.
    pub plain: &'a [SocketAddr],
    /// Addresses for `https://`, with HTTP/2 and HTTP/1.1.
    pub secure: &'a [SocketAddr],
    /// Issuer of the certificate; required if there are addresses for `https://`.
    pub authority: Option<&'a Authority>,
    /// Additional lines for the configuration, in the syntax of the server.
    pub extra_config: &'a str,
}

/// A configured web server. [`command`](Self::command) is its command line, for example for a host
/// of a lab; [`start`](Self::start) starts it here.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    command: Vec<String>,
}

impl Server {
    /// Configures nginx; it writes only into `folder`. Its workers run as root, because the user
    /// namespace of a lab may have no other user.
    ///
    /// # Errors
    /// If nginx is not installed, or its configuration cannot be written.
    pub fn nginx(folder: &Path, site: &ServerConfig<'_>) -> Result<Self, ServerError> {
        let dir = folder.display();
        let mut listen = String::new();
        for address in site.plain {
            let _ = writeln!(listen, "    listen {address};");
        }
        for address in site.secure {
            let _ = writeln!(listen, "    listen {address} ssl http2;");
        }
        if let Some(authority) = site.authority {
            let (certificate, key) = (authority.certificate(), authority.key());
            let _ = writeln!(listen, "    ssl_certificate \"{}\";", certificate.display());
            let _ = writeln!(listen, "    ssl_certificate_key \"{}\";", key.display());
        }
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("  {what}_temp_path \"{dir}/{what}\";\n"))
            .concat();
        let config = format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid \"{dir}/pid\";\n\
             error_log \"{dir}/error.log\" notice;\nevents {{ worker_connections 1024; }}\n\
             http {{\n{temporary}  access_log \"{dir}/access.log\";\n  \
             default_type application/octet-stream;\n  sendfile on;\n  server {{\n{listen}    \
             root \"{}\";\n{}\n  }}\n}}\n",
            site.root.display(),
            site.extra_config
        );
        let path = folder.join("nginx.conf");
        let words = ["-p", &dir.to_string(), "-e", &format!("{dir}/error.log"), "-c"];
        Self::write_config("nginx", folder, &words, &path, &config)
    }

    /// Configures Apache httpd; it writes only into `folder`.
    ///
    /// # Errors
    /// If Apache is not installed, or its configuration cannot be written.
    pub fn apache(folder: &Path, site: &ServerConfig<'_>) -> Result<Self, ServerError> {
        let dir = folder.display();
        let mut config = String::new();
        for module in ["mpm_event", "authz_core", "ssl", "http2"] {
            let _ = writeln!(
                config,
                "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so"
            );
        }
        let _ = writeln!(
            config,
            "ServerRoot {dir}\nDefaultRuntimeDir {dir}\nPidFile {dir}/pid\nErrorLog {dir}/error.log\n\
             User www-data\nGroup www-data\nServerName origin.lab\nDocumentRoot {root}\n\
             <Directory {root}>\n  Require all granted\n</Directory>\n{more}",
            root = site.root.display(),
            more = site.extra_config
        );
        for address in site.plain.iter().chain(site.secure) {
            let _ = writeln!(config, "Listen {address} http");
        }
        for address in site.secure {
            let _ = writeln!(
                config,
                "<VirtualHost {address}>\n  SSLEngine on\n  Protocols h2 http/1.1"
            );
            if let Some(authority) = site.authority {
                let (certificate, key) = (authority.certificate(), authority.key());
                let _ = writeln!(config, "  SSLCertificateFile {}", certificate.display());
                let _ = writeln!(config, "  SSLCertificateKeyFile {}", key.display());
            }
            config.push_str("</VirtualHost>\n");
        }
        let path = folder.join("apache.conf");
        Self::write_config("apache2", folder, &["-D", "FOREGROUND", "-f"], &path, &config)
    }

    /// Writes the configuration and returns the server with the command `name words… path`.
    pub(crate) fn write_config(
        name: &'static str,
        folder: &Path,
        words: &[&str],
        path: &Path,
        config: &str,
    ) -> Result<Self, ServerError> {
        let program = program(name).ok_or(ServerError::Missing(name))?;
        fs::write(path, config).map_err(ServerError::file("write a server's configuration"))?;
        let (program, path) = (program.display().to_string(), path.display().to_string());
        let words = words.iter().map(|word| (*word).to_owned());
        let command = std::iter::once(program).chain(words).chain([path]).collect();
        Ok(Self { folder: folder.to_path_buf(), command })
    }

    /// Starts the server through another program, for example `mptcpize run`.
    #[must_use]
    pub fn launched_by(mut self, program: &Path, arguments: &[&str]) -> Self {
        let words = arguments.iter().map(|word| (*word).to_owned());
        let words = std::iter::once(program.display().to_string()).chain(words);
        self.command = words.chain(self.command).collect();
        self
    }

    /// Starts the server on a host of a lab and returns when it listens. It ends with the lab.
    ///
    /// # Errors
    /// If the server ends during its start, with the reason from its log or its standard error.
    pub fn serve(&self, lab: &mut Lab, host: usize) -> Result<(), ServerError> {
        let words: Vec<String> = self.command.iter().map(|word| quoted(OsStr::new(word))).collect();
        let errors = self.folder.join("stderr");
        let line = format!("exec {} 2>{}", words.join(" "), quoted(errors.as_os_str()));
        let reason = || {
            let (log, errors) = (self.error_log(), fs::read_to_string(&errors).unwrap_or_default());
            let line = log.lines().find(|line| line.contains("[emerg]"));
            line.or_else(|| errors.lines().last()).map(str::to_owned)
        };
        match lab.serve(host, &line) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let reason = reason().map_or_else(String::new, |line| format!(": {line}"));
                Err(ServerError::NotStarted(format!("it does not listen{reason}")))
            }
            Err(error) => Err(reason().map_or_else(|| error.into(), ServerError::NotStarted)),
        }
    }

    /// The program and its arguments. The server stays in the foreground and ends on SIGTERM.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Starts the server with `prefix` (for example `ip netns exec NAME`) before its command, and
    /// returns when it listens.
    ///
    /// # Panics
    /// If the server does not listen within 30 s, with its error log.
    #[track_caller]
    pub fn start(&self, prefix: &[&str]) -> Running {
        // Every server writes its process id once its sockets listen.
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).expect("inotify is there");
        // lighttpd does not close the file.
        let written = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVED_TO;
        watch.add_watch(&self.folder, written).expect("the folder is there");
        let mut words = prefix.iter().copied().chain(self.command.iter().map(String::as_str));
        let mut command = Command::new(words.next().expect("a command has a program"));
        let running = Running::start(command.args(words));
        let deadline = Instant::now() + START_TIMEOUT;
        while fs::read_to_string(self.folder.join("pid")).unwrap_or_default().trim().is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{command:?} does not listen: {}", self.error_log());
            let timeout = PollTimeout::try_from(left).expect("half a minute fits");
            let mut events = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            poll(&mut events, timeout).expect("inotify can be waited for");
            // Every event causes another read of the file, so the events need no decoding.
            let _ = watch.read_events();
        }
        running
    }

    /// The current content of the error log; empty if there is none.
    pub fn error_log(&self) -> String {
        fs::read_to_string(self.folder.join("error.log")).unwrap_or_default()
    }
}
