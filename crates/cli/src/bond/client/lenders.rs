//! The lenders of a client: the paired devices, also those that pair while it runs.

use std::collections::HashSet;
use std::time::Duration;

use manyways_net::bond::{HostNetworks, Lender, PairFile, PairedRole, PublicKey};

use crate::bond::lend;

/// Interval at which the file of the paired devices is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Adds a path for each paired device; never returns.
pub async fn follow(networks: HostNetworks, quiet: bool) {
    let Ok(folder) = lend::folder() else { return };
    let file = PairFile::lenders(&folder);
    let mut known: HashSet<PublicKey> = HashSet::new();
    let mut interval = tokio::time::interval(INTERVAL);
    let mut is_broken = false;
    loop {
        interval.tick().await;
        let devices = match file.read() {
            Ok(devices) => devices,
            Err(error) => {
                if !std::mem::replace(&mut is_broken, true) {
                    tracing::warn!("no lender is used: {error}");
                }
                continue;
            }
        };
        is_broken = false;
        for device in devices {
            let PairedRole::Lender { address } = device.role else { continue };
            if !known.insert(device.key) {
                continue;
            }
            let lender = Lender { name: device.name.clone(), address, key: device.key };
            match networks.add_lender(lender) {
                Ok(()) if quiet => {}
                Ok(()) => {
                    eprintln!("manyways: also uses the network of {}, at {address}", device.name);
                }
                Err(error) => tracing::warn!("{}: not used: {error}", device.name),
            }
        }
    }
}
