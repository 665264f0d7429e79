//! `manyways get`: fetches objects over every network of this host at once.

mod networks;
mod progress;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use manyways_net::fetch::location::Location;
use manyways_net::fetch::{Allowance, Checksum, Client, Job, Trust};
use manyways_trace::Size;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use progress::Display;

/// Fetch files over every network of this host at once.
///
/// Each network gets one connection, and they share the bytes of each file. The server needs
/// nothing but range requests, which nearly every one answers; where it does not, one network is
/// used, and that is said.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways get https://www.example.com/film.mp4
  manyways get -o film.mp4 --via wifi,lte --metered 500MB https://www.example.com/film.mp4
  manyways get -c https://www.example.com/film.mp4        (goes on after a kill)
  manyways get --checksum sha256:9f86d0…0a08 --json https://www.example.com/film.mp4

A file gets its name when it is whole. Until then its bytes are in FILE.manyways-part, and
FILE.manyways says which are there; a file of that name that is there already is replaced at the
end.")]
pub struct Args {
    /// What to fetch: http:// or https:// URLs.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Write to FILE; without it, to a file in this folder that is called as the URL ends.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name each file as its URL ends, which is what happens without -o too.
    #[arg(short = 'O', long, conflicts_with = "output")]
    remote_name: bool,
    /// Go on with what an earlier run left, if the object is still the same.
    #[arg(short = 'c', long = "continue")]
    resume: bool,
    /// Use only these networks, by their names in `manyways paths`; the first is preferred.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    via: Vec<String>,
    /// How much metered networks may be used: yes (without limit), no, or so many bytes in all.
    #[arg(long, value_name = "yes|no|BYTES", default_value = "1GB", value_parser = allowance)]
    metered: Allowance,
    /// How much one request of a later network asks for.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = chunk)]
    chunk: Size,
    /// Fail unless the file has this SHA-256: sha256:HEX.
    #[arg(long, value_name = "sha256:HEX", value_parser = checksum)]
    checksum: Option<Sha256>,
    /// Report the file's SHA-256.
    #[arg(long)]
    sha256: bool,
    /// Send this header with every request. May be given more than once.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Trust the certificate authorities in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// Accept any certificate. Whoever is on the way can then read and change the file.
    #[arg(long)]
    insecure: bool,
    /// Print one line of JSON at the end, on standard output.
    #[arg(long)]
    json: bool,
    /// Say nothing but errors.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy)]
struct Sha256([u8; 32]);

fn allowance(text: &str) -> Result<Allowance, String> {
    match text {
        "yes" => Ok(Allowance::All),
        "no" => Ok(Allowance::Nothing),
        size => Size::from_str(size)
            .map(Allowance::Limit)
            .map_err(|error| format!("yes, no or a size is needed; {error}")),
    }
}

fn chunk(text: &str) -> Result<Size, String> {
    let chunk = Size::from_str(text).map_err(|error| error.to_string())?;
    if chunk < Size::from_kib(16) {
        return Err("a chunk is at least 16KiB".to_owned());
    }
    Ok(chunk)
}

fn checksum(text: &str) -> Result<Sha256, String> {
    let wrong = || "sha256: and 64 hexadecimal digits are needed".to_owned();
    let digits = text.strip_prefix("sha256:").ok_or_else(wrong)?;
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(Sha256(hash))
}

pub fn run(args: Args) -> Result<ExitCode> {
    let jobs = jobs(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    // A name look-up or a flush of the disk that hangs must not hold the end up.
    let done = runtime.block_on(fetch(&args, &jobs));
    runtime.shutdown_background();
    done
}

fn jobs(args: &Args) -> Result<Vec<Job>> {
    if args.output.is_some() && args.urls.len() > 1 {
        return Err(Failure::usage("-o names one file, and there are several URLs")
            .hint("leave -o out, and each file is called as its URL ends")
            .into());
    }
    if args.checksum.is_some() && args.urls.len() > 1 {
        return Err(Failure::usage("--checksum is of one file, and there are several URLs").into());
    }
    let mut outputs: Vec<PathBuf> = Vec::new();
    let mut jobs = Vec::new();
    for url in &args.urls {
        let location = Location::parse(url).map_err(|error| Failure::usage(error.to_string()))?;
        let output = match &args.output {
            Some(output) if output == Path::new("-") => {
                return Err(Failure::usage("writing to standard output is not possible yet")
                    .hint("name a file with -o")
                    .into());
            }
            Some(output) => output.clone(),
            None => location.file_name().map(PathBuf::from).ok_or_else(|| {
                Failure::usage(format!("no file name can be taken from {location}"))
                    .hint("name a file with -o")
            })?,
        };
        if outputs.contains(&output) {
            let words = format!("two URLs would be written to {}", output.display());
            return Err(Failure::usage(words).hint("fetch them one by one, with -o").into());
        }
        let checksum = match args.checksum {
            Some(Sha256(wanted)) => Checksum::Check(wanted),
            None if args.sha256 => Checksum::Report,
            None => Checksum::None,
        };
        let job = Job::new(url, &output).map_err(|error| Failure::usage(error.to_string()))?;
        jobs.push(job.resume(args.resume).checksum(checksum));
        outputs.push(output);
    }
    Ok(jobs)
}

async fn fetch(args: &Args, jobs: &[Job]) -> Result<ExitCode> {
    // From here on a signal stops a transfer in good order.
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be caught")?;
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be caught")?;
    if args.insecure && !args.quiet {
        eprintln!("manyways: certificates are not checked; anyone on the way can change the file");
    }
    let trust = match (&args.cacert, args.insecure) {
        (_, true) => Trust::Anybody,
        (Some(file), false) => Trust::File(file.clone()),
        (None, false) => Trust::System,
    };
    let mut transfers = Vec::new();
    let mut failure = None;
    let mut client: Option<Client> = None;
    let mut networks = networks::Networks::default();
    for (job, url) in jobs.iter().zip(&args.urls) {
        // Servers in other networks may need other paths; the same paths keep their connections.
        let paths = networks.towards(&args.via, args.metered, job.location()).await?;
        let client = match (&mut client, paths) {
            (Some(client), None) => client,
            (client, paths) => {
                let builder = args
                    .header
                    .iter()
                    .fold(Client::builder(), |builder, line| builder.header(line));
                let fresh = builder
                    .paths(paths.unwrap_or_default())
                    .trust(trust.clone())
                    .chunk(args.chunk)
                    .metered(left(args.metered, &transfers))
                    .build()
                    .map_err(|error| Failure::usage(error.to_string()))?;
                client.insert(fresh)
            }
        };
        let mut display = Display::new(args.quiet);
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        let outcome = client.fetch(job, &mut |event| display.show(event), stop).await;
        display.clear();
        match outcome {
            Ok(report) => {
                if !args.quiet {
                    report::print(&report, job.output());
                }
                transfers.push(report::Transfer::done(url, &report));
            }
            Err(error) => {
                let mut words = Failure::new(error.to_string());
                if let Some(hint) = error.hint() {
                    words = words.hint(hint);
                }
                transfers.push(report::Transfer::failed(url, &error));
                failure = Some(words);
                break;
            }
        }
    }
    if args.json {
        println!("{}", report::json(&transfers)?);
    }
    match failure {
        Some(failure) => Err(failure.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// What earlier transfers left of the allowance.
fn left(metered: Allowance, transfers: &[report::Transfer]) -> Allowance {
    let spent = Size::from_bytes(transfers.iter().map(report::Transfer::metered_bytes).sum());
    match metered {
        Allowance::Limit(limit) => Allowance::Limit(limit.saturating_sub(spent)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(allowance("500MB"), Ok(Allowance::Limit(Size::from_bytes(500_000_000))));
        assert_eq!(allowance("no"), Ok(Allowance::Nothing));
        assert!(allowance("maybe").is_err());
        assert!(chunk("1KB").is_err());
        let hash = "ab".repeat(32);
        assert_eq!(checksum(&format!("sha256:{hash}")).map(|hash| hash.0), Ok([0xab; 32]));
        for wrong in [hash.as_str(), "sha256:ab", &format!("md5:{hash}")] {
            assert!(checksum(wrong).is_err());
        }
    }
}
