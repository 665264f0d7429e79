//! `manyways record`: the HTTP traffic of a command, in an archive.

mod archive;
#[cfg(feature = "replay")]
mod classify;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use manyways_lab::{Lab, LabError, LabSpec, Mount, Node};
use manyways_net::authority::environment::TrustEnvironment;
use manyways_net::authority::{Authority, AuthorityError};
use manyways_net::record::{RecordError, Recorder, RecorderOptions, journal_of};
use manyways_net::state::state_folder;
use manyways_sys::privilege::raise_file_limit;
use manyways_sys::signal::Termination;
use manyways_trace::scenario::LinkSpec;

use self::summary::Summary;
use crate::failure::Failure;
use crate::lab::{
    FarHosts, command, current_folder, export, lab_failure, link_failure, prepare, reader,
    run_foreground, serve, start_failure,
};
use crate::report_file::{self, check_distinct, check_folder};

/// Record the HTTP traffic of a command.
///
/// The command runs in a lab, and its connections to the ports 80 and 443 end in a recorder, which
/// passes every byte on: HTTP/1.1 and HTTP/2, requests, responses, and when they came. Only this
/// command trusts the recorder's certificates.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The archive is a zip file with a HAR and the bodies. It contains passwords and cookies as they were sent, and only \
you can read it. HTTP/3 is refused, so that programs use HTTP/2. What cannot be recorded is passed on and listed: \
pinned certificates, client certificates, WebSocket, other protocols.

Examples:
  manyways record -o page.zip --internet -- chromium --headless --no-sandbox --dump-dom https://example.com/
  manyways record -o install.zip --internet -- pip download requests
  manyways record -o site.zip --origin-ca test-ca.pem --internet -- curl -s https://staging.test/
  manyways record -o local.zip --far 'python3 -m http.server 80' -- curl -s http://origin.lab/"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<SubCommand>,
    #[command(flatten)]
    record: RecordArgs,
}

#[derive(Subcommand)]
enum SubCommand {
    Check(archive::CheckArgs),
    Show(archive::ShowArgs),
    Import(archive::ImportArgs),
    Export(archive::ExportArgs),
    #[cfg(feature = "replay")]
    Classify(classify::ClassifyArgs),
}

#[derive(clap::Args)]
struct RecordArgs {
    /// The archive to write; it must not exist
    #[arg(short, long, value_name = "FILE", required = true)]
    output: Option<PathBuf>,
    /// Also trust the servers whose certificates these authorities (PEM) signed
    #[arg(long, value_name = "FILE")]
    origin_ca: Option<PathBuf>,
    /// Let the command reach the internet through this machine's network (root only)
    #[arg(long)]
    internet: bool,
    /// Do not read the connections to this host and the hosts below it; may be repeated
    #[arg(long = "bypass", value_name = "HOST")]
    bypass: Vec<String>,
    /// An emulated link; may be repeated [default: one link without limits]
    #[arg(long = "link", value_name = "NAME:KEY=VALUE,…")]
    links: Vec<String>,
    #[command(flatten)]
    far_hosts: FarHosts,
    /// Command that runs a server on the far side, by /bin/sh
    #[arg(long = "far", value_name = "CMD")]
    far: Vec<String>,
    /// Write a summary as JSON into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The command [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<String>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Some(SubCommand::Check(args)) => archive::check(&args),
        Some(SubCommand::Show(args)) => archive::show(&args),
        Some(SubCommand::Import(args)) => archive::import(&args),
        Some(SubCommand::Export(args)) => archive::export(&args),
        #[cfg(feature = "replay")]
        Some(SubCommand::Classify(args)) => classify::classify_file(&args),
        None => record(args.record),
    }
}

