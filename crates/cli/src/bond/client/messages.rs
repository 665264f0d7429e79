//! Messages of a running client.

use manyways_net::bond::ClientEvent;
use manyways_proto::bond::dial::PacketSize;
use manyways_proto::bond::interception::AddressFamilies;
use manyways_sys::interface;
use manyways_sys::tproxy::Selection;
use manyways_unit::nearest::nearest;
use tokio::sync::mpsc;

use super::options::{Args, InterceptArg};
use crate::bond::lookup;

/// Prints which address families are intercepted; `None` before the gateway has answered.
pub fn print_families(families: Option<AddressFamilies>) {
    match families {
        None => {
            eprintln!("manyways: intercepted traffic is refused: the gateway has not answered yet")
        }
        Some(AddressFamilies { v4: true, v6: true }) => {
            eprintln!("manyways: IPv4 and IPv6 are intercepted");
        }
        Some(AddressFamilies { v4: false, v6: false }) => {
            eprintln!(
                "manyways: intercepted traffic is refused: the gateway has neither IPv4 nor IPv6"
            );
        }
        Some(AddressFamilies { v4, .. }) => {
            let (has, lacks) = if v4 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
            eprintln!(
                "manyways: {has} is intercepted; {lacks} is refused, since the gateway does not \
                 reach it"
            );
        }
    }
}

/// Warns of names that no network has. The network may appear later, or the name may be a mistake.
pub fn warn_unknown_networks(args: &Args, via: &[String]) {
    let from = args.intercept.iter().filter_map(|what| match what {
        InterceptArg::Selection(Selection::From(names)) => Some(names),
        _ => None,
    });
    let via = via.iter().map(|name| ("--via", name));
    let asked: Vec<_> = via.chain(from.flatten().map(|name| ("--intercept", name))).collect();
    let Ok(known) = interface::list() else { return };
    let known: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
    for (option, name) in asked.into_iter().filter(|(_, name)| !known.contains(&name.as_str())) {
        eprintln!("manyways: {option}: this host has no network {name:?} yet");
        match nearest(name, known.iter().copied()) {
            Some(near) => eprintln!("hint: did you mean {near}?"),
            None => eprintln!("hint: the networks are: {}", known.join(", ")),
        }
    }
}

/// Prints events until the client ends, and stores new addresses of the gateway.
pub async fn print_events(
    mut events: mpsc::UnboundedReceiver<ClientEvent>,
    gateway: String,
    quiet: bool,
) {
    while let Some(events) = events.recv().await {
        if let ClientEvent::GatewayMoved { addresses: to } = &events {
            lookup::store(&gateway, to);
        }
        match events {
            ClientEvent::PathFailed { path, reason } => {
                eprintln!("manyways: {path}: {reason}");
                if let Some(hint) = reason.hint() {
                    eprintln!("hint: {hint}");
                }
            }
            _ if quiet => {}
            ClientEvent::GatewayMoved { addresses: to } => {
                let to: Vec<String> = to.iter().map(ToString::to_string).collect();
                eprintln!("manyways: the gateway's name now resolves to {}", to.join(", "));
            }
            ClientEvent::PathUp { path, packets: PacketSize::Small } => {
                eprintln!("manyways: {path} is up, with small packets: larger ones are lost");
            }
            ClientEvent::PathUp { path, .. } => eprintln!("manyways: {path} is up"),
            ClientEvent::PathDown { path, reason } => {
                eprintln!("manyways: {path} is down: {reason}")
            }
            ClientEvent::SessionRenewed => {
                eprintln!(
                    "manyways: the gateway does not know the session: all connections of this session have ended"
                );
            }
            ClientEvent::GatewayGone => {
                eprintln!(
                    "manyways: the gateway does not run: all connections of this session have ended"
                );
            }
            _ => {}
        }
    }
}
