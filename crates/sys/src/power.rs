//! Battery level and charging state.

use std::fs;
use std::path::Path;

/// Folder in which the kernel reports power supplies.
pub const FOLDER: &str = "/sys/class/power_supply";

/// Power supply of the device, as reported by the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Power {
    /// Combined level of the batteries in percent. `None` without a battery.
    pub battery: Option<u8>,
    /// Whether the batteries are charging or full, or there is none. `None` if unknown.
    pub charging: Option<bool>,
}

/// One battery, as its files report it.
#[derive(Clone, Debug, PartialEq)]
struct Battery {
    /// From 0 to 1.
    level: f64,
    /// Capacity when full, in a unit that depends on the battery; `None` if not reported.
    full: Option<f64>,
    discharging: Option<bool>,
}

/// Reads the power supplies in `folder`: [`FOLDER`], or a folder with the same structure.
pub fn read(folder: &Path) -> Power {
    let Ok(entries) = fs::read_dir(folder) else {
        return Power { battery: None, charging: Some(true) };
    };
    let batteries = entries.filter_map(|entry| {
        let folder = entry.ok()?.path();
        battery(|name| fs::read_to_string(folder.join(name)).ok())
    });
    combine(&batteries.collect::<Vec<_>>())
}

/// Parses a supply that is a battery of this device. `file` reads one of its files.
fn battery(file: impl Fn(&str) -> Option<String>) -> Option<Battery> {
    let word = |name: &str| file(name).map(|text| text.trim().to_owned());
    let number = |name: &str| word(name)?.parse::<f64>().ok().filter(|value| *value >= 0.0);
    // The battery of a mouse has the scope `Device`.
    if word("type")? != "Battery" || word("scope").as_deref() == Some("Device") {
        return None;
    }
    if word("present").as_deref() == Some("0") {
        return None;
    }
    let pair = |now: &str, full: &str| {
        let (now, full) = (number(now)?, number(full).filter(|full| *full > 0.0)?);
        Some((now / full, full))
    };
    let stored = pair("energy_now", "energy_full").or_else(|| pair("charge_now", "charge_full"));
    let level = match stored {
        Some((level, _)) => level,
        None => number("capacity")? / 100.0,
    };
    let discharging = match word("status").as_deref() {
        Some("Discharging") => Some(true),
        Some("Charging" | "Full" | "Not charging") => Some(false),
        _ => None,
    };
    Some(Battery { level: level.clamp(0.0, 1.0), full: stored.map(|(_, full)| full), discharging })
}

fn combine(batteries: &[Battery]) -> Power {
    if batteries.is_empty() {
        return Power { battery: None, charging: Some(true) };
    }
    // Weighted by size, if all batteries report one.
    let sizes: Option<Vec<f64>> = batteries.iter().map(|battery| battery.full).collect();
    let sizes = sizes.unwrap_or_else(|| vec![1.0; batteries.len()]);
    let held: f64 = batteries.iter().zip(&sizes).map(|(battery, size)| battery.level * size).sum();
    let percent = held / sizes.iter().sum::<f64>() * 100.0;
    let known = batteries.iter().filter_map(|battery| battery.discharging);
    Power {
        battery: Some(percent.round() as u8),
        charging: known.reduce(|any, one| any || one).map(|discharging| !discharging),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder of supplies with their files.
    fn folder(supplies: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, files) in supplies {
            let supply = folder.path().join(name);
            fs::create_dir(&supply).unwrap();
            for (file, text) in *files {
                fs::write(supply.join(file), format!("{text}\n")).unwrap();
            }
        }
        folder
    }

    fn of(supplies: &[(&str, &[(&str, &str)])]) -> Power {
        read(folder(supplies).path())
    }

    #[test]
    fn a_laptop_reports_level_and_charging() {
        let mains: &[_] = &[("type", "Mains"), ("online", "0")];
        let mut battery = vec![("type", "Battery"), ("capacity", "42"), ("status", "Discharging")];
        assert_eq!(
            of(&[("AC", mains), ("BAT0", &battery)]),
            Power { battery: Some(42), charging: Some(false) }
        );
        for status in ["Charging", "Full", "Not charging"] {
            battery[2].1 = status;
            assert_eq!(of(&[("BAT0", &battery)]).charging, Some(true), "{status}");
        }
        battery[2].1 = "Unknown";
        assert_eq!(of(&[("BAT0", &battery)]).charging, None);
    }

    #[test]
    fn of_two_batteries_the_larger_one_counts_for_more() {
        let small: &[_] = &[
            ("type", "Battery"),
            ("energy_now", "0"),
            ("energy_full", "1000"),
            ("status", "Unknown"),
        ];
        let large: &[_] = &[
            ("type", "Battery"),
            ("energy_now", "3000"),
            ("energy_full", "3000"),
            ("status", "Discharging"),
        ];
        let both = of(&[("BAT0", small), ("BAT1", large)]);
        assert_eq!(both, Power { battery: Some(75), charging: Some(false) });
    }

    #[test]
    fn a_mouse_is_not_the_device_and_a_desktop_has_no_battery() {
        let mouse: &[_] = &[("type", "Battery"), ("scope", "Device"), ("capacity", "5")];
        let none = Power { battery: None, charging: Some(true) };
        assert_eq!(of(&[("mouse", mouse)]), none);
        assert_eq!(of(&[]), none);
        assert_eq!(read(Path::new("/nowhere")), none);
    }

    #[test]
    fn files_that_say_nonsense_say_nothing() {
        let broken: &[_] = &[("type", "Battery"), ("capacity", "many"), ("status", "")];
        assert_eq!(of(&[("BAT0", broken)]).battery, None);
        let full: &[_] = &[("type", "Battery"), ("energy_now", "9"), ("energy_full", "0")];
        assert_eq!(of(&[("BAT0", full)]).battery, None);
        let over: &[_] = &[("type", "Battery"), ("capacity", "120")];
        assert_eq!(of(&[("BAT0", over)]).battery, Some(100));
    }
}
