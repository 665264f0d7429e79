use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use manyways_model::select::Indicator;
use manyways_unit::Span;
use tempfile::TempDir;
use tokio::runtime::Builder as Runtime;
use tokio::time::Instant;
use zbus::zvariant::{ObjectPath, Value};

use super::super::{SourceStatus, Sources};
use super::reading::MODEM;
use super::*;

const PYTHON: &str = "/usr/bin/python3";
const PATH: &str = "/org/freedesktop/ModemManager1/Modem/0";
const MOCK: &str = "org.freedesktop.DBus.Mock";

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A message bus of its own, with its address.
fn bus(folder: &TempDir) -> (Running, String) {
    let config = folder.path().join("bus.conf");
    let socket = folder.path().join("bus");
    let text = format!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\"><busconfig>\
         <listen>unix:path={}</listen><policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
         <allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut daemon = Command::new("dbus-daemon")
        .arg(format!("--config-file={}", config.display()))
        .args(["--nofork", "--nopidfile", "--print-address=1"])
        .stdout(Stdio::piped())
        // It complains about limits of containers.
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
    (Running(daemon), address.trim().to_owned())
}

fn missing() -> Option<&'static str> {
    let has = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let command = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !has("dbus-daemon", &["--version"]) {
        return Some("needs the package dbus");
    }
    (!has(PYTHON, &["-c", "import dbusmock"])).then_some("needs the package python3-dbusmock")
}

