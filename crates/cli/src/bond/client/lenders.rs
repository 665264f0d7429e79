//! The lenders of a client: the paired devices, also those that pair while it runs.

use std::time::Duration;

use manyways_net::bond::{HostNetworks, Lender, PairFile, PairedDevice, PairedRole};

use crate::bond::lend;

/// Interval at which the file of the paired devices is read.
const INTERVAL: Duration = Duration::from_millis(500);

/// Keeps a path for each paired device; never returns.
pub async fn follow(networks: HostNetworks, quiet: bool) {
    let Ok(folder) = lend::folder() else { return };
    let file = PairFile::lenders(&folder);
    let mut interval = tokio::time::interval(INTERVAL);
    let mut is_broken = false;
    loop {
        interval.tick().await;
        match file.read() {
            Ok(devices) => {
                is_broken = false;
                let lenders = devices.into_iter().filter_map(lender).collect();
                for result in networks.set_lenders(lenders) {
                    match result {
                        Ok(_) if quiet => {}
                        Ok(Lender { name, address, .. }) => {
                            eprintln!("manyways: also uses the network of {name}, at {address}");
                        }
                        Err((name, error)) => tracing::warn!("{name}: not used: {error}"),
                    }
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut is_broken, true) {
                    tracing::warn!("the paired devices are not read: {error}");
                }
            }
        }
    }
}

fn lender(device: PairedDevice) -> Option<Lender> {
    let PairedDevice { name, key, role: PairedRole::Lender { address, pairing } } = device else {
        return None;
    };
    Some(Lender { name, address, key, pairing })
}
