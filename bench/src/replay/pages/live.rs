//! The live origins as a lab: nginx at the addresses of a page, each at its own distance, in front of the
//! program that thinks.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use manyways_rig::Authority;
use manyways_rig::launch::DriveError;
use manyways_rig::programs::quoted;

use super::site::{Server, Site};
use crate::shell::Shell;

/// Where the program behind nginx listens.
const BEHIND: &str = "127.0.0.1:8000";

impl Site {
    /// The servers as options of `lab shell`.
    pub fn far_hosts(&self) -> String {
        let mut out = String::new();
        for server in &self.servers {
            let _ = write!(out, " --far-host {}", server.address);
            for name in &server.names {
                let _ = write!(out, ",name={name}");
            }
            let _ = write!(out, ",extra-rtt={}ms", server.extra_rtt.as_secs_f64() * 1000.0);
        }
        out
    }
}

/// Prepares the origins in the folder, and returns the options of `lab shell` that start them. Their
/// authority is `authority.pem`.
///
/// # Errors
/// If a file cannot be written.
pub fn options(
    shell: &Shell<'_>,
    site: &Site,
    har: &Path,
    seed: u64,
) -> Result<String, DriveError> {
    let authority = Authority::new(shell.folder(), &[])?;
    shell.write("nginx.conf", config(shell, site, &authority)?)?;
    let har = quoted(har.as_os_str());
    let behind = format!("exec \"$BENCH\" page-origins {har} --seed {seed} --listen {BEHIND}");
    let front = "exec nginx -p . -e nginx.log -c \"$PWD/nginx.conf\"";
    let [behind, front] = [&*behind, front].map(|line| quoted(OsStr::new(line)));
    Ok(format!("{} --far {behind} --far {front}", site.far_hosts()))
}

fn config(shell: &Shell<'_>, site: &Site, authority: &Authority) -> Result<String, DriveError> {
    let dir = shell.folder().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("  {what}_temp_path \"{dir}/{what}\";\n"))
        .concat();
    // The workers run as root, because the user namespace of a lab may have no other user. Bodies are
    // kept in memory. TLS is that of today's servers.
    let mut out = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid \"{dir}/nginx.pid\";\n\
         error_log \"{dir}/nginx.log\";\nevents {{ worker_connections 4096; }}\n\
         http {{\n{temporary}  access_log off;\n  ssl_protocols TLSv1.2 TLSv1.3;\n  \
         large_client_header_buffers 8 16k;\n  server_names_hash_bucket_size 256;\n  \
         upstream behind {{ server {BEHIND}; keepalive 256; }}\n  proxy_http_version 1.1;\n  \
         proxy_set_header Connection \"\";\n  proxy_set_header Host $host;\n  \
         proxy_buffers 64 32k;\n  proxy_max_temp_file_size 0;\n"
    );
    for (index, server) in site.servers.iter().enumerate() {
        let names: Vec<&str> = server.names.iter().map(String::as_str).collect();
        let stem = format!("server{index}");
        authority.issue(&stem, &names)?;
        out.push_str(&block(server, &format!("{dir}/{stem}")));
    }
    out.push_str("}\n");
    Ok(out)
}

/// A server of nginx, with the certificate and the key that begin with `stem`.
fn block(server: &Server, stem: &str) -> String {
    let at = |port| SocketAddr::new(server.address, port);
    let http2 = if server.is_http2 { " http2" } else { "" };
    format!(
        "  server {{\n    listen {};\n    listen {} ssl{http2};\n    \
         ssl_certificate \"{stem}.pem\";\n    ssl_certificate_key \"{stem}.key\";\n    \
         location / {{ proxy_pass http://behind; }}\n  }}\n",
        at(80),
        at(443)
    )
}
