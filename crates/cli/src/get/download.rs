//! The requested files of a command line: each URL with its output.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use manyways_net::fetch::{Job, Location, Login, Netrc, UserInfo, escape_bytes};

use super::options::{Args, Transport};
use crate::failure::Failure;

/// One requested file.
pub struct Download {
    /// The URL as given, without user information.
    pub url: String,
    pub job: Job,
    /// Whether the bytes are written to standard output.
    pub to_stdout: bool,
}

/// Returns the requested files in order.
pub fn list(args: &Args) -> Result<Vec<Download>, Failure> {
    check_combinations(args)?;
    let logins = Logins::read(args)?;
    let mut all: Vec<Download> = Vec::new();
    for given in &args.urls {
        let (url, info, location) = read_url(given)?;
        let output = output(args, &location)?;
        if !args.to_stdout() && output.is_dir() {
            let file = location.file_name().unwrap_or_else(|| "FILE".to_owned());
            let folder = output.display();
            let hint = format!("name a file in it: -o {}", output.join(file).display());
            return Failure::refuse(format!("{folder} is a folder"), hint);
        }
        let to_stdout = args.to_stdout();
        if !to_stdout && all.iter().any(|other| other.job.output() == output) {
            let words = format!("two URLs would be written to {}", output.display());
            return Failure::refuse(words, "fetch them one by one, with -o");
        }
        let login = logins.select(info, &location);
        let job = Job::new(&url, &output).map_err(|error| Failure::usage(error.to_string()))?;
        let job = job.resume(args.resume).checksum(args.checksum()).size(args.size).login(login);
        all.push(Download { url, job, to_stdout });
    }
    Ok(all)
}

/// Returns the URL of `--origin`, and its login.
pub fn origin(args: &Args) -> Result<(Location, Option<Login>), Failure> {
    check_combinations(args)?;
    let given = args.origin.as_ref().ok_or_else(|| Failure::usage("--serve needs --origin"))?;
    let (_, info, location) = read_url(given)?;
    let login = Logins::read(args)?.select(info, &location);
    Ok((location, login))
}

/// Reads a URL of the command line. The returned text contains no password.
fn read_url(given: &OsStr) -> Result<(String, Option<UserInfo>, Location), Failure> {
    let (url, info) = UserInfo::split(&escape_bytes(given.as_bytes()));
    let location = Location::parse(&url)
        .map_err(|error| Failure::usage(error.to_string()).maybe_hint(error.hint()))?;
    Ok((url, info, location))
}

/// Rejects combinations of options that contradict each other.
fn check_combinations(args: &Args) -> Result<(), Failure> {
    if args.transport == Transport::Mptcp {
        let given = [("--via", !args.via.is_empty()), ("--dns", !args.dns.is_empty())];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            let words = format!(
                "{option} has no effect with --transport mptcp: the kernel chooses the networks"
            );
            let hint = "`ip mptcp endpoint` configures the addresses that the kernel uses";
            return Failure::refuse(words, hint);
        }
    }
    check_advice(args)?;
    if args.to_stdout() {
        let given = [
            (args.resume, "-c continues a file, and standard output is not a file"),
            (args.json, "the file and --json cannot both be on standard output"),
        ];
        if let Some((_, words)) = given.iter().find(|(given, _)| *given) {
            return Failure::refuse(*words, "name a file with -o");
        }
    }
    if args.urls.len() > 1 {
        if args.output.is_some() && !args.to_stdout() {
            let hint = "without -o, each file is named after the last part of its URL";
            return Failure::refuse("-o names one file, but several URLs are given", hint);
        }
        let of_one = [("--checksum", args.checksum.is_some()), ("--size", args.size.is_some())];
        if let Some((option, _)) = of_one.iter().find(|(_, given)| *given) {
            let hint = "fetch them one by one";
            return Failure::refuse(
                format!("{option} applies to one file, but several URLs are given"),
                hint,
            );
        }
    }
    Ok(())
}

/// Rejects `--via auto` with other networks, and options that need it.
fn check_advice(args: &Args) -> Result<(), Failure> {
    if args.is_advised() && args.via.len() > 1 {
        let hint = "use --via auto alone, or name the networks without it";
        return Failure::refuse("--via auto cannot be combined with other networks", hint);
    }
    #[cfg(feature = "steer")]
    {
        if args.goal.is_some() && !args.is_advised() {
            let words = "--goal has an effect only with --via auto";
            return Failure::refuse(words, "add --via auto, or remove --goal");
        }
        if args.is_advised() && args.single_server {
            // The first network may be one that is not advised, because it does not work.
            let words = "--single-server cannot be combined with --via auto";
            let hint = "without --single-server, each network looks the host up itself";
            return Failure::refuse(words, hint);
        }
    }
    #[cfg(not(feature = "steer"))]
    if args.is_advised() {
        let words = "--via auto needs `manyways steer`, which this build does not have";
        return Failure::refuse(words, "name the networks, for example --via wifi,lte");
    }
    Ok(())
}

/// The logins of the command line.
struct Logins {
    user: Option<Login>,
    netrc: Option<Netrc>,
}

impl Logins {
    fn read(args: &Args) -> Result<Self, Failure> {
        let user = args.user.as_ref().map(|text| {
            Login::parse(text).ok_or_else(|| {
                Failure::usage("-u needs a user name, a colon and a password")
                    .hint("the password may be empty; --netrc keeps it off the command line")
            })
        });
        let netrc = args.netrc.as_ref().map(|file| read_netrc(file.as_deref())).transpose()?;
        Ok(Self { user: user.transpose()?, netrc })
    }

    /// Precedence: the URL, then `-u`, then the netrc file.
    fn select(&self, info: Option<UserInfo>, location: &Location) -> Option<Login> {
        let (host, netrc) = (location.origin().host.as_str(), self.netrc.as_ref());
        match info {
            Some(UserInfo { user, password: Some(password) }) => Some(Login { user, password }),
            Some(UserInfo { user, password: None }) => netrc
                .and_then(|netrc| netrc.login(host, Some(&user)))
                .or(Some(Login { user, password: String::new() })),
            None => self.user.clone().or_else(|| netrc?.login(host, None)),
        }
    }
}

fn read_netrc(file: Option<&Path>) -> Result<Netrc, Failure> {
    let file = match file {
        Some(file) => file.to_owned(),
        None => std::env::home_dir()
            .ok_or_else(|| Failure::new("there is no home folder with a .netrc"))?
            .join(".netrc"),
    };
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(&file)?.take(Netrc::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let unreadable = |why: String| {
        Failure::new(format!("{} cannot be read: {why}", file.display()))
            .hint("name another file with --netrc=FILE, or use -u USER:PASSWORD")
    };
    let bytes = read().map_err(|error| unreadable(error.to_string()))?;
    Netrc::parse(&bytes).map_err(|error| unreadable(error.to_string()))
}

fn output(args: &Args, location: &Location) -> Result<PathBuf, Failure> {
    match &args.output {
        Some(output) => Ok(output.clone()),
        None => location.file_name().map(PathBuf::from).ok_or_else(|| {
            Failure::usage(format!("the URL {location} contains no file name"))
                .hint("name a file with -o")
        }),
    }
}