fn record(args: RecordArgs) -> Result<ExitCode> {
    let Some(output) = args.output.clone() else {
        return Failure::refuse("a recording needs a file", "name it with -o FILE");
    };
    check(&args, &output)?;
    let spec = spec(&args)?;
    let folder = state()?;
    let registry = prepare()?;
    let _ = raise_file_limit();
    let termination = Termination::take().context("cannot watch for signals")?;
    let authority = Authority::open(&folder).map_err(authority_failure)?;
    let interfaces = spec.links.iter().map(|link| link.name.clone()).collect();
    let mut lab = Lab::start(&registry, spec).map_err(lab_failure)?;
    export(&mut lab, None)?;
    let environment = TrustEnvironment::prepare(&authority, &lab.folder())
        .context("cannot write the files for the command")?;
    for far in &args.far {
        serve(&mut lab, Node::Host(0), far)?;
    }
    let options = RecorderOptions {
        archive: output.clone(),
        creator: format!("manyways {}", env!("CARGO_PKG_VERSION")),
        interfaces,
        leads_ipv6_out: lab.internet_v6() != Some(false),
        origin_ca: args.origin_ca.clone(),
        bypassed: args.bypass.clone(),
    };
    let recorder = Recorder::start(lab.namespace(Node::Host(0)), authority, &options)
        .map_err(|error| record_failure(error, &output))?;
    let start = || {
        let mut command = command(&args.words);
        command.envs(environment.variables.iter().map(|(name, value)| (name, value)));
        let child = lab.spawn_with(Node::Device(0), command, &mounts(&environment));
        Ok(child.map_err(|error| start_failure(error, args.words.first()))?)
    };
    let ran = run_foreground(start, &termination);
    let recording = recorder.finish().map_err(|error| record_failure(error, &output))?;
    let code = ran?;
    let summary = Summary::new(&output, &recording, environment.has_database);
    summary.print();
    if let Some(file) = &args.json {
        let text = manyways_record::document::to_json_pretty(&summary.document)
            .context("cannot format the summary")?;
        report_file::write(file, &text)?;
    }
    Ok(code)
}

fn check(args: &RecordArgs, output: &Path) -> Result<(), Failure> {
    let inputs: Vec<&Path> = args.origin_ca.iter().map(|path| &**path).collect();
    let outputs: Vec<&Path> = std::iter::once(output).chain(args.json.as_deref()).collect();
    outputs.iter().try_for_each(|path| check_folder(path))?;
    check_distinct(&inputs, &outputs)?;
    for path in [output.to_owned(), journal_of(output)] {
        if path.symlink_metadata().is_ok() {
            let hint = match path == output {
                true => "name another file, or remove it".to_owned(),
                false => format!(
                    "complete that recording with `manyways record check --repair {}`, or remove it",
                    output.display()
                ),
            };
            return Failure::refuse(format!("{} already exists", path.display()), hint);
        }
    }
    if !args.internet && args.far.is_empty() {
        return Failure::refuse(
            "the command would reach no server",
            "add --internet, or a server of your own with --far",
        );
    }
    // Every user is root in a new user namespace, but cannot share the host's network from there.
    if args.internet && !manyways_sys::sandbox::is_root() {
        return Err(lab_failure(LabError::InternetNeedsRoot));
    }
    Ok(())
}

/// Name of the link if none is given.
const DEFAULT_LINK: &str = "net";

fn spec(args: &RecordArgs) -> Result<LabSpec, Failure> {
    let parse =
        |text: &String| LinkSpec::parse(text, &mut reader(&current_folder())).map_err(link_failure);
    let mut links = args.links.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if links.is_empty() {
        links.push(LinkSpec::new(DEFAULT_LINK));
    }
    let mut spec = LabSpec::new(format!("record-{}", std::process::id()), links);
    spec.numbered = true;
    spec.internet = args.internet;
    spec.far_hosts = args.far_hosts.parse()?;
    Ok(spec)
}

/// Returns the folder with the certificate authority.
pub fn state() -> Result<PathBuf, Failure> {
    state_folder().ok_or_else(|| {
        Failure::new("there is no folder for the recorder's certificate authority")
            .hint("set XDG_STATE_HOME or HOME")
    })
}

/// Returns the files that a command sees instead of those of this machine.
pub fn mounts(environment: &TrustEnvironment) -> Vec<Mount> {
    let mount = |(source, target): &(PathBuf, PathBuf)| Mount {
        source: source.clone(),
        target: target.clone(),
    };
    environment.mounts.iter().map(mount).collect()
}

pub fn authority_failure(error: AuthorityError) -> Failure {
    Failure::new(error.to_string()).maybe_hint(error.hint())
}

fn record_failure(error: RecordError, output: &Path) -> Failure {
    match error {
        RecordError::Authority(error) => authority_failure(error),
        RecordError::Trust(_) => Failure::usage(error.to_string())
            .hint("name a file with certificates in PEM format with --origin-ca"),
        RecordError::Finish(_) => Failure::new(error.to_string()).hint(format!(
            "free some space, then run `manyways record check --repair {}`",
            output.display()
        )),
        _ => Failure::new(error.to_string()),
    }
}
