use std::path::{Path, PathBuf};

use manyways_capture::{CaptureStats, Document, Progress, RunOptions, RunReport, Sources};
use manyways_flows::analysis::{Histogram, Settings};
use manyways_flows::flow::LimitedBy;
use manyways_record::document;
use manyways_unit::{Span, Time};
use tempfile::TempDir;

use super::super::summary;
use super::tables::reason;
use super::*;

const HOSTILE: &str = "\"><script>alert(1)</script>";

/// A capture with this number of HTTP conversations with a server of this name.
fn capture(flows: u8, host: &str) -> Vec<u8> {
    let mut bytes = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([65_535_u32, 1].map(u32::to_le_bytes).concat());
    let mut say = |millis: u64, flow: u8, is_up: bool, [seq, ack]: [u32; 2], flags, data: &[u8]| {
        let frame = frame(flow, is_up, [seq, ack], flags, data);
        let at = 1_700_000_000_000 + millis;
        bytes.extend(((at / 1_000) as u32).to_le_bytes());
        bytes.extend(((at % 1_000) as u32 * 1_000_000).to_le_bytes());
        bytes.extend([frame.len() as u32; 2].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    };
    let question = format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let asked = 101 + question.len() as u32;
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n";
    for flow in 0..flows {
        let start = u64::from(flow) * 400;
        say(start, flow, true, [100, 0], 0x02, b"");
        say(start + 20, flow, false, [500, 101], 0x12, b"");
        say(start + 21, flow, true, [101, 501], 0x10, b"");
        say(start + 30, flow, true, [101, 501], 0x18, &question);
        let mut next = 501;
        for part in 0..60_u64 {
            let mut data = if part == 0 { head.to_vec() } else { Vec::new() };
            data.resize(data.len() + 1_000, 7);
            say(start + 80 + part * 3, flow, false, [next, asked], 0x10, &data);
            next += data.len() as u32;
            say(start + 82 + part * 3, flow, true, [asked, next], 0x10, b"");
        }
        say(start + 300, flow, true, [asked, next], 0x11, b"");
        say(start + 320, flow, false, [next, asked + 1], 0x11, b"");
        say(start + 321, flow, true, [asked + 1, next + 1], 0x10, b"");
    }
    bytes
}

fn frame(flow: u8, is_up: bool, numbers: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend((40 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    let (client, server) = ([10, 0, 0, flow], [192, 0, 2, 77]);
    let (from, to) = if is_up { (client, server) } else { (server, client) };
    bytes.extend(from.into_iter().chain(to));
    let ports = if is_up { [40_000_u16, 80] } else { [80, 40_000] };
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend(numbers.map(u32::to_be_bytes).concat());
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

fn analyse(file: &Path, threads: u8, settings: &Settings) -> RunReport {
    let sources = Sources::find(&[file.to_owned()]).unwrap();
    let mut plan = RunOptions::new(settings.clone(), threads);
    plan.settings.overview = true;
    manyways_capture::run(&sources.captures, &plan, None, &Progress::default()).unwrap()
}

fn file(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    (folder, file)
}

const PLAIN: RunInfo<'_> = RunInfo { filter: None, is_anonymous: false, is_stopped: false };

#[test]
fn the_numbers_are_those_of_the_summary() {
    let (_folder, file) = file("office.pcap", &capture(6, "www.example.net"));
    let outcome = analyse(&file, 1, &Settings::default());
    let (counters, summary) = (&outcome.counters, &outcome.summary);
    let overview = summary.overview.as_deref().unwrap();
    assert_eq!((summary.flows, summary.valid), (6, 6));
    let timeline = || counters.timeline.bins().map(|(_, volume)| volume);
    assert_eq!(timeline().map(|volume| volume.all).sum::<u64>(), counters.bytes);
    let of_flows = timeline().map(|volume| volume.flows.iter().sum::<u64>());
    assert_eq!(of_flows.sum::<u64>(), counters.bytes, "there is nothing but flows");
    let carried: Vec<_> = overview.protocols.iter().collect();
    assert_eq!(carried.len(), 1);
    assert_eq!(*carried[0].0, ("tcp", "http"));
    assert_eq!((carried[0].1.flows, carried[0].1.bytes), (6, summary.bytes));
    let (servers, others) = overview.servers(15);
    assert_eq!((servers.len(), servers[0].0, others.traffic.flows), (1, "example.net", 0));
    assert_eq!(servers[0].1.local_rtt.median(), summary.local_rtt.median());
    let (clients, others) = overview.clients(4);
    assert_eq!((clients.len(), others.traffic.flows), (4, 2));
    assert_eq!(overview.losses, [[6, 0, 0, 0, 0]; 2]);
    assert_eq!(overview.responses.median(), Some(Span::from_millis(50)));
    assert_eq!(overview.servicing_rate.count(), 6);
    assert_eq!(overview.slow_transfers().len(), 6);

    let page = html(&outcome, &PLAIN);
    let median = summary.local_rtt.median().unwrap();
    for words in [
        "Traffic in office.pcap".to_owned(),
        format!("{} packets", counters.packets),
        "2023-11-14 22:13:20 UTC".to_owned(),
        "<th scope=\"row\">local</th><td class=\"figure\">6</td>".to_owned(),
        format!("<td class=\"figure\">{}</td>", span(median)),
        "<dt>Segments lost</dt><dd>0.00 %</dd>".to_owned(),
        "<dt>TCP flows</dt><dd>6</dd>".to_owned(),
        "<th scope=\"row\">example.net</th>".to_owned(),
        "<th scope=\"row\">http over TCP</th><td class=\"figure\">6</td>".to_owned(),
        "reports no lost packets".to_owned(),
    ] {
        assert!(page.contains(&words), "{words}");
    }
    // The summary on the terminal has the same numbers.
    let text = summary::text(&outcome, &[], None);
    assert!(text.contains(&format!("local {:.1} ms", median.as_millis_f64())), "{text}");
}

/// A run over this number of captures, each one minute after the previous one.
fn analyse_captures(number: u64) -> RunReport {
    let at = |millis| Time::from_millis(1_700_000_000_000 + millis);
    let captures = (0..number).map(|index| CaptureStats {
        name: format!("/captures/{index}.pcap"),
        packets: 7,
        times: Some((at(index * 60_000), at(index * 60_000 + 1_500))),
        ..CaptureStats::default()
    });
    let mut outcome = RunReport { captures: captures.collect(), ..RunReport::default() };
    outcome.counters.packets = 7 * number;
    outcome.counters.first = Some(at(0));
    outcome.counters.last = Some(at((number - 1) * 60_000 + 1_500));
    outcome
}

#[test]
fn every_capture_has_a_line_or_is_counted_among_those_that_have_none() {
    let page = html(&analyse_captures(24), &PLAIN);
    for index in 0..24 {
        assert!(page.contains(&format!("<th scope=\"row\">{index}.pcap</th>")), "{index}: {page}");
    }
    assert!(!page.contains(" more</th>"), "{page}");
    assert!(page.contains("168 packets and 0 B in 36 s recorded within 23 min"), "{page}");
    let page = html(&analyse_captures(70), &PLAIN);
    assert_eq!(page.matches(".pcap</th>").count(), 50);
    let line = "<tr class=\"faint\"><th scope=\"row\">20 more</th>";
    assert!(page.contains(line) && page.contains("<td class=\"figure\">140</td>"), "{page}");
    let about = RunInfo { is_anonymous: true, ..PLAIN };
    assert!(!html(&analyse_captures(3), &about).contains(".pcap"));
}

#[test]
fn a_median_says_how_many_flows_it_is_of() {
    let (_folder, file) = file("a.pcap", &capture(6, "www.example.net"));
    let mut outcome = analyse(&file, 1, &Settings::default());
    outcome.summary.rtt = Histogram::default();
    for millis in [20, 30, 40] {
        outcome.summary.rtt.push(Span::from_millis(millis));
    }
    let page = html(&outcome, &PLAIN);
    let card = "<dt>Median round trip of 3 of these flows</dt><dd>30 ms*</dd>";
    assert!(page.contains(card), "{page}");
    let text = summary::text(&outcome, &[], None);
    assert!(text.contains("Round trip   30.0 ms* (3 flows); local"), "{text}");
}

#[test]
fn percentiles_of_few_values_are_marked_and_the_mark_is_explained() {
    for (flows, is_few) in [(6, true), (19, true), (20, false)] {
        let (_folder, file) = file("a.pcap", &capture(flows, "www.example.net"));
        let outcome = analyse(&file, 1, &Settings::default());
        let (page, text) = (html(&outcome, &PLAIN), summary::text(&outcome, &[], None));
        assert_eq!(text.contains(&format!(" ms* ({flows} flows)")), is_few, "{text}");
        assert_eq!(text.contains(summary::FEW_NOTE), is_few, "{text}");
        // Each client has one flow, so its medians are marked in any case.
        let (tables, _) = page.split_once("<h2>Clients").unwrap();
        assert_eq!(tables.contains("*</td>"), is_few, "{tables}");
        let captions = tables.matches(&format!("{}.</caption>", summary::FEW_NOTE)).count();
        assert_eq!(captions, if is_few { 4 } else { 0 }, "{tables}");
        assert!(page.contains("<li>* marks percentiles"), "{page}");
    }
}

#[test]
fn each_limit_has_one_name_in_the_summary_the_report_and_the_tables() {
    let (_folder, file) = file("a.pcap", &capture(6, "www.example.net"));
    let mut outcome = analyse(&file, 1, &Settings::default());
    let limited_by = &mut outcome.summary.limited_by;
    *limited_by = LimitedBy::default();
    for (limit, seconds) in SenderLimit::ALL.into_iter().zip([53, 6, 2, 2, 1, 36]) {
        limited_by.add(limit, Span::from_secs(seconds));
    }
    let (page, text) = (html(&outcome, &PLAIN), summary::text(&outcome, &[], None));
    let card = "<dt>Servers limited by application, then slow start</dt><dd>53.0 %, 36.0 %</dd>";
    assert!(page.contains(card), "{page}");
    for limit in SenderLimit::ALL {
        let words = summary::limit_name(limit);
        assert_eq!(words, limit.name().replace('_', " "));
        assert!(text.contains(&format!("{words} ")), "{words}: {text}");
        assert!(page.contains(&format!("<li>{words}: ")), "{words} is not explained: {page}");
    }
    // The limit of the slowest flows is one of these, for any round-trip time.
    for limit in [
        SenderLimit::Congestion,
        SenderLimit::Loss,
        SenderLimit::ReceiverWindow,
        SenderLimit::SlowStart,
    ] {
        let (mut limited_by, busy) = (LimitedBy::default(), Span::from_secs(4));
        limited_by.add(limit, Span::from_secs(3));
        assert_eq!(reason(&limited_by, busy), format!("{} 75 %", summary::limit_name(limit)));
    }
    let slow = page.split("The slowest flows").nth(1).unwrap();
    let slow = slow.split("</table>").next().unwrap();
    assert!(slow.contains(">Limited by<") && !slow.contains("distance"), "{slow}");
}

#[test]
fn it_is_the_same_however_many_cores_look() {
    let (_folder, file) = file("a.pcap", &capture(20, "www.example.net"));
    let settings = Settings::default();
    let page = html(&analyse(&file, 1, &settings), &PLAIN);
    assert_eq!(html(&analyse(&file, 3, &settings), &PLAIN), page);
}

#[test]
fn of_an_empty_capture_it_says_so() {
    let (_folder, file) = file("a.pcap", &capture(0, ""));
    let page = html(&analyse(&file, 2, &Settings::default()), &PLAIN);
    assert!(page.contains("There are no packets.") && page.contains("0 TCP flows"), "{page}");
    assert!(!page.contains("<svg") && !page.contains("NaN") && !page.contains(">inf<"), "{page}");
}

#[test]
fn names_of_others_cannot_become_markup() {
    let (_folder, file) = file("<img src=x onerror=alert(1)>.pcap", &capture(2, HOSTILE));
    let mut outcome = analyse(&file, 1, &Settings::default());
    outcome.captures[0].error = Some(HOSTILE.to_owned());
    let about = RunInfo { filter: Some("len > 0 or less <b>"), is_stopped: true, ..PLAIN };
    let page = html(&outcome, &about);
    for word in ["<script", "<img", "<b>", "src=\"", "http:", "https:", "url(", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;.pcap"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("was stopped"), "{page}");
}

#[test]
fn nothing_of_whom_is_hidden_leaks() {
    let (_folder, file) = file("alice.pcap", &capture(3, "www.example.net"));
    let mut settings = Settings::default();
    settings.pseudonym_key = Some([7; 32]);
    let mut outcome = analyse(&file, 2, &settings);
    outcome.captures[0].error = Some("cannot read alice.pcap".to_owned());
    let about = RunInfo { filter: Some("host 192.0.2.77"), is_anonymous: true, is_stopped: false };
    let page = html(&outcome, &about);
    for word in ["alice", "example", "10.0.0.", "192.0.2."] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("match a filter") && page.contains("could not be read"), "{page}");
    // Nor in the names of the summary.
    let document = document::to_json(&Document::new(&outcome, &[], false)).unwrap();
    assert!(!document.contains("example") && !document.contains("192.0.2."), "{document}");
    assert!(!summary::text(&outcome, &[], None).contains("example"));
}
