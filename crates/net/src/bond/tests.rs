//! A client and a gateway in one process, over loopback: tests that the shells execute the cores'
//! outputs.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::sync::{Notify, mpsc};
use tokio::task::LocalSet;

use super::allow::AllowFile;
use super::client::{Client, ClientEvent, ClientOptions};
use super::gateway::{Gateway, GatewayOptions, StatusHandle};
use super::key::PrivateKey;
use super::{CarrierTransport, TransportChoice};
use crate::path::PathSpec;

/// A client and a gateway, with one path between them.
struct Pair {
    client: Client,
    events: mpsc::UnboundedReceiver<ClientEvent>,
    gateway: StatusHandle,
    stop: Rc<Notify>,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn new(transport: CarrierTransport) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (own, key) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        let allow = folder.path().join("allow");
        std::fs::write(&allow, format!("{} phone\n", own.public())).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let public = key.public();
        let allow = AllowFile::open(&allow).unwrap();
        let gateway = Gateway::bind(GatewayOptions::new(vec![any], key, allow)).unwrap();
        let mut options = ClientOptions::new(gateway.addresses(), public, own);
        options.transport = TransportChoice::Only(transport);
        let status = gateway.status_handle();
        let stop = Rc::new(Notify::new());
        let stopped = Rc::clone(&stop);
        tokio::task::spawn_local(gateway.run(async move { stopped.notified().await }));
        let (client, events) = Client::new(options).unwrap();
        Self { client, events, gateway: status, stop, _folder: folder }
    }

    fn spec() -> PathSpec {
        PathSpec::from_address("lo", [127, 0, 0, 1].into())
    }

    async fn event(&mut self) -> String {
        match self.events.recv().await.expect("the client runs") {
            ClientEvent::PathUp { path, .. } => format!("{path} is up"),
            ClientEvent::PathDown { path, reason } => format!("{path} is down: {reason}"),
            ClientEvent::PathFailed { path, reason } => format!("{path}: {reason}"),
            ClientEvent::SessionRenewed => "renewed".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

macro_rules! local {
    ($body:expr) => {
        LocalSet::new().run_until(async { $body }).await
    };
}

#[tokio::test(flavor = "current_thread")]
async fn a_path_whose_link_is_back_is_dialled_again() {
    local!({
        for transport in [CarrierTransport::Tcp, CarrierTransport::Quic] {
            let mut pair = Pair::new(transport);
            let id = pair.client.add_path(Pair::spec());
            assert_eq!(pair.event().await, "lo is up");
            for _ in 0..3 {
                pair.client.path_down(id);
                assert_eq!(pair.event().await, "lo is down: its link is down");
                assert!(!pair.client.is_connected());
                pair.client.update_path(id, Pair::spec());
                assert_eq!(pair.event().await, "lo is up");
            }
            assert_eq!(pair.gateway.status().sessions.len(), 1, "one session all the time");
            pair.stop.notify_one();
        }
    });
}

#[tokio::test(flavor = "current_thread")]
async fn a_gateway_that_stops_ends_the_session() {
    local!({
        let mut pair = Pair::new(CarrierTransport::Tcp);
        pair.client.add_path(Pair::spec());
        assert_eq!(pair.event().await, "lo is up");
        pair.stop.notify_one();
        assert_eq!(pair.event().await, "renewed");
        assert!(!pair.client.is_connected());
    });
}
