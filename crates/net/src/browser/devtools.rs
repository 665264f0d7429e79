//! A running browser, and the commands for its page.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use manyways_sys::clock::Clock;
use manyways_sys::command::RunningCommand;
use manyways_sys::poll::Poller;
use manyways_unit::Span;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::command::{Home, quiet_command};
use super::messages::{Message, Messages};
use super::{BrowserError, find};

/// Settings of the profile: no connections before a page needs them, which would hide their times.
const PREFERENCES: &str = r#"{"net":{"network_prediction_options":2}}"#;

/// How a browser is started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The browser; if it is missing, the first one in `PATH`.
    pub browser: Option<PathBuf>,
    /// Where the folder of the profile is made; if it is missing, in the system's folder for temporary
    /// files.
    pub folder: Option<PathBuf>,
    pub home: Home,
    /// A SOCKS5 proxy for all connections, which also looks up the names.
    pub proxy: Option<SocketAddr>,
    /// Further options of the command line.
    pub flags: Vec<String>,
}

/// An event of the browser, or the answer to a command that was [posted](Browser::post).
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Name of the event or of the command, such as `Page.loadEventFired`.
    pub method: String,
    /// Parameters of the event, or result of the command.
    pub params: Value,
}

/// A running browser with one page, which is empty at first.
#[derive(Debug)]
pub struct Browser {
    commands: pipe::Sender,
    answers: pipe::Receiver,
    messages: Messages,
    buffer: Vec<u8>,
    /// Bytes of commands that are not in the pipe yet.
    unsent: VecDeque<u8>,
    /// Events that came before an answer.
    events: VecDeque<Event>,
    /// Number of the last command.
    last: u64,
    /// Commands whose answers are events.
    posted: HashMap<u64, &'static str>,
    /// The connection of the page within that of the browser; empty until there is a page.
    session: String,
    dialogs: u64,
    processes: Processes,
}

impl Browser {
    /// Time for the answer to a command.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Events that are kept while an answer is missing.
    const MAX_EVENTS: usize = 1_000_000;

    /// Starts a browser, and opens an empty page.
    ///
    /// # Errors
    /// There is no browser, or it does not work.
    pub async fn launch(options: &Options) -> Result<Self, BrowserError> {
        let program = find(options.browser.as_deref())?;
        let started = Processes::start(&program, options);
        let (processes, commands, answers) =
            started.map_err(|error| BrowserError::Start(program, error.into()))?;
        let failed = BrowserError::io("use the pipes of the browser");
        let mut browser = Self {
            commands: pipe::Sender::from_owned_fd(commands).map_err(&failed)?,
            answers: pipe::Receiver::from_owned_fd(answers).map_err(&failed)?,
            messages: Messages::default(),
            buffer: vec![0; 256 << 10],
            unsent: VecDeque::new(),
            events: VecDeque::new(),
            last: 0,
            posted: HashMap::new(),
            session: String::new(),
            dialogs: 0,
            processes,
        };
        browser.open_page().await?;
        Ok(browser)
    }

    async fn open_page(&mut self) -> Result<(), BrowserError> {
        let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
        let deny = json!({"behavior": "deny"});
        self.send_to_browser("Browser.setDownloadBehavior", deny).await?;
        let page =
            self.send_to_browser("Target.createTarget", json!({"url": "about:blank"})).await?;
        let attach = json!({"targetId": text(&page["targetId"]), "flatten": true});
        let attached = self.send_to_browser("Target.attachToTarget", attach).await?;
        self.session = text(&attached["sessionId"]);
        self.send("Inspector.enable", json!({})).await?;
        self.send("Page.enable", json!({})).await?;
        Ok(())
    }

    /// Executes a command for the page, and returns its result.
    ///
    /// # Errors
    /// The browser refuses the command, does not answer, or has ended.
    pub async fn send(
        &mut self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        let id = self.queue(method, params, true);
        self.answer(method, id).await
    }

