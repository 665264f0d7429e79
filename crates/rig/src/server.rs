//! Real web servers, configured for one test or benchmark each.

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

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a web server cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// A program is missing.
    #[error("{0} is not installed: run scripts/setup bench")]
    Missing(&'static str),
    /// A file.
    #[error("cannot {0}: {1}")]
    File(&'static str, io::Error),
    /// A certificate.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The server ended at once, with this line of its log.
    #[error("nginx does not start: {0}")]
    Server(String),
    /// The lab refused.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl SiteError {
    /// For `map_err`: what was being done to a file.
    pub(crate) fn file(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::File(doing, error)
    }
}

/// What to serve, and where.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    /// The folder whose files are served; everybody may read it, as [`crate::folder`] makes it.
    pub root: &'a Path,
    /// Addresses for `http://`.
    pub plain: &'a [SocketAddr],
    /// Addresses for `https://`, with HTTP/2 and HTTP/1.1.
    pub secure: &'a [SocketAddr],
    /// Who signed the certificate; needed where there are addresses for `https://`.
    pub authority: Option<&'a Authority>,
    /// More lines for the server's configuration, in its own language.
    pub more: &'a str,
}

/// A configured web server: run its [`command`](Self::command) where it belongs, for example as the
/// far side of a lab, or [`start`](Self::start) it.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    command: Vec<String>,
}

impl Server {
    /// Configures nginx, with all that it writes in `folder`. Its workers run as root: in the user
    /// namespace of a lab there may be no other user.
    ///
    /// # Errors
    /// When nginx is not installed, or its configuration cannot be written.
    pub fn nginx(folder: &Path, site: &Site<'_>) -> Result<Self, SiteError> {
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
            site.more
        );
        let path = folder.join("nginx.conf");
        let words = ["-p", &dir.to_string(), "-e", &format!("{dir}/error.log"), "-c"];
        Self::configured("nginx", folder, &words, &path, &config)
    }

    /// Configures Apache httpd, with all that it writes in `folder`.
    ///
    /// # Errors
    /// When Apache is not installed, or its configuration cannot be written.
    pub fn apache(folder: &Path, site: &Site<'_>) -> Result<Self, SiteError> {
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
            more = site.more
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
        Self::configured("apache2", folder, &["-D", "FOREGROUND", "-f"], &path, &config)
    }

    fn configured(
        name: &'static str,
        folder: &Path,
        words: &[&str],
        path: &Path,
        config: &str,
    ) -> Result<Self, SiteError> {
        let program = program(name).ok_or(SiteError::Missing(name))?;
        fs::write(path, config).map_err(SiteError::file("write a server's configuration"))?;
        let (program, path) = (program.display().to_string(), path.display().to_string());
        let words = words.iter().map(|word| (*word).to_owned());
        let command = std::iter::once(program).chain(words).chain([path]).collect();
        Ok(Self { folder: folder.to_path_buf(), command })
    }

    /// The same server, started by another program: `mptcpize run`.
    #[must_use]
    pub fn started_by(mut self, program: &Path, arguments: &[&str]) -> Self {
        let words = arguments.iter().map(|word| (*word).to_owned());
        let words = std::iter::once(program.display().to_string()).chain(words);
        self.command = words.chain(self.command).collect();
        self
    }

    /// Starts it on a far host of a lab, with which it ends, and returns once it listens.
    ///
    /// # Errors
    /// When it ends at once, with what its log says of the reason.
    pub fn serve(&self, lab: &mut Lab, host: usize) -> Result<(), SiteError> {
        let words: Vec<String> = self.command.iter().map(|word| quoted(OsStr::new(word))).collect();
        let served = lab.serve(host, &format!("exec {} 2>/dev/null", words.join(" ")));
        let listens = served.map_err(|error| {
            let log = self.error_log();
            match log.lines().find(|line| line.contains("[emerg]")) {
                Some(line) => SiteError::Server(line.to_owned()),
                None => error.into(),
            }
        })?;
        match listens {
            true => Ok(()),
            false => Err(SiteError::Server("it does not listen".to_owned())),
        }
    }

    /// The program and its arguments. It stays in the foreground, and ends with SIGTERM.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Starts it, behind `prefix` (for example `ip netns exec NAME`), and returns once it listens.
    ///
    /// # Panics
    /// When it does not listen in time, with its error log.
    #[track_caller]
    pub fn start(&self, prefix: &[&str]) -> Running {
        // Both servers write their process id once their sockets listen.
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).expect("inotify is there");
        let written = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
        watch.add_watch(&self.folder, written).expect("the folder is there");
        let mut words = prefix.iter().copied().chain(self.command.iter().map(String::as_str));
        let mut command = Command::new(words.next().expect("a command has a program"));
        let running = Running::start(command.args(words));
        let deadline = Instant::now() + PATIENCE;
        while fs::read_to_string(self.folder.join("pid")).unwrap_or_default().trim().is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{command:?} does not listen: {}", self.error_log());
            let timeout = PollTimeout::try_from(left).expect("half a minute fits");
            let mut events = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            poll(&mut events, timeout).expect("inotify can be waited for");
            // What changed does not matter: the file is looked at again anyway.
            let _ = watch.read_events();
        }
        running
    }

    /// What the server wrote into its error log so far.
    pub fn error_log(&self) -> String {
        fs::read_to_string(self.folder.join("error.log")).unwrap_or_default()
    }
}