/// ModemManager of dbusmock; it is on the bus when this returns.
async fn manager(connection: &Connection, address: &str) -> Running {
    let mock = Command::new(PYTHON)
        .args([
            "-m",
            "dbusmock",
            "--is-object-manager",
            SERVICE,
            ROOT,
            "org.freedesktop.ModemManager1",
        ])
        .env("DBUS_SESSION_BUS_ADDRESS", address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mock = Running(mock);
    loop {
        let has: bool =
            call(connection, BUS, "/org/freedesktop/DBus", BUS, "NameHasOwner", &SERVICE)
                .await
                .unwrap();
        if has {
            return mock;
        }
        tokio::task::yield_now().await;
    }
}

/// Adds a modem with an interface, whose reports are off.
async fn add_modem(connection: &Connection) {
    let no_methods: Vec<(&str, &str, &str, &str)> = Vec::new();
    let ports = Value::from(vec![("cdc-wdm0", 6_u32), ("wwan0", 2)]);
    let bearers = Value::from(Vec::<ObjectPath<'_>>::new());
    let modem = HashMap::from([("Ports", ports), ("Bearers", bearers)]);
    let body = (PATH, MODEM, modem, &no_methods);
    let added = call::<_, ()>(connection, SERVICE, ROOT, MOCK, "AddObject", &body);
    added.await.unwrap();
    let set_rate = "self.UpdateProperties('org.freedesktop.ModemManager1.Modem.Signal', \
                    {'Rate': dbus.UInt32(args[0])})";
    let signal = HashMap::from([("Rate", Value::from(0_u32)), ("Lte", lte(-97.5, 8.0))]);
    let body = (SIGNAL, signal);
    call::<_, ()>(connection, SERVICE, PATH, MOCK, "AddProperties", &body).await.unwrap();
    let body = (SIGNAL, "Setup", "u", "", set_rate);
    call::<_, ()>(connection, SERVICE, PATH, MOCK, "AddMethod", &body).await.unwrap();
}

fn lte(rsrp: f64, snr: f64) -> Value<'static> {
    Value::from(HashMap::from([("rsrp", Value::from(rsrp)), ("snr", Value::from(snr))]))
}

async fn set(connection: &Connection, name: &str, value: Value<'_>) {
    let body = (SIGNAL, name, value);
    call::<_, ()>(connection, SERVICE, PATH, PROPERTIES, "Set", &body).await.unwrap();
}

async fn rate(connection: &Connection) -> u32 {
    let properties: Properties =
        call(connection, SERVICE, PATH, PROPERTIES, "GetAll", &SIGNAL).await.unwrap();
    setting(&properties).unwrap()
}

/// Waits for an update of this indicator with a value, or for one without.
async fn until(sources: &mut Sources, indicator: Indicator, is_known: bool) -> f64 {
    loop {
        let update = sources.next().await;
        if update.indicator == indicator && update.value.is_finite() == is_known {
            assert_eq!(&*update.network, "lte");
            return update.value;
        }
    }
}

fn status(sources: &Sources) -> SourceStatus {
    sources.status("lte").remove(0)
}

#[test]
fn a_modem_answers_then_lies_then_disappears_and_returns() {
    if let Some(missing) = missing() {
        eprintln!("skipped: {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_bus, address) = bus(&folder);
    Runtime::new_current_thread().enable_all().build().unwrap().block_on(async {
        let bus = Bus::Address(address.clone());
        let control = connect(&bus).await.unwrap();
        let mut sources = Sources::start(Instant::now(), Span::from_millis(20));
        let manager_process = manager(&control, &address).await;
        add_modem(&control).await;
        sources.add_modem("lte", "wwan0", bus.clone());
        assert_eq!(until(&mut sources, Indicator::Rsrp, true).await, -97.5);
        assert_eq!(until(&mut sources, Indicator::Snr, true).await, 8.0);
        assert_eq!(status(&sources).silence, None);
        assert_eq!(rate(&control).await, 1, "reports were switched on");

        set(&control, "Lte", lte(32_767.0, f64::NAN)).await;
        assert!(until(&mut sources, Indicator::Rsrp, false).await.is_nan());
        until(&mut sources, Indicator::Snr, false).await;
        let lie = "it reports rsrp = 32767, which is not between -156 and -31 dBm";
        assert_eq!(status(&sources).first_dropped.as_deref(), Some(lie));
        assert!(status(&sources).dropped >= 2);

        set(&control, "Lte", lte(-80.0, 20.0)).await;
        assert_eq!(until(&mut sources, Indicator::Rsrp, true).await, -80.0);
        drop(manager_process);
        until(&mut sources, Indicator::Rsrp, false).await;
        let reason = status(&sources).silence.unwrap();
        let expected = "the modem is no longer there, or ModemManager was started again";
        assert_eq!(reason, expected);
        assert_eq!(status(&sources).values[0].known.value, -80.0);

        let _manager = manager(&control, &address).await;
        add_modem(&control).await;
        assert_eq!(until(&mut sources, Indicator::Rsrp, true).await, -97.5);
        sources.stop().await;
        assert_eq!(rate(&control).await, 0, "reports are as before");
    });
}

#[test]
fn a_service_that_does_not_answer_is_not_waited_for() {
    if let Some(missing) = missing() {
        eprintln!("skipped: {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_bus, address) = bus(&folder);
    Runtime::new_current_thread().enable_all().build().unwrap().block_on(async {
        let address = Bus::Address(address);
        let (stuck, connection) =
            (connect(&address).await.unwrap(), connect(&address).await.unwrap());
        let request = (SERVICE, 0_u32);
        let named =
            call::<_, u32>(&stuck, BUS, "/org/freedesktop/DBus", BUS, "RequestName", &request);
        named.await.unwrap();
        // From now on, time passes as soon as all tasks wait.
        tokio::time::pause();
        let before = Instant::now();
        let called = call::<_, u32>(&connection, SERVICE, ROOT, OBJECTS, "GetManagedObjects", &());
        assert!(matches!(called.await, Err(ModemError::NoAnswer)));
        assert_eq!(before.elapsed().as_secs(), 2);
    });
}

#[test]
fn a_bus_without_modem_manager_is_a_reason() {
    if let Some(missing) = missing() {
        eprintln!("skipped: {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_bus, address) = bus(&folder);
    Runtime::new_current_thread().enable_all().build().unwrap().block_on(async {
        let find = |address: &str| {
            let bus = Bus::Address(address.to_owned());
            async move { Modem::find(&bus, "wwan0").await.map(|_| ()).unwrap_err().to_string() }
        };
        assert_eq!(find(&address).await, "ModemManager does not run");
        let nowhere = find("unix:path=/nowhere/bus").await;
        assert!(nowhere.starts_with("the D-Bus of the system cannot be reached: "), "{nowhere}");
        let control = connect(&Bus::Address(address.clone())).await.unwrap();
        let _manager = manager(&control, &address).await;
        assert_eq!(find(&address).await, "ModemManager has no modem with the interface wwan0");
    });
}
