//! The requested files of a command line: each URL with its output.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use manyways_net::fetch::Job;
use manyways_net::fetch::location::Location;
use manyways_net::fetch::login::{Login, UserInfo};
use manyways_net::fetch::netrc::{self, Netrc};

use super::options::{Args, Transport};
use crate::failure::Failure;

/// One requested file.
pub struct Wanted {
    /// The URL as given, without user information.
    pub url: String,
    pub job: Job,
    /// Whether the bytes are written to standard output.
    pub to_stdout: bool,
}

/// Returns the requested files in order.
pub fn list(args: &Args) -> Result<Vec<Wanted>, Failure> {
    contradictions(args)?;
    let user = args.user.as_ref().map(|text| {
        Login::parse(text).ok_or_else(|| {
            Failure::usage("-u needs a user name, a colon and a password")
                .hint("the password may be empty; --netrc keeps it off the command line")
        })
    });
    let user = user.transpose()?;
    let netrc = args.netrc.as_ref().map(|file| read_netrc(file.as_deref())).transpose()?;
    let mut all: Vec<Wanted> = Vec::new();
    for given in &args.urls {
        // The printed and stored URL contains no password.
        let (url, info) = UserInfo::split(given);
        let location = Location::parse(&url).map_err(|error| Failure::usage(error.to_string()))?;
        let output = output(args, &location)?;
        if !args.to_stdout() && output.is_dir() {
            let file = location.file_name().unwrap_or_else(|| "FILE".to_owned());
            let folder = output.display();
            return Err(Failure::usage(format!("{folder} is a folder"))
                .hint(format!("name a file in it: -o {}", output.join(file).display())));
        }
        let to_stdout = args.to_stdout();
        if !to_stdout && all.iter().any(|other| other.job.output() == output) {
            let words = format!("two URLs would be written to {}", output.display());
            return Err(Failure::usage(words).hint("fetch them one by one, with -o"));
        }
        let login = login(info, user.as_ref(), netrc.as_ref(), &location);
        let job = Job::new(&url, &output).map_err(|error| Failure::usage(error.to_string()))?;
        let job = job.resume(args.resume).checksum(args.checksum()).size(args.size).login(login);
        all.push(Wanted { url, job, to_stdout });
    }
    Ok(all)
}

/// Rejects combinations of options that contradict each other.
fn contradictions(args: &Args) -> Result<(), Failure> {
    if args.transport == Transport::Mptcp {
        let given = [("--via", !args.via.is_empty()), ("--dns", !args.dns.is_empty())];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            let words = format!(
                "{option} is about single networks, and --transport mptcp leaves them to the kernel"
            );
            return Err(Failure::usage(words)
                .hint("`ip mptcp endpoint` configures the addresses that the kernel uses"));
        }
    }
    if args.to_stdout() {
        let given = [
            (args.resume, "-c goes on with a file, and standard output is none"),
            (args.json, "the file and --json cannot both be on standard output"),
        ];
        if let Some((_, words)) = given.iter().find(|(given, _)| *given) {
            return Err(Failure::usage(*words).hint("name a file with -o"));
        }
    }
    if args.urls.len() > 1 {
        if args.output.is_some() && !args.to_stdout() {
            return Err(Failure::usage("-o names one file, and there are several URLs")
                .hint("leave -o out, and each file is called as its URL ends"));
        }
        let of_one = [("--checksum", args.checksum.is_some()), ("--size", args.size.is_some())];
        if let Some((option, _)) = of_one.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!(
                "{option} is of one file, and there are several URLs"
            ))
            .hint("fetch them one by one"));
        }
    }
    Ok(())
}

/// Precedence: the URL, then `-u`, then the netrc file.
fn login(
    info: Option<UserInfo>,
    user: Option<&Login>,
    netrc: Option<&Netrc>,
    location: &Location,
) -> Option<Login> {
    let host = location.origin().host.as_str();
    match info {
        Some(UserInfo { user, password: Some(password) }) => Some(Login { user, password }),
        Some(UserInfo { user, password: None }) => netrc
            .and_then(|netrc| netrc.login(host, Some(&user)))
            .or(Some(Login { user, password: String::new() })),
        None => user.cloned().or_else(|| netrc?.login(host, None)),
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
        File::open(&file)?.take(netrc::MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let unreadable = |why: String| {
        Failure::new(format!("{} cannot be read: {why}", file.display()))
            .hint("--netrc=FILE names another file, -u USER:PASSWORD needs none")
    };
    let bytes = read().map_err(|error| unreadable(error.to_string()))?;
    Netrc::parse(&bytes).map_err(|error| unreadable(error.to_string()))
}

fn output(args: &Args, location: &Location) -> Result<PathBuf, Failure> {
    match &args.output {
        Some(output) => Ok(output.clone()),
        None => location.file_name().map(PathBuf::from).ok_or_else(|| {
            Failure::usage(format!("no file name can be taken from {location}"))
                .hint("name a file with -o")
        }),
    }
}