    /// Executes a command for the browser, such as `Tracing.start`, and returns its result.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn send_to_browser(
        &mut self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        let id = self.queue(method, params, false);
        self.answer(method, id).await
    }

    /// Executes a command for the page without waiting for its answer: an [event](Self::event) with
    /// the name of the command has its result. The command leaves with the next one, or with the next wait
    /// for an event.
    pub fn post(&mut self, method: &'static str, params: Value) {
        let id = self.queue(method, params, true);
        self.posted.insert(id, method);
    }

    /// Runs a script in the page, and returns its value as JSON; of a promise, the one that it becomes.
    ///
    /// # Errors
    /// The script throws an exception, or as [`Self::send`].
    pub async fn evaluate(&mut self, script: &str) -> Result<Value, BrowserError> {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let mut result = self.send("Runtime.evaluate", params).await?;
        if let Some(exception) = result.get("exceptionDetails") {
            let thrown = exception["exception"]["description"].as_str();
            let text = thrown.or(exception["text"].as_str()).unwrap_or("an exception");
            let line = text.lines().next().unwrap_or_default();
            return Err(BrowserError::Script(line.to_owned()));
        }
        Ok(result["result"]["value"].take())
    }

    /// The next event of the page or of the browser. It can be dropped while it waits.
    ///
    /// # Errors
    /// The browser has ended, or its page has crashed.
    pub async fn event(&mut self) -> Result<Event, BrowserError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            // Answers to commands that were dropped are of no interest.
            self.receive().await?;
        }
    }

    /// Number of dialogs of the page so far. Each was dismissed.
    pub fn dialogs(&self) -> u64 {
        self.dialogs
    }

    /// Ends the browser, and waits until its processes and its profile are gone.
    pub async fn close(self) {
        let Self { processes, .. } = self;
        // The wait blocks, at most for seconds.
        let _ = tokio::task::spawn_blocking(move || drop(processes)).await;
    }

    fn queue(&mut self, method: &'static str, params: Value, for_page: bool) -> u64 {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": params});
        if for_page {
            command["sessionId"] = self.session.as_str().into();
        }
        self.unsent.extend(command.to_string().into_bytes());
        self.unsent.push_back(0);
        self.last
    }

    async fn answer(&mut self, method: &'static str, id: u64) -> Result<Value, BrowserError> {
        let answer = async {
            loop {
                let Some((answered, result)) = self.receive().await? else { continue };
                if answered == id {
                    return result.map_err(|message| BrowserError::Refused {
                        command: method.to_owned(),
                        message,
                    });
                }
            }
        };
        timeout(Self::PATIENCE, answer).await.unwrap_or(Err(BrowserError::Hung))
    }

    /// Receives a message. Keeps an event, and returns an answer.
    async fn receive(&mut self) -> Result<Option<Answer>, BrowserError> {
        loop {
            self.flush().await?;
            if let Some(message) = self.messages.next()? {
                return self.handle(message);
            }
            let length = self.answers.read(&mut self.buffer).await;
            match length.map_err(BrowserError::io("read from the browser"))? {
                0 => return Err(self.ended()),
                length => self.messages.extend(&self.buffer[..length]),
            }
        }
    }

    fn handle(&mut self, message: Message) -> Result<Option<Answer>, BrowserError> {
        if let Some(id) = message.id {
            let result = match message.error {
                Some(refusal) => Err(refusal.message),
                None => Ok(message.result),
            };
            return match (self.posted.remove(&id), result) {
                (None, result) => Ok(Some((id, result))),
                (Some(method), Ok(params)) => self.keep(method.to_owned(), params),
                (Some(method), Err(message)) => {
                    Err(BrowserError::Refused { command: method.to_owned(), message })
                }
            };
        }
        let is_of_page = message.session.as_deref() == Some(self.session.as_str());
        match message.method {
            Some(method) if is_of_page || message.session.is_none() => {
                self.keep(method, message.params)
            }
            _ => Ok(None),
        }
    }

    fn keep(&mut self, method: String, params: Value) -> Result<Option<Answer>, BrowserError> {
        match method.as_str() {
            "Inspector.targetCrashed" => return Err(BrowserError::Crashed),
            "Page.javascriptDialogOpening" => {
                self.dialogs += 1;
                // Else the page would stay.
                let leaves = params["type"] == "beforeunload";
                self.queue("Page.handleJavaScriptDialog", json!({"accept": leaves}), true);
            }
            _ => {}
        }
        if self.events.len() == Self::MAX_EVENTS {
            return Err(BrowserError::Invalid("too many events".to_owned()));
        }
        self.events.push_back(Event { method, params });
        Ok(None)
    }

    async fn flush(&mut self) -> Result<(), BrowserError> {
        while !self.unsent.is_empty() {
            let failed = BrowserError::io("write to the browser");
            self.commands.writable().await.map_err(&failed)?;
            match self.commands.try_write(self.unsent.as_slices().0) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(self.ended()),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    fn ended(&self) -> BrowserError {
        BrowserError::Ended(self.processes.last_line())
    }
}

/// Number of a command, and its result, or the reason why there is none.
type Answer = (u64, Result<Value, String>);

/// The processes of a browser, and their folder.
#[derive(Debug)]
struct Processes {
    command: RunningCommand,
    /// Ends when all processes have ended, because each has its other end as standard output.
    output: PipeReader,
    folder: TempDir,
}

impl Processes {
    const ERRORS: &str = "errors";
    /// Time for the end of killed processes.
    const END: Span = Span::from_secs(5);

    fn start(program: &Path, options: &Options) -> io::Result<(Self, OwnedFd, OwnedFd)> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("manyways-browser-");
        let folder = match &options.folder {
            Some(folder) => builder.tempdir_in(folder),
            None => builder.tempdir(),
        }?;
        let settings = folder.path().join("Default");
        fs::create_dir(&settings)?;
        fs::write(settings.join("Preferences"), PREFERENCES)?;
        let mut command = quiet_command(program, folder.path(), options.home);
        command.args(&options.flags).args(["--remote-debugging-pipe", "--no-startup-window"]);
        if let Some(proxy) = options.proxy {
            command.arg(format!("--proxy-server=socks5://{proxy}"));
        }
        let (output, end) = io::pipe()?;
        let errors = File::create(folder.path().join(Self::ERRORS))?;
        command.stdin(Stdio::null()).stdout(end).stderr(errors);
        let (browser_reads, commands) = io::pipe()?;
        let (answers, browser_writes) = io::pipe()?;
        let files = vec![(3, browser_reads.into()), (4, browser_writes.into())];
        let command = RunningCommand::start_with_files(command, files)?;
        Ok((Self { command, output, folder }, commands.into(), answers.into()))
    }

    /// The last line that the browser printed as an error.
    fn last_line(&self) -> Option<String> {
        const LENGTH: i64 = 4 << 10;
        let mut file = File::open(self.folder.path().join(Self::ERRORS)).ok()?;
        // Fails if the file is shorter; else the first line is not whole.
        let is_cut = file.seek(SeekFrom::End(-LENGTH)).is_ok_and(|at| at > 0);
        let mut bytes = Vec::new();
        file.take(LENGTH as u64).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        // The browser complains that there is no bus, which it does not need.
        let lines = text
            .lines()
            .skip(usize::from(is_cut))
            .filter(|line| !line.trim().is_empty() && !line.contains("dbus/"));
        lines.last().map(str::to_owned)
    }

    /// Waits until the processes have ended.
    fn wait(&self) -> io::Result<()> {
        let clock = Clock::start();
        let mut poller = Poller::new(clock)?;
        poller.add(self.output.as_fd(), 0)?;
        poller.wait(Some(clock.now() + Self::END), &mut Vec::new())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // A process that still lives would write into the folder that is removed next.
        if let Err(error) = self.command.kill().and_then(|()| self.wait()) {
            tracing::debug!("the browser does not end: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
