//! Programs that attack a gateway while it is measured. They run until they are asked for a report,
//! which shows whether the whole measurement was under attack.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

use manyways_rig::launch::Killed;

use crate::traffic::Measurement;

/// Least share of the planned strangers that must come.
const MIN_RATE: f64 = 0.9;
/// Least share of the strangers that the gateway must notice. Not more, because a gateway that is
/// too busy for all of them is under attack.
const MIN_NOTICED: f64 = 0.1;

/// A running attack.
pub struct Attack {
    /// The attackers, as the subject of a sentence.
    name: &'static str,
    child: Killed,
    stdout: BufReader<ChildStdout>,
}

/// Further figures of a run, or the reason why it does not count.
pub type Judged = Result<Vec<(&'static str, f64)>, String>;

impl Attack {
    /// `None` if the output of the program is not a pipe.
    pub fn of(name: &'static str, mut child: Child) -> Option<Self> {
        let stdout = child.stdout.take().map(BufReader::new);
        let child = Killed(child);
        Some(Self { name, child, stdout: stdout? })
    }

    /// Waits for a line; empty if the program has ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        // A read error ends the text early.
        let _ = self.stdout.read_line(&mut line);
        line
    }

    /// Ends the attack. The attackers report nothing if they ended by themselves.
    pub fn end(mut self) -> Result<Measurement, String> {
        let is_running = matches!(self.child.0.try_wait(), Ok(None));
        drop(self.child.0.stdin.take());
        let report = is_running.then(|| serde_json::from_str(self.line().trim()).ok());
        let ended = || format!("{} ended before the measurement did", self.name);
        report.flatten().ok_or_else(ended)
    }
}

/// Whether so many strangers a second came until the end of a measurement.
pub fn judge_strangers(report: &Measurement, rate: u32) -> Judged {
    let noticed = report.extra.get("noticed").copied().unwrap_or_default();
    if report.value < MIN_RATE * f64::from(rate) {
        return Err(format!("only {:.0} strangers a second came, not {rate}", report.value));
    }
    if noticed < MIN_NOTICED {
        let percent = noticed * 100.0;
        return Err(format!("the gateway noticed only {percent:.0} % of the strangers"));
    }
    Ok(vec![("strangers/s", report.value), ("noticed, %", noticed * 100.0)])
}

/// Whether a greedy key had connections, and tried to open more, until the end of a measurement.
pub fn judge_greedy(report: &Measurement) -> Judged {
    let held = report.extra.get("held").copied().unwrap_or_default();
    if report.value < 1.0 {
        return Err("the greedy key did not try to connect any more".to_owned());
    }
    if held < 1.0 {
        return Err("the greedy key had no connection at the end".to_owned());
    }
    Ok(vec![("attempts/s", report.value), ("held", held)])
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn report(value: f64, name: &str, extra: f64) -> Measurement {
        let extra = [(name.to_owned(), extra)].into();
        Measurement { value, extra, ..Measurement::default() }
    }

    #[test]
    fn strangers_come_as_often_as_planned_and_are_noticed() {
        let of = |rate, share| judge_strangers(&report(rate, "noticed", share), 3_000);
        assert_eq!(of(2_700.0, 0.5), Ok(vec![("strangers/s", 2_700.0), ("noticed, %", 50.0)]));
        assert!(of(2_700.0, 0.1).is_ok());
        let few = "only 2699 strangers a second came, not 3000";
        assert_eq!(of(2_699.0, 1.0), Err(few.to_owned()));
        let unseen = "the gateway noticed only 9 % of the strangers";
        assert_eq!(of(3_000.0, 0.09), Err(unseen.to_owned()));
        assert!(judge_strangers(&Measurement { value: 3e3, ..Measurement::default() }, 1).is_err());
    }

    #[test]
    fn a_greedy_key_holds_connections_and_tries_to_open_more() {
        let of = |attempts, held| judge_greedy(&report(attempts, "held", held));
        assert_eq!(of(1.0, 1.0), Ok(vec![("attempts/s", 1.0), ("held", 1.0)]));
        assert!(of(0.0, 1.0).is_err());
        assert!(of(1.0, 0.0).is_err());
    }

    fn attack(script: &str) -> Attack {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Attack::of("the strangers", command.spawn().unwrap()).unwrap()
    }

    #[test]
    fn an_attack_reports_when_it_is_asked() {
        let mut running = attack("echo ready; read line; echo '{\"value\": 7}'");
        assert_eq!(running.line(), "ready\n");
        assert_eq!(running.end().map(|report| report.value), Ok(7.0));
    }

    #[test]
    fn an_attack_that_ended_by_itself_is_a_failure() {
        let mut ended = attack("echo ready; echo '{\"value\": 7}'");
        assert_eq!(ended.line(), "ready\n");
        let _ = ended.child.0.wait();
        let reason = "the strangers ended before the measurement did".to_owned();
        assert_eq!(ended.end(), Err(reason.clone()));
        let failed = attack("read line; exit 1");
        assert_eq!(failed.end(), Err(reason), "it reports nothing");
    }
}
