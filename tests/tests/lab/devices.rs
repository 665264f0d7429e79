//! Labs with several devices, and links between them.

use std::fs;

use manyways_tests::{Need, finish, folder, manyways, needs};

use crate::running::Lab;

/// A laptop with Wi-Fi, a phone with LTE, and a link between them.
const THREE_LINKS: [&str; 6] = [
    "--link",
    "wifi:delay=1ms,device=laptop",
    "--link",
    "lte:delay=1ms,device=phone",
    "--link",
    "lan:delay=1ms,between=laptop:phone",
];

/// Runs a script on the phone.
fn on_phone(lab: &Lab, script: &str) -> String {
    let words = ["lab", "enter", &lab.name, "--device", "phone", "--", "sh", "-c", script];
    finish(manyways().args(words)).expect_success().stdout
}

#[test]
fn each_device_has_its_links_and_reaches_the_other_one_over_theirs() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let lab = Lab::start(&THREE_LINKS);
    let look = "ip -o -4 addr; ip -4 route show default; cat /etc/resolv.conf";
    let laptop = lab.device(look).expect_success().stdout;
    let phone = on_phone(&lab, look);
    for (seen, parts, others) in [
        (
            &laptop,
            [
                "wifi    inet 10.64.1.2/24",
                "lan    inet 10.64.3.2/24",
                "default via 10.64.1.1 dev wifi",
            ],
            "lte",
        ),
        (
            &phone,
            [
                "lte    inet 10.64.2.2/24",
                "lan    inet 10.64.3.1/24",
                "default via 10.64.2.1 dev lte",
            ],
            "wifi",
        ),
    ] {
        for part in parts {
            assert!(seen.contains(part), "no `{part}` in\n{seen}");
        }
        assert!(!seen.contains(others) && !seen.contains("via 10.64.3"), "{seen}");
        assert_eq!(seen.matches("nameserver").count(), 1, "{seen}");
    }
    lab.device("ping -c 1 -W 60 10.64.3.1 && ping -c 1 -W 60 fd00:64:3::1").expect_success();
    on_phone(&lab, "ping -c 1 -W 60 10.64.3.2 && ping -c 1 -W 60 origin.lab");
    // The phone does not forward, and its network is not in the laptop.
    lab.device("ping -c 1 -W 60 origin.lab && ! ping -c 1 -W 1 10.64.2.2").expect_success();
    let status = lab.status();
    let links = status["links"].as_array().expect("a list");
    let up = |index: usize| links[index]["up"]["delivered_packets"].as_u64();
    assert!(up(2) >= Some(3), "{status}");
}

#[test]
fn a_device_serves_another_one_and_each_has_its_captures() {
    needs!(Need::Root, Need::Command("python3"), Need::Command("curl"));
    let folder = folder();
    let captures = folder.path().join("captures");
    let captures = captures.to_str().expect("a path of this test");
    let server = "@phone exec python3 -m http.server 8000 --bind 10.64.3.1 >/dev/null 2>&1";
    let options = [&THREE_LINKS[..], &["--pcap", captures, "--far", server]].concat();
    let lab = Lab::start(&options);
    lab.device("curl -sSf http://10.64.3.1:8000/ -o /dev/null").expect_success();
    drop(lab);
    let size = |file: &str| {
        fs::metadata(folder.path().join("captures").join(file)).map(|file| file.len()).ok()
    };
    assert!(size("laptop/lan.pcapng") > Some(1_000));
    assert_eq!(size("laptop/lan.pcapng"), size("phone/lan.pcapng"));
    assert!(size("phone/lte.pcapng").is_some() && size("phone/wifi.pcapng").is_none());
}

#[test]
fn a_workload_runs_on_its_device() {
    needs!(Need::Root, Need::Command("ip"));
    let folder = folder();
    let file = folder.path().join("two.toml");
    let scenario = |device: &str| {
        format!(
            "name = \"two\"\n[device.laptop]\n[device.phone]\n\
             [link.wifi]\n[link.lte]\ndevice = \"{device}\"\n\
             [link.lan]\nbetween = [\"laptop\", \"phone\"]\n\
             [[workload]]\nname = \"look\"\ndevice = \"phone\"\nrun = \"ip link show lte\"\n"
        )
    };
    fs::write(&file, scenario("phone")).expect("room for a file");
    finish(manyways().args(["lab", "run"]).arg(&file)).expect_success();
    fs::write(&file, scenario("phones")).expect("room for a file");
    let done = finish(manyways().args(["lab", "check"]).arg(&file));
    assert_eq!(done.code(), 2, "{}", done.stderr);
    for part in ["two.toml:6:10: there is no device `phones`", "the devices are laptop, phone"] {
        assert!(done.stderr.contains(part), "no `{part}` in {}", done.stderr);
    }
}
