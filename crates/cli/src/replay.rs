//! `manyways replay`: a command with the recorded servers, over any networks.

mod bond;
mod drive;
mod report;
mod why;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Subcommand, ValueEnum, ValueHint};
use manyways_lab::far_host::FarHost;
use manyways_lab::{Lab, LabSpec, Node};
use manyways_model::matching::Rule;
use manyways_net::authority::Authority;
use manyways_net::authority::environment::TrustEnvironment;
use manyways_net::replay::{Contents, Layout, Miss, OpenError, Options, Server, Think, listen};
use manyways_sys::privilege::raise_file_limit;
use manyways_sys::signal::Termination;
use manyways_trace::scenario::{DelaySpec, LinkSpec};
use manyways_unit::Span;
use manyways_unit::human::count_with_noun;

use self::bond::{Bond, add_gateway};
use self::drive::{Drive, check_rounds};
use self::report::Report;
use crate::failure::Failure;
use crate::lab::{
    command, current_folder, export, lab_failure, link_failure, prepare, reader, run_foreground,
    start_failure,
};
use crate::record::{authority_failure, mounts, state};
use crate::report_file::{self, check_distinct, check_folder};

/// Run a command with the servers of a recording, over any networks.
///
/// The command runs in a lab with one address per recorded server, each at its recorded distance behind the links. The
/// servers answer from the recording, with the recorded protocols, certificates' names, encodings and think times, and
/// never from the internet.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Without --link there is one link without limits, as far as the nearest recorded server. With --link, the nearest server is \
directly behind the link, and the others are farther away by the recorded difference. --json and --html report hits, \
approximate hits, misses, and the recorded and the replayed waterfall.

Examples:
  manyways replay page.zip -- chromium --headless --no-sandbox --dump-dom https://example.com/
  manyways replay page.zip --link wifi:down=10mbit,delay=10ms --html load.html -- curl -s https://example.com/
  manyways replay page.zip --link wifi:down=3mbit,delay=10ms --link lte:down=9mbit,delay=30ms --mptcp -- …
  manyways replay page.zip --link wifi:… --link lte:… --bond -- …
  manyways replay why page.zip 'https://example.com/search?q=x'"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<SubCommand>,
    #[command(flatten)]
    replay: ReplayArgs,
}

#[derive(Subcommand)]
enum SubCommand {
    Why(why::Args),
}

