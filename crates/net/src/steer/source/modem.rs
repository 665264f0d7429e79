//! Signals of a modem from ModemManager, over D-Bus.

mod reading;

use std::time::Duration;

use manyways_unit::human::{printable, quoted};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::timeout;
use zbus::connection::Builder;
use zbus::zvariant::{DynamicType, OwnedValue, Type};
use zbus::{Connection, Message};

use self::reading::{
    KnownModem, Objects, Properties, SIGNAL, modems, rate_to_set, readings, setting, text,
};
use super::backoff::Backoff;
use super::ledger::{Reading, Scope};
use super::{Bus, Feed, Ticker};

const SERVICE: &str = "org.freedesktop.ModemManager1";
const ROOT: &str = "/org/freedesktop/ModemManager1";
const BEARER: &str = "org.freedesktop.ModemManager1.Bearer";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const OBJECTS: &str = "org.freedesktop.DBus.ObjectManager";
const BUS: &str = "org.freedesktop.DBus";
/// Characters of a reason, at most.
const MAX_REASON: usize = 200;
/// For each answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Why ModemManager has no signals; the `Display` is one sentence.
#[derive(Debug, Error)]
enum ModemError {
    #[error("the D-Bus of the system cannot be reached: {0}")]
    NoBus(String),
    #[error("ModemManager does not run")]
    NotRunning,
    #[error("ModemManager has no modem with the interface {0}")]
    NoModem(String),
    #[error("ModemManager reports no signals of this modem")]
    NoSignals,
    #[error("the modem is no longer there, or ModemManager was started again")]
    Gone,
    #[error("ModemManager did not answer within 2 s")]
    NoAnswer,
    #[error("ModemManager does not switch reports of signals on: {0}")]
    NotPermitted(String),
    #[error("ModemManager failed: {0}")]
    Failed(String),
}

/// A modem of a running ModemManager.
struct Modem {
    connection: Connection,
    /// Unique name of the service: a call to its well-known name could start it.
    service: String,
    path: String,
    /// Seconds between reports, if this program set them.
    rate: Option<u32>,
    /// Why they could not be set.
    refusal: Option<ModemError>,
}

/// Polls the modem to which an interface belongs, and looks for it again after a failure.
pub(super) async fn run(
    feed: Feed,
    mut ticker: Ticker,
    network: String,
    interface: String,
    bus: Bus,
) {
    let mut backoff = Backoff::new();
    loop {
        let began = feed.now();
        let error = match Modem::find(&bus, &interface).await {
            Err(error) => error,
            Ok(mut modem) => loop {
                match modem.readings(&ticker).await {
                    Ok(readings) => feed.report(feed.now(), &network, &readings, Scope::Complete),
                    // The modem may have no network now, or begins to report.
                    Err(ModemError::NoSignals) => feed.fail(&ModemError::NoSignals.to_string()),
                    Err(error) => {
                        modem.restore().await;
                        break error;
                    }
                }
                if !ticker.pause().await {
                    return modem.restore().await;
                }
            },
        };
        feed.fail(&error.to_string());
        if !ticker.wait(backoff.on_failure(feed.now().since(began))).await {
            return;
        }
    }
}

impl Modem {
    async fn find(bus: &Bus, interface: &str) -> Result<Self, ModemError> {
        let connection = connect(bus).await?;
        let owner = call(&connection, BUS, "/org/freedesktop/DBus", BUS, "GetNameOwner", &SERVICE);
        let service: String = owner.await?;
        let objects: Objects =
            call(&connection, &service, ROOT, OBJECTS, "GetManagedObjects", &()).await?;
        let modems = modems(&objects);
        let has_port = |modem: &&KnownModem| modem.interfaces.iter().any(|one| one == interface);
        let mut path = modems.iter().find(has_port).map(|modem| modem.path.clone());
        if path.is_none() {
            path = by_bearer(&connection, &service, &modems, interface).await?;
        }
        let path = path.ok_or_else(|| ModemError::NoModem(quoted(interface)))?;
        Ok(Self { connection, service, path, rate: None, refusal: None })
    }

