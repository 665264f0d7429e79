use std::future::pending;

use super::*;

fn hold(rules: &[&str], longest_seconds: f64) -> Hold {
    Hold { rules: rules.iter().map(|&rule| rule.to_owned()).collect(), longest_seconds }
}

/// One who holds back connections under the rule `bulk`, and its end of the line.
fn held(gate: &Gate, longest: f64) -> (tokio::task::JoinHandle<io::Result<()>>, Ends) {
    let holding = gate.hold(&hold(&["bulk"], longest)).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    (tokio::task::spawn_local(holding.serve(theirs)), Ends(BufReader::new(ours)))
}

struct Ends(BufReader<UnixStream>);

impl Ends {
    async fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line
    }

    async fn told(&mut self) -> Told {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// When the gate has heard of it.
    async fn shut(&mut self, gate: &Gate) {
        self.say("\"shut\"\n").await;
        let mut state = gate.0.borrow().as_ref().unwrap().state.subscribe();
        state.wait_for(|state| state.is_shut).await.unwrap();
    }
}

/// A connection under a rule, as a task.
fn begin(gate: &Gate, rule: &str) -> Option<tokio::task::JoinHandle<bool>> {
    Some(tokio::task::spawn_local(gate.begins(Some(rule))?.pass(pending())))
}

macro_rules! local {
    ($body:expr) => {
        tokio::task::LocalSet::new().run_until(async { $body }).await
    };
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn it_holds_back_what_it_names_while_the_gate_is_shut() {
    local!({
        let gate = Gate::default();
        assert!(gate.begins(Some("bulk")).is_none(), "nobody holds back");
        let (_task, mut ends) = held(&gate, 60.0);
        assert!(begin(&gate, "bulk").is_none(), "not yet");
        assert_eq!(ends.told().await, Told::Begins { waits: false });
        ends.shut(&gate).await;
        assert!(begin(&gate, "calls").is_none() && gate.begins(None).is_none());
        let waiting = [begin(&gate, "bulk").unwrap(), begin(&gate, "bulk").unwrap()];
        assert_eq!(ends.told().await, Told::Begins { waits: true });
        assert_eq!(ends.told().await, Told::Begins { waits: true });
        assert!(!waiting[0].is_finished() && !waiting[1].is_finished());
        // Shut again before those that wait have a chance to see that it was open.
        let began = Instant::now();
        ends.say("\"open\"\n\"shut\"\n").await;
        for one in waiting {
            assert!(one.await.unwrap());
            assert!(matches!(ends.told().await, Told::Passes { .. }));
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it was not its patience");
        assert!(begin(&gate, "bulk").is_some(), "it is shut");
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn none_waits_for_longer_than_was_said() {
    local!({
        let gate = Gate::default();
        let (_task, mut ends) = held(&gate, 2.5);
        ends.shut(&gate).await;
        let began = Instant::now();
        assert!(begin(&gate, "bulk").unwrap().await.unwrap());
        assert_eq!(began.elapsed(), Duration::from_millis(2_500));
        // Nor does any behind it wait for who has forgotten the first.
        assert!(gate.begins(Some("bulk")).is_none());
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_rule_that_is_gone_holds_nothing_back() {
    local!({
        let gate = Gate::default();
        let (task, mut ends) = held(&gate, 600.0);
        ends.shut(&gate).await;
        let waiting = begin(&gate, "bulk").unwrap();
        gate.keep_to(&["calls".to_owned(), "bulk".to_owned()]);
        assert!(gate.is_held());
        gate.keep_to(&["calls".to_owned()]);
        assert!(!gate.is_held() && waiting.await.unwrap());
        task.await.unwrap().unwrap();
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nobody_is_held_back_by_who_is_gone() {
    local!({
        let gate = Gate::default();
        // Who hangs up, who talks nonsense, who says too much at once.
        for last in ["", "\"perhaps\"\n", &"x".repeat(10_000)] {
            let (task, mut ends) = held(&gate, 600.0);
            ends.shut(&gate).await;
            let waiting = begin(&gate, "bulk").unwrap();
            assert_eq!(gate.hold(&hold(&["bulk"], 1.0)).err(), Some(HoldError::Taken));
            ends.say(last).await;
            let rest = (!last.is_empty()).then_some(ends);
            let end = task.await.unwrap();
            assert!(last.is_empty() || end.is_err());
            drop(rest);
            let began = Instant::now();
            assert!(waiting.await.unwrap());
            assert!(began.elapsed() < Duration::from_secs(1));
            assert!(gate.begins(Some("bulk")).is_none());
        }
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn who_does_not_listen_holds_nothing_back() {
    local!({
        let gate = Gate::default();
        let holding = gate.hold(&hold(&["bulk"], 600.0)).unwrap();
        holding.holder.state.send_modify(|state| state.is_shut = true);
        let waiting = begin(&gate, "bulk").unwrap();
        for _ in 1..UNHEARD {
            assert!(gate.begins(Some("bulk")).is_some());
            assert!(gate.0.borrow().is_some());
        }
        assert!(gate.begins(Some("bulk")).is_none());
        assert!(gate.0.borrow().is_none());
        let began = Instant::now();
        assert!(waiting.await.unwrap() && began.elapsed() < Duration::from_secs(1));
        // Nor does it go on to believe that it does.
        let (_ours, theirs) = UnixStream::pair().unwrap();
        tokio::task::spawn_local(holding.serve(theirs)).await.unwrap().unwrap();
        let holding = gate.hold(&hold(&["bulk"], 600.0)).unwrap();
        gate.forget(&holding.holder);
        // There is room for somebody else, whom the first one does not take along.
        let _other = gate.hold(&hold(&["bulk"], 600.0)).unwrap();
        drop(holding);
        assert!(gate.0.borrow().is_some());
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn an_application_may_give_up() {
    local!({
        let gate = Gate::default();
        let (_task, mut ends) = held(&gate, 600.0);
        ends.shut(&gate).await;
        let gives_up = tokio::time::sleep(Duration::from_secs(3));
        assert!(!gate.begins(Some("bulk")).unwrap().pass(gives_up).await);
        ends.told().await;
        assert_eq!(ends.told().await, Told::GivesUp);
    });
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn too_many_do_not_wait() {
    local!({
        let gate = Gate::default();
        let (_task, mut ends) = held(&gate, 600.0);
        ends.shut(&gate).await;
        let waiting: Vec<_> = (0..MOST_WAITING).map(|_| gate.begins(Some("bulk"))).collect();
        assert!(waiting.iter().all(Option::is_some));
        assert!(gate.begins(Some("bulk")).is_none());
        drop(waiting);
        assert!(gate.begins(Some("bulk")).is_some());
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let gate = Gate::default();
    let fault = |rules: &[&str], longest| gate.hold(&hold(rules, longest)).err();
    assert_eq!(fault(&[], 1.0), Some(HoldError::NoRule));
    for longest in [f64::NAN, f64::INFINITY, -1.0, 90_000.0, 1e300] {
        assert!(matches!(fault(&["bulk"], longest), Some(HoldError::Longest(_))), "{longest}");
    }
}