#[derive(clap::Args)]
struct ReplayArgs {
    /// The recording: an archive, or a HAR file
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// An emulated link; may be repeated
    #[arg(long = "link", value_name = "NAME:KEY=VALUE,…")]
    links: Vec<String>,
    /// TCP congestion control of both sides [default: cubic]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Time that servers take for a response: recorded, zero, or a multiple like ×2 (or x0.5)
    #[arg(long, value_name = "TIME", default_value = "recorded", value_parser = think)]
    think: Think,
    /// All servers at one address, the nearest
    #[arg(long)]
    one_server: bool,
    /// Multipath TCP of the kernel, on both sides, over all links
    #[arg(long, conflicts_with = "bond")]
    mptcp: bool,
    /// Through a bond over all links, with its gateway where the nearest server is
    #[arg(long)]
    bond: bool,
    /// Issue the recorded requests without a command, over each link, over MPTCP, with `get` and over a
    /// bond, and compare the app response times
    #[arg(long, conflicts_with_all = ["mptcp", "bond", "one_server", "html", "words"])]
    drive: bool,
    /// Rounds of --drive, in each of which all ways run
    #[arg(long, value_name = "N", default_value_t = 3, requires = "drive")]
    rounds: usize,
    /// Answer to a request that was not recorded
    #[arg(long, value_enum, default_value = "404")]
    miss: MissChoice,
    /// Rule by which recorded exchanges are found
    #[arg(long = "match", value_enum, default_value = "manyways")]
    rule: RuleChoice,
    /// Seed of loss and jitter
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the report as JSON into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a page with both waterfalls into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The command [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum MissChoice {
    /// A response with status 404
    #[value(name = "404")]
    NotFound,
    /// The end of the connection
    Close,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum RuleChoice {
    /// Method, query, form and JSON as multisets with weights
    Manyways,
    /// The longest common prefix of the URL, as in Mahimahi
    Mahimahi,
}

impl RuleChoice {
    pub fn rule(self) -> Rule {
        match self {
            Self::Manyways => Rule::Ours,
            Self::Mahimahi => Rule::Mahimahi { user_agent: true },
        }
    }
}

/// Greatest multiple of think times.
const MAX_SCALE: f64 = 1_000.0;

fn think(text: &str) -> std::result::Result<Think, String> {
    match text {
        "recorded" => return Ok(Think::Recorded),
        "zero" => return Ok(Think::Zero),
        _ => {}
    }
    let number = text.strip_prefix(['×', 'x', '*']).and_then(|number| number.parse::<f64>().ok());
    match number.filter(|number| (0.0..=MAX_SCALE).contains(number)) {
        Some(number) => Ok(Think::Scaled(number)),
        None => Err("write recorded, zero, or a multiple up to 1000 like ×2 or x0.5".to_owned()),
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Some(SubCommand::Why(args)) => why::run(&args),
        None => replay(args.replay),
    }
}

fn replay(args: ReplayArgs) -> Result<ExitCode> {
    let Some(file) = &args.file else {
        return Failure::refuse("a replay needs a recording", "name its file");
    };
    let outputs: Vec<&Path> =
        [&args.json, &args.html].into_iter().flatten().map(|path| &**path).collect();
    outputs.iter().try_for_each(|path| check_folder(path))?;
    check_distinct(&[file], &outputs)?;
    let contents = open(file, args.rule.rule())?;
    let layout = Layout::new(contents.archive(), args.one_server, |address| {
        FarHost::new(address).check().is_ok()
    });
    if layout.hosts.is_empty() {
        return Failure::refuse(
            format!("{} has no exchange to replay", file.display()),
            "see `manyways record show`",
        );
    }
    let mut spec = spec(&args, &layout)?;
    check_rounds(args.rounds)?;
    // Before this process is root of a namespace, and seems to have another folder.
    let folder = state()?;
    let registry = prepare()?;
    let _ = raise_file_limit();
    let authority = Authority::open(&folder).map_err(authority_failure)?;
    let contents = Arc::new(contents);
    let mut options = Options::default();
    (options.think, options.miss) = (args.think, args.miss.into());
    if args.drive {
        announce(&contents, &layout);
        let drive = Drive {
            registry: &registry,
            file,
            contents,
            layout: &layout,
            authority: Arc::new(authority),
            options,
            rounds: args.rounds,
            cc: args.cc.clone(),
            json: args.json.as_deref(),
        };
        // A signal ends the process, and with it the labs.
        return drive.run(&spec);
    }
    let termination = Termination::take().context("cannot watch for signals")?;
    if args.bond {
        add_gateway(&mut spec);
    }
    let mut lab = Lab::start(&registry, spec).map_err(lab_failure)?;
    export(&mut lab, None)?;
    let environment = TrustEnvironment::prepare(&authority, &lab.folder())
        .context("cannot write the files for the command")?;
    let far = lab.namespace(Node::Host(0));
    let listeners = far.run(|| listen(&layout.ports, args.mptcp));
    let listeners = listeners.context("cannot listen in the lab")?;
    let server = Server::start(Arc::clone(&contents), options, Arc::new(authority), listeners)
        .context("cannot start the servers of the replay")?;
    let bond = args.bond.then(|| Bond::start(&mut lab)).transpose()?;
    announce(&contents, &layout);
    let start = || {
        let mut command = on_networks(&args)?;
        command.envs(environment.variables.iter().map(|(name, value)| (name, value)));
        let child = lab.spawn_with(Node::Device(0), command, &mounts(&environment));
        Ok(child.map_err(|error| start_failure(error, args.words.first()))?)
    };
    let began = server.now();
    let ran = run_foreground(start, &termination);
    drop(bond);
    let epoch = server.epoch();
    let (served, omitted) = server.stop();
    let code = ran?;
    let report = Report::new(file, &contents, &served, omitted, began, epoch);
    report.print();
    if let Some(path) = &args.json {
        let text = report.json().context("cannot format the report")?;
        report_file::write(path, &text)?;
    }
    if let Some(path) = &args.html {
        report_file::write(path, &report.html())?;
    }
    Ok(code)
}

/// Opens a recording.
pub fn open(path: &Path, rule: Rule) -> Result<Contents, Failure> {
    Contents::open(path, rule).map_err(|error| match error {
        OpenError::Io { .. } => Failure::new(error.to_string()),
        _ => Failure::new(format!("{}: {error}", path.display()))
            .hint("`manyways record check` lists the faults of an archive"),
    })
}

fn announce(contents: &Contents, layout: &Layout) {
    for warning in contents.warnings() {
        tracing::info!("{warning}");
    }
    if !contents.warnings().is_empty() {
        eprintln!(
            "manyways: the recording has {}; `manyways record check` lists them",
            count_with_noun(contents.warnings().len(), "fault")
        );
    }
    if layout.made_up > 0 {
        eprintln!(
            "manyways: {} of the recording had no usable address, and got one",
            count_with_noun(layout.made_up, "server")
        );
    }
    if !contents.uncoded().is_empty() {
        eprintln!(
            "manyways: {} without a recorded body lost the content coding",
            count_with_noun(contents.uncoded().len(), "response")
        );
    }
}

/// Name of the link if none is given.
const DEFAULT_LINK: &str = "net";

fn spec(args: &ReplayArgs, layout: &Layout) -> Result<LabSpec, Failure> {
    let parse =
        |text: &String| LinkSpec::parse(text, &mut reader(&current_folder())).map_err(link_failure);
    let mut links = args.links.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if links.is_empty() {
        let mut link = LinkSpec::new(DEFAULT_LINK);
        let one_way = Span::from_nanos(layout.rtt.unwrap_or_default().as_nanos() / 2);
        (link.down.delay, link.up.delay) =
            (DelaySpec::Constant(one_way), DelaySpec::Constant(one_way));
        links.push(link);
    }
    if (args.mptcp || args.bond) && links.len() < 2 {
        return Failure::refuse(
            "several networks need several links",
            "give --link twice, for example for wifi and lte",
        );
    }
    let mut spec = LabSpec::new(format!("replay-{}", std::process::id()), links);
    spec.numbered = true;
    spec.seed = args.seed.unwrap_or(spec.seed);
    if let Some(cc) = &args.cc {
        spec.cc.clone_from(cc);
    }
    spec.far_hosts = (layout.hosts.iter())
        .map(|host| {
            let mut far = FarHost::new(host.address);
            far.names.clone_from(&host.names);
            far.extra_rtt = host.extra_rtt;
            far
        })
        .collect();
    Ok(spec)
}

/// The command, with MPTCP sockets if the user asked for them.
fn on_networks(args: &ReplayArgs) -> Result<Command> {
    if !args.mptcp {
        return Ok(command(&args.words));
    }
    let inner = command(&args.words);
    let mut outer = Command::new("mptcpize");
    outer.arg("run").arg(inner.get_program()).args(inner.get_args());
    let found = Command::new("mptcpize").arg("--version").output();
    if found.is_err() {
        return Failure::refuse("mptcpize is not installed", "install mptcpize (package mptcpize)");
    }
    Ok(outer)
}

impl From<MissChoice> for Miss {
    fn from(choice: MissChoice) -> Self {
        match choice {
            MissChoice::NotFound => Self::NotFound,
            MissChoice::Close => Self::Close,
        }
    }
}
