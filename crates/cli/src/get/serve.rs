//! `get --serve`: players on this machine get what they request over all networks.

mod board;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use manyways_net::fetch::gateway::{Gateway, GatewayError, GatewayEvent, Options};
use manyways_net::fetch::{Event, Location, Login, PathSelection};
use manyways_record::document;
use manyways_sys::clock::Clock;
use serde::Serialize;

use self::board::Board;
use super::events::EventLog;
use super::networks::{paths_to, selection};
use super::options::{Args, LearnArg};
use super::session::{prepare, warn};
use super::stop::{Stop, stopped};
use crate::failure::Failure;

/// How often the rates are shown on a terminal.
const INTERVAL: Duration = Duration::from_secs(1);

/// The first line of `--json`, described in docs/get.md.
#[derive(Serialize)]
struct Listening<'a> {
    url: &'a str,
    address: String,
    token: &'a str,
}

manyways_record::document!(Listening<'_>, "manyways.serve/1");

/// The events of the gateway, for all outputs.
struct Watcher {
    args: Arc<Args>,
    networks: Arc<PathSelection>,
    clock: Clock,
    board: Mutex<Board>,
    events: Mutex<Option<EventLog>>,
}

/// Answers players until a signal. The first error is one of the command line.
pub async fn run(args: Args, origin: (Location, Option<Login>)) -> Result<ExitCode> {
    let (location, login) = origin;
    let mut stop = Stop::new()?;
    warn(&args, std::iter::once(&location));
    let args = Arc::new(args);
    let url = location.to_string();
    let events = args.events.as_ref().map(|file| EventLog::create(file, &url)).transpose()?;
    let mut networks = selection(&args);
    let paths = tokio::select! {
        paths = paths_to(&mut networks, &args, &location) => paths?.unwrap_or_default(),
        () = stop.wait() => return Err(stopped().into()),
    };
    let networks = Arc::new(networks);
    let watcher = Arc::new(Watcher {
        args: Arc::clone(&args),
        networks: Arc::clone(&networks),
        clock: Clock::start(),
        board: Mutex::new(Board::new(&paths)),
        events: Mutex::new(events),
    });
    let mut options = Options::new(
        args.serve.ok_or_else(|| Failure::usage("--serve needs an address"))?,
        location,
    );
    options.login = login;
    options.allowed_origins = args.allow_origin.clone();
    options.learn = args.learn.into();
    options.metered = args.metered;
    let client = {
        let args = Arc::clone(&args);
        move |builder| prepare(&args, paths.clone(), &networks, builder)
    };
    let observer = {
        let watcher = Arc::clone(&watcher);
        move |event: GatewayEvent<'_>| watcher.on_event(event)
    };
    let gateway =
        Gateway::bind(options, client, observer).await.map_err(|error| failure(&error))?;
    let (url, token) = (gateway.url(), gateway.token().as_str().to_owned());
    if args.json {
        let address = gateway.address().to_string();
        print!("{}", document::to_json(&Listening { url: &url, address, token: &token })?);
    } else {
        println!("{url}");
    }
    if !args.quiet {
        eprintln!("manyways: give this URL to a player; anyone who knows it can use it; ^C ends");
    }
    let show = async {
        loop {
            tokio::time::sleep(INTERVAL).await;
            watcher.show_rates();
        }
    };
    let counters = tokio::select! {
        counters = gateway.run(stop.wait()) => counters,
        () = show => return Ok(ExitCode::SUCCESS),
    };
    let mut board = watcher.board();
    board.clear();
    if args.json {
        print!("{}", document::to_json(&board.summary(counters))?);
    } else if !args.quiet {
        board.print(counters);
    }
    Ok(ExitCode::SUCCESS)
}

fn failure(error: &GatewayError) -> Failure {
    match error {
        GatewayError::Listen(..) => {
            Failure::new(error.to_string()).hint("name another port; 0 is any free one")
        }
        GatewayError::Client(_) | GatewayError::NotLoopback(_) => Failure::usage(error.to_string()),
        _ => Failure::new(error.to_string()),
    }
}

impl Watcher {
    fn on_event(&self, event: GatewayEvent<'_>) {
        let number = |transfer: u64| u32::try_from(transfer).unwrap_or(u32::MAX);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            GatewayEvent::Begin { transfer, url } => {
                self.board().begin(transfer, url);
                if let Some(log) = events.as_mut() {
                    log.begin(number(transfer), &url.to_string());
                }
            }
            GatewayEvent::Transfer { transfer, event } => {
                if let Some(log) = events.as_mut() {
                    log.on_event(number(transfer), event);
                }
                match event {
                    Event::Note(words) if !self.args.quiet => self.board().note(words),
                    Event::Progress(progress) => self.board().progress(transfer, progress),
                    _ => {}
                }
            }
            GatewayEvent::End { transfer, report, rates, error } => {
                if let Some(log) = events.as_mut() {
                    log.end(number(transfer), error.is_none(), report.bytes);
                }
                let mut board = self.board();
                board.end(transfer, report, error.is_some());
                if let Some(error) = error.filter(|_| !self.args.quiet) {
                    board.fail(&report.url, &error.to_string());
                }
                drop(board);
                if self.args.learn == LearnArg::All {
                    self.networks.store_estimates(report, rates);
                }
            }
            _ => {}
        }
    }

    fn show_rates(&self) {
        if !self.args.quiet {
            self.board().show(self.clock.now());
        }
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
