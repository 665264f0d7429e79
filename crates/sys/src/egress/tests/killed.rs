//! The end of a process without a removal.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;

use manyways_unit::Span;

use super::testbed::{Testbed, V4, V6, ask, assert_all, names, networks, tcp};
use super::{LIFETIME, install};
use crate::egress::{Egress, Error, has_leftover, remove_leftover};
use crate::tproxy::tests::testbed::{connect, installed_state};

/// Set in the process that will be killed.
const CHILD: &str = "MANYWAYS_TEST_EGRESS_CHILD";

#[test]
fn the_choice_of_a_killed_process_expires_and_its_flows_continue() {
    if std::env::var_os(CHILD).is_some() {
        let mut egress = Egress::install(names(), &networks(), Span::from_secs(2)).unwrap();
        egress.select(Some("cell")).unwrap();
        println!("\ninstalled");
        // Killed meanwhile. The end of standard input is the end of the test.
        thread::spawn(|| {
            let _ = io::stdin().read(&mut [0]);
            std::process::exit(1);
        });
        loop {
            egress.refresh().unwrap();
        }
    }
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let before = installed_state();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("egress::tests::killed::the_choice_of_a_killed_process_expires_and_its_flows_continue")
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line == "installed"));
        // A busy machine may delay its refreshing.
        while tcp(V6) != "cell" {}
        let mut running = loop {
            let mut stream = connect(V4).unwrap();
            if ask(&mut stream).unwrap() == "cell" {
                break stream;
            }
        };
        let pid = child.id() as i32;
        let refused = [
            Egress::install(names(), &networks(), LIFETIME).unwrap_err(),
            remove_leftover(&names()).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, Error::InUse { pid: of } if of == pid), "{error}");
        }
        assert!(!has_leftover(&names()));
        child.kill().unwrap();
        child.wait().unwrap();

        assert!(has_leftover(&names()));
        while tcp(V4) != "wan" {}
        assert_all("wan");
        assert_eq!(ask(&mut running).unwrap(), "cell");
        let mut next = install();
        assert_eq!(ask(&mut running).unwrap(), "cell", "also with the next process");
        next.select(Some("cell")).unwrap();
        assert_all("cell");
        assert_eq!(ask(&mut running).unwrap(), "cell");
        std::mem::forget(next);
        assert!(remove_leftover(&names()).unwrap());
        assert_eq!(installed_state(), before);
    });
}
