//! The environment of a command that trusts an [`Authority`], which no other program does.
//!
//! - A bundle of the host's roots and the authority, mounted over the host's bundle, for programs
//!   that read that file (curl, wget, apt, git), and named by variables for those with bundles of
//!   their own (Python, Node, cargo).
//! - A database of NSS in a private home, for Chromium. All else in that home are links to the
//!   user's own files.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Authority;

/// Bundles of Debian, Fedora and Alpine.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Variables that name a bundle with all roots: of OpenSSL, curl, Python's requests, pip, git, cargo,
/// Nix, Deno, the AWS command.
const BUNDLE_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "NIX_SSL_CERT_FILE",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
];
/// Variable of Node, for roots in addition to its own.
const ADDITION_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";
/// Name of the authority in the database.
const NICKNAME: &str = "manyways";
/// Folder of the database within a home, where Chromium looks for it.
const DATABASE: &str = ".pki/nssdb";

/// The environment of a command that trusts an authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustEnvironment {
    pub variables: Vec<(String, OsString)>,
    /// Files, and the files over which they are mounted.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// Whether Chromium trusts the authority: it needs `certutil`.
    pub has_database: bool,
}

impl TrustEnvironment {
    /// Writes the files for a command into a folder, which is removed with them after the command.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn prepare(authority: &Authority, folder: &Path) -> io::Result<Self> {
        let own = folder.join("authority.crt");
        fs::write(&own, authority.certificate_pem())?;
        let bundle = folder.join("ca-bundle.crt");
        // A bundle that the user chose replaces the host's.
        let chosen = BUNDLE_VARIABLES.iter().filter_map(std::env::var_os).map(PathBuf::from);
        let mut known = chosen.chain(BUNDLES.iter().map(PathBuf::from));
        let roots = known.find_map(|path| fs::read(path).ok()).unwrap_or_default();
        let mut text = authority.certificate_pem().as_bytes().to_vec();
        text.extend(roots);
        fs::write(&bundle, text)?;
        let mut variables: Vec<(String, OsString)> = (BUNDLE_VARIABLES.iter())
            .map(|name| ((*name).to_owned(), bundle.clone().into_os_string()))
            .collect();
        let addition = match std::env::var_os(ADDITION_VARIABLE) {
            Some(_) => bundle.clone(),
            None => own.clone(),
        };
        variables.push((ADDITION_VARIABLE.to_owned(), addition.into_os_string()));
        let targets = BUNDLES.iter().map(PathBuf::from).filter(|path| path.is_file());
        let mut canonical: Vec<PathBuf> =
            targets.filter_map(|path| path.canonicalize().ok()).collect();
        canonical.dedup();
        let mounts = canonical.into_iter().map(|target| (bundle.clone(), target)).collect();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let has_database = home.is_some_and(|home| {
            let made = private_home(&home, &folder.join("home"), &own);
            if let Ok(true) = made {
                variables.push(("HOME".to_owned(), folder.join("home").into_os_string()));
            }
            made.unwrap_or_default()
        });
        Ok(Self { variables, mounts, has_database })
    }
}

/// Makes a home with the user's files and a database that trusts the certificate. Returns false
/// without `certutil`.
fn private_home(users: &Path, private: &Path, certificate: &Path) -> io::Result<bool> {
    let database = private.join(DATABASE);
    fs::create_dir_all(&database)?;
    let within = |folder: &Path, except: &str| -> io::Result<()> {
        let source = users.join(folder);
        for entry in fs::read_dir(&source).into_iter().flatten() {
            let name = entry?.file_name();
            if name != except {
                symlink(source.join(&name), private.join(folder).join(&name))?;
            }
        }
        Ok(())
    };
    let certutil = |arguments: &[&str]| {
        let mut command = Command::new("certutil");
        command.args(arguments).arg("-d").arg(format!("sql:{}", database.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    // The user's own roots and keys count, too.
    for entry in fs::read_dir(users.join(DATABASE)).into_iter().flatten() {
        let entry = entry?;
        fs::copy(entry.path(), database.join(entry.file_name()))?;
    }
    if !database.join("cert9.db").exists() && !certutil(&["-N", "--empty-password"]) {
        return Ok(false);
    }
    let file = certificate.to_string_lossy();
    if !certutil(&["-A", "-t", "C,,", "-n", NICKNAME, "-i", &file]) {
        return Ok(false);
    }
    within(Path::new(""), ".pki")?;
    within(Path::new(".pki"), "nssdb")?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_home_has_the_files_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let (users, private) = (folder.path().join("users"), folder.path().join("private"));
        fs::create_dir_all(users.join(".config/tool")).unwrap();
        fs::write(users.join(".config/tool/settings"), "kept").unwrap();
        fs::create_dir_all(users.join(".pki/other")).unwrap();
        let certificate = folder.path().join("ca.crt");
        fs::write(&certificate, Authority::distrusted().unwrap().certificate_pem()).unwrap();
        let has_certutil = Command::new("certutil").arg("-H").output().is_ok();
        assert_eq!(private_home(&users, &private, &certificate).unwrap(), has_certutil);
        if !has_certutil {
            eprintln!("skipped: certutil is not installed");
            return;
        }
        assert_eq!(fs::read(private.join(".config/tool/settings")).unwrap(), b"kept");
        assert!(private.join(".pki/other").is_symlink());
        assert!(private.join(".pki/nssdb/cert9.db").is_file());
        assert!(!users.join(".pki/nssdb").exists());
    }

    #[test]
    fn every_tool_gets_a_bundle_with_the_authority_first() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::distrusted().unwrap();
        let environment = TrustEnvironment::prepare(&authority, folder.path()).unwrap();
        let named = |name: &str| {
            let all = environment.variables.iter();
            let path = all.clone().find(|(known, _)| known == name).map(|(_, path)| path);
            fs::read_to_string(path.unwrap()).unwrap()
        };
        for name in BUNDLE_VARIABLES {
            assert!(named(name).starts_with(authority.certificate_pem()), "{name}");
        }
        // With the roots that the variable named before, if it did.
        assert!(named(ADDITION_VARIABLE).starts_with(authority.certificate_pem()));
        for (source, target) in &environment.mounts {
            assert!(source.starts_with(folder.path()) && target.is_absolute());
        }
    }
}
