use std::future::pending;

use tokio::task::JoinHandle;

use super::*;

fn request(max_delay_seconds: f64) -> DelayRequest {
    DelayRequest { rules: vec!["bulk".to_owned()], max_delay_seconds }
}

fn known() -> Vec<String> {
    vec!["bulk".to_owned(), "calls".to_owned()]
}

/// Acquires the gate. Returns the task that serves the connection, and the owner's end of it.
fn owned(gate: &Gate, max_delay_seconds: f64) -> (JoinHandle<io::Result<()>>, Peer) {
    let grant = gate.acquire(&request(max_delay_seconds), &known()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    (tokio::task::spawn_local(grant.serve(theirs)), Peer(BufReader::new(ours)))
}

struct Peer(BufReader<UnixStream>);

impl Peer {
    async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn event(&mut self) -> GateEvent {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Closes the gate, and waits until a connection is delayed.
    async fn close(&mut self, gate: &Gate) -> JoinHandle<bool> {
        self.send("\"close\"\n").await;
        loop {
            if let Some(waiting) = begin(gate) {
                return waiting;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Starts a connection under the rule; `None` if it is not delayed.
fn begin(gate: &Gate) -> Option<JoinHandle<bool>> {
    Some(tokio::task::spawn_local(gate.on_connection(Some("bulk"))?.wait(pending())))
}

fn gate() -> Gate {
    Gate::new(Clock::start())
}

macro_rules! local {
    ($body:expr) => {
        tokio::task::LocalSet::new().run_until(async { $body }).await
    };
}

#[tokio::test(flavor = "current_thread")]
async fn commands_and_events_go_over_the_connection() {
    local!({
        let gate = gate();
        let (_task, mut peer) = owned(&gate, 600.0);
        assert!(begin(&gate).is_none(), "not yet");
        assert_eq!(peer.event().await, GateEvent::Started { is_delayed: false });
        let waiting = peer.close(&gate).await;
        while peer.event().await != (GateEvent::Started { is_delayed: true }) {}
        assert!(gate.on_connection(Some("calls")).is_none());
        peer.send("\"open\"\n").await;
        assert!(waiting.await.unwrap());
        assert!(matches!(peer.event().await, GateEvent::Released { .. }));
    });
}

#[tokio::test(flavor = "current_thread")]
async fn nothing_is_delayed_for_an_owner_that_is_gone() {
    local!({
        let gate = gate();
        // One owner closes its connection, one sends an invalid command, one sends a line that
        // is too long.
        for last in ["", "\"perhaps\"\n", &"x".repeat(10_000)] {
            let (task, mut peer) = owned(&gate, 600.0);
            let waiting = peer.close(&gate).await;
            assert!(matches!(gate.acquire(&request(1.0), &known()), Err(DelayError::InUse)));
            peer.send(last).await;
            let rest = (!last.is_empty()).then_some(peer);
            let end = task.await.unwrap();
            assert!(last.is_empty() || end.is_err());
            drop(rest);
            assert!(waiting.await.unwrap());
            assert!(begin(&gate).is_none() && !gate.is_owned());
        }
    });
}

#[tokio::test(flavor = "current_thread")]
async fn an_owner_that_does_not_read_loses_the_gate() {
    local!({
        let gate = gate();
        let grant = gate.acquire(&request(600.0), &known()).unwrap();
        gate.handle(Input::Close(grant.owner));
        let waiting = begin(&gate).unwrap();
        let mut others = Vec::new();
        while gate.is_owned() {
            others.push(gate.on_connection(Some("bulk")));
            assert!(others.len() <= MAX_UNREAD_EVENTS + 1);
        }
        assert!(waiting.await.unwrap());
        // The connection of the owner ends too.
        let (_ours, theirs) = UnixStream::pair().unwrap();
        tokio::task::spawn_local(grant.serve(theirs)).await.unwrap().unwrap();
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_connection_that_waits_too_long_is_released() {
    local!({
        let gate = gate();
        let (task, mut peer) = owned(&gate, 0.05);
        let waiting = peer.close(&gate).await;
        assert!(waiting.await.unwrap());
        task.await.unwrap().unwrap();
        assert!(!gate.is_owned());
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_rule_that_is_gone_revokes_the_grant() {
    local!({
        let gate = gate();
        let (task, mut peer) = owned(&gate, 600.0);
        let waiting = peer.close(&gate).await;
        gate.retain_rules(&["calls".to_owned()]);
        assert!(waiting.await.unwrap());
        task.await.unwrap().unwrap();
    });
}

#[tokio::test(flavor = "current_thread")]
async fn an_application_that_gives_up_is_told() {
    local!({
        let gate = gate();
        let (_task, mut peer) = owned(&gate, 600.0);
        drop(peer.close(&gate).await);
        let delayed = gate.on_connection(Some("bulk")).unwrap();
        assert!(!delayed.wait(std::future::ready(())).await);
        while peer.event().await != GateEvent::Abandoned {}
    });
}
