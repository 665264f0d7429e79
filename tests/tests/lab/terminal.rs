//! A shell in a lab on a terminal: job control as outside of a lab.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use manyways_tests::{Need, Running, finish, folder, manyways_path, needs};

use crate::running::{PATIENCE, eventually, name, shared_host};

/// The state of a lab's only process with these arguments, as in `/proc`.
fn state_of(lab: &str, arguments: &str) -> Option<char> {
    let found = crate::running::processes_of(lab);
    let line = found.lines().find(|line| line.trim_end().ends_with(arguments))?;
    let status = fs::read_to_string(format!("/proc/{}/stat", line.split(' ').next()?)).ok()?;
    status.rsplit_once(") ")?.1.chars().next()
}

/// A terminal with its input and output.
struct Terminal {
    keyboard: File,
    screen: std::path::PathBuf,
    script: Running,
}

impl Terminal {
    fn run(folder: &Path, command: &str) -> Self {
        let (fifo, screen) = (folder.join("keyboard"), folder.join("screen"));
        finish(Command::new("mkfifo").arg(&fifo)).expect_success();
        let line = format!(
            "exec script --quiet --return --command '{command}' /dev/null < {} > {} 2>&1",
            fifo.display(),
            screen.display()
        );
        let script = Running::start(Command::new("sh").args(["-c", &line]).env("SHELL", "/bin/sh"));
        // The open blocks until the other side opens the FIFO.
        let keyboard = File::options().write(true).open(fifo).expect("a keyboard");
        Self { keyboard, screen, script }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("somebody reads the keyboard");
    }

    #[track_caller]
    fn wait_for_text(&self, text: &str) {
        eventually(&format!("`{text}`"), || self.screen().contains(text).then_some(()));
    }

    fn screen(&self) -> String {
        fs::read_to_string(&self.screen).unwrap_or_default()
    }
}

/// A failed test prints the content of the screen.
impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("shown: {:?}", self.screen());
        }
    }
}

#[test]
fn job_control_works_in_a_lab() {
    needs!(Need::Root, Need::Command("script"), Need::Command("bash"), Need::Command("mkfifo"));
    let _guard = shared_host();
    let folder = folder();
    let lab = name("terminal");
    let manyways = manyways_path();
    // The outer shell has no job control, so it does not become the foreground process itself.
    let mut terminal = Terminal::run(
        folder.path(),
        &format!(
            "{} lab shell --name {lab} --link wifi -- bash --norc -i; read word; \
             echo after $? with $word; exit 5",
            manyways.display()
        ),
    );
    terminal.type_keys("PS1=; echo here $((6 * 7))\n");
    terminal.wait_for_text("here 42");

    terminal.type_keys("sleep 1001\n");
    eventually("it sleeps", || {
        state_of(&lab, "sleep 1001").filter(|state| *state == 'S').map(drop)
    });
    terminal.type_keys("\x03");
    terminal.type_keys("echo interrupted $?\n");
    terminal.wait_for_text("interrupted 130");

    terminal.type_keys("sleep 1002\n");
    eventually("it sleeps", || {
        state_of(&lab, "sleep 1002").filter(|state| *state == 'S').map(drop)
    });
    terminal.type_keys("\x1a");
    eventually("it is stopped", || {
        state_of(&lab, "sleep 1002").filter(|state| *state == 'T').map(drop)
    });
    terminal.type_keys("echo shell $((6 * 8)); fg\n");
    terminal.wait_for_text("shell 48");
    eventually("it goes on", || {
        state_of(&lab, "sleep 1002").filter(|state| *state == 'S').map(drop)
    });
    terminal.type_keys("\x1c");
    terminal.type_keys("echo quit $?\n");
    terminal.wait_for_text("quit 131");

    terminal.type_keys("exit\n");
    eventually("the lab has gone", || crate::running::processes_of(&lab).is_empty().then_some(()));
    terminal.type_keys("terminal\n");
    terminal.wait_for_text("after 0 with terminal");
    let status = terminal.script.wait(PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(5));
}

/// The command determines the effect of Ctrl-C; the lab runs as long as the command.
#[test]
fn an_interrupt_is_for_the_command() {
    needs!(Need::Root, Need::Command("script"), Need::Command("mkfifo"));
    let _guard = shared_host();
    let folder = folder();
    let lab = name("interrupt");
    let mut terminal = Terminal::run(
        folder.path(),
        &format!(
            "exec {} lab shell --name {lab} --link wifi -- \
             sh -c \"trap \\\"echo caught\\\" INT; echo ready; read word; echo read \\$word; exit 3\"",
            manyways_path().display()
        ),
    );
    terminal.wait_for_text("ready");
    terminal.type_keys("\x03");
    terminal.wait_for_text("caught");
    terminal.type_keys("on\n");
    let status = terminal.script.wait(PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(3));
}
