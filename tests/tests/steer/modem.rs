//! A ModemManager that lies or ends while `manyways steer run` runs.

use manyways_tests::{Need, needs};

use super::world::World;

/// A bus like that of a system.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
<listen>unix:path=FILES/bus</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
"#;

/// ModemManager with a modem whose signals are those of the file `signal`, and whose reports cannot be
/// switched on.
const MODEM: &str = r#"
import dbus, dbus.mainloop.glib, dbus.service
from gi.repository import GLib

MM = "org.freedesktop.ModemManager1"
PATH = "/org/freedesktop/ModemManager1"

def lte(values):
    return dbus.Dictionary(values, signature="sv")

class Root(dbus.service.Object):
    @dbus.service.method("org.freedesktop.DBus.ObjectManager", out_signature="a{oa{sa{sv}}}")
    def GetManagedObjects(self):
        port = lambda name: dbus.Struct((name, dbus.UInt32(2)), signature="su")
        ports = dbus.Array([port("\x1b[2J\nlte"), port("lte")], signature="(su)")
        modem = {MM + ".Modem": {"Ports": ports, "Bearers": "no list", "\x07": dbus.Int32(-1)}}
        return {dbus.ObjectPath(PATH + "/Modem/0"): modem}

class Modem(dbus.service.Object):
    @dbus.service.method("org.freedesktop.DBus.Properties", in_signature="s", out_signature="a{sv}")
    def GetAll(self, interface):
        return eval(open("FILES/signal").read())

    @dbus.service.method(MM + ".Modem.Signal", in_signature="u")
    def Setup(self, rate):
        raise dbus.DBusException("\x1b[31mnot\tallowed\x07", name=MM + ".Error.Core")

dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
bus = dbus.bus.BusConnection("unix:path=FILES/bus")
Root(bus, PATH)
Modem(bus, PATH + "/Modem/0")
name = dbus.service.BusName(MM, bus)
open("FILES/ready", "w").close()
GLib.MainLoop().run()
"#;

#[test]
fn a_modem_that_lies_or_is_gone_is_named_and_the_run_goes_on() {
    const PYTHON: &str = "/usr/lib/python3/dist-packages";
    needs!(
        Need::Root,
        Need::Command("ip"),
        Need::Command("nft"),
        Need::Command("bash"),
        Need::Command("dbus-daemon"),
        Need::File(&format!("{PYTHON}/dbus/service.py")),
        Need::File(&format!("{PYTHON}/gi/__init__.py")),
    );
    let world = World::new();
    world.write("bus.conf", BUS);
    world.write("modem.py", MODEM);
    let done = world
        .run(
            r#"
            signal() { echo "$1" > signal.new; mv signal.new signal; }
            says() { "$M" steer why www.example.com --size 1MB > why; has why "$1"; }
            dbus-daemon --config-file="$FILES/bus.conf" --nofork --nopidfile 2> /dev/null & BUS=$!
            eventually test -S bus
            signal '{"Rate": dbus.UInt32(0), "Lte": lte({"rsrp": "strong", "snr": 1e300})}'
            /usr/bin/python3 modem.py & MODEM=$!
            export DBUS_SYSTEM_BUS_ADDRESS="unix:path=$FILES/bus"
            eventually test -e ready
            steer
            eventually says 'no signal   ModemManager: it reports'
            mv why lies
            # Traffic makes polls frequent.
            ping -q -i 0.01 -s 1400 $G > ping.log & PING=$!
            signal '{"Rate": dbus.UInt32(1), "Lte": lte({"rsrp": -97.5, "snr": float("nan"), "\x1b[2J": 1.0})}'
            eventually says 'indicators .*rsrp -97.5 dBm'
            signal '{"Rate": dbus.UInt32(0), "Lte": 7}'
            eventually says 'no signal   ModemManager: ModemManager does not switch'
            mv why refused
            kill -9 $MODEM; wait $MODEM
            eventually says 'no signal   ModemManager: ModemManager does not run'
            kill $PING $BUS
            "$M" steer prefer lte --for 10m > /dev/null
            over lte
            end
            cat lies refused why
            "#,
        )
        .expect_success();
    let silences = |text: &str| -> Vec<String> {
        let parts = text.split("no signal   ModemManager: ").skip(1);
        // A long line goes on below, with an indent.
        let whole = |part: &str| part.replace("\n              ", " ");
        parts.filter_map(|part| whole(part).lines().next().map(str::to_owned)).collect()
    };
    assert_eq!(
        silences(&done.stdout),
        [
            "it reports snr = 1e300, which is not between -23 and 40 dB",
            "ModemManager does not switch reports of signals on: \
             org.freedesktop.ModemManager1.Error.Core: \\u001b[31mnot\\u0009allowed\\u0007",
            "ModemManager does not run",
        ]
    );
    // Choices go on without the features.
    let missing: Vec<&str> =
        done.stdout.lines().filter(|line| line.starts_with("Not measured, ")).collect();
    assert_eq!(missing.len(), 3, "{}", done.stdout);
    for line in missing {
        let lte = line.split_once(": lte ").expect("features").1.split(';').next().unwrap_or(line);
        assert!(lte.contains("rsrp,") && lte.contains("snr,"), "{line}");
    }
    assert!(
        !done.stdout.contains(|one: char| one.is_control() && one != '\n'),
        "{:?}",
        done.stdout
    );
}