    /// The signals now. Switches reports on if they are off.
    async fn readings(&mut self, ticker: &Ticker) -> Result<Vec<Reading>, ModemError> {
        let properties: Properties =
            call(&self.connection, &self.service, &self.path, PROPERTIES, "GetAll", &SIGNAL)
                .await?;
        let wanted = rate_to_set(setting(&properties), self.rate, ticker.interval());
        if let Some(rate) = wanted
            && self.refusal.is_none()
        {
            match self.setup(rate).await {
                Ok(()) => self.rate = Some(rate),
                Err(ModemError::Failed(reason)) => {
                    self.refusal = Some(ModemError::NotPermitted(reason));
                }
                Err(error) => return Err(error),
            }
        }
        let found = readings(&properties);
        match (found.is_empty(), self.refusal.take()) {
            (false, refusal) => {
                self.refusal = refusal;
                Ok(found)
            }
            (true, None) => Err(ModemError::NoSignals),
            // The reason for silence; the next attempt is made after a wait.
            (true, Some(refusal)) => Err(refusal),
        }
    }

    async fn setup(&self, rate: u32) -> Result<(), ModemError> {
        call(&self.connection, &self.service, &self.path, SIGNAL, "Setup", &rate).await
    }

    /// Switches reports off if this program switched them on.
    async fn restore(self) {
        if self.rate.is_none() {
            return;
        }
        let all = call(&self.connection, &self.service, &self.path, PROPERTIES, "GetAll", &SIGNAL);
        let now = all.await.ok().and_then(|properties: Properties| setting(&properties));
        // Another program may have changed it since.
        if now == self.rate {
            let _ = self.setup(0).await;
        }
    }
}

/// The modem with a connection over this interface. With several connections on one port, each has
/// its own interface, which is not a port.
async fn by_bearer(
    connection: &Connection,
    service: &str,
    modems: &[KnownModem],
    interface: &str,
) -> Result<Option<String>, ModemError> {
    for modem in modems {
        for bearer in &modem.bearers {
            let property = (BEARER, "Interface");
            let called = call(connection, service, bearer, PROPERTIES, "Get", &property);
            match called.await {
                Ok::<OwnedValue, _>(name) if text(&name) == Some(interface) => {
                    return Ok(Some(modem.path.clone()));
                }
                // It was disconnected since.
                Ok(_) | Err(ModemError::Gone | ModemError::Failed(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

async fn connect(bus: &Bus) -> Result<Connection, ModemError> {
    let failed = |error: zbus::Error| ModemError::NoBus(sentence(&error));
    let builder = match bus {
        Bus::System => Builder::system(),
        Bus::Address(address) => Builder::address(address.as_str()),
    };
    let connecting = builder.map_err(failed)?.build();
    let connected = timeout(TIMEOUT, connecting).await;
    connected.map_err(|_| ModemError::NoBus("no answer within 2 s".to_owned()))?.map_err(failed)
}

async fn call<B, T>(
    connection: &Connection,
    service: &str,
    path: &str,
    interface: &str,
    method: &str,
    body: &B,
) -> Result<T, ModemError>
where
    B: Serialize + DynamicType,
    T: DeserializeOwned + Type,
{
    let called = connection.call_method(Some(service), path, Some(interface), method, body);
    let answer: Result<Message, _> =
        timeout(TIMEOUT, called).await.map_err(|_| ModemError::NoAnswer)?;
    let answer = answer.map_err(|error| classify(&error))?;
    answer.body().deserialize().map_err(|error| ModemError::Failed(sentence(&error)))
}

fn classify(error: &zbus::Error) -> ModemError {
    let zbus::Error::MethodError(name, ..) = error else {
        return ModemError::Failed(sentence(error));
    };
    match name.strip_prefix("org.freedesktop.DBus.Error.") {
        Some("NameHasNoOwner") => ModemError::NotRunning,
        Some("ServiceUnknown" | "NoReply" | "Disconnected") => ModemError::Gone,
        Some("UnknownObject" | "UnknownInterface") => ModemError::Gone,
        _ => ModemError::Failed(sentence(error)),
    }
}

/// One line of bounded length: some services answer with a whole traceback.
fn sentence(error: &zbus::Error) -> String {
    let text = error.to_string();
    let line: String = text.lines().next().unwrap_or_default().chars().take(MAX_REASON).collect();
    printable(&line).into_owned()
}

#[cfg(test)]
mod tests;
